"""What is timed: the table of cases."""

import dataclasses
from dataclasses import dataclass, field
from typing import Any, Literal


@dataclass(frozen=True)
class Case:
    """`book` names an opponent, `preset` and `options` our network, `size` the numbers of an op.
    Without a book the opponent is our network in its plain form."""

    name: str
    task: Literal["op", "train", "infer"]
    batch: int
    book: str
    preset: str = ""
    options: dict[str, Any] = field(default_factory=dict)
    opponent: dict[str, Any] = field(default_factory=dict)
    size: dict[str, int] = field(default_factory=dict)
    image: tuple[int, int, int] = (1, 28, 28)
    n_classes: int = 10
    loss: Literal["margin", "cross_entropy", "spread"] = "margin"
    dtype: Literal["float32", "bfloat16"] = "float32"
    device: Literal["cpu", "cuda"] = "cpu"
    # What elementwise formulas cost in one forward pass, per image: no counter sees them.
    elementwise: float = 0.0


def _networks() -> dict[str, Case]:
    """The networks, each at the size its public code is known at; trained with a batch of 128."""
    cifar, votes = (3, 32, 32), 36 * 72 * 16 + 16 * 144 * 16  # of EM routing, 14×14 maps
    em_work = 16.0 * (votes + 16 * 16 * 10) * (2 * 6 + 2)  # two M-steps and one E-step
    gamma_work = 2048 * 32 * (8 * 2 * 3 + 2 * 8) + 32 * 10 * (16 * 2 * 3 + 2 * 16)
    em_case: dict[str, Any] = {"book": "em", "preset": "matrix_capsnet", "image": (1, 32, 32)}
    em_case |= {"loss": "spread", "elementwise": em_work}
    rem, official = {"detach": True, "decoder": False}, {"official": True}
    window = {"iterations": 2, "variant": "paper", "compete": "window"}
    return {
        case.name: case
        for case in (
            Case("capsnet", "train", 128, "capsnet", "capsnet"),
            Case("rem_dr", "train", 128, "capsnet", "rem_dr", {}, rem),
            Case(
                "inverted-simple",
                "train",
                128,
                "inverted",
                "tsai_inverted_simple_c10",
                image=cifar,
                loss="cross_entropy",
            ),
            Case(
                "inverted-resnet",
                "train",
                128,
                "inverted",
                "tsai_inverted_resnet_c10",
                {},
                {"backbone": "resnet"},
                image=cifar,
                loss="cross_entropy",
            ),
            # The parents of one window compete, as in the public PyTorch code.
            Case("em", "train", 128, options=window, **em_case),
            # The preset's own reading: those of all windows do.
            Case("em-all", "train", 128, options={"iterations": 2}, opponent=official, **em_case),
            Case(
                "gamma",
                "train",
                128,
                "gamma",
                "rem_gamma",
                {"detach": "votes"},
                image=cifar,
                elementwise=gamma_work,
            ),
            Case(
                "deepcaps",
                "train",
                128,
                "deepcaps",
                "rem_deepcaps",
                {"detach": "votes"},
                {"detach": True},
                image=cifar,
            ),
            Case("efficient", "train", 128, "efficient", "efficient_capsnet"),
            Case("resnet18", "train", 128, "", "resnet18", image=cifar, loss="cross_entropy"),
        )
    }


def _all_cases() -> dict[str, Case]:
    standard = {"n_in": 1152, "d_in": 8, "n_out": 10, "d_out": 16, "iterations": 3}
    heavy = standard | {"n_in": 3872, "n_out": 196}
    cases = [
        Case(f"{name}-{kind}", "op", 128, "dynamic_op", opponent={"detach": detach}, size=size)
        for name, size in (("dynamic", standard), ("dynamic-heavy", heavy))
        for kind, detach in (("detach", True), ("full", False))
    ]
    cases += [
        dataclasses.replace(case, name=f"{case.name}-bf16", dtype="bfloat16") for case in cases[:2]
    ]
    networks = _networks()
    sizes = {"inverted-simple": (32, 128), "inverted-resnet": (32,)}
    for name, case in networks.items():
        for batch in sizes.get(name, (128,)):
            train = dataclasses.replace(case, name=f"{name}-train-{batch}", batch=batch)
            cases.append(train)
            if name in ("capsnet", "rem_dr"):
                half = f"{train.name}-bf16"
                cases.append(dataclasses.replace(train, name=half, dtype="bfloat16"))
    for name, case in networks.items():
        for batch in (1, 128):
            infer = dataclasses.replace(
                case, name=f"{name}-infer-{batch}", task="infer", batch=batch
            )
            cases.append(infer)
    return {case.name: case for case in cases}


CASES = _all_cases()

# The smallest images that pass through each network's convolutions, or nearly.
SMALL_SIDES = {"inverted": 16, "em": 18, "deepcaps": 16}


def tiny(case: Case) -> Case:
    """Make a case a hundredth of its size, or near it: to see that it runs, not how fast."""
    if case.task == "op":
        size = case.size | {"n_in": case.size["n_in"] // 10}
        return dataclasses.replace(case, batch=max(1, case.batch // 10), size=size)
    side = SMALL_SIDES.get(case.book, 20)
    # Batch normalisation does not train on one value.
    batch = max(1 if case.task == "infer" else 2, case.batch // 100)
    image = (case.image[0], side, side)
    return dataclasses.replace(case, image=image, batch=batch, elementwise=0.0)
