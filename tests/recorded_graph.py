"""CUDA graphs where there is no GPU: a list of operators, on the tensors where they lay.

As on a GPU, what is captured is not done, a replay reads and writes what the operators of the
capture read and wrote, and it knows no number of Python but those of the capture.
"""

from contextlib import contextmanager, nullcontext
from types import SimpleNamespace

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_leaves

# A GPU would have to tell them to Python; what asks a processor alone (`may_look`) may be told.
READING = (torch.ops.aten._local_scalar_dense.default,)


class Graph(TorchDispatchMode):
    """In place of `torch.cuda.CUDAGraph`."""

    def __init__(self):
        super().__init__()
        self.calls = []
        self.replays = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        # What batch normalisation writes to, PyTorch does not say.
        if func._schema.is_mutable or func is torch.ops.aten.native_batch_norm.default:
            self.before += [(each, each.clone()) for each in tensors((args, kwargs))]
        out = func(*args, **kwargs)
        if func not in READING:
            self.calls.append((func, args, kwargs, out))
        return out

    @contextmanager
    def captured(self):
        self.before = []
        with self:
            yield
        with torch.no_grad():
            for tensor, value in reversed(self.before):
                tensor.copy_(value)
        del self.before

    @torch.no_grad()
    def replay(self):
        self.replays += 1
        for func, args, kwargs, out in self.calls:
            anew = func(*args, **kwargs)
            for there, each in zip(tensors(out), tensors(anew), strict=True):
                # Views, and what is written in place, lie there.
                if there.data_ptr() != each.data_ptr():
                    there.copy_(each)


def tensors(tree):
    return [each for each in tree_leaves(tree) if isinstance(each, Tensor)]


def graphs_on_a_processor(monkeypatch):
    """Have torch.cuda make such graphs; returns the list of those that are made."""
    made, stream = [], SimpleNamespace(wait_stream=lambda other: None)

    def capture(graph, pool=None, stream=None, *, capture_error_mode):
        # Else another thread that asks the GPU anything ends the capture, and itself.
        assert capture_error_mode == "thread_local"
        made.append(graph)
        return graph.captured()

    for name, stand_in in {
        "Stream": lambda device: stream,
        "current_stream": lambda device=None: stream,
        "stream": lambda which: nullcontext(),
        "graph_pool_handle": lambda: None,
        "CUDAGraph": Graph,
        "graph": capture,
    }.items():
        monkeypatch.setattr(torch.cuda, name, stand_in)
    return made


class Recorded(TorchDispatchMode):
    """The operators that were called: names, shapes, strides and numbers."""

    def __init__(self):
        super().__init__()
        self.calls = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        flat, _ = tree_flatten((args, kwargs or {}))
        self.calls.append((str(func), *map(said, flat)))
        return func(*args, **(kwargs or {}))


def said(value):
    if isinstance(value, Tensor):
        return tuple(value.shape), value.stride(), value.dtype, value.device.type
    # What a profiler is told of an optimiser's step differs and is no number.
    return type(value).__name__ if isinstance(value, torch.ScriptObject) else value
