"""The networks that the benchmark of pruning trains: recipes that hold, hours, records."""

import itertools
import json
import sys
from pathlib import Path

import pruned_trees
import pytest

from made_records import made
from torchcaps.data import SOURCES, PartWholeSpec, part_whole
from torchcaps.study.record import read_records, write_record
from torchcaps.train import make_recipe
from torchcaps_claims.pruned import MATCHED

ROOT = Path(__file__).parents[2]
WHOLE, MIDDLE, REDUCED = pruned_trees.WHOLE, pruned_trees.MIDDLE, pruned_trees.REDUCED


@pytest.mark.parametrize("form", [WHOLE, MIDDLE, REDUCED])
@pytest.mark.parametrize("way", [each for each in pruned_trees.WAYS if "mask_" not in each])
def test_every_way_is_a_recipe(form, way):
    for data in form.data:
        recipe = make_recipe(
            **pruned_trees.fields_of(form, pruned_trees.Cell(data, 1, way)),
        )
        named = {"dense": None, "longer": None, "lamp": "magnitude"}
        assert recipe.prune == named.get(way, way)
        assert recipe.epochs == form.fields["epochs"] * (4 if way == "longer" else 3) // 3
        assert recipe.train_images == form.fields["train_images"]
        if way == "lobster":
            assert recipe.prune_to == MATCHED[data] / 100


def test_every_record_has_a_recipe_that_can_be_asked_for():
    asked = set()
    forms = (WHOLE, MIDDLE, MIDDLE._replace(shrink=3.4e-3), REDUCED)
    for form, precision in itertools.product(forms, ("float32", "bfloat16")):
        fields = {**form.fields, "precision": precision}
        for cell in pruned_trees.cells_of(form):
            if cell.way == "mask_like_lobster":
                # It is masked as far as another network came, and has no record.
                continue
            of_cell = pruned_trees.fields_of(form._replace(fields=fields), cell)
            asked.add(make_recipe(**of_cell).digest())
    records = read_records(ROOT / "evidence", study=pruned_trees.STUDY, drafts=True)
    assert records
    assert {each.recipe_hash for each in records.values()} <= asked


def test_another_shrink_is_said():
    assert pruned_trees.said_of(MIDDLE) == MIDDLE.said
    assert pruned_trees.said_of(MIDDLE._replace(shrink=3.4e-3)) == (
        "a trunk of 32 channels, 20,000 training images, 12 epochs; LOBSTER shrinks weights by "
        "0.0034 a step"
    )


def test_the_whole_plan_fits_into_twelve_hours_of_two_cores():
    cells = pruned_trees.cells_of(WHOLE)
    assert len(set(cells)) == len(cells)
    assert 8 < sum(pruned_trees.hours(WHOLE, cell) for cell in cells) <= 12
    # What the question rests on is there for every set and seed.
    for way in ("dense", "magnitude", "lobster", "mask_at_the_end"):
        assert sum(cell.way == way for cell in cells) == 6
    assert {cell.way for cell in pruned_trees.cells_of(REDUCED)} == set(pruned_trees.WAYS)


def test_what_is_there_is_told_and_nothing_is_trained(monkeypatch, tmp_path, capsys):
    for seed, accuracy in ((0, 99.0), (2, 99.2)):
        file = pruned_trees.Cell("mnist", seed, "dense").folder(tmp_path).with_name("dense.json")
        file.parent.mkdir(parents=True)
        numbers = dict.fromkeys(pruned_trees.SHOWN, accuracy)
        row = {"data": "mnist", "seed": seed, "way": "dense", "values": numbers}
        file.write_text(json.dumps(row))
    monkeypatch.setattr(sys, "argv", ["pruned_trees.py", str(tmp_path), "--there"])
    pruned_trees.main()
    (line,) = capsys.readouterr().out.splitlines()
    # Of 99.0 and 99.2 the half interval is 12.706 times 0.1.
    assert line.startswith("mnist          dense              accuracy 99.100 [97.829, 100.371]  ")
    assert sorted(x.name for x in tmp_path.rglob("*.*")) == ["dense.json"] * 2


def tiny_form(monkeypatch, seeds):
    """REDUCED for some seconds."""

    def tiny(split, root):
        return part_whole(split, {"train": 400, "test": 30}[split], spec=PartWholeSpec(size=24))

    monkeypatch.setitem(SOURCES, "mnist", tiny)
    fields = {"model": "rem_eff_mnist", "options": {}, "train_images": 40, "batch_size": 20}
    form = REDUCED._replace(seeds=seeds, fields={**REDUCED.fields, **fields, "epochs": 3})
    monkeypatch.setattr(pruned_trees, "REDUCED", form)
    return form


def test_seeds_of_two_machines_make_one_record(monkeypatch, tmp_path):
    tiny_form(monkeypatch, (0, 1))
    values = {}
    for seed in ("1", "0"):
        words = ["pruned_trees.py", str(tmp_path / seed), "--reduced", "--ways", "dense"]
        monkeypatch.setattr(
            sys, "argv", [*words, "--seeds", seed, "--evidence", str(tmp_path / "evidence")]
        )
        pruned_trees.main()
        (row,) = json.loads((tmp_path / seed / "pruned_trees.json").read_text())["rows"]
        values[int(seed)] = row["values"]["entropy+K11"]
        (record,) = read_records(tmp_path / "evidence", drafts=True).values()
    assert {each.seed: each.values["entropy+K11"] for each in record.seeds} == values
    assert len(list((tmp_path / "evidence").rglob("*.json"))) == 2
    pruned_trees.main()
    assert len(list((tmp_path / "evidence").rglob("*.json"))) == 2


@pytest.mark.parametrize(
    ("is_draft", "there", "expected"),
    [
        # Of changed code, which no result may rest on.
        (False, [([0], True)], [1]),
        (False, [([0, 1], True)], [1]),
        (False, [([0], False), ([0, 2, 3], True)], [0, 1]),
        (True, [([0], True)], [0, 1]),
        # Two machines wrote one each; the fuller one goes on.
        (False, [([0], False), ([0, 2], False)], [0, 1, 2]),
        (False, [([0, 2], False), ([0], False)], [0, 1, 2]),
    ],
)
def test_a_record_goes_on_from_the_fullest_that_makes_it_no_draft(
    monkeypatch, tmp_path, is_draft, there, expected
):
    form = REDUCED._replace(seeds=(1,))
    (cell,) = [each for each in pruned_trees.cells_of(form) if each.way == "dense"]
    recipe = make_recipe(**pruned_trees.fields_of(form, cell))
    whole = made(recipe, [{"accuracy": 90.0 + seed} for seed in range(4)])

    def of(seeds, dirty):
        changes = {"study": pruned_trees.STUDY, "claims": pruned_trees.CLAIMS, "dirty": dirty}
        return whole.model_copy(
            update={**changes, "seeds": tuple(whole.seeds[seed] for seed in seeds)}
        )

    for seeds, dirty in there:
        write_record(of(seeds, dirty), tmp_path)
    before = {*read_records(tmp_path, drafts=True)}
    monkeypatch.setattr(pruned_trees, "record_of_runs", lambda *_, **__: of([1], is_draft))
    row = {**cell._asdict(), "values": {}, "measured_by": None}
    pruned_trees.write_evidence(tmp_path / "runs", form, [row], tmp_path)
    written = [
        record for name, record in read_records(tmp_path, drafts=True).items() if name not in before
    ]
    assert [[each.seed for each in record.seeds] for record in written] == [expected]
    assert written[0].is_draft == is_draft


@pytest.mark.slow
def test_all_ways_give_records_and_the_same_line_adds_nothing(monkeypatch, tmp_path, capsys):
    form = tiny_form(monkeypatch, (0, 1))
    words = ["pruned_trees.py", str(tmp_path / "runs"), "--reduced"]
    monkeypatch.setattr(sys, "argv", [*words, "--evidence", str(tmp_path / "evidence")])
    pruned_trees.main()
    printed = capsys.readouterr().out
    assert printed.count("entropy − dense") == len(pruned_trees.WAYS) - 1
    records = read_records(tmp_path / "evidence", drafts=True)
    assert len(records) == len(pruned_trees.WAYS) - 1
    for record in records.values():
        assert [seed.seed for seed in record.seeds] == [0, 1]
        assert record.reduced == form.said
        assert {"accuracy", "accuracy+K11", "entropy+K11", "sparsity"} <= set(
            record.seeds[0].values
        )
    rows = json.loads((tmp_path / "runs" / "pruned_trees.json").read_text())["rows"]
    reached = {row["way"]: row["values"]["sparsity"] for row in rows if row["seed"] == 0}
    assert reached["mask_like_lobster"] == pytest.approx(reached["lobster"], abs=0.1)
    assert reached["random_masks"] == pytest.approx(90, abs=0.1)
    pruned_trees.main()
    assert capsys.readouterr().out == printed
    assert read_records(tmp_path / "evidence", drafts=True) == records
