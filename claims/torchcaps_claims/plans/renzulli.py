"""The rows of [renzulli2025]: what is trained for each, or why nothing is."""

from torchcaps.errors import TorchcapsError, nearest
from torchcaps_claims.claim import Claim
from torchcaps_claims.job import Job
from torchcaps_claims.plan import Plan
from torchcaps_claims.plans.rows import rows_of
from torchcaps_claims.sets import sets_in
from torchcaps_claims.setups import SETUPS

SEEDS = 5  # the paper's
# Ways of pruning before or in training; their networks are those of the last epoch.
PRUNED = {"+prune", "+snip", "+magnitude", "+random_masks"}
UNDER_TRAINED = "under-trained (early stop at 99.22%)"
# Statistics of networks whose couplings are on a grid.
QUANTISED = ("accuracy", "entropy", "keys")
OWN_LEVELS = "the number of levels of this network on these images; the usual one is taken"
FAMILIES, METRICS, STEPS, PLACES = map(
    rows_of("systems")["renzulli2025"].__getitem__, ("families", "metrics", "steps", "places")
)
NORB = ":image_size=64x64 :crop=48x48 :standardise=set :augment=light"


def measured(claim: Claim) -> Plan:
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
        jobs += SETUPS[_setup(steps, conditions.get("regime"))].jobs(
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
    return Plan(claim, tuple(jobs), left_open=OWN_LEVELS if is_open else None)


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


def _setup(steps: str, regime: str | None) -> str:
    setup = "rem-transfer" if regime == UNDER_TRAINED else "rem"
    is_pruned = not PRUNED.isdisjoint(steps.split())
    return f"{setup}-pruned" if is_pruned else setup


def adapt(setup: str, system: str, data: str) -> tuple[str, str] | None:
    """A family as the paper builds it for a data set, stopped early where its line says so."""
    family, *words = system.split()
    regime = UNDER_TRAINED if "stopped" in words else None
    steps = " ".join(word for word in words if word != "stopped")
    found = _system_for(family, data)
    return None if found is None else (_setup(steps, regime), f"{found} {steps}")


def _system_for(family: str, data: str) -> str | None:
    """The line of cells of a family on a data set; None where the family is not built for it."""
    if family not in FAMILIES:
        raise TorchcapsError(f"family {family!r} is unknown; {nearest(family, FAMILIES)}.")
    images = "smallnorb" if data.startswith("smallnorb") else data
    system: str = FAMILIES[family].get(images, FAMILIES[family][""])
    return None if system == "none" else system.replace("NORB", NORB)
