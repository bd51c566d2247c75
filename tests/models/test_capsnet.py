"""CapsNet: its size as printed and on paper, and the readings its docstring fixes."""

import torch

from torchcaps import create_model


def test_28_pixels_give_1152_primary_capsules():
    with torch.device("meta"):
        model = create_model("capsnet")
    assert model.primary_grid == (6, 6, 32)
    assert model.layers["classes"].n_in == 1152


def test_no_relu_before_the_primary_squash():
    torch.manual_seed(0)
    small = create_model("capsnet", image=(1, 17, 19), n_classes=3)
    pose = small(torch.rand(2, 1, 17, 19), keep="last").trace[0].children.pose
    # A ReLU would leave no negative component; without it about half are.
    assert 0.3 < (pose < 0).double().mean() < 0.7


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
