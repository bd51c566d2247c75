"""What the explorer says is what the network says, whatever is changed in it."""

from dataclasses import replace

import pytest
import torch

from torchcaps.analysis import backtracked, lengths
from torchcaps.analysis.causal import silence
from torchcaps.analysis.trace import capsule_layers
from torchcaps.errors import TorchcapsError
from torchcaps.explore.looking import Looker
from torchcaps.explore.opened import Opened, of_the_zoo, opened
from torchcaps.explore.state import Changed, Shown, State

FIRST = Shown(collection=0, number=0)


@pytest.fixture
def pixels(looker):
    return looker.opened.collections[0].pixels[:1]


def near(found, expected):
    assert found == pytest.approx(expected.flatten().tolist(), abs=2e-5)


def lines(answer, layer):
    (found,) = (each["lines"] for each in answer["links"] if each["name"] == layer)
    return {(i, j): c for i, j, c, _ in found}


def test_scores_lengths_and_couplings_are_those_of_the_network(looker, network, pixels):
    answer = looker.look(State(shown=FIRST))
    with torch.no_grad():
        out = network(pixels, keep="last")
    near(answer["scores"], out.probabilities())
    for row, (name, capsules) in zip(answer["layers"], capsule_layers(out.trace), strict=True):
        assert row["name"] == name
        near(row["length"], lengths(capsules))
    coupling = out.trace[0].routed.steps[-1].coupling[0]
    found = lines(answer, "hidden_2")
    assert len(found) == 16 * 16
    assert found[3, 5] == pytest.approx(float(coupling[3, 5]), abs=1e-4)
    strong = {(i, j) for i, j, _, s in answer["links"][0]["lines"] if s}
    assert strong == {(i, int(coupling[i].argmax())) for i in range(16)}


def test_iterations_levels_and_silence_change_what_the_network_does(looker, network, pixels):
    for changed, asked in (
        (Changed(iterations=7), {"iterations": 7}),
        (Changed(silenced=(("hidden_2", 3), ("hidden_2", 4))), {"hidden_2": silence(3, 4)}),
    ):
        asked = asked if "iterations" in asked else {"intervene": asked}
        answer = looker.look(State(shown=FIRST, changed=changed))
        near(answer["scores"], network(pixels, **asked).probabilities())
        near(answer["before"], network(pixels).probabilities())
    on_a_grid = looker.look(State(shown=FIRST, changed=Changed(levels=3)))
    assert set(lines(on_a_grid, "classes").values()) <= {0, 0.5, 1}


def test_without_routing_every_child_splits_itself_evenly(looker):
    even = Changed(even=("hidden_3", "classes"))
    answer = looker.look(State(shown=FIRST, changed=even, selected=("classes", 2)))
    assert set(lines(answer, "hidden_3").values()) == {0.0625}
    assert set(lines(answer, "classes").values()) == {0.1}
    assert not any(strong for *_, strong in answer["links"][-1]["lines"])
    # Nothing leads to a class that nobody prefers.
    assert answer["lit"]["capsules"]["hidden_4"] == []


def test_a_capsule_lights_up_what_leads_to_it(looker, network, pixels):
    answer = looker.look(State(shown=FIRST, selected=("hidden_3", 6)))
    trace = network(pixels, keep="last").trace
    below, above = backtracked(trace[:2], 6)
    assert answer["lit"]["edges"][1] == [[i, 6] for i in above[:, 6].nonzero().flatten().tolist()]
    assert answer["lit"]["capsules"]["primary"] == below.any(1).nonzero().flatten().tolist()
    coupling = trace[2].routed.steps[-1].coupling[0, 6]
    leaves = answer["lit"]["edges"][2]
    assert leaves == [[6, j] for j in (coupling > 1 / 16 + 1e-6).nonzero().flatten().tolist()]
    assert answer["saliency"].startswith("data:image/png;base64,")


def test_nothing_below_the_capsules_runs_again_for_the_same_image(looker):
    ran = []
    below = looker._below[0]
    hook = below.backbone.register_forward_hook(lambda *_: ran.append(1))
    shown = Shown(collection=0, number=1, turn=0.125)
    for often in range(1, 8):
        looker.look(State(shown=shown, changed=Changed(iterations=often)))
    assert len(ran) == 1
    looker.look(State(shown=shown, selected=("classes", 0)))
    hook.remove()
    # The saliency wants a gradient, and takes a pass of its own.
    assert len(ran) == 2


def test_a_turned_image_is_turned(looker, pixels):
    seen = looker._pixels(0, Shown(collection=0, number=0, turn=90))
    assert torch.allclose(seen, pixels.rot90(-1, (-2, -1)), atol=1e-5)
    seen = looker._pixels(0, Shown(collection=0, number=0, x=0.25, invert=True))
    assert torch.allclose(seen[..., 6:], 1 - pixels[..., :-6], atol=1e-5)


def test_the_true_tree_has_the_parts_of_the_image_in_their_places(looker):
    truth = looker.opened.collections[0].truth
    ideal = looker.images(0)[0]["ideal"]
    assert sum(part["own"] for part in ideal["parts"]) == 3
    assert len(ideal["parts"]) == int((truth.part[0] >= 0).sum())
    x, y, _, radius = truth.pose[0, 0].tolist()
    first = ideal["parts"][0]
    assert (first["x"], first["y"]) == pytest.approx(((x + 0.5) / 24, (y + 0.5) / 24), abs=1e-4)
    assert first["r"] == pytest.approx(radius / 24, abs=1e-4)
    assert ideal["whole"] == looker.opened.collections[0].labels[0]


def test_over_the_images_capsules_have_lengths_and_some_are_dead(looker, network):
    found = looker.over(State(selected=("classes", 4)))
    images = looker.opened.collections[0].pixels
    assert found["images"] == len(images) == 12
    near(found["lengths"], network(images).classes.activation[:, 4])
    assert set(found["dead"]) == {"primary", "hidden_2", "hidden_3", "hidden_4", "classes"}
    assert all(0 <= dyr <= 1 for dyr in found["dyr"].values() if dyr is not None)


def test_windows_lead_from_child_to_parent(looker):
    about = looker.about()["networks"][1]
    assert about["layers"] == ["primary", "conv_1", "conv_2", "classes"]
    assert about["collection"] is None
    assert about["note"].endswith("does not know its data; name it with --data.")
    answer = looker.look(State(network=1, selected=("classes", 1)))
    sizes = [layer["n"] for layer in answer["layers"]]
    for k, link in enumerate(answer["links"]):
        assert link["lines"]
        assert max(i for i, *_ in link["lines"]) < sizes[k]
        assert max(j for _, j, *_ in link["lines"]) < sizes[k + 1]
    assert looker.over(State(network=1)) == {"images": 0}


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ({"network": 7}, "there is no network 7: the explorer has 2"),
        ({"shown": {"collection": 0, "number": 99}}, "there is no image 99"),
        ({"shown": {"picture": "0" * 16}}, "this picture is not held any more"),
        ({"selected": ("hidden_9", 0)}, "no capsule 0 in a layer 'hidden_9'; it has primary with"),
        ({"selected": ("classes", 10)}, "no capsule 10 in a layer 'classes'"),
        ({"changed": {"silenced": [("primary", 16)]}}, "no capsule 16 in a layer 'primary'"),
        ({"changed": {"even": ["top"]}}, "this network has no routed layer 'top'"),
    ],
)
def test_what_is_not_there_is_said(looker, state, words):
    with pytest.raises(TorchcapsError) as said:
        looker.look(State(**state))
    assert words in str(said.value)


def test_nothing_to_look_at_is_said():
    with pytest.raises(TorchcapsError, match="there is no network 0"):
        Looker(Opened((), ())).look(State())


def test_the_networks_that_come_with_torchcaps_open_on_images_that_are_made():
    names = of_the_zoo()
    assert names[0] == "zoo:mitterreiter_5x16.part-whole"
    found = opened(names[:1])
    (network,) = found.networks
    assert (network.label, network.note) == ("mitterreiter_5x16.part-whole", "")
    assert found.collections[network.collection].truth is not None
    # A trained one, which is right about most of the images that are shown.
    looker = Looker(found)
    right = 0
    for number in range(20):
        answer = looker.look(State(shown=Shown(collection=0, number=number)))
        winner = max(range(10), key=answer["scores"].__getitem__)
        right += network.classes[winner] == found.collections[0].labels[number]
    assert right >= 17


def test_pictures_come_along_where_their_licence_allows_it():
    digits, photographs = opened(
        ["zoo:efficient_capsnet.mnist", "zoo:tsai_inverted_simple_c10.cifar10"]
    ).networks
    assert digits.note == "Licence: CC BY-SA 3.0, Yann LeCun and Corinna Cortes."
    assert photographs.collection is None
    assert photographs.note == (
        "No images of cifar10 come with torchcaps (no licence is stated; the author asks to be "
        "cited): draw one, or drop a picture. Started with --data cifar10 --root FOLDER, this page "
        "shows 64 of them."
    )


def test_how_many_images_it_gets_right_is_that_of_the_network_as_it_is_changed():
    looker = Looker(opened(["zoo:efficient_capsnet.mnist"]))
    (collection,) = looker.opened.collections
    assert (collection.name, len(collection.labels)) == ("mnist", 64)
    assert looker.over(State())["right"] >= 62
    # Without its class capsules it says 0 of every image.
    silenced = tuple(("classes", k) for k in range(10))
    changed = looker.over(State(changed=Changed(silenced=silenced)))
    assert changed["right"] == collection.labels.count("0")
    assert changed["right_before"] >= 62
    # Of two objects none is the right answer.
    pairs = replace(collection, labels=("3 and 7",) * 64)
    assert Looker(Opened(looker.opened.networks, (pairs,))).over(State())["right"] is None


def test_the_walk_of_the_page_gives_the_numbers_that_the_documentation_tells():
    tree, twin = "mitterreiter_5x16.part-whole", "mitterreiter_5x16.part-whole-uniform"
    looker = Looker(opened([f"zoo:{tree}", f"zoo:{twin}"]))
    often = looker.over(State(changed=Changed(iterations=10)))
    even = looker.over(State(changed=Changed(even=("hidden_2", "hidden_3", "hidden_4", "classes"))))
    as_trained, other = looker.over(State()), looker.over(State(network=1))
    assert [each["right"] for each in (as_trained, often, even, other)] == [60, 24, 60, 63]
    dyr = [sum(each["dyr"].values()) / 4 for each in (as_trained, often)]
    assert dyr == pytest.approx([0.1, 0.5], abs=0.05)
