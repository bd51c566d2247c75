"""One table: every public op × backend × size × layout × precision, and a loop for each.

All tensors are short binary fractions, and so are the votes, in half precision too: one loop in
double precision is the answer for every dtype and every layout.
"""

import math
import zlib
from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any, NamedTuple

import torch

from contracts.forms import SMALL
from reference import losses as loops
from reference.squash import squash_poses
from reference.votes import materialise as votes_of
from torchcaps import ops
from torchcaps.ops import fused, native
from torchcaps.ops.by_name import PLAIN
from torchcaps.types import Capsules, VoteMap, Window

D_IN = 4
DTYPES = {"float64": torch.float64, "float32": torch.float32}
DTYPES |= {"float16": torch.float16, "bfloat16": torch.bfloat16}


class Place(NamedTuple):
    """How many samples, children, parents, and numbers of a pose."""

    batch: int
    n_in: int
    n_out: int
    size: int
    window: Window | None = None

    def __str__(self) -> str:
        return "windows" if self.window else "x".join(map(str, self[:4]))

    @property
    def is_small(self) -> bool:
        """So that a loop takes no seconds twice over: for gradients of gradients, and for what is
        expanded, which has an answer of its own."""
        return self.n_in * self.n_out * self.size <= 250


SOME = Place(2, 2, 3, 3)
PLACES = [SOME, Place(1, 1, 1, 1), Place(1, 20, 30, 2)]
PLACES += [Place(1, 3000, 2, 1), Place(1, 2, 3000, 1), Place(1, 2, 1, 3000)]
SEEN = Place(2, math.prod(SMALL.child_grid), 3, 4, SMALL)
Tensors = dict[str, torch.Tensor]


def in_columns(x: torch.Tensor, axis: int) -> torch.Tensor:
    """An axis innermost."""
    return x.movedim(axis, -1).contiguous().movedim(-1, axis) if x.ndim > axis else x


LAYOUTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "contiguous": lambda x: x,
    "transposed": lambda x: in_columns(x, 0),
    "channels last": lambda x: in_columns(x, 1),
    # Between two numbers, none.
    "sliced": lambda x: torch.stack([x, torch.full_like(x, math.nan)], -1).flatten(-2)[..., ::2],
    "expanded": lambda x: x[:1].expand(x.shape),
}


class Op(NamedTuple):
    """What it takes, by axes; what a backend makes of it, and what a loop does: the same names."""

    tensors: dict[str, str]
    call: Callable[[str, Place, Tensors], Tensors]
    loop: Callable[[Place, Tensors], Tensors]
    ways: tuple[str, ...] = ("plain",)
    windows: bool = False
    # The margin loss is computed in half precision; others of lengths keep an ε of its own there.
    dtypes: tuple[str, ...] = tuple(DTYPES)


class Routing(NamedTuple):
    """What it takes beside votes, by axes; in which order its loop answers."""

    tensors: dict[str, str]
    answers: tuple[str, ...] = ("pose", "coupling")
    options: dict[str, Any] = {}  # noqa: RUF012


ACTIVE = {"activation": "bc"}
ROUTINGS = {
    "conv3d": Routing({"bias": "zd"}),
    "distance": Routing(ACTIVE | {"bias": "jd"}, ("pose", "coupling", "scale")),
    "dynamic": Routing({"bias": "jd", "prior": "ij"}),
    "em": Routing(
        ACTIVE | {"beta_a": "j", "beta_u": "j"},
        ("pose", "activation", "coupling"),
        # What the papers take leaves hardly a digit of one child, and activations without a slope.
        {"variance_floor": 0.05, "lambda_": 0.1},
    ),
    "inverted": Routing({"start": "jd"}, options={"scale": 0.2}),
    "self_attention": Routing({"bias": "ij"}),
    "self_routing": Routing(
        ACTIVE | {"own_weight": "ije", "bias": "ij"}, ("pose", "coupling", "activation")
    ),
    "uniform": Routing({"bias": "jd"}),
}


def vote_map_of(place: Place, given: Tensors) -> VoteMap:
    children = Capsules(given["pose"], given.get("activation"))
    return VoteMap(children, given["weight"], window=place.window)


def beside(given: Tensors, options: dict[str, Any]) -> dict[str, Any]:
    """Without what votes are made of."""
    named = {
        name.removeprefix("own_"): x for name, x in given.items() if name not in ("pose", "weight")
    }
    return named | options


def routed(name: str, way: str, place: Place, given: Tensors) -> Tensors:
    options = beside(given, ROUTINGS[name].options) | {"keep": "steps"}
    vote_map = vote_map_of(place, given)
    if name == "conv3d":
        grid = (1, place.n_out, 1)
        found = ops.conv3d_routing(ops.materialise(vote_map), parent_grid=grid, **options)
    else:
        options.pop("activation", None)
        found = ops.route(vote_map, name, backend=way, **options)
    numbers = {"pose": found.parents.pose, "activation": found.parents.activation}
    numbers |= {"scale": found.scale}
    numbers |= {f"coupling {t}": step.coupling for t, step in enumerate(found.steps)}
    return {key: x for key, x in numbers.items() if key.split()[0] in ROUTINGS[name].answers}


def looped(name: str, place: Place, given: Tensors, **more: Any) -> Tensors:
    given = dict(given)
    if place.window is not None:
        child_id = place.window.child_id()
        given |= {key: given[key][:, child_id] for key in ("pose", "activation") if key in given}
    options = beside(given, ROUTINGS[name].options) | more
    if name == "self_routing":
        options["poses"] = given["pose"]
    if name == "conv3d":
        options["parent_grid"] = (1, place.n_out, 1)
    module = import_module(f"reference.{name}")
    loop = getattr(module, name if name == "self_routing" else f"{name}_routing")
    answers = loop(votes_of(given["pose"], given["weight"]), **options)
    found: Tensors = {}
    for key, x in zip(ROUTINGS[name].answers, answers, strict=False):
        if key == "coupling":
            x = x if isinstance(x, list) else [x]
            found |= {f"coupling {t}": each for t, each in enumerate(x)}
        elif x is not None:
            found[key] = x
    return found


def routing(name: str) -> Op:
    forms = (("fused", fused), ("native", native))
    return Op(
        {"pose": "bce", "weight": "ijde"} | ROUTINGS[name].tensors,
        lambda way, place, given: routed(name, way, place, given),
        lambda place, given: looped(name, place, given),
        ("plain",)
        if name == "conv3d"
        else ("plain", "auto", *(way for way, backend in forms if name in backend.ROUTINGS)),
        windows=name != "conv3d",
    )


def one_step(way: str, place: Place, given: Tensors) -> Tensors:
    votes, options = ops.materialise(vote_map_of(place, given)), ROUTINGS["inverted"].options
    step = ops.inverted_step(votes, given["start"], **options)
    return {"pose": step.parents.pose, "coupling 0": step.coupling}


def one_turn(place: Place, given: Tensors) -> Tensors:
    return looped("inverted", place, given, iterations=1)


def loss(name: str, several: bool = False, **options: Any) -> Op:
    """Of classes as many as parents; `several` may be there at once."""

    def target(place: Place) -> torch.Tensor:
        generator = torch.Generator().manual_seed(place.n_out)
        if several:
            return torch.rand(place.batch, place.n_out, generator=generator) < 0.4
        return torch.randint(place.n_out, (place.batch,), generator=generator)

    def loop(place: Place, given: Tensors) -> Tensors:
        there: Any = target(place).tolist()
        if several:
            there = [{k for k, is_there in enumerate(row) if is_there} for row in there]
        elif name not in ("spread", "cross_entropy"):
            there = [{k} for k in there]
        found = getattr(loops, f"{name}_loss")(given["scores"], there, **options)
        return {"loss": found + 0 * given["scores"].sum()}  # which one class alone does not meet

    def call(way: str, place: Place, given: Tensors) -> Tensors:
        function = getattr(ops, f"{name}_loss")
        scores = given["scores"]
        return {"loss": function(scores, target(place).to(scores.device), **options)}

    wide = name == "margin" or options.get("scores_are") == "lengths"
    return Op({"scores": "bj"}, call, loop, dtypes=tuple(DTYPES)[: 2 if wide else None])


LENGTHS, LOGITS = {"scores_are": "lengths"}, {"scores_are": "independent_logits"}
OPS = {f"{name.removesuffix('_routing')}_routing": routing(name) for name in (*PLAIN, "conv3d")}
OPS |= {"inverted_step": Op({"pose": "bce", "weight": "ijde", "start": "jd"}, one_step, one_turn)}
for kind in ("hinton", "exp", "none"):
    OPS[f"squash {kind}"] = Op(
        {"pose": "bjd"},
        lambda way, place, given, kind=kind: {"pose": ops.squash(given["pose"], kind)},
        lambda place, given, kind=kind: {"pose": squash_poses(given["pose"], kind)},
    )
OPS |= {
    "materialise": Op(
        {"pose": "bce", "weight": "ijde"},
        lambda way, place, given: {"votes": ops.materialise(vote_map_of(place, given))},
        lambda place, given: {"votes": votes_of(given["pose"], given["weight"])},
    ),
    "margin_loss": loss("margin"),
    "margin_loss of several": loss("margin", True, m_plus=0.85, m_minus=0.2, lambda_=0.7),
    "margin_loss official": loss("margin", True, reduction="official"),
    "spread_loss": loss("spread", margin=0.6),
    "spread_loss of several": loss("spread", True, margin=0.6),
    "cross_entropy_loss": loss("cross_entropy"),
}
for several in (False, True):
    for scores in (LENGTHS, LOGITS):
        words = f"{scores['scores_are']} {several}"
        OPS[f"binary_cross_entropy_loss of {words}"] = loss(
            "binary_cross_entropy", several, **scores
        )
        OPS[f"focal_loss of {words}"] = loss("focal", several, gamma=1.5, **scores)
OPS["focal_loss of logits"] = loss("focal", gamma=2.0, scores_are="logits")
OPS["reconstruction_loss"] = Op(
    {"scores": "bjd", "image": "bjd"},
    lambda way, place, given: {"loss": ops.reconstruction_loss(given["scores"], given["image"])},
    lambda place, given: {"loss": loops.reconstruction_loss(given["scores"], given["image"])},
)


def layouts_of(place: Place) -> list[str]:
    return [name for name in LAYOUTS if place.is_small or name != "expanded"]


def tensors(name: str, place: Place) -> Tensors:
    """Eighths, or odd parts of 32 between 0 and 1 for what is a length: no vote is as long."""
    window, axes = place.window, dict(zip("bijd", place[:4], strict=True))
    axes |= {"c": place.n_in, "e": D_IN, "z": 1}
    if window is not None:
        axes["i"] = math.prod(window.kernel) * window.child_grid[2]
    generator = torch.Generator().manual_seed(zlib.crc32(f"{name} {place}".encode()))

    def eighths(most: int, shape: list[int]) -> torch.Tensor:
        return torch.randint(-most, most + 1, shape, generator=generator).double() / 8

    made = {}
    for key, letters in OPS[name].tensors.items():
        shape = [axes[letter] for letter in letters]
        if key in ("activation", "scores"):
            made[key] = (torch.randint(16, shape, generator=generator).double() * 2 + 1) / 32
        elif key == "pose":
            made[key] = eighths(2, shape) * 4
        else:
            made[key] = eighths(8, shape)
    if name == "self_attention_routing":  # whose logits are sums over children
        made["weight"] /= 2.0 ** round(math.log2(axes["i"]) / 4)
    return made


def noise_like(x: torch.Tensor, name: str) -> torch.Tensor:
    generator = torch.Generator().manual_seed(zlib.crc32(name.encode()))
    return ((2 * torch.randint(-4, 4, x.shape, generator=generator) + 1) / 8).to(x)


def sloped(numbers: Tensors, leaves: Tensors, twice: bool) -> Tensors:
    """All numbers with the gradients of a random sum of them, and those of one of these."""
    found = dict(numbers)
    for prefix in ("of", "of of")[: 1 + twice]:
        summed = {name: x for name, x in numbers.items() if x.requires_grad}
        score = sum((x * noise_like(x, name)).sum() for name, x in summed.items())
        numbers = {name: torch.zeros_like(x) for name, x in leaves.items()}
        if summed:
            gradients = torch.autograd.grad(
                score, [*leaves.values()], create_graph=twice, materialize_grads=True
            )
            numbers = dict(zip(leaves, gradients, strict=True))
        found |= {f"{prefix} {name}": x for name, x in numbers.items()}
    return {name: x.detach().cpu() for name, x in found.items()}


def results(
    name: str, way: str, place: Place, layout: str, dtype: torch.dtype, device: Any = "cpu"
) -> Tensors:
    op = OPS[name]
    leaves = {n: x.to(device, dtype).requires_grad_() for n, x in tensors(name, place).items()}
    laid = {key: LAYOUTS[layout](x) for key, x in leaves.items()}
    # Forms give no gradients of gradients, and say so.
    twice = way == "plain" and dtype == torch.float64 and place.is_small
    return sloped(op.call(way, place, laid), leaves, twice)


@cache
def answer(name: str, place: Place, expanded: bool, dtype: torch.dtype = torch.float64) -> Tensors:
    op = OPS[name]
    leaves = {key: x.to(dtype).requires_grad_() for key, x in tensors(name, place).items()}
    given = {key: LAYOUTS["expanded"](x) if expanded else x for key, x in leaves.items()}
    return sloped(op.loop(place, given), leaves, place.is_small)


# What a loop compares in all pairs, one after the other: of these there are fewer.
PAIRED = {"self_attention_routing": "n_in", "spread_loss of several": "n_out"}


def places_of(name: str) -> list[Place]:
    places = [*PLACES, *([SEEN] if OPS[name].windows else [])]
    if axis := PAIRED.get(name):
        places = [each._replace(**{axis: min(getattr(each, axis), 100)}) for each in places]
    return places


CELLS = [(name, way, place) for name in OPS for place in places_of(name) for way in OPS[name].ways]
