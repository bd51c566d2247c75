"""What is timed, and who takes part: a table of cases and a table of contestants.

Opponents and torchcaps are built as modules of one shape, forward(image, target) -> (scores,
drawing), so that loss, optimiser and measurement are the same lines for all.
"""

import dataclasses
import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from parts import PARTS, switch_off, with_a_choice
from textbook import capsnet, deepcaps, dynamic_op, efficient, em, gamma, inverted
from torch import Tensor, nn

import torchcaps
from torchcaps.layers import (
    DenseCapsules,
    keep_memory,
    make_routing,
    with_channels_last,
)
from torchcaps.layers import use_backend as tell_layers
from torchcaps.layers.routing import Backend
from torchcaps.ops import native, triton
from torchcaps.ops.routing import Detach
from torchcaps.types import Capsules

__all__ = [
    "CASES",
    "CONTESTANTS",
    "Case",
    "Contestant",
    "Subject",
    "absent",
    "build",
    "environment",
    "leaving_out",
    "take",
    "tiny",
    "ways",
]

Outputs = tuple[Tensor, Tensor | None]


@dataclass(frozen=True)
class Case:
    """`book` names an opponent, `preset` and `options` our network, `size` the numbers of an op.
    Without a book the opponent is our network in its plain form."""

    name: str
    task: Literal["op", "train", "infer"]
    batch: int
    book: str
    preset: str = ""
    options: dict[str, Any] = field(default_factory=dict)
    opponent: dict[str, Any] = field(default_factory=dict)
    size: dict[str, int] = field(default_factory=dict)
    image: tuple[int, int, int] = (1, 28, 28)
    n_classes: int = 10
    loss: Literal["margin", "cross_entropy", "spread"] = "margin"
    dtype: Literal["float32", "bfloat16"] = "float32"
    device: Literal["cpu", "cuda"] = "cpu"
    # What elementwise formulas cost in one forward pass, per image: no counter sees them.
    elementwise: float = 0.0


@dataclass(frozen=True)
class Contestant:
    """`backend` is None for an opponent; `compiled` puts torch.compile around it; `channels_last`
    is the field of a recipe, `keeps_memory` an option of `torchcaps train`; `without` names a fast
    part that is switched off."""

    name: str
    backend: str | None = None
    compiled: bool = False
    channels_last: bool = False
    keeps_memory: bool = False
    without: str = ""


def leaving_out(contestant: Contestant, part: str) -> Contestant:
    """The same contestant without a fast part."""
    if part not in PARTS:
        raise ValueError(f"no fast part is called {part!r}; there are {', '.join(PARTS)}.")
    return dataclasses.replace(contestant, name=f"{contestant.name}-without-{part}", without=part)


CONTESTANTS = {
    each.name: each
    for each in (
        Contestant("textbook"),
        Contestant("textbook-compiled", compiled=True),
        Contestant("ours-plain", backend="plain"),
        Contestant("ours-fused", backend="fused"),
        Contestant("ours-native", backend="native"),
        Contestant("ours-channels-last", backend="native", channels_last=True),
        Contestant("ours-keeping", backend="native", keeps_memory=True),
        Contestant("ours-keeping-last", backend="native", channels_last=True, keeps_memory=True),
        Contestant("ours-triton", backend="triton"),
    )
}


# What torchcaps can choose between today. A new backend is named here and told in use_backend.
BACKENDS = frozenset({"plain", "fused", "native", "triton"})


def absent(contestant: Contestant, device: str = "cpu") -> str | None:
    """Why a contestant cannot take part, or None."""
    if contestant.backend == "native" and device == "cuda":
        return "native kernels are for processors"
    if contestant.backend == "native" and not native.available():
        return "native kernels need a C++ compiler"
    if contestant.backend == "triton" and device != "cuda":
        return "Triton kernels need a GPU, and --device cuda"
    if contestant.backend == "triton" and not triton.available():
        return 'Triton is not installed (pip install "torchcaps[triton]"), or finds no GPU'
    if contestant.backend is None or contestant.backend in BACKENDS:
        return None
    return f"this torchcaps has no backend {contestant.backend!r}"


def environment(contestant: Contestant) -> dict[str, str]:
    """What the process of a contestant is told."""
    return {"TORCHCAPS_NATIVE": "1" if contestant.backend == "native" else "0"}


def use_backend(module: nn.Module, backend: str) -> None:
    """The one place where our contestants choose how to compute: every capsule layer is told here,
    before anything runs. "native" is what users get: a fused form where there is one and it pays,
    by a kernel where there is one. "fused" is the same where no kernel runs, see `environment`.
    Triton's kernels are asked for by name."""
    if backend not in BACKENDS:
        raise ValueError(f"no capsule layer of {type(module).__name__} knows backend {backend!r}.")
    told: dict[str, Backend] = {"plain": "plain", "triton": "triton"}
    tell_layers(module, told.get(backend, "auto"))


class OurOp(nn.Module):
    """Our layer on the tensors of the opponent's op, which routes dynamically; `routing` names
    another, without an opponent."""

    def __init__(self, theirs: dynamic_op.DynamicOp, routing: str = "dynamic"):
        super().__init__()
        self.poses = theirs.poses
        n_in, n_out, d_out, d_in = theirs.weight.shape
        detach: Detach = "votes" if theirs.detach else "none"
        chosen = make_routing(routing, iterations=theirs.iterations, detach=detach)
        # Without weights of its own, which may be as large as theirs.
        with torch.device("meta"):
            self.layer = DenseCapsules(n_in=n_in, d_in=d_in, n_out=n_out, d_out=d_out)
        self.layer.weight = theirs.weight
        chosen.bind(n_in=n_in, n_out=n_out, d_out=d_out)
        self.layer.routing = chosen
        # Of children that are as long as they are active.
        self.activation = None if routing == "dynamic" else self.poses.detach().norm(dim=-1)

    def forward(self) -> Tensor:
        return self.layer(Capsules(self.poses, self.activation)).parents.pose


class OurNetwork(nn.Module):
    def __init__(self, network: nn.Module, book: str):
        super().__init__()
        self.network, self.book = network, book

    def forward(self, image: Tensor, target: Tensor | None = None) -> Outputs:
        out = self.network(image, target)
        return out.scores, out.reconstruction


BOOKS: dict[str, tuple[type[nn.Module], Callable[[nn.Module], dict[str, Tensor]]]] = {
    "dynamic_op": (dynamic_op.DynamicOp, dynamic_op.weights_from),
    "capsnet": (capsnet.CapsNet, capsnet.weights_from),
    "inverted": (inverted.InvertedCapsNet, inverted.weights_from),
    "em": (em.MatrixCapsNet, em.weights_from),
    "gamma": (gamma.GammaCapsNet, gamma.weights_from),
    "deepcaps": (deepcaps.DeepCaps, deepcaps.weights_from),
    "efficient": (efficient.EfficientCapsNet, efficient.weights_from),
}


def opponent(case: Case) -> nn.Module:
    if not case.book:
        plain = ours(case)
        use_backend(plain, "plain")
        return plain
    make, _ = BOOKS[case.book]
    if case.task == "op":
        return make(batch=case.batch, **case.size, **case.opponent)
    return make(image=case.image, n_classes=case.n_classes, **case.opponent)


def ours(case: Case) -> nn.Module:
    """torchcaps as it stands; an op takes the tensors of its opponent."""
    if case.task == "op":
        theirs = opponent(case)
        assert isinstance(theirs, dynamic_op.DynamicOp)
        return OurOp(theirs, **case.options)
    network = torchcaps.create_model(
        case.preset, image=case.image, n_classes=case.n_classes, **case.options
    )
    return OurNetwork(network, case.book)


def book_names(module: nn.Module) -> dict[str, Tensor]:
    """The live tensors of a contestant under the names of its opponent."""
    if isinstance(module, OurNetwork) and module.book:
        _, weights_from = BOOKS[module.book]
        return weights_from(module.network)
    if isinstance(module, OurOp):
        return dynamic_op.weights_from(module)
    return dict(module.named_parameters()) | dict(module.named_buffers())


class Subject:
    """A contestant in a case: one call of `step` is what is timed."""

    def __init__(self, case: Case, module: nn.Module, *, compiled: bool, fused_adam: bool):
        self.case = case
        self.module = module.train(case.task != "infer").to(case.device)
        self.run = torch.compile(module) if compiled else module
        if case.task != "op":
            self.image = torch.rand(case.batch, *case.image).to(case.device)
            self.target = torch.randint(case.n_classes, (case.batch,)).to(case.device)
        else:
            like = (case.batch, case.size["n_out"], case.size.get("d_out", 16))
            self.upstream = torch.randn(like).to(case.device)
        self.optimiser = None
        if case.task == "train":
            self.optimiser = torch.optim.Adam(module.parameters(), lr=1e-3, fused=fused_adam)

    @classmethod
    def of_opponent(cls, other: "Subject", *, exact: bool = False) -> "Subject":
        """The opponent with the weights and inputs of another subject; `exact` is in float64."""
        case = dataclasses.replace(other.case, dtype="float32") if exact else other.case
        made = cls(case, opponent(case), compiled=False, fused_adam=False)
        weights = {name: tensor.detach() for name, tensor in book_names(other.module).items()}
        made.module.load_state_dict(weights)
        for name in vars(other).keys() & {"image", "target", "upstream"}:
            setattr(made, name, getattr(other, name))
        if exact:
            made.module.double()
            for name in vars(other).keys() & {"image", "upstream"}:
                setattr(made, name, getattr(other, name).double())
        return made

    def outputs(self) -> Outputs:
        is_half = self.case.dtype == "bfloat16"
        with torch.autocast(self.case.device, torch.bfloat16, enabled=is_half):
            if self.case.task == "op":
                return self.run(), None
            if self.case.task == "infer":
                with torch.no_grad():
                    return self.run(self.image)
            return self.run(self.image, self.target)

    def backward(self) -> Outputs:
        """Outputs, and gradients in the parameters unless the case infers."""
        outputs = self.outputs()
        if self.case.task == "op":
            (outputs[0] * self.upstream).sum().backward()
        elif self.case.task == "train":
            loss(self.case, outputs, self.image, self.target).backward()
        return outputs

    def step(self) -> None:
        if self.case.task != "infer":
            self.module.zero_grad(set_to_none=True)
        self.backward()
        if self.optimiser is not None:
            self.optimiser.step()


def build(case: Case, contestant: Contestant) -> Subject:
    torch.manual_seed(0)
    if contestant.keeps_memory:
        keep_memory()
    if contestant.backend is None:
        module = opponent(case)
    else:
        module = ours(case)
        use_backend(module, contestant.backend)
    if contestant.without:
        switch_off(contestant.without, module)
    if contestant.channels_last:
        with_channels_last(module)
    # torchcaps.train takes the fused optimiser, a textbook reader the one that needs no word.
    fused = contestant.backend is not None
    return Subject(case, module, compiled=contestant.compiled, fused_adam=fused)


def loss(case: Case, outputs: Outputs, image: Tensor, target: Tensor) -> Tensor:
    scores, drawn = outputs
    scores = scores.float() if scores.dtype == torch.bfloat16 else scores
    if case.loss == "cross_entropy":
        total = nn.functional.cross_entropy(scores, target)
    elif case.loss == "spread":
        true = scores.gather(1, target.unsqueeze(1))
        others = torch.relu(0.2 - (true - scores)).square()
        total = others.scatter(1, target.unsqueeze(1), 0.0).sum(1).mean()
    else:
        present = nn.functional.one_hot(target, case.n_classes).to(scores.dtype)
        missing, surplus = torch.relu(0.9 - scores), torch.relu(scores - 0.1)
        total = (present * missing**2 + 0.5 * (1 - present) * surplus**2).sum(1).mean()
    if drawn is not None:
        total = total + 0.0005 * (drawn - image).square().flatten(1).sum(1).mean()
    return total


def ways(case: Case, contestant: Contestant) -> dict[str, bool]:
    """What each layer that has a choice takes for the whole batch, by its name. Opponents have
    none, and a step of theirs may take minutes."""
    taken: dict[str, bool] = {}
    if contestant.backend is None:
        return taken

    def noting(name: str, ask: Callable[..., bool]) -> Callable[..., bool]:
        def note(*given: Any) -> bool:
            taken[name] = ask(*given)
            return taken[name]

        return note

    subject = build(case, dataclasses.replace(contestant, compiled=False))
    for name, layer, question in with_a_choice(subject.module):
        setattr(layer, question, noting(name, getattr(layer, question)))
    subject.outputs()
    return taken


def take(subject: Subject, taken: dict[str, bool]) -> None:
    """Have the layers of a smaller case take the same."""
    for name, layer, question in with_a_choice(subject.module):
        if name in taken:
            setattr(layer, question, functools.partial(_answer, taken[name]))


def _answer(told: bool, *_: Any) -> bool:
    return told


def _networks() -> dict[str, Case]:
    """The networks, each at the size its public code is known at; trained with a batch of 128."""
    cifar, votes = (3, 32, 32), 36 * 72 * 16 + 16 * 144 * 16  # of EM routing, 14×14 maps
    em_work = 16.0 * (votes + 16 * 16 * 10) * (2 * 6 + 2)  # two M-steps and one E-step
    gamma_work = 2048 * 32 * (8 * 2 * 3 + 2 * 8) + 32 * 10 * (16 * 2 * 3 + 2 * 16)
    em_case: dict[str, Any] = {"book": "em", "preset": "matrix_capsnet", "image": (1, 32, 32)}
    em_case |= {"loss": "spread", "elementwise": em_work}
    rem, official = {"detach": True, "decoder": False}, {"official": True}
    window = {"iterations": 2, "variant": "paper", "compete": "window"}
    return {
        case.name: case
        for case in (
            Case("capsnet", "train", 128, "capsnet", "capsnet"),
            Case("rem_dr", "train", 128, "capsnet", "rem_dr", {}, rem),
            Case(
                "inverted-simple",
                "train",
                128,
                "inverted",
                "tsai_inverted_simple_c10",
                image=cifar,
                loss="cross_entropy",
            ),
            Case(
                "inverted-resnet",
                "train",
                128,
                "inverted",
                "tsai_inverted_resnet_c10",
                {},
                {"backbone": "resnet"},
                image=cifar,
                loss="cross_entropy",
            ),
            # The parents of one window compete, as in the public PyTorch code.
            Case("em", "train", 128, options=window, **em_case),
            # The preset's own reading: those of all windows do.
            Case("em-all", "train", 128, options={"iterations": 2}, opponent=official, **em_case),
            Case("gamma", "train", 128, "gamma", "rem_gamma", image=cifar, elementwise=gamma_work),
            Case(
                "deepcaps",
                "train",
                128,
                "deepcaps",
                "rem_deepcaps",
                {"detach": "votes"},
                {"detach": True},
                image=cifar,
            ),
            Case("efficient", "train", 128, "efficient", "efficient_capsnet"),
            Case("resnet18", "train", 128, "", "resnet18", image=cifar, loss="cross_entropy"),
        )
    }


def _all_cases() -> dict[str, Case]:
    standard = {"n_in": 1152, "d_in": 8, "n_out": 10, "d_out": 16, "iterations": 3}
    heavy = standard | {"n_in": 3872, "n_out": 196}
    cases = [
        Case(f"{name}-{kind}", "op", 128, "dynamic_op", opponent={"detach": detach}, size=size)
        for name, size in (("dynamic", standard), ("dynamic-heavy", heavy))
        for kind, detach in (("detach", True), ("full", False))
    ]
    cases += [
        dataclasses.replace(case, name=f"{case.name}-bf16", dtype="bfloat16") for case in cases[:2]
    ]
    networks = _networks()
    sizes = {"inverted-simple": (32, 128), "inverted-resnet": (32,)}
    for name, case in networks.items():
        for batch in sizes.get(name, (128,)):
            train = dataclasses.replace(case, name=f"{name}-train-{batch}", batch=batch)
            cases.append(train)
            if name in ("capsnet", "rem_dr"):
                half = f"{train.name}-bf16"
                cases.append(dataclasses.replace(train, name=half, dtype="bfloat16"))
    for name, case in networks.items():
        for batch in (1, 128):
            infer = dataclasses.replace(
                case, name=f"{name}-infer-{batch}", task="infer", batch=batch
            )
            cases.append(infer)
    return {case.name: case for case in cases}


CASES = _all_cases()

# The smallest images that pass through each network's convolutions, or nearly.
SMALL_SIDES = {"inverted": 16, "em": 18, "deepcaps": 16}


def tiny(case: Case) -> Case:
    """The same case a hundredth of its size, or near it: to see that it runs, not how fast."""
    if case.task == "op":
        size = case.size | {"n_in": case.size["n_in"] // 10}
        return dataclasses.replace(case, batch=max(1, case.batch // 10), size=size)
    side = SMALL_SIDES.get(case.book, 20)
    # Batch normalisation does not train on one value.
    batch = max(1 if case.task == "infer" else 2, case.batch // 100)
    image = (case.image[0], side, side)
    return dataclasses.replace(case, image=image, batch=batch, elementwise=0.0)
