"""One look at a trained network."""

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from torchcaps.analysis import (
    Antipodal,
    Calibration,
    Inequality,
    Keys,
    MeasureActivity,
    MeasureDynamics,
    Perturbation,
    Polarisation,
    Selectivity,
    Separation,
    ZeroVotes,
    measure,
)
from torchcaps.analysis.result import Result
from torchcaps.data import Images
from torchcaps.errors import Diverged, TorchcapsError
from torchcaps.layers import DynamicRouting
from torchcaps.prune import sparsity
from torchcaps.study.look import OF_COUPLINGS, Look
from torchcaps.study.runner.apart import apart_of, dense_run
from torchcaps.study.runner.at_rest import fixed_point_of
from torchcaps.study.runner.focused import focus_of
from torchcaps.study.runner.opposed import cancellation_of
from torchcaps.study.runner.redrawn import redrawn_of
from torchcaps.study.runner.viewpoint import compactness_of, invariance_of, tree_size_of, trees_of
from torchcaps.study.sets import SETS
from torchcaps.tasks.evaluate import evaluate
from torchcaps.tasks.measurements import Levels, seen_through
from torchcaps.tasks.trained import Trained, open_trained
from torchcaps.train import Recipe, Run
from torchcaps.train.beginning import freeze
from torchcaps.train.start import initial_model
from torchcaps.types import Output

__all__ = ["images_of_others", "look_at", "root_of", "trunk_file"]

# Images a pass: few enough that the couplings of a thousand capsules fit in memory.
BATCH = 100


def look_at(
    run: Run,
    look: Look,
    *,
    root: str | os.PathLike[str] | None,
    time_budget: float | None = None,
) -> dict[str, float]:
    """The numbers of one look at a finished run.

    Arguments:
        run: it.
        look: what is looked at.
        root: the folder of data sets that are files.
        time_budget: seconds for what a look trains; what only looks takes its time.
    """
    recipe = run.recipe
    if look == Look("accuracy", recipe.test_data or recipe.data):
        # Looked at once already, at the end of training.
        return {"accuracy": run.accuracy}
    if look.kind == "weights":
        return _of_weights(run.model(), frozen=recipe.freeze)
    trained = open_trained(run.folder)
    where, images = root_of(look.data, root), _shown(trained, look, root)
    # Others of the split it was trained on are refused already.
    if look.split == "test" and _is_of_own(run, look) and not trained.knows(images, "test"):
        raise TorchcapsError(
            f"{run.folder} was tested on other images of {look.data} than there are now, and its "
            f"record would be of both; put them back as they were, or name their --root."
        )
    grid: int | tuple[int, ...] = look.levels[0] if len(look.levels) == 1 else look.levels
    if look.kind == "layers":
        return dict(_of_layers(trained, images, grid or None))
    if look.kind == "antipodal-at-start":
        return _at_start(trained, images)
    if look.kind == "cancellation":
        return cancellation_of(trained.model.eval(), recipe, images)
    if look.kind == "cancellation-at-start":
        return _named_at_start(cancellation_of(_begun(trained), recipe, images))
    if look.kind == "fixed-point":
        model = trained.model.eval()
        return fixed_point_of(lambda x, **more: model(x.to(trained.device), **more), images)
    if look.kind == "redrawn":
        return redrawn_of(run, images, root=where, time_budget=time_budget)
    if look.kind == "saliency":
        return _apart(run, trained, grid, images, root, time_budget)
    if look.kind in VIEWS:
        return VIEWS[look.kind](_network(trained, grid or None, ("tree-distance",)), images)
    found = evaluate(
        trained.model,
        images,
        batch_size=min(BATCH, recipe.batch_size),
        levels=grid or None,
        measurements=() if look.kind == "accuracy" else (look.kind,),
    )
    if look.kind == "accuracy":
        return {"accuracy": 100 * found.accuracy}
    return READERS[look.kind](found.measured[look.kind])


def images_of_others(run: Run, look: Look, *, root: str | os.PathLike[str] | None) -> str | None:
    """The digest of the images of a look, where the run has written none down.

    Arguments:
        run: a finished run.
        look: what is looked at.
        root: the folder of data sets that are files.
    """
    if look.kind == "weights" or _is_of_own(run, look):
        return None
    return _shown(open_trained(run.folder), look, root).digest()


def _is_of_own(run: Run, look: Look) -> bool:
    """Whether the run has written down the digest of these images."""
    recipe = run.recipe
    return look.data == (recipe.test_data or recipe.data if look.split == "test" else recipe.data)


def _shown(trained: Trained, look: Look, root: str | os.PathLike[str] | None) -> Images:
    where = root_of(look.data, root)
    return trained.images(look.split, data=look.data, root=None if where is None else Path(where))


def _of_weights(model: nn.Module, *, frozen: tuple[str, ...] = ()) -> dict[str, float]:
    """In percent, and in millions, as the papers print them; and how sharp agreement became, a
    number a routed layer. Parts that were frozen were not pruned, and no pruner counted them."""
    freeze(model, frozen)
    nonzero = sum(int(weight.count_nonzero()) for weight in model.parameters())
    routed = [module for module in model.modules() if isinstance(module, DynamicRouting)]
    sharp = {
        f"agreement.{number}": routing.agreement.item()
        for number, routing in enumerate(routed, 1)
        if isinstance(routing.agreement, nn.Parameter)
    }
    return {"sparsity": 100 * sparsity(model).share, "nonzero_parameters": nonzero / 1e6, **sharp}


def _of_keys(keys: Result) -> dict[str, float]:
    """Entropy, its bound, and the keys of each class and of a class on average."""
    assert isinstance(keys, Keys)
    each = {f"keys.{row.name}": float(row.keys) for row in keys.classes}
    mean = sum(each.values()) / len(each)
    return {"entropy": keys.entropy, "entropy_bound": keys.bound, "keys": mean, **each}


def _of_inequality(found: Result) -> dict[str, float]:
    """By layer, and of the last one by themselves."""
    assert isinstance(found, Inequality)
    values = {}
    for number, layer in enumerate(found.layers, 1):
        values[f"small_couplings.{number}"] = values["small_couplings"] = layer.small
        values[f"even_couplings.{number}"] = values["even_couplings"] = layer.even
        if layer.gini is not None:
            values[f"gini.{number}"] = layer.gini
    if (last := found.layers[-1].gini) is not None:
        values["gini"] = last
    return values


def _of_calibration(found: Result) -> dict[str, float]:
    """The mean over images of the largest probability."""
    assert isinstance(found, Calibration)
    answers = found.answers
    return {"confidence": float((answers.counts * answers.confidence).sum() / answers.cases)}


def _of_zero_votes(found: Result) -> dict[str, float]:
    """Shares by layer, and those of the last one by themselves."""
    assert isinstance(found, ZeroVotes)
    values = {}
    for number, layer in enumerate(found.layers, 1):
        for name in ("zero_blocks", "zero_votes", "dead_children"):
            values[f"{name}.{number}"] = values[name] = float(getattr(layer, name))
    return values


def _of_pairs(found: Result) -> dict[str, float]:
    """Near-antipodal shares of a child by layer, the cosine of the nearest hundredth, the share of
    components below zero, and the mean share."""
    assert isinstance(found, Antipodal)
    values = {f"antipodal_share.{k}": each.per_child for k, each in enumerate(found.layers, 1)}
    values |= {f"lowest_cosine.{k}": each.lowest for k, each in enumerate(found.layers, 1)}
    values |= {f"negative_share.{k}": each.negative for k, each in enumerate(found.layers, 1)}
    return {**values, "antipodal_share": sum(x.per_child for x in found.layers) / len(found.layers)}


def _at_start(trained: Trained, images: Images) -> dict[str, float]:
    """Near-antipodal shares of the network before training."""
    found = evaluate(_begun(trained), images, batch_size=BATCH, measurements=("antipodal",))
    return _named_at_start(_of_pairs(found.measured["antipodal"]))


def _begun(trained: Trained) -> nn.Module:
    """The network before training, which its recipe makes anew."""
    assert trained.run is not None
    network = initial_model(trained.run.recipe, trained.images("train"))
    return network.to(trained.device).eval()


def _named_at_start(values: Mapping[str, float]) -> dict[str, float]:
    return {re.sub(r"^\w+", r"\g<0>_at_start", name): value for name, value in values.items()}


def _of_steps(found: Result) -> dict[str, float]:
    """By layer and iteration, `polarisation.1.3`, and of the last of all."""
    assert isinstance(found, Polarisation)
    values: dict[str, float] = {}
    layers = list(dict.fromkeys(row.name for row in found.steps))
    for row in found.steps:
        if row.polarisation is not None:
            name = f"polarisation.{layers.index(row.name) + 1}.{row.iteration}"
            values[name] = row.polarisation
    if found.steps and (last := found.steps[-1].polarisation) is not None:
        values["polarisation"] = last
    return values


def _of_perturbation(found: Result) -> dict[str, float]:
    assert isinstance(found, Perturbation)
    return {f"change.{row.amount:g}": row.change for row in found.amounts}


def _of_selectivity(found: Result) -> dict[str, float]:
    """By layer of capsules; nothing of one without a living capsule."""
    assert isinstance(found, Selectivity)
    values = {}
    for number, layer in enumerate(found.layers, 1):
        if layer.dedicated is not None:
            values[f"one_part.{number}"] = layer.dedicated
        if found_by_any := [share for *_, share in layer.sweep if share is not None]:
            values[f"one_part_at_most.{number}"] = max(found_by_any)
        if layer.control is not None:
            values[f"one_part_by_chance.{number}"] = layer.control
    return values


def _of_separation(found: Result) -> dict[str, float]:
    assert isinstance(found, Separation)
    return {"silhouette": found.silhouette, "nearest_centroid": 100 * found.nearest_centroid}


READERS: Mapping[str, Callable[[Result], dict[str, float]]] = {
    "antipodal": _of_pairs,
    "calibration": _of_calibration,
    "inequality": _of_inequality,
    "keys": _of_keys,
    "perturbation": _of_perturbation,
    "polarisation": _of_steps,
    "selectivity": _of_selectivity,
    "separation": _of_separation,
    "zero-votes": _of_zero_votes,
}
VIEWS = {
    "compactness": compactness_of,
    "focus": focus_of,
    "invariance": invariance_of,
    "tree-size": tree_size_of,
    "trees": trees_of,
}


def _apart(
    run: Run,
    trained: Trained,
    grid: int | tuple[int, ...],
    images: Images,
    root: str | os.PathLike[str] | None,
    time_budget: float | None,
) -> dict[str, float]:
    where, trunk = root_of(run.recipe.data, root), trunk_file(run.recipe, root)
    try:
        beside = dense_run(run, root=where, trunk=trunk, time_budget=time_budget)
    except Diverged:
        # It says nothing of the pruned network, which came to its end.
        return {"saliency_known": 0.0}
    both = (open_trained(beside.folder), trained)
    dense, pruned = (_network(each, grid or None, ("tree-distance",)) for each in both)
    return apart_of(dense, pruned, images)


def root_of(data: str, root: str | os.PathLike[str] | None) -> str | os.PathLike[str] | None:
    """The folder of a set; None for images that are made."""
    return None if data in SETS and not SETS[data].has_files else root


def trunk_file(recipe: Recipe, root: str | os.PathLike[str] | None) -> Path | None:
    """The weights of a frozen trunk, which lie beside the data sets under the trunk's name."""
    trunk = recipe.options.get("trunk")
    return None if trunk is None else Path(root or "data") / f"{trunk}.safetensors"


def _network(
    trained: Trained, levels: Levels | None, names: Sequence[str]
) -> Callable[[Tensor], Output]:
    """Of pixels that lie anywhere, with what the measurements need of the trace."""
    network = seen_through(trained.model.eval(), levels=levels, names=names)
    return lambda pixels: network(pixels.to(trained.device))


def _of_layers(
    trained: Trained, images: Images, levels: Levels | None
) -> Iterator[tuple[str, float]]:
    network = _network(trained, levels, ("activity", "dynamics"))
    batches = (images.batch(index) for index in torch.arange(len(images)).split(BATCH))
    pairs = ((batch.pixels, batch.labels) for batch in batches)
    dynamics, activity = measure(network, pairs, [MeasureDynamics(), MeasureActivity()])
    for number, layer in enumerate(activity.layers, 1):
        for name in ("cnm", "cns", "car", "cas", "cdr", "cds"):
            yield f"{name}.{number}", float(getattr(layer, name))
        yield f"capsules_alive.{number}", float(layer.n - layer.cds)
        at = {factor: cas for factor, cas, _ in activity.sweep[layer.name]}
        yield f"car_twice.{number}", at[2.0] / layer.n
    for number, routed in enumerate(dynamics.layers, 1):
        for name in OF_COUPLINGS:
            value = getattr(routed, name)
            # None where no two parents live: there is nothing to route.
            if value is not None:
                yield f"{name}.{number}", float(value)
