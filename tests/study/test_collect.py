"""Records out of run folders that were laid by hand."""

import json

import pytest

from error_text import text_of
from torchcaps.study import Record, record_of_runs
from torchcaps.train import make_recipe

CLAIMS = ("peer2022-t1-rba-bias",)


@pytest.fixture
def lay(tmp_path):
    """Lays a finished run of one seed and returns its folder."""

    def lay(seed, *, commit="a1b2c3d4e5f6", accuracy=0.995, epochs=2, threads=2):
        folder = tmp_path / f"run{seed}"
        folder.mkdir()
        recipe = make_recipe(model="peer_sign_dynamic", data="sign", epochs=epochs, seed=seed)
        (folder / "recipe.json").write_text(recipe.model_dump_json())
        environment = {
            "torchcaps": "0.1.0",
            "commit": commit,
            "torch": "2.8.0",
            "python": "3.11.7",
            "machine": "Linux x86_64, 2 cores",
            "threads": threads,
            "command": f"torchcaps train /my/own.toml --root '/all sets' --seed {seed} --out=/a/b",
            "training_images": "111111111111",
        }
        (folder / "environment.json").write_text(json.dumps(environment))
        rows = [{"epoch": n, "validation_accuracy": 0.5, "seconds": 1.25} for n in (1, 2)]
        (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        digests = {"train": "111111111111", "test": "222222222222"}
        result = {"test_accuracy": accuracy, "training_images": 18_000, "digests": digests}
        (folder / "result.json").write_text(json.dumps(result))
        (folder / "model.safetensors").touch()
        return folder

    return lay


def collected(*folders, **options):
    return record_of_runs(folders, study="peer2022/table1", claims=CLAIMS, **options)


def test_everything_is_read_from_the_folders(lay):
    folders = [lay(0, accuracy=0.99), lay(1, accuracy=0.998), lay(2, accuracy=0.997)]
    record = collected(*folders, measured={1: {"dyr": 0.25}}, reduced="2 epochs", departures=["x"])
    assert isinstance(record, Record)
    assert record.values("accuracy") == pytest.approx([99.0, 99.8, 99.7])
    assert record.values("dyr") == [0.25]
    assert [seed.seed for seed in record.seeds] == [0, 1, 2]
    assert record.seeds[0].per_epoch[1]["validation_accuracy"] == 0.5
    assert record.wall_seconds == 7.5
    assert record.recipe["epochs"] == 2
    assert record.recipe_hash == make_recipe(**record.recipe).digest()
    assert record.data == {"sign/train": "111111111111", "sign/test": "222222222222"}
    assert (record.commit, record.dirty, record.is_draft) == ("a1b2c3d4e5f6", False, False)
    assert record.versions == {"torchcaps": "0.1.0", "torch": "2.8.0", "python": "3.11.7"}
    assert record.device == "Linux x86_64, 2 cores, 2 threads"
    assert record.command == "torchcaps train own.toml --seed 0"
    assert (record.reduced, record.departures) == ("2 epochs", ("x",))


@pytest.mark.parametrize("commit", ["a1b2c3d4e5f6+changes", None])
def test_one_run_of_changed_code_makes_a_draft(lay, commit):
    record = collected(lay(0), lay(1, commit=commit))
    assert record.is_draft
    assert record.dirty == (commit is not None)


def test_code_that_went_on_with_a_run_counts_too(lay):
    file = lay(0) / "environment.json"
    began = json.loads(file.read_text())
    file.write_text(json.dumps({**began, "went_on_with": ["bbbbbbbbbbbb+changes"]}))
    record = collected(file.parent)
    assert (record.commit, record.dirty) == ("a1b2c3d4e5f6, bbbbbbbbbbbb", True)


def test_runs_of_two_commits_name_both(lay):
    record = collected(lay(0), lay(1, commit="bbbbbbbbbbbb", threads=4))
    assert record.commit == "a1b2c3d4e5f6, bbbbbbbbbbbb"
    assert record.device == "Linux x86_64, 2 cores, 2 threads, Linux x86_64, 2 cores, 4 threads"


def test_runs_that_do_not_belong_together_are_refused(lay):
    first, other = lay(0), lay(1, epochs=3)
    assert text_of(lambda: collected(first, other)) == (
        f"{other} has another recipe than {first}; the seeds of one record differ in nothing but "
        f"their seed."
    )
    (other / "result.json").unlink()
    assert text_of(lambda: collected(first, other)) == (
        f"{other} has no result yet; finish the run with its own line first."
    )
    assert text_of(lambda: collected(first, first)) == (
        "the record does not hold: every seed may be there once, but seeds are [0, 0]."
    )
    assert text_of(collected) == "a record needs at least one run, but came none."
    assert text_of(lambda: collected(first, measured={7: {"dyr": 1.0}})) == (
        "values came for seeds [7], but the runs have [0]."
    )


@pytest.mark.parametrize("split", ["train", "test"])
def test_seeds_of_other_images_are_refused(lay, split):
    """A record has one digest of a set, which was that of the first seed."""
    first, other = lay(0), lay(1)
    result = json.loads((other / "result.json").read_text())
    result["digests"][split] = "333333333333"
    (other / "result.json").write_text(json.dumps(result))
    found = ", ".join(result["digests"].values())
    assert text_of(lambda: collected(first, other)) == (
        f"{other} was trained or tested on other images than {first} (digests {found} and "
        f"111111111111, 222222222222); was --root another folder? Remove the one of the wrong "
        f"images, and the same line trains it anew."
    )


@pytest.mark.parametrize(
    ("name", "change", "words"),
    [
        ("result", {"digests": None}, "its 'digests' do not name the images"),
        ("result", {"digests": {"train": "1"}}, "its 'digests' do not name the images"),
        ("result", {"digests": {"train": "1", "test": 2}}, "its 'digests' do not name the images"),
        ("result", {"digests": ...}, "'digests' is missing"),
        ("environment", {"torch": ...}, "'torch' is missing"),
        ("environment", {"threads": ...}, "'threads' is missing"),
        ("environment", {"threads": "many"}, "'threads' is no number"),
        ("environment", {"machine": 3}, "'machine' is no text"),
        ("environment", {"commit": 3}, "its 'commit' is no text"),
        ("environment", {"went_on_with": 3}, "its 'commit' is no text"),
        ("environment", {"command": "torchcaps 'train"}, "its 'command': No closing quotation"),
    ],
)
def test_a_damaged_file_of_a_run_is_told_by_name(lay, name, change, words):
    file = lay(0) / f"{name}.json"
    fields = {**json.loads(file.read_text()), **change}
    file.write_text(json.dumps({key: value for key, value in fields.items() if value is not ...}))
    assert text_of(lambda: collected(file.parent)) == (
        f"{file} cannot be read ({words}); was it edited, or its copy cut short? Remove it, and "
        f"the run makes it anew."
    )


@pytest.mark.parametrize("value", ['"x"', "NaN"])
def test_a_row_that_is_no_row_of_numbers_is_told(lay, value):
    """Found by make fuzz."""
    file = lay(0) / "metrics.jsonl"
    file.write_text(f'{{"epoch": 1, "seconds": 1, "validation_accuracy": {value}}}')
    assert "metrics.jsonl cannot be read ('validation_accuracy' is no number); was it" in text_of(
        lambda: collected(file.parent)
    )


def test_tables_that_were_measured_after_an_epoch_are_left_out(lay):
    file = lay(0) / "metrics.jsonl"
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    rows[1]["measured"] = {"dyr": {"values": [0.1]}}
    file.write_text("\n".join(map(json.dumps, rows)))
    assert collected(file.parent).seeds[0].per_epoch[1] == {
        "epoch": 2,
        "validation_accuracy": 0.5,
        "seconds": 1.25,
    }
