"""The table of docs/performance.md, made of records.

python benchmarks/table.py     # writes it between the marks of the page

A row names a record, a case of it, and who is compared; every number comes from there.
"""

import json
from pathlib import Path
from typing import Any, NamedTuple

RECORDS = Path(__file__).parent / "records"
PAGE = Path(__file__).parents[1] / "docs" / "performance.md"
START, END = "<!-- python benchmarks/table.py -->", "<!-- end of the table -->"

# Ours, and ours with what training may switch on: whichever of the two is the faster there.
OURS, SWITCHED = "ours-native", ("ours-keeping", "ours-keeping-last", "ours-channels-last")


class Row(NamedTuple):
    what: str
    record: str
    case: str


class Part(NamedTuple):
    """A network with and without one fast part, by the fastest step of all rounds."""

    what: str
    record: str
    case: str
    contestant: str
    part: str


ROWS: tuple[Row | Part, ...] = (
    Row("dynamic routing, 1152 × 10, votes constant", "speed_op.json", "dynamic-detach"),
    Row("the same, full gradient", "speed_op.json", "dynamic-full"),
    Row("3872 × 196, votes constant", "speed_heavy.json", "dynamic-heavy-detach"),
    Row("the same, full gradient", "speed_heavy_full.json", "dynamic-heavy-full"),
    Row("`capsnet`, trained", "speed_convolutions.json", "capsnet-train-128"),
    Row("the same in bfloat16", "speed_convolutions.json", "capsnet-train-128-bf16"),
    Row("`rem_deepcaps`, trained", "speed_convolutions.json", "deepcaps-train-128"),
    Row("`efficient_capsnet`, trained", "speed_efficient.json", "efficient-train-128"),
    Row("`matrix_capsnet`, trained", "speed_votes.json", "em-train-128"),
    Row("`rem_gamma`, trained", "speed_votes.json", "gamma-train-128"),
    Row(
        "`tsai_inverted_simple_c10`, trained on 32", "speed_votes.json", "inverted-simple-train-32"
    ),
    Row(
        "`tsai_inverted_resnet_c10`, trained on 32", "speed_votes.json", "inverted-resnet-train-32"
    ),
    *(
        Row(f"`{name}`, predicting {count}", record or f"speed_inference_{count}.json", case)
        for count in (128, 1)
        for name, case, record in (
            ("capsnet", f"capsnet-infer-{count}", None),
            ("rem_deepcaps", f"deepcaps-infer-{count}", None),
            ("efficient_capsnet", f"efficient-infer-{count}", "speed_efficient.json"),
            ("matrix_capsnet", f"em-infer-{count}", None),
            ("rem_gamma", f"gamma-infer-{count}", None),
            ("tsai_inverted_simple_c10", f"inverted-simple-infer-{count}", None),
            ("tsai_inverted_resnet_c10", f"inverted-resnet-infer-{count}", None),
        )
    ),
    *(
        Part(f"`{name}`, trained; without {what}", "parts.json", case, contestant, part)
        for name, what, case, contestant, part in (
            ("capsnet", "Fourier space", "capsnet-train-128", "ours-keeping", "fourier"),
            ("rem_deepcaps", "Winograd", "deepcaps-train-128", "ours-keeping-last", "winograd"),
            ("resnet18", "Winograd", "resnet18-train-128", "ours-keeping-last", "winograd"),
            (
                "efficient_capsnet",
                "products for the whole map",
                "efficient-train-128",
                "ours-keeping-last",
                "whole-map",
            ),
            ("rem_gamma", "its kernel", "gamma-train-128", "ours-keeping", "native-distance"),
        )
    ),
)


def table() -> str:
    """A line a row: times, and the peak of memory over the imports."""
    lines = [
        "| | textbook | torchcaps | memory kept or channels last | times | record |",
        "|---|---|---|---|---|---|",
    ]
    for row in ROWS:
        cells = _of_part(row) if isinstance(row, Part) else _of_row(row)
        lines.append(f"| {row.what} | {' | '.join(cells)} | `{row.record}` |")
    return "\n".join(lines)


def rendered(page: str) -> str:
    """The page with today's table."""
    before, _, rest = page.partition(START)
    _, _, after = rest.partition(END)
    return f"{before}{START}\n\n{table()}\n\n{END}{after}"


def _of_row(row: Row) -> list[str]:
    found = _contestants(row.record, row.case)
    textbook, ours = found.get("textbook", {}), found[OURS]
    switched = [found[name] for name in SWITCHED if "ms" in found.get(name, {})]
    best = min(switched, key=lambda each: each["ms"], default=None)
    times = [_times(textbook, each) for each in (ours, best) if each]
    return [
        _cell(textbook),
        _cell(ours),
        _cell(best) if best else "",
        "; ".join(filter(None, times)),
    ]


def _of_part(row: Part) -> list[str]:
    found = _contestants(row.record, row.case)
    ours, without = (
        {"ms": min(each["samples_ms"]), "peak_mb": each["peak_mb"]}
        for each in (found[row.contestant], found[f"{row.contestant}-without-{row.part}"])
    )
    return [f"without: {_cell(without)}", "", _cell(ours), _times(without, ours)]


def _contestants(record: str, case: str) -> dict[str, Any]:
    rows = json.loads((RECORDS / record).read_text(encoding="utf-8"))["rows"]
    return {
        row["contestant"]: row
        for row in rows
        if row["case"] == case and row["environment"] == "default"
    }


def _times(textbook: dict[str, Any], ours: dict[str, Any]) -> str:
    return f"{textbook['ms'] / ours['ms']:.2g}" if "ms" in textbook else ""


def _cell(row: dict[str, Any]) -> str:
    if "ms" not in row:
        return str(row.get("failure", "–"))
    ms, mb = row["ms"], row["peak_mb"]
    time = f"{ms / 1e3:.3g} s" if ms >= 1e3 else f"{ms:.3g} ms"
    return f"{time}, {f'{mb / 1e3:.2f} GB' if mb >= 1e3 else f'{mb:.0f} MB'}"


if __name__ == "__main__":
    PAGE.write_text(rendered(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
