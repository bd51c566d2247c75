"""Networks that are made without memory, and how many numbers a module learns."""

import torch

from torchcaps import create_model


def created(name, **options):
    with torch.device("meta"):
        return create_model(name, **options)


def size(module):
    return sum(weight.numel() for weight in module.parameters())


def count(name, **options):
    return size(created(name, **options))
