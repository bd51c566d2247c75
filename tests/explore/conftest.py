"""Two small networks and a few images, opened as the explorer opens them."""

import copy

import pytest
import torch

from laid_runs import lay_run, small_network, tiny_images
from torchcaps.data import SOURCES
from torchcaps.explore.looking import Looker
from torchcaps.explore.opened import opened
from torchcaps.layers import use_backend
from torchcaps.models import create_model, save


@pytest.fixture(scope="session")
def laid(tmp_path_factory):
    """A run of a five-layer network, and a saved one whose capsules see each other through
    windows."""
    folder = tmp_path_factory.mktemp("explored")
    names = ["aquila", "cygnus", "draco", "hydra", "leo", "lyra", "orion", "pavo", "vela", "volans"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(SOURCES, "tiny", tiny_images(20))
        lay_run(folder / "deep", {"class_names": names})
    with torch.random.fork_rng():
        torch.manual_seed(0)
        windows = create_model("matrix_capsnet", image=(1, 24, 24), n_classes=3, sizes="4-2-3-3")
    save(windows, folder / "windows.safetensors")
    return folder


@pytest.fixture(scope="session")
def looker(laid):
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(SOURCES, "tiny", tiny_images(20))
        return Looker(opened([laid / "deep", laid / "windows.safetensors"]))


@pytest.fixture(scope="session")
def network():
    """The network of the run, computed as the explorer does."""
    network = copy.deepcopy(small_network())
    use_backend(network, "plain")
    return network
