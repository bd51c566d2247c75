"""The decoders: they see one class alone, the given one or the longest; or all, unmasked."""

from itertools import pairwise

import pytest
import torch

from on_meta import size
from torchcaps.layers import Decoder, DeconvDecoder
from torchcaps.ops import reconstruction_loss
from torchcaps.types import Capsules

IMAGE, CLASSES, D = (3, 4, 5), 4, 2


def made(**options):
    return Decoder(n_classes=CLASSES, d_in=D, image=IMAGE, **options).double()


def deconv(image=IMAGE):
    return DeconvDecoder(d_in=D, image=image).double().eval()


both = pytest.mark.parametrize("maker", [made, deconv])


def poses(batch=3):
    return Capsules(torch.randn(batch, CLASSES, D, dtype=torch.float64))


def test_given_class_is_drawn_and_the_others_are_hidden():
    decoder = made()
    pose = torch.randn(3, CLASSES, D, dtype=torch.float64, requires_grad=True)
    target = torch.tensor([2, 0, 3])
    drawn = decoder(Capsules(pose), target)
    assert drawn.shape == (3, *IMAGE)
    there = torch.nn.functional.one_hot(target, CLASSES).bool()
    alone = torch.where(there.unsqueeze(-1), pose, 0.0)
    assert torch.equal(drawn, decoder.layers(alone.flatten(1)).reshape(3, *IMAGE))
    (gradient,) = torch.autograd.grad(drawn.sum(), pose)
    assert torch.equal(gradient.abs().sum(-1) > 0, there)


@both
def test_without_a_target_the_longest_is_drawn(maker):
    decoder = maker()
    pose = torch.tensor(
        [[[0.1, 0.0], [0.3, 0.4], [-0.6, 0.0], [0.0, 0.2]]], dtype=torch.float64
    )  # lengths 0.1, 0.5, 0.6, 0.2
    drawn = decoder(Capsules(pose))
    assert torch.equal(drawn, decoder(Capsules(pose), torch.tensor([2])))
    assert not torch.equal(drawn, decoder(Capsules(pose), torch.tensor([1])))


def test_pixels_lie_between_zero_and_one():
    drawn = made()(Capsules(100 * torch.randn(2, CLASSES, D, dtype=torch.float64)))
    assert drawn.min() >= 0
    assert drawn.max() <= 1


def test_size_on_paper():
    # 4·2 → 512 → 1024 → 3·4·5, each with its bias
    expected = (8 * 512 + 512) + (512 * 1024 + 1024) + (1024 * 60 + 60)
    assert size(made()) == expected


def test_without_a_mask_all_classes_are_seen_and_no_target():
    decoder, classes = made(mask="none"), poses()
    classes.pose.requires_grad_()
    drawn = decoder(classes)
    assert torch.equal(drawn, decoder.layers(classes.pose.flatten(1)).reshape(3, *IMAGE))
    for target in (torch.tensor([2, 0, 3]), torch.tensor([[2, 0]] * 3), torch.eye(CLASSES)[:3]):
        assert torch.equal(drawn, decoder(classes, target))
    (gradient,) = torch.autograd.grad(drawn.sum(), classes.pose)
    assert (gradient != 0).all()


def test_the_mask_changes_no_weight():
    masked, unmasked = made().state_dict(), made(mask="none").state_dict()
    assert {name: w.shape for name, w in masked.items()} == {
        name: w.shape for name, w in unmasked.items()
    }


def test_unmasked_it_asks_for_so_many_components_however_they_are_parted():
    decoder, pose = made(mask="none"), torch.randn(3, CLASSES * D).double()
    parted = decoder(Capsules(pose.unflatten(1, (CLASSES, D))))
    assert torch.equal(decoder(Capsules(pose.unflatten(1, (1, -1)))), parted)


def test_deconv_does_not_ask_how_many_classes_there_are():
    assert deconv()(Capsules(torch.randn(3, CLASSES + 1, D).double())).shape == (3, *IMAGE)


@both
@pytest.mark.parametrize("batch", [1, 3])
def test_several_classes_are_drawn_each_alone(maker, batch):
    decoder, classes = maker(), poses(batch)
    target = torch.tensor([[2, 0], [3, 3], [1, 2]])[:batch]
    drawn = decoder(classes, target)
    assert drawn.shape == (batch, 2, *IMAGE)
    for m in range(2):
        alone = decoder(classes, target[:, m])
        torch.testing.assert_close(drawn[:, m], alone, rtol=0, atol=1e-12)
    # The loss of both is the sum of the losses of each.
    images = torch.rand(batch, 2, *IMAGE, dtype=torch.float64)
    each = [reconstruction_loss(drawn[:, m], images[:, m]) for m in range(2)]
    torch.testing.assert_close(reconstruction_loss(drawn, images), sum(each))
    assert decoder(classes, target[:, :1]).shape == (batch, 1, *IMAGE)


@both
@pytest.mark.parametrize("m", [(), (2,)], ids=["one", "two"])
def test_a_batch_may_be_empty(maker, m):
    target = torch.zeros(0, *m, dtype=torch.long)
    assert maker()(poses(0), target).shape == (0, *m, *IMAGE)


def test_deconv_draws_from_the_pose_and_not_from_its_class():
    decoder, classes = deconv(), poses()
    drawn = decoder(classes, torch.tensor([2, 0, 3]))
    moved = decoder(Capsules(classes.pose.roll(1, dims=1)), torch.tensor([3, 1, 0]))
    assert torch.equal(drawn, moved)


def test_deconv_sees_the_drawn_class_alone():
    decoder, target = deconv(), torch.tensor([2, 0, 3])
    pose = poses().pose.requires_grad_()
    maps = decoder.deconvolutions[:-1](decoder.start(pose[torch.arange(3), target]))
    (by_hand,) = torch.autograd.grad(maps.sum(), pose, retain_graph=True)
    assert torch.equal(by_hand.abs().sum(-1) > 0, torch.nn.functional.one_hot(target, CLASSES) > 0)
    drawn = decoder(Capsules(pose), target)
    assert torch.equal(drawn, maps.relu()[..., :4, :5])


@pytest.mark.parametrize(
    ("image", "features", "channels"),
    [
        # FC 32 → 8·8·16 and batch norm, then 3 × 3 from 16 to 64, 32, 16, 8 and 3 channels.
        ((3, 64, 64), 1024, (16, 64, 32, 16, 8, 3)),
        # FC 32 → 7·7·16, and no layer of 8 channels.
        ((1, 28, 28), 784, (16, 64, 32, 16, 1)),
    ],
)
def test_deconv_on_paper(image, features, channels):
    start = 32 * features + features + 2 * 16
    expected = start + sum(9 * a * b + b for a, b in pairwise(channels))
    counted = size(DeconvDecoder(d_in=32, image=image))
    assert counted == expected
    assert image[0] == 1 or counted == 67_571


@pytest.mark.parametrize(
    ("image", "start"),
    [
        ((3, 64, 64), (8, 8)),
        ((1, 28, 28), (7, 7)),
        ((2, 63, 100), (16, 25)),
        ((3, 65, 130), (9, 17)),
        ((1, 17, 18), (5, 5)),
        ((1, 1, 6), (1, 2)),
    ],
    ids=str,
)
def test_deconv_draws_any_size(image, start):
    decoder = deconv(image)
    drawn = decoder(poses(2), torch.tensor([0, 3]))
    assert drawn.shape == (2, *image)
    assert drawn.min() >= 0
    assert decoder.start(torch.zeros(1, D, dtype=torch.float64)).shape == (1, 16, *start)


def test_deconv_normalises_as_keras_does():
    decoder, classes, target = deconv(), poses(), torch.tensor([2, 0, 3])
    pose = classes.pose[torch.arange(3), target]
    maps = decoder.start[:3](pose)
    # before any training the mean is 0 and the variance 1
    torch.testing.assert_close(decoder.start(pose), maps / 1.001**0.5, rtol=0, atol=1e-12)
    # momentum 0.8: running mean = 0.8 · 0 + 0.2 · mean
    decoder.train()(classes, target)
    mean = decoder.start[3].running_mean
    torch.testing.assert_close(mean, 0.2 * maps.mean((0, 2, 3)), rtol=0, atol=1e-12)


def test_deconv_gives_every_weight_a_gradient():
    decoder = DeconvDecoder(d_in=D, image=(2, 9, 7)).double()
    decoder(poses(4)).square().sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in decoder.parameters())
    assert all((p.grad != 0).any() for p in decoder.parameters())


def test_all_classes_are_drawn_by_their_indices():
    decoder = Decoder(n_classes=10, d_in=4, image=(1, 4, 4))
    classes = Capsules(torch.rand(3, 10, 4))
    assert decoder(classes, torch.arange(10).expand(3, 10)).shape[:2] == (3, 10)
