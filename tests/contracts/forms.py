"""The cases that every form of a routing is held to, of forms.toml: its tensors, its options.

`VOTES` are the tensors of a vote map that may be left out, and a form says which of its own it
always needs, which it may be given, and which options it knows. `route` calls the public functions
alone.
"""

import math
import sys
from typing import Any, NamedTuple

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from tables import beside
from torchcaps import ops
from torchcaps.ops import fused, materialise, native
from torchcaps.ops.operators import Operator
from torchcaps.types import Capsules, VoteMap, Window

BACKENDS = {"fused": fused, "native": native}
VOTES = ("vote_bias", "coordinates")


class Form(NamedTuple):
    """What forms.toml says of one."""

    options: list[dict[str, Any]]
    may: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    names: dict[str, str] = {}  # noqa: RUF012
    size: tuple[float, float] = (1.0, 1.0)
    adds_up: bool = False
    alone: dict[str, Any] = {}  # noqa: RUF012


def forms():
    for name, said in beside(__file__, "forms.toml").items():
        tuples = {key: tuple(said[key]) for key in ("may", "needs", "size") if key in said}
        yield name, Form(**said | tuples)


FORMS = dict(forms())
# What native kernels lack besides float64, which no kernel takes; then the fused form
# routes. Who is not named here lacks nothing that a case can have.
LACKS = {
    ("distance", "native"): "window",
    ("dynamic", "native"): "window",
}
PAIRS = [(name, way) for way, backend in BACKENDS.items() for name in backend.ROUTINGS]

# Overlapping windows, a column of children unseen; rows unseen; one that is the whole grid; one
# position each.
ODD = Window((5, 4, 2), (3, 2), (2, 1))
WINDOWS = [ODD, Window((6, 3, 2), (2, 2), (3, 1)), Window((2, 3, 2), (2, 3), (1, 1))]
WINDOWS += [Window((3, 2, 4), (1, 1), (2, 1))]
LARGE = Window((7, 5, 8), (3, 3), (2, 1))
SMALL = Window((3, 3, 2), (2, 2), (1, 1))


def dtype_of(way):
    """In which a form is judged."""
    return torch.float64 if way == "fused" else torch.float32


def marked(items, drawn):
    """With a name, and of each backend a part in the default tier."""
    return [
        pytest.param(*item, marks=pytest.mark.drawn(drawn[item[0]]), id="-".join(map(str, item)))
        for item in items
    ]


class Case(NamedTuple):
    """One routing: what its votes are made from, and how."""

    algorithm: str
    sharing: str = "none"
    pose: str = "vector"
    window: Window | None = None
    given: tuple[str, ...] = ()  # of the tensors that may be left out
    options: dict[str, Any] = {}  # noqa: RUF012
    batch: tuple[int, ...] = (2,)
    n_in: int = 6
    n_out: int = 3
    d_in: int = 4
    d_out: int = 5

    def __str__(self):
        usual, words = Case(""), [self.algorithm, self.sharing, self.pose]
        if self.window is not None:
            words.append("window" + by(self.window.child_grid))
        words += [f"{name}{value}" for name, value in self.options.items()]
        if self.batch != usual.batch:
            words.append("batch" + by(self.batch))
        words += [
            f"{name}{getattr(self, name)}"
            for name in ("n_in", "n_out", "d_in", "d_out")
            if getattr(self, name) != getattr(usual, name)
        ]
        return "-".join([*words, "+".join(self.given) or "bare"])


# Of votes: overlapping windows of eighteen slots, or twelve children.
KINDS = [
    Case("dynamic", sharing, pose, window, n_in=12, n_out=5, d_out=4)
    for sharing in ("none", "type", "all")
    for pose in ("vector", "matrix")
    for window in (None, Window((4, 5, 3), (2, 3), (1, 2)))
]


def by(numbers):
    return "x".join(map(str, numbers))


def may_be_given(algorithm, way):
    """All that a kernel takes."""
    every = (*VOTES, *FORMS[algorithm].may)
    return tuple(name for name in every if name != LACKS.get((algorithm, way)))


def windows_of(algorithm, way, windows):
    return [x for x in windows if x is None or LACKS.get((algorithm, way)) != "window"]


def leaves_of(case, dtype=torch.float64):
    """Random tensors by name."""
    form, children, slots = FORMS[case.algorithm], case.n_in, case.n_in
    if case.window is not None:
        children = math.prod(case.window.child_grid)
        slots = math.prod(case.window.kernel) * case.window.child_grid[2]
    side = math.isqrt(case.d_in)
    matrix, d = (case.d_out, case.d_in), case.d_out
    if case.pose == "matrix":
        matrix, d = (side, side), case.d_in
    types = case.window.child_grid[2] if case.window else 2
    shared = {"none": (slots,), "type": (types,), "all": ()}[case.sharing]
    of_votes = form.size[dtype != torch.float64]
    size = of_votes / math.sqrt(matrix[1])
    if form.adds_up and dtype != torch.float64:
        size *= slots**-0.25
    draw = torch.randn
    # d_o of each update, or the factor of inverted routing.
    scales = () if case.algorithm == "inverted" else case.options.get("iterations", 3) - 1
    made = {
        "pose": lambda: draw(*case.batch, children, case.d_in),
        "weight": lambda: draw(*shared, case.n_out, *matrix) * size,
        "vote_bias": lambda: draw(case.n_out, d) * of_votes,
        "coordinates": lambda: draw(slots, d) * of_votes,
        "bias": lambda: draw(case.n_out, d),
        "prior": lambda: draw(slots, case.n_out),
        "start": lambda: draw(case.n_out, d),
        "norm_weight": lambda: draw(d),
        "norm_bias": lambda: draw(d),
        "activation": lambda: torch.rand(*case.batch, children) + 0.1,
        # Below and above those of the votes.
        "length": lambda: 3 * of_votes * torch.rand(*case.batch, children),
        "beta_a": lambda: draw(case.n_out) / 1000,
        "beta_u": lambda: draw(case.n_out),
        "agreement": lambda: torch.rand(()) + 0.2,
        "scale": lambda: 0.5 + torch.rand(scales),
    }
    names = ["pose", "weight", *form.needs, *case.given]
    names += [name for name in ("scale", "agreement") if case.options.get(name) == "given"]
    return {name: made[name]().double().to(dtype) for name in names}


def vote_map_of(case, leaves):
    return VoteMap(
        Capsules(leaves["pose"], leaves.get("activation", leaves.get("length"))),
        leaves["weight"],
        case.sharing,
        case.pose,
        leaves.get("vote_bias"),
        case.window,
        leaves.get("coordinates"),
    )


def options_of(case, leaves):
    """The options of a case, with its tensors among them."""
    form, given = FORMS[case.algorithm], dict(case.options)
    for name, x in leaves.items():
        if name not in ("pose", "weight", "activation", "length", *VOTES):
            given[form.names.get(name, name)] = x
    if "norm_weight" in given:
        given["norm"] = given.pop("norm_weight"), given.pop("norm_bias")
    if case.algorithm == "em":
        # Where λ is as small as in the papers, activations hardly depend on anything.
        given.setdefault("lambda_", 0.5 if given.get("variant", "paper") == "paper" else 0.05)
        if given.get("compete") == "all":
            given["child_id"] = case.window.child_id(leaves["pose"].device)
    return given


def route(way, case, leaves, keep="steps"):
    """By the plain op of the materialised votes, or by a form."""
    options = options_of(case, leaves) | {"keep": keep}
    return call(way, case.algorithm, vote_map_of(case, leaves), options)


def call(way, algorithm, vote_map, options):
    name = f"{algorithm}_routing"
    if way != "plain":
        return getattr(BACKENDS[way], name)(vote_map, **options)
    votes, children, window = materialise(vote_map), vote_map.children.activation, vote_map.window
    if children is None:
        return getattr(ops, name)(votes, **options)
    if window is not None:
        children = window.of(children.unsqueeze(-1)).squeeze(-1)
    return getattr(ops, name)(votes, children, **options)


def takes(way, case, leaves):
    """Whether a backend says that its own kernels route."""
    return BACKENDS[way].takes(
        case.algorithm, vote_map_of(case, leaves), options_of(case, leaves) | {"keep": "steps"}
    )


def ran_by(call, *arguments):
    """Whose operators on votes ran, if any did."""
    with Watch() as watch:
        call(*arguments)
    # This one meets no votes: every form of EM routing has it.
    starts = {name.split("_")[0] for name in watch.called if name != "em_moves"}
    found = {name if name == "native" else "fused" for name in starts}
    assert len(found) <= 1
    return found.pop() if found else None


def numbers_of(routed):
    """All that a routing gives, by name."""
    found = {"pose": routed.parents.pose, "activation": routed.parents.activation}
    for t, step in enumerate(routed.steps):
        found |= {f"coupling {t}": step.coupling, f"pose {t}": step.parents.pose}
        found[f"activation {t}"] = step.parents.activation
    found["scale"] = getattr(routed, "scale", None)
    return {name: x for name, x in found.items() if x is not None}


def noise_like(x, seed):
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randn(x.shape, dtype=torch.float64, generator=generator)
    return noise.to(x)


def gradients_of(numbers, leaves):
    """The gradients of a random sum of numbers, zero for what they do not depend on."""
    pairs = [(x, noise_like(x, seed)) for seed, x in enumerate(numbers) if x.requires_grad]
    if not pairs:
        return {name: torch.zeros_like(x) for name, x in leaves.items()}
    loss = sum((x * noise).sum() for x, noise in pairs)
    found = torch.autograd.grad(loss, leaves.values(), materialize_grads=True, retain_graph=True)
    return dict(zip(leaves, found, strict=True))


def results_of(way, case, leaves):
    """All that a routing gives, and the gradients of a random sum of all of it."""
    leaves = {name: x.detach().clone().requires_grad_() for name, x in leaves.items()}
    numbers = numbers_of(route(way, case, leaves))
    gradients = gradients_of(numbers.values(), leaves)
    found = {name: x.detach() for name, x in numbers.items()}
    return found | {f"of {name}": x for name, x in gradients.items()}


class Watch(TorchDispatchMode):
    """Which operators of ours are called, and the largest memory that any operation asks for, in
    bytes, inside ours too."""

    def __init__(self):
        super().__init__()
        self.bytes, self.called, self.calls = 0, set(), []
        self.known = {}
        for name, module in list(sys.modules.items()):
            if name.startswith("torchcaps.ops."):
                for operator in vars(module).values():
                    if isinstance(operator, Operator) and operator.backward is not None:
                        self.known[operator.forward.name()] = operator.run_flat
                        self.known[operator.backward.name()] = operator.run_backward_flat

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        run = self.known.get(func.name())
        if run is None:
            made = func(*args, **(kwargs or {}))
        else:
            self.called.add(func.name().removeprefix("torchcaps::"))
            self.calls.append((func, args))
            with self:
                made = run(*args, **(kwargs or {}))
        for x in tree_leaves(made):
            if isinstance(x, torch.Tensor):
                self.bytes = max(self.bytes, x.untyped_storage().nbytes())
        return made
