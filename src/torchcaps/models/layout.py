"""Which networks train with the channels of their convolutions last, where nobody says otherwise.

Measured on a CPU in float32 with kept memory, by steps of both layouts in turns
(benchmarks/records/layouts.json): those whose training is 1.1 times as fast or more, by
CPU time, and whose prediction is not slower. Less is not worth results that move by rounding. Half
precision stays with the channels first: in bfloat16 a step of DeepCaps takes longer the other way
where the CPU has instructions for it. Without them, as in the record, it takes two thirds; but
there float32 is the faster.
"""

from fnmatch import fnmatchcase
from typing import Literal

# Names of models, or patterns of a family.
FASTER_WITH_CHANNELS_LAST: tuple[str, ...] = (
    "efficient_*",
    "rem_eff_mnist",
    "rem_eff_cifar",
    "rem_eff_svhn",
    "tsai_inverted_*",
    "tsai_dynamic_resnet_*",
    "matrix_capsnet",
)


def is_faster_with_channels_last(
    model: str, precision: Literal["float32", "bfloat16", "float16"]
) -> bool:
    """Say whether the model, a name of MODELS, was found to be."""
    return precision == "float32" and any(
        fnmatchcase(model, pattern) for pattern in FASTER_WITH_CHANNELS_LAST
    )
