"""What a contestant runs in a case.

Opponents and torchcaps are built as modules of one shape, forward(image, target) -> (scores,
drawing), so that loss, optimiser and measurement are the same lines for all.
"""

import dataclasses
import functools
import importlib
from collections.abc import Callable
from typing import Any

import torch
from cases import Case
from contestants import BACKENDS, Contestant
from parts import switch_off, with_a_choice
from textbook import capsnet, deepcaps, dynamic_op, efficient, em, gamma, inverted
from torch import Tensor, nn

import torchcaps
from torchcaps.layers import DenseCapsules, keep_memory, make_routing, with_channels_last
from torchcaps.layers import use_backend as choose_backend
from torchcaps.types import Capsules

Outputs = tuple[Tensor, Tensor | None]


def use_backend(module: nn.Module, backend: str) -> None:
    """The one place where our contestants choose how to compute: every capsule layer is set here,
    before anything runs. "native" is what users get: a fused form where there is one and it pays,
    by a kernel where there is one. "fused" is the same where no kernel runs, see `environment`."""
    if backend not in BACKENDS:
        raise ValueError(f"no capsule layer of {type(module).__name__} knows backend {backend!r}.")
    choose_backend(module, "plain" if backend == "plain" else "auto")


class OurOp(nn.Module):
    """Our layer on the tensors of the opponent's op, which routes dynamically; `routing` names
    another, without an opponent."""

    def __init__(self, theirs: dynamic_op.DynamicOp, routing: str = "dynamic"):
        super().__init__()
        self.poses = theirs.poses
        n_in, n_out, d_out, d_in = theirs.weight.shape
        detach = "votes" if theirs.detach else "none"
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


# An opponent, and what it calls the tensors of the torchcaps network: theirs, then its own.
BOOKS: dict[str, tuple[type[nn.Module], dict[str, str]]] = {
    "dynamic_op": (dynamic_op.DynamicOp, {"layer.": ""}),
    "capsnet": (capsnet.CapsNet, capsnet.NAMES),
    "inverted": (inverted.InvertedCapsNet, inverted.NAMES),
    "em": (em.MatrixCapsNet, em.NAMES),
    "gamma": (gamma.GammaCapsNet, gamma.NAMES),
    "deepcaps": (deepcaps.DeepCaps, deepcaps.NAMES),
    "efficient": (efficient.EfficientCapsNet, efficient.NAMES),
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
        module, names = module.network, BOOKS[module.book][1]
    else:
        names = BOOKS["dynamic_op"][1] if isinstance(module, OurOp) else {}
    tensors = {}
    for name, tensor in (*module.named_parameters(), *module.named_buffers()):
        for theirs, own in names.items():
            name = name.replace(theirs, own)
        tensors[name] = tensor
    return tensors


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
    if contestant.keeps_memory or (contestant.as_fit and _fit_keeps_memory(case)):
        keep_memory()
    if contestant.backend is None:
        module = opponent(case)
    else:
        module = ours(case)
        use_backend(module, contestant.backend)
    if contestant.without:
        switch_off(contestant.without, module)
    if contestant.channels_last or (contestant.as_fit and _fit_puts_channels_last(case)):
        with_channels_last(module)
    # torchcaps.train takes the fused optimiser, a textbook reader the one that needs no word.
    fused = contestant.backend is not None
    return Subject(case, module, compiled=contestant.compiled, fused_adam=fused)


def _fit_keeps_memory(case: Case) -> bool:
    """Whether this torchcaps keeps memory by itself: since it can say whether it could."""
    return case.task != "op" and hasattr(torchcaps.layers, "can_keep_memory")


def _fit_puts_channels_last(case: Case) -> bool:
    """What this torchcaps' own table says of the network, if there is one."""
    try:
        layout = importlib.import_module("torchcaps.models.layout")
    except ModuleNotFoundError:
        return False
    answer: bool = layout.is_faster_with_channels_last(case.preset, case.dtype)
    return case.task != "op" and answer


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


def _answer(choice: bool, *_: Any) -> bool:
    return choice
