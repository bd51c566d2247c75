"""Numbers for every op × backend × dtype: where the plain op is right, every form is.

A case is drawn from the options and tensors that forms are held to (contracts.forms), in any size
that the dtype holds. Three things must hold. Wherever the plain op in the same dtype is finite, the
form is. Where the exact result, that of the plain op in double precision, moves by some amount when
its arguments are rounded, the form is at most `TIMES` so far away, or as the plain op in the same
dtype. And nothing but a TorchcapsError is raised.
"""

import random
from typing import NamedTuple

import torch

from contracts.forms import BACKENDS, FORMS, ODD, SMALL, Case, leaves_of, results_of
from torchcaps import TorchcapsError

__all__ = ["Drawn", "check", "draw", "made"]

DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
# So many times the error of the plain op, or of arguments that are rounded; and the error that is
# none, in roundings of the dtype.
TIMES, ROUNDINGS = 50, 500
WAYS = ("fused", "native")
Tensors = dict[str, torch.Tensor]
# The exponents of ten that sizes have.
SIZES = {"float32": (-25, 18), "float16": (-6, 3), "bfloat16": (-25, 18)}


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
    return Case(
        algorithm,
        sharing,
        pose,
        window,
        tuple(may),
        options,
        batch=random.choice([(1,), (2,), (5,), (17,)]),
        n_in=n_in,
        n_out=random.choice([1, 2, 3, 10]),
        d_in=d_in,
        d_out=d_in if pose == "matrix" else random.randint(1, 9),
    )


def made(drawn: Drawn) -> Tensors:
    """The tensors of a case, rounded to its dtype."""
    torch.manual_seed(drawn.seed)
    dtype = DTYPES[drawn.dtype]
    most = torch.finfo(dtype).max
    return {
        name: (x * drawn.sizes.get(name, 1.0)).clamp(-most, most).to(dtype)
        for name, x in leaves_of(drawn.case).items()
    }


def check(drawn: Drawn) -> dict[str, str]:
    """What came of every backend: "right", "refused" by a sentence, or "beyond" what the dtype
    holds. What is wrong is an AssertionError."""
    leaves = made(drawn)
    ways = [way for way in WAYS if drawn.case.algorithm in BACKENDS[way].ROUTINGS]
    try:
        plain = results_of("plain", drawn.case, leaves)
    except TorchcapsError as refusal:
        return {way: _refused_too(way, drawn, leaves, str(refusal)) for way in ways}
    found = {way: results_of(way, drawn.case, leaves) for way in ways}
    return {way: _judge(way, drawn, leaves, plain, each) for way, each in found.items()}


def _judge(way: str, drawn: Drawn, leaves: Tensors, plain: Tensors, found: Tensors) -> str:
    assert list(found) == list(plain), way
    for name, x in plain.items():
        assert (found[name].shape, found[name].dtype) == (x.shape, x.dtype), (way, name)
    if not all(bool(x.isfinite().all()) for x in plain.values()):
        return "beyond"
    for name, x in found.items():
        assert bool(x.isfinite().all()), f"{way}: {name} is not finite where the plain op's is"
    rounding = torch.finfo(DTYPES[drawn.dtype]).eps
    grounds = {name: _ground(name, leaves, plain) for name in plain}
    least = ROUNDINGS * rounding
    if all(_off(found[name], x, grounds[name]) <= least for name, x in plain.items()):
        return "right"
    wide = {name: x.double() for name, x in leaves.items()}
    exact = results_of("plain", drawn.case, wide)
    if not all(bool(x.isfinite().all()) for x in exact.values()):
        return "beyond"
    others = [plain, results_of("plain", drawn.case, {n: x.float() for n, x in leaves.items()})]
    others += [results_of("plain", drawn.case, _rounded(wide, drawn, n)) for n in range(3)]
    for name, x in exact.items():
        mine, *its = (_off(each[name], x, grounds[name]) for each in (found, *others))
        allowed = max(TIMES * max(its), least)
        assert mine <= allowed, f"{way}: {name} is off by {mine:.2g}, others by {max(its):.2g}"
    return "right"


def _off(found: torch.Tensor, x: torch.Tensor, ground: float) -> float:
    """How far, as a part of the largest number."""
    if not x.numel():
        return 0.0
    return float((found.double() - x.double()).abs().max()) / max(float(x.abs().max()), ground)


def _ground(name: str, leaves: Tensors, plain: Tensors) -> float:
    """What a gradient of no account is measured by: a tenth of one that would move the values by
    their own size when its tensor moves by its own."""
    values = [float(x.abs().max()) for key, x in plain.items() if x.numel() and key[:3] != "of "]
    seen = 0.1 * max(values, default=0.0)
    if name.startswith("of "):
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


def _rounded(wide: Tensors, drawn: Drawn, turn: int) -> Tensors:
    """The tensors, each number moved by up to a rounding of the dtype."""
    generator = torch.Generator().manual_seed(drawn.seed + turn)
    rounding = torch.finfo(DTYPES[drawn.dtype]).eps

    def moved(x: torch.Tensor) -> torch.Tensor:
        noise = torch.rand(x.shape, generator=generator, dtype=x.dtype)
        return x * (1 + rounding * (2 * noise - 1))

    return {name: moved(x) for name, x in wide.items()}
