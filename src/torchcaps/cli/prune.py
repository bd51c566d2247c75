"""`torchcaps prune`: prune a trained network."""

from pathlib import Path
from typing import Annotated

import typer

from torchcaps.cli.arguments import FieldList, Imports, Root, fields_from, seconds_of
from torchcaps.cli.ending import show_result
from torchcaps.cli.listed import command
from torchcaps.errors import TorchcapsError, short

# Ways that go by the size of a weight, as LAMP scores do.
BY_LAMP = ("magnitude", "mask_at_the_end")
Way = Annotated[
    str | None,
    typer.Option(
        help="magnitude, which is taken if nothing is said, lobster, snip, random_masks or "
        "mask_at_the_end"
    ),
]
Scope = Annotated[
    str | None,
    typer.Option(
        help="How layers share what is pruned: lamp, by scores that weigh a weight against its "
        "layer, taken by magnitude or mask_at_the_end if nothing is said; "
        "layer, the same share of each; network, one threshold, taken otherwise."
    ),
]


@command(100)
def prune(
    run: Annotated[Path, typer.Argument(help="A finished run folder; it stays as it is.")],
    out: Annotated[Path, typer.Option(help="Folder of the new run; the same line continues it.")],
    to: Annotated[
        float | None,
        typer.Option(
            help="The share of weights to prune: 0.9. For lobster the most; it may be left out."
        ),
    ] = None,
    by: Way = None,
    scope: Scope = None,
    epochs: Annotated[
        int | None, typer.Option(help="For how long what is left trains on; 10 if not given.")
    ] = None,
    learning_rate: Annotated[
        float | None, typer.Option(help="Step size; a tenth of that of the run if not given.")
    ] = None,
    root: Root = None,
    field: FieldList = None,
    time_budget: Annotated[str | None, typer.Option(help="As of train: 8m, 90s, 1h30m.")] = None,
    own_code: Imports = None,
) -> None:
    """Prune the network of a finished run, into a run of its own.

    It trains on while it is pruned, with the same images held out; every epoch's line tells
    sparsity, accuracy and entropy. Prints the result as JSON.
    """
    from torchcaps.tasks import prune_run
    from torchcaps.train.ranks import is_first

    fields = fields_from(field)
    said = {"prune_scope": scope, "learning_rate": learning_rate}
    for name, value in {"prune": by, "prune_to": to, "epochs": epochs, **said}.items():
        if value is not None and name in fields:
            raise TorchcapsError(
                f"{name} came twice, as {value} and in --set as {short(fields[name])}; say it once."
            )
    fields |= {name: value for name, value in said.items() if value is not None}
    by = by or fields.pop("prune", "magnitude")
    if by in BY_LAMP:
        # One threshold costs most, and can take the whole of a layer.
        fields.setdefault("prune_scope", "lamp")
    pruned = prune_run(
        run,
        out,
        by=by,
        to=to,
        epochs=epochs,
        root=root,
        time_budget=None if time_budget is None else seconds_of(time_budget),
        fields=fields,
    )
    if is_first():
        show_result(pruned)
