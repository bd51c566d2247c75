"""The command line: parse, call one function, print.

Data goes to standard output, talk to standard error. Exit codes: 0 done, 1 a fault of torchcaps
(with a traceback to report), 2 something given was wrong (one sentence), 130 interrupted.
"""

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from torchcaps.errors import Interrupted, TorchcapsError

__all__ = ["app", "main"]

app = typer.Typer(
    help="Capsule networks: build, train, dissect.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

OptionList = Annotated[
    list[str] | None,
    typer.Option("--option", metavar="NAME=VALUE", help="An option of the network; repeatable."),
]
Root = Annotated[Path | None, typer.Option(help="Folder of a data set that is files.")]


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the runs and the report.")] = Path(
        "torchcaps-demo"
    ),
    seed: Annotated[int, typer.Option(help="Another seed, another pair of networks.")] = 0,
) -> None:
    """Train two networks, look inside, write a page.

    They are a five-layer capsule network and its uniform twin, on images of composed parts. Prints
    the path of the page. Called again, it goes on where it stopped.
    """
    from torchcaps import tasks

    print(tasks.demo(out, seed=seed))


@app.command()
def models(
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """List the networks by name."""
    import torch

    from torchcaps.models import MODELS, create_model, list_models

    rows: dict[str, dict[str, Any]] = {}
    for name in list_models():
        preset = MODELS[name]
        with torch.device("meta"):
            size = sum(p.numel() for p in create_model(name).parameters())
        rows[name] = {
            "image": preset.image,
            "n_classes": preset.n_classes,
            "parameters": size,
            "options": preset.options,
            "source": preset.source,
        }
    if as_json:
        print(json.dumps(rows, indent=2))
        return
    for name, row in rows.items():
        image = "×".join(map(str, row["image"]))
        print(f"{name}  {image}, {row['n_classes']} classes, {row['parameters']:,} parameters")
        print(f"    {row['source']}")
        print(f"    {', '.join(f'{k}={v}' for k, v in row['options'].items())}")


@app.command()
def train(
    out: Annotated[Path, typer.Option(help="Folder of the run; the same line continues it.")],
    recipe: Annotated[
        Path | None, typer.Option(help="A recipe in TOML; what is given beside it wins.")
    ] = None,
    model: Annotated[str | None, typer.Option(help="A name that `torchcaps models` lists.")] = None,
    data: Annotated[
        str | None,
        typer.Option(help="part-whole, mnist, cifar10, folder, …; a wrong name lists all."),
    ] = None,
    root: Root = None,
    option: OptionList = None,
    epochs: Annotated[int | None, typer.Option(help="Passes over the training images.")] = None,
    batch_size: Annotated[int | None, typer.Option(help="Images a step.")] = None,
    learning_rate: Annotated[float | None, typer.Option(help="Step size of Adam.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of weights and order.")] = None,
) -> None:
    """Train a network, or continue a run.

    Prints the result as JSON. The same line continues a run that was stopped.
    """
    from torchcaps.train import fit, make_recipe, read_fields

    given = {
        "model": model,
        "data": data,
        "epochs": epochs,
        "batch_size": batch_size,
        "learning_rate": learning_rate,
        "seed": seed,
    }
    fields = {} if recipe is None else read_fields(recipe)
    fields |= {name: value for name, value in given.items() if value is not None}
    if option:
        fields["options"] = {**fields.get("options", {}), **_options(option)}
    run = fit(make_recipe(**fields), out, root=root)
    print(json.dumps({"run": str(run.folder), **run.result()}))


@app.command()
def dissect(
    runs: Annotated[list[Path], typer.Argument(help="Run folders, or saved networks.")],
    out: Annotated[Path, typer.Option(help="The page to write.")] = Path("report.html"),
    data: Annotated[
        str | None, typer.Option(help="Data set; that of the run if not given.")
    ] = None,
    root: Root = None,
    images: Annotated[int, typer.Option(min=2, help="How many held-out images.")] = 1000,
    example: Annotated[int, typer.Option(help="The image whose tree is drawn.")] = 0,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the numbers instead of the path.")
    ] = False,
) -> None:
    """Look inside trained networks, write a page.

    Prints the path of the page, or with --json every number on it.
    """
    from torchcaps import tasks

    found = tasks.dissect_files(runs, data=data, root=root, images=images, example=example)
    tasks.write_report(found, out)
    if as_json:
        print(json.dumps({each.label: each.numbers() for each in found}))
    else:
        print(out)


def _options(pairs: list[str] | None) -> dict[str, Any]:
    """NAME=VALUE pairs; a value is a JSON number or true or false, or else a word."""
    options = {}
    for pair in pairs or []:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise TorchcapsError(
                f"--option must be NAME=VALUE, for example routing=uniform, but came as {pair!r}."
            )
        try:
            # Python's spelling is what `torchcaps models` prints.
            options[name] = json.loads({"True": "true", "False": "false"}.get(value, value))
        except json.JSONDecodeError:
            options[name] = value
    return options


def main() -> None:
    """Run the command line; bad input ends in one sentence, never in a traceback."""
    try:
        app(prog_name="torchcaps")
    except TorchcapsError as error:
        print(f"torchcaps: {error}", file=sys.stderr)
        sys.exit(130 if isinstance(error, Interrupted) else 2)
    except OSError as error:
        print(
            f"torchcaps: {error}; is the path right, may it be written, is there room?",
            file=sys.stderr,
        )
        sys.exit(2)
    except ModuleNotFoundError as error:
        extra = {"lightning": "study", "matplotlib": "study"}.get((error.name or "").split(".")[0])
        if extra is None:
            raise
        print(
            f"torchcaps: this command needs {error.name}, which comes with the extra [{extra}]: "
            f"pip install 'torchcaps[{extra}]'.",
            file=sys.stderr,
        )
        sys.exit(2)
