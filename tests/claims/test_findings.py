"""The pages in claims/pages/findings: their pictures, and what they name."""

import re
import runpy
from pathlib import Path
from statistics import fmean

import pytest

from torchcaps.study import read_records
from torchcaps.study.intervals import mean_interval
from torchcaps_claims import claims, find_claim, results
from torchcaps_claims.said import interval

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "claims" / "pages" / "findings"
PAGES = sorted(path for path in FOLDER.glob("*.md"))
KNOWN = {claim.id for claim in claims()}
# From N(0, 1), and by no other scale.
REPRODUCED_BY_OURS = {
    *("mitt2023-t1-layer1-dyr", "mitt2023-t1-layer1-dys", "mitt2023-t1-layer1-capsules-alive"),
    *(f"mitt2023-t2-layer1-{metric}" for metric in ("car", "cas", "cdr", "cds")),
}


def test_pictures_are_what_claims_and_records_give():
    found = dict(runpy.run_path(str(FOLDER / "pictures.py"))["pictures"]())
    assert set(found) == {path.name for path in FOLDER.glob("*.svg")}
    for name, picture in found.items():
        assert (FOLDER / name).read_text(encoding="utf-8") == picture, f"{name}: make tables"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_names_what_is_there(page):
    text = page.read_text(encoding="utf-8")
    files = re.findall(r"tests/[\w/]+/test_\w+\.py", text)
    sources = "".join((ROOT / file).read_text(encoding="utf-8") for file in files)
    for test in re.findall(r"`(test_\w+)`", text):
        assert f"def {test}(" in sources, f"{page.name} names {test}"
    for claim in re.findall(r"`((?:mitt2023|peer2022|gu2021|tsai2020|rem)-[\w-]+)`", text):
        assert claim in KNOWN, f"{page.name} names {claim}"


def test_every_finding_has_a_picture_a_check_and_its_line():
    index = (FOLDER.parent / "README.md").read_text(encoding="utf-8")
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        assert f"({page.stem}.svg)" in text
        assert "**The check:**" in text
        assert f"(findings/{page.name})" in index


def test_at_one_length_routing_is_more_dynamic_on_cifar():
    """And less as the networks are; every row of the table is that of the record."""
    by_length = runpy.run_path(str(FOLDER / "pictures.py"))["dyr_by_length"]
    colour, digits = by_length("cifar10"), by_length("expanded-mnist")
    text = (FOLDER / "lengths-and-dyr.md").read_text(encoding="utf-8")
    for name in colour:
        both = [[dyr for _, dyr, _ in seeds[name]] for seeds in (colour, digits)]
        assert len(both[0]) == len(both[1]) == 5
        lower, higher = both if name == "as it is" else both[::-1]
        assert max(lower) < min(higher), name
        dyr = [f"{x.mean:.3f} [{x.low:.3f}, {x.high:.3f}]" for x in map(mean_interval, both)]
        right = [f"{fmean(x for *_, x in seeds[name]):.1f}" for seeds in (colour, digits)]
        assert f" | {' | '.join([*dyr, *right])} |" in text


def test_the_page_of_living_targets_says_what_its_record_does():
    name = "mitt2023-q-last-layer-more-dynamic"
    evidence = ROOT / "evidence"
    ((digest, record),) = read_records(evidence, study="at-the-stop").items()

    def of(metric):
        return [record.values(f"{metric}.{k}@affnist-style/test") for k in (2, 3, 4)]

    def lower_by(metric):
        gaps = [max(second, third) - last for second, third, last in zip(*of(metric), strict=True)]
        return mean_interval(gaps)

    def means(metric):
        return [f"{mean_interval(layer).mean:.2f}" for layer in of(metric)]

    judged = {each.claim.id: each for each in results(evidence, paper="mitterreiter2023")}
    dyr, dys = lower_by("dyr"), lower_by("dys")
    second, third, last = means("dyr")
    below = " and ".join(means("dys")[:2])
    text = " ".join((FOLDER / "living-targets.md").read_text(encoding="utf-8").split())
    assert (
        f"dyr of the last routing is lower by {dyr.mean:.3f} [{dyr.low:.3f}, {dyr.high:.3f}], and "
        f"dys by {dys.mean:.2f} [{dys.low:.2f}, {dys.high:.2f}]"
    ) in text
    assert (
        f"with {last}, still stands above the third, with {third}, and below the second, with "
        f"{second}. By dys, {means('dys')[2]}, it stands below both, {below}"
    ) in text
    static = "mitt2023-q-routing-almost-static"
    printed = find_claim("mitt2023-t1-layer2-dyr").value
    assert f"In the second the same five networks have {means('dys')[0]}." in text
    assert f"Their dyr there, {second}, is below the printed {printed}:" in text
    assert f"contradicted, and so the statement is **{judged[static].status}**." in text
    assert f"the statement **{judged[name].status}**" in text
    bound = "mitt2023-text-dys-below-two"
    assert f"`{bound}` is the same sentence as a bound" in text
    for each in (name, static):
        assert f"`{each}` asks" in text
        assert digest in judged[each].records


def test_iterations_decide_how_many_trees_there_are():
    """More trees with every iteration, as accurate an answer, and couplings that stay even."""
    found = read_records(ROOT / "evidence", study="trees-by-iterations").values()
    by_iterations = {each.recipe["options"].get("iterations", 3): each for each in found}
    rows = [by_iterations[count] for count in range(1, 11)]

    def means(name):
        return [mean_interval(each.values(name)).mean for each in rows]

    for name in ("entropy+K11", "keys+K11", "polarisation"):
        assert means(name) == sorted(means(name))
    # Seed by seed too.
    for seed in zip(*(each.values("polarisation") for each in rows), strict=True):
        assert [*seed] == sorted(seed)
    text = " ".join((FOLDER / "iterations-and-trees.md").read_text(encoding="utf-8").split())
    entropy, keys, right = means("entropy+K11"), means("keys+K11"), means("accuracy+K11")
    assert entropy[0] == 0
    assert f"{entropy[1]:.1f} with two, {entropy[2]:.1f} with three, {entropy[3]:.1f} with" in text
    assert f"four and {entropy[9]:.1f} with ten" in text
    assert f"has {keys[1]:.0f} trees, with three {keys[2]:.0f}, and with ten {keys[9]:.0f}" in text
    assert f"on {min(right):.1f} to {max(right):.1f} % of the test images" in text
    assert f"from 0 to {max(means('polarisation')):.3f}" in text


@pytest.mark.parametrize("page", ["what-entropy-measures", "scale-and-ablations", "soft-routing"])
def test_a_page_has_the_numbers_of_its_picture(page):
    """Every row of the picture in a row of the table, with its interval; in 700 words at most."""
    text, drawn = (
        (FOLDER / f"{page}.{kind}").read_text(encoding="utf-8") for kind in ("md", "svg")
    )
    interval = r"(−?[\d.]+ \[−?[\d.]+, −?[\d.]+\])"
    found = re.findall(f">{interval}", drawn)
    assert len(found) >= 7
    assert re.findall(rf"\| {interval}", text) == found
    points = re.findall(r"bit, (−?[\d.]+) points<", drawn)
    assert re.findall(rf"\| {interval} \| (−?\d+\.\d) \|", text) == [
        *zip(found, points, strict=False)
    ]
    assert len(text.split()) <= 700


def test_what_the_scale_kills_dies_with_routing_and_without():
    """All hidden capsules but those of a layer or two, from small weights; none from large ones."""
    records = read_records(ROOT / "evidence", study="deep-scale").values()
    deep = [each.recipe["options"] | {"seeds": each.seeds} for each in records]
    deep = [each for each in deep if each.get("widths", "").count(",") == 8]
    assert len(deep) == 4
    for each in deep:
        dead = [[seed.values[f"cds.{k}"] for k in range(1, 10)] for seed in each["seeds"]]
        small = each.get("weight_std") == 0.1
        assert {layer[2:] == [16.0] * 7 if small else not any(layer) for layer in dead} == {True}
        for rows in (seed.per_epoch for seed in each["seeds"]) if small else ():
            assert [rows[0][f"dead_capsules/hidden_{k}"] for k in range(3, 10)] == [16.0] * 7
    question = FOLDER.parent / "questions" / "does-depth-kill-capsules.md"
    said = "in seven of the nine all are, from the first epoch on"
    assert said in question.read_text(encoding="utf-8")
    shared = read_records(ROOT / "evidence", study="shared-scale").values()
    alive = {
        each.recipe["options"].get("normalise", "mean"): each.values("capsules_alive.1")
        for each in shared
    }
    assert alive == {"mean": [4608.0] * 3, "softmax": [0.0] * 3}


def test_networks_that_may_choose_route_more_sharply_to_the_classes():
    """By the rules that studies/soft-routing-for-longer.toml had before: from each start, on each
    set."""
    page = (FOLDER / "soft-routing.md").read_text(encoding="utf-8")
    long, short = (
        {
            (each.recipe["data"], each.recipe["options"]["alpha"]): each
            for each in read_records(ROOT / "evidence", study=study).values()
        }
        for study in ("soft-routing-for-longer", "soft-routing")
    )
    assert {len(each.seeds) for each in long.values()} == {5}
    assert {len(each.seeds) for each in short.values()} == {3}

    def values(of, data, alpha, name):
        return [seed.values[name] for seed in sorted(of[data, alpha].seeds, key=lambda s: s.seed)]

    def less(of, data, alpha, other, layers):
        high, low = (
            [
                *map(
                    fmean,
                    zip(
                        *(values(of, data, x, f"agreement_spread.{k}") for k in layers), strict=True
                    ),
                )
            ]
            for x in (alpha, other)
        )
        return mean_interval([a - b for a, b in zip(high, low, strict=True)])

    starts = ("from 0", "from 0.1", "from 1")
    sets = {"mnist": "MNIST", "fashion-mnist": "Fashion-MNIST", "cifar10": "CIFAR-10"}
    for data, says in sets.items():
        assert not all(less(long, data, alpha, "1", (1, 2)).high < 0 for alpha in starts)
        assert all(less(long, data, alpha, "1", (3,)).low > 0 for alpha in starts)
        right = f"{fmean(values(long, data, '1', 'accuracy')):.1f}"
        for alpha in starts:
            learned = [values(long, data, alpha, f"agreement.{k}") for k in (1, 2, 3)]
            below = [each for layer in learned[:2] for each in layer]
            assert min(below) > 0.1 if alpha == "from 1" else max(below) < 0
            first, second, last = (f"{fmean(layer):.2f}".replace("-", "−") for layer in learned)
            accuracy = f"{fmean(values(long, data, alpha, 'accuracy')):.1f} ({right})"
            (row,) = re.findall(rf"\| {says} \| {alpha} \|(.*)", page)
            assert row.endswith(f"| {first}, {second} | {last} | {accuracy} |")
    # Where it begins decides by its whole interval, if more than half of eight epochs is left.
    hidden, classes = (
        [less(long, data, "from 1", "from 0", layers) for data in sets] for layers in ((1, 2), (3,))
    )
    assert [each.low > 0 for each in hidden] == [True, False, False]
    assert [each.high < 0 for each in hidden] == [False, False, True]
    assert all(each.low < 0 < each.high for each in classes)
    early = [less(short, data, "from 1", "from 0", (3,)).mean for data in sets]
    assert all(each.mean < before / 2 for each, before in zip(classes, early, strict=True))
    text = " ".join(page.split())
    assert all(interval(each, 3) in text for each in hidden + classes)
    assert "{:.3f}, {:.3f} and {:.3f} after eight epochs".format(*early) in text


def test_dyr_hangs_on_iterations():
    """Every number of the page's second table, and which networks learn."""
    records = read_records(ROOT / "evidence")
    of = {
        each.recipe["options"]["iterations"]: each
        for each in read_records(ROOT / "evidence", study="other-iterations").values()
    }
    assert {n: len(each.seeds) for n, each in of.items()} == {2: 3, 4: 3, 5: 1}
    of[3] = records["42173fe386de"]
    assert "iterations" not in of[3].recipe["options"]
    same = ("epochs", "train_images", "batch_size", "learning_rate", "data")
    assert all(each.recipe[name] == of[3].recipe[name] for each in of.values() for name in same)
    text = (
        (FOLDER / "first-weights.md").read_text(encoding="utf-8").split("## How many iterations")[1]
    )
    rows = dict(re.findall(r"^\| (\w[^|]*) \| (.*) \|$", text, re.MULTILINE))
    for k in (1, 2, 3, 4):
        values = [of[n].values(f"dyr.{k}@affnist-style/test") for n in (2, 3, 4, 5)]
        printed = find_claim(f"mitt2023-t1-layer{k}-dyr").value
        told = [f"{printed:g}", *(f"{fmean(each):.2f}" for each in values)]
        assert rows[f"dyr, layer {k}"].split(" | ") == told
    right = [fmean(of[n].values("accuracy")) for n in (2, 3, 4, 5)]
    assert rows["test images right, %"].split(" | ") == ["99.2", *(f"{x:.1f}" for x in right)]


def test_what_tables_1_and_2_print_hangs_on_first_weights():
    """Every number of the page's table, and how many verdicts the study bears out."""
    evidence = ROOT / "evidence"
    of = {
        each.recipe["options"]["weight_std"]: each
        for each in read_records(evidence, study="initial-scales").values()
    }
    assert max(of[0.1].values("accuracy")) < 12
    judged = results(evidence, paper="mitterreiter2023")
    at_one = read_records(evidence)["42173fe386de"]
    assert "weight_std" not in at_one.recipe["options"]
    same = ("epochs", "train_images", "batch_size", "learning_rate", "data")
    assert all(each.recipe[name] == at_one.recipe[name] for each in of.values() for name in same)
    scales = {0.2: of[0.2], 0.3: of[0.3], 0.5: of[0.5], 1.0: at_one}
    assert min(len(each.seeds) for each in scales.values()) >= 3
    text = (FOLDER / "first-weights.md").read_text(encoding="utf-8")
    text, _ = text.split("## How many iterations")
    rows = dict(re.findall(r"^\| (\w+, layer \d) \| (.*) \|$", text, re.MULTILINE))
    assert len(rows) == 14
    for name, row in rows.items():
        metric, layer = name.split(", layer ")
        claim = find_claim(f"mitt2023-t{1 if metric == 'dyr' else 2}-layer{layer}-{metric}")
        digits = 1 if metric == "cas" else 2
        ours = [
            f"{fmean(each.values(f'{metric}.{layer}@affnist-style/test')):.{digits}f}"
            for each in scales.values()
        ]
        assert row.split(" | ") == [f"{claim.value:g}", *ours]
        # Nearer to the paper, the smaller the weights.
        if metric == "cas" and layer in "34":
            assert [float(each) for each in ours] == sorted(float(each) for each in ours)
    deaths = {
        (scale, k): each.values(f"cdr.{k}@affnist-style/test")
        for scale, each in scales.items()
        for k in (2, 3, 4)
    }
    assert [round(100 * share) for share in deaths.pop((0.2, 4))] == [6, 44, 0]
    assert not any(map(any, deaths.values()))
    numbers = [each for each in judged if each.starts and not each.claim.states]
    stand = [each for each in numbers if each.status in ("better", "worse")]
    ours = [each for each in numbers if each.status == "on our default"]
    # Numbers of living classes do not hang on the scale: the sentence that they repeat is open.
    hang = [
        each
        for each in numbers
        if each.status == "undecided"
        and each.claim.id not in REPRODUCED_BY_OURS
        and each.claim.repeats != "mitt2023-q-output-layer-no-dead"
    ]
    otherwise = len(stand) + len(ours) + len(hang)
    assert f"and {otherwise} of the printed numbers come out otherwise." in text
    assert f"Of the {otherwise} numbers {len(stand)} stand as verdicts on the paper." in text
    why = "since they hang on the scale or on how many iterations route"
    assert f" {len(hang)} are undecided, {why}, and {len(ours)} are" in text
