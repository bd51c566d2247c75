"""Accuracies on CIFAR by made records."""

from functools import partial

import pytest

from made_records import record, word_of

word = partial(word_of, "tsai2020-q-")

NOISE = (-0.2, -0.1, 0.0, 0.1, 0.2)


def net(model, mean, *, data="cifar10", loss="auto", **options):
    values = {"accuracy": [mean + n for n in NOISE]}
    return record(model, data, values=values, fields={"loss": loss}.items(), **options)


def swept(routing, slope, **options):
    """One to five iterations, each so much better than the one before."""
    name, loss = f"tsai_{routing}_simple_c10", "spread" if routing == "em" else "auto"
    return [net(name, 80 + slope * t, loss=loss, iterations=t, **options) for t in range(1, 6)]


inverted = partial(swept, "inverted")


@pytest.mark.parametrize(("slope", "expected"), [(0.5, "holds"), (-0.5, "fails")])
def test_more_iterations(slope, expected):
    assert word("perf-increases-with-iterations", *inverted(slope)) == expected
    assert word("perf-increases-with-iterations", *inverted(slope)[1:]) is None


def test_iterations_that_do_nothing():
    name = "tsai_inverted_simple_c10"
    # Of the seeds one half rises and the other falls.
    values = [[80 + sign * t for sign in (1, -1, 1, -1, 0)] for t in range(1, 6)]
    records = [
        record(name, "cifar10", values={"accuracy": each}, iterations=t)
        for t, each in enumerate(values, 1)
    ]
    assert word("perf-increases-with-iterations", *records) == "undecided"


def test_sequential_routing_gains_nothing_by_iterations():
    sequential = inverted(-0.5, schedule="sequential")
    assert word("sequential-no-correlation", *inverted(0.5), *sequential) == "holds"
    rising = inverted(0.3, schedule="sequential")
    assert word("sequential-no-correlation", *inverted(0.5), *rising) == "fails"


def em(values):
    return [
        net("tsai_em_simple_c10", mean, loss="spread", iterations=t)
        for t, mean in enumerate(values, 1)
    ]


def test_two_iterations_of_em_are_best_by_a_point():
    assert word("em-best-at-2", *em([80, 85, 80, 79, 78])) == "holds"
    assert word("em-best-at-2", *em([80, 85, 84.5, 79, 78])) == "undecided"
    assert word("em-best-at-2", *em([80, 85, 86, 79, 78])) == "fails"


def test_as_good_as_a_resnet():
    def resnets(mean):
        return [net("resnet18", mean), net("tsai_resnet18_c100", mean, data="cifar100")]

    ours = [
        net(f"tsai_inverted_resnet_c{n}", 90.0, data=f"cifar{n}") for n in (10, 100)
    ]  # fmt: skip
    assert word("matches-resnet18", *ours, *resnets(90.1)) == "holds"
    assert word("matches-resnet18", *ours, *resnets(92.0)) == "fails"
    # Better by two points is not the same, and is not worse.
    assert word("matches-resnet18", *ours, *resnets(88.0)) == "undecided"


def test_vectors_beat_matrices_in_accuracy_and_their_memory_and_time_stay_open():
    def both(vector, matrix):
        means = (("vector", vector), ("matrix", matrix))
        data = "diverse-multi-mnist"
        return [net(f"tsai_dmm_{kind}", mean, data=data) for kind, mean in means]

    assert word("vector-vs-matrix", *both(85.0, 80.0)) == "undecided"
    assert word("vector-vs-matrix", *both(80.0, 85.0)) == "fails"
    assert word("vector-vs-matrix", *both(80.0, 85.0)[1:]) is None


def test_variance_is_over_seeds_and_iterations():
    ours = inverted(0.1)
    others = [*swept("dynamic", 3), *swept("em", 3)]
    assert word("smallest-variance", *ours, *others) == "holds"
    assert word("smallest-variance", *ours, *swept("dynamic", 3), *swept("em", 0)) == "undecided"
    assert word("smallest-variance", *inverted(6), *others) == "fails"
    assert word("smallest-variance", *ours, *others[1:]) is None


def test_no_other_loss_is_better_on_either_set():
    def losses(cifar, overlaid):
        for name, data, means in (
            ("tsai_inverted_simple_c10", "cifar10", cifar),
            ("tsai_dmm_vector", "diverse-multi-mnist", overlaid),
        ):
            for loss, mean in zip(("auto", "margin", "spread"), means, strict=True):
                yield net(name, mean, data=data, loss=loss)

    assert word("ce-at-least-as-good", *losses((80, 79, 78), (80, 79, 80))) == "holds"
    assert word("ce-at-least-as-good", *losses((80, 79, 78), (80, 79, 80.1))) == "fails"
    assert word("ce-at-least-as-good", *list(losses((80, 79, 78), (80, 79, 78)))[:-1]) is None
