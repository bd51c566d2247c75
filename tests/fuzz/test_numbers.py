"""What drawing found once stays right: the cases of kept.toml; `make fuzz` draws on."""

import random
import tomllib
from pathlib import Path

import pytest
import torch

from contracts.forms import FORMS, ODD, SMALL, Case, results_of, route
from fuzz.numbers import Drawn, Judge, Off, check, draw, made, ways_of
from torchcaps.ops import dynamic_routing, materialise, native
from torchcaps.types import Capsules, VoteMap

WINDOWS = {"ODD": ODD, "SMALL": SMALL}


def drawn_of(case, dtype, sizes, seed, shape=(), options=()):
    """A case as kept.toml has it."""
    own = case | dict(shape)
    own = {name: tuple(x) if isinstance(x, list) else x for name, x in own.items()}
    window = WINDOWS.get(own.pop("window", ""))
    return Drawn(Case(**own, window=window, options=dict(options)), dtype, sizes, seed)


CASES = tomllib.loads(Path(__file__).with_name("kept.toml").read_text(encoding="utf-8"))
KEPT, OVERFLOWING, UNSTEADY, STEEP = (
    {name: drawn_of(**each) for name, each in CASES[group].items()}
    for group in ("kept", "overflowing", "unsteady", "steep")
)


@pytest.mark.parametrize("name", KEPT)
def test_a_kept_case(name):
    assert set(check(KEPT[name]).values()) == {"right"}


@pytest.mark.parametrize("name", UNSTEADY | STEEP)
def test_a_kept_case_that_no_rounding_leaves_alone(name):
    assert set(check((UNSTEADY | STEEP)[name]).values()) <= {"right", "unsteady"}


@pytest.mark.parametrize("name", OVERFLOWING)
def test_what_overflows_may_be_infinite(name):
    assert set(check(OVERFLOWING[name]).values()) == {"beyond"}


@pytest.mark.parametrize(
    ("name", "way"),
    [(name, way) for name, each in OVERFLOWING.items() for way in ways_of(each.case.algorithm)],
)
def test_what_overflows_is_infinite_and_not_nan(name, way):
    found = results_of(way, OVERFLOWING[name].case, made(OVERFLOWING[name]))
    assert found["of weight"].isinf().any()
    assert not any(x.isnan().any() for x in found.values())


@pytest.mark.parametrize("name", OVERFLOWING)
@pytest.mark.parametrize("bad", [torch.inf, torch.nan])
def test_what_overflows_excuses_no_other_number(name, bad):
    judge = Judge(OVERFLOWING[name], made(OVERFLOWING[name]))
    everywhere = torch.full_like(judge.plain["of weight"], bad)
    with pytest.raises(AssertionError, match="of weight is not finite where the plain op's is"):
        judge("fused", judge.plain | {"of weight": everywhere})


@pytest.mark.parametrize("name", UNSTEADY)
@pytest.mark.parametrize("part", ["pose", "coupling 1", "of weight"])
def test_what_is_unsteady_excuses_no_nan(name, part):
    judge = Judge(UNSTEADY[name], made(UNSTEADY[name]))
    found = judge.plain | {part: torch.full_like(judge.plain[part], torch.nan)}
    with pytest.raises(AssertionError, match=f"{part} is not finite where the plain op's is"):
        judge("fused", found)


@pytest.mark.parametrize("name", UNSTEADY)
def test_what_is_unsteady_excuses_no_value_that_is_not(name):
    judge = Judge(UNSTEADY[name], made(UNSTEADY[name]))
    # Nothing was compared before them.
    found = judge.plain | {"coupling 0": 1.5 * judge.plain["coupling 0"]}
    with pytest.raises(AssertionError, match="coupling 0 is off by"):
        judge("fused", found)


@pytest.mark.parametrize("algorithm", FORMS)
def test_a_form_that_is_off_is_wrong(algorithm):
    drawn = Drawn(Case(algorithm), "float32", {}, 1)
    judge = Judge(drawn, made(drawn))
    found = {name: 1.001 * x for name, x in judge.plain.items()}
    with pytest.raises(AssertionError, match="is off by"):
        judge("fused", found)


@pytest.mark.parametrize("algorithm", FORMS)
def test_a_form_in_double_that_rounds_to_single_is_wrong(algorithm):
    drawn = Drawn(Case(algorithm), "float64", {}, 1)
    assert set(check(drawn).values()) == {"right"}
    judge = Judge(drawn, made(drawn))
    with pytest.raises(Off, match="is off by"):
        judge("fused", {name: x.float().double() for name, x in judge.plain.items()})


def test_cases_in_every_precision_are_drawn():
    draws = random.Random(0)
    drawn = [draw(draws) for _ in range(100)]
    assert {each.dtype for each in drawn} == {"float64", "float32", "float16", "bfloat16"}


def test_now_and_then_capsules_are_many():
    draws = random.Random(0)
    cases = [draw(draws).case for _ in range(400)]
    assert max(case.n_out for case in cases) == max(case.n_in for case in cases) == 3000
    assert max(case.n_in * case.n_out * case.batch[0] for case in cases) <= 36_000


def test_half_precision_rounds_the_sum_of_its_gradients_once():
    drawn = KEPT["em in bfloat16"]
    leaves = made(drawn)
    narrow, wide = (
        results_of("fused", drawn.case, {name: x.to(dtype) for name, x in leaves.items()})
        for dtype in (torch.bfloat16, torch.float32)
    )
    for name in ("of pose", "of weight"):
        error = (narrow[name].float() - wide[name]).abs().max() / wide[name].abs().max()
        assert error < 0.01, name


# The first iteration, a convolution, gives one part of a gradient; lengths of votes, and what each
# window owes to the length of a child, give others.
GIVEN = ("coordinates",)
IN_PARTS = [
    Case(name, "none", "matrix", SMALL, GIVEN, n_out=2) for name in ("self_attention", "inverted")
]
IN_PARTS += [
    Case("distance", "none", "matrix", SMALL, GIVEN, {"iterations": 1, "detach": detach}, n_out=2)
    for detach in ("none", "iterations")
]


@pytest.mark.parametrize(
    ("case", "way"),
    [(case, way) for case in IN_PARTS for way in ways_of(case.algorithm)],
    ids=str,
)
def test_half_precision_adds_all_parts_of_a_gradient_before_it_rounds(case, way):
    leaves = made(Drawn(case, "float16", {"pose": 10.0}, 3))

    def gradients(dtype):
        tensors = {name: x.to(dtype, copy=True).requires_grad_() for name, x in leaves.items()}
        route(way, case, tensors).parents.pose.float().sum().backward()
        return {name: x.grad for name, x in tensors.items()}

    narrow, wide = gradients(torch.float16), gradients(torch.float32)
    for name, x in narrow.items():
        torch.testing.assert_close(x, wide[name].half(), rtol=0, atol=0, equal_nan=False)


@pytest.mark.parametrize("behind", [80.0, 90.0, 95.0, 100.0])
def test_couplings_without_full_precision_have_a_direction(behind):
    """The native exponential was zero where float32 has fewer digits; then the bias was too."""
    vote_map = VoteMap(Capsules(torch.ones(1, 1, 1)), torch.tensor([23.0, 1.0]).view(1, 2, 1, 1))
    options = {
        "iterations": 1,
        "bias": torch.tensor([[0.1], [0.5]]),
        "prior": torch.tensor([[0.0, -behind]]),
        "odd_bias": True,
    }
    plain = dynamic_routing(materialise(vote_map), **options).parents.pose
    found = native.dynamic_routing(vote_map, **options).parents.pose
    torch.testing.assert_close(found, plain)
    assert found[..., 1, 0].item() == pytest.approx(0.2)
