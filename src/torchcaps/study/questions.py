"""Pages of the questions that the papers fight over: what is decided, by which numbers, and what is
missing. Everything is a function of claims and records."""

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from torchcaps.study.judges import JUDGES
from torchcaps.study.pages import MADE, STANDS, TO_EVIDENCE, links, ours, protocol
from torchcaps.study.record import read_records
from torchcaps.study.result import Result, results
from torchcaps.study.svg import Dot, draw_dots
from torchcaps.study.variants import Column, Variants, deaths_of, decision_of, lines_of
from torchcaps.study.verdict import StatementVerdict
from torchcaps.train.digests import write_whole

__all__ = ["QUESTIONS", "Question", "write_questions"]


class Question(NamedTuple):
    """A question, and the statements whose verdicts answer it."""

    title: str
    says: str
    # What it would mean if the statement held: "yes" or "no", by the id of the statement.
    answers: Mapping[str, str]
    # Those that say nothing of it where they fail.
    only_held: frozenset[str] = frozenset()
    # What no statement compares as it is.
    own: tuple[Variants, ...] = ()
    # Whose dead capsules are counted.
    dying: tuple[Variants, ...] = ()


SHARP = Variants(
    "Where a network routes that may choose",
    "sharp-agreement",
    "Ours: nine routed layers that may learn α, what agreement is multiplied by in a logit, one "
    "number a layer, from 0.1 on, and the same network with α fixed. At 0 nothing is routed, at 1 "
    "it is as in the papers. dyr is how much couplings change from image to image; a hidden layer "
    "is one of the eight below the classes. MNIST, 6,000 images, five epochs; every network starts "
    "with weights that keep lengths from layer to layer. In its 235 updates α can rise to 0.34 at "
    "most, so this says where it rises, and not where it would end. "
    "`torchcaps study run studies/sharp-agreement.toml --root data` makes the records.",
    ("agreement",),
    (0.0,),
    (
        Column("accuracy", "accuracy"),
        Column("accuracy less that at 0", "accuracy", is_compared=True),
        Column("dyr, hidden", "dyr", slice(-1)),
        Column("dyr, classes", "dyr", slice(-1, None)),
        Column("α, hidden", "agreement", slice(-1)),
        Column("α, classes", "agreement", slice(-1, None)),
        Column("dead capsules a layer", "cds"),
    ),
)
TWINS = Variants(
    "Routed and uniform twins",
    "mitterreiter2023/mitt2023-q-rba-causes-deaths",
    "Five routed layers of 16 capsules, as in [mitterreiter2023], and the same network with "
    "uniform couplings: as many epochs, and the same seeds.",
    ("routing",),
    ("dynamic",),
    (
        Column("accuracy", "accuracy"),
        Column("accuracy less that of dynamic routing", "accuracy", is_compared=True),
        Column("dead capsules a layer", "cds@affnist-style/test"),
    ),
)
SCALE = Variants(
    "Depth, initial scale and routing at once",
    "deep-scale",
    "Ours: four and nine routed layers of 16 capsules, from weights of N(0, 0.1²) and of N(0, 1), "
    "with an agreement of 1 in a logit as in the papers, and of 0, where nothing is routed. MNIST, "
    "6,000 images, five epochs. Nine layers whose weights are scaled until lengths keep from layer "
    "to layer, and whose agreement is 0, 0.3, 1 or learned, are on [the page of routing]"
    "(does-routing-help.md#where-a-network-routes-that-may-choose), out of "
    "`studies/sharp-agreement.toml`. Guesses are right on 10 to 11 %; a network that learns, we "
    "say, on more than 20. "
    "`torchcaps study run studies/deep-scale.toml --root data` makes the records.",
    ("widths", "weight_std", "agreement"),
    (None, None, None),
    (
        Column("accuracy", "accuracy", line=20.0),
        Column("dead capsules a layer, hidden", "cds", slice(-1)),
        Column("dyr, hidden", "dyr", slice(-1)),
        Column("dyr, classes", "dyr", slice(-1, None)),
    ),
)
SIDES = Variants(
    "A bias, and one that cannot tell signs",
    "peer2022",
    "The networks of [peer2022] Table 2, two to five capsule layers of dynamic routing on MNIST, "
    "from weights of N(0, 0.1²) unless weight_std says otherwise. A bias is added to the sum of "
    "votes before its squash. The odd one is ours: of the bias and its negative the one that lies "
    "on the side of the sum, so that primary capsules and their negatives still give the same "
    "scores bit for bit (`test_an_odd_bias_keeps_the_symmetry` in tests/theory/test_peer.py). "
    "Guesses are right on 10 to 11 %; a network that learns, we say, on more than 20. "
    "`torchcaps study run peer2022-q-symmetry-causes-depth-failure --reduced` makes the records.",
    ("n_layers", "bias", "squash", "weight_std"),
    (None, None, None, None),
    (Column("accuracy", "accuracy", line=20.0),),
    where={"model": "peer_deep_dynamic", "data": "mnist", "width": 32},
)
LARGER = SIDES._replace(
    title="Larger weights and no bias",
    study="depth-without-bias",
    says="Ours: the same networks without a bias, from larger weights. "
    "`torchcaps study run studies/depth-without-bias.toml --root data` makes the records.",
    differ_in=("n_layers", "weight_std"),
    compared_with=(None, None),
    columns=(
        Column("accuracy", "accuracy", line=20.0),
        Column("dead capsules a layer", "cds"),
    ),
    where={},
)
EM = Variants(
    "EM routing, with a bias and without",
    "em-depth",
    "Ours: five, seven and nine capsule layers of EM routing as in [peer2022] Table 3, on digits "
    "of 20 × 20 pixels: 20,000 images, one epoch, a first convolution of 32 channels. The bias is "
    "one on the votes, from 0.1. `torchcaps study run studies/em-depth.toml --root data` makes the "
    "records.",
    ("n_layers", "bias"),
    (None, None),
    (Column("accuracy", "accuracy", line=20.0), Column("dead capsules a layer", "cds")),
)
TREES = Variants(
    "Entropy of networks pruned in every way",
    "renzulli2025/pruned_trees",
    "Ours: a small DR-CapsNet on MNIST, pruned to 90 % in every way but by LOBSTER, which finds "
    "its own share. Couplings are on eleven levels; no entropy can be above 9.96 bit, that of "
    "classes in which every image has a tree of its own. "
    "`python benchmarks/pruned_trees.py FOLDER --root data --reduced --seeds 0 1 2 3 4` makes "
    "the records, and [Pruning](../pruning.md#does-pruning-lower-the-entropy) says what follows.",
    ("prune", "epochs"),
    (None, 12),
    (
        Column("sparsity", "sparsity"),
        Column("accuracy", "accuracy+K11"),
        Column("entropy", "entropy+K11"),
        Column("entropy less that of the unpruned", "entropy+K11", is_compared=True),
        Column("keys a class", "keys+K11"),
        Column("zero blocks", "zero_blocks"),
        Column("zero votes", "zero_votes"),
    ),
    where={"width": 16},
)
WIDER = TREES._replace(
    title="The same of wider networks",
    says="Ours: DR-CapsNet with a trunk of 32 channels, 20,000 images of MNIST, 12 epochs in "
    "bfloat16, pruned to 90 % by magnitude, and as far as LOBSTER comes. Couplings are on eleven "
    "levels. `python benchmarks/pruned_trees.py FOLDER --root data --middle --precision bfloat16 "
    "--data mnist --ways dense magnitude lobster` makes the records.",
    where={"width": 32, "data": "mnist", "precision": "bfloat16"},
)
FASHION = WIDER._replace(
    title="The same of wider networks on Fashion-MNIST",
    says="Ours: the same networks on images of Fashion-MNIST, by `--data fashion-mnist`.",
    where={"width": 32, "data": "fashion-mnist", "precision": "bfloat16"},
)
LAMP = WIDER._replace(
    title="Pruned by LAMP scores",
    says='Ours: networks as wide in float32, with `prune_scope = "lamp"`, by which layers lose '
    "different shares of their weights, 90 % of all. `python benchmarks/pruned_trees.py FOLDER "
    "--root data --middle --data mnist --ways dense lamp` makes the records.",
    where={"width": 32, "data": "mnist", "precision": "float32"},
)
QUESTIONS: Mapping[str, Question] = {
    "does-routing-help": Question(
        "Does routing help?",
        "Dynamic couplings against fixed ones, at equal epochs and paired seeds.",
        {
            "mitt2023-q-uniform-routing-better": "no",
            "gu2021-q-dr-harms-affine": "no",
            "mitt2023-q-routing-almost-static": "no",
            "mitt2023-q-last-layer-more-dynamic": "yes",
            "tsai2020-q-perf-increases-with-iterations": "yes",
            "tsai2020-q-gain-over-uniform-pass": "yes",
            "tsai2020-q-routing-beats-pooling": "yes",
            "gu2021-q-all-components-help-multimnist": "yes",
        },
        own=(TWINS, SHARP),
    ),
    "does-depth-kill-capsules": Question(
        "Does depth kill capsules, or do initial scale and sharp agreement?",
        "Dead capsules and accuracy of deep networks, with routing and without. What the initial "
        "scale does by itself is [a finding](../findings/initial-scale.md).",
        {
            "mitt2023-q-dead-increase-with-depth": "yes",
            "mitt2023-q-depth-limited-by-deaths": "yes",
            "mitt2023-q-rba-causes-deaths": "no",
            "peer2022-q-depth-rba-nobias": "yes",
            "peer2022-q-depth-em-nobias": "yes",
            "peer2022-q-bias-enables-depth": "no",
            "peer2022-q-symmetry-causes-depth-failure": "no",
        },
        # That something else than the symmetry keeps a network from learning may be anything.
        only_held=frozenset({"peer2022-q-symmetry-causes-depth-failure"}),
        own=(SCALE, SIDES, LARGER, EM),
        dying=(TWINS, SCALE, SHARP, LARGER, EM),
    ),
    "does-pruning-make-trees-simpler": Question(
        "Does pruning make trees simpler?",
        "Entropy and keys of quantised couplings before pruning and after, and against networks "
        "with as many weights masked.",
        {
            "rem-q-entropy-lower-everywhere": "yes",
            "rem-q-keys-lower": "yes",
            "rem-q-entropy-falls-by-pruning": "yes",
            "rem-q-any-pruning": "yes",
            "rem-q-low-pruning-noisy": "no",
            "rem-q-fewer-capsules-in-tree": "yes",
        },
        own=(TREES, WIDER, FASHION, LAMP),
    ),
}
DECIDED = ("holds", "fails")


def write_questions(evidence: str | os.PathLike[str], out: str | os.PathLike[str]) -> list[Path]:
    """Write a page a question, and a picture where a record speaks of it; return the paths."""
    found = {each.claim.id: each for each in results(evidence)}
    records = read_records(evidence)
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name, question in QUESTIONS.items():
        rows = [found[claim] for claim in question.answers]
        picture = _picture(rows)
        if picture is not None:
            written.append(folder / f"{name}.svg")
            write_whole(written[-1], picture)
        else:
            (folder / f"{name}.svg").unlink(missing_ok=True)
        written.append(folder / f"{name}.md")
        own = [line for each in question.own for line in lines_of(each, records, TO_EVIDENCE)]
        answer = answer_of(question, rows)
        for each in question.own:
            if decided := decision_of(each, records):
                answer += f"\n\n- [{each.title}]({_place(each, question)}): {decided}"
        for each in question.dying:
            if counted := deaths_of(each, records):
                link = f"[{each.title}]({_place(each, question)})"
                answer += f"\n\n- Dead capsules in {link}: {counted}"
        write_whole(
            written[-1], "\n".join(_page(name, question, answer, rows, own, picture is not None))
        )
    return written


def anchor(title: str) -> str:
    """What a heading is linked by: its words without commas and the like."""
    return "-".join(re.sub(r"[^\w\s-]", "", title.lower()).split())


def _place(variants: Variants, question: Question) -> str:
    """Where the table of a study is, as seen from the page of a question."""
    pages = (name for name, each in QUESTIONS.items() if variants in each.own)
    page = "" if variants in question.own else f"{next(pages)}.md"
    return f"{page}#{anchor(variants.title)}"


def answer_of(question: Question, rows: Sequence[Result]) -> str:
    """The plain answer: for it, against it, both, or nothing yet."""
    sides = {"yes": 0, "no": 0, "neither": 0}
    for each in rows:
        if each.status in DECIDED:
            sides[_side_of(question, each)] += 1
    decided = sum(sides.values())
    if not decided:
        return f"**Open.** None of {len(rows)} statements of the papers is decided yet."
    if sides["yes"] and sides["no"]:
        word = "It depends"
    elif sides["yes"] or sides["no"]:
        word = "Yes, so far" if sides["yes"] else "No, so far"
    else:
        word = "Open"
    counts = ", ".join(f"{n} speak{'s' * (n == 1)} for {side}" for side, n in sides.items() if n)
    are = "is" if decided == 1 else "are"
    return f"**{word}.** Of {len(rows)} statements {decided} {are} decided: {counts}."


def _side_of(question: Question, each: Result) -> str:
    for_it = question.answers[each.claim.id]
    if each.status in STANDS:
        return for_it
    if each.claim.id in question.only_held:
        return "neither"
    return "no" if for_it == "yes" else "yes"


def _page(
    name: str,
    question: Question,
    answer: str,
    rows: Sequence[Result],
    own: Iterable[str],
    has_picture: bool,
) -> Iterator[str]:
    yield f"# {question.title}"
    yield ""
    yield f"{MADE}{question.says}"
    yield ""
    yield answer
    yield ""
    if has_picture:
        yield f"![Each mean with its 95 % interval, from its threshold]({name}.svg)"
        yield ""
        yield "Right of the line is what the statement claims. Every row has a scale of its own."
        yield ""
    yield "| statement | if it holds | verdict | ours | protocol | records |"
    yield "|---|---|---|---|---|---|"
    for each in rows:
        yield _row(question, each)
    yield ""
    yield from own
    waiting = [each for each in rows if each.status not in DECIDED]
    if waiting:
        yield f"## What is missing for {len(waiting)} of them"
        yield ""
        for each in waiting:
            yield f"- `{each.claim.id}`: {_missing(each)}"
        yield ""


def _row(question: Question, each: Result) -> str:
    has_verdict = each.verdict is not None
    cells = (
        f"`{each.claim.id}` {each.claim.statement}",
        question.answers[each.claim.id],
        f"**{each.status}**" if has_verdict else "not judged yet",
        ours(each) if has_verdict else "",
        protocol(each) if has_verdict else "",
        links(each) if has_verdict else "",
    )
    return "| " + " | ".join(cell.replace("|", "/").replace("\n", " ") for cell in cells) + " |"


def _missing(each: Result) -> str:
    least = each.claim.conditions["n_seeds_min"]
    if each.claim.id not in JUDGES:
        return "a statistic that records have, and with it a judge."
    if not isinstance(each.verdict, StatementVerdict):
        return f"records of every system it compares, {least} seeds or more each."
    n = each.verdict.ours.n
    if n < least:
        return f"{n} seeds of the {least} that its row asks for."
    ours = each.verdict.ours
    if ours.low == ours.high == each.verdict.threshold:
        return f"nothing by more seeds: every one of {n} lies exactly on the threshold."
    if ours.low is None or ours.high is None:
        return f"{least} seeds that give an interval."
    if not ours.low <= each.verdict.threshold <= ours.high:
        return "records of the other systems it speaks of; those at hand decide their part alone."
    return f"the interval over {n} seeds lies on both sides of its threshold."


def _picture(rows: Sequence[Result]) -> str | None:
    dots = [dot for each in rows if (dot := _dot(each)) is not None]
    if not dots:
        return None
    return draw_dots(dots, label="from the threshold", low=-1.0, high=1.0, mark=0.0)


def _dot(each: Result) -> Dot | None:
    """A statistic as seen from its threshold, with the farther end of its interval at one."""
    verdict = each.verdict
    if not isinstance(verdict, StatementVerdict):
        return None
    ours, sign = verdict.ours, -1.0 if verdict.side == "less" else 1.0
    low, high = (ours.mean if end is None else end for end in (ours.low, ours.high))
    if verdict.side == "within":
        return None
    ends = sorted(sign * (end - verdict.threshold) for end in (low, high))
    scale = max(abs(end) for end in ends) or 1.0
    mean = sign * (ours.mean - verdict.threshold) / scale
    name = each.claim.id.partition("-q-")[2]
    return Dot(name, mean, ends[0] / scale, ends[1] / scale, verdict.word)
