"""Networks on disk: the same numbers come back, and a file that is none says so."""

import copy
import json
import os
import pickle
import random

import numpy
import pytest
import safetensors.torch
import torch
from torch import nn
from torch.nn.utils import prune

from damage import MEGABYTE, at_most
from error_text import text_of
from registries import as_before
from torchcaps import Output, create_model, load, register_model, save
from torchcaps.errors import TorchcapsError
from torchcaps.layers import DynamicRouting, Routing, use_backend
from torchcaps.ops import uniform_routing

NAME = "mitterreiter_5x16"
SMALL = {"image": (1, 12, 11), "n_classes": 3}


@pytest.fixture
def model():
    return create_model(NAME, **SMALL)


@pytest.fixture
def file(model, tmp_path):
    path = tmp_path / "net.safetensors"
    save(model, path)
    return path


def with_header(path, header, tensors):
    """A safetensors file with a torchcaps header of our choice."""
    text = json.dumps(header)
    path.write_bytes(safetensors.torch.save(tensors, metadata={"torchcaps": text}))
    return path


def again(network, folder, **options):
    """The network that comes back."""
    save(network, folder / "net.safetensors")
    return load(folder / "net.safetensors", **options)


def assert_same_weights(one, other):
    torch.testing.assert_close(one.state_dict(), other.state_dict(), rtol=0, atol=0)


def test_weights_statistics_and_options_come_back(model, file):
    model.train()(torch.rand(8, *SMALL["image"]))  # moves the running statistics
    save(model, file)
    found = load(file)
    assert found.config == model.config
    assert not found.training
    assert_same_weights(found, model)


def test_a_uniform_network_comes_back_with_the_iterations_it_does_not_use(tmp_path):
    model = create_model(NAME, **SMALL, routing="uniform").eval()
    found = again(model, tmp_path)
    assert found.config == model.config
    assert found.config["iterations"] == 3
    images = torch.rand(2, *SMALL["image"])
    torch.testing.assert_close(found(images).scores, model(images).scores)


def test_a_path_may_be_text_and_nothing_else_is_left_behind(model, tmp_path):
    save(model, str(tmp_path / "net.safetensors"))
    assert load(str(tmp_path / "net.safetensors")).config["name"] == NAME
    assert [each.name for each in tmp_path.iterdir()] == ["net.safetensors"]


def test_a_crash_leaves_the_old_file(model, file, monkeypatch):
    before = file.read_bytes()

    def fail(*_, **__):
        raise OSError("disk full")

    monkeypatch.setattr("pathlib.Path.replace", fail)
    with pytest.raises(OSError, match="disk full"):
        save(model, file)
    assert file.read_bytes() == before
    assert [each.name for each in file.parent.iterdir()] == [file.name]


def test_others_may_read_the_file(file):
    # Whatever the mask of the process allows, as for any new file.
    plain = file.with_name("plain")
    plain.touch()
    assert file.stat().st_mode == plain.stat().st_mode


def test_equal_networks_give_equal_bytes(tmp_path):
    for name in ("a", "b"):
        torch.manual_seed(4)
        save(create_model(NAME, **SMALL), tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_loading_draws_no_random_numbers(file):
    before = torch.get_rng_state()
    load(file)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(
    "cut", [0, 4, 100, -1], ids=["empty", "in-length", "in-header", "in-tensors"]
)
def test_a_truncated_file(file, cut):
    file.write_bytes(file.read_bytes()[:cut])
    said = text_of(lambda: load(file))
    assert said.startswith(f"{file} is not a readable safetensors file (")
    assert said.endswith("; was the copy cut short, or is it another format?")


@pytest.mark.parametrize("as_zip", [True, False])
def test_a_file_of_torch_save(model, tmp_path, as_zip):
    path = tmp_path / "w.pt"
    torch.save(model.state_dict(), path, _use_new_zipfile_serialization=as_zip)
    assert text_of(lambda: load(path)) == (
        f"{path} was written by torch.save, and load reads what torchcaps.save wrote, since "
        f"unpickling runs code; make the network with create_model, then "
        f"model.load_state_dict(torch.load(path, weights_only=True)), with weights of other code "
        f"through torchcaps.models.convert."
    )
    # What the sentence advises.
    other = create_model(NAME, **SMALL)
    other.load_state_dict(torch.load(path, weights_only=True))


def test_what_a_file_says_of_itself_is_not_quoted_at_length(tmp_path):
    """Found by make fuzz: a size of 5,000 digits, which came back in the sentence."""
    head = b'{"w": {"dtype": "F32", "shape": ["\x7f' + b"9" * 5000 + b'"], "data_offsets": [0, 4]}}'
    path = tmp_path / "net.safetensors"
    path.write_bytes(len(head).to_bytes(8, "little") + head + bytes(4))
    said = text_of(lambda: load(path))
    assert "is not a readable safetensors file" in said
    assert len(said) < 500
    assert said.isprintable()


class Payload:
    """Unpickling it makes a file."""

    def __init__(self, trace):
        self.trace = str(trace)

    def __reduce__(self):
        return os.mkdir, (self.trace,)


@pytest.mark.parametrize("write", [pickle.dump, torch.save], ids=["pickle", "torch"])
def test_a_pickle_is_never_executed(tmp_path, write):
    path, trace = tmp_path / "net.safetensors", tmp_path / "executed"
    with path.open("wb") as file:
        write(Payload(trace), file)
    with pytest.raises(TorchcapsError, match=r"is not a readable|written by torch"):
        load(path)
    assert not trace.exists()
    # The payload would have worked.
    if write is pickle.dump:
        pickle.loads(path.read_bytes())
        assert trace.exists()


def test_a_header_of_another_shape(model, tmp_path):
    header = model.config | {"n_classes": 4}
    path = with_header(tmp_path / "net.safetensors", header, model.state_dict())
    said = text_of(lambda: load(path))
    start = f"the tensors in {path} do not fit the network {NAME} that its header describes ("
    assert said.startswith(start)
    assert "size mismatch" in said


def test_a_flipped_bit_is_found(tmp_path):
    """Of the tensors, and of the configuration: safetensors has no checksum."""
    path = tmp_path / "model.safetensors"
    save(create_model("peer_sign_dynamic"), path)
    content = path.read_bytes()
    start = 8 + int.from_bytes(content[:8], "little")
    draw = random.Random(0)
    for at in [start, len(content) - 1, *(draw.randrange(start, len(content)) for _ in range(20))]:
        flipped = bytearray(content)
        flipped[at] ^= 1 << draw.randrange(8)
        path.write_bytes(flipped)
        assert "is damaged: its tensors or its configuration" in text_of(lambda: load(path))
    edited = content.replace(b'iterations\\": 3', b'iterations\\": 2')
    assert edited != content
    path.write_bytes(edited)
    assert "is damaged: its tensors or its configuration" in text_of(lambda: load(path))


def test_a_network_in_use_does_not_change_with_its_file(tmp_path):
    path = tmp_path / "net.safetensors"
    torch.manual_seed(0)
    save(create_model("peer_sign_dynamic"), path)
    model = load(path)
    before = {name: x.clone() for name, x in model.state_dict().items()}
    with path.open("r+b") as file:
        size = len(path.read_bytes())
        file.seek(size // 2)
        file.write(bytes(size - size // 2))
    for name, x in model.state_dict().items():
        torch.testing.assert_close(x, before[name], rtol=0, atol=0)
    path.write_bytes(b"")
    assert all(x.isfinite().all() for x in model.state_dict().values())


def test_a_file_of_another_size_than_its_header_tells_takes_no_memory(file):
    os.truncate(file, 1 << 30)
    with at_most(8 * MEGABYTE):
        text = text_of(lambda: load(file))
    assert text.startswith(f"{file} is not a readable safetensors file (")
    assert text.endswith("); was the copy cut short, or is it another format?")


def test_a_planted_link_is_not_written_through(tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / f".net.safetensors.{os.getpid()}.partial").symlink_to(victim)
    save(create_model("peer_sign_dynamic"), tmp_path / "net.safetensors")
    assert victim.read_text() == "precious"
    assert not (tmp_path / "net.safetensors").is_symlink()


def test_a_file_of_an_earlier_version_has_no_digest(tmp_path):
    model = create_model("peer_sign_dynamic")
    old = with_header(tmp_path / "old.safetensors", model.config, model.state_dict())
    assert load(old).config == model.config


def test_a_compiled_network_is_saved_as_what_it_is(tmp_path):
    model = create_model("rem_dr", image=(1, 12, 12), n_classes=3, kernel=3, width=4, types=2)
    assert_same_weights(again(torch.compile(model, backend="eager"), tmp_path), model)


TINY = {"image": (1, 12, 12), "n_classes": 3, "kernel": 3, "width": 4, "types": 2}


def test_what_the_sentences_advise_is_saved(tmp_path):
    model = create_model("capsnet", **TINY)
    layer = model.backbone[0]
    prune.l1_unstructured(layer, "weight", 0.5)
    prune.remove(layer, "weight")
    nn.utils.parametrizations.weight_norm(model.primary.projection)
    nn.utils.parametrize.remove_parametrizations(model.primary.projection, "weight")
    assert_same_weights(again(model, tmp_path), model)


def test_a_network_may_be_copied_moved_and_given_classes_before_it_is_saved(tmp_path):
    model = create_model("rem_dr", **TINY)
    model.reset_classes(5)
    for name, each in (("same", model), ("moved", copy.deepcopy(model).double())):
        save(each, tmp_path / name)
        save(load(tmp_path / name), tmp_path / "again")
        assert (tmp_path / "again").read_bytes() == (tmp_path / name).read_bytes()
    model.backbone = None
    assert "backbone.0.weight is gone" in text_of(lambda: save(model, tmp_path / "same"))


class Growing(nn.Module):
    """Tensors that are as large as the images and as many as the batches that were seen."""

    def __init__(self, image, n_classes):
        super().__init__()
        self.layer = nn.LazyLinear(n_classes)
        self.register_buffer("seen", torch.zeros(0))

    def forward(self, images):
        self.seen = torch.cat([self.seen, images.new_ones(1)])
        return Output(self.layer(images.flatten(1)), "logits")

    def _load_from_state_dict(self, state, prefix, *rest):
        self.seen = torch.zeros_like(state[f"{prefix}seen"])
        super()._load_from_state_dict(state, prefix, *rest)


def test_a_network_of_ones_own_may_take_tensors_of_other_sizes_in_its_own_way(tmp_path):
    with as_before():
        register_model("growing", Growing, image=(1, 4, 4), n_classes=3)
        model = create_model("growing")
        images = torch.rand(2, 1, 4, 4)
        scores = model(images).scores
        found = again(model, tmp_path)
        assert torch.equal(found(images).scores, scores)
        assert len(found.seen) == 2
        model.layer = None
        assert "layer.weight is gone" in text_of(lambda: again(model, tmp_path))


class Counting(nn.Module):
    """Counts its calls under a name that routings have too."""

    def __init__(self, image, n_classes):
        super().__init__()
        self.iterations, self.layer = 0, nn.Linear(16, n_classes)

    def forward(self, images):
        self.iterations += 1
        return Output(self.layer(images.flatten(1)), "logits")


def test_what_a_network_of_ones_own_counts_is_its_own(tmp_path):
    with as_before():
        register_model("counting", Counting, image=(1, 4, 4), n_classes=3)
        model = create_model("counting")
        model(torch.rand(2, 1, 4, 4))
        save(model, tmp_path / "net.safetensors")


class Free(Routing):
    """A routing of one's own without a tensor."""

    def create_parameters(self, *, n_in, n_out, d_out):
        pass

    def forward(self, votes, activation=None, *, keep="none"):
        return uniform_routing(votes, keep=keep)


def test_what_hangs_on_a_network_without_computing_in_it_is_no_change(tmp_path):
    model = create_model("rem_dr", **TINY)
    model.loss = nn.CrossEntropyLoss()
    save(model, tmp_path / "net.safetensors")


def test_layers_that_route_at_once_have_one_count_and_a_file_that_of_their_options(tmp_path):
    model = create_model("tsai_inverted_simple_c10", image=(3, 16, 16))
    for layer in model.layers.values():
        layer.routing.iterations += 1
    said = text_of(lambda: save(model, tmp_path / "net.safetensors"))
    assert "as another network: layers.conv_1.routing.iterations is 3 and was 2; put back" in said


def test_other_iterations_for_one_call_and_another_backend_are_no_change(tmp_path):
    model = create_model("rem_dr", **TINY)
    use_backend(model, "plain")
    model(torch.rand(2, 1, 12, 12), iterations=5)
    save(model, tmp_path / "net.safetensors")


def test_what_a_routing_object_was_told_is_told_again_by_whoever_opens_the_file(tmp_path):
    model = create_model("rem_dr", **TINY, routing=DynamicRouting(iterations=2))
    model.layers["classes"].routing.iterations = 5
    found = again(model, tmp_path, routing=DynamicRouting(iterations=5))
    images = torch.rand(2, 1, 12, 12)
    assert torch.equal(found(images).scores, model(images).scores)


class Remembering(nn.Module):
    """What it keeps beside its weights is whatever it was given."""

    config = nn.Identity  # as some libraries have one: no dictionary

    def __init__(self, kept):
        super().__init__()
        self.layer, self.kept = nn.Linear(2, 2), kept

    def forward(self, images):
        return Output(self.layer(images.flatten(1)), "logits")

    def get_extra_state(self):
        return self.kept

    def set_extra_state(self, state):
        self.kept = state


def test_an_extra_state_that_is_a_tensor_comes_back(tmp_path):
    found = again(Remembering(torch.tensor([3.0])), tmp_path, model=Remembering(None))
    assert float(found.kept) == 3


def test_layers_that_were_tied_by_hand_come_back_with_one_value(tmp_path):
    model = create_model("mitterreiter_5x16", **SMALL)
    model.layers["hidden_3"].weight = model.layers["hidden_2"].weight
    found, images = again(model, tmp_path), torch.rand(2, *SMALL["image"])
    assert torch.equal(found(images).scores, model.eval()(images).scores)


def norms_of(model):
    return [part for part in model.modules() if isinstance(part, nn.BatchNorm2d)]


def test_what_was_set_of_norms_comes_back(tmp_path):
    """docs/porting.md tells people to set ε, and it came back as PyTorch has it."""
    model, path = create_model(NAME, **SMALL).eval(), tmp_path / "net.safetensors"
    images = torch.rand(2, *SMALL["image"])
    before = model(images).scores
    first, *others = norms_of(model)
    first.momentum = None
    for part in (first, *others):
        part.eps = numpy.float64(1e-3)  # as a file of weights has it
    found = again(model, tmp_path)
    assert not torch.equal(model(images).scores, before)
    assert torch.equal(found(images).scores, model(images).scores)
    assert others
    assert norms_of(found)[0].momentum is None
    assert "set by hand" not in found.config
    save(found, tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == path.read_bytes()
    # Other networks that are made of this one have it too, and keep it when they are saved.
    other = load(path)
    other.reset_classes(5)
    for each in (other, load(path, n_classes=5)):
        save(each, tmp_path / "other")
        for one in (each, load(tmp_path / "other")):
            assert {part.eps for part in norms_of(one)} == {1e-3}


def test_a_file_of_before_may_hold_an_epsilon_that_nothing_reads(tmp_path):
    model = create_model("tsai_inverted_simple_c10", image=(1, 13, 13), types=2, d_pose=4).eval()
    header = {**model.config, "set by hand": {"layers.conv_1.routing.norm.eps": 1e-3}}
    found = load(with_header(tmp_path / "net.safetensors", header, model.state_dict()))
    images = torch.rand(2, 1, 13, 13)
    assert torch.equal(found(images).scores, model(images).scores)
    save(found, tmp_path / "again.safetensors")


def test_a_network_with_a_routing_object_is_checked_too(tmp_path):
    model = create_model("rem_dr", **TINY, routing=Free())
    found = again(model, tmp_path, routing=Free())
    for each in (model, copy.deepcopy(model), found):
        each.backbone = None
        said = text_of(lambda each=each: save(each, tmp_path / "net.safetensors"))
        assert "backbone.0.weight is gone" in said


def test_a_network_of_ones_own_that_looks_at_numbers_as_it_is_made_is_saved(tmp_path):
    def build(image, n_classes):
        model = Counting(image, n_classes)
        assert float(model.layer.weight.detach().sum()) < 100
        return model

    with as_before():
        register_model("looking", build, image=(1, 4, 4), n_classes=3)
        model, before = create_model("looking"), torch.get_rng_state()
        save(model, tmp_path / "net.safetensors")
        assert torch.equal(torch.get_rng_state(), before)
        assert_same_weights(load(tmp_path / "net.safetensors"), model)
