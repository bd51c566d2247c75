"""Means of traces on paper: of all images, of a class, of one image, and what has no mean."""

import pytest
import torch

import torchcaps as tc
from torchcaps.analysis import backtracked, join, lengths, mean_trace
from torchcaps.analysis.trace import last_coupling
from torchcaps.types import Output
from traces import even, network, recoupled

# Two images of class 0 and one of class 1: three children, two parents.
COUPLINGS = torch.tensor(
    [
        [[0.9, 0.1], [0.6, 0.4], [0.2, 0.8]],
        [[0.3, 0.7], [0.6, 0.4], [0.4, 0.6]],
        [[0.0, 1.0], [0.3, 0.7], [0.9, 0.1]],
    ]
)
LENGTHS = {"primary": [[0.2, 0.4, 0.6], [0.4, 0.6, 1.0], [0.9, 0.9, 0.9]]}
SCORES = torch.tensor([[0.9, 0.1], [0.6, 0.2], [0.1, 0.8]])


def answers(some=slice(None), couplings=COUPLINGS):
    lying = {name: values[some] for name, values in LENGTHS.items()}
    return Output(SCORES[some], "lengths", trace=network({"classes": couplings[some]}, lying))


def test_the_tree_of_two_images_on_paper():
    trace = mean_trace(answers(slice(0, 2)))
    (layer,) = trace
    expected = torch.tensor([[[0.6, 0.4], [0.6, 0.4], [0.3, 0.7]]]).double()
    assert torch.allclose(last_coupling(layer), expected, atol=1e-7)
    assert torch.allclose(lengths(layer.children), torch.tensor([[0.3, 0.5, 0.8]]).double())
    # The first child is coupled to class 0 in one image alone, and in the mean.
    assert [backtracked(answers().trace, 0, index=k)[0][0, 0].item() for k in (0, 1)] == [1, 0]
    assert backtracked(trace, 0)[0].nonzero().tolist() == [[0, 0], [1, 0]]
    assert backtracked(trace, 1)[0].nonzero().tolist() == [[2, 1]]
    assert backtracked(trace, range(2))[0].nonzero().tolist() == [[0, 0], [1, 0], [2, 1]]


def test_the_images_of_a_class_are_those_with_this_answer():
    (layer,) = mean_trace([answers()], classes=[1, 0])
    assert torch.equal(last_coupling(layer)[0], COUPLINGS[2].double())
    (first,) = mean_trace([answers(slice(0, 2))])
    assert torch.equal(last_coupling(layer)[1:], last_coupling(first))
    assert torch.equal(layer.children.pose[1:], first.children.pose)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("capsnet", {"width": 8, "types": 2}),
        ("matrix_capsnet_mnist", {"sizes": "8-2-3-3"}),
    ],
)
def test_the_mean_over_one_image_is_its_trace(name, options):
    torch.manual_seed(0)
    model = tc.create_model(name, image=(1, 20, 20), n_classes=4, **options).eval()
    images = torch.rand(3, 1, 20, 20)
    with torch.no_grad():
        outs = [model(image[None], keep="last") for image in images]
    whole = join(out.trace for out in outs)
    for out in outs:
        for mean, layer in zip(mean_trace(out), out.trace, strict=True):
            assert torch.equal(last_coupling(mean), last_coupling(layer))
            assert torch.equal(mean.children.pose, layer.children.pose)
            assert torch.allclose(lengths(mean.routed.parents), lengths(layer.routed.parents))
            assert mean.window == layer.window
    for mean, layer in zip(mean_trace(iter(outs)), whole, strict=True):
        expected = last_coupling(layer).double().mean(0, keepdim=True)
        assert torch.allclose(last_coupling(mean).double(), expected, atol=1e-7)
    edges, alone = backtracked(mean_trace(outs[1]), 2), backtracked(whole, 2, index=1)
    torch.testing.assert_close(edges, alone, rtol=0, atol=0)


def test_no_gradient_is_kept_of_batches_that_a_generator_makes():
    weight = torch.ones((), requires_grad=True)
    made = []

    def outs():
        for _ in range(2):
            made.append(weight * COUPLINGS)
            yield answers()

    mean_trace(outs())
    assert not any(each.requires_grad for each in made)


def test_an_even_split_of_half_precision_leads_nowhere_in_the_mean_either():
    """In bfloat16 a tenth is 0.10009765625."""
    (layer,) = network({"classes": even(3, 4, 10)})
    trace = (recoupled(layer, even(3, 4, 10).bfloat16()),)
    mean = mean_trace(Output(torch.eye(3, 10), "lengths", trace=trace))
    assert not any(bool(edges.any()) for edges in backtracked(mean, range(10)))
