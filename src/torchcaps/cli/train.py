"""`torchcaps train`: train a network, or continue a run."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from torchcaps._printable import printable
from torchcaps.cli.arguments import (
    ExplainedCommand,
    Imports,
    Root,
    TrunkFile,
    recipe_from,
    seconds_of,
    takes_recipe,
)
from torchcaps.cli.ending import show_result
from torchcaps.cli.listed import command
from torchcaps.errors import TorchcapsError

if TYPE_CHECKING:
    from torchcaps.train import Recipe

# So many seeds may be meant by one number, no more.
MANY = 10


@command(30, cls=ExplainedCommand)
@takes_recipe
def train(
    out: Annotated[Path, typer.Option(help="Folder of the run; the same line continues it.")],
    given: dict[str, Any],
    root: Root = None,
    workers: Annotated[
        int, typer.Option(help="Processes that make batches; 0 makes them on the device itself.")
    ] = 0,
    time_budget: Annotated[
        str | None,
        typer.Option(
            help="8m, 90s, 1h30m: then the state is saved, and the same line goes on. A step "
            "or a validation ends first, and saving takes a moment: leave a margin."
        ),
    ] = None,
    seeds: Annotated[
        str | None,
        typer.Option(help="0-4 or 0,2,5: a run for each, in folders of OUT, and their mean."),
    ] = None,
    together: Annotated[
        bool,
        typer.Option("--together", help="Train the seeds at once: for small networks on a GPU."),
    ] = False,
    compiled: Annotated[
        bool,
        typer.Option("--compile", help="Compile the loss first: for runs of minutes; needs g++."),
    ] = False,
    tensorboard: Annotated[
        bool, typer.Option("--tensorboard", help="Write OUT/tensorboard too.")
    ] = False,
    init_from: Annotated[
        Path | None,
        typer.Option(help="A run or a saved network to begin with; what does not fit is made new."),
    ] = None,
    freeze: Annotated[
        list[str] | None,
        typer.Option(metavar="PART", help="A part that stays as it begins: backbone; repeatable."),
    ] = None,
    own_code: Imports = None,
    trunk: TrunkFile = None,
) -> None:
    """Train a network, or continue a run.

    Prints the result as JSON; what it measures of each class is in OUT/result.json alone. The
    same line continues a run that was stopped, and one with more --epochs a run that is done.
    Under torchrun or srun, one process a device, all train one network.

    With --seeds, or with several values of an option (--option iterations=1,2,3), OUT is a folder
    of runs, and what is printed compares them as `torchcaps compare OUT` does.
    """
    from torchcaps.train import fit
    from torchcaps.train.loggers import tensorboard as tensorboard_logger
    from torchcaps.train.ranks import is_first

    given["freeze"] = freeze or None
    is_named = given["recipe"] or given["model"] or given["backbone"]
    if init_from is not None and not is_named:
        given |= _network_of(init_from)
    one = recipe_from(given)
    seed = given["seed"]
    budget = None if time_budget is None else seconds_of(time_budget)
    several = seeds is not None or _has_several_values(one)
    if together and not several:
        raise TorchcapsError("--together trains several runs at once; give it --seeds 0-4.")
    if several:
        of_one = {"trunk": trunk, "init-from": init_from, "tensorboard": tensorboard}
        one_too = {"workers": workers, "compile": compiled}
        for idle in (name for name, value in {**of_one, **one_too}.items() if value):
            raise TorchcapsError(
                f"--{idle} is for one run; leave it out, or train seed after seed."
            )
        named = f"--seed {seed}" if seed is not None else "--set seed=…"
        is_set = any(line.partition("=")[0].strip() == "seed" for line in given["field"] or ())
        if seeds is not None and (seed is not None or is_set):
            raise TorchcapsError(
                f"--seeds {seeds} names every seed, so {named} would do nothing; leave one out."
            )
        _train_many(one, out, seeds, root, budget, together=together)
        return
    run = fit(
        one,
        out,
        root=root,
        begin_with=init_from,
        workers=workers,
        time_budget=budget,
        loggers=[tensorboard_logger(out)] if tensorboard else [],
        trunk=trunk,
        compiled=compiled,
    )
    if is_first():
        show_result(run)


def _network_of(start: Path) -> dict[str, Any]:
    """Give the network that a run was trained with, so that nobody has to repeat it."""
    from torchcaps.models.files.hub import located
    from torchcaps.models.files.saving import load_network
    from torchcaps.tasks.trained import check_is_run
    from torchcaps.train import Run

    start = Path(located(start))
    if not start.exists():
        raise TorchcapsError(
            f"there is no run folder and no saved network at {start} to begin with."
        )
    run = Run(start)
    if start.is_dir():
        check_is_run(start)
        # Before the recipe is read, which may name code of one's own.
        run.check_imported()
    elif start.suffix != ".safetensors":
        raise TorchcapsError(
            f"--init-from takes a run folder or a saved network, NAME.safetensors, but got "
            f"{start}; what torch.save wrote is loaded in Python and saved with tc.save."
        )
    else:
        raise TorchcapsError(
            f"{start} is no run folder, so which network it is must be said: give --model, and its "
            f"--option."
        )
    recipe = run.recipe
    found = {"model": recipe.model, "options": recipe.options}
    if recipe.standardise is not None:
        # The numbers that it has: "set" would measure other ones on other images.
        config = load_network(start).config
        assert isinstance(config, dict)
        found["standardise"] = config["standardise"]
    return found


def _has_several_values(recipe: "Recipe") -> bool:
    # Only where a comma is, for most who train need nothing of studies.
    if not any("," in str(value) for value in recipe.options.values()):
        return False
    from torchcaps.study.many import swept_options

    return bool(swept_options(recipe))


def _train_many(
    recipe: "Recipe",
    out: Path,
    seeds: str | None,
    root: Path | None,
    budget: float | None,
    *,
    together: bool,
) -> None:
    from torchcaps.study.many import seeds_in, train_many
    from torchcaps.train.ranks import is_first

    chosen = () if seeds is None else seeds_in(seeds)
    if len(chosen) == 1 and is_first():
        count = chosen[0] if 1 < chosen[0] <= MANY else MANY
        print(
            f"--seeds {seeds} is one seed, {chosen[0]}; {count} seeds are --seeds 0-{count - 1}",
            file=sys.stderr,
        )
    found = train_many(recipe, out, seeds=chosen, root=root, time_budget=budget, together=together)
    if is_first():
        print(json.dumps({"runs": str(out), **found.numbers()}))
        for line in found.constants():
            print(printable(line), file=sys.stderr)
