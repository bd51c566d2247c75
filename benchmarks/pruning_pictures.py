"""The pictures of docs/pruning.md, of networks that are trained for them.

python benchmarks/pruning_pictures.py FOLDER --root DATA    # half an hour of one core

DR-CapsNet with a trunk of 16 channels and 8 primary types on 5,000 images of MNIST: `dense`,
`magnitude`, `lobster` and `snip` of seed 0 as in `pruned_trees.py --reduced`, whose runs in FOLDER
are taken where they are there. A decoder is trained on top of the frozen `magnitude`. Five layers,
`rem_multilayer`, learn as many images and are then pruned to 90 % by LAMP scores. The images shown
are the first four test images, so that nobody picks pretty ones.
"""

import os
from pathlib import Path
from typing import Any

import torch
from pruned_trees import REDUCED, Cell, fields_of, network, parser_of

from torchcaps.analysis import Couplings, mean_trace, saliency
from torchcaps.analysis.backtrack import ROUNDING
from torchcaps.analysis.keys import Keys
from torchcaps.analysis.trace import class_coupling
from torchcaps.tasks import dictionary, evaluate, perturb, prune_run
from torchcaps.tasks.trained import open_trained
from torchcaps.train import Run, fit, make_recipe
from torchcaps.viz import (
    draw_backtracked,
    draw_couplings_histogram,
    draw_keys,
    draw_levels,
    draw_pruning,
    draw_saliency,
    write_figure,
)

PICTURES = Path(__file__).parents[1] / "docs" / "pruning"
WAYS = ("dense", "magnitude", "lobster", "snip")
LEVELS = (3, 6, 11, 21, 41, 129)
SHOWN, COUNTED = 4, 1000


def main() -> None:
    asked = parser_of(__doc__).parse_args()
    runs = {}
    for way in WAYS:
        cell = Cell("mnist", 0, way)
        runs[way] = network(asked.folder, REDUCED, cell, asked.root, None)
    drawn = with_decoder(runs["magnitude"], asked.folder / "mnist" / "0" / "drawn", asked.root)
    PICTURES.mkdir(exist_ok=True)
    pruned = {way: run.metrics() for way, run in runs.items() if way != "dense"}
    write_figure(draw_pruning(pruned), PICTURES / "epochs.png")
    # SNIP has one sparsity from the start.
    ramps = {way: rows for way, rows in pruned.items() if way != "snip"}
    write_figure(draw_pruning(ramps, against="sparsity"), PICTURES / "sparsity.png")
    for way in ("dense", "magnitude"):
        write_figure(draw_levels(by_levels(runs[way], asked.root)), PICTURES / f"levels-{way}.png")
    draw_where(runs)
    draw_trees(runs)
    draw_deep(asked.folder / "deep", asked.root)
    dictionary(runs["magnitude"].folder, levels=11, root=asked.root, picture=PICTURES / "trees.png")
    perturb(drawn.folder, root=asked.root, picture=PICTURES / "drawn.png")


def with_decoder(run: Run, out: Path, root: Path | None) -> Run:
    """A decoder on top of a pruned network, all of whose own parts are frozen."""
    fields: dict[str, Any] = fields_of(REDUCED, Cell("mnist", 0, "dense"))
    recipe = make_recipe(
        **{
            **fields,
            "options": {**fields["options"], "decoder": True},
            "freeze": ("backbone", "primary", "layers"),
        }
    )
    return fit(recipe, out, root=root, begin_with=run.model_file, label="decoder")


def by_levels(run: Run, root: Path | None) -> list[tuple[int, float, float]]:
    """Levels, accuracy and entropy, of the images that the run held out."""
    trained = open_trained(run.folder)
    held_out = trained.images("validation", root=root)
    rows = []
    for levels in LEVELS:
        found = evaluate(trained.model, held_out, levels=levels, measurements=["keys"])
        keys = found.measured["keys"]
        assert isinstance(keys, Keys)
        rows.append((levels, found.accuracy, keys.entropy))
    return rows


def draw_where(runs: dict[str, Run]) -> None:
    """Where the capsules of the answer lie in an image, and which lead to it, before and after."""
    images = open_trained(runs["dense"].folder).images("test").batch(torch.arange(COUNTED))
    pixels, maps = images.pixels.float(), {}
    for way in ("dense", "magnitude"):
        with torch.no_grad():
            out = runs[way].model()(pixels, keep="last")
        answers = out.scores.argmax(-1)
        # Of one routed layer the tree is the children with more than an even share to the answer.
        in_tree = class_coupling(out.trace, answers) > 1 / out.scores.shape[1] + ROUNDING
        leaves = float(in_tree.sum(1).double().mean())
        print(f"{way}: {leaves:.0f} primary capsules in a tree, mean of {COUNTED} test images")
        tree = draw_backtracked(out.trace, predicted=int(answers[0]), class_names="0123456789")
        write_figure(tree, PICTURES / f"tree-{way}.png")
        out = runs[way].model()(pixels[:SHOWN], keep="last")
        size, n_classes = (pixels.shape[-2], pixels.shape[-1]), out.scores.shape[1]
        maps[way] = saliency(out.trace, answers[:SHOWN], n_classes=n_classes, size=size).detach()
    write_figure(draw_saliency(pixels[:SHOWN], maps), PICTURES / "saliency.png")


def draw_trees(runs: dict[str, Run]) -> None:
    """Keys a class on a grid, and couplings as they are, of all test images, before and after."""
    couplings = []
    for way in ("dense", "magnitude"):
        trained = open_trained(runs[way].folder)
        test = trained.images("test")
        found = evaluate(trained.model, test, levels=11, measurements=["keys"]).measured["keys"]
        assert isinstance(found, Keys)
        write_figure(draw_keys(found, class_names="0123456789"), PICTURES / f"keys-{way}.png")
        found = evaluate(trained.model, test, measurements=["couplings"]).measured["couplings"]
        assert isinstance(found, Couplings)
        couplings.append((way, found))
    write_figure(draw_couplings_histogram(*couplings), PICTURES / "couplings.png")


def draw_deep(folder: Path, root: Path | None) -> None:
    """The mean tree of the first image's class in five layers, before and after."""
    folder.mkdir(exist_ok=True)
    fields = fields_of(REDUCED, Cell("mnist", 0, "dense"))
    fields |= {"model": "rem_multilayer", "options": {"decoder": False, "init": "balanced"}}
    dense = fit(make_recipe(**fields), folder / "dense", root=root, label="five layers")
    how = {"prune_scope": "lamp", "learning_rate": 1e-3}
    pruned = prune_run(dense.folder, folder / "magnitude", to=0.9, epochs=10, root=root, fields=how)
    images = open_trained(dense.folder).images("test").batch(torch.arange(COUNTED))
    for way, run in (("dense", dense), ("magnitude", pruned)):
        model = run.model()
        answer = int(model(images.pixels[:1]).scores.argmax())
        outs = (model(pixels, keep="last") for pixels in images.pixels.split(100))
        tree = draw_backtracked(
            mean_trace(outs, classes=[answer]), predicted=answer, class_names="0123456789"
        )
        write_figure(tree, PICTURES / f"tree-deep-{way}.png")
        print(f"five layers, {way}: {run.result()['test_accuracy']:.2%} right")


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
