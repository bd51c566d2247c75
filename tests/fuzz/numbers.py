"""Numbers for every op × backend × dtype: where the plain op is right, every form is.

A case is drawn from the options and tensors that forms are held to (contracts.forms), in any size
that the dtype holds. Three things must hold. Wherever the plain op in the same dtype is finite, the
form is, but for a number that is infinite in that dtype when it is exact, or nearly so. Where the
exact result, that of the plain op in double precision, moves by some amount when its arguments are
rounded, the form is at most `TIMES` so far away, or as the plain op in the same dtype. And nothing
but a TorchcapsError is raised. In double precision the plain op is the exact result itself; how far
its own roundings move it is told by those of single precision, which are as many, and larger; where
these leave a value with few digits, it is unsteady in double.

"Beyond" is a case that the dtype does not hold: a number of the exact result overflows in it, or
the plain op is not finite, or small numbers that are zero in single precision leave the plain op
with a value that has no right digit; then its gradients are those of other numbers, and all other
values must be right.

Rounded tensors do not move every exact result that rounding moves: parents whose votes are equal
stay equal, however steep the softmax between them is. What only this explains is counted apart, as
"unsteady": there the exact result moves as far when each vote is rounded by itself, or its gradient
alone, which is what the plain op does when it stores them, in distance routing once more when it
shortens them, each number of a parent between two iterations, and the logit of its activation, in
distance routing the last couplings; or it moves so far that
a value has no right digit, which excuses that value and the gradients; or a gradient is no farther
off than rounding moves the couplings, which a form makes once more on its way back. No form in
float32 can be right there but by luck, as a parent is float32 numbers when the children are next
compared with it.
"""

import random
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from typing import Any, NamedTuple
from unittest import mock

import torch

from contracts import forms
from contracts.forms import BACKENDS, FORMS, ODD, SMALL, Case, leaves_of, results_of
from torchcaps import TorchcapsError
from torchcaps.ops.routing import distance, dynamic, em, inverted
from torchcaps.types import Step

DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
DTYPES["float64"] = torch.float64
# So many times the error of the plain op, or of arguments that are rounded; the error that is none,
# in roundings of float32, in which forms compute, and of the dtype, to which they round once; and
# that of a value without a right digit.
TIMES, ROUNDINGS, LAST_ROUNDINGS, NO_DIGIT = 50, 500, 8, 0.1
# The error that is none in double precision, as in all other tests, and that of a value in single
# precision beyond which it says nothing of double.
IN_DOUBLE, FEW = 1e-10, 1e-3
# How often tensors are rounded, and steps, which is dear and seldom asked: one rounding of many
# turns a steep softmax over.
TURNS, TURNS_OF_STEPS = 3, 20
# Which functions of the plain op make what it stores: votes in the dtype of the case, and in
# float32 shortened votes and parents, with the logits of their activations.
OF_VOTES = [(forms, "materialise")]
OF_ROUTING = [(distance, "no_longer_than"), (distance, "g"), (distance, "coupled_or_even")]
OF_ROUTING += [(dynamic, "g")]
OF_ROUTING += [(em, "_mean"), (em, "logit_of"), (inverted, "inverted_step")]
Tensors = dict[str, torch.Tensor]
# The exponents of ten that sizes have.
SIZES = {"float32": (-25, 18), "float16": (-6, 3), "bfloat16": (-25, 18), "float64": (-25, 18)}


class Drawn(NamedTuple):
    """One case: `sizes` has what each tensor is multiplied by."""

    case: Case
    dtype: str
    sizes: dict[str, float]
    seed: int


def draw(random: random.Random) -> Drawn:
    """Half of all cases are near one, where forms should agree to the last digits."""
    case, dtype = _case(random, random.choice(list(FORMS))), random.choice(list(DTYPES))
    lowest, highest = SIZES[dtype]
    sizes = {}
    for name in leaves_of(case):
        if random.random() < 0.2:
            sizes[name] = random.choice([0.0, 10.0 ** random.uniform(lowest, highest)])
        elif random.random() < 0.3:
            sizes[name] = 10.0 ** random.uniform(-3, 3)
    return Drawn(case, dtype, sizes, random.randrange(2**31))


def _case(random: random.Random, algorithm: str) -> Case:
    form = FORMS[algorithm]
    options = dict(random.choice(form.options))
    if random.random() < 0.3 and "squash" not in options and algorithm in ("dynamic", "distance"):
        options["squash"] = random.choice(["hinton", "exp", "none"])
    pose = random.choice(["vector", "matrix"])
    d_in = random.choice([1, 4, 9, 16]) if pose == "matrix" else random.randint(1, 9)
    may = [name for name in ("vote_bias", "coordinates", *form.may) if random.random() < 0.3]
    if ("norm_weight" in may) != ("norm_bias" in may):
        may = [name for name in may if not name.startswith("norm_")]
    window = None
    if options.get("compete") == "all" or random.random() < 0.2:
        window = random.choice([ODD, SMALL])
    sharing = random.choice(["none", "type", "all"])
    n_in = random.choice([1, 2, 3, 6, 17, 40])
    if sharing == "type" and window is None:
        n_in += n_in % 2
    batch, n_out = random.choice([(1,), (2,), (5,), (17,)]), random.choice([1, 2, 3, 10])
    if window is None and random.random() < 0.05:
        # Sums of thousands lose what those of ten do not; of the other capsules there are few.
        many, batch = random.choice([100, 300, 1000, 3000]), (2,)
        n_in, n_out = random.choice(
            [(many, random.choice([1, 2, 3])), (random.choice([2, 6]), many)]
        )
    return Case(
        algorithm,
        sharing,
        pose,
        window,
        tuple(may),
        options,
        batch=batch,
        n_in=n_in,
        n_out=n_out,
        d_in=d_in,
        d_out=d_in if pose == "matrix" else random.randint(1, 9),
    )


def made(drawn: Drawn) -> Tensors:
    """The tensors of a case, rounded to its dtype."""
    # Not torch.manual_seed, which asks for the stack of the caller in as long as a routing takes.
    torch.default_generator.manual_seed(drawn.seed)
    dtype = DTYPES[drawn.dtype]
    most = torch.finfo(dtype).max
    return {
        name: (x * drawn.sizes.get(name, 1.0)).clamp(-most, most).to(dtype)
        for name, x in leaves_of(drawn.case).items()
    }


def ways_of(algorithm: str) -> list[str]:
    """The backends that have a form of it."""
    return [way for way, backend in BACKENDS.items() if algorithm in backend.ROUTINGS]


def check(drawn: Drawn) -> dict[str, str]:
    """What came of every backend: "right", "refused" by a sentence, "beyond" or "unsteady". What is
    wrong is an AssertionError."""
    leaves = made(drawn)
    ways = ways_of(drawn.case.algorithm)
    try:
        judge = Judge(drawn, leaves)
    except TorchcapsError as refusal:
        return {way: _refused_too(way, drawn, leaves, str(refusal)) for way in ways}
    return {way: judge(way, results_of(way, drawn.case, leaves)) for way in ways}


class Off(AssertionError):
    """A number that is finite, and farther off than rounding explains."""


class Judge:
    """Of what forms make of a case."""

    def __init__(self, drawn: Drawn, leaves: Tensors):
        self.drawn, self.leaves = drawn, leaves
        self.plain = results_of("plain", drawn.case, leaves)
        self.grounds = {name: _ground(name, leaves, self.plain) for name in self.plain}
        dtype = DTYPES[drawn.dtype]
        # Forms compute in single precision, but in double where that is given.
        self.inner = dtype if dtype == torch.float64 else torch.float32
        self.least = IN_DOUBLE
        if self.inner != torch.float64:
            self.least = ROUNDINGS * torch.finfo(torch.float32).eps
        if dtype != self.inner:
            self.least += LAST_ROUNDINGS * torch.finfo(dtype).eps

    def __call__(self, way: str, found: Tensors) -> str:
        assert list(found) == list(self.plain), way
        for name, x in self.plain.items():
            assert (found[name].shape, found[name].dtype) == (x.shape, x.dtype), (way, name)
        if not _is_finite(self.plain):
            return "beyond"
        is_finite = _is_finite(found)
        if is_finite and all(off <= self.least for off in self._off(found, self.plain)):
            return "right"
        dtype, wide = DTYPES[self.drawn.dtype], self._in(torch.float64)
        exact = results_of("plain", self.drawn.case, wide)
        held = {name: x.to(dtype) for name, x in exact.items()}
        single = results_of("plain", self.drawn.case, self._in(torch.float32))
        for name, x in found.items():
            # Forms are off by a little, and may be by TIMES what the plain op is in single
            # precision: so some overflow where the exact number does not.
            off = TIMES * (single[name].double() - exact[name]).abs()
            reach = (1 + NO_DIGIT) * exact[name].abs() + off
            may_be = x.isfinite() | reach.to(dtype).isinf()
            assert may_be.all(), f"{way}: {name} is not finite where the plain op's is"
        if not _is_finite(held):
            return "beyond"
        narrow = single if self.inner == torch.float32 else _made_smaller(single, exact)
        others = [self.plain, narrow, *self._of_rounded_leaves(wide)]
        if not (wrong := self._wrong(found, exact, others)):
            return "right"
        # An error as large as the value does not tell how large it is in double.
        few = (n for n, off in zip(exact, self._off(single, exact), strict=True) if not off <= FEW)
        lost = self._lost(exact, [single], FEW).union(few)
        if self.inner == torch.float64 and not self._wrong(found, exact, others, lost):
            return "unsteady"
        if not self._wrong(found, exact, others, self._lost(exact, [narrow])):
            return "beyond"
        shaken = list(self._of_rounded_steps(wide))
        if not self._wrong(found, exact, [*others, *shaken], self._lost(exact, shaken)):
            return "unsteady"
        moved = max(self._moved(other, exact) for other in [narrow, *others[2:], *shaken])
        if not self._wrong(found, exact, others, for_gradients=moved):
            return "unsteady"
        raise Off(f"{way}: {wrong}")

    def _in(self, dtype: torch.dtype) -> Tensors:
        return {name: x.to(dtype) for name, x in self.leaves.items()}

    def _of_rounded_leaves(self, wide: Tensors) -> Iterator[Tensors]:
        for turn in range(TURNS):
            moved = _rounded(self.drawn, turn)
            yield results_of("plain", self.drawn.case, {n: moved(x) for n, x in wide.items()})

    def _of_rounded_steps(self, wide: Tensors) -> Iterator[Tensors]:
        for turn in range(TURNS_OF_STEPS):
            of_votes = _rounded(self.drawn, turn)
            if turn % 2:
                of_votes = _in_its_gradient(of_votes)
            inner = "float64" if self.drawn.dtype == "float64" else "float32"
            of_routing = _rounded(self.drawn._replace(dtype=inner), turn)
            with ExitStack() as stack:
                for moved, makers in ((of_votes, OF_VOTES), (of_routing, OF_ROUTING)):
                    for module, name in makers:
                        stack.enter_context(_with_its_result(module, name, moved))
                yield results_of("plain", self.drawn.case, wide)

    def _moved(self, other: Tensors, exact: Tensors) -> float:
        """How far the couplings are."""
        found = zip(exact, self._off(other, exact), strict=True)
        return max((off for name, off in found if name.startswith("coupling")), default=0.0)

    def _wrong(
        self,
        found: Tensors,
        exact: Tensors,
        others: list[Tensors],
        excused: frozenset[str] = frozenset(),
        for_gradients: float = 0.0,
    ) -> str:
        """What is, in words, or nothing."""
        theirs = zip(*(self._off(other, exact) for other in others), strict=True)
        for name, our_error, its in zip(exact, self._off(found, exact), theirs, strict=True):
            least = max(self.least, for_gradients if name.startswith("of ") else 0.0)
            if name not in excused and not our_error <= max(TIMES * max(its), least):
                return f"{name} is off by {our_error:.2g}, others by {max(its):.2g}"
        return ""

    def _lost(
        self, exact: Tensors, shaken: list[Tensors], least: float = NO_DIGIT
    ) -> frozenset[str]:
        """The values without a right digit, as rounding alone changes them altogether, and then all
        gradients, which are those of other numbers."""
        values = {
            name
            for each in shaken
            for name, off in zip(exact, self._off(each, exact), strict=True)
            if not name.startswith("of ") and not off <= least
        }
        return frozenset(values | {name for name in exact if values and name.startswith("of ")})

    def _off(self, found: Tensors, exact: Tensors) -> Iterator[float]:
        """How far each is, as a part of the largest number."""
        for name, x in exact.items():
            if not x.numel():
                yield 0.0
                continue
            size = max(float(x.abs().max()), self.grounds[name])
            yield float((found[name].double() - x.double()).abs().max()) / size


def _made_smaller(single: Tensors, exact: Tensors) -> Tensors:
    """What is off in single precision, as far off as it would be in double."""
    smaller = torch.finfo(torch.float64).eps / torch.finfo(torch.float32).eps
    return {n: x + smaller * (single[n].double() - x) for n, x in exact.items()}


def _is_finite(found: Tensors) -> bool:
    return all(bool(x.isfinite().all()) for x in found.values())


def _ground(name: str, leaves: Tensors, plain: Tensors) -> float:
    """What a number of no account is measured by: of values a tenth of the largest of their kind;
    of a gradient a tenth of one that would move the values by their own size when its tensor moves
    by its own."""
    kind = "" if name.startswith("of ") else name.split()[0]
    values = [
        float(x.abs().max())
        for key, x in plain.items()
        if x.numel() and key.startswith(kind) and not key.startswith("of ")
    ]
    seen = 0.1 * max(values, default=0.0)
    if not kind:
        leaf = leaves[name[3:]]
        seen /= (float(leaf.abs().max()) if leaf.numel() else 0.0) or 1.0
    return max(seen, 1e-30)


def _refused_too(way: str, drawn: Drawn, leaves: Tensors, refusal: str) -> str:
    said = None
    try:
        results_of(way, drawn.case, leaves)
    except TorchcapsError as error:
        said = str(error)
    assert said == refusal, f"{way}: the plain op refuses this"
    return "refused"


def _rounded(drawn: Drawn, turn: int) -> Callable[[torch.Tensor], torch.Tensor]:
    """Moves each number by up to a rounding of the dtype."""
    generator = torch.Generator().manual_seed(drawn.seed + turn)
    rounding = torch.finfo(DTYPES[drawn.dtype]).eps

    def moved(x: torch.Tensor) -> torch.Tensor:
        noise = torch.rand(x.shape, generator=generator, dtype=x.dtype)
        return x * (1 + rounding * (2 * noise - 1))

    return moved


def _in_its_gradient(moved: Callable[[torch.Tensor], torch.Tensor]) -> Callable:
    """Moves the gradient of each number as `moved` does, and not the number."""

    def back(x: torch.Tensor) -> torch.Tensor:
        by = moved(x) - x
        return x + (by - by.detach())

    return back


def _with_its_result(module: Any, name: str, moved: Callable) -> AbstractContextManager:
    """A function that gives votes, parents, or a step with parents has its result moved."""
    make = getattr(module, name)

    def made(*arguments: Any, **options: Any) -> torch.Tensor | Step:
        found = make(*arguments, **options)
        if not isinstance(found, Step):
            return moved(found)
        return found._replace(parents=found.parents._replace(pose=moved(found.parents.pose)))

    return mock.patch.object(module, name, made)
