"""Routings that have their sizes, random parameters, and how results are those of an op."""

import torch

N_IN, N_OUT, D = SIZE = (5, 4, 2)
VOTES = (3, *SIZE)


def bound(routing):
    routing.bind(n_in=N_IN, n_out=N_OUT, d_out=D)
    return routing


def random_parameters(module, std=1 / 3):
    """As after training."""
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.normal_(std=std)
    return module


def assert_equal(routed, op):
    assert op.steps
    torch.testing.assert_close(routed, op, rtol=0, atol=0)
