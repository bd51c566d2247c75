"""Statements of [renzulli2025]: couplings, their entropy and keys, sparsity and accuracy, with and
without pruning.

Couplings are on a grid (Q); a pruned network has its couplings on the same grid (REM).
"""

from collections.abc import Mapping
from typing import Any

from torchcaps.models import MODELS
from torchcaps_claims.judges.case import (
    Case,
    Verdict,
    confirming,
    fails,
    holds,
    joined,
    judge,
    judge_each,
    open_if,
    without_lean,
)
from torchcaps_claims.judges.evidence import NARROWED
from torchcaps_claims.judges.values import Cell, Values, rises
from torchcaps_claims.pruned import MATCHED
from torchcaps_claims.verdict import StatementVerdict

DR, GAMMA, DEEP = "rem_dr", "rem_gamma", "rem_deepcaps"
EFFICIENT = {"mnist": "rem_eff_mnist", "fashion-mnist": "rem_eff_mnist", "cifar10": "rem_eff_cifar"}
AT_HAND = ("mnist", "fashion-mnist", "cifar10")
PRUNED: dict[str, Any] = {"prune": "lobster"}
CLASSES = 10
LOW, HIGH = (10, 20, 30), (80, 90)
# Points of sparsity within which two networks have as many weights masked.
SAME_SPARSITY = 2.0
OTHER_SPARSITY = "a network ended at another sparsity than its row asks for"
HASTENED = (
    "LOBSTER shrinks weights 46 times as fast, to be done in six epochs, and may prune otherwise so"
)
NOT_HOW_SIMILAR = (
    "the paper says neither how similar couplings become nor on how many levels it counts their "
    "trees, and here they vary least, as it says"
)
ITERATIONS = range(1, 11)
# A network of ten classes that is right on no more than so many percent has not learned them.
GUESSED = 20.0
# Of blocks: so few are zero that they are no reason of a lower entropy.
HARDLY_ANY = 0.01
# Of saliency on the object, in the test images of part-whole: that of a map that is the same
# everywhere, and of a Gaussian of ten pixels at the centre of every image.
EVEN_FOCUS, CENTRED_FOCUS = 0.0775, 0.1281
# A Gini coefficient below this is of couplings that are even.
EVEN = 0.01
# As wide are the widest networks of ours that were pruned; the paper's have 256 channels.
WIDE = 128
OF_WIDER = (
    "with 128 channels, nearer to the paper's 256, LOBSTER leaves it open and magnitude raises it "
    "(records 4fb5e87fe250, 402306b7ddbe and 561b2d096632)"
)


def _of(case: Case, name: str, data: str, model: str = DR, **chosen: Any) -> Values:
    """A statistic of the network that the paper has for a set."""
    return case.values(name, model, data=data, **_types(data, model), **chosen)


def _types(data: str, model: str = DR) -> dict[str, Any]:
    return {"types": 64} if (model, data) == (DR, "cifar10") else {}


def _on_grid(case: Case, name: str, data: str, model: str = DR, **chosen: Any) -> Values:
    """Take a statistic with couplings on the grid of eleven levels, or that of its network."""
    return _of(case, f"{name}{'+K11,6' if model == GAMMA else '+K11'}", data, model, **chosen)


def _fall(case: Case, name: str, data: str, model: str = DR, **chosen: Any) -> Values:
    """By how much it falls by pruning."""
    whole = _on_grid(case, name, data, model, **chosen)
    return whole - _on_grid(case, name, data, model, **PRUNED, **chosen)


def _sparsity(case: Case, data: str, model: str = DR, **chosen: Any) -> Values:
    """Take the sparsity of a pruned network."""
    return _of(case, "sparsity", data, model, **PRUNED, **chosen)


def _share_that_falls(case: Case, data: str, **chosen: Any) -> Values:
    return _fall(case, "entropy", data, **chosen) / _on_grid(case, "entropy", data, **chosen)


def _families_on(data: str) -> tuple[str, ...]:
    return (DR, GAMMA, DEEP, EFFICIENT[data])


judge_each(
    {
        "rem-q-keys-lower": lambda case: [
            *(_fall(case, f"keys.{k}", data) for data in AT_HAND for k in range(CLASSES)),
            *_elsewhere(case, "keys."),
        ],
        "rem-q-eff-low-entropy": lambda case: _lowest(case, EFFICIENT),
        "rem-q-gamma-lowest": lambda case: _lowest(case, {"mnist": GAMMA}),
        "rem-q-rem-affine-robust": lambda case: [
            _robust(case, "accuracy", stops=stops, **PRUNED)
            - _robust(case, "accuracy", stops=stops)
            for stops in (True, False)
        ],
        # More sparsity without a decoder, and a larger share of the entropy that goes.
        "rem-q-decoder-limits": lambda case: [
            of(case, data, decoder=False) - of(case, data, decoder=True)
            for data in AT_HAND
            for of in (_sparsity, _share_that_falls)
        ],
        # Fashion-MNIST and CIFAR-10, each against new elevations and new azimuths, of which the
        # paper shows both.
        "rem-q-norb-saliency-less": lambda case: [
            _on_grid(case, "saliency", other, **PRUNED)
            - _on_grid(case, "saliency", f"smallnorb-{axis}", **PRUNED)
            for other in ("fashion-mnist", "cifar10")
            for axis in ("elevation", "azimuth")
        ],
    }
)


# Entropy and keys.


@judge("rem-q-entropy-lower-everywhere", with_itself=True)
def _entropy_lower(case: Case) -> Verdict:
    """In every cell that was run: DR-CapsNet on the three sets at hand, and whatever there is of
    the others and of other sets, one that was pruned and whose entropy nobody measured too. One
    architecture can contradict "every architecture"; to confirm it takes all that are built for
    the sets at hand."""
    cells, families = [], set()
    every = [(data, model) for data in AT_HAND for model in _families_on(data)]
    for data, model in every:
        fall = _fall(case, "entropy", data, model)
        if fall or model == DR or case.values("accuracy", model, data=data, **PRUNED):
            cells.append(fall)
            families.add(model)
    found = case.each(*cells, *_elsewhere(case, "entropy+"), corrected=True)
    missing = {model for _, model in every} - families
    because = f"nobody ran {', '.join(sorted(missing))}"
    return _unless_narrow(case, open_if(bool(missing), found, because, word="holds"))


def _unless_narrow(case: Case, found: Verdict) -> Verdict:
    """That entropy is lower in narrow networks leans nowhere while wider ones say otherwise."""
    widths = [x.recipe["options"].get(NARROWED, WIDE) for x in case.read if x.recipe["model"] == DR]
    is_narrow = min(widths, default=WIDE) < WIDE
    is_lower = found is not None and "holds" in (found.word, found.would)
    return without_lean(found, OF_WIDER) if is_narrow and is_lower else found


def _elsewhere(case: Case, beginning: str) -> list[Values]:
    """By how much statistics of this beginning fall on sets that are not at hand, in whatever was
    run on them, pruned and not."""
    found = {}
    for record in case.records:
        model, data = record.recipe["model"], record.recipe["data"]
        if data in AT_HAND or record.recipe.get("prune") != PRUNED["prune"]:
            continue
        chosen = {"data": data, **record.recipe.get("options", {})}
        names = {name for seed in record.seeds for name in seed.values}
        for name in (name for name in names if name.startswith(beginning)):
            whole = case.values(name, model, **chosen)
            found[data, model, name] = whole - case.values(name, model, **chosen, **PRUNED)
    return [found[each] for each in sorted(found) if found[each]]


def _lowest(case: Case, models: Mapping[str, str]) -> list[Cell]:
    """Compare the entropy of one family with that of each of the others, on every set, with and
    without pruning."""
    return [
        Cell(_on_grid(case, "entropy", data, other, **pruned), against=lowest)
        for data, model in models.items()
        for pruned in ({}, PRUNED)
        for lowest in [_on_grid(case, "entropy", data, model, **pruned)]
        for other in _families_on(data)
        if other != model
    ]


@judge("rem-q-selfattention-collapse")
def _self_attention_collapses(case: Case) -> Verdict:
    """On CIFAR-10 couplings hardly vary, and their entropy is low; elsewhere both are larger.
    Neither contradicts it: the bounds are ours."""
    found = {}
    for data in AT_HAND:
        model = EFFICIENT[data]
        found["std", data] = case.values("coupling_std.1", model, data=data)
        found["H", data] = _on_grid(case, "entropy", data, model)
    bounds: Mapping[str, float] = case.threshold
    low = case.bound(*(found[name, "cifar10"].less(bound) for name, bound in bounds.items()))
    larger = [
        Cell(found[name, data], against=found[name, "cifar10"])
        for name in bounds
        for data in AT_HAND
        if data != "cifar10"
    ]
    both = joined(low, confirming(case.each(*larger)))
    return without_lean(both, NOT_HOW_SIMILAR) if fails(both) else both


@judge("rem-q-undertrained-high-entropy")
def _undertrained_higher(case: Case) -> Verdict:
    (entropy, stopped), (whole_entropy, whole) = (
        [_robust(case, name, stops=stops, **PRUNED) for name in ("entropy", "accuracy")]
        for stops in (True, False)
    )
    higher, robust = case.each(entropy - whole_entropy), whole - stopped
    if case.is_reduced:
        return without_lean(higher, "the smaller form trains the network that stops for longer")
    # As robust or more: by its mean, and no test.
    if holds(higher) and not robust:
        return None
    because = "networks that were trained to the end are less robust"
    return open_if(sum(robust.values()) < 0, higher, because, word="holds")


def _robust(case: Case, name: str, *, stops: bool, **chosen: Any) -> Values:
    """On affNIST: of networks that stop at 99.22 %, or of those that train to the end."""
    named = "|".join(f"{name}+K11@{images}/test" for images in ("affnist", "affnist-style"))
    stop_at = 0.9922 if stops else None
    return case.values(named, DR, data="expanded-mnist", stop_at=stop_at, **chosen)


@judge("rem-q-entropy-starts-low")
def _starts_low(case: Case) -> Verdict:
    """Judge by validation images, on which every epoch of a pruned run counts its keys. Runs that
    end while entropy still rises cannot say that it does not fall."""
    curves = case.curves("entropy", DR, data="mnist", **PRUNED)
    begin, end = (
        Values({seed: max(curve) - curve[k] for seed, curve in curves.items()}) for k in (0, -1)
    )
    found = case.bound(begin.greater(case.threshold), end.greater(case.threshold))
    is_rising = any(curve[-1] == max(curve) for curve in curves.values())
    because = "entropy still rises at the end of these runs"
    return without_lean(found, because) if is_rising and fails(found) else found


@judge("rem-q-epoch1-uniform")
def _even_at_first(case: Case) -> Verdict:
    """That it is so leans nowhere: it is so after more epochs too, as far as they were run."""
    share = case.values("even_couplings", DR, data="mnist", epochs=1)
    found = case.bound(share.greater(case.threshold))
    because = "after six epochs as many are (record 9b09e4dccd8a): the first is no other"
    return without_lean(found, because) if holds(found) else found


@judge("rem-q-k-affects-performance")
def _levels_matter(case: Case) -> Verdict:
    """On MNIST, from a grid of three levels to one of 129, in accuracy too: a difference to the
    least of all levels is never below zero."""
    entropy, accuracy = (
        case.values(f"{name}+K129", DR, data="mnist") - case.values(f"{name}+K3", DR, data="mnist")
        for name in ("entropy", "accuracy")
    )
    same = case.each(entropy.within(0.2)), case.each(accuracy.within(0.05))
    if all(map(holds, same)):
        return StatementVerdict("fails", entropy.interval, "greater", 0.0)
    return confirming(case.each(entropy, accuracy))


# Ways to prune, and how sparse networks become.


def _is_near(sparsity: Values, percent: float) -> bool:
    """Whether the mean is within two points; what nobody measured is not."""
    return bool(sparsity) and abs(sparsity.mean - percent) <= SAME_SPARSITY


def _reaches(case: Case, data: str, percent: int, **chosen: Any) -> bool:
    """Whether as many weights are pruned as were asked for. LOBSTER goes no further than that, and
    often ends before."""
    return _is_near(_of(case, "sparsity", data, prune_to=percent / 100, **chosen), percent)


@judge("rem-q-low-pruning-noisy")
def _noisy_when_low(case: Case) -> Verdict:
    """Entropy rises at one of the low sparsities and falls at the high ones."""
    parts, reached = [], []
    for data in ("mnist", "cifar10"):
        dense = _on_grid(case, "entropy", data)
        rise = {
            percent: _on_grid(case, "entropy", data, **PRUNED, prune_to=percent / 100) - dense
            for percent in (*LOW, *HIGH)
        }
        parts.append(case.one_of(*(rise[percent] for percent in LOW), corrected=True))
        parts.append(case.each(*(rise[percent].less() for percent in HIGH)))
        reached += [_reaches(case, data, percent, **PRUNED) for percent in rise]
    found = joined(*parts)
    return found if all(reached) else without_lean(found, OTHER_SPARSITY)


@judge("rem-q-snip-worse")
def _snip_worse(case: Case) -> Verdict:
    """At a sparsity of 80 %; where one of the networks ended at another, two ways of pruning are
    not compared, and it leans nowhere."""

    def of(name: str, data: str, way: str) -> Values:
        return _on_grid(case, name, data, prune=way, prune_to=0.8)

    sets = ("mnist", "cifar10")
    cells = [of("accuracy", data, "lobster") - of("accuracy", data, "snip") for data in sets]
    cells.append(_on_grid(case, "entropy", "mnist") - of("entropy", "mnist", "snip"))
    cells.append(of("entropy", "cifar10", "snip") - of("entropy", "cifar10", "lobster"))
    ways = ("lobster", "snip")
    reached = [_reaches(case, data, 80, prune=way) for data in sets for way in ways]
    found = case.each(*cells, corrected=True)
    return found if all(reached) else without_lean(found, OTHER_SPARSITY)


@judge("rem-q-any-pruning")
def _any_pruning(case: Case) -> Verdict:
    """At a sparsity of 80 %; open where a network ended at another."""
    cells, is_reached = [], True
    for data in ("mnist", "cifar10"):
        dense = _on_grid(case, "entropy", data)
        for way in ("lobster", "magnitude", "snip", "random_masks"):
            cells.append(dense - _on_grid(case, "entropy", data, prune=way, prune_to=0.8))
            is_reached = is_reached and _reaches(case, data, 80, prune=way)
    found = open_if(not is_reached, case.each(*cells, corrected=True), OTHER_SPARSITY)
    return _unless_narrow(case, found)


@judge("rem-q-entropy-falls-by-pruning")
def _falls_by_pruning(case: Case) -> Verdict:
    """Against the dense network of the last epoch, and against networks that have as many weights
    masked: at random, and at the end. Open where LOBSTER ended at another sparsity than theirs."""
    cells, is_matched = [], True
    for data in AT_HAND:
        pruned = _on_grid(case, "entropy", data, **PRUNED)
        sparsity = _sparsity(case, data)
        cells.append(_on_grid(case, "entropy", data, keep="last") - pruned)
        for control in ("random_masks", "mask_at_the_end"):
            masked: dict[str, Any] = {"prune": control, "prune_to": MATCHED[data] / 100}
            cells.append(_on_grid(case, "entropy", data, **masked) - pruned)
            apart = _of(case, "sparsity", data, **masked) - sparsity
            is_matched = is_matched and _is_near(apart, 0)
    found = case.each(*cells, corrected=True)
    return found if is_matched else without_lean(found, OTHER_SPARSITY)


@judge("rem-q-negligible-loss", with_itself=True)
def _little_is_lost(case: Case) -> Verdict:
    """Less than two points on Fashion-MNIST and on CIFAR-10, at a sparsity of 40 % or more in most
    seeds; DR-CapsNet, and whatever there is of the others. Networks as wide as the paper's alone: a
    narrow one may need what a wide one can spare."""
    cells, is_sparse = [], True
    for data in ("fashion-mnist", "cifar10"):
        for model in _families_on(data):
            options = MODELS[model].options
            wide = {NARROWED: options[NARROWED]} if NARROWED in options else {}
            whole = _of(case, "accuracy", data, model, **wide)
            loss = whole - _on_grid(case, "accuracy", data, model, **PRUNED, **wide)
            sparsity = _sparsity(case, data, model, **wide).values()
            if loss or model == DR:
                cells.append(loss.less(case.threshold["accuracy_drop"]))
                enough = [each >= case.threshold["sparsity_at_least"] for each in sparsity]
                is_sparse = is_sparse and sum(enough) > len(enough) / 2
    found = case.bound(*cells, corrected=True)
    if fails(found) and case.is_reduced:
        return without_lean(found, HASTENED)
    because = "most networks have more weights left than its row allows"
    return open_if(not is_sparse, found, because, word="holds")


# Votes, couplings and trees.


@judge("rem-q-pruning-zeroes-whole-votes", with_itself=True)
def _zeroes_whole_votes(case: Case) -> Verdict:
    """More than a tenth of the blocks in every cell; contradicted by a cell that has hardly any and
    a lower entropy all the same, by its mean, and is as sparse as the paper's."""
    many, none_and_lower, and_sparse = [], [], []
    for data in AT_HAND:
        for model in _families_on(data):
            blocks = _blocks(case, data, model)
            fall = _fall(case, "entropy", data, model)
            lower = blocks if sum(fall.values()) > 0 else Values()
            is_sparse = _is_as_sparse(case, data, model)
            many.append(blocks.greater(case.threshold))
            none_and_lower.append(lower.greater(HARDLY_ANY))
            and_sparse.append((lower if is_sparse else Values()).greater(HARDLY_ANY))
    refuted = case.bound(*and_sparse, corrected=True)
    # Hardly any in a network that is less sparse says little.
    less_sparse = case.bound(*none_and_lower, corrected=True)
    if case.is_reduced and fails(less_sparse):
        return without_lean(less_sparse, HASTENED)
    if fails(refuted):
        return refuted
    if fails(less_sparse):
        return open_if(True, less_sparse, "less is pruned than in the paper")
    # Too few blocks alone contradict nothing.
    is_whole = all(cell.is_there for cell in many)
    return confirming(case.bound(*many)) if is_whole else None


def _blocks(case: Case, data: str, model: str) -> Values:
    """Take zero blocks as they were looked at, or as every epoch of a pruned run counts them, which
    ends with the network of the last."""
    looked_at = _on_grid(case, "zero_blocks", data, model, **PRUNED)
    if looked_at:
        return looked_at
    chosen = {**_types(data, model), **PRUNED}
    return case.of_curves(
        lambda curve: curve[-1], "zero_blocks/classes", model, data=data, **chosen
    )


def _is_as_sparse(case: Case, data: str, model: str) -> bool:
    """Whether as much is pruned as [renzulli2025] has of DR-CapsNet, or more."""
    sparsity = _sparsity(case, data, model)
    return bool(sparsity) and sparsity.mean >= MATCHED[data] - SAME_SPARSITY


@judge("rem-q-sparser-couplings")
def _sparser_couplings(case: Case) -> Verdict:
    """Where all couplings are even before pruning that they are no sparser leans nowhere: none can
    become less sparse then."""
    names, before = ("small_couplings", "gini"), _of(case, "gini", "mnist")
    gains = [_of(case, name, "mnist", **PRUNED) - _of(case, name, "mnist") for name in names]
    is_even = bool(before) and before.mean < EVEN
    found = case.each(*gains, corrected=True)
    because = "all couplings are even before pruning"
    return without_lean(found, because) if is_even and fails(found) else found


@judge("rem-q-iterations-polarise")
def _iterations_polarise(case: Case) -> Verdict:
    """After each iteration of networks that were trained with ten, and at the end of networks that
    were trained with each number."""
    cells = []
    for data in ("mnist", "cifar10"):

        def of(step: str, iterations: int, data: str = data) -> Values:
            return _of(case, f"polarisation{step}", data, iterations=iterations)

        cells.append(rises({t: of(f".1.{t}", ITERATIONS[-1]) for t in ITERATIONS}))
        cells.append(rises({t: of("", t) for t in ITERATIONS}))
    return case.bound(*cells)


@judge("rem-q-fewer-capsules-in-tree")
def _smaller_trees(case: Case) -> Verdict:
    """A pruned network that guesses leans nowhere: nothing is left in it to look at."""

    def of(data: str, name: str = "tree_size+K11", **chosen: Any) -> Values:
        return case.values(name, "rem_multilayer", data=data, **chosen)

    sets = ("cifar10", "fashion-mnist")
    found = case.each(*(of(data) - of(data, **PRUNED) for data in sets), corrected=True)
    right = [share for data in sets for share in of(data, "accuracy", **PRUNED).values()]
    is_learned = bool(right) and min(right) > GUESSED
    return found if is_learned else without_lean(found, "a pruned network guesses")


@judge("rem-q-still-equivariant")
def _still_equivariant(case: Case) -> Verdict:
    """Judge the pruned network; open, since nothing was looked at whose components draw less."""
    share, known = (
        case.values(f"drawn_{name}", DR, data="mnist", **PRUNED) for name in ("components", "known")
    )
    found = case.bound(share.greater(case.threshold))
    found = open_if(not all(known.values()), found, "a decoder diverged")
    because = "no control was looked at: a decoder may draw by any vectors that tell images apart"
    return without_lean(found, because)


@judge("rem-q-saliency-focus")
def _focuses(case: Case) -> Verdict:
    """More than before pruning, and more than where nothing was learned at all."""
    name, model, data = "focus+K21", "rem_effconv", "part-whole"
    pruned, whole = (_of(case, name, data, model, **chosen) for chosen in (PRUNED, {}))
    found = case.each(pruned - whole)
    centred = case.bound(pruned.greater(CENTRED_FOCUS))
    because = (
        f"a blur at the centre of every image has {CENTRED_FOCUS:.2f} on the object, and the maps "
        f"of pruned networks have less"
    )
    return found if holds(centred) or fails(found) else without_lean(found, because)


@judge("rem-q-rem-novel-viewpoint")
def _robust_to_viewpoints(case: Case) -> Verdict:
    """On new elevations and on new azimuths: about as accurate, and of a lower entropy."""

    def of(name: str, axis: str, **chosen: Any) -> Values:
        return _on_grid(case, name, f"smallnorb-{axis}", "rem_eff_norb", **chosen)

    axes, limits = ("elevation", "azimuth"), case.threshold
    gains = [of("accuracy", axis, **PRUNED) - of("accuracy", axis) for axis in axes]
    falls = [of("entropy", axis) - of("entropy", axis, **PRUNED) for axis in axes]
    return joined(
        case.bound(*(gain.greater(limits["accuracy"]) for gain in gains)),
        case.each(*(fall.greater(limits["entropy"]) for fall in falls)),
    )
