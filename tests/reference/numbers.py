"""Tensors as nested lists of 0-d tensors and back, and the softmax of such a list."""

import torch


def scalars(tensor):
    """The numbers of a tensor as nested lists of 0-d tensors."""
    numbers = list(tensor.reshape(-1).unbind())
    for size in reversed(tensor.shape[1:]):
        numbers = [numbers[k : k + size] for k in range(0, len(numbers), size)]
    return numbers


def samples(tensor, axes, lead):
    """The numbers of a tensor for every sample, where its last `axes` are those of one sample; what
    has no others is the same for all."""
    own = tensor.shape[tensor.ndim - axes :]
    return scalars(tensor.expand(*lead, *own).reshape(-1, *own))


def shaped(numbers, like, *shape):
    """Nested lists of numbers as a tensor of this shape, also where there are none."""
    flat = list(_flat(numbers))
    return torch.stack(flat).reshape(shape) if flat else like.new_zeros(shape)


def _flat(numbers):
    for each in numbers:
        if isinstance(each, list):
            yield from _flat(each)
        else:
            yield each


def constant(numbers):
    """The same without gradients."""
    if isinstance(numbers, list):
        return [constant(each) for each in numbers]
    return numbers.detach()


def softmax(logits, others=0.0):
    """Shares of numbers, beside which `others` has a share too."""
    exponentials = [torch.exp(x) for x in logits]
    total = sum(exponentials, others)
    return [x / total for x in exponentials]
