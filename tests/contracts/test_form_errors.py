"""How far single precision may err, at sizes of which there are few: of many children, where
variances are small, and where a block of a kernel ends."""

from itertools import product

import pytest
import torch

from contracts.form_laws import COSTS, Bars, assert_close_in_single, cut
from contracts.forms import LARGE, ODD, Case, leaves_of, marked, may_be_given, results_of
from torchcaps.ops.fused import tiles
from torchcaps.ops.native import dynamic
from torchcaps.types import Window

SIZES = ("batch", "n_in", "n_out", "d_in", "d_out")
SQUASHES = ("hinton", "exp")


def sized(algorithm, sizes, **rest):
    batch, *others = sizes
    return Case(algorithm, batch=(batch,), **dict(zip(SIZES[1:], others, strict=True)), **rest)


def many_children():
    few, many = (6, 200, 10, 8, 16), (6, 1152, 10, 8, 16)
    for squash in SQUASHES:
        one = {"squash": squash}
        yield "fused", sized("dynamic", few, options=one)
        yield "fused", sized("self_attention", few, given=("prior",), options=one)
        for scale in ("sample", "batch"):
            yield "fused", sized("distance", few, given=("bias",), options=one | {"scale": scale})
        for detach in ("none", "votes"):
            more = one | {"detach": detach}
            yield "native", sized("dynamic", many, options=more)
            for scale in ("sample", "batch"):
                yield "native", sized("distance", many, options=more | {"scale": scale})
    options, sizes = {"iterations": 3, "scale": 0.25}, (5, 72, 10, 16, 16)
    given = ("vote_bias", "norm_weight", "norm_bias")
    for pose in ("vector", "matrix"):
        for window in (None, LARGE):
            how = {"pose": pose, "window": window, "given": given, "options": options}
            yield "fused", sized("inverted", sizes, **how)


@pytest.mark.drawn(2)
@pytest.mark.parametrize(("way", "case"), [*many_children()], ids=str)
def test_many_children(way, case, monkeypatch):
    """By the strict bars of all forms: 2e-6 of the largest value, 2e-5 of the largest gradient."""
    if case.algorithm == "inverted":
        monkeypatch.setattr(tiles, "TILE_BYTES", 20_000)
    own = None if (case.algorithm, way) == ("distance", "native") else Bars()
    assert_close_in_single(way, case, leaves_of(case, torch.float32), bars=own)


BATCHES = [(batch, 6, 5, 8, 16) for batch in (*range(1, 18), 33)]
POSES = [(3, 6, 5, d_in, d_out) for d_in in (3, 5, 8, 16, 24) for d_out in (3, 5, 8, 16, 24)]
NUMBERS = [(5, 6, n_out, 8, 4) for n_out in (1, 2, 7, 33)]
NUMBERS += [(5, n_in, 4, 4, 8) for n_in in (1, 2, 3, 9)] + [(1, 1, 1, 1, 1)]
# More than a group of lanes, than stored votes, than a tile of children.
LARGER = [(300, 5, 3, 4, 4), (17, 6, 300, 8, 16), (4, 150, 10, 8, 16)]


def ragged():
    for sizes in (*BATCHES, *POSES, *NUMBERS, *LARGER):
        for detach in ("none", "votes"):
            yield "native", sized("dynamic", sizes, options={"detach": detach})
            more = {"detach": detach, "scale": "batch"}
            yield "native", sized("distance", sizes, options=more)


@pytest.mark.parametrize(("way", "case"), marked(ragged(), {"native": 3}))
def test_ragged_sizes(way, case):
    strict = Bars() if case.algorithm == "dynamic" else None
    assert_close_in_single(way, case, leaves_of(case, torch.float32), bars=strict)


# Parents of whole vectors, whose gradients fold without a rest; more samples than a group has.
# Couplings of the last iteration are kept for the backward pass, or are too large for that.
@pytest.mark.drawn(4)
@pytest.mark.parametrize("way", ["native"])
@pytest.mark.parametrize("most", [0, 16 << 20], ids=["made again", "kept"])
@pytest.mark.parametrize("detach", ["votes", "states", "coupling"])
@pytest.mark.parametrize("d_in", [1, 3, 8, 17])
@pytest.mark.parametrize("sharing", ["none", "type", "all"])
def test_poses_that_fill_vectors(monkeypatch, sharing, d_in, detach, most, way):
    monkeypatch.setattr(dynamic, "KEPT_BYTES", most)
    for batch, d_out in ((1, 16), (17, 32), (300, 16)):
        for options in ({"detach": detach}, {"detach": detach, "iterations": 1}):
            sizes = (batch, 10, 5, d_in, d_out)
            case = sized("dynamic", sizes, sharing=sharing, options=options)
            leaves = leaves_of(case, torch.float32)
            # Votes as short as those of a network that begins.
            leaves["pose"] /= d_in**0.5
            leaves["weight"] = 0.3 * torch.randn_like(leaves["weight"])
            # The votes of one sample may cancel, and then nobody is right to the last digits.
            assert_close_in_single(way, case, leaves, bars=Bars(values=4, gradients=4))


def threaded():
    """Some blocks of lanes end within samples, which several threads then see."""
    for sharing in ("none", "type", "all"):
        for pose in ("vector", "matrix"):
            given = may_be_given("dynamic", "native")
            sizes = {"n_in": 12, "n_out": 5, "d_out": 4, "batch": (19,)}
            yield "native", Case("dynamic", sharing, pose, None, given, **sizes)
            for scale in ("sample", "batch"):
                given, options = may_be_given("distance", "native"), {"scale": scale}
                yield "native", Case("distance", sharing, pose, None, given, options, **sizes)
    for window in (None, ODD, LARGE):
        for batch in (1, 5, 37):
            sizes = {"n_in": 24, "d_in": 16, "batch": (batch,)}
            yield "native", Case("em", "none", "matrix", window, ("coordinates",), **sizes)


@pytest.mark.parametrize("threads", [1, 2, 3, 7])
@pytest.mark.parametrize(("way", "case"), marked(threaded(), {"native": 3}))
def test_any_number_of_threads(way, case, threads, monkeypatch):
    cut(monkeypatch, way, threads)
    leaves = leaves_of(case, torch.float32)
    assert_close_in_single(way, case, leaves, bars=OWN.get(case.algorithm))
    found = (results_of(way, case, leaves) for _ in range(2))
    torch.testing.assert_close(*found, rtol=0, atol=0)


# Each value by its own error, not by the worst of all.
OWN = {"dynamic": Bars(), "em": Bars(True, 4, 4, ("plain", "fused"), rounding="millionth")}


@pytest.mark.slow
@pytest.mark.parametrize("way", ["native"])
@pytest.mark.parametrize("variant", ["paper", "gritzman", "official"])
@pytest.mark.parametrize("compete", ["window", "all"])
def test_large_grids(compete, variant, way):
    options = {"variant": variant, "compete": compete, "iterations": 2}
    window, sizes = Window((14, 14, 8), (3, 3), (2, 2)), {"batch": (3,), "n_out": 16, "d_in": 16}
    case = Case("em", "none", "matrix", window, ("vote_bias",), options, **sizes)
    assert_close_in_single(way, case, leaves_of(case, torch.float32), bars=OWN["em"])


# One sample whose plain gradients come out right by luck must not decide.
DRAWS = {"fused": 6, "native": 18}


def noisy():
    """EM routing of children with small variances."""
    fused, native = product(("vector", "matrix"), (None, LARGE)), []
    for pose, window in product(("vector", "matrix"), (None, ODD, LARGE)):
        native += [(pose, window, compete) for compete in ("window", "all")[: 1 + bool(window)]]
    seen = {"fused": [(*each, "window") for each in fused], "native": native}
    for way, variant in product(seen, ("paper", "gritzman", "official")):
        sizes = {"batch": (5,), "n_in": 72, "n_out": 10, "d_in": 16, "d_out": 16}
        for pose, window, compete in seen[way]:
            options = {"variant": variant, "compete": compete}
            yield way, Case("em", "none", pose, window, ("vote_bias",), options, **sizes)


@pytest.mark.slow
@pytest.mark.parametrize(("way", "case"), marked(noisy(), dict.fromkeys(DRAWS, 1)))
def test_mean_errors_are_at_most_twice_those_of_the_plain_op(way, case, monkeypatch):
    monkeypatch.setattr(tiles, "TILE_BYTES", 20_000)
    squares = {way: {}, "plain": {}}
    for _ in range(DRAWS[way]):
        leaves = leaves_of(case, torch.float32)
        exact = results_of("plain", case, {name: x.double() for name, x in leaves.items()})
        for each, sums in squares.items():
            for name, x in results_of(each, case, leaves).items():
                worse = (x - exact[name]).square().sum() / exact[name].square().sum()
                kind = "costs" if name in COSTS else name  # Few costs say little each.
                sums[kind] = sums.get(kind, 0) + float(worse)
    least = torch.finfo(torch.float32).eps
    for kind, square in squares[way].items():
        assert square**0.5 <= 2 * max(squares["plain"][kind] ** 0.5, least), kind
