"""Scores of many images, batch after batch of one size, as fast as the device gives them."""

from contextlib import AbstractContextManager, nullcontext
from typing import Literal

import torch
from torch import Tensor, nn

from torchcaps._checks import check_choice
from torchcaps.errors import TorchcapsError, short
from torchcaps.models.scores import scores_only
from torchcaps.ops.checks import check_tensor

# Calls before a graph is made: they choose algorithms, and lay large kernels out.
WARM_UP = 3


class Fast:
    """Gives the scores [n, n_classes] of images [n, c, h, w], however many they are.

    `apart` says how far, at most, its scores of the batch it was made with lie from the network's.
    """

    def __init__(self, model: nn.Module, batch: Tensor, *, compiled: bool, precision: str):
        self.network = scores_only(model.eval())
        self.device, self.dtype, self.shape = batch.device, batch.dtype, batch.shape
        self.precision = precision
        with torch.inference_mode():
            expected = self.network(batch)
            self.run = torch.compile(self.network) if compiled else self.network
            # Where graphs and what is compiled find images of the one size that they know.
            self.images = batch.clone() if compiled else None
            self.graph: torch.cuda.CUDAGraph | None = None
            if batch.is_cuda:
                self._capture(batch.clone())
        self.apart = float((self(batch) - expected).abs().max())

    def __repr__(self) -> str:
        return f"Fast(batches of {self.shape[0]}, {self.precision}, apart={self.apart:.1e})"

    def __call__(self, images: Tensor) -> Tensor:
        check_tensor("images", images)
        if images.shape[1:] != self.shape[1:] or not len(images):
            raise TorchcapsError(
                f"images must be [n, {', '.join(map(str, self.shape[1:]))}], as those that "
                f"optimise_for_inference was given, but came as {list(images.shape)}."
            )
        if (images.device, images.dtype) != (self.device, self.dtype):
            raise TorchcapsError(
                f"images must be {self.dtype} on {self.device}, as those that "
                f"optimise_for_inference was given, but came as {images.dtype} on {images.device}."
            )
        with torch.inference_mode():
            return torch.cat([self._scores(part) for part in images.split(self.shape[0])])

    def _scores(self, images: Tensor) -> Tensor:
        if self.images is None:
            return self._run(images).float()
        # What the last batch left behind fills a smaller one up.
        self.images[: len(images)].copy_(images)
        if self.graph is None:
            scores = self._run(self.images)
        else:
            self.graph.replay()
            scores = self.scores
        return scores[: len(images)].float().clone()

    def _run(self, images: Tensor) -> Tensor:
        with self._computing():
            scores: Tensor = self.run(images)
            return scores

    def _computing(self) -> AbstractContextManager[object]:
        if self.precision == "float32":
            return nullcontext()
        # What is cast within a graph is cast anew whenever it runs: weights may change.
        return torch.autocast(self.device.type, torch.bfloat16, cache_enabled=self.graph is None)

    def _capture(self, images: Tensor) -> None:
        """Make a graph, which reads its images and leaves its scores at places of its own."""
        self.images = images
        stream = torch.cuda.Stream(self.device)
        stream.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(stream):
            for _ in range(WARM_UP):
                self._run(images)
        torch.cuda.current_stream(self.device).wait_stream(stream)
        self.graph = torch.cuda.CUDAGraph()
        # What other threads ask of the GPU meanwhile is no part of it, and no error.
        with torch.cuda.graph(self.graph, capture_error_mode="thread_local"):
            self.scores = self._run(images)


def optimise_for_inference(
    model: nn.Module,
    batch: Tensor,
    *,
    compiled: bool = False,
    precision: Literal["float32", "bfloat16"] = "float32",
) -> Fast:
    """Prepare a network to score batches of one size: on a GPU as a CUDA graph, which starts
    at once, where Python names kernel after kernel.

    The network is put into evaluation mode. Its weights are shared, and what is loaded into them
    later counts. Any number of images may be scored; the last batch is filled up.

    Arguments:
        model: a network that returns an `Output`, where it is to compute.
        batch: images [b, c, h, w] of the size that batches will have, on the same device.
        compiled: whether torch.compile compiles it first, which takes up to a minute and needs a
            compiler.
        precision: "float32", or "bfloat16" under autocast; see `apart` of what is returned.

    >>> fast = optimise_for_inference(model, images)  # doctest: +SKIP
    >>> fast(images), fast.apart  # doctest: +SKIP
    """
    check_choice("precision", precision, ("float32", "bfloat16"))
    check_tensor("batch", batch)
    if batch.ndim != 4 or not len(batch):
        raise TorchcapsError(
            f"batch must be images [b, c, h, w], at least one, but came as "
            f"{short(list(batch.shape))}."
        )
    return Fast(model, batch, compiled=compiled, precision=precision)
