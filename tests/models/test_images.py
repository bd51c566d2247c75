"""What a network says of images that it cannot take."""

import pytest
import torch

from error_text import text_of
from torchcaps import create_model
from torchcaps.models.images import check_images


@pytest.fixture(scope="module")
def network():
    return create_model("convnet_fc", image=(1, 7, 8), n_classes=3, kernel=3)


IMAGES = torch.rand(2, 1, 7, 8)
CASES = {
    "list": (IMAGES.tolist(), "image must be a torch.Tensor, but came as list; make one with"),
    "array": (IMAGES.numpy(), "image must be a torch.Tensor, but came as ndarray; make one"),
    "sparse": (IMAGES.to_sparse(), "image must be a dense tensor, but came as torch.sparse_coo;"),
    "meta": (IMAGES.to("meta"), "must be on one device, but are on meta and cpu; move the images"),
    "one": (IMAGES[0], "a single image needs image.unsqueeze(0)"),
    "channels last": (
        IMAGES.movedim(1, -1),
        "came with shape [2, 7, 8, 1]; channels come first: image.movedim(-1, 1).",
    ),
    "no channels": (
        IMAGES[:, 0],
        "came with shape [2, 7, 8]; the axis of channels is missing: image.unsqueeze(1).",
    ),
    "bytes": (IMAGES.byte(), "for bytes use image.float() / 255."),
    "double": (IMAGES.double(), "must share a dtype, but are torch.float64 and torch.float32"),
    "NaN": (IMAGES * torch.nan, "the images hold NaN or infinite values"),
}


@pytest.mark.parametrize("kind", CASES)
def test_what_is_no_image_is_explained(network, kind):
    images, sentence = CASES[kind]
    assert sentence in text_of(lambda: network(images))


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors is in prototype")
@pytest.mark.parametrize("layout", [torch.strided, torch.jagged])
def test_nested_images_are_explained(network, layout):
    images = torch.nested.nested_tensor([IMAGES[0], IMAGES[1]], layout=layout)
    assert text_of(lambda: network(images)).startswith(
        "image must be one dense tensor, but came as a nested one, of pieces with sizes of their"
    )


def test_weights_that_wait_on_the_meta_device_are_no_fault(network):
    with torch.device("meta"):
        waiting = create_model("convnet_fc", image=(1, 7, 8), n_classes=3, kernel=3)
    check_images(IMAGES, network.image, waiting)


def test_a_network_without_weights_takes_any_device():
    check_images(IMAGES.to("meta"), (1, 7, 8), torch.nn.Identity())
