"""A training step as a CUDA graph, which the GPU repeats without waiting for Python."""

import logging
import os
from collections import Counter
from typing import Any

import torch
from torch import nn

from torchcaps.data import Batch
from torchcaps.train.ranks import Ranks
from torchcaps.train.recipe import Recipe
from torchcaps.train.update import Update

# So many updates are made one operator after the other before a graph is made of the next: they
# choose algorithms, and make what the optimiser remembers.
WARM_UP = 3


def why_not(
    recipe: Recipe, device: torch.device, ranks: Ranks, *, shares_random: bool = False
) -> str:
    """Say why no graph is made of a step: the end of a sentence."""
    if device.type != "cuda":
        return "graphs are for a GPU"
    if ranks.count > 1:
        return "several devices share every batch"
    if recipe.accumulate > 1:
        return "an update goes by several batches"
    if recipe.precision == "float16":
        return "whether an update in float16 counts is decided step by step"
    if recipe.prune == "lobster":
        return "LOBSTER shrinks weights by another number in each epoch"
    if shares_random:
        return "graphs of several runs would draw dropout from one generator"
    if not is_asked_for():
        return "TORCHCAPS_CAPTURE=1 is not in the environment"
    return ""


def is_asked_for() -> bool:
    """Say whether somebody wants graphs, who then is told why there are none."""
    return os.environ.get("TORCHCAPS_CAPTURE") == "1"


def has_dropout(model: nn.Module) -> bool:
    """Say whether a network, or a routing of it, drops something at random."""
    return any(
        isinstance(part, nn.modules.dropout._DropoutNd) or bool(getattr(part, "dropout", 0))
        for part in model.modules()
    )


class Captured:
    """An update that is repeated by graphs, one for batches of one size.

    The first updates by a size are ordinary ones on a stream of their own. What stays between steps
    (weights, what the optimiser remembers, masks, rows of measures) lies outside the graphs, so all
    of them share their memory, and an ordinary step may come at any time.

    >>> step = Captured(Update(model, recipe))
    """

    def __init__(self, update: Update):
        self.update = update
        self.seen: Counter[Any] = Counter()
        self.graphs: dict[Any, tuple[torch.cuda.CUDAGraph, Batch]] = {}
        self.stream = torch.cuda.Stream(update.device)
        self.pool = torch.cuda.graph_pool_handle()
        # Once a capture has failed.
        self.is_off = False

    def __call__(self, batch: Batch, *, images: int | None = None, **whole: Any) -> None:
        """Train on a batch that is an update by itself; arguments as of `Update`."""
        self.update.fill()
        # What decides how a kernel reads them.
        size = tuple(None if each is None else (each.shape, each.stride()) for each in batch)
        self.seen[size] += 1
        if self.seen[size] > WARM_UP and size not in self.graphs and not self.is_off:
            self._capture(size, batch)
        if size in self.graphs:
            graph, there = self.graphs[size]
            for mine, new in zip(there, batch, strict=True):
                if mine is not None and new is not None:
                    mine.copy_(new)
            graph.replay()
        else:
            self._work(batch)
        self.update.worked(len(batch.labels) if images is None else images)

    def _work(self, batch: Batch) -> None:
        here = torch.cuda.current_stream()
        self.stream.wait_stream(here)
        with torch.cuda.stream(self.stream):
            self.update.work(batch)
        here.wait_stream(self.stream)

    def _capture(self, size: Any, batch: Batch) -> None:
        """Make a graph of the step; nothing is computed."""
        there = Batch(*(each if each is None else each.clone() for each in batch))  # type: ignore[arg-type]
        self.update.optimiser.zero_grad()
        graph = torch.cuda.CUDAGraph()
        try:
            # Other threads, which write a state or bring images, may ask the GPU meanwhile.
            mode = "thread_local"
            with torch.cuda.graph(graph, self.pool, self.stream, capture_error_mode=mode):
                self.update.work(there)
        except RuntimeError as error:
            self.is_off = True
            logging.getLogger("torchcaps").warning(
                "no graph could be made of a training step (%s), so Python goes through each",
                str(error).splitlines()[0][:200],
            )
            return
        self.graphs[size] = graph, there
