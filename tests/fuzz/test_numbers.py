"""What drawing found once, each as a case of its own; `make fuzz` draws on."""

import random

import pytest
import torch

from contracts.forms import FORMS, ODD, SMALL, Case, results_of, route
from fuzz.numbers import Drawn, Judge, Off, check, draw, made, ways_of
from torchcaps.ops import dynamic_routing, materialise, native
from torchcaps.types import Capsules, VoteMap

KEPT = {
    # Gradients of two steps that nearly cancel, each rounded to half precision: NaN, and 97 % off.
    "em in float16": Drawn(
        Case(
            "em",
            "type",
            "matrix",
            given=("vote_bias",),
            options={"variant": "gritzman", "iterations": 5},
            batch=(1,),
            n_in=2,
            n_out=10,
            d_in=16,
            d_out=16,
        ),
        "float16",
        {"pose": 18.0, "weight": 2.5},
        180670229,
    ),
    "em in bfloat16": Drawn(
        Case(
            "em",
            "all",
            "matrix",
            options={"variant": "gritzman", "lambda_": 2.0},
            batch=(1,),
            n_in=2,
            n_out=2,
            d_in=16,
            d_out=16,
        ),
        "bfloat16",
        {"pose": 24.0, "weight": 9.3},
        1464896569,
    ),
    # Squares that a native kernel could not hold, and third powers of lengths in a gradient.
    "distance of long votes": Drawn(
        Case(
            "distance",
            "all",
            "matrix",
            given=("bias",),
            options={"scale": "sample", "detach": "votes", "iterations": 2, "squash": "exp"},
            batch=(5,),
            n_in=3,
            n_out=1,
            d_in=9,
            d_out=9,
        ),
        "float32",
        {"pose": 26.0, "weight": 1.1e17, "length": 0.024, "bias": 22.0},
        1272665792,
    ),
    "dynamic of long votes": Drawn(
        Case(
            "dynamic",
            "all",
            given=("prior",),
            options={"iterations": 3, "squash": "exp"},
            batch=(1,),
            n_out=10,
            d_in=2,
        ),
        "float32",
        {"weight": 9.6e15, "prior": 4.7e-10},
        440029009,
    ),
    "dynamic of long coordinates": Drawn(
        Case(
            "dynamic",
            "none",
            "matrix",
            given=("coordinates", "bias", "prior"),
            options={"iterations": 1, "detach": "coupling"},
            n_in=1,
            n_out=10,
            d_in=9,
            d_out=9,
        ),
        "float32",
        {"pose": 6.2e14},
        625469675,
    ),
    # A mean of gradients that was found in another way than they: one child that has all the weight
    # was left with a rounding of large numbers.
    "em of one child with all the weight": Drawn(
        Case(
            "em",
            "type",
            "matrix",
            given=("coordinates",),
            options={"variant": "official", "iterations": 5},
            n_in=2,
            d_in=9,
            d_out=9,
        ),
        "float32",
        {"beta_a": 107726872519.71165, "beta_u": 258.3494866023054},
        1713492512,
    ),
    # The slope of a squash as the difference of two numbers: nothing is left of it where sums are
    # long, and third powers of lengths overflowed.
    "dynamic of one number by weights of zero": Drawn(
        Case(
            "dynamic",
            "none",
            "matrix",
            given=("vote_bias",),
            options={"iterations": 3, "detach": "votes", "squash": "exp"},
            n_out=1,
            d_in=1,
            d_out=1,
        ),
        "float32",
        {"pose": 238408.13330060826, "weight": 0.0},
        1226967773,
    ),
    "dynamic of one number and a long bias": Drawn(
        Case(
            "dynamic",
            "type",
            "matrix",
            given=("bias",),
            options={"iterations": 4, "detach": "none"},
            n_in=4,
            n_out=10,
            d_in=1,
            d_out=1,
        ),
        "float32",
        {"pose": 0.0, "weight": 0.08742753600941568, "bias": 5.867144118891771e17},
        1989511123,
    ),
    "distance of a long bias": Drawn(
        Case(
            "distance",
            "type",
            "matrix",
            given=("bias",),
            options={"scale": "sample", "detach": "none", "iterations": 2},
            batch=(17,),
            n_in=2,
            d_in=9,
            d_out=9,
        ),
        "float32",
        {"weight": 2.5860480619142788e-08, "length": 5.252014823083517e-13, "bias": 6.441e16},
        1791726716,
    ),
    # Votes whose squares are lost: each form found another length for them.
    "distance of votes shorter than 1e-18": Drawn(
        Case(
            "distance",
            "none",
            "vector",
            given=("bias",),
            options={"scale": "batch", "detach": "none", "iterations": 3, "squash": "hinton"},
            batch=(17,),
            n_in=2,
            n_out=2,
            d_in=3,
            d_out=8,
        ),
        "bfloat16",
        {"weight": 1.3387748396579643e-21, "length": 0.0},
        447581473,
    ),
    "distance of votes of one number shorter than 1e-18": Drawn(
        Case(
            "distance",
            "none",
            "vector",
            given=("bias",),
            options={"scale": "sample", "detach": "none", "iterations": 2},
            batch=(17,),
            n_in=1,
            d_in=1,
            d_out=1,
        ),
        "float32",
        {"pose": 1.333139524673425e-24, "weight": 0.015041045814428645, "length": 0.0},
        409000567,
    ),
    "distance of given scale and votes shorter than 1e-18": Drawn(
        Case(
            "distance",
            "type",
            "matrix",
            options={"scale": "given", "detach": "votes", "iterations": 3, "squash": "exp"},
            batch=(17,),
            n_in=18,
            d_in=1,
            d_out=1,
        ),
        "float32",
        {"weight": 2.4668062028821996e-24, "length": 0.0},
        1630977362,
    ),
    # Votes whose squares overflow: they were shortened to nothing, those of more than one number
    # by the plain op too.
    "distance of votes of one number longer than 1e19": Drawn(
        Case(
            "distance",
            "all",
            given=("bias",),
            options={"scale": "given", "detach": "votes", "iterations": 2},
            batch=(17,),
            n_in=3,
            n_out=2,
            d_in=5,
            d_out=1,
        ),
        "float32",
        {"pose": 2.39678353201815e16, "weight": 512.5585542990436, "bias": 7.01656609230565e-18},
        526267444,
    ),
    "distance of votes of three numbers longer than 1e19": Drawn(
        Case(
            "distance",
            "all",
            given=("bias",),
            options={"scale": "given", "detach": "votes", "iterations": 2},
            batch=(17,),
            n_in=3,
            n_out=2,
            d_in=5,
            d_out=3,
        ),
        "float32",
        {"pose": 2.4e16, "weight": 512.0},
        526267444,
    ),
    # The squash of one number that is long: rounding was left of its gradient.
    "self-attention to parents of one number": Drawn(
        Case(
            "self_attention",
            "type",
            "matrix",
            given=("vote_bias", "prior"),
            options={"squash": "exp"},
            batch=(5,),
            n_in=4,
            d_in=1,
            d_out=1,
        ),
        "float32",
        {"weight": 45002.29087373274},
        661649944,
    ),
    # A vote that meets its parent: two long poses were taken from each other where nothing is left.
    "distance of one child to one parent": Drawn(
        Case(
            "distance",
            "none",
            "vector",
            options={"scale": "sample", "detach": "none", "iterations": 3, "squash": "none"},
            batch=(5,),
            n_in=1,
            n_out=1,
            d_in=3,
            d_out=3,
        ),
        "float32",
        {"weight": 0.5218241776066728, "length": 12.860749516784708},
        1511245207,
    ),
    # Across a vote of one number nothing lies: rounding alone was left of a small weight.
    "distance of votes of one number that are shortened": Drawn(
        Case(
            "distance",
            "type",
            "matrix",
            options={"iterations": 3, "squash": "none", "p": 0.5},
            batch=(1,),
            n_in=2,
            n_out=10,
            d_in=1,
            d_out=1,
        ),
        "float32",
        {"weight": 668.14061275109, "length": 0.0010593088891980042},
        1028887356,
    ),
    # One parent has nearly all of a child: its distance less the mean distance was rounding.
    "distance of a scale that is short beside the distances": Drawn(
        Case(
            "distance",
            "all",
            "matrix",
            given=("bias",),
            options={"scale": "given", "detach": "votes", "iterations": 2},
            batch=(17,),
            n_in=3,
            n_out=2,
            d_in=4,
            d_out=4,
        ),
        "float32",
        {"weight": 147042297325.75714, "scale": 0.010626231776039979},
        498060486,
    ),
    # Logits of thousands, which differ by a few: what each child added to them was rounded.
    "em of children that are hundreds": Drawn(
        Case(
            "em",
            "type",
            options={"variant": "gritzman", "lambda_": 0.1, "lambda_schedule": "constant"},
            batch=(17,),
            d_in=2,
            d_out=3,
        ),
        "float32",
        {"activation": 170.10162389838288},
        809831885,
    ),
    "em of long coordinates": Drawn(
        Case(
            "em",
            "all",
            "matrix",
            given=("coordinates",),
            options={"variant": "gritzman", "variance_floor": 0.1},
            n_in=3,
            n_out=2,
            d_in=16,
            d_out=16,
        ),
        "float32",
        {"activation": 0.006932745639862962, "coordinates": 3492348708567247.5},
        1709402515,
    ),
    # A LayerNorm of one component, which is its bias whatever the parent: PyTorch's left rounding.
    "inverted of one component": Drawn(
        Case(
            "inverted",
            "all",
            given=("coordinates", "norm_weight", "norm_bias"),
            n_in=40,
            n_out=2,
            d_out=1,
        ),
        "float32",
        {"pose": 0.0, "norm_bias": 0.0},
        739274191,
    ),
    "inverted of one component through windows": Drawn(
        Case(
            "inverted",
            "all",
            "matrix",
            ODD,
            given=("norm_weight", "norm_bias"),
            options={"iterations": 4},
            n_in=2,
            d_in=1,
            d_out=1,
        ),
        "float32",
        {"weight": 73.87609873618571},
        1889031280,
    ),
    # Weights over children do not see how likely a parent is: the sum of what is zero was rounding,
    # which the mass of a parent made a thousand times larger in the gradient of a cost.
    "em of two parents that children share evenly": Drawn(
        Case(
            "em",
            options={"variant": "gritzman", "lambda_": 0.1, "lambda_schedule": "constant"},
            batch=(1,),
            n_in=3,
            n_out=2,
            d_out=8,
        ),
        "float32",
        {"beta_u": 3.637113107640087},
        1222577930,
    ),
    "em of a hundred times as many children": Drawn(
        Case(
            "em",
            "all",
            given=("coordinates",),
            options={"variant": "gritzman", "iterations": 5},
            batch=(1,),
            n_in=3,
            n_out=3,
            d_in=2,
            d_out=6,
        ),
        "float32",
        {"activation": 95.17561583068807, "beta_a": 0.0},
        1053383360,
    ),
    "em of costs whose gradient was twice as large as it may be": Drawn(
        Case(
            "em",
            "type",
            options={"variant": "gritzman", "lambda_": 0.1, "iterations": 5},
            batch=(1,),
            n_in=2,
            n_out=3,
            d_in=1,
            d_out=9,
        ),
        "float32",
        {"activation": 77.3714205106576, "beta_a": 2.37968602859226},
        1252938766,
    ),
    # Votes whose squares overflow were shortened to nothing, once couplings were known.
    "distance of votes longer than 1e19 by couplings that are constants": Drawn(
        Case(
            "distance",
            given=("vote_bias", "bias"),
            options={"scale": "sample", "detach": "iterations"},
            n_out=1,
            d_out=3,
        ),
        "float32",
        {
            "pose": 2.0580709800411216e17,
            "weight": 52.94628161497258,
            "length": 71.43502498632897,
            "bias": 993.3786031608926,
        },
        694411891,
    ),
    # Across a vote of one number nothing lies; its gradient was a rounding.
    "distance of votes of one number by couplings that are constants": Drawn(
        Case(
            "distance",
            "none",
            "matrix",
            given=("coordinates",),
            options={"scale": "sample", "detach": "iterations"},
            batch=(1,),
            n_in=40,
            d_in=1,
            d_out=1,
        ),
        "float32",
        {"weight": 173.99770841002467, "length": 0.12389376981870749},
        419678335,
    ),
    "distance of votes of one number that are constants": Drawn(
        Case(
            "distance",
            "none",
            "matrix",
            given=("coordinates",),
            options={"scale": "sample", "detach": "votes"},
            batch=(1,),
            n_in=40,
            d_in=1,
            d_out=1,
        ),
        "float32",
        {"weight": 173.99770841002467, "length": 0.12389376981870749},
        419678335,
    ),
    # The same child in several windows, each of which owes it more than float16 holds.
    "em of an activation in several windows": Drawn(
        Case(
            "em",
            "type",
            window=ODD,
            given=("vote_bias",),
            options={"variant": "gritzman", "lambda_": 2.0},
            batch=(5,),
            n_in=1,
            d_in=7,
        ),
        "float16",
        {"activation": 0.0001914111332578812, "vote_bias": 530.9784714849499},
        2144500079,
    ),
    # One parent a window, so that all but zero of the gradient of its mass cancels.
    "em of windows of one parent and huge activations": Drawn(
        Case(
            "em",
            "type",
            "matrix",
            ODD,
            options={"variant": "paper", "compete": "all"},
            batch=(5,),
            n_in=2,
            n_out=1,
            d_in=4,
            d_out=4,
        ),
        "float32",
        {"weight": 2.283881800940736e17, "activation": 1.889565528200168e17},
        1072361260,
    ),
    # A child alone in one parent, and far from it a child with a gradient of 4e16, whose rounding
    # went to that parent and from there, over its small variance, to infinity.
    "em with a child alone in a parent": Drawn(
        Case(
            "em",
            options={"variant": "paper", "iterations": 5},
            batch=(17,),
            n_out=10,
            d_in=3,
            d_out=4,
        ),
        "bfloat16",
        {"pose": 4.194367934328564e16, "beta_u": 0.0},
        2011306946,
    ),
}
# The exact gradient is infinite in float16; the plain op, which rounds votes, found a finite one.
OVERFLOWING = {
    # A gradient of 5,523 is 65,153 in single precision, and one of 9,591 is 58,136; 65,504 is the
    # most that half holds.
    "em of votes that are hundreds": Drawn(
        Case(
            "em",
            "type",
            "matrix",
            options={"variant": "gritzman", "lambda_": 2.0},
            batch=(17,),
            n_in=2,
            n_out=10,
            d_in=16,
            d_out=16,
        ),
        "float16",
        {
            "weight": 197.419857971622,
            "beta_a": 1.4200588300630417e-05,
            "beta_u": 39.60071506572025,
        },
        1604571004,
    ),
    # 78,158, where the plain op found 58,624.
    "em": Drawn(
        Case(
            "em",
            "all",
            given=("vote_bias",),
            options={"variant": "gritzman", "iterations": 5},
            batch=(17,),
            n_in=6,
            n_out=2,
            d_in=9,
            d_out=2,
        ),
        "float16",
        {
            "weight": 0.0012995469068604114,
            "beta_a": 0.002947065906320468,
            "beta_u": 83.58110362884943,
            "vote_bias": 542.0865619851782,
        },
        2142410523,
    ),
    # 307,781, and 64,795, which is just within reach; the plain op finds other couplings.
    "inverted": Drawn(
        Case(
            "inverted",
            "all",
            window=SMALL,
            given=("coordinates",),
            batch=(17,),
            n_in=2,
            n_out=2,
            d_in=5,
            d_out=3,
        ),
        "float16",
        {"weight": 0.504317717958533, "coordinates": 997.3119162525561},
        773955240,
    ),
    # Up to 715,730. One of 25,678 was NaN, the sum of -89,501 and 115,179 after rounding.
    "self-attention": Drawn(
        Case(
            "self_attention",
            "none",
            "matrix",
            SMALL,
            given=("coordinates",),
            options={"squash": "none"},
            batch=(17,),
            n_in=3,
            n_out=2,
            d_out=4,
        ),
        "float16",
        {"pose": 37.93822250013405},
        1861602635,
    ),
}
# The exact result has as few digits.
UNSTEADY = {
    # All distances are alike, so the gradient of a scale of 1e-20 is that of its record, as in the
    # form; the plain op adds roundings over the square of the scale, in single precision a NaN.
    "distance of a scale of nothing": Drawn(
        Case(
            "distance",
            window=ODD,
            options={"scale": "given", "detach": "votes", "iterations": 2, "squash": "hinton"},
            batch=(1,),
            n_in=17,
            n_out=10,
            d_in=6,
            d_out=7,
        ),
        "float64",
        {"pose": 740390263253.7161, "length": 0.0, "scale": 1.91902881098022e-20},
        1223504887,
    ),
    # Logits of 1e17, to which distances of children are added: their digits are lost in double too.
    "em of costs that no double has the digits for": Drawn(
        Case(
            "em",
            "none",
            "matrix",
            SMALL,
            given=("vote_bias",),
            options={"variant": "paper", "compete": "all"},
            n_in=3,
            n_out=10,
            d_in=1,
            d_out=1,
        ),
        "float64",
        {
            "weight": 0.07255474913845476,
            "beta_u": 1.9767381936430586e17,
            "vote_bias": 0.394305330890468,
        },
        1709031803,
    ),
    # Logits of thousands: a rounding of them moves the couplings of one child by 3e-4.
    "dynamic of long votes without a squash": Drawn(
        Case(
            "dynamic",
            "none",
            "matrix",
            given=("bias",),
            options={"iterations": 4, "leaky": True, "squash": "none"},
            batch=(5,),
            n_in=40,
            n_out=10,
            d_in=9,
            d_out=9,
        ),
        "float32",
        {"weight": 22.284713986893216, "bias": 0.0028526137805113135},
        199349336,
    ),
    # Two parents alike, told apart by the rounding of shortened votes, ten times more every turn.
    "distance of one child to two parents alike": Drawn(
        Case(
            "distance",
            "all",
            "matrix",
            given=("coordinates",),
            options={"iterations": 5, "squash": "exp", "scale": "batch"},
            batch=(5,),
            n_in=1,
            n_out=2,
            d_in=9,
            d_out=9,
        ),
        "float32",
        {"weight": 0.006444097808956058, "length": 0.002195642236059374},
        2019855181,
    ),
    # Logits of 3e9 that differ by 115, and parents that are rounded before they make them.
    "inverted of long coordinates without LayerNorm": Drawn(
        Case(
            "inverted",
            "type",
            window=SMALL,
            given=("coordinates", "start"),
            options={"scale": 0.3},
            batch=(5,),
            n_in=2,
            d_out=8,
        ),
        "float32",
        {"coordinates": 51429.664241943705, "start": 0.0},
        1501949762,
    ),
    # Windows alike, told apart by the rounding of logits of thousands.
    "em of two windows alike": Drawn(
        Case(
            "em",
            "type",
            "matrix",
            ODD,
            options={"variant": "gritzman", "compete": "all"},
            n_in=17,
            n_out=1,
            d_in=16,
            d_out=16,
        ),
        "float32",
        {
            "weight": 1.1808157426762122e-16,
            "activation": 0.0,
            "beta_a": 52.470508822216416,
            "beta_u": 5098850873777689.0,
        },
        350707826,
    ),
    # Means of thousands beside a deviation of 11: their rounding moves the couplings of the next
    # iteration.
    "em of two children that are far apart": Drawn(
        Case(
            "em",
            given=("vote_bias",),
            options={"variant": "paper", "lambda_": 2.0},
            batch=(1,),
            n_in=2,
            d_in=3,
            d_out=6,
        ),
        "float32",
        {
            "pose": 4.657336430058654,
            "weight": 614.1396135028242,
            "activation": 79.19998312978043,
            "vote_bias": 0.0105858749174437,
        },
        1159534349,
    ),
}


@pytest.mark.parametrize("name", KEPT)
def test_a_kept_case(name):
    assert set(check(KEPT[name]).values()) == {"right"}


@pytest.mark.parametrize("name", UNSTEADY)
def test_a_kept_case_that_no_rounding_leaves_alone(name):
    assert set(check(UNSTEADY[name]).values()) <= {"right", "unsteady"}


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
