"""The rows of [renzulli2025]: what is trained for each, or why nothing is."""

from torchcaps.errors import TorchcapsError, nearest
from torchcaps_claims.claim import Claim
from torchcaps_claims.job import Job
from torchcaps_claims.plan import Plan, no_run, runs
from torchcaps_claims.plans.rows import plan_row
from torchcaps_claims.sets import sets_in
from torchcaps_claims.setups import SETUPS

SEEDS = 5  # the paper's
SIZES = "tests/claims/test_sizes.py::test_a_published_size"
METRICS = {
    "accuracy": "accuracy",
    "entropy": "entropy",
    "sparsity": "sparsity",
    "params": "nonzero_parameters",
    "metric": "keys",
}
# "+Q" quantises the couplings of a trained network, "+REM" prunes it while it trains, too.
STEPS = {"": "", "Q": "+quantise", "REM": "+prune +quantise"}
# Ways of pruning before or in training; their networks are those of the last epoch.
PRUNED = {"+prune", "+snip", "+magnitude", "+random_masks"}
UNDER_TRAINED = "under-trained (early stop at 99.22%)"
# Statistics of networks whose couplings are on a grid.
QUANTISED = ("accuracy", "entropy", "keys")
OWN_LEVELS = "the number of levels of this network on these images; the usual one is taken"
# What of a row's conditions says where or when is looked.
PLACES = {"K": "K", "predicted_class": "class", "epoch": "epoch", "best_seed": "best_seed"}

# The networks as built for each data set, as far as the paper or its public code says.
FAMILIES = {
    "DR-CapsNet": "rem_dr",
    "γ-CapsNet": "rem_gamma",
    "DeepCaps": "rem_deepcaps",
    "Eff-CapsNet": "rem_eff",
    "Eff-ConvCapsNet": "rem_effconv",
    "multilayer": "rem_multilayer",
}
EFFICIENT = {
    "mnist": "rem_eff_mnist",
    "fashion-mnist": "rem_eff_mnist",
    "svhn": "rem_eff_svhn",
    "cifar10": "rem_eff_cifar",
}
# As public code of Efficient-CapsNet takes them: each camera standardised, brought from 96 × 96 to
# 64 × 64, of which 48 × 48 are shown in other light.
NORB = ":image_size=64x64 :crop=48x48 :standardise=set :augment=light"
COLOUR = ("cifar10", "svhn")
LARGE = ("dogs-vs-cats", "imagenette")


def plan(claim: Claim) -> Plan:
    """What becomes of a row of this paper."""
    planned = plan_row(claim, adapt=_adapt)
    if planned is not None:
        return planned
    if claim.id.startswith("rem-text-k-"):
        return no_run(claim, "setting")
    assert claim.system is not None
    if claim.kind == "params" and not claim.needs_trained:
        return no_run(claim, "count", shown_by=SIZES)
    return _measured(claim)


def _measured(claim: Claim) -> Plan:
    """A number of a trained network."""
    assert claim.system is not None
    assert claim.dataset is not None
    conditions = claim.conditions
    family, _, variant = claim.system.partition("+")
    words = [STEPS[variant]]
    if conditions.get("pruned") or conditions.get("pruning") == "iterative":
        words = ["+prune", *words] if "+prune" not in words[0] else words
    if conditions.get("pruning") == "single-shot":
        words = ["+snip +quantise"]
    if conditions.get("decoder"):
        words.append("decoder=true")
    if family.endswith("with one routing iteration"):
        family, words = "DR-CapsNet", ["iterations=1 +quantise"]
    steps = " ".join(words)
    metric = METRICS[claim.kind]
    jobs: list[Job] = []
    for test in _images(claim):
        system = f"{_system_for(family, test)} {steps}"
        jobs += SETUPS[_setup(test, steps, conditions.get("regime"))].jobs(
            system,
            metrics=metric,
            seeds=SEEDS,
            data=(test,),
            at={
                ours: conditions[theirs] for theirs, ours in PLACES.items() if theirs in conditions
            },
        )
    is_quantised = "quantise" in jobs[0].after and metric in QUANTISED
    is_open = is_quantised and "K" not in conditions and not _names_levels(family, claim.dataset)
    return runs(claim, tuple(jobs), left_open=OWN_LEVELS if is_open else None)


def _names_levels(family: str, images: str) -> bool:
    """Whether the paper says on how many levels it quantised a network for these images."""
    if family.startswith("Eff-CapsNet"):
        return images == "smallNORB"
    return images not in ("smallNORB", "SVHN")


def _images(claim: Claim) -> tuple[str, ...]:
    """The test images of a number."""
    axis = claim.conditions.get("axis")
    if axis is not None:
        familiar = "-familiar" if claim.conditions.get("viewpoint") == "familiar" else ""
        return (f"smallnorb-{axis}{familiar}",)
    assert claim.dataset is not None
    return sets_in(claim.dataset)


def _setup(test: str, steps: str, regime: str | None) -> str:
    setup = "rem-transfer" if regime == UNDER_TRAINED else "rem"
    is_pruned = not PRUNED.isdisjoint(steps.split())
    return f"{setup}-pruned" if is_pruned else setup


def _adapt(setup: str, system: str, data: str) -> tuple[str, str] | None:
    """A family as the paper builds it for a data set, stopped early where its line says so."""
    family, *words = system.split()
    if "stopped" in words:
        words.remove("stopped")
        regime: str | None = UNDER_TRAINED
    else:
        regime = None
    steps = " ".join(words)
    found = _system_for(family, data)
    if found is None:
        return None
    return _setup(data, steps, regime), f"{found} {steps}"


def _system_for(family: str, data: str) -> str | None:
    """The line of cells of a family on a data set; None where the family is not built for it."""
    if family not in FAMILIES:
        raise TorchcapsError(f"family {family!r} is unknown; {nearest(family, FAMILIES)}.")
    model = FAMILIES[family]
    is_norb = data.startswith("smallnorb")
    if data in LARGE:
        return f"{model} :image_size=128x128" if model == "rem_effconv" else None
    if model == "rem_effconv":
        # Large enough that classes look at several positions, of which saliency is made.
        return f"{model} :image_size=64x64" if data == "part-whole" else None
    if model == "rem_eff":
        if is_norb:
            return f"rem_eff_norb {NORB}"
        return EFFICIENT.get(data)
    if data == "tiny-imagenet":
        # Features of a frozen ResNet-18 instead of the image, one type of 36 capsules.
        frozen = "rem_dr types=1 trunk=resnet18_imagenet :image_size=224x224"
        return frozen if model == "rem_dr" else None
    if is_norb:
        return f"{model} {NORB}"
    if data in COLOUR and model == "rem_dr":
        # The augmentation of its public code, which names CIFAR alone.
        light = " :augment=flip-light" if data == "cifar10" else ""
        return f"rem_dr types=64 :image_size=24x24{light}"
    if data in COLOUR and model == "rem_deepcaps":
        return "rem_deepcaps :image_size=64x64"
    return model
