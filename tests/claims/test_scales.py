"""No page of the court has an interval that goes beyond what a number can be."""

import math
import re
from pathlib import Path

import pytest

from torchcaps.study.intervals import Interval, mean_interval
from torchcaps_claims.intervals import clipped

COURT = Path(__file__).parents[2] / "claims" / "pages"
PAGES = sorted(COURT.rglob("*.md"))
NUMBER = r"[-−]?\d[\d.]*(?:e[+-]\d+)?"
ENDS = re.compile(rf"\[({NUMBER}), ({NUMBER})\]")
# Of ten classes with a thousand images each, where every image has a tree of its own.
MOST_BITS = math.log2(1000)
# By how the title of a column begins.
SCALES = {
    "accuracy": (0, 100),
    "moved digits": (0, 100),
    "sparsity": (0, 100),
    "entropy": (0, MOST_BITS),
    "dead": (0, math.inf),
    "spread": (0, math.inf),
    "keys": (0, math.inf),
    "zero": (0, math.inf),
    "dyr": (0, math.inf),
}
# The widest difference in each unit that prose has.
WIDEST = {"bit": MOST_BITS, "points": 100}
# Pages print four digits, and prose one behind the point.
ROUNDING = 0.01
# Where a page of a paper has our numbers, and in columns of other scales of the first weights.
OURS = ("ours", "from N(0, 1)")
# Seeds of which the median lies between the lowest and the highest.
ENOUGH = 6


def read(text):
    return float(text.replace("−", "-"))


def ends_of(cell):
    """The ends of an interval in a cell; those of a number without them are the number."""
    found = ENDS.search(cell)
    if found:
        return read(found[1]), read(found[2])
    alone = re.match(rf"\**({NUMBER})", cell)
    return (read(alone[1]),) * 2 if alone else None


def tables_of(path):
    for table in re.findall(r"(?:^\|.*\n)+", path.read_text(encoding="utf-8"), flags=re.M):
        head, _, *rows = ([x.strip() for x in x.split("|")[1:-1]] for x in table.splitlines())
        yield [dict(zip(head, row, strict=True)) for row in rows]


def scale_of(title):
    return next((scale for begin, scale in SCALES.items() if title.startswith(begin)), None)


def seeds_in(*cells):
    return max((int(n) for cell in cells for n in re.findall(r"n = (\d+)", cell)), default=0)


def is_within(ends, scale):
    return scale[0] - ROUNDING <= ends[0] <= ends[1] <= scale[1] + ROUNDING


def is_cut(ends, scale):
    """Whether it ends where its scale does, and is no point."""
    return ends[0] < ends[1] and not scale[0] < ends[0] <= ends[1] < scale[1]


def test_an_interval_is_cut_where_its_scale_ends():
    """Seeds of 98, 24 and 98 % have a t-interval from -33 to 180 %."""
    assert clipped(Interval(73.0, -33.0, 180.0, 3), 0.0, 100.0) == (73.0, 0.0, 100.0, 3)
    assert clipped(Interval(73.0, None, None, 1), 0.0, 100.0).low is None
    # Of six seeds all lie above the median, or all below, three times in a hundred.
    seeds = [50.0, 98.0, 98.0, 98.0, 98.0, 98.0]
    beyond = mean_interval(seeds)
    assert beyond.high > 100
    assert clipped(beyond, 0.0, 100.0, values=seeds)[1:3] == (50.0, 98.0)
    assert clipped(beyond, 0.0, 100.0, values=seeds[:5]).high == 100
    assert clipped(beyond, 0.0, 100.0, values=seeds, confidence=0.99).high == 100


@pytest.mark.parametrize("path", sorted(COURT.glob("records/does-*.md")), ids=lambda x: x.stem)
def test_no_number_of_a_study_goes_beyond_its_scale(path):
    """Nor a difference beyond what the interval of its base leaves: from 7.8 of 9.97 bit no way
    of pruning can go up by 3.7."""
    seen = 0
    for rows in tables_of(path):
        for title in rows[0] if rows else ():
            of, less, _ = title.partition(" less that ")
            scale = scale_of(title)
            if scale is None:
                continue
            if less:
                (base,) = (ends_of(row[of]) for row in rows if not row[title])
                scale = scale[0] - base[1], scale[1] - base[0]
            for row in rows:
                if ends := ends_of(row[title]):
                    seen += 1
                    assert is_within(ends, scale), f"{title}: {row[title]}"
    assert seen > 20


@pytest.mark.parametrize("path", sorted(COURT.glob("papers/*.md")), ids=lambda x: x.stem)
def test_no_share_of_a_paper_goes_beyond_its_scale(path):
    """Of six seeds or more an interval is not cut: it has the lowest and the highest seed."""
    for rows in tables_of(path):
        for row in rows:
            if row.get("published", "the statement") == "the statement":
                continue
            scale = (0, 100 if row["published"].endswith(" %") else math.inf)
            for cell in (row[title] for title in row if title in OURS or title.startswith("0.")):
                ends = ends_of(cell)
                assert ends is None or is_within(ends, scale), f"{row['claim']}: {cell}"
                few = seeds_in(cell) < ENOUGH
                assert few or not is_cut(ends, scale), f"{row['claim']}: {cell}"


@pytest.mark.parametrize("path", PAGES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_no_interval_in_prose_goes_beyond_its_scale(path):
    """Percent lie between 0 and 100 and were not cut; a difference is no wider than its scale."""
    text = " ".join(path.read_text(encoding="utf-8").split())
    if path.parent.name in ("papers", "records"):
        return
    before, after = (rf"{NUMBER} % {ENDS.pattern}", rf"{ENDS.pattern} %")
    for found in (*re.finditer(before, text), *re.finditer(after, text)):
        ends = read(found[1]), read(found[2])
        assert is_within(ends, (0, 100)), found[0]
        assert not is_cut(ends, (0, 100)), found[0]
    for unit, widest in WIDEST.items():
        either = (rf"{NUMBER} {unit}[a-z ]* {ENDS.pattern}", rf"{ENDS.pattern} {unit}\b")
        for found in (x for pattern in either for x in re.finditer(pattern, text)):
            assert read(found[2]) - read(found[1]) <= widest + ROUNDING, found[0]
