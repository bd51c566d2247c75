"""The networks of [renzulli2025] as built for each data set, as far as the paper or its public code
says."""

from torchcaps.errors import TorchcapsError, nearest

__all__ = ["system_for"]

FAMILIES = {
    "DR-CapsNet": "rem_dr",
    "γ-CapsNet": "rem_gamma",
    "DeepCaps": "rem_deepcaps",
    "Eff-CapsNet": "rem_eff",
    "Eff-ConvCapsNet": "rem_effconv",
    "multilayer": "rem_multilayer",
}
EFFICIENT = {
    "mnist": "rem_eff_mnist",
    "fashion-mnist": "rem_eff_mnist",
    "svhn": "rem_eff_svhn",
    "cifar10": "rem_eff_cifar",
}
# As public code of Efficient-CapsNet takes them: each camera standardised, brought from 96 × 96 to
# 64 × 64, of which 48 × 48 are shown in other light.
NORB = ":image_size=64x64 :crop=48x48 :standardise=set :augment=light"
COLOUR = ("cifar10", "svhn")
LARGE = ("dogs-vs-cats", "imagenette")


def system_for(family: str, data: str) -> str | None:
    """The line of cells of a family on a data set; None where the family is not built for it."""
    if family not in FAMILIES:
        raise TorchcapsError(f"family {family!r} is unknown; {nearest(family, FAMILIES)}.")
    model = FAMILIES[family]
    is_norb = data.startswith("smallnorb")
    if data in LARGE:
        return f"{model} :image_size=128x128" if model == "rem_effconv" else None
    if model == "rem_effconv":
        # Large enough that classes look at several positions, of which saliency is made.
        return f"{model} :image_size=64x64" if data == "part-whole" else None
    if model == "rem_eff":
        if is_norb:
            return f"rem_eff_norb {NORB}"
        return EFFICIENT.get(data)
    if data == "tiny-imagenet":
        # Features of a frozen ResNet-18 instead of the image, one type of 36 capsules.
        frozen = "rem_dr types=1 trunk=resnet18_imagenet :image_size=224x224"
        return frozen if model == "rem_dr" else None
    if is_norb:
        return f"{model} {NORB}"
    if data in COLOUR and model == "rem_dr":
        # The augmentation of its public code, which names CIFAR alone.
        light = " :augment=flip-light" if data == "cifar10" else ""
        return f"rem_dr types=64 :image_size=24x24{light}"
    if data in COLOUR and model == "rem_deepcaps":
        return "rem_deepcaps :image_size=64x64"
    return model
