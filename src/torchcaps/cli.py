"""The command line: parse, call one function, print.

Data goes to standard output, talk to standard error. Exit codes: 0 done, 1 a fault of torchcaps
(with a traceback to report), 2 something given was wrong (one sentence), 130 stopped before its
end: interrupted, told to stop, or out of its time budget.
"""

import json
import re
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from torchcaps import cli_data
from torchcaps.cli_data import ImageSize, sides
from torchcaps.errors import Interrupted, TorchcapsError

if TYPE_CHECKING:
    from torchcaps.train import Recipe

__all__ = ["app", "main"]

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.add_typer(cli_data.app, name="data")

OptionList = Annotated[
    list[str] | None,
    typer.Option("--option", metavar="NAME=VALUE", help="An option of the network; repeatable."),
]
Root = Annotated[Path | None, typer.Option(help="Folder of a data set that is files.")]
RecipeFile = Annotated[
    Path | None, typer.Option(help="A recipe in TOML; what is given beside it wins.")
]
Protocol = Annotated[
    str | None,
    typer.Option(
        help="A paper's: gu, gu_multi_mnist, gu_transfer, hinton_em, mitterreiter, peer, rem, "
        "rem_pruned, rem_transfer, tsai_cifar, tsai_cifar_dynamic, tsai_cifar_em, tsai_dmm."
    ),
]
FieldList = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="FIELD=VALUE", help="Another field of the recipe; repeatable."),
]


def _version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        import torchcaps

        print(f"torchcaps {torchcaps.__version__}, torch {version('torch')}")
        raise typer.Exit


@app.callback()
def every_command(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Print it and end."),
    ] = False,
) -> None:
    """Capsule networks: build, train, dissect."""


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
    recipe: RecipeFile = None,
    model: Annotated[str | None, typer.Option(help="A name that `torchcaps models` lists.")] = None,
    data: Annotated[
        str | None,
        typer.Option(help="part-whole, mnist, folder, …; `torchcaps data list` names all."),
    ] = None,
    root: Root = None,
    image_size: ImageSize = None,
    option: OptionList = None,
    epochs: Annotated[int | None, typer.Option(help="Passes over the training images.")] = None,
    batch_size: Annotated[int | None, typer.Option(help="Images a step.")] = None,
    learning_rate: Annotated[float | None, typer.Option(help="Step size of Adam.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of weights and order.")] = None,
    protocol: Protocol = None,
    field: FieldList = None,
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
    tensorboard: Annotated[
        bool, typer.Option("--tensorboard", help="Write OUT/tensorboard too.")
    ] = False,
    keep_memory: Annotated[
        bool,
        typer.Option(
            "--keep-memory",
            help="Use freed memory again instead of giving it back: the same numbers, faster on a "
            "CPU where tensors have tens of megabytes (Linux).",
        ),
    ] = False,
) -> None:
    """Train a network, or continue a run.

    Prints the result as JSON. The same line continues a run that was stopped, and one with more
    --epochs a run that is done. Under torchrun or srun, one process a device, all train one
    network.
    """
    from torchcaps import layers
    from torchcaps.train import fit
    from torchcaps.train.loggers import tensorboard as tensorboard_logger
    from torchcaps.train.ranks import is_first

    given = {
        "protocol": protocol,
        "model": model,
        "data": data,
        "epochs": epochs,
        "batch_size": batch_size,
        "learning_rate": learning_rate,
        "seed": seed,
    }
    if keep_memory and not layers.keep_memory():
        print(
            "--keep-memory does nothing here: it needs Linux and the GNU C library.",
            file=sys.stderr,
        )
    run = fit(
        _recipe(recipe, given, image_size, field, option),
        out,
        root=root,
        workers=workers,
        time_budget=None if time_budget is None else _seconds(time_budget),
        loggers=[tensorboard_logger(out)] if tensorboard else [],
    )
    if is_first():
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


@app.command("eval")
def evaluate(
    network: Annotated[Path, typer.Argument(help="A run folder, or a saved network.")],
    data: Annotated[
        str | None, typer.Option(help="Data set; that of the run if not given.")
    ] = None,
    root: Root = None,
    split: Annotated[
        str,
        typer.Option(help="test, validation (what the run held out: choose networks by it), train"),
    ] = "test",
    predictions: Annotated[
        Path | None, typer.Option(help="File for what is said of each image: .csv or .jsonl.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Count what a trained network gets right.

    Prints accuracy with its interval, the loss, and the classes one by one. The test images are
    for the end: choose between networks by --split validation.
    """
    from torchcaps import tasks

    found = tasks.evaluate_file(network, data=data, root=root, split=split, predictions=predictions)
    print(json.dumps(found.numbers()) if as_json else found.text())


@app.command()
def predict(
    network: Annotated[Path, typer.Argument(help="A run folder, or a saved network.")],
    images: Annotated[list[Path], typer.Argument(help="Picture files.")],
    resize: Annotated[
        bool, typer.Option("--resize", help="Stretch pictures to the size the network takes.")
    ] = False,
    picture: Annotated[
        Path | None, typer.Option(help="Draw images, scores, reconstructions: .svg or .png.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a picture.")] = False,
) -> None:
    """Say what is on pictures.

    Prints the class of each, and how sure of it the network is.
    """
    from torchcaps import tasks

    found = tasks.predict(network, images, resize=resize, picture=picture)
    for each in found:
        for note in each.notes:
            print(note, file=sys.stderr)
    for each in found:
        print(json.dumps(each.numbers()) if as_json else each.text())
    if not as_json:
        print(f"scores are {found[0].meaning}", file=sys.stderr)


@app.command()
def doctor(
    run: Annotated[Path | None, typer.Argument(help="A run folder, finished or not.")] = None,
    model: Annotated[str | None, typer.Option(help="A name that `torchcaps models` lists.")] = None,
    data: Annotated[str | None, typer.Option(help="The data set it shall be trained on.")] = None,
    root: Root = None,
    image_size: ImageSize = None,
    option: OptionList = None,
    recipe: RecipeFile = None,
    protocol: Protocol = None,
    field: FieldList = None,
    seconds: Annotated[
        float, typer.Option(min=1, help="Time to learn a few images by heart.")
    ] = 30,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Say why a network does not learn.

    Examines the machine, the images, and the network of a run, or one that is to be trained.
    Prints a verdict each: fine, look, broken. Exit code 0 means that it could look.
    """
    from torchcaps import tasks

    if run is not None and (model or data or option or recipe or protocol or field):
        raise TorchcapsError(
            "a run knows its network and its data; give the run folder alone, or --model and "
            "--data."
        )
    if run is not None:
        found = tasks.doctor_run(run, root=root, seconds=seconds)
    elif recipe is not None or (model is not None and data is not None):
        given = {"protocol": protocol, "model": model, "data": data}
        patient = _recipe(recipe, given, image_size, field, option)
        found = tasks.doctor(patient, root=root, seconds=seconds)
    else:
        raise TorchcapsError(
            "doctor needs a run folder, or --model and --data of a network that is to be trained, "
            "or its --recipe."
        )
    print(json.dumps(found.numbers()) if as_json else found.text())


def _recipe(
    file: Path | None,
    given: dict[str, Any],
    image_size: str | None,
    field: list[str] | None,
    option: list[str] | None,
) -> "Recipe":
    """What a file says, over it what is given by name, over it what --set and --option say."""
    from torchcaps.train import make_recipe, read_fields

    fields = {} if file is None else read_fields(file)
    fields |= {name: value for name, value in given.items() if value is not None}
    if image_size is not None:
        fields["image_size"] = sides("--image-size", image_size, "48x64")
    fields |= _pairs(field, "--set must be FIELD=VALUE, for example schedule=cosine")
    if option:
        fields["options"] = {**fields.get("options", {}), **_options(option)}
    return make_recipe(**fields)


def _seconds(text: str) -> float:
    """What "1h30m", "8m" or "90s" is."""
    parts = re.fullmatch(r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?", text)
    if not parts or not any(parts.groups()):
        raise TorchcapsError(
            f"--time-budget must be hours, minutes and seconds, for example 8m, 90s or 1h30m, but "
            f"came as {text!r}."
        )
    hours, minutes, seconds = (int(part or 0) for part in parts.groups())
    return float(3600 * hours + 60 * minutes + seconds)


@app.command()
def estimate(
    model: Annotated[str, typer.Option(help="A name that `torchcaps models` lists.")],
    image: Annotated[
        str | None, typer.Option(metavar="CxHxW", help="Channels, height, width: 3x64x48.")
    ] = None,
    classes: Annotated[int | None, typer.Option(help="How many.")] = None,
    batch_size: Annotated[int, typer.Option(min=1, help="Images a step.")] = 128,
    precision: Annotated[str, typer.Option(help="float32, bfloat16")] = "float32",
    option: OptionList = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Say what a network would take, before anything is made.

    Prints its parameters, FLOPs, votes, and the peak memory of a training step and of inference on
    a CPU. Image and classes are those of the paper if not given.
    """
    from torchcaps import tasks

    size = () if image is None else sides("--image", image, "3x64x48")
    found = tasks.estimate(
        model,
        image=(size[0], size[1], size[2]) if size else None,
        n_classes=classes,
        batch_size=batch_size,
        precision=precision,
        **_options(option),
    )
    print(json.dumps(found.numbers()) if as_json else found.text())


def _options(pairs: list[str] | None) -> dict[str, Any]:
    return _pairs(pairs, "--option must be NAME=VALUE, for example routing=uniform")


def _pairs(pairs: list[str] | None, shape: str) -> dict[str, Any]:
    """NAME=VALUE pairs; a value is a JSON number or list, true or false, or else a word."""
    found = {}
    for pair in pairs or []:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise TorchcapsError(f"{shape}, but came as {pair!r}.")
        try:
            # Python's spelling is what `torchcaps models` prints.
            found[name] = json.loads({"True": "true", "False": "false"}.get(value, value))
        except json.JSONDecodeError:
            found[name] = value
    return found


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
    except Exception as error:
        if _is_out_of_memory(error):
            told = (str(error) or "no more is known").splitlines()[0][:150]
            print(
                f"torchcaps: memory ran out ({told}); take a smaller --batch-size or network: "
                f"torchcaps estimate says what a step takes.",
                file=sys.stderr,
            )
            sys.exit(2)
        if not _inside(error, "torchvision"):
            raise
        # Lightning imports it where it is installed.
        print(
            f"torchcaps: torchvision is installed but cannot be imported "
            f"({str(error).splitlines()[0]}); it was built for another torch: install the one that "
            f"fits, or pip uninstall torchvision, which torchcaps does not need.",
            file=sys.stderr,
        )
        sys.exit(2)


def _is_out_of_memory(error: Exception) -> bool:
    """torch's own kind on a GPU, a RuntimeError on a CPU."""
    told = type(error).__name__ == "OutOfMemoryError" or isinstance(error, MemoryError)
    return told or "can't allocate memory" in str(error)


def _inside(error: Exception, package: str) -> bool:
    """Whether it was raised by code of a package, or by what that called."""
    frames = traceback.walk_tb(error.__traceback__)
    return any(frame.f_globals.get("__name__", "").split(".")[0] == package for frame, _ in frames)
