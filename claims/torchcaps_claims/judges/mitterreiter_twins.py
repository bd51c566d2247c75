"""What [mitterreiter2023] §4.3 says of uniform routing: its gain is explained by deaths.

Of every architecture there are three networks: routed, without routing, and without routing and as
narrow as the routed one lives.
"""

from collections.abc import Iterator, Sequence
from statistics import fmean
from typing import Any, NamedTuple

from torchcaps_claims.claim import Claim
from torchcaps_claims.judges.at_the_stop import near_the_stop
from torchcaps_claims.judges.evidence import Evidence, Values, known_fields
from torchcaps_claims.judges.rules import Cell, each, joined, left_open, mean_of, minus, times
from torchcaps_claims.judges.table import judge
from torchcaps_claims.narrow import widths_alive
from torchcaps_claims.ranks import rank_test
from torchcaps_claims.verdict import StatementVerdict, StatementWord

__all__ = ["AFFNIST", "GRID", "LEAST_ARCHITECTURES", "NET", "of_moved"]

NET, GRID = "mitterreiter_5x16", "mitterreiter_grid"
AFFNIST = ("affnist", "affnist-style")
LEAST_ARCHITECTURES = 12
BY_CHANCE = 0.05


def of_moved(evidence: Evidence, name: str, model: str = NET, **chosen: Any) -> Values:
    """A statistic of a network that was trained on moved digits and looked at on affNIST."""
    named = "|".join(f"{name}@{images}/test" for images in AFFNIST)
    return evidence.values(named, model, data="expanded-mnist", **chosen)


class _Twins(NamedTuple):
    """Of an architecture, routed, without routing, and as narrow as the routed one lives: how many
    more of the routed one's capsules are dead, as a share of those below the classes; what is
    gained without routing; and what the narrow one keeps of that."""

    excess: Values
    gain: Values
    kept: Values


def _twins(evidence: Evidence, data: str) -> Iterator[_Twins]:
    """Those of each architecture on a set."""
    trained_on = "expanded-mnist" if data == "affnist" else data
    alive: dict[tuple[str, int], dict[int, str]] = {}
    # Of several records of a network the fullest comes last, and counts.
    for known, record in ((known_fields(record), record) for record in evidence.records):
        if [known.get(x) for x in ("model", "data", "routing")] == [GRID, trained_on, "dynamic"]:
            alive[known["widths"], known["d_pose"]] = widths_alive(record)
    for (widths, d_pose), narrow in alive.items():

        def of(name: str, routing: str, widths: str = widths, d_pose: int = d_pose) -> Values:
            chosen = {"widths": widths, "d_pose": d_pose, "routing": routing, "stop_at": None}
            if data == "affnist":
                return of_moved(evidence, name, GRID, **chosen)
            return evidence.values(name, GRID, data=data, **chosen)

        def dead(routing: str, layers: int = widths.count(",") + 1) -> Values:
            return mean_of(of(f"cdr.{k}", routing) for k in range(1, layers + 1))

        right = of("accuracy", "dynamic")
        by_widths = {each: of("accuracy", "uniform", each) for each in narrow.values()}
        kept = {seed: by_widths[w][seed] for seed, w in narrow.items() if seed in by_widths[w]}
        yield _Twins(
            minus(dead("dynamic"), dead("uniform")),
            minus(of("accuracy", "uniform"), right),
            minus(kept, right),
        )


@judge("mitt2023-q-deaths-explain-uniform-gain")
@near_the_stop
def _deaths_explain(claim: Claim, evidence: Evidence) -> StatementVerdict | None:
    """On affNIST and on CIFAR-10 each: over architectures the gain goes with the deaths, and
    without the dead capsules less than half of it is left."""
    parts: list[StatementVerdict | None] = []
    for data in ("affnist", "cifar10"):
        twins = [each for each in _twins(evidence, data) if each.excess and each.gain]
        is_enough = len(twins) >= LEAST_ARCHITECTURES
        parts += [_goes_with(claim, twins), _is_lost(claim, twins)] if is_enough else [None]
    return joined(*parts)


def _goes_with(claim: Claim, twins: Sequence[_Twins]) -> StatementVerdict:
    """Holds by permutations of architectures, and fails by the interval of the correlation."""
    excess, gain = (
        tuple(fmean(getattr(each, name).values()) for each in twins) for name in ("excess", "gain")
    )
    ours, chance = rank_test(excess, gain)
    threshold: float = claim.conditions["threshold"]["spearman"]
    seeds = min(min(len(each.excess), len(each.gain)) for each in twins)
    word: StatementWord = "undecided"
    if seeds >= claim.conditions["n_seeds_min"]:
        is_below = ours.high is not None and ours.high < threshold
        word = "holds" if chance < BY_CHANCE else "fails" if is_below else "undecided"
    return StatementVerdict(word, ours._replace(n=seeds), "greater", threshold)


def _is_lost(claim: Claim, twins: Sequence[_Twins]) -> StatementVerdict | None:
    """What is kept less that share of the gain, in points, mean over architectures, seed by seed.
    Open where nothing is gained of which a share could be kept."""
    share: float = claim.conditions["threshold"]["gain_kept_below"]
    seeds = sorted(set.intersection(*({*each.gain} & {*each.kept} for each in twins)))
    gain = Cell({seed: fmean(each.gain[seed] for each in twins) for seed in seeds})
    kept = {seed: fmean(each.kept[seed] for each in twins) for seed in seeds}
    found = each(claim, [Cell(minus(kept, times(share, gain.values)), "less")], one_sided=False)
    least: int = claim.conditions["n_seeds_min"]
    if found is None or gain.word(least, one_sided=False, cells=1) == "holds":
        return found
    return left_open(found, "networks without routing are not certainly the better ones")
