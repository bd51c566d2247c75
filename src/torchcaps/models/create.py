"""What `create_model` makes of a name: a network that is new, or one that is trained."""

from collections.abc import Sequence
from typing import Any, Literal, overload

from torch import nn

from torchcaps._zoo import PREFIX, zoo_names
from torchcaps.errors import TorchcapsError, nearest, short
from torchcaps.models.files.saving import load
from torchcaps.models.network import CapsuleNetwork
from torchcaps.models.options import check_use
from torchcaps.models.preset import MODELS, NamedNetwork
from torchcaps.models.pretrained import take_weights
from torchcaps.models.registry import make_model


def list_models(*, pretrained: bool = False) -> list[str]:
    """Give the names that `create_model` knows.

    Arguments:
        pretrained: list the trained networks that come with the package instead, each as MODEL.TAG
            of `create_model(MODEL, pretrained=TAG)`.

    >>> "capsnet" in list_models()
    True
    """
    return zoo_names() if pretrained else sorted(MODELS)


# For type checkers, and for editors that complete a name: those that are no `CapsuleNetwork`, and
# the others. A test compares them with `MODELS`; who registers a network has a name beside them.
# fmt: off
Other = Literal[
    "convnet_avg", "convnet_fc", "deepcaps", "efficient_convnet", "gu_convnet_cr",
    "gu_convnet_cr_sf", "gu_convnet_fc_lk", "gu_convnet_r", "linear_on_backbone",
    "rem_deepcaps", "resnet18", "tsai_cnn_c10", "tsai_cnn_c100", "tsai_dmm_cnn",
    "tsai_dmm_cnn_fcpool", "tsai_resnet18_c100",
]
Capsuled = Literal[
    "capsnet", "capsules_on_backbone", "efficient_capsnet", "gamma_capsnet", "gu_aff_capsnet",
    "gu_aff_capsnet_dr", "gu_capsnet", "gu_capsnet_nor", "hahn_sr_convnet", "hahn_sr_resnet20",
    "matrix_capsnet", "matrix_capsnet_mnist", "mhsa_stack", "mitterreiter_5x16",
    "mitterreiter_grid", "peer_deep_dynamic", "peer_deep_em", "peer_sign_dynamic",
    "peer_sign_em", "rem_dr", "rem_eff_cifar", "rem_eff_mnist", "rem_eff_norb", "rem_eff_svhn",
    "rem_effconv", "rem_gamma", "rem_multilayer", "tsai_dmm_matrix", "tsai_dmm_matrix_42m",
    "tsai_dmm_vector", "tsai_dmm_vector_dynamic", "tsai_dynamic_resnet_c10",
    "tsai_dynamic_resnet_c100", "tsai_dynamic_simple_c10", "tsai_dynamic_simple_c100",
    "tsai_em_resnet_c10", "tsai_em_resnet_c100", "tsai_em_simple_c10", "tsai_em_simple_c100",
    "tsai_inverted_resnet_c10", "tsai_inverted_resnet_c100", "tsai_inverted_simple_c10",
    "tsai_inverted_simple_c100", "tsai_inverted_simple_c10_d36", "tsai_inverted_simple_c10_d64",
]
Sizes = tuple[int, int, int] | None
Moments = tuple[Sequence[float], Sequence[float]] | None


@overload
def create_model(
    name: Other, *, pretrained: str | None = None, image: Sizes = None,
    n_classes: int | None = None, standardise: Moments = None, **options: Any,
) -> NamedNetwork: ...
@overload
def create_model(
    name: Capsuled | str, *, pretrained: str | None = None, image: Sizes = None,
    n_classes: int | None = None, standardise: Moments = None, **options: Any,
) -> CapsuleNetwork: ...
# fmt: on
def create_model(
    name: str,
    *,
    pretrained: str | None = None,
    image: tuple[int, int, int] | None = None,
    n_classes: int | None = None,
    standardise: tuple[Sequence[float], Sequence[float]] | None = None,
    **options: Any,
) -> nn.Module:
    """Make a named network for images (channels, height, width), any size, any class count.

    Its `config` attribute holds all that was chosen, and `save` writes it down.

    Arguments:
        name: one that `list_models` lists, or `register_model` was given.
        pretrained: what it was trained on, "mnist" for example; `list_models(pretrained=True)` and
            docs/zoo.md list all. The network comes in evaluation mode, as `load` gives it, and has
            the image and the options that it was trained with. With other `n_classes` what does
            not fit is made new.
        image: (channels, height, width) of the images; those of the paper if not given.
        n_classes: how many classes there are; as many as in the paper if not given.
        options: those of the network; `torchcaps models NAME` explains them. `routing` is a name of
            `layers.ROUTINGS`, or a routing object, which is copied for every layer.
        standardise: (means, standard deviations) of the channels; the network brings its images to
            mean 0 and deviation 1 by itself. Without it it computes with images as they are.

    >>> create_model("capsnet", image=(3, 64, 48), n_classes=7)
    """
    if pretrained is not None:
        given = ("image", image), ("standardise", standardise)
        told = options | {key: value for key, value in given if value is not None}
        return _trained(name, pretrained, n_classes, told)
    if isinstance(name, str) and name in MODELS:
        check_use(MODELS[name], options)
    model = make_model(name, image=image, n_classes=n_classes, standardise=standardise, **options)
    if "weights" in MODELS[name].options:
        take_weights(model)
    return model


def _trained(name: str, tag: object, n_classes: int | None, told: dict[str, Any]) -> nn.Module:
    tags = [each.removeprefix(f"{name}.") for each in zoo_names() if each.startswith(f"{name}.")]
    if tag not in tags:
        known = nearest(str(tag), tags) if tags else "`torchcaps models --pretrained` lists others"
        raise TorchcapsError(f"no {name} trained on {short(tag)} comes with torchcaps; {known}.")
    network = load(f"{PREFIX}{name}.{tag}", n_classes=n_classes)
    config: Any = network.config
    for option, value in told.items():
        had = config.get(option)
        if value != (tuple(had) if isinstance(had, list) else had):
            raise TorchcapsError(
                f"{name} was trained on {tag} with {option}={short(had)}, but {option}="
                f"{short(value)} came; leave {option} out, or leave pretrained out and train it."
            )
    return network
