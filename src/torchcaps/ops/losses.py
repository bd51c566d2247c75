"""Losses of vector capsule networks.

margin          Σ_k T_k max(0, m⁺ − ‖v_k‖)² + λ (1 − T_k) max(0, ‖v_k‖ − m⁻)²
                [mitterreiter2023] Eq. 3, [gu2021] Eq. 4; m⁺ = 0.9, m⁻ = 0.1, λ = 0.5
reconstruction  Σ_pixels (decoded − image)², weighted by α = 0.0005        [gu2021] §3.1

Departures: none.
Ambiguities: the papers do not say how the batch is reduced; both are means over the batch, so α
keeps its meaning at any batch size. [mitterreiter2023] leaves m⁺, m⁻, λ and α open.
"""

import torch
from torch import Tensor

from torchcaps.errors import TorchcapsError
from torchcaps.ops.checks import check_classes

__all__ = ["margin_loss", "reconstruction_loss"]


def margin_loss(
    lengths: Tensor,
    target: Tensor,
    *,
    m_plus: float = 0.9,
    m_minus: float = 0.1,
    lambda_: float = 0.5,
) -> Tensor:
    """Margin loss of class lengths [b, k], mean over the batch.

    `target` is a class index [b], or a zero-one matrix [b, k] when several classes are present.
    """
    present = _present(lengths, target)
    missing = torch.relu(m_plus - lengths).square()
    surplus = torch.relu(lengths - m_minus).square()
    return (present * missing + lambda_ * (1 - present) * surplus).sum(-1).mean()


def reconstruction_loss(reconstruction: Tensor, image: Tensor) -> Tensor:
    """Squared error summed over the pixels of an image, mean over the batch."""
    if reconstruction.shape != image.shape:
        raise TorchcapsError(
            f"reconstruction and image must have one shape, but have {list(reconstruction.shape)} "
            f"and {list(image.shape)}; was the decoder built for another image size?"
        )
    return (reconstruction - image).square().flatten(1).sum(-1).mean()


def _present(lengths: Tensor, target: Tensor) -> Tensor:
    if lengths.ndim != 2:
        raise TorchcapsError(
            f"lengths must be [batch, class], but came with shape {list(lengths.shape)}."
        )
    if target.shape == lengths.shape:
        return target.to(lengths.dtype)
    if (
        target.shape != lengths.shape[:1]
        or target.is_floating_point()
        or target.dtype == torch.bool
    ):
        raise TorchcapsError(
            f"target must be class indices [{len(lengths)}] of an integer type or a zero-one "
            f"matrix {list(lengths.shape)}, but came as {target.dtype} with shape "
            f"{list(target.shape)}."
        )
    check_classes(target, lengths.shape[1])
    return torch.nn.functional.one_hot(target.long(), lengths.shape[1]).to(lengths.dtype)
