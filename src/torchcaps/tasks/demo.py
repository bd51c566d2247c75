"""The demo: a five-layer capsule network and its uniform twin, trained and dissected."""

import os
from pathlib import Path

from torchcaps.data import ImageSet, load
from torchcaps.models import load as load_model
from torchcaps.tasks.dissect import dissect, facts_of, write_report
from torchcaps.tasks.true_tree import dissect_truth
from torchcaps.train import fit, make_recipe

TWINS = {"Dynamic routing": "dynamic", "Uniform twin": "uniform"}
MODEL, DATA, EPOCHS = "mitterreiter_5x16", "part-whole", 2
# Enough for three digits of every measure.
IMAGES = 1000
# From N(0, 1), as published, the capsule network has learned little after two epochs.
INIT = "balanced"


def demo(out: str | os.PathLike[str], *, seed: int = 0) -> Path:
    """Train both twins on the part-whole set, dissect them on held-out images; the page's path.

    Called again with the same folder and seed it goes on where it stopped.

    Arguments:
        out: the folder for runs and page.
        seed: of images and weights.

    >>> demo("torchcaps-demo")  # doctest: +SKIP
    """
    out = Path(out)
    runs = {
        label: fit(
            make_recipe(
                model=MODEL,
                data=DATA,
                epochs=EPOCHS,
                seed=seed,
                options={"routing": routing, "init": INIT},
            ),
            out / routing,
            label=label,
        )
        for label, routing in TWINS.items()
    }
    test = load(DATA, split="test")
    assert isinstance(test, ImageSet)
    page = out / "report.html"
    dissections = [dissect_truth(test)]
    dissections += [
        dissect(
            load_model(run.model_file),
            test,
            label=label,
            facts=facts_of(run),
            count=IMAGES,
            measurements=["fidelity"],
        )
        for label, run in runs.items()
    ]
    write_report(dissections, page, title="Is there a parse tree inside?")
    return page
