"""Steps of benchmarks/gpu.py that need PyTorch, each with its numbers as a line of a file.

python benchmarks/gpu_steps.py FILE --device cuda ceilings/copy networks/capsnet ...

Ends with 3 once it has written down an error, for no step after it should meet what that left.
"""

import argparse
import itertools
import multiprocessing
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import torch
from throughput import NETWORKS, images_of

import torchcaps as tc
from gpu import FAILED, Records
from torchcaps.data import Batch
from torchcaps.train import fit, make_recipe
from torchcaps.train.batches import Batches, held_on
from torchcaps.train.captured import WARM_UP, Captured
from torchcaps.train.compiled import COMPILER
from torchcaps.train.fit import initial_model
from torchcaps.train.folder.environment import environment
from torchcaps.train.loss import loss_parts
from torchcaps.train.many import stream_of
from torchcaps.train.optimiser import make_optimiser
from torchcaps.train.update import Update

Found = dict[str, Any]
SHAPES = {name: (shape, batch_size) for name, shape, batch_size in NETWORKS}
PARITY = 20
WAYS = ("eager", "captured")
COMPILED = ("eager", "compiled")
# How networks are trained side by side: the way, and how many.
SIDE_BY_SIDE = [("eager", 1), ("captured", 1), ("eager", 4), ("captured", 4), ("eager", 16)]
SIDE_BY_SIDE += [("captured", 16), ("fit", 8)]
# A round is not begun after so many seconds.
MOST_OF_ROUNDS = 35.0


class Step:
    """The step of `fit`, by images of a few batches that lie on the device: eager, with the loss
    compiled, or as a CUDA graph. A CPU has no graphs; there it is the step itself."""

    def __init__(
        self,
        preset: str,
        device: torch.device,
        batch_size: int,
        *,
        compiled: bool = False,
        captured: bool = False,
        **fields: Any,
    ):
        recipe = make_recipe(model=preset, data="own", batch_size=batch_size, **fields)
        images = held_on(images_of(SHAPES[preset][0], 4 * batch_size), device)
        self.model = initial_model(recipe, images).to(device).train()
        self.update = Update(self.model, recipe)
        if compiled:
            self.update.compile_loss()
        on_gpu = captured and device.type == "cuda"
        self.train = Captured(self.update) if on_gpu else self.update
        self.batches = [
            Batch(*(x.to(device) for x in batch[:2]))
            for batch in Batches(images, batch_size, seed=recipe.seed)
        ]

    def __call__(self, number: int) -> None:
        self.train(self.batches[number % len(self.batches)])

    def loss(self, number: int) -> float:
        """Make one more update, and give its loss."""
        self(number)
        self.update.read()
        loss = self.update.sums.means()["loss"]
        self.update.sums.clear()
        return loss


def parity(one: Step, other: Step) -> Found:
    """How far the losses of as many updates lie apart, as a part of the first's."""
    mine, theirs = (torch.tensor([step.loss(k) for k in range(PARITY)]) for step in (one, other))
    apart = float(((mine - theirs).abs() / mine.abs()).max())
    return {"loss": float(mine[-1]), "apart": apart, "same_bits": bool((mine == theirs).all())}


def wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def rate(call: Callable[[], Any], device: torch.device, least: float) -> float:
    """Calls a second, over at least so many seconds and four calls, warmed up."""
    call()
    wait(device)
    count, began = 0, time.perf_counter()
    while count < 4 or time.perf_counter() - began < least:
        call()
        count += 1
        if count % 16 == 0:  # else a queue of many seconds piles up
            wait(device)
    wait(device)
    return count / (time.perf_counter() - began)


def in_turn(step: "Step | Stacked") -> Callable[[], None]:
    """Updates after those before a capture, one a call."""
    for number in range(WARM_UP + 1):
        step(number)
    left = itertools.count(WARM_UP + 1)
    return lambda: step(next(left))


def host_us(step: Step, device: torch.device, count: int = 40) -> float:
    """Microseconds that Python takes for an update, for which the device need not be done; of fewer
    updates than those after which it is asked what they measured."""
    step.update.read()
    wait(device)
    began = time.perf_counter()
    for number in range(count):
        step(number)
    spent = time.perf_counter() - began
    wait(device)
    return round(1e6 * spent / count, 1)


def matmul(device: torch.device, tiny: bool) -> Found:
    size, found = 256 if tiny else 8192, {}
    torch.backends.cuda.matmul.allow_tf32 = True
    for name, dtype in (("tf32", torch.float32), ("bf16", torch.bfloat16)):
        a, b = (torch.randn(size, size, device=device, dtype=dtype) for _ in range(2))
        out = torch.empty_like(a)
        times = rate(partial(torch.mm, a, b, out=out), device, 0.1 if tiny else 1.0)
        found[f"{name}_tflops"] = round(2 * size**3 * times / 1e12, 3)
    return found


def copy(device: torch.device, tiny: bool) -> Found:
    """Bytes read and bytes written, far more than a cache holds."""
    there = torch.randn(2**20 if tiny else 2**29, device=device)
    here = torch.empty_like(there)
    times = rate(lambda: here.copy_(there), device, 0.1 if tiny else 1.0)
    return {"gb_a_second": round(2 * there.nbytes * times / 1e9, 1)}


def launches(device: torch.device, tiny: bool) -> Found:
    """Time the smallest kernel, from Python and out of a graph of a thousand."""
    x = torch.zeros(1, device=device)

    def some(count: int = 1000) -> None:
        for _ in range(count):
            x.add_(1)

    least = 0.1 if tiny else 1.0
    found = {"eager_a_second": round(1000 * rate(some, device, least))}
    if device.type == "cuda":
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            some()
        found["captured_a_second"] = round(1000 * rate(graph.replay, device, least))
    return found


def network(preset: str, device: torch.device, tiny: bool, *, compiled: bool = False) -> Found:
    """Images a second of the eager step and of the captured one, and how far they lie apart. With
    `compiled`, of the loss compiled, its step as it is and captured."""
    batch_size = 4 if tiny else SHAPES[preset][1]
    made = partial(Step, preset, device, batch_size)
    found: Found = {"batch_size": batch_size}

    def timed(name: str, step: Step) -> None:
        times = rate(in_turn(step), device, 0.0 if tiny else 1.0)
        found[f"{name}_images_a_second"] = round(times * batch_size, 1)

    eager = made()
    if compiled:
        began, step = time.perf_counter(), made(compiled=True)
        found["compiled"] = parity(eager, step)
        found["compiling_seconds"] = round(time.perf_counter() - began, 1)
        timed("compiled", step)
        timed("compiled_captured", made(compiled=True, captured=True))
        return found
    replayed = made(captured=True)
    found["captured"] = parity(eager, replayed)
    timed("eager", eager)
    timed("captured", replayed)
    found["host_us"] = host_us(replayed, device, 4 if tiny else 40)
    # The table of models.layout was measured on processors.
    is_last = eager.update.recipe.channels_last
    other = made(captured=True, channels_last=not is_last)
    timed(f"captured_channels_{'first' if is_last else 'last'}", other)
    images, model = eager.batches[0].pixels, eager.model.eval()
    fast = tc.optimise_for_inference(model, images)
    scores = tc.models.scores_only(model)
    with torch.inference_mode():
        for name, run in (("eager", scores), ("graph", fast)):
            times = rate(partial(run, images), device, 0.0 if tiny else 1.0)
            found[f"predict_{name}_images_a_second"] = round(times * batch_size, 1)
    found["predict_apart"] = fast.apart
    if device.type == "cuda":
        found["peak_mb"] = round(torch.cuda.max_memory_allocated() / 2**20)
    return found


def turns(preset: str, device: torch.device, tiny: bool) -> Found:
    """Seconds of a processor that a step takes, eager and with the loss compiled, in turns."""
    batch_size, found = 4 if tiny else SHAPES[preset][1], {"rounds": 2 if tiny else 7}
    steps = {way: Step(preset, device, batch_size, compiled=way == "compiled") for way in COMPILED}
    seconds: dict[str, list[float]] = {way: [] for way in steps}
    for number in range(1 + found["rounds"]):
        for way, step in steps.items():
            began = time.process_time()
            step(number)
            seconds[way].append(time.process_time() - began)
    medians = {way: statistics.median(of[1:]) for way, of in seconds.items()}
    found |= {f"{way}_seconds": round(median, 4) for way, median in medians.items()}
    first = {f"{way}_first_seconds": round(of[0], 1) for way, of in seconds.items()}
    return {"batch_size": batch_size, **found, **first}


def fitted(preset: str, device: torch.device, tiny: bool, *, ways: tuple[str, ...] = WAYS) -> Found:
    """Images a second of `fit` in its second epoch, and seconds of all of it, by each way."""
    count, (shape, batch_size), found = _images(preset, tiny), SHAPES[preset], {}
    recipe = make_recipe(model=preset, data="own", batch_size=min(batch_size, count), epochs=2)
    own = images_of(shape, count), images_of(shape, count // 10)
    for way in ways if device.type == "cuda" else WAYS[:1]:
        os.environ["TORCHCAPS_CAPTURE"] = str(int(way == "captured"))
        began = time.perf_counter()
        with tempfile.TemporaryDirectory() as folder:
            rows = fit(recipe, folder, own=own).metrics()
        images = count * (1 - recipe.validation_share)
        found[f"{way}_images_a_second"] = round(images / float(rows[-1]["seconds"]), 1)
        found[f"{way}_whole_seconds"] = round(time.perf_counter() - began, 1)
    return found


def _beside(number: int, preset: str, device: str, tiny: bool, gate: Any, told: Any) -> None:
    """One of many processes: in each round it waits for all, and works if it is to. It ends when
    nobody waits any more."""
    on, batch_size = torch.device(device), 4 if tiny else SHAPES[preset][1]
    torch.set_num_threads(1)
    ways = {way: Step(preset, on, batch_size, captured=way == "captured") for way in WAYS}
    with suppress(threading.BrokenBarrierError):
        for way, count in _rounds(tiny):
            gate.wait(120)
            if number < count and way == "fit":
                began = time.perf_counter()
                fitted(preset, on, tiny, ways=WAYS[:1])
                told.put((2 * _images(preset, tiny), time.perf_counter() - began))
            elif number < count:
                told.put((batch_size * rate(in_turn(ways[way]), on, 0.1 if tiny else 2.0), 1.0))
            gate.wait(120)


def _images(preset: str, tiny: bool) -> int:
    """How many images an epoch of `fit` has: the ends of longer ones weigh less."""
    return 64 if tiny else 160 * SHAPES[preset][1]


def _rounds(tiny: bool) -> list[tuple[str, int]]:
    return [("eager", 2), ("fit", 2)] if tiny else SIDE_BY_SIDE


def together(preset: str, device: torch.device, tiny: bool, way: str, count: int) -> Found:
    """Images a second of one process that takes a step of each in turn, as `fit_many` does."""
    batch_size = 4 if tiny else SHAPES[preset][1]
    takes = [
        (in_turn(Step(preset, device, batch_size, captured=way == "captured")), stream_of(device))
        for _ in range(count)
    ]

    def one_of_each() -> None:
        for take, stream in takes:
            with stream():
                take()

    times = rate(one_of_each, device, 0.1 if tiny else 2.0)
    row = {"way": f"{way}, one process", "at_once": count}
    return {**row, "images_a_second": round(times * count * batch_size, 1)}


class Stacked:
    """One step of several networks that differ in their seeds, as one of stacked weights:
    every operator once for all of them, by vmap. `captured` as a CUDA graph."""

    def __init__(self, preset: str, device: torch.device, batch_size: int, count: int):
        steps = [Step(preset, device, batch_size, seed=seed) for seed in range(count)]
        self.models, recipe = [step.model for step in steps], steps[0].update.recipe
        self.weights, self.buffers = torch.func.stack_module_state(self.models)
        of_all = zip(*(step.batches for step in steps), strict=True)
        self.batches = [
            Batch(*(torch.stack([batch[k] for batch in several]) for k in (0, 1)))
            for several in of_all
        ]
        self.pixels, self.labels = (each.clone() for each in self.batches[0][:2])
        self.optimiser = make_optimiser(recipe, self.weights.values())
        shape = self.models[0]

        def loss(weights: Any, buffers: Any, pixels: torch.Tensor, labels: torch.Tensor) -> Any:
            out = torch.func.functional_call(shape, (weights, buffers), (pixels, labels))
            return torch.stack([*loss_parts(recipe, out, Batch(pixels, labels)).values()]).sum()

        self.loss = loss
        self.gradients = torch.func.vmap(torch.func.grad(loss))
        self.graph: torch.cuda.CUDAGraph | None = None

    def apart(self) -> float:
        """How far its gradients lie from those of each network alone, as a part of the largest."""
        here = (self.weights, self.buffers, self.pixels, self.labels)
        of_all, farthest = {n: x.detach() for n, x in self.gradients(*here).items()}, 0.0
        for k, model in enumerate(self.models):
            own = {name: weight.detach() for name, weight in model.named_parameters()}
            its = (own, dict(model.named_buffers()), self.pixels[k], self.labels[k])
            alone = torch.func.grad(self.loss)(*its)
            largest = max(float(each.abs().max()) for each in alone.values())
            most = max(float((of_all[n][k] - each).abs().max()) for n, each in alone.items())
            farthest = max(farthest, most / largest)
        return farthest

    def step(self) -> None:
        found = self.gradients(self.weights, self.buffers, self.pixels, self.labels)
        for name, weight in self.weights.items():
            weight.grad = found[name]
        self.optimiser.step()

    def capture(self) -> None:
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(WARM_UP):
                self.step()
        torch.cuda.current_stream().wait_stream(side)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.step()

    def __call__(self, number: int) -> None:
        pixels, labels = self.batches[number % len(self.batches)][:2]
        self.pixels.copy_(pixels)
        self.labels.copy_(labels)
        self.step() if self.graph is None else self.graph.replay()


def stacked(preset: str, device: torch.device, tiny: bool) -> Found:
    """Images a second of many networks stacked, eager and captured, and how far gradients lie."""
    count, batch_size = 2 if tiny else 16, 4 if tiny else SHAPES[preset][1]
    step = Stacked(preset, device, batch_size, count)
    found: Found = {"at_once": count, "apart": step.apart()}
    for way in WAYS if device.type == "cuda" else WAYS[:1]:
        if way == "captured":
            step.capture()
        times = rate(in_turn(step), device, 0.1 if tiny else 2.0)
        found[f"{way}_images_a_second"] = round(times * count * batch_size, 1)
    return found


def many(preset: str, device: torch.device, tiny: bool) -> Found:
    """Images a second of all networks that share the device, by one process and by many."""
    rows = [
        together(preset, device, tiny, way, count)
        for way, count in ([("eager", 2)] if tiny else [("captured", 16), ("eager", 16)])
    ]
    context = multiprocessing.get_context("spawn")
    rounds, told = _rounds(tiny), context.Queue()
    most = max(count for _, count in rounds)
    gate = context.Barrier(most + 1)
    arguments = (preset, str(device), tiny, gate, told)
    for number in range(most):
        context.Process(target=_beside, args=(number, *arguments), daemon=True).start()
    began = time.perf_counter()
    for way, count in rounds:
        if time.perf_counter() - began > MOST_OF_ROUNDS:
            gate.abort()
            break
        gate.wait(120)
        found = [told.get(timeout=120) for _ in range(count)]
        images, seconds = sum(each[0] for each in found), max(each[1] for each in found)
        rows.append({"way": way, "at_once": count, "images_a_second": round(images / seconds, 1)})
        gate.wait(120)
    return {"together_images_a_second": rows[0]["images_a_second"], "rounds": rows}


PARTS: dict[str, Callable[[str, torch.device, bool], Found]] = {
    "ceilings": lambda name, *how: {"matmul": matmul, "copy": copy, "launches": launches}[name](
        *how
    ),
    "networks": network,
    "compiled": partial(network, compiled=True),
    "turns": turns,
    "fit": fitted,
    "stacked": stacked,
    "many": many,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--device", type=torch.device, required=True)
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("steps", nargs="+")
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.tiny:
        # A rehearsal need not wait for a compiler.
        COMPILER.update(backend="aot_eager", options=None)
    records, parent = Records(given.file, environment), os.getppid()
    for step in given.steps:
        if os.getppid() != parent:
            return  # killed: nobody minds the time any more
        part, _, name = step.partition("/")
        began = time.perf_counter()
        try:
            found = PARTS[part](name, given.device, given.tiny)
        except Exception as error:
            records.add(step, error=f"{type(error).__name__}: {error}"[:2000])
            sys.exit(FAILED)
        records.add(step, **found, seconds=round(time.perf_counter() - began, 1))


if __name__ == "__main__":
    main()
