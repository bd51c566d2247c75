"""Draw the picture of each routing, all from the same votes: python docs/routing/pictures.py

Six children vote for three parents. Children a to d predict the same pose of the first parent and
scattered ones of the others; e and f are strays, whose votes fit nobody's. The same code gives the
same bytes; a test compares.
"""

import math
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor

from torchcaps import Routed, ops

HERE = Path(__file__).parent
CHILDREN, PARENTS = "abcdef", 3
# Degrees of the votes, which are all one long, children by parents.
DEGREES = [[0, 10, 200], [8, 130, 80], [-8, 250, 320], [4, 40, 150], [190, 300, 20], [95, 170, 260]]
CELL, LEFT, TOP, GAP, ARROW = 34, 26, 44, 42, 26
# They hold on white and on dark pages.
INK, FILL = "#57606a", "#0969da"


def votes() -> Tensor:
    """Give the votes [i, j, 2]."""
    turn = torch.tensor(DEGREES, dtype=torch.float64).deg2rad()
    return torch.stack([turn.cos(), turn.sin()], -1)


def routed() -> Iterator[tuple[str, Routed]]:
    """Route them by each routing, by the name of its page."""
    made = votes()
    ones = made.new_ones(len(CHILDREN))
    zeros = made.new_zeros(PARENTS)
    yield "dynamic", ops.dynamic_routing(made, keep="steps")
    em = {"beta_a": zeros, "beta_u": zeros, "lambda_": 1.0}
    yield "em", ops.em_routing(made, ones, **em, keep="steps")
    yield "inverted", ops.inverted_routing(made, iterations=3, keep="steps")
    yield "self_attention", ops.self_attention_routing(made, keep="steps")
    # Weights that ask for the first component of a pose, which is here the vote for parent 1.
    weight = made.new_tensor([[2.0, 0.0], [0.0, 0.0], [-2.0, 0.0]]).expand(len(CHILDREN), -1, -1)
    yield "self_routing", ops.self_routing(made, poses=made[:, 0], weight=weight, keep="steps")
    yield "distance", ops.distance_routing(made, ones, keep="steps")
    yield "conv3d", ops.conv3d_routing(made, parent_grid=(1, PARENTS, 1), keep="steps")
    yield "uniform", ops.uniform_routing(made, keep="steps")


def picture(found: Routed) -> str:
    """Draw the votes as arrows, then the couplings of each pass as cells, in hundredths."""
    parts = [_text(LEFT, 14, "votes", "start")]
    parts += _arrows(votes(), LEFT)
    x = LEFT + PARENTS * CELL + GAP
    for number, step in enumerate(found.steps, 1):
        name = f"couplings, iteration {number}" if len(found.steps) > 1 else "couplings"
        parts.append(_text(x, 14, name, "start"))
        parts += _cells(step.coupling, x)
        x += PARENTS * CELL + GAP
    width, height = max(x - GAP + 16, 330), TOP + len(CHILDREN) * CELL + 8
    size = f'width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif">'
    return "\n".join([head, *parts, "</svg>\n"])


def _frame(left: float) -> Iterator[str]:
    for j in range(PARENTS):
        yield _text(left + (j + 0.5) * CELL, TOP - 8, f"{j + 1}", "middle")
    for i, child in enumerate(CHILDREN):
        yield _text(left - 8, TOP + (i + 0.5) * CELL + 4, child, "end")


def _arrows(made: Tensor, left: float) -> Iterator[str]:
    yield from _frame(left)
    for i, row in enumerate(made.tolist()):
        for j, (across, up) in enumerate(row):
            x, y = left + (j + 0.5) * CELL, TOP + (i + 0.5) * CELL
            dx, dy = across * ARROW / 2, -up * ARROW / 2
            ends = f'x1="{x - dx:.1f}" y1="{y - dy:.1f}" x2="{x + dx:.1f}" y2="{y + dy:.1f}"'
            yield f'<line {ends} stroke="{INK}" stroke-width="2"/>'
            yield f'<circle cx="{x + dx:.1f}" cy="{y + dy:.1f}" r="3.5" fill="{INK}"/>'


def _cells(coupling: Tensor, left: float) -> Iterator[str]:
    yield from _frame(left)
    for i, row in enumerate(coupling.tolist()):
        for j, value in enumerate(row):
            x, y = left + j * CELL, TOP + i * CELL
            # Hundredths, rounded half up: no machine rounds another digit.
            share = math.floor(100 * value + 0.5 + 1e-9)
            place = f'x="{x + 1}" y="{y + 1}" width="{CELL - 2}" height="{CELL - 2}" rx="4"'
            yield f'<rect {place} fill="{FILL}" fill-opacity="{0.9 * share / 100:.3f}"/>'
            ink = "#ffffff" if share > 55 else INK
            yield _text(x + CELL / 2, y + CELL / 2 + 4, f"{share}", "middle", ink)


def _text(x: float, y: float, text: str, anchor: str, ink: str = INK) -> str:
    style = f'font-size="12" text-anchor="{anchor}" fill="{ink}"'
    return f'<text x="{x:g}" y="{y:g}" {style}>{text}</text>'


if __name__ == "__main__":
    for name, found in routed():
        (HERE / f"{name}.svg").write_text(picture(found), encoding="utf-8")
