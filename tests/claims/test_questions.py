"""Pages of the three questions."""

import re
from pathlib import Path

import pytest

from made_records import record
from torchcaps.study import Seed, read_records, write_record
from torchcaps_claims import claims, find_claim, result_of
from torchcaps_claims.asked import FAMILIES, QUESTIONS, STUDIES
from torchcaps_claims.claim import PAPERS
from torchcaps_claims.questions import answer_of, families_of, gains_of, write_questions
from torchcaps_claims.variants import Rows

ROOT = Path(__file__).parents[2]
SCALE, SHARP, TREES, TWINS = (STUDIES[name] for name in ("scale", "sharp", "trees", "twins"))
STATIC = "mitt2023-q-routing-almost-static"


def rows_of(variants, records):
    """The table of a study, a line a row."""
    section = Rows(variants, records).section("../e")
    return [] if section is None else [" | ".join(cells) for cells in section.rows]


def said_of(variants, records):
    """The sentences below it."""
    section = Rows(variants, records).section("../e")
    return [] if section is None else section.sentences


def test_statements_exist_and_their_answers_are_yes_or_no():
    known = {claim.id for claim in claims() if claim.states}
    for question in QUESTIONS.values():
        assert set(question.answers) <= known
        assert set(question.answers.values()) <= {"yes", "no"}


def static(mean, seeds=5):
    """Dynamics of the two inner routings of the five-layer network."""
    around = [mean + step / 100 for step in range(seeds)]
    values = {f"dys.{k}@affnist/test": around for k in (2, 3)}
    return record("mitterreiter_5x16", "expanded-mnist", values=values, claim=STATIC)


@pytest.mark.parametrize(
    ("records", "answer"),
    [
        ([], "By statements of the papers: **open.** None of 8 is decided yet."),
        # "Routing is almost static" speaks against routing where it holds, and one of eight is no
        # answer.
        (
            [static(1.0)],
            "By statements of the papers: **open.** Of 8, 1 is decided: 1 speaks for no.",
        ),
        ([static(1.0, seeds=3)], "By statements of the papers: **open.**"),
    ],
)
def test_the_plain_answer(records, answer):
    question = QUESTIONS["does-routing-help"]
    # No statement of a page is as simple to make a record of.
    question = question._replace(answers={**question.answers, STATIC: "no"})
    by_hash = {each.digest(): each for each in records}
    rows = [result_of(find_claim(name), by_hash) for name in question.answers]
    assert answer_of(question, rows).startswith(answer)


@pytest.mark.parametrize(("mean", "word"), [(1.0, "no, so far"), (3.0, "yes, so far")])
def test_half_of_the_statements_are_an_answer(mean, word):
    made = static(mean)
    question = QUESTIONS["does-routing-help"]
    other, *_ = question.answers
    question = question._replace(answers={other: "no", STATIC: "no"})
    rows = [result_of(find_claim(name), {made.digest(): made}) for name in question.answers]
    assert answer_of(question, rows).startswith(
        f"By statements of the papers: **{word}.** Of 2, 1 is decided: "
    )


def test_a_statement_about_another_cause_speaks_for_neither_where_it_fails():
    question = QUESTIONS["does-depth-kill-capsules"]
    claim = find_claim("peer2022-q-symmetry-causes-depth-failure")
    found = [
        record(
            "peer_deep_dynamic",
            "mnist",
            values={"accuracy": [98.0, 98.1, 98.2, 98.1, 98.0]},
            claim=claim.id,
            n_layers=4,
            bias=bias,
        )
        for bias in ("odd", "added")
    ]
    row = result_of(claim, {f"{n:012x}": each for n, each in enumerate(found)})
    assert row.status == "fails"
    assert answer_of(question, [row]) == (
        "By statements of the papers: **open.** Of 1, 1 is decided: 1 speaks for neither."
    )


def test_a_page_with_a_picture_and_what_is_missing(tmp_path):
    dead = "mitt2023-q-dead-increase-with-depth"
    values = {f"cdr.{k}@affnist/test": [0.1 * k, 0.1, 0.2] for k in range(1, 6)}
    made = record("mitterreiter_5x16", "expanded-mnist", values=values, claim=dead)
    write_record(made, tmp_path / "evidence")
    write_questions(tmp_path / "evidence", tmp_path / "pages")
    page = (tmp_path / "pages" / "does-depth-kill-capsules.md").read_text()
    assert f"- `{dead}`: 3 seeds of the 5 that its row asks for." in page
    assert "](does-depth-kill-capsules.svg)" in page
    assert (tmp_path / "pages" / "does-depth-kill-capsules.svg").is_file()
    assert not (tmp_path / "pages" / "does-routing-help.svg").exists()
    # Once the records are gone, so is the picture.
    write_questions(tmp_path / "none", tmp_path / "pages")
    assert not (tmp_path / "pages" / "does-depth-kill-capsules.svg").exists()


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
    assert said_of(SHARP, records)[-1] == (
        "Zero lies within the interval of accuracy less that at 0 with agreement 1.0, learned. "
        "(95 % intervals, wider than in the table so that all 2 hold together.)"
    )
    # Above by 2, 2 and 2.1 points; by 0.95, 1 and 1.05 as the paper has it.
    records["a" * 12] = of_ours([91.0, 92.0, 93.1], agreement="learned")
    records["b" * 12] = of_ours([88.05, 89.0, 89.95])
    assert said_of(SHARP, records)[-1] == (
        "Accuracy less that at 0 is above zero with agreement learned. It is below zero with "
        "agreement 1.0. (95 % intervals, wider than in the table so that all 2 hold together.)"
    )
    # Of 1, 1 and 1.9 points the interval leaves out zero alone, but not beside another's.
    records["a" * 12] = of_ours([90.0, 91.0, 92.9], agreement="learned")
    *_, alone = said_of(SHARP, {n: records[n] for n in ("a" * 12, "c" * 12)})
    assert alone.endswith("is above zero with agreement learned. (95 % interval.)")
    assert "Zero lies within the interval with agreement learned." in said_of(SHARP, records)[-1]
    # A part of a study by its options, those too that no recipe writes out.
    part = rows_of(SHARP._replace(where={"agreement": 1.0}), records)
    assert [line[:5] for line in part] == ["1.0 |"]
    some = SHARP._replace(where={"agreement": frozenset({0.0, "learned"})})
    assert [line[:5] for line in rows_of(some, records)] == ["0.0 |", "learn"]
    # Two seeds decide nothing, and without records nothing is said.
    few = {n: r.model_copy(update={"seeds": r.seeds[:2]}) for n, r in records.items()}
    assert said_of(SHARP, few) == rows_of(SHARP, {}) == []


def twins(study, accuracies, gains):
    """Two records: accuracies without routing, and by how much the routed twin lies above them."""
    pair = {
        "uniform": accuracies,
        "dynamic": [x + y for x, y in zip(accuracies, gains, strict=True)],
    }
    for routing, values in pair.items():
        made = record("capsnet", "mnist", routing=routing, values={"accuracy": values})
        yield f"{study[-4:]}-{routing}", made.model_copy(update={"study": study})


def test_twins_of_many_networks_share_a_table_and_a_sentence():
    """By 1, 2 and 3 points: 2 ± 4.303 / √3. By 1.9, 2 and 2.1: 2 ± 0.248, and beside another 2 ±
    0.358, for 0.975 of each make 0.95 of both: t is 6.205."""
    records = {
        **dict(twins("even-capsnet", [90.0, 92.0, 94.0], [1.0, 2.0, 3.0])),
        **dict(twins("even-deepcaps", [80.0, 82.0, 84.0], [-1.9, -2.0, -2.1])),
    }

    def section(records):
        return families_of(gains_of(FAMILIES, records), "../e")

    def said(records):
        (sentence,) = section(records).sentences
        return sentence

    capsnet, deepcaps = section(records).rows
    assert len(section(records).head) == len(capsnet) == 7
    assert " | ".join(capsnet) == (
        "CapsNet, 64 channels | dynamic | Fashion-MNIST | 94 [86.55, 101.5] | 92 [87.03, 96.97] "
        "| 2 [-0.4841, 4.484] | [snet-dynamic](../e/even-capsnet/snet-dynamic.json), "
        "[snet-uniform](../e/even-capsnet/snet-uniform.json)"
    )
    assert deepcaps[3:6] == ("80 [75.28, 84.72]", "82 [77.03, 86.97]", "-2 [-2.248, -1.752]")
    assert said(records) == (
        "Routing loses in DeepCaps; makes no certain difference in CapsNet, 64 channels (95 % "
        "intervals, widened so that all 2 hold together)."
    )
    # 1.76 to 2.24 of three seeds, t = 4.303; with t = 6.205 zero is within.
    records |= dict(twins("even-deepcaps", [80.0, 82.0, 84.0], [-1.3, -2.0, -2.7]))
    assert "difference in CapsNet, 64 channels and DeepCaps (" in said(records)
    alone = {name: each for name, each in records.items() if each.study == "even-deepcaps"}
    assert said(alone) == "Routing loses in DeepCaps (95 % interval)."
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
    """The third has no partner; by 1 and 3 points the two others lie above theirs."""
    base = of_ours([89.0, 89.0, 89.0], agreement=0.0)
    records = {
        "a" * 12: of_ours([90.0, 92.0, 94.0], agreement="learned"),
        "b" * 12: base.model_copy(update={"seeds": base.seeds[:2]}),
    }
    fixed, learned = rows_of(SHARP, records)
    assert learned.split(" | ")[1:3] == ["92 [87.03, 96.97]", "2 [-10.71, 14.71], n = 2"]
    assert learned.endswith("n = 3")
    assert fixed.count("n = ") == 1


def test_seeds_that_failed_are_told_and_fewer_than_three_others_decide_nothing():
    made = of_ours([90.0, 92.0, 94.0], study="deep-scale", widths="16,16", weight_std=1.0)
    failed = Seed(seed=3, wall_seconds=0, failed="the loss became nan")
    whole = made.model_copy(update={"seeds": (*made.seeds, failed)})
    (row,), (said,) = rows_of(SCALE, {"a" * 12: whole}), said_of(SCALE, {"a" * 12: whole})
    assert row.endswith("aaaaaaaaaaaa.json), n = 3, and 1 failed")
    assert said.startswith("Accuracy is above 20 with ")
    cut = made.model_copy(update={"seeds": (*made.seeds[:2], failed)})
    (row,) = rows_of(SCALE, {"a" * 12: cut})
    assert row.endswith("aaaaaaaaaaaa.json), n = 2, and 1 failed")
    assert Rows(SCALE, {"a" * 12: cut}).sides() == set()


def test_fewer_than_three_seeds_that_two_variants_share_decide_nothing():
    """Each has three of its own; two of them are paired."""
    base, other = of_ours([89.0, 90.0, 91.0], agreement=0.0), of_ours([95.0, 96.0, 97.0])
    moved = [each.model_copy(update={"seed": each.seed + 1}) for each in other.seeds]
    records = {
        "a" * 12: base,
        "b" * 12: other.model_copy(update={"seeds": tuple(moved)}),
    }
    ((_, found),) = Rows(SHARP, records).differences()
    assert (found.interval.n, found.side) == (2, None)
    assert said_of(SHARP, records) == []


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


def test_what_learns_is_said_in_words():
    """Above 20 % by its interval; the more networks there are, the wider each interval."""
    deep = {"widths": "16,16,16", "study": "deep-scale"}
    records = {
        "a" * 12: of_ours([90.0, 92.0, 94.0], weight_std=1.0, agreement=1.0, **deep),
        "b" * 12: of_ours([9.8, 9.8, 9.8], weight_std=0.1, agreement=1.0, **deep),
        "c" * 12: of_ours([9.8, 60.0, 90.0], weight_std=0.1, agreement=0.0, **deep),
    }
    assert said_of(SCALE, records)[-1] == (
        "Accuracy is above 20 with weight_std 1.0, agreement 1.0. It is below 20 with "
        "weight_std 0.1, agreement 1.0. 20 lies within the interval with weight_std 0.1, agreement "
        "0.0. (95 % intervals, wider than in the table so that all 3 hold together.)"
    )


def test_a_row_of_usual_values_is_told_from_those_beside_it():
    """Both are uniform, so that says of neither which one it is, though 0.1 is usual."""
    names = {
        "differ_in": ("routing", "weight_std"),
        "compared_with": {"routing": "dynamic", "weight_std": 0.1},
    }
    records = {
        "a" * 12: of_ours([51.0, 52.0, 53.0], routing="dynamic", weight_std=0.1),
        "b" * 12: of_ours([16.0, 17.1, 18.0], routing="uniform", weight_std=1.0),
        "c" * 12: of_ours([61.0, 62.1, 63.0], routing="uniform", weight_std=0.1),
    }
    assert Rows(SHARP._replace(where={}, **names), records).decision() == (
        "Accuracy less that at 0 is above zero with weight_std 0.1. It is below zero with "
        "weight_std 1.0. (95 % intervals, wider than in the table so that all 2 hold together.)"
    )


def four_of(accuracies):
    """Of weights of 0.1 and 1.0, without routing and with it."""
    settings = [(std, agreement) for std in (0.1, 1.0) for agreement in (0.0, 1.0)]
    return {
        f"{k}" * 12: of_ours(
            [mean - 0.1, mean, mean + 0.1],
            study="deep-scale",
            widths="16,16",
            weight_std=std,
            agreement=agreement,
        )
        for k, ((std, agreement), mean) in enumerate(zip(settings, accuracies, strict=True))
    }


def test_a_name_that_alone_decides_is_said_first():
    records = four_of([10.0, 11.0, 95.0, 96.0])
    sentence = (
        "**weight_std alone decides**: accuracy is above 20 with 1.0, and below 20 with 0.1, "
        "whatever widths or agreement may be (95 % intervals, of all 4 together)."
    )
    assert Rows(SCALE, records).decision() == sentence
    assert said_of(SCALE, records)[-1] == sentence


@pytest.mark.parametrize(
    "accuracies", [(10.0, 95.0, 96.0, 96.0), (95.0, 96.0, 96.0, 96.0), (20.0, 11.0, 95.0, 96.0)]
)
def test_nothing_decides_alone_where_one_network_is_otherwise(accuracies):
    """One that learns, all that learn, one with 20 % within its interval."""
    assert Rows(SCALE, four_of(accuracies)).decision() is None


def test_a_single_network_of_a_value_decides_nothing():
    records = four_of([10.0, 11.0, 95.0, 96.0])
    for some in (slice(1, 3), slice(3)):
        assert Rows(SCALE, {k: records[k] for k in [*records][some]}).decision() is None
    assert Rows(SCALE, {}).decision() is None


def dying_of(agreement, dead):
    """Two layers of sixteen capsules, so many of them dead, a number a seed."""
    values = {"cds.1": [0.0] * len(dead), "capsules_alive.1": [16.0] * len(dead)}
    values |= {"cds.2": dead, "capsules_alive.2": [16 - each for each in dead]}
    made = record("mitterreiter_grid", "mnist", values=values, agreement=agreement)
    return made.model_copy(update={"study": "sharp-agreement", "claims": ()})


def test_dead_capsules_are_counted_seed_by_seed():
    records = {"a" * 12: dying_of(0.0, [0.0, 0.0, 0.0]), "b" * 12: dying_of(1.0, [0.0, 0.0])}
    assert Rows(SHARP, records).deaths() == "none in any seed, of 5 networks in all."
    records["b" * 12] = dying_of(1.0, [3.0, 5.0])
    records["c" * 12] = dying_of(0.3, [0.0, 16.0])
    assert Rows(SHARP, records).deaths() == (
        "none in 4 of 7 networks; 16 of 32 in 1 of 2 seeds with agreement 0.3; "
        "3 to 5 of 32 in every seed with agreement 1.0."
    )
    # Of two variants alike it is said once.
    records["c" * 12] = dying_of(0.3, [5.0, 3.0])
    assert (
        Rows(SHARP, records)
        .deaths()
        .endswith("3 to 5 of 32 in every seed with agreement 0.3, and with agreement 1.0.")
    )
    # Numbers of other images are others, and where nobody counted nothing is said.
    on_others = TWINS._replace(study=SHARP.study)
    assert Rows(on_others, records).deaths() is None
    assert Rows(SHARP, {}).deaths() is None


def test_every_anchor_on_a_page_is_a_heading_of_it():
    """As GitHub makes them: small, without commas."""
    folder = ROOT / "claims" / "pages" / "questions"
    for path in folder.glob("*.md"):
        for name, place in re.findall(r"\]\((|[a-z-]+\.md)#([^)]+)\)", path.read_text()):
            text = (folder / (name or path.name)).read_text()
            heads = re.findall(r"^## (.*)$", text, flags=re.M)
            assert place in {re.sub(r"[^a-z -]", "", h.lower()).replace(" ", "-") for h in heads}


def test_a_plain_answer_is_given_where_our_networks_show_it(tmp_path):
    """Two points more for the uniform twin, seed by seed; and one seed that says otherwise."""
    says = QUESTIONS["does-routing-help"].plain[0].says

    def page(uniform):
        for routing, values in (("dynamic", [96.0, 97.0, 96.5]), ("uniform", uniform)):
            made = of_ours(values, study=TWINS.study, routing=routing)
            write_record(made, tmp_path / "evidence")
        write_questions(tmp_path / "evidence", tmp_path / "pages")
        return (tmp_path / "pages" / "does-routing-help.md").read_text()

    assert says not in page([98.0, 99.0, 94.0])
    assert says in page([98.0, 99.0, 98.5, 98.5])


def test_what_a_plain_answer_asks_for_is_a_side_that_there_is():
    """Of the committed records: a title or a label that is written otherwise would never be met."""
    records = read_records(ROOT / "evidence")
    for question in QUESTIONS.values():
        for each in question.plain:
            assert each.needs
            assert each.needs <= Rows(STUDIES[each.of], records).sides()


def test_sides_are_those_of_the_sentences():
    records = {
        "a" * 12: of_ours([91.0, 92.0, 93.1], agreement="learned"),
        "b" * 12: of_ours([88.05, 89.0, 89.95]),
        "c" * 12: of_ours([89.0, 90.0, 91.0], agreement=0.0),
    }
    title = "accuracy less that at 0"
    above, below = (title, "agreement learned", "above"), (title, "agreement 1.0", "below")
    assert Rows(SHARP, records).sides() == {above, below}
    # Zero lies within the interval of three seeds; two seeds say nothing, not even that.
    records["b" * 12] = of_ours([88.05, 91.0, 91.95])
    assert Rows(SHARP, records).sides() == {above, (title, "agreement 1.0", "open")}
    records["b" * 12] = of_ours([88.05, 89.0])
    assert Rows(SHARP, records).sides() == {above}
    deep = four_of([10.0, 11.0, 95.0, 96.0])
    # Which side a network lies on is read with all that it differs in from the others.
    lines = {(label, side) for _, label, side in Rows(SCALE, deep).sides() if side != "decides"}
    assert ("accuracy", "weight_std", "decides") in Rows(SCALE, deep).sides()
    assert sorted(side for _, side in lines) == ["above", "above", "below", "below"]
    assert all(("weight_std 1.0" in label) == (side == "above") for label, side in lines)
    assert Rows(TREES, records).sides() == Rows(SHARP, {}).sides() == set()


def test_agreement_that_is_learned_for_long_enough_is_highest_at_the_classes():
    """The answer says so of nine layers; α of the ninth is that of the classes."""
    (record,) = read_records(ROOT / "evidence", study="sharp-agreement-for-longer").values()
    assert record.measured == 5
    for seed in record.seeds:
        *hidden, classes = (seed.values[f"agreement.{k}"] for k in range(1, 10))
        assert max(hidden) < classes < 1
