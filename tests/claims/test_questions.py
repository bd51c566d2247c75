"""Pages of the three questions."""

import re
from pathlib import Path

import pytest

from made_records import record
from torchcaps.study import Seed, read_records, write_record
from torchcaps.study.intervals import Interval
from torchcaps_claims import claims
from torchcaps_claims.asked import FAMILIES, QUESTIONS, STUDIES
from torchcaps_claims.claim import PAPERS
from torchcaps_claims.questions import families_of
from torchcaps_claims.said import Numbers, interval, number
from torchcaps_claims.site import write_pages
from torchcaps_claims.variants import NotShown, Rows

ROOT = Path(__file__).parents[2]
SCALE, SHARP = (STUDIES[name] for name in ("scale", "sharp"))


def rows_of(variants, records):
    """The table of a study, a line a row."""
    section = Rows(variants, records).section("../e")
    return [] if section is None else [" | ".join(cells) for cells in section.rows]


def test_statements_exist_and_their_answers_are_yes_or_no():
    known = {claim.id for claim in claims() if claim.states}
    for question in QUESTIONS.values():
        assert set(question.statements) <= known
        assert set(question.statements.values()) <= {"yes", "no"}


def of_ours(accuracy, study="sharp-agreement", **options):
    """Of three routed layers the last is that of the classes."""
    values = {
        "accuracy": accuracy,
        "dyr.1": [0.1, 0.1, 0.1],
        "dyr.2": [0.3, 0.3, 0.3],
        "dyr.3": [0.5, 0.6, 0.7],
    }
    made = record("mitterreiter_grid", "mnist", values=values, **options)
    return made.model_copy(update={"study": study, "claims": ()})


def test_variants_of_a_study_of_ours_are_compared_seed_by_seed():
    """Accuracies of 90, 92 and 94 are 1, 2 and 3 points above those of the variant without."""
    records = {
        "a" * 12: of_ours([90.0, 92.0, 94.0], agreement="learned"),
        # The papers' is the network's own, and no recipe writes it out.
        "b" * 12: of_ours([89.1, 90.0, 90.9]),
        "c" * 12: of_ours([89.0, 90.0, 91.0], agreement=0.0),
    }
    fixed, papers, learned = rows_of(SHARP, records)
    assert learned.startswith(
        "learned | 92 [87.03, 96.97] | 2 [-0.4841, 4.484] | 0.2 | 0.6 [0.3516, 0.8484] |  |  |"
    )
    assert learned.endswith("[aaaaaaaaaaaa](../e/sharp-agreement/aaaaaaaaaaaa.json), n = 3")
    assert papers.startswith("1.0 | 90 [")
    assert fixed.startswith("0.0 | 90 [87.52, 92.48] |  | 0.2 |")
    rows = Rows(SHARP, records)
    compared = rows.column("accuracy less that at 0")
    # t of 0.975 and two degrees is 4.303, and 6.205 for two intervals that hold together.
    of_learned = rows.row(agreement="learned")
    alone, joint = (ask(of_learned, compared) for ask in (rows.interval, rows.joint))
    assert alone.high - alone.mean == pytest.approx(4.3027 / 3**0.5, rel=1e-4)
    assert joint.high - joint.mean == pytest.approx(6.2053 / 3**0.5, rel=1e-4)
    assert rows.side(of_learned, compared) is None
    # Above by 2, 2 and 2.1 points; by 0.95, 1 and 1.05 as the paper has it.
    records["a" * 12] = of_ours([91.0, 92.0, 93.1], agreement="learned")
    records["b" * 12] = of_ours([88.05, 89.0, 89.95])
    rows = Rows(SHARP, records)
    sides = [rows.side(rows.row(agreement=x), compared) for x in ("learned", 1.0)]
    assert sides == ["above", "below"]
    assert [line.split(" | ")[2][:2] for line in rows_of(SHARP, records)] == ["", "**", "**"]
    # Of 1, 1 and 1.9 points the interval leaves out zero alone, but not beside another's.
    records["a" * 12] = of_ours([90.0, 91.0, 92.9], agreement="learned")
    for some, side in ((("a" * 12, "c" * 12), "above"), (records, None)):
        rows = Rows(SHARP, {name: records[name] for name in some})
        assert rows.side(rows.row(agreement="learned"), compared) == side
    # A part of a study by its options, those too that no recipe writes out.
    part = rows_of(SHARP._replace(where={"agreement": 1.0}), records)
    assert [line[:5] for line in part] == ["1.0 |"]
    some = SHARP._replace(where={"agreement": frozenset({0.0, "learned"})})
    assert [line[:5] for line in rows_of(some, records)] == ["0.0 |", "learn"]
    # Two seeds decide nothing.
    few = {n: r.model_copy(update={"seeds": r.seeds[:2]}) for n, r in records.items()}
    rows = Rows(SHARP, few)
    assert rows.joint(rows.row(agreement="learned"), compared) is None
    assert rows_of(SHARP, {}) == []


def twins(study, accuracies, gains):
    """Two records: accuracies without routing, and by how much the routed twin lies above them."""
    pair = {
        "uniform": accuracies,
        "dynamic": [x + y for x, y in zip(accuracies, gains, strict=True)],
    }
    for routing, values in pair.items():
        made = record("capsnet", "mnist", routing=routing, values={"accuracy": values})
        yield f"{study[-4:]}-{routing}", made.model_copy(update={"study": study})


def test_twins_of_many_networks_share_a_table_and_hold_together():
    """By 1, 2 and 3 points: 2 ± 4.303 / √3. By 1.9, 2 and 2.1: 2 ± 0.248, and beside another 2 ±
    0.358, for 0.975 of each make 0.95 of both: t is 6.205."""
    records = {
        **dict(twins("even-capsnet", [90.0, 92.0, 94.0], [1.0, 2.0, 3.0])),
        **dict(twins("even-deepcaps", [80.0, 82.0, 84.0], [-1.9, -2.0, -2.1])),
    }

    def section(records):
        return families_of(records, "../e")

    capsnet, deepcaps = section(records).rows
    assert len(section(records).head) == len(capsnet) == 8
    assert " | ".join(capsnet) == (
        "CapsNet, 64 channels | dynamic | Fashion-MNIST | 94 [86.55, 100] | 92 [87.03, 96.97] "
        "| 2 [-0.4841, 4.484] | 2 [-1.583, 5.583] "
        "| [snet-dynamic](../e/even-capsnet/snet-dynamic.json), "
        "[snet-uniform](../e/even-capsnet/snet-uniform.json)"
    )
    assert deepcaps[3:6] == ("80 [75.28, 84.72]", "82 [77.03, 86.97]", "-2 [-2.248, -1.752]")
    assert deepcaps[6] == "**-2 [-2.358, -1.642]**"
    numbers = Numbers(records)
    assert numbers.gain("DeepCaps", "below") == "−2.0 [−2.4, −1.6]"
    assert numbers.open_gains() == pytest.approx([2.0])
    # By itself its interval has both signs too.
    assert numbers.open_but_for_itself() == []
    for network, side in (
        ("DeepCaps", "above"),
        ("CapsNet, 64 channels", "above"),
        ("none", "above"),
    ):
        with pytest.raises(NotShown):
            numbers.gain(network, side)
    # 1.76 to 2.24 of three seeds, t = 4.303; with t = 6.205 zero is within.
    records |= dict(twins("even-deepcaps", [80.0, 82.0, 84.0], [-1.3, -2.0, -2.7]))
    assert len(Numbers(records).open_gains()) == 2
    assert Numbers(records).open_but_for_itself() == ["DeepCaps −2.0 [−3.7, −0.3]"]
    alone = {name: each for name, each in records.items() if each.study == "even-deepcaps"}
    assert Numbers(alone).open_gains() == []
    # Two seeds in pairs decide nothing, a network without its twin has no row, nor has nothing.
    few = {n: r.model_copy(update={"seeds": r.seeds[:2]}) for n, r in alone.items()}
    lonely = {name: each for name, each in alone.items() if name.endswith("dynamic")}
    sparse = {n: few[n] if n.endswith("uniform") else each for n, each in alone.items()}
    for nothing in (few, lonely, sparse, {}):
        assert section(nothing) is None


def test_every_family_is_of_a_study_that_there_is():
    for family in FAMILIES:
        study, *_ = family.variants.study.split("/")
        assert (ROOT / "studies" / f"{study}.toml").exists() or study in PAPERS


def test_a_seed_that_lacks_a_layer_has_no_mean_over_layers():
    made = of_ours([90.0, 92.0, 94.0])
    *seeds, last = made.seeds
    values = {name: x for name, x in last.values.items() if name != "dyr.1"}
    cut = made.model_copy(update={"seeds": (*seeds, last.model_copy(update={"values": values}))})
    (row,) = rows_of(SHARP, {"a" * 12: cut})
    # 0.2 of the two others; its own 0.3 of one layer would make it more.
    assert row.split(" | ")[3] == "0.2, n = 2"


def test_a_difference_of_fewer_seeds_than_the_record_has_says_of_how_many():
    """The third has no partner; by 1 and 3 points the two others lie above theirs, and from 89 %
    nothing rises by more than 11."""
    base = of_ours([89.0, 89.0, 89.0], agreement=0.0)
    records = {
        "a" * 12: of_ours([90.0, 92.0, 94.0], agreement="learned"),
        "b" * 12: base.model_copy(update={"seeds": base.seeds[:2]}),
    }
    fixed, learned = rows_of(SHARP, records)
    assert learned.split(" | ")[1:3] == ["92 [87.03, 96.97]", "2 [-10.71, 11], n = 2"]
    assert learned.endswith("n = 3")
    assert fixed.count("n = ") == 1


def test_seeds_that_failed_are_told_and_fewer_than_three_others_decide_nothing():
    made = of_ours([90.0, 92.0, 94.0], study="deep-scale", widths="16,16", weight_std=1.0)
    failed = Seed(seed=3, wall_seconds=0, failed="the loss became nan")
    whole = made.model_copy(update={"seeds": (*made.seeds, failed)})
    (row,) = rows_of(SCALE, {"a" * 12: whole})
    assert row.endswith("aaaaaaaaaaaa.json), n = 3, and 1 failed")
    assert row.split(" | ")[3] == "**92 [87.03, 96.97]**"
    cut = made.model_copy(update={"seeds": (*made.seeds[:2], failed)})
    (row,) = rows_of(SCALE, {"a" * 12: cut})
    assert row.endswith("aaaaaaaaaaaa.json), n = 2, and 1 failed")
    assert row.split(" | ")[3] == "91 [78.29, 100]"


def test_fewer_than_three_seeds_that_two_variants_share_decide_nothing():
    """Each has three of its own; two of them are paired."""
    base, other = of_ours([89.0, 90.0, 91.0], agreement=0.0), of_ours([95.0, 96.0, 97.0])
    moved = [each.model_copy(update={"seed": each.seed + 1}) for each in other.seeds]
    records = {
        "a" * 12: base,
        "b" * 12: other.model_copy(update={"seeds": tuple(moved)}),
    }
    rows = Rows(SHARP, records)
    compared = rows.column("accuracy less that at 0")
    assert rows.interval(rows.row(agreement=1.0), compared).n == 2
    assert rows.joint(rows.row(agreement=1.0), compared) is None


def test_of_several_records_in_a_folder_of_studies_the_one_of_most_seeds_counts():
    within = SHARP._replace(study="ours")
    records = {
        "a" * 12: of_ours([50.0, 51.0, 52.0, 53.0], study="ours/long", agreement=0.0),
        "b" * 12: of_ours([10.0, 11.0, 12.0], study="ours/short", agreement=0.0),
        "c" * 12: of_ours([10.0, 11.0, 12.0], study="ours-too/long", agreement=0.3),
    }
    (row,) = rows_of(within, records)
    assert "ours/long/aaaaaaaaaaaa.json), n = 4" in row


def test_variants_without_a_study_are_of_all_studies():
    records = {
        "a" * 12: of_ours([90.0, 92.0, 94.0], study="one", agreement="learned"),
        "b" * 12: of_ours([89.0, 90.0, 91.0], study="two", agreement=0.0),
    }
    assert rows_of(SHARP, records) == []
    rows = rows_of(SHARP._replace(study=""), records)
    assert [re.findall(r"\.\./e/(\w+)", row) for row in rows] == [["two"], ["one"]]


def test_every_anchor_on_a_page_is_a_heading_of_it():
    """As GitHub makes them: small, without commas."""
    folder = ROOT / "claims" / "pages"
    for path in folder.rglob("*.md"):
        for name, place in re.findall(r"\]\((|[\w./-]+\.md)#([^)]+)\)", path.read_text()):
            text = (path.parent / name if name else path).read_text()
            heads = re.findall(r"^##+ (.*)$", text, flags=re.M)
            assert place in {re.sub(r"[^\w -]", "", h.lower()).replace(" ", "-") for h in heads}


def test_records_show_every_paragraph():
    """A paragraph that they do not show is left out; its sentence has to be written anew."""
    numbers = Numbers(read_records(ROOT / "evidence"))
    for question in QUESTIONS.values():
        assert len(numbers.said([*question.answer, question.limits])) == len(question.answer) + 1


def at_the_stop(uniform):
    """Twins of which the routed one is right on 80, 81 and 82 % of moved digits."""
    pairs = {"dynamic": [80.0, 81.0, 82.0], "uniform": uniform}
    for routing, values in pairs.items():
        made = record(
            "mitterreiter_5x16",
            "expanded-mnist",
            values={"accuracy@affnist-style/test": values},
            routing=routing,
            fields={"epochs": 50, "stop_at": 0.992},
        )
        yield routing, made.model_copy(update={"study": "at-the-stop", "claims": ()})


def test_a_paragraph_is_given_where_records_show_it():
    """Two points more for the uniform twin, seed by seed; and one seed that says otherwise."""
    routing = QUESTIONS["does-routing-help"]
    (said,) = Numbers(dict(at_the_stop([81.9, 83.0, 84.1]))).said(routing.answer)
    # 1.9, 2 and 2.1: 2 ± 4.303 · 0.1 / √3.
    assert "is right on 81.0 % of digits" in said
    assert "is right on 83.0 %, which is 2.0 [1.8, 2.2] points more." in said
    assert Numbers(dict(at_the_stop([81.9, 83.0, 79.0]))).said(routing.answer) == []
    assert Numbers({}).said(routing.answer) == []


def test_the_own_interval_is_told_where_the_joint_one_has_the_side():
    """By 1, 1 and 1.9 points above the base; beside another variant the joint interval has zero."""
    learned = of_ours([90.0, 91.0, 92.9], agreement="learned")
    base = of_ours([89.0, 90.0, 91.0], agreement=0.0)
    records, column = {"a" * 12: learned, "c" * 12: base}, "accuracy less that at 0"
    numbers = Numbers(records)
    # 1.3 ± 4.303 · 0.52 / √3.
    assert numbers.effect("sharp", column, "above", agreement="learned") == "1.3 [0.0, 2.6]"
    assert numbers.beside("sharp", "accuracy", agreement="learned") == "90.0"
    among = Numbers({**records, "b" * 12: of_ours([88.05, 89.0, 89.95])})
    assert among.effect("sharp", column, agreement="learned") == "1.3 [0.0, 2.6]"
    # Nor is it open, since its own interval leaves out zero.
    for side in ("above", "below", "open"):
        with pytest.raises(NotShown):
            among.effect("sharp", column, side, agreement="learned")


def test_numbers_in_prose_have_a_true_minus_and_no_signed_zero():
    assert [number(x) for x in (-1.25, -0.04, 3, "x")] == ["−1.2", "0.0", "3", "x"]
    assert interval(Interval(-1.0, -2.0, 0.5, 3)) == "−1.0 [−2.0, 0.5]"
    assert interval(Interval(9.8, 9.8, 9.8, 3)) == "9.8"


def test_what_is_asked_of_a_variant_that_is_not_there_is_not_shown():
    numbers = Numbers({"a" * 12: dying([0.0, 2.0, 0.0])})
    with pytest.raises(NotShown):
        numbers.mean("sharp", "accuracy", agreement=0.3)
    with pytest.raises(NotShown):
        numbers.mean("sharp", "α, classes", agreement=0.0)
    with pytest.raises(NotShown):
        numbers.zero("sharp", "dead capsules a layer", agreement=0.0)
    none = Numbers({"a" * 12: dying([0.0, 0.0, 0.0])})
    assert none.zero("sharp", "dead capsules a layer", agreement=0.0) == "none"
    assert numbers.listed("sharp", "dead capsules a layer", agreement=0.0) == "0.0, 0.0 and 2.0"


def dying(dead):
    made = record("mitterreiter_grid", "mnist", values={"cds.1": dead}, agreement=0.0)
    return made.model_copy(update={"study": "sharp-agreement", "claims": ()})


def test_a_picture_is_there_where_records_are(tmp_path):
    readme = tmp_path / "README.md"
    readme.write_text((ROOT / "README.md").read_text())
    for _, made in at_the_stop([81.9, 83.0, 84.1]):
        write_record(made, tmp_path / "evidence")
    pages = write_pages(tmp_path / "evidence", tmp_path / "pages", readme)
    assert not [path for path in pages if path.suffix == ".svg"]
    front = (tmp_path / "pages" / "README.md").read_text()
    assert front.count("No record answers it yet.") == 3
    assert ".svg" not in front


def test_dead_capsules_stand_in_the_order_of_the_networks_that_have_them():
    """The network that failed has three."""
    record = read_records(ROOT / "evidence")["3892d1c795b7"]
    in_order = sorted(record.seeds, key=lambda seed: seed.values["accuracy"])
    right = ", ".join(f"{seed.values['accuracy']:.1f}" for seed in in_order[:2])
    *first, last = (f"{seed.values['cds.3']:.0f}" for seed in in_order)
    text = (ROOT / "claims/pages/questions/does-depth-kill-capsules.md").read_text()
    assert right == "24.1, 98.1"
    assert f"{right} and " in text
    assert f"with {', '.join(first)} and {last} of the third layer's 16 capsules dead" in text


def test_agreement_that_is_learned_for_long_enough_is_highest_at_the_classes():
    """Of nine layers; α of the ninth is that of the classes."""
    (record,) = read_records(ROOT / "evidence", study="sharp-agreement-for-longer").values()
    assert record.measured == 5
    for seed in record.seeds:
        *hidden, classes = (seed.values[f"agreement.{k}"] for k in range(1, 10))
        assert max(hidden) < classes < 1
