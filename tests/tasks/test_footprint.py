"""What fake tensors are counted to take, worked out by hand."""

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from torchcaps.tasks.footprint import HEAP, KEPT_HEAP, LOADED, Footprint


def counted(work, *, keeps_memory=False):
    with FakeTensorMode(), Footprint(keeps_memory=keeps_memory) as footprint:
        work()
    return footprint


def test_tensors_count_from_when_they_are_made_until_nobody_holds_them():
    def work():
        a = torch.empty(1000)
        b = a * 2
        del a
        c = b + 1  # a is gone
        del b, c

    assert counted(work).tensors == 2 * 4000


def test_what_autograd_saves_counts():
    def work():
        x = torch.empty(1000, requires_grad=True)
        loss = x.exp().sum()  # the exponentials are saved
        loss.backward()

    # x, exp x, the loss, the gradient of the loss, the gradient of x.
    assert counted(work).tensors == 4000 + 4000 + 4 + 4 + 4000


def test_views_and_results_in_place_take_nothing():
    def work():
        x = torch.empty(10, 100)
        x.view(1000).mul_(2).t()
        x.transpose(0, 1).unsqueeze(0)

    assert counted(work).tensors == 4000


def test_a_convolution_reads_and_writes_copies_of_maps():
    def work():
        torch.conv2d(torch.empty(1, 16, 8, 8), torch.empty(16, 16, 3, 3))

    image, weight, maps = 4 * 16 * 8 * 8, 4 * 16 * 16 * 3 * 3, 4 * 16 * 6 * 6
    found = counted(work)
    assert found.tensors == 2 * image + weight + 2 * maps
    assert found.flops == 2 * 6 * 6 * 16 * 16 * 3 * 3
    # The kernels of convolutions are loaded too.
    assert found.resident == int(2 * LOADED + HEAP * found.tensors)


def test_with_the_channels_last_a_convolution_copies_nothing():
    first, last = torch.contiguous_format, torch.channels_last
    expected = 4 * (16 * 8 * 8 + 16 * 16 * 3 * 3 + 16 * 6 * 6)
    for layouts in ((last, last), (first, last), (last, first)):
        shapes = zip([(1, 16, 8, 8), (16, 16, 3, 3)], layouts, strict=True)

        def work(shapes=shapes):
            torch.conv2d(*[torch.empty(shape, memory_format=layout) for shape, layout in shapes])

        assert counted(work).tensors == expected


def test_large_pieces_go_back_and_small_ones_stay_in_the_heap():
    mib = 1 << 20

    def work():
        small = torch.empty(8 * mib, dtype=torch.uint8)
        del small
        large = torch.empty(40 * mib, dtype=torch.uint8)
        del large
        torch.empty(48 * mib, dtype=torch.uint8)

    found = counted(work)
    assert found.tensors == 48 * mib
    assert found.resident == int(LOADED + 48 * mib + HEAP * 8 * mib)
    # Where memory is kept all of them take the same pages.
    kept = counted(work, keeps_memory=True)
    assert kept.tensors == 48 * mib
    assert kept.resident == int(LOADED + KEPT_HEAP * 48 * mib)


def test_what_stays_needs_no_spare_room():
    def work(footprint):
        with footprint.staying():
            weight = torch.empty(1000)
        footprint.call(weight, "weight")
        return weight * 2

    with FakeTensorMode(), Footprint() as footprint:
        work(footprint)
    assert footprint.resident == int(LOADED + 4000 + HEAP * 4000)
    names = [(piece.name, piece.size) for piece in footprint.largest(2)]
    assert names == [("weight", 4000), ("model, mul", 4000)]


def test_checks_of_values_are_taken_to_pass():
    assert counted(lambda: [][not bool(torch.empty(3).isfinite().all()) :]).tensors > 0
