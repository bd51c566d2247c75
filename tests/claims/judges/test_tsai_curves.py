"""How training goes by made records: epochs, and iterations chosen on validation images."""

from functools import partial

from made_records import diverged, record, word_of
from torchcaps_claims import find_claim
from torchcaps_claims.judges import judge_and_read, judge_statement

word = partial(word_of, "tsai2020-q-")

NOISE = (-0.2, -0.1, 0.0, 0.1, 0.2)
SIMPLE = "tsai_inverted_simple_c10"
STEPS = {"schedule": "steps", "milestones": (3, 4), "decay": 0.1}


def net(
    mean,
    curve=(0.5, 0.5),
    *,
    model=SIMPLE,
    data="cifar10",
    values=(),
    fields=(),
    spread=1,
    **options,
):
    """Seeds that differ a little in all they measured; a curve is of validation accuracy."""
    means = {"accuracy": mean, **dict(values)}
    values = {name: [middle + spread * n for n in NOISE] for name, middle in means.items()}
    # A hundredth of a point an epoch apart.
    curves = {
        "validation_accuracy": [
            [x + n * 5e-4 * (-1) ** e for e, x in enumerate(curve)] for n in NOISE
        ]
    }
    fields = dict(fields).items()
    return record(model, data, values=values, curves=curves, fields=fields, **options)


def bending(by, *, after=(), **options):
    """Up and down again by as much within the three epochs before the rate drops."""
    return net(60, (0.5, 0.5 + by, 0.5, *after), fields=STEPS.items(), **options)


def test_more_iterations_jitter_before_the_rate_drops():
    assert word("jitters", bending(0.02, iterations=1), bending(0.1, iterations=5)) == "holds"
    assert word("jitters", bending(0.1, iterations=1), bending(0.02, iterations=5)) == "fails"
    # The bend of the drop itself is nobody's jitter.
    late = bending(0.02, iterations=5, after=(0.9, 0.2))
    assert word("jitters", bending(0.1, iterations=1), late) == "fails"
    assert word("jitters", bending(0.1, iterations=1)) is None


def test_larger_poses_jitter_less():
    low = bending(0.1, iterations=5)
    sizes = [bending(0.02, model=f"{SIMPLE}_d{d}", iterations=5) for d in (36, 64)]
    assert word("pose-dim-reduces-jitter", low, *sizes) == "holds"
    more = bending(0.3, model=f"{SIMPLE}_d64", iterations=5)
    assert word("pose-dim-reduces-jitter", low, sizes[0], more) == "fails"
    assert word("pose-dim-reduces-jitter", low, sizes[0]) is None


def without_norm(mean, iterations, **values):
    return net(mean, iterations=iterations, layer_norm=False, values=values.items())


def test_collapse_without_layer_norm():
    normed = [net(80, iterations=t) for t in range(1, 6)]
    bare = [without_norm(40, t) for t in range(1, 5)]
    last = without_norm(10, 5, confidence=-0.5)
    assert word("no-layernorm-collapse", *normed, *bare, last) == "holds"
    # Runs that diverged are at chance.
    fewer = [*bare[:2], diverged(bare[2], 0, 1), bare[3]]
    assert word("no-layernorm-collapse", *normed, *fewer, last) == "holds"
    # Answers that are surer than chance confirm nothing, and contradict nothing.
    assert word("no-layernorm-collapse", *normed, *bare, without_norm(10, 5, confidence=0.9)) == (
        "undecided"
    )
    # One number of iterations at which nothing is lost is enough to contradict.
    assert word("no-layernorm-collapse", normed[0], without_norm(79, 1)) == "fails"
    assert word("no-layernorm-collapse", normed[0], without_norm(60, 1)) is None


def normed(curve, layer_norm, t, mean=60):
    return net(mean, curve, iterations=t, layer_norm=layer_norm)


def test_layer_norm_is_sooner_and_no_less_safe():
    fast, slow = (0.3, 0.7, 0.7, 0.7), (0.3, 0.4, 0.5, 0.5)
    sooner = [normed(fast, True, t) for t in (2, 3)] + [normed(slow, False, t) for t in (2, 3)]
    assert word("layernorm-stabilises", *sooner) == "holds"
    later = [normed(slow, True, t) for t in (2, 3)] + [normed(fast, False, t) for t in (2, 3)]
    assert word("layernorm-stabilises", *later) == "fails"
    # Sooner, but its networks answer at random in the end.
    unsafe = [normed(fast, True, t, mean=10) for t in (2, 3)]
    assert word("layernorm-stabilises", *unsafe, *sooner[2:]) == "undecided"
    assert word("layernorm-stabilises", *sooner[:3]) is None
    # None comes to 60 %, so all take as long: that is no difference.
    never = [normed(slow, norm, t) for norm in (True, False) for t in (2, 3)]
    found = judge_statement(find_claim("tsai2020-q-layernorm-stabilises"), never)
    assert found.leaning("smaller").word == "undecided"
    assert found.open_because == "no network comes to 60 %"


def test_runs_that_diverged_have_collapsed_and_never_arrived():
    fast, slow = (0.3, 0.7, 0.7, 0.7), (0.3, 0.4, 0.5, 0.5)
    name = "layernorm-stabilises"
    with_norm, without = (
        [normed(curve, is_normed, t) for t in (2, 3)]
        for curve, is_normed in ((fast, True), (slow, False))
    )
    # Nothing collapses without the norm, and half of the runs with it.
    unsafe = [diverged(record, 3, 4) for record in with_norm]
    assert word(name, *unsafe, *without) != "holds"
    # Four of five without it diverge, and the fifth is as soon as those with it.
    lost = [diverged(normed(fast, False, t), 0, 1, 2, 3) for t in (2, 3)]
    assert word(name, *with_norm, *lost) == "holds"
    # Nor has one a number of its own where all of them diverge: that they did is what is read.
    gone = [diverged(each, *range(5)) for each in without]
    _, read = judge_and_read(find_claim(f"tsai2020-q-{name}"), [*with_norm, *gone])
    assert {id(each) for each in read} >= {id(each) for each in gone}


def started(start, curve, mean=60):
    return net(mean, curve, start=start)


def test_where_parents_start_hardly_matters():
    fast, slow = (0.58, 0.6, 0.6, 0.6), (0.2, 0.3, 0.58, 0.6)
    zero, learned = started("none", fast), started("learned", fast)
    assert word("zero-init-ok", zero, learned, started("random", slow)) == "holds"
    assert word("zero-init-ok", zero, learned, started("random", slow, mean=55)) == "fails"
    assert word("zero-init-ok", started("none", slow), learned, started("random", fast)) == "fails"
    assert word("zero-init-ok", zero, learned) is None


def overlaid(model, curve):
    return net(80, curve, model=f"tsai_dmm_{model}", data="diverse-multi-mnist")


def test_convergence_by_area_and_time():
    fast, slow = (0.6, 0.8, 0.8), (0.3, 0.5, 0.8)
    pooled = [overlaid(name, slow) for name in ("cnn", "cnn_fcpool")]
    assert word("dmm-converges-better", overlaid("vector", fast), *pooled) == "holds"
    swift = overlaid("cnn", (0.9, 0.9, 0.9))
    assert word("dmm-converges-better", overlaid("vector", fast), swift, pooled[1]) == "fails"
    # More in the mean, and yet later at 75 %.
    late = (0.74, 0.74, 0.9)
    assert (
        word(
            "dmm-converges-better",
            overlaid("vector", late),
            *(overlaid(name, (0.1, 0.76, 0.8)) for name in ("cnn", "cnn_fcpool")),
        )
        == "undecided"
    )
    assert word("dmm-converges-better", overlaid("vector", fast), pooled[0]) is None


def swept(accuracies, chosen, **options):
    """Of five numbers of iterations one is best on validation images."""
    return [
        net(mean, (0.5, 0.9 if t == chosen else 0.6), iterations=t, **options)
        for t, mean in enumerate(accuracies, 1)
    ]


def test_iterations_are_chosen_on_validation_images():
    def four(chosen, accuracies=(70, 75, 60, 60, 99)):
        return [
            each
            for backbone in ("simple", "resnet")
            for n in (10, 100)
            for each in swept(
                accuracies,
                chosen,
                model=f"tsai_inverted_{backbone}_c{n}",
                data=f"cifar{n}",
            )
        ]

    assert word("gain-over-uniform-pass", *four(2)) == "holds"
    # The uniform pass is no number of iterations to choose, also where it is the best of all.
    assert word("gain-over-uniform-pass", *four(1, (70, 65, 60, 60, 60))) == "fails"
    # The best of the test images is not looked at.
    assert word("gain-over-uniform-pass", *four(3)) == "fails"
    assert word("gain-over-uniform-pass", *four(2)[1:]) is None


def test_activations_hurt_each_at_its_best():
    plain = swept((70, 75, 60, 60, 60), 2)
    assert word("activations-hurt", *plain, *swept((70, 72, 90, 1, 1), 2, activations=True)) == (
        "holds"
    )
    assert word("activations-hurt", *plain, *swept((70, 72, 90, 1, 1), 3, activations=True)) == (
        "fails"
    )
    assert word("activations-hurt", *plain) is None


def unrolled(bend, *, spread, schedule):
    return [
        bending(bend, iterations=t, schedule=schedule, spread=spread) for t in (3, 5)
    ]  # fmt: skip


def test_concurrent_routing_is_the_more_stable():
    calm = unrolled(0.02, spread=1, schedule="concurrent")
    name = "concurrent-stabilises"
    assert word(name, *calm, *unrolled(0.1, spread=9, schedule="sequential")) == "holds"
    assert word(name, *calm, *unrolled(0.01, spread=9, schedule="sequential")) == "fails"
    assert word(name, *calm, *unrolled(0.1, spread=0.1, schedule="sequential")) == "fails"
    # As spread out: the seeds do not say that one varies more.
    assert word(name, *calm, *unrolled(0.1, spread=1, schedule="sequential")) == "undecided"
    assert word(name, *calm, *unrolled(0.1, spread=9, schedule="sequential")[1:]) is None


def resting(end, *, falls=True):
    """All networks, whose poses move by so much in the last step, and ten times as much before."""
    course = [end * (10 if (k < 50) == falls else 1) for k in range(1, 50)]
    made = []
    for model in (SIMPLE, "tsai_inverted_resnet_c10"):
        for t in range(2, 6):
            moved = {f"fixed_point_distance.{k}": x for k, x in enumerate([*course, end], 1)}
            made.append(net(60, model=model, values=moved.items(), spread=1e-3, iterations=t))
    return made


def test_poses_come_to_rest():
    assert word("fixed-point", *resting(0.005)) == "holds"
    assert word("fixed-point", *resting(0.2)) == "fails"
    assert word("fixed-point", *resting(0.05)) == "undecided"
    # Near, and no nearer than at first.
    assert word("fixed-point", *resting(0.005, falls=False)) == "undecided"
    assert word("fixed-point", *resting(0.005)[1:]) is None
    # One network that moves on is enough.
    assert word("fixed-point", *resting(0.005)[1:], resting(0.2)[0]) == "fails"
