"""Images that a network cannot take as they are, or may."""

import pytest
import torch

from error_text import text_of
from torchcaps import create_model
from torchcaps.models.images import check_images

SIZES = {"image": (1, 7, 8), "n_classes": 3, "kernel": 3}


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors is in prototype")
@pytest.mark.parametrize("layout", [torch.strided, torch.jagged])
def test_nested_images_are_explained(layout):
    images = torch.nested.nested_tensor(list(torch.rand(2, 1, 7, 8)), layout=layout)
    assert text_of(lambda: create_model("convnet_fc", **SIZES)(images)).startswith(
        "image must be one dense tensor, but came as a nested one, of pieces with sizes of their"
    )


def test_weights_that_wait_on_the_meta_device_are_no_fault():
    with torch.device("meta"):
        waiting = create_model("convnet_fc", **SIZES)
    check_images(torch.rand(2, 1, 7, 8), (1, 7, 8), waiting)
    # Nor is a network without weights.
    check_images(torch.rand(2, 1, 7, 8).to("meta"), (1, 7, 8), torch.nn.Identity())
