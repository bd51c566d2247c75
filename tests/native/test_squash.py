"""The native squash of maps is the squash of their poses."""

import ctypes

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from torchcaps.errors import TorchcapsError
from torchcaps.layers import (
    squash_maps,
    use_backend,
)
from torchcaps.layers.squash_maps import SquashMaps
from torchcaps.models import create_model
from torchcaps.ops import native
from torchcaps.ops.native import squash as kernel
from torchcaps.ops.squash import squash

LAYOUTS = {"contiguous": torch.contiguous_format, "channels_last": torch.channels_last}
# Images, types, components, height, width: whole lanes, ragged ones, one of each, one position.
SHAPES = [(3, 5, 4, 4, 8), (2, 3, 8, 3, 5), (1, 1, 1, 1, 1), (2, 32, 16, 2, 2), (7, 3, 2, 1, 1)]


@pytest.fixture(autouse=True)
def _library():
    if not native.available():
        pytest.skip("there is no C++ compiler, or TORCHCAPS_NATIVE=0")


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    """Small maps go the way of large ones."""
    monkeypatch.setattr(squash_maps, "FEWEST", 0)


def drawn(shape, layout="contiguous", spread=1.0):
    b, types, d, h, w = shape
    generator = torch.Generator().manual_seed(sum(shape))
    maps = spread * torch.randn(b, types * d, h, w, generator=generator)
    return maps.contiguous(memory_format=LAYOUTS[layout]).requires_grad_()


class Seen(TorchDispatchMode):
    """The names of what runs under it."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names.append(str(func))
        return func(*args, **kwargs or {})


def plain(maps, size):
    poses = maps.unflatten(1, (-1, size)).movedim(2, -1)
    return squash(poses).movedim(-1, 2).flatten(1, 2)


def test_three_and_four_by_hand():
    maps = torch.tensor([3.0, 4.0, 0.0, 0.0]).view(1, 2, 2, 1)  # (3, 0) and (4, 0)
    expected = torch.tensor([9 / 10, 16 / 17, 0.0, 0.0]).view(1, 2, 2, 1)
    assert kernel.fits(maps, 2)
    torch.testing.assert_close(kernel.squash_maps(maps, 2), expected)


def test_small_maps_take_the_kernel_where_nobody_wants_gradients(monkeypatch):
    monkeypatch.setattr(squash_maps, "FEWEST", 1 << 16)
    layer, maps, calls = SquashMaps(8), drawn((2, 3, 8, 3, 5)), []
    squashed = kernel.squash_maps
    monkeypatch.setattr(kernel, "squash_maps", lambda *x: calls.append(1) or squashed(*x))
    with_gradient = layer(maps)
    assert not calls
    with torch.no_grad():
        torch.testing.assert_close(layer(maps), with_gradient.detach())
    layer(maps.detach())
    assert len(calls) == 2


@pytest.mark.parametrize("spread", [1e-6, 1e-3, 1.0, 30.0])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_values_and_gradients_are_those_of_the_squash(shape, layout, spread):
    maps, size = drawn(shape, layout, spread), shape[2]
    assert kernel.fits(maps, size)
    upstream = torch.randn(maps.shape)
    # As it lies, and turned.
    for given in (upstream, upstream.transpose(2, 3).contiguous().transpose(2, 3)):
        y, of_maps = through(kernel.squash_maps, maps, size, given)
        right, of_right = through(plain, maps.detach().double().requires_grad_(), size, given)
        assert y.stride() == maps.stride()
        assert float((y - right).abs().max()) <= 1e-6 * float(right.abs().max())
        # Along a long pose the two terms of the gradient all but cancel: judged by the first.
        term = float((right / maps.detach()).abs().max() * given.abs().max())
        assert float((of_maps - of_right).abs().max()) <= 1e-6 * term


def through(form, maps, size, upstream):
    y = form(maps, size)
    return y.detach(), torch.autograd.grad(y, maps, upstream.to(y.dtype))[0]


def test_zero_has_a_gradient_and_what_is_not_finite_stays_in_its_capsule():
    maps = torch.zeros(1, 8, 3, 3, requires_grad=True)
    kernel.squash_maps(maps, 4).sum().backward()
    assert not maps.grad.any()
    for form in LAYOUTS.values():
        given = torch.ones(2, 8, 3, 3).contiguous(memory_format=form)
        given[1, 5, 2, 0] = torch.nan
        lost = kernel.squash_maps(given, 4).isnan().nonzero().tolist()
        assert lost == [[1, channel, 2, 0] for channel in (4, 5, 6, 7)]


@pytest.mark.parametrize(
    ("maps", "size"),
    [
        (torch.ones(2, 6, 3, 3).double(), 3),
        (torch.ones(2, 6, 3, 3).bfloat16(), 3),
        (torch.ones(2, 6, 3, 3).contiguous(memory_format=torch.channels_last), 3),
        (torch.ones(2, 6, 1, 1), 3),
        (torch.ones(2, 6, 3, 5).transpose(2, 3), 3),
        (torch.ones(2, 6, 3, 5, 4), 3),
    ],
    ids=["double", "half", "last, threes", "one position, threes", "turned", "five axes"],
)
def test_what_does_not_fit_is_squashed_as_ever(maps, size):
    assert not kernel.fits(maps, size)
    assert torch.equal(SquashMaps(size)(maps), plain(maps, size))


def test_channels_that_make_no_capsules_are_refused_as_ever():
    with pytest.raises(RuntimeError, match="unflatten"):
        SquashMaps(4)(torch.ones(2, 6, 3, 3))


def test_no_images_are_none():
    assert SquashMaps(4)(torch.ones(0, 8, 3, 3)).shape == (0, 8, 3, 3)


def test_gradients_of_gradients_are_refused_in_a_sentence():
    maps = drawn(SHAPES[0])
    (first,) = torch.autograd.grad(SquashMaps(4)(maps).sum(), maps, create_graph=True)
    with pytest.raises(TorchcapsError, match=r"no gradients of gradients.*use_backend"):
        first.sum().backward()


def test_threads_change_no_bit():
    maps, before = drawn((9, 5, 4, 7, 7)).detach(), torch.get_num_threads()
    try:
        found = []
        for threads in (1, 2, 5):
            torch.set_num_threads(threads)
            found.append(kernel.squash_maps(maps, 4))
    finally:
        torch.set_num_threads(before)
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])


def test_the_dispatcher_is_asked_where_somebody_watches_or_wants_gradients(monkeypatch):
    asked, squashed, maps = [], kernel._squash, drawn((2, 3, 8, 3, 5))
    monkeypatch.setattr(kernel, "_squash", lambda *x: asked.append(1) or squashed(*x))
    by_itself = kernel.squash_maps(maps.detach(), 8)
    assert not asked
    with torch.no_grad():
        assert torch.equal(kernel.squash_maps(maps, 8), by_itself)
        assert not asked
        with Seen() as seen:
            kernel.squash_maps(maps, 8)
    assert asked == [1]
    assert "torchcaps.native_squash.default" in seen.names
    assert kernel.squash_maps(maps, 8).requires_grad
    assert asked == [1, 1]


def test_fake_tensors_look_like_real_ones():
    maps = drawn(SHAPES[0], "channels_last").detach()
    torch.library.opcheck(kernel._squash, (maps, 4))
    torch.library.opcheck(kernel._backward, (maps, maps, 4))


def test_a_job_is_what_the_source_takes():
    assert ctypes.sizeof(kernel._Job) == kernel.library().torchcaps_squash_job_size()


def test_a_backend_for_all_turns_it_off_and_tracers_do_not_see_it():
    layer = SquashMaps(4)
    maps = drawn(SHAPES[0])
    assert "squash" in layer(maps).grad_fn.name()
    compiled = torch.compile(layer, fullgraph=True, backend="eager")
    assert torch.equal(compiled(maps), plain(maps, 4))
    exported = torch.export.export(layer, (maps.detach(),))
    assert not any("native" in str(node.target) for node in exported.graph.nodes)
    use_backend(layer, "plain")
    assert torch.equal(layer(maps), plain(maps, 4))


def test_deepcaps_squashes_natively():
    model = create_model("rem_deepcaps", image=(1, 20, 20))
    layers = [part for part in model.modules() if isinstance(part, SquashMaps)]
    # Three a cell and one, the routed skip of cell 4 aside.
    assert len(layers) == 4 + 4 + 4 + 3
    taken = []
    for part in layers:
        part.register_forward_pre_hook(lambda part, x: taken.append(native_fits(part, x[0])))
    model(torch.rand(2, 1, 20, 20))
    assert taken == [True] * 15


def native_fits(part, maps):
    return kernel.fits(maps, part.size)
