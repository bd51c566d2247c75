"""The decoder of a network, for measurements of what it sees and draws, and what to do without."""

from torch import nn

from torchcaps.errors import TorchcapsError
from torchcaps.layers import Decoder
from torchcaps.models import CapsuleNetwork
from torchcaps.models.own import as_given


def decoder_of(model: nn.Module) -> Decoder:
    """Find the decoder of a network, which draws from units of all classes."""
    network = as_given(model)
    decoder = getattr(network, "decoder", None)
    if not isinstance(decoder, Decoder):
        has = "no decoder" if decoder is None else f"a {type(decoder).__name__}"
        # DeepCaps would get one that draws by convolutions.
        helps = decoder is None and isinstance(network, CapsuleNetwork) and takes_decoder(network)
        or_train = ", or train this one with --option decoder=true" if helps else ""
        raise TorchcapsError(
            f"what a decoder sees is looked at where its layers are fully connected to the "
            f"components of all classes, but this {type(network).__name__} has {has}; take "
            f"another network{or_train}."
        )
    return decoder


def takes_decoder(model: nn.Module) -> bool:
    """Say whether one of its options is a decoder."""
    config = getattr(model, "config", None)
    return isinstance(config, dict) and "decoder" in config
