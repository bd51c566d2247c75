"""Values by hypothesis, where what may be odd has names and kinds: fields of recipes, options of
networks and routings, documents of runs, words of commands.

The mutator changes bytes of what there is; here values are made up, and what fails is made as
small as it can be. A property is tried on a few values at a time, drawn from a seed.
"""

import inspect
import json
from collections.abc import Callable
from typing import Any, NamedTuple, get_args

import safetensors.torch
import torch
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from starlette.testclient import TestClient

from fuzz.bench import Bench
from fuzz.commands import COMMANDS, check_command
from fuzz.mutate import ODD
from fuzz.trial import Wrong, check_sentence, in_time
from torchcaps import TorchcapsError, create_model, load
from torchcaps.explore.looking import Looker
from torchcaps.explore.opened import opened
from torchcaps.explore.server import guarded
from torchcaps.explore.state import Changed, Shown
from torchcaps.layers import ROUTINGS
from torchcaps.models import MODELS
from torchcaps.study import compare
from torchcaps.tasks.check_run import check_run
from torchcaps.tasks.values_file import values_file
from torchcaps.train import Recipe, make_recipe

# So many values are drawn of a property at once.
EACH = 20
NUMBERS = st.integers(-2, 12) | st.integers() | st.floats()
LEAVES = st.none() | st.booleans() | NUMBERS | st.text(max_size=12) | st.sampled_from(ODD)
JSON = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner),
    max_leaves=8,
)
# What no JSON holds, but a call in Python may.
ANYTHING = JSON | st.sampled_from([(), (1, 2), b"x", {1}, object(), 1j, torch.ones(2), int, print])


# All that a field of a recipe chooses from, and what a field is by default.
WORDS = NUMBERS | st.sampled_from(
    [
        value
        for field in Recipe.model_fields.values()
        for value in (*get_args(field.annotation), field.default)
        if isinstance(value, str | float | bool)
    ]
)


class Property(NamedTuple):
    """What must hold of any value: it is taken rightly, or refused in one sentence."""

    name: str
    values: st.SearchStrategy[Any]
    holds: Callable[[Any], object]


def properties(bench: Bench) -> list[Property]:
    run = bench.old
    recipe = json.loads(run.recipe_file.read_text())
    fields = st.sampled_from(list(Recipe.model_fields))
    files = [run.recipe_file, run.metrics_file, run.result_file, run.environment_file]
    found = [
        Property("recipe", _some(fields, ANYTHING | WORDS), _recipe_says_itself),
        Property("options of a network", _options(), lambda drawn: _network(*drawn)),
        Property("options of a routing", _of_routings(), lambda drawn: _routing(*drawn)),
        Property("configuration of a saved network", JSON, lambda drawn: _saved(bench, drawn)),
        Property("words of a command", _words(), check_command),
        Property("question to the explorer", _questions(), _asker(bench)),
    ]
    for path in [*files, values_file(run.folder)]:
        first = json.loads(path.read_text().splitlines()[0]) if path.suffix == ".jsonl" else None
        good = recipe if path == run.recipe_file else first or json.loads(path.read_text())

        def holds(drawn: Any, path: Any = path, good: Any = good) -> None:
            document = {**good, **drawn} if isinstance(drawn, dict) else drawn
            before = path.read_bytes()
            path.write_text(json.dumps(document), encoding="utf-8", errors="surrogatepass")
            try:
                check_run(run.folder).text()
                compare([run.folder]).text()
            finally:
                path.write_bytes(before)

        found.append(Property(path.name, _some(st.sampled_from(list(good)), JSON) | JSON, holds))
    return found


def _some(
    names: st.SearchStrategy[str], values: st.SearchStrategy[Any] = ANYTHING
) -> st.SearchStrategy[dict[str, Any]]:
    return st.dictionaries(names, values, min_size=1, max_size=3)


def _recipe_says_itself(fields: dict[str, Any]) -> None:
    """A recipe that is taken is the same when it was written and read."""
    found = make_recipe(**{"model": "capsnet", "data": "part-whole", "epochs": 3, **fields})
    again = make_recipe(**json.loads(found.model_dump_json()))
    if again != found or again.digest() != found.digest():
        raise Wrong(f"{found!r} is read as {again!r}")


@st.composite
def _options(draw: st.DrawFn) -> tuple[str, dict[str, Any]]:
    name = draw(st.sampled_from(sorted(MODELS)))
    image = ANYTHING | st.tuples(*[st.integers(1, 40)] * 3)
    sizes = {"image": image, "n_classes": ANYTHING, "standardise": ANYTHING}
    options = draw(_some(st.sampled_from([*MODELS[name].options, "no_such"])))
    for option, value in options.items():
        if option in MODELS[name].options:
            known = [*MODELS[name].words(option), MODELS[name].options[option]]
            options[option] = draw(st.just(value) | st.sampled_from(known))
    return name, {**options, **draw(st.fixed_dictionaries({}, optional=sizes))}


def _network(name: str, options: dict[str, Any]) -> None:
    with torch.device("meta"):
        create_model(name, **options)


@st.composite
def _of_routings(draw: st.DrawFn) -> tuple[str, dict[str, Any]]:
    options = {name: list(inspect.signature(made).parameters) for name, made in ROUTINGS.items()}
    name = draw(st.sampled_from(sorted(name for name, known in options.items() if known)))
    return name, draw(_some(st.sampled_from(options[name])))


def _routing(name: str, options: dict[str, Any]) -> None:
    ROUTINGS[name](**options)


def _saved(bench: Bench, config: Any) -> None:
    path = bench.folder / "drawn.safetensors"
    good = {"name": "peer_sign_dynamic", "image": [1, 2, 3], "n_classes": 3}
    config = {**good, **config} if isinstance(config, dict) else config
    state = load(bench.network).state_dict()
    metadata = {"torchcaps": json.dumps(config)}
    path.write_bytes(safetensors.torch.save(state, metadata=metadata))
    load(path)


@st.composite
def _words(draw: st.DrawFn) -> list[str]:
    """A command that neither trains nor writes, with text of any letters."""
    harmless = ("models", "eval", "predict", "check", "compare", "data list", "study claims")
    name = draw(st.sampled_from(harmless))
    options = COMMANDS[name][1]
    letters = st.characters(exclude_characters="\0", exclude_categories=())
    text = st.text(letters, max_size=8)
    words = [*name.split(), *draw(st.lists(text, max_size=2))]
    for option in draw(st.lists(st.sampled_from(options), max_size=2)) if options else []:
        words += [option, draw(text)]
    return words


def _questions() -> st.SearchStrategy[Any]:
    capsule = st.tuples(st.sampled_from(["classes", "capsules"]) | st.text(max_size=6), NUMBERS)
    parts = {
        name: _some(st.sampled_from(list(part.model_fields)), JSON | st.lists(capsule, max_size=3))
        for name, part in (("shown", Shown), ("changed", Changed))
    }
    whole = {"network": NUMBERS, "selected": capsule, **parts}
    return JSON | st.fixed_dictionaries({}, optional=whole)


def _asker(bench: Bench) -> Callable[[Any], None]:
    """Ask as the page does; what is refused comes as a sentence."""
    host = "127.0.0.1:80"
    app = guarded(Looker(opened([bench.run.folder])), token="t", port=80)
    client = TestClient(app, base_url=f"http://{host}", raise_server_exceptions=False)
    headers = {"host": host, "origin": f"http://{host}", "content-type": "application/json"}

    def ask(question: Any) -> None:
        answer = client.post("/t/api/look", content=json.dumps(question), headers=headers)
        if answer.status_code in (400, 422):
            raise TorchcapsError(answer.text.removesuffix("\n"))
        if answer.status_code != 200:
            raise Wrong(f"{answer.status_code}: {answer.text}")

    return ask


def check_property(which: Property, turn: int) -> list[str]:
    """What came of each value; what is wrong is an error, with the smallest value that is."""
    came: list[str] = []
    last: list[Any] = [None]

    @seed(turn)
    @settings(
        max_examples=EACH,
        database=None,
        deadline=None,
        derandomize=False,
        phases=(Phase.generate, Phase.shrink),
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )
    @given(which.values)
    def attempt(value: Any) -> None:
        last[0] = value
        try:
            with in_time():
                found = which.holds(value)
        except TorchcapsError as error:
            check_sentence(str(error))
            came.append("refused")
        else:
            # A command says itself what came of it.
            came.append(found if isinstance(found, str) else "accepted")

    try:
        attempt()
    except Exception as error:
        raise Wrong(f"{which.name}: {_short(last[0])}: {type(error).__name__}: {error}") from error
    return came


def _short(value: object) -> str:
    try:
        return repr(value)[:300]
    except ValueError:
        return "with a number of thousands of digits"
