"""CapsNet: what its docstring fixes beside its size (sizes.toml) and its options (options.toml)."""

import torch

from torchcaps import create_model


def test_weight_std_scales_the_class_weights_alone():
    def state(weight_std):
        torch.manual_seed(1)
        return create_model(
            "capsnet", image=(1, 17, 17), n_classes=2, weight_std=weight_std
        ).state_dict()

    one, two = state(0.1), state(0.2)
    for name, tensor in one.items():
        factor = 2 if name == "layers.classes.weight" else 1
        torch.testing.assert_close(two[name], factor * tensor, rtol=1e-6, atol=0)
