"""A network pruned once it is trained, and the one it is compared with: alike but for pruning."""

import json
import sys

import pruned_again
import pytest

from torchcaps._digests import digest_of
from torchcaps.data import SOURCES, PartWholeSpec, part_whole
from torchcaps.train import Run


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "asked", "ramp", "epochs"), [("NARROW", (), 5, 10), ("WIDE", ("--wide",), 6, 18)]
)
def test_both_begin_with_the_trained_network_and_differ_in_pruning_alone(
    monkeypatch, tmp_path, capsys, name, asked, ramp, epochs
):
    def tiny(split, root):
        return part_whole(split, {"train": 400, "test": 30}[split], spec=PartWholeSpec(size=24))

    monkeypatch.setitem(SOURCES, "mnist", tiny)
    fields = {"model": "rem_eff_mnist", "options": {}, "train_images": 40, "batch_size": 20}
    course = getattr(pruned_again, name)
    form = course.form._replace(fields={**course.form.fields, **fields, "epochs": 1})
    monkeypatch.setattr(pruned_again, name, course._replace(form=form))
    words = ["pruned_again.py", str(tmp_path), "--data", "mnist", "--seeds", "0", *asked]
    monkeypatch.setattr(sys, "argv", words)
    pruned_again.main()

    printed = capsys.readouterr().out
    rows = json.loads((tmp_path / "pruned_again.json").read_text())["rows"]
    values = {row["way"]: row["values"] for row in rows}
    assert [row["way"] for row in rows] == ["dense", "again", "rewound"]
    # Of all weights, as LAMP counts them; a layer can be off by one weight.
    assert values["rewound"]["sparsity"] == pytest.approx(90, abs=0.01)
    assert values["dense"]["sparsity"] == values["again"]["sparsity"] == 0
    dense, again, rewound = (Run(tmp_path / "mnist" / "0" / way) for way in pruned_again.WAYS)
    assert again.recipe.begins_with == digest_of(dense.model_file)[:12]
    unlike = {
        name
        for name, value in again.recipe.model_dump().items()
        if value != rewound.recipe.model_dump()[name]
    }
    # A ramp of five epochs is what a recipe has that says none.
    assert unlike - {"prune_ramp"} == {"prune", "prune_to", "prune_scope"}
    assert (rewound.recipe.prune, rewound.recipe.prune_scope) == ("magnitude", "lamp")
    assert rewound.recipe.prune_ramp == ramp < rewound.recipe.epochs == epochs
    assert again.recipe.decay == course.decay
    assert again.recipe.precision == dense.recipe.precision
    assert again.recipe.learning_rate == dense.recipe.learning_rate
    difference = values["rewound"]["accuracy"] - values["again"]["accuracy"]
    assert f"rewound − again: accuracy {difference:.3f}\n" in printed
    pruned_again.main()
    assert capsys.readouterr().out == printed
