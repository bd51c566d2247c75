"""What the pixels of a set are like: the mean and the standard deviation of every channel."""

import torch

from torchcaps.data.batch import Images
from torchcaps.errors import TorchcapsError

# More images tell no more; sets that are made have millions.
MOST = 10_000
AT_ONCE = 100


def channel_statistics(images: Images) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return (means, standard deviations), over the pixels of all images, or of ten thousand from
    all over the set where there are more; `create_model(standardise=)` takes both.

    Arguments:
        images: the set.

    >>> channel_statistics(tc.data.load("part-whole", split="test"))  # doctest: +SKIP
    """
    count = min(len(images), MOST)
    index = torch.linspace(0, len(images) - 1, count, dtype=torch.float64).round().long()
    total = torch.zeros(2, images.image_shape[0], dtype=torch.float64)
    for few in index.split(AT_ONCE):
        pixels = images.batch(few).pixels.double().cpu()
        pixels = pixels.transpose(0, 1).flatten(1)  # [c, b * h * w]
        total += torch.stack([pixels.sum(1), pixels.square().sum(1)])
    _, height, width = images.image_shape
    mean, square = total / (count * height * width)
    std = (square - mean.square()).clamp(min=0).sqrt()
    if bool((std < 1e-6).any()):
        channel = int(std.argmin())
        raise TorchcapsError(
            f"all pixels of channel {channel} of {images.name} are {float(mean[channel]):g}, so "
            f"they cannot be brought to standard deviation 1; leave standardise out, or give "
            f"numbers."
        )
    return tuple(mean.tolist()), tuple(std.tolist())
