"""Arguments that several commands take, and how their text is read."""

import inspect
import re
from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from torchcaps._words import DIGITS, value_of
from torchcaps.errors import TorchcapsError, short

if TYPE_CHECKING:
    from torchcaps.train import Recipe

Network = Annotated[Path, typer.Argument(help="A run folder, a saved network, or zoo:NAME.")]
Model = Annotated[str | None, typer.Option(help="A name that `torchcaps models` lists.")]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object.")]
ImageSize = Annotated[
    str | None, typer.Option(metavar="HxW", help="Stretch images to this height and width: 48x64.")
]
Groups = Annotated[
    str | None,
    typer.Option(
        metavar="PATTERN",
        help="Which pictures of a folder belong together: a pattern on their paths, as "
        "'(p[0-9]+)_', or FILE.csv:COLUMN. No group is parted.",
    ),
]
OptionList = Annotated[
    list[str] | None,
    typer.Option("--option", metavar="NAME=VALUE", help="An option of the network; repeatable."),
]
Data = Annotated[str | None, typer.Option(help="Data set; that of the run if not given.")]
Root = Annotated[
    Path | None, typer.Option(help="Folder of a data set that is files; a run remembers it.")
]
RecipeFile = Annotated[
    Path | None, typer.Option(help="A recipe in TOML; what is given beside it wins.")
]
Protocol = Annotated[
    str | None,
    typer.Option(
        help="A paper's: gu, gu_multi_mnist, gu_transfer, hinton_em, mitterreiter, peer, rem, "
        "rem_pruned, rem_transfer, tsai_cifar, tsai_cifar_dynamic, tsai_cifar_em, tsai_dmm. "
        "Ours: em_deep_mnist, em_matrix_mnist."
    ),
]


def _import_all(files: list[Path] | None) -> list[Path] | None:
    if files:
        from torchcaps.train.own_code import import_file

        for file in files:
            import_file(file)
    return files


Baseline = Annotated[
    str | None,
    typer.Option(
        metavar="TEXT",
        help="What the others are held against, by words of its line: routing=uniform; the first "
        "unless you say otherwise. Of several data sets a line of each.",
    ),
]
# Imported while the command line is read, before anything is looked up by its name.
Imports = Annotated[
    list[Path] | None,
    typer.Option(
        "--import",
        metavar="FILE.PY",
        callback=_import_all,
        is_eager=True,
        help="Python of your own that registers routings or networks; repeatable.",
    ),
]
TrunkFile = Annotated[
    Path | None,
    typer.Option(
        "--trunk", help="Weights of the frozen trunk, for --option trunk=…: a safetensors file."
    ),
]
Backbone = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Pretrained maps: resnet18, resnet34, resnet50 or timm:NAME; with --model "
        "capsules_on_backbone, --option weights=pretrained where nothing else is said.",
    ),
]
FieldList = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="FIELD=VALUE", help="Another field of the recipe; repeatable."),
]


# What makes a recipe on the command line: its fields by name, and what holds several.
OF_RECIPE: dict[str, Any] = {
    "recipe": RecipeFile,
    "protocol": Protocol,
    "model": Model,
    "data": Annotated[
        str | None,
        typer.Option(help="part-whole, mnist, folder, …; `torchcaps data list` names all."),
    ],
    "image_size": ImageSize,
    "groups": Groups,
    "option": OptionList,
    "epochs": Annotated[int | None, typer.Option(help="Passes over the training images.")],
    "batch_size": Annotated[int | None, typer.Option(help="Images a step.")],
    "learning_rate": Annotated[float | None, typer.Option(help="Step size of the optimiser.")],
    "seed": Annotated[int | None, typer.Option(help="Seed of weights and order.")],
    "select_by": Annotated[
        str | None,
        typer.Option(
            help="What --set patience=… and keep=best go by: loss, accuracy, balanced_accuracy, "
            "macro_f1, auroc, average_precision."
        ),
    ],
    "class_weights": Annotated[
        str | None,
        typer.Option(help="What an image of each class counts: balanced, or 1,5: a number each."),
    ],
    "field": FieldList,
    "backbone": Backbone,
}


def takes_recipe(does: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options that make a recipe; it gets them as the dict `given`."""
    only = inspect.Parameter.KEYWORD_ONLY
    table = [inspect.Parameter(k, only, default=None, annotation=x) for k, x in OF_RECIPE.items()]
    own = [x.replace(kind=only) for x in inspect.signature(does).parameters.values()]
    parameters = [x for each in own for x in (table if each.name == "given" else [each])]

    @wraps(does)
    def call(**words: Any) -> None:
        does(given={name: words.pop(name) for name in OF_RECIPE}, **words)

    vars(call)["__signature__"] = inspect.Signature(parameters)
    call.__annotations__ = {each.name: each.annotation for each in parameters}
    return call


def recipe_from(given: dict[str, Any]) -> "Recipe":
    """Give what a file says, over it what is given by name, over it what --set and --option say."""
    from torchcaps.train import make_recipe, read_fields

    said = {name: value for name, value in given.items() if value is not None}
    fields = {} if (file := said.pop("recipe", None)) is None else read_fields(file)
    sets, options = fields_from(said.pop("field", None)), options_from(said.pop("option", None))
    if backbone := said.pop("backbone", None):
        options = {"weights": "pretrained", "backbone": backbone, **options}
        if file is None:
            said.setdefault("model", "capsules_on_backbone")
    if "image_size" in said:
        said["image_size"] = sides("--image-size", said["image_size"], "48x64")
    if said.get("class_weights", "none") not in ("balanced", "none"):
        said["class_weights"] = value_of(f"[{said['class_weights']}]")
    fields |= said | sets
    if options:
        fields["options"] = {**fields.get("options", {}), **options}
    return make_recipe(**fields)


def fields_from(pairs: list[str] | None) -> dict[str, Any]:
    return _pairs(pairs, "--set must be FIELD=VALUE, for example schedule=cosine")


def options_from(pairs: list[str] | None) -> dict[str, Any]:
    return _pairs(pairs, "--option must be NAME=VALUE, for example routing=uniform")


def _pairs(pairs: list[str] | None, shape: str) -> dict[str, Any]:
    """Read NAME=VALUE pairs; a value is a JSON number or list, true or false, or else a word."""
    found = {}
    for pair in pairs or []:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise TorchcapsError(f"{shape}, but came as {short(pair)}.")
        found[name] = value_of(value)
    return found


def sides(option: str, text: str, example: str) -> Any:
    """Read a tuple of whole numbers with x between them, as many as the example has."""
    numbers = text.lower().replace("×", "x").split("x")
    are_numbers = all(each.isdecimal() and len(each) <= DIGITS for each in numbers)
    if len(numbers) != len(example.split("x")) or not are_numbers:
        what = "channels, height and width" if example.count("x") == 2 else "height and width"
        raise TorchcapsError(
            f"{option} must be {what}, for example {example}, but came as {short(text)}."
        )
    return tuple(map(int, numbers))


def seconds_of(text: str) -> float:
    """Give the seconds of a time budget such as "1h30m", "8m" or "90s"."""
    parts = re.fullmatch(r"(?:(\d{1,9})h)?(?:(\d{1,9})m)?(?:(\d{1,9})s)?", text)
    if not parts or not any(parts.groups()):
        raise TorchcapsError(
            f"--time-budget must be hours, minutes and seconds, for example 8m, 90s or 1h30m, but "
            f"came as {short(text)}."
        )
    hours, minutes, seconds = (int(part or 0) for part in parts.groups())
    return float(3600 * hours + 60 * minutes + seconds)


def levels(option: str, text: str) -> int | list[int]:
    """Read levels of a grid: one number, or one for each layer from below with commas between."""
    words = text.split(",")
    if not all(re.fullmatch(rf"\s*[0-9]{{1,{DIGITS}}}\s*", word) for word in words):
        raise TorchcapsError(
            f"{option} must be a number of levels, for example 11, or one for each routed layer "
            f"from below, as 11,6, but came as {short(text)}."
        )
    numbers = [int(word) for word in words]
    if min(numbers) < 2:
        raise TorchcapsError(
            f"{option} needs at least the 2 levels 0 and 1, but came as {short(text)}."
        )
    return numbers[0] if len(numbers) == 1 else numbers


def measurement_names(given: Sequence[str] | None) -> list[str]:
    """Give the names that --measure was given, each of them on its own."""
    return [name.strip() for words in given or () for name in words.split(",")]


class ExplainedCommand(TyperCommand):
    """A command that may know more of a line than what Typer says of it."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        # They are taken out of the list one by one.
        words = list(args)
        try:
            return super().parse_args(ctx, args)
        # Typer keeps the classes of its errors to itself.
        except Exception as error:
            known = {word for parameter in self.params for word in parameter.opts}
            _explain_measure(error, words)
            if "--set" in known:
                _explain_name(error, known)
                _explain_value(error, words)
            raise


def _explain_measure(error: Exception, words: list[str]) -> None:
    """Say how names of --measure are written that stand apart by spaces."""
    said = str(getattr(error, "message", "")).rstrip(".")
    is_measure = any(word.partition("=")[0] == "--measure" for word in words)
    if is_measure and "unexpected extra argument" in said:
        raise TorchcapsError(
            f"{said[0].lower()}{said[1:]}; repeat --measure or write commas: "
            f"--measure dynamics,activity."
        ) from None


def _explain_name(error: Exception, known: set[str]) -> None:
    """Say what to type where an option is unknown and a field of a recipe is called so."""
    asked = getattr(error, "option_name", None)
    if type(error).__name__ != "NoSuchOption" or asked is None:
        return
    # Here, for it takes a second, which only a wrong line costs.
    from torchcaps.train.meant import MEANT
    from torchcaps.train.recipe import Recipe

    name = asked.lstrip("-").replace("-", "_")
    name = MEANT.get(name, name)
    if name in Recipe.model_fields:
        option = f"--{name.replace('_', '-')}"
        line = option if option in known else f"--set {name}=VALUE"
        raise TorchcapsError(f"there is no option {asked}; write {line} for the recipe's {name}.")


def _explain_value(error: Any, words: list[str]) -> None:
    """Explain a wrong value as the recipe does of a field: Typer does not tell what came."""
    if type(error).__name__ != "BadParameter":
        return
    names = getattr(getattr(error, "param", None), "opts", [])
    # As --seed=x, or as --seed x.
    given = [
        after if equals else following
        for word, following in zip(words, [*words[1:], ""], strict=True)
        for name, equals, after in [word.partition("=")]
        if name in names
    ]
    if given:
        expected = str(error.message).partition(",")[0].rstrip(".")
        raise TorchcapsError(
            f"{names[0]}: {expected[0].lower()}{expected[1:]}, not {short(given[-1])}."
        )
