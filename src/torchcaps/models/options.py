"""The options of a named network: known, of the right kind, and of use together."""

import inspect
from typing import Any

from torchcaps._checks import is_whole
from torchcaps.errors import TorchcapsError, nearest, short
from torchcaps.layers import ROUTINGS, EMRouting, Routing, UniformRouting
from torchcaps.layers.routing.table import all_routing_options, no_use
from torchcaps.models.limits import MOST
from torchcaps.models.preset import Preset, routing_options

# Whole numbers whose makers say more about them than that they are too small.
EXPLAINED = {"iterations", "n_layers"}
# Of which 0 is meant in every network that has it, also where it has some.
MAY_BE_NONE = {"hidden"}
# Of a word that says how large the layers are.
MOST_LETTERS = 200
# The skip of DeepCaps' last cell iterates too; primary capsules are squashed too.
ITERATES, SQUASHES = frozenset({"iterations", "detach"}), frozenset({"squash"})

# What other libraries call the two that every network has.
COUNT = "how many classes there are is n_classes, in training a matter of the data"
SIZE = "the size of its images is image=(channels, height, width), in training a matter of the data"
OF_DATA = "in training the data say it, in Python create_model(…, {}=…)"
ELSEWHERE = {
    "num_classes": COUNT,
    **dict.fromkeys(("image_size", "img_size", "in_chans"), SIZE),
    **{name: OF_DATA.format(name) for name in ("image", "n_classes")},
    "standardise": "in training it is a field of the recipe, --set standardise=set",
}

# Why some networks have not the options that others have.
MANY_PARENTS = "with twenty parents to a child no scale brings their lengths to 0.2"
NOT_BALANCED = {
    "deepcaps": "most of its layers are convolutions, which balanced initialisation does not set",
    "rem_deepcaps": "most of its layers are convolutions, which balanced initialisation does not "
    "set",
    "peer_sign_dynamic": MANY_PARENTS,
}
NOT_SQUASHED = "balanced initialisation sets squashed lengths, which its routing does not give"


def _why_not(name: str, preset: Preset, option: str) -> str | None:
    if option in ELSEWHERE:
        return ELSEWHERE[option]
    if option == "routing":
        if not preset.routes:
            return "it routes nothing"
        return (
            "its routing is part of what it is; docs/models.md tells which networks route as they "
            "are told"
        )
    if option == "init":
        if not preset.routes:
            return "it has no routed layer whose lengths could be balanced"
        reason = NOT_BALANCED.get(name, NOT_SQUASHED)
        return f'it starts as init="paper" says and cannot do otherwise: {reason}'
    if preset.fixed_routing and option in all_routing_options():
        return f"its routing is {preset.fixed_routing}, which has no such option"
    is_named = f"class_{option}" in preset.options
    if preset.routes and option in all_routing_options() and not is_named:
        return (
            "it passes on to a routing only the options that it has itself; register a class with "
            "another default, or give create_model a routing as an object"
        )
    return None


def check_option_name(name: str, preset: Preset, option: str) -> None:
    """Refuse an option that the network has not."""
    if not preset.options and option not in ELSEWHERE:
        raise TorchcapsError(
            f"{name} has no options but image and n_classes; leave {short(option)} out."
        )
    if option not in preset.options and not preset.hands_on(option):
        reason = _why_not(name, preset, option)
        explanation = f": {reason}" if reason else f"; {nearest(option, preset.options)}"
        raise TorchcapsError(f"{name} has no option {short(option)}{explanation}.")


def check_option(name: str, preset: Preset, option: str, value: Any) -> None:
    check_option_name(name, preset, option)
    if option not in preset.options:
        # What it may be the routing says.
        _check_reason(name, option, value)
        return
    default = preset.options[option]
    if option == "routing" and isinstance(value, Routing):
        return
    if option == "routing" and isinstance(value, type) and issubclass(value, Routing):
        raise TorchcapsError(
            f"{name} takes a routing by its name or as an object, but got the class "
            f"{value.__name__}; call it: routing={value.__name__}()."
        )
    # A whole number is a fine float; True is no number here.
    words, kind = preset.words(option), type(default).__name__
    fits = type(value) is type(default) or (type(default) is float and type(value) is int)
    if not (fits or (type(value) is str and value in words)):
        choice = (
            f"one of {', '.join(words)}" if kind == "str" else f"{kind} or {' or '.join(words)}"
        )
        what = choice if words else kind
        raise TorchcapsError(
            f"{name} takes {option} as {what}, for example {default!r}, but it came as "
            f"{short(value)}{_as_word(option, value, default)}."
        )
    if not preset.is_own:
        _check_reason(name, option, value, f", for example {default!r}")
    least = 0 if default == 0 or option in MAY_BE_NONE else 1
    if type(default) is int and value < least and option not in EXPLAINED:
        raise TorchcapsError(f"{name} takes {option} from {least} up, but it came as {value}.")


def _as_word(option: str, value: Any, default: Any) -> str:
    """Say how whole numbers are written where an option is a word of them, such as '16,16'."""
    numbers = value if isinstance(value, list | tuple) else [value]
    if not (isinstance(default, str) and default[:1].isdigit() and all(map(is_whole, numbers))):
        return ""
    word = ("-" if "-" in default else ",").join(map(str, numbers))
    return f"; write {word!r}, on the command line --option '{option}=\"{word}\"'"


def _check_reason(name: str, option: str, value: Any, example: str = "") -> None:
    """A file from elsewhere may ask for layers without end."""
    if type(value) is str and len(value) > MOST_LETTERS:
        raise TorchcapsError(
            f"{name} takes {option} in at most {MOST_LETTERS} letters{example}, but it came as "
            f"{short(value)}."
        )
    if type(value) is int and abs(value) > MOST:
        raise TorchcapsError(
            f"{name} takes {option} up to {MOST:,}, but it came as {short(value)}."
        )


def check_routing(name: str, preset: Preset, routing: str | Routing, *, has_head: bool) -> None:
    """Refuse a routing that is unknown, or by which the classes could not score."""
    known: Routing | type[Routing]
    if isinstance(routing, Routing):
        # One of its options may decide it.
        known, what = routing, type(routing).__name__
    elif routing in ROUTINGS:
        known, what = ROUTINGS[routing], f"{routing} routing"
    else:
        raise TorchcapsError(
            f"routing={short(routing)} is unknown; {nearest(routing, ROUTINGS)}. One of your own "
            f"is known after register_routing, on the command line by --import of its file."
        )
    if not known.gives_activations and not has_head:
        or_head = ", or any with head=True" if "head" in preset.options else ""
        raise TorchcapsError(
            f"{name} scores by the activations of its classes, and {what} gives none; it takes "
            f"{', '.join(preset.routings)}{or_head}."
        )


def check_iterations(name: str, routing: str | Routing, iterations: object) -> None:
    """Refuse no iterations of a registered routing. Our routings say themselves how many they take;
    a registered one is never asked for none, since a loop that is not run leaves no parents."""
    if not isinstance(routing, str) or ROUTINGS[routing].algorithm:
        return
    if type(iterations) is int and iterations < 1:
        raise TorchcapsError(
            f"{name} takes iterations from 1 up with {routing} routing, but it came as "
            f"{iterations}."
        )


def check_use(preset: Preset, options: dict[str, Any]) -> None:
    """Refuse options that would do nothing, such as five iterations of a routing that has none."""
    if preset.is_own:
        return
    _check_together(preset, options)
    routing = options.get("routing", preset.options.get("routing"))
    if routing == "em" and preset.by_em:
        raise TorchcapsError(
            f"with EM routing this network is {preset.by_em}, which has the λ, first weights and "
            f"iterations that EM routing needs there; make that one."
        )
    # Where couplings are uniform, the skip of DeepCaps routes nowhere either.
    is_uniform = routing == "uniform" or isinstance(routing, UniformRouting)
    shared = preset.shared - ITERATES if is_uniform else preset.shared
    if isinstance(routing, Routing):
        _check_given_routing(routing, set(options) - shared - {"routing"}, options)
        return
    if not isinstance(routing, str) or routing not in ROUTINGS:
        return
    for option in set(options) - shared:
        what = option.removeprefix("class_")  # class_squash
        if options[option] == "iterations" and what == "detach" and routing != "distance":
            raise no_use(routing, option, options[option])
        if what not in all_routing_options() or what in routing_options(routing):
            continue
        raise no_use(routing, option, options[option])


def _check_given_routing(routing: Routing, rest: set[str], options: dict[str, Any]) -> None:
    """Refuse options of a routing that was made already. The bias of EM routing is its layer's."""
    in_layer = {"bias"} if isinstance(routing, EMRouting) else set()
    for option in sorted(rest & (all_routing_options() | {"class_squash"}) - in_layer):
        kind = type(routing).__name__
        known = option.removeprefix("class_") in inspect.signature(type(routing)).parameters
        mend = "say it where {}(…) is made" if known else "{} has no such option, so leave it out"
        raise TorchcapsError(
            f"a routing that is given as an object has its options already, so "
            f"{option}={short(options[option])} would do nothing; {mend.format(kind)}."
        )


def _check_together(preset: Preset, options: dict[str, Any]) -> None:
    """Refuse options of which one makes the other idle."""
    if options.get("init") == "balanced" and "weight_std" in options:
        raise TorchcapsError(
            f'init="balanced" sets the scale of the weights by itself, so '
            f"weight_std={short(options['weight_std'])} would do nothing; leave one of them out."
        )
    backbone, own = options.get("backbone"), preset.options.get("backbone")
    if backbone not in (None, own) and "width" in preset.options and "width" not in options:
        raise TorchcapsError(
            f"backbone={backbone!r} would end in the channels that are meant for {own!r}; set "
            f"width too: in [tsai2020] it is 128 for 'resnet', for 'simple' 256 with ten classes "
            f"and 128 with a hundred."
        )
    all_options = preset.options | options
    routing = all_options.get("routing", preset.fixed_routing)
    if "lambda_" in options and routing == "inverted" and not all_options.get("activations"):
        raise TorchcapsError(
            f"lambda_={short(options['lambda_'])} is how sharp activations are, and inverted "
            f"routing makes none here; leave lambda_ out."
        )
    for option in ("agreement", "prior"):
        if options.get("detach") == "coupling" and options.get(option) == "learned":
            raise TorchcapsError(
                f"detach='coupling' makes couplings constants to the gradient, so "
                f"{option}='learned' would learn nothing; leave one of them out."
            )
    decoder = all_options.get("decoder")
    if "mask" in preset.options and "mask" in options and decoder is False:
        raise TorchcapsError(
            f"mask={options['mask']!r} says what the decoder sees, but decoder=False leaves the "
            f"decoder out; leave mask out too, or set decoder=True."
        )
