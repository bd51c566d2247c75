"""Runs side by side, out of folders that were laid by hand."""

import json
import re

import pytest

from error_text import text_of
from study.test_ledger import DAMAGES
from torchcaps.analysis.shares import Commonest
from torchcaps.cli.compare import show
from torchcaps.study import Comparison, Variant, compare
from torchcaps.study.intervals import mean_interval
from torchcaps.train import make_recipe


@pytest.fixture
def lay(tmp_path):
    """Lays a finished run and returns its folder."""

    def lay(name, accuracy, *, seed=0, measured=None, **fields):
        folder = tmp_path / "runs" / name
        folder.mkdir(parents=True)
        recipe = make_recipe(
            **{"model": "peer_sign_em", "data": "sign", "epochs": 1, "seed": seed, **fields}
        )
        (folder / "recipe.json").write_text(recipe.model_dump_json())
        rows = [{"epoch": 1, "seconds": 30.0}, {"epoch": 2, "seconds": 60.0}]
        (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        (folder / "result.json").write_text(json.dumps({"test_accuracy": accuracy}))
        (folder / "model.safetensors").touch()
        if measured is not None:
            text = json.dumps({"commit": None, "looks": measured})
            folder.with_name(f"{name}.values.json").write_text(text)
        return folder

    return lay


def test_runs_are_grouped_by_all_but_their_seed(lay, tmp_path):
    lay("a0", 0.5, options={"bias": True})
    lay("a1", 0.7, options={"bias": True}, seed=1)
    lay("b0", 0.9)  # bias=False is what the network has by itself
    found = compare([tmp_path / "runs"])
    # False before True, whatever the folders are called.
    assert [each.label for each in found.variants] == ["bias=False", "bias=True"]
    second, first = found.variants
    assert (first.seeds, first.seconds) == ((0, 1), 180.0)
    assert first.values == {"accuracy": (50.0, 70.0)}
    # Two values 20 apart: 60 ± 12.706 · 14.142 / √2, but a share is from 0 to 100 %.
    assert first.interval("accuracy") == (60.0, 0.0, 100.0, 2)
    assert second.interval("accuracy").low is None
    lines = found.text().splitlines()
    assert lines[0].split() == ["seeds", "accuracy,", "%", "training,", "a", "run"]
    # Each run took 90 seconds.
    assert lines[2].split() == ["bias=True", "2", "60", "[0,", "100]", "1.5", "min"]
    assert lines[1].split() == ["bias=False", "1", "90", "1.5", "min"]
    numbers = json.loads(json.dumps(found.numbers()))["variants"][1]
    assert numbers["variant"] == "bias=True"
    # A single run prints test_accuracy as a share of 1.
    assert numbers["statistics"]["accuracy"]["unit"] == "%"
    assert numbers["folders"] == [str(tmp_path / "runs" / name) for name in ("a0", "a1")]


def test_measures_of_classes_are_compared_where_all_runs_have_them(lay):
    auroc = {"auroc": {"value": 0.75, "interval": None, "why": "…"}, "classes": []}
    undefined = {"macro_f1": {"value": None, "interval": None, "why": "no image is …"}}
    folders = [lay(f"a{seed}", 0.5, seed=seed) for seed in range(2)]
    for folder in folders:
        result = {"test_accuracy": 0.5, "measures": auroc | undefined}
        (folder / "result.json").write_text(json.dumps(result))
    found = compare(folders)
    assert found.statistics == ("accuracy", "auroc")
    assert found.variants[0].values["auroc"] == (75.0, 75.0)
    assert "auroc, %" in found.text()
    assert found.numbers()["variants"][0]["statistics"]["auroc"]["unit"] == "%"
    # A run of before they were written down.
    assert compare([*folders, lay("b", 0.5, epochs=2)]).statistics == ("accuracy",)
    (folders[0] / "result.json").write_text('{"test_accuracy": 0.5, "measures": {"auroc": 3}}')
    text = text_of(lambda: compare(folders))
    assert "result.json cannot be read (its 'measures' have no values)" in text


def test_variants_of_a_folder_stand_in_the_order_of_their_values(lay, tmp_path):
    for name, iterations in (("a", 10), ("b", 2), ("c", 3)):
        lay(name, 0.5, options={"iterations": iterations})
    found = compare([tmp_path / "runs"])
    assert [each.label for each in found.variants] == [f"iterations={n}" for n in (2, 3, 10)]
    # Runs that are named one by one stay as they were named.
    found = compare([tmp_path / "runs" / name for name in "abc"])
    assert [each.label for each in found.variants] == [f"iterations={n}" for n in (10, 2, 3)]


def test_networks_of_different_models_are_called_by_their_names(lay):
    """Options that another network lacks are not what they differ in."""
    found = compare(
        [
            lay("a", 0.5, data="mnist", model="capsnet"),
            lay("b", 0.6, data="mnist", model="mitterreiter_5x16"),
            lay("c", 0.7, data="mnist", model="mitterreiter_5x16", options={"routing": "uniform"}),
        ]
    )
    assert [each.label for each in found.variants] == [
        "capsnet routing=dynamic",
        "mitterreiter_5x16 routing=dynamic",
        "mitterreiter_5x16 routing=uniform",
    ]


def test_networks_of_ones_own_are_compared(lay):
    found = compare([lay("a", 0.5, model="own"), lay("b", 0.6, model="own", epochs=2)])
    assert [each.label for each in found.variants] == ["epochs=1", "epochs=2"]


@pytest.mark.parametrize(
    ("seconds", "duration"), [(59.4, "59 s"), (90.0, "1.5 min"), (5400.0, "1.5 h")]
)
def test_what_a_run_took_is_told_in_its_unit(seconds, duration):
    found = Comparison((Variant("a", (0, 1), {"accuracy": (1.0, 2.0)}, 2 * seconds),))
    assert found.text().splitlines()[1].endswith(duration)


def test_what_a_study_measured_is_compared_too(lay):
    measured = {
        "layers@sign/test": {"dyr.1": 0.25},
        "accuracy@sign/train": {"accuracy": 49.0},
    }
    found = compare([lay("a0", 0.5, measured=measured), lay("b0", 0.9, epochs=2)])
    assert found.statistics == ("accuracy", "dyr.1", "accuracy@sign/train")
    assert [each.label for each in found.variants] == ["epochs=1", "epochs=2"]
    assert "–" in found.text()


def test_statistics_of_layers_share_a_column(lay):
    """Means over layers, seed by seed: 0.2 and 0.5."""
    for seed, (low, high) in enumerate([(0.1, 0.3), (0.4, 0.6)]):
        numbers = {"dyr.1": low, "dyr.2": high, "cds.1": 0.0, "cds.2": 9.0}
        looks = {"layers@sign/test": numbers, "layers@norb/test": {"dyr.1": 0.7}}
        folder = lay(f"a{seed}", 0.5, seed=seed, measured=looks).parent
    found = compare([folder])
    head, row, _ = found.text().splitlines()
    columns = [f"{name}, mean of layers" for name in ("dyr", "cds", "dyr@norb/test")]
    assert re.split(" {2,}", head)[3:-1] == columns
    cells = ["0.35 [-1.556, 2.256]", *(f"{x}, the same in all seeds" for x in (4.5, 0.7))]
    assert re.split(" {2,}", row)[3:-1] == cells
    assert found.variants[0].interval("dyr.1", "dyr.2") == mean_interval([0.2, 0.5])
    asked = found.only(found.statistics, without=["cds", "accuracy"])
    assert "cds" not in asked.text()
    assert "accuracy, %" in asked.text()
    assert set(asked.statistics) == {"accuracy", "dyr.1", "dyr.2", "dyr.1@norb/test"}


def test_a_layer_that_fewer_seeds_have_is_not_mixed_with_others():
    """Where no parent lives there is no dyr."""
    values = {"dyr.1": (0.1, 0.3), "dyr.2": (0.9,)}
    found = Variant("a", (0, 1), values, 1.0, seeds_of={"dyr.2": (1,)})
    # Of the seed that has both, and never of one layer for one seed and of two for another.
    assert found.interval("dyr.1", "dyr.2") == mean_interval([0.6])
    assert found.interval("dyr.2").mean == 0.9
    assert found.interval("dyr.3") is None


def test_the_seeds_of_a_statistic_that_fewer_have_are_told():
    """It is of one seed of two, and the other columns are of both."""
    values = {"accuracy": (49.0, 51.0), "sparsity": (0.5,)}
    found = Comparison((Variant("a", (0, 1), values, 2.0, seeds_of={"sparsity": (1,)}),))
    (_, row, _) = found.text().splitlines()
    cells = re.split(" {2,}", row)
    assert cells[1] == "2"
    assert cells[2].startswith("50 [")
    assert "n =" not in cells[2]
    assert cells[3] == "0.5, n = 1"
    assert found.only(["accuracy"]).statistics == ("accuracy",)


def test_many_statistics_are_lines_and_not_columns():
    values = {f"corr.{k}": (k / 10, k / 10) for k in range(1, 11)}
    pair = (Variant("a", (0, 1), values, 2.0), Variant("b", (0, 1), values, 4.0))
    lines = Comparison(pair).text().splitlines()
    assert lines[0].split() == ["a", "b", "b", "less", "a"]
    assert lines[1].split() == ["seeds", "2", "2", "2"]
    same = ", the same in all seeds"
    assert re.split(" {2,}", lines[2]) == ["corr.1", *2 * [f"0.1{same}"], f"0{same}"]
    assert lines[-2].split() == ["training,", "a", "run", "1", "s", "2", "s"]
    assert len(lines) == 1 + 1 + 10 + 1 + 1


def test_differences_are_seed_by_seed_and_of_the_seeds_that_both_have():
    """1, 2 and 3 more than the first: 2 ± 4.303 / √3, where the means alone are 60 ± 25."""
    a = Variant("a", (0, 1, 2, 3), {"accuracy": (50.0, 60.0, 70.0, 99.0)}, 4.0)
    b = Variant("b", (2, 1, 0, 9), {"accuracy": (73.0, 62.0, 51.0, 0.0)}, 4.0)
    alone = Variant("c", (3, 7), {"accuracy": (1.0, 1.0)}, 4.0)
    found = Comparison((a, b, alone))
    (less,) = found.differences()
    assert (less.label, sorted(less.seeds)) == ("b less a", [0, 1, 2])
    interval = less.interval("accuracy")
    assert interval.mean == 2.0
    assert (interval.low, interval.high) == pytest.approx((2 - 2.4841, 2 + 2.4841), abs=1e-4)
    *_, line, last = found.text().splitlines()
    assert re.split(" {2,}", line) == ["b less a", "3", "2 [-0.4841, 4.484]"]
    assert last == "in brackets: the 95 % t-interval of the mean over seeds; less: seed by seed"
    (numbers,) = found.numbers()["differences"]
    assert numbers["statistics"]["accuracy"]["values"] == (3.0, 2.0, 1.0)
    assert set(numbers) == {"variant", "seeds", "statistics"}
    # Of one layer for one seed and of two for another there is no difference.
    values, seeds_of = {"dyr.1": (0.1, 0.2), "dyr.2": (0.3,)}, {"dyr.1": (0, 1), "dyr.2": (1,)}
    some = Variant("d", (0, 1, 2), values, 1.0, seeds_of=seeds_of)
    other = Variant("e", (0, 1, 2), {"dyr.1": (0.4, 0.5, 0.6), "dyr.2": (0.3, 0.4, 0.5)}, 1.0)
    (less,) = Comparison((some, other)).differences()
    assert less.interval("dyr.1", "dyr.2") == mean_interval([(0.3 + 0.1) / 2])


def test_differences_are_to_the_baseline_on_the_same_images(lay, tmp_path):
    for data, base in (("sign", 0.5), ("part-whole", 0.1)):
        for at, routing in enumerate(("dynamic", "em", "uniform")):
            for seed in (0, 1):
                options = {"model": "capsnet", "options": {"routing": routing}}
                accuracy = base + at / 10 + seed / 100
                lay(f"{data}{at}{seed}", accuracy, seed=seed, data=data, **options)
    found = compare([tmp_path / "runs"])

    def less(found):
        return {x.label: round(x.interval("accuracy").mean) for x in found.differences()}

    # In the order of the lines: the sets apart, each with its first.
    assert less(found) == {
        f"data={data} routing={routing} less data={data} routing=dynamic": rise
        for data in ("part-whole", "sign")
        for routing, rise in (("em", 10), ("uniform", 20))
    }
    named = found.against("routing=em")
    assert sorted(less(named).values()) == [-10, -10, 10, 10]
    assert "data=sign routing=dynamic less data=sign routing=em " in named.text()
    assert less(named.only(["accuracy"])) == less(named)
    # Of one set alone the other has none.
    assert set(less(found.against("data=sign routing=em")).values()) == {-10, 10}
    assert "must stand in the name of one line" in text_of(lambda: found.against("data=sign"))


def test_a_difference_is_that_of_the_rows_above_it_also_where_depths_differ():
    """All four capsules of the upper layers are dead in the deep network: 2 a layer, and 0."""
    shallow = Variant("2", (0, 1), {"cds.1": (0.0, 0.0), "cds.2": (0.0, 0.0)}, 1.0)
    dead = {"cds.1": (0.0, 0.0), "cds.2": (0.0, 0.0), "cds.3": (8.0, 8.0), "cds.4": (0.0, 0.0)}
    lines = Comparison((shallow, Variant("4", (0, 1), dead, 1.0))).text().splitlines()
    cells = [re.split(" {2,}", line)[2] for line in lines[1:4]]
    assert cells == [f"{mean}, the same in all seeds" for mean in (0, 2, 2)]


def test_brackets_are_explained_where_there_are_some(lay):
    first, second = lay("a0", 0.5), lay("a1", 0.7, seed=1)
    last = compare([first]).text().splitlines()[-1]
    assert last == "no intervals over seeds, for each line is of one seed"
    last = compare([first, second]).text().splitlines()[-1]
    assert last == "in brackets: the 95 % t-interval of the mean over seeds"


def test_an_option_that_is_written_out_makes_no_other_variant(lay):
    """There were two lines of one name, each with the seeds of its own line."""
    first, second = lay("a0", 0.5), lay("a1", 0.7, seed=1, options={"iterations": 3})
    (found,) = compare([first, second]).variants
    assert (found.label, found.seeds) == ("peer_sign_em", (0, 1))


def test_a_run_that_is_named_twice_counts_once(lay, tmp_path):
    first, second = lay("s0", 0.5), lay("s1", 0.7, seed=1)
    runs = tmp_path / "runs"
    for named in ([runs, runs], [runs, first], [first, second, runs / ".." / "runs" / "s0"]):
        (found,) = compare(named).variants
        assert (found.seeds, found.values) == ((0, 1), {"accuracy": (50.0, 70.0)})


def test_runs_on_other_images_are_no_seeds_of_one_variant(lay):
    runs = [lay(name, 0.5, seed=at % 2, data="folder") for at, name in enumerate("abcd")]
    for at, run in enumerate(runs):
        digests = {"train": f"{at // 2}" * 12, "test": "f" * 12}
        text = json.dumps({"test_accuracy": 0.5 + at / 10, "digests": digests})
        (run / "result.json").write_text(text)
    found = compare(runs).variants
    assert [each.values["accuracy"] for each in found] == [(50.0, 60.0), (70.0, 80.0)]
    assert [each.label for each in found] == [
        "peer_sign_em images=000000000000/ffffffffffff",
        "peer_sign_em images=111111111111/ffffffffffff",
    ]
    assert [each.label for each in compare(runs[:2]).variants] == ["peer_sign_em"]


def test_what_cannot_be_compared_is_a_sentence(lay):
    first, again = lay("a0", 0.5), lay("b0", 0.5)
    assert text_of(lambda: compare([first, again])).startswith(
        f"{first}, {again} train one recipe with the seeds [0, 0]; a seed that counts twice would"
    )
    (first / "result.json").unlink()
    assert text_of(lambda: compare([first])).startswith(f"{first} has no result yet; finish each")
    found = Comparison((Variant("a", (0,), {"accuracy": (1.0,)}, 1.0),))
    assert text_of(lambda: show(found, plot=None, statistic="dyr")) == (
        "there is no 'dyr' to draw; there is accuracy."
    )
    assert text_of(lambda: found.figure("dyr")) == ("there is no 'dyr' to draw; there is accuracy.")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        *(("a.values.json", content) for content in DAMAGES),
        ("a.values.json", b'{"commit": null, "looks": {"accuracy@sign/test": {"x": []}}}'),
        ("a.values.json", b'{"commit": null, "looks": {"accuracy@sign/test": {"accuracy": 51.0}}}'),
        ("a.values.json", b'{"commit": null, "looks": {"accuracy@sign/train": {"accuracy": 110}}}'),
        *(("a/result.json", content) for content in DAMAGES),
        ("a/result.json", b'{"test_accuracy": "1"}'),
        ("a/result.json", b'{"test_accuracy": 1, "commonest": ["a"]}'),
        ("a/result.json", b'{"test_accuracy": 1, "commonest": {"class": "a", "share": null}}'),
        ("a/result.json", b'{"test_accuracy": 1' + b"0" * 400 + b"}"),
        *(("a/metrics.jsonl", content) for content in DAMAGES),
        ("a/metrics.jsonl", b'{"epoch": 1}'),
        ("a/metrics.jsonl", b'{"epoch": 1, "seconds": null}'),
        ("a/metrics.jsonl", b'{"epoch": NaN, "seconds": 3}'),
        ("a/metrics.jsonl", b'{"epoch": 1, "seconds": Infinity}'),
        ("a/result.json", b'{"test_accuracy": NaN}'),
    ],
)
def test_a_damaged_file_is_a_sentence_that_names_it(lay, tmp_path, name, content):
    folder = lay("a", 0.5, measured={})
    (tmp_path / "runs" / name).write_bytes(content)
    said = text_of(lambda: compare([folder]))
    assert said.startswith(f"{tmp_path / 'runs' / name} cannot be read (")
    assert "Remove it" in said


def test_the_picture_shows_every_mean_and_seed():
    values = {"accuracy": (50.0, 70.0)}
    found = Comparison((Variant("a" * 100, (0, 1), values, 1.0), Variant("b", (0,), {}, 1.0)))
    (axes,) = found.figure().axes
    interval, *others = [list(line.get_xdata()) for line in axes.lines]
    assert [list(each) for each in others] == [[50.0, 70.0], [60.0]]
    # By Student's t 60 ± 127.06, of which a share can have from 0 to 100.
    assert interval == [0.0, 100.0]
    (name,) = axes.texts
    assert len(name.get_text()) < 70


def test_the_line_to_beat_is_drawn_where_it_is_one():
    uneven = {"values": {"accuracy": (85.0, 84.0)}, "seconds": 1.0}
    one = Variant("a", (0, 1), **uneven, commonest=Commonest("benign", 0.85))
    other = Variant("b", (0, 1), **uneven, commonest=Commonest("benign", 0.84))
    (axes,) = Comparison((one, one)).figure().axes
    (dashed,) = [line for line in axes.lines if line.get_linestyle() == "--"]
    assert list(dashed.get_xdata()) == [85.0, 85.0]
    assert "always 'benign'" in [text.get_text() for text in axes.texts]
    # On different images no line is that of all.
    (axes,) = Comparison((one, other)).figure().axes
    assert not any(line.get_linestyle() == "--" for line in axes.lines)


def test_intervals_of_differences_go_below_nothing():
    """2 ± 4.303 / √3, and 0 and 100 less: a difference is from −100 to 100 points."""
    a = Variant("a", (0, 1), {"accuracy": (0.0, 100.0)}, 1.0)
    b = Variant("b", (0, 1), {"accuracy": (90.0, 10.0)}, 1.0)
    (less,) = Comparison((a, b)).differences()
    assert less.interval("accuracy") == (0.0, -100.0, 100.0, 2)
    assert Comparison((a, b)).text().splitlines()[3].endswith("0 [-100, 100]")


def test_what_no_share_is_keeps_its_interval():
    found = Variant("a", (0, 1), {"cds.1": (50.0, 70.0)}, 1.0).interval("cds.1")
    assert found == mean_interval([50.0, 70.0])


@pytest.fixture
def uneven(lay):
    """Three seeds that say one thing of classes of 90, 12 and 4 images."""

    def lay_uneven(name, accuracy, said, *, seed, **fields):
        folder = lay(name, accuracy, seed=seed, **fields)
        line = {"class": "benign", "share": 90 / 106}
        result = {"test_accuracy": accuracy, "commonest": line, "constant": said}
        (folder / "result.json").write_text(json.dumps(result))
        return folder

    return lay_uneven


def test_networks_that_say_one_thing_are_not_good(uneven, tmp_path):
    """'84.91 [84.91, 84.91]' looked like a certain success of three constant networks."""
    for seed in range(3):
        uneven(f"a{seed}", 90 / 106, "benign", seed=seed)
    for seed, accuracy in enumerate((0.9, 0.8, 0.9)):
        uneven(f"b{seed}", accuracy, "odd" if seed == 1 else None, seed=seed, epochs=2)
    found = compare([tmp_path / "runs"])
    _, first, _, _, _, *rest = found.text().splitlines()
    assert re.split(" {2,}", first)[1:3] == ["3", "84.91, the same in all seeds"]
    assert rest == [
        "to beat: 84.91 %, which always saying 'benign' would give",
        "constant: epochs=1 says 'benign' of every image, seeds 0, 1, 2",
        "constant: epochs=2 says 'odd' of every image, seed 1",
    ]
    numbers = json.loads(json.dumps(found.numbers()))["variants"]
    assert numbers[0]["statistics"]["accuracy"]["low"] is None
    assert numbers[0]["commonest"] == {"class": "benign", "share": 90 / 106}
    assert [each["constant"] for each in numbers] == [dict.fromkeys("012", "benign"), {"1": "odd"}]
    # Where none varies the table says why there are no brackets.
    alone = compare([tmp_path / "runs" / f"a{seed}" for seed in range(3)]).text().splitlines()
    assert alone[2] == "no intervals over seeds, for none of these numbers varies from seed to seed"


def test_older_runs_are_compared_without_a_line(lay, uneven):
    found = compare([lay("a0", 0.5), uneven("b0", 0.9, None, seed=0, epochs=2)])
    last = "to beat, epochs=2: 84.91 %, which always saying 'benign' would give"
    assert found.text().splitlines()[-1] == last
    assert found.numbers()["variants"][0]["commonest"] is None
    # Of statistics without accuracy there is nothing to beat.
    assert "to beat" not in found.only([]).text()


def test_numbers_of_a_grid_stand_beside_the_plain_ones(lay):
    measured = {
        "accuracy@sign/test": {"accuracy": 50.0},
        "accuracy+K3@sign/test": {"accuracy": 49.0},
        "keys+K3@norb/test": {"entropy": 1.0},
        "weights@sign/train": {"sparsity": 3.0},
    }
    (only,) = compare([lay("a0", 0.5, measured=measured)]).variants
    assert only.values == {
        "accuracy": (50.0,),
        "accuracy+K3": (49.0,),
        "entropy+K3@norb/test": (1.0,),
        "sparsity": (3.0,),
    }
