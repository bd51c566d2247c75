"""Activity, deaths and dynamics by made records: five seeds unless a test is about fewer."""

from functools import partial

import pytest

from made_records import record, word_of
from tables import rows_beside, worked_out
from torchcaps_claims import find_claim
from torchcaps_claims.judges import judge_statement
from torchcaps_claims.viewpoint import STRENGTHS

CASES = rows_beside(__file__, "cases.toml")["mitterreiter"]

word = partial(word_of, "mitt2023-q-")

NET, NOISE = "mitterreiter_5x16", (-0.02, -0.01, 0.0, 0.01, 0.02)
IMAGES = "affnist-style/test"
STOPS = {"stop_at": 0.992}.items()


def net(numbers, *, seeds=5, right=(98.0,) * 5, **options):
    """A record of the network with means by statistic, "dys.2"; every seed has its own noise."""
    values = {
        f"{name}@{IMAGES}": [mean + NOISE[seed] for seed in range(seeds)]
        for name, mean in numbers.items()
    }
    values["accuracy"] = list(right[:seeds])
    return record(
        NET, "expanded-mnist", values=values, fields=STOPS, reduced="seven epochs", **options
    )


@pytest.mark.parametrize(("name", "numbers", "expected"), CASES["one_network"])
def test_one_network(name, numbers, expected):
    assert word(name, net(numbers)) == expected


@pytest.mark.parametrize(
    ("lengths", "rates", "expected"), CASES["the_mean_length_tells_how_many_are_active_at_least"]
)
def test_the_mean_length_tells_how_many_are_active_at_least(lengths, rates, expected):
    """The row sweeps the threshold up to 0.2, and seeds may have been measured at 0.1 alone."""
    values = {f"car.1@{IMAGES}": [1.0] * 5, f"cnm.1@{IMAGES}": lengths, "accuracy": [98.0] * 5}
    records = [record(NET, "expanded-mnist", values=values, fields=STOPS, reduced="seven epochs")]
    if rates:
        values = {f"car_twice.1@{IMAGES}": rates, "accuracy": [98.0] * 4}
        again = record(NET, "expanded-mnist", values=values, fields=STOPS, reduced="seven epochs")
        records.append(again)
    assert word("primecaps-always-active", *records) == expected


KINDS = ("rotation", "translation", "scale", "shear")
TREES = {"distance.different": 0.1, "dyr.2": 0.2, "dyr.3": 0.1}
# What is left of the correlation falls with the strength of the change.
FALLING = {
    f"pearson.{x.name}.{k}": 1 - x.amount / (200 if x.kind == "rotation" else 50)
    for x in STRENGTHS
    for k in range(1, 5)
}
RISING = {name: 2 - left for name, left in FALLING.items() if "shear" in name and name[-1] == "4"}
UNTURNED = {name: left for name, left in FALLING.items() if "180" not in name}
SMALL = {f"pearson.{x}.1": 0.99 for x in ("rotation 20°", "shear 10°", "scale 0.8")}
FAR, COSINE = "pearson.translation 4 px.1", "corr.translation 4 px.1"
ALIKE = {name.replace("pearson", "corr"): 0.999 for name in (*SMALL, FAR)}


@pytest.mark.parametrize(("name", "numbers", "expected"), CASES["moved_images"])
def test_moved_images(name, numbers, expected):
    numbers = worked_out(numbers, globals())
    assert word(name, net(numbers)) == expected


def test_three_seeds_of_a_statement_that_asks_for_five():
    assert word("routing-almost-static", net({"dyr.2": 0.1, "dyr.3": 0.1}, seeds=3)) == "undecided"


def test_the_last_routing_is_more_dynamic_by_rate():
    """By the sum ten classes are held against sixteen capsules."""
    rate, sums = {"dyr.2": 0.2, "dyr.3": 0.2, "dyr.4": 0.38}, {"dys.2": 1, "dys.3": 4, "dys.4": 3}
    assert word("last-layer-more-dynamic", net({**rate, **sums})) == "holds"
    assert word("last-layer-more-dynamic", net({**rate, "dyr.4": 0.1})) == "fails"


@pytest.mark.parametrize(("dead", "expected"), CASES["no_class_is_dead"])
def test_no_class_is_dead(dead, expected):
    values = {f"cds.5@{IMAGES}": dead, f"cds.4@{IMAGES}": [0, 0, 1, 7, 0][: len(dead)]}
    found = record(NET, "expanded-mnist", values=values)
    assert word("output-layer-no-dead", found) == expected


def test_classes_that_live_where_all_do_say_nothing():
    values = {f"cds.{k}@{IMAGES}": [0] * 5 for k in range(1, 6)}
    found = judge_statement(
        find_claim("mitt2023-q-output-layer-no-dead"),
        [record(NET, "expanded-mnist", values=values)],
    )
    assert (found.word, found.would) == ("undecided", None)
    assert found.open_because.startswith("no capsule died")


def test_routing_and_not_depth_kills():
    routed = net({"cdr.2": 0.3, "cdr.3": 0.5, "cdr.4": 0.6})
    alive = net({"cdr.2": 0.01, "cdr.3": 0.0, "cdr.4": 0.01}, routing="uniform")
    dying = net({"cdr.2": 0.01, "cdr.3": 0.3, "cdr.4": 0.01}, routing="uniform")
    dead = net({"cdr.2": 0.3, "cdr.3": 0.5, "cdr.4": 0.9}, routing="uniform")
    assert word("rba-causes-deaths", routed) is None
    assert word("rba-causes-deaths", routed, alive) == "holds"
    assert word("rba-causes-deaths", routed, dying) == "fails"
    assert word("rba-causes-deaths", routed, dead) == "fails"


def test_where_nothing_died_nothing_is_said_of_deaths():
    none = {f"cdr.{k}@{IMAGES}": [0.0] * 5 for k in range(1, 5)}
    routed, uniform = (
        record(NET, "expanded-mnist", values=none, fields=STOPS, reduced="few", routing=routing)
        for routing in ("dynamic", "uniform")
    )
    for name, records in (
        ("dead-increase-with-depth", [routed]),
        ("rba-causes-deaths", [routed, uniform]),
    ):
        found = judge_statement(find_claim(f"mitt2023-q-{name}"), records)
        assert (found.word, found.would) == ("undecided", None)
        assert found.open_because.startswith("no capsule died")


@pytest.mark.parametrize(
    ("attended", "expected"), [(0.1, "holds"), (0.5, "fails"), (0.3, "undecided")]
)
def test_attention_is_to_have_fewer_deaths_than_routing(attended, expected):
    def of(model, rate):
        values = {f"cdr.{k}@{IMAGES}": [rate + n for n in NOISE] for k in range(1, 5)}
        values["accuracy"] = [98.0] * 5
        return record(model, "expanded-mnist", values=values, fields=STOPS, reduced="few")

    routed = of(NET, 0.3)
    assert word("mhsa-no-vanishing", routed) is None
    if attended == 0.3:
        # As many, but for the noise of either.
        values = {f"cdr.{k}@{IMAGES}": [0.3 - n for n in NOISE] for k in range(1, 5)}
        values["accuracy"] = [98.0] * 5
        other = record("mhsa_stack", "expanded-mnist", values=values, fields=STOPS, reduced="few")
    else:
        other = of("mhsa_stack", attended)
    assert word("mhsa-no-vanishing", routed, other) == expected


def test_capsules_do_not_scale_where_they_fall_behind_on_both_harder_sets():
    widths = ("8,8,8", "16,16,16", "16,16,16,16", "16,16,16,16,16", "32,32,32,32", "8,8,8,8")

    def of(model, data, right, **options):
        # The noise of the best network of a set is in its gap.
        values = {"accuracy": [right + (n if model == "convnet_avg" else 0.0) for n in NOISE]}
        fields = {"stop_at": None}.items()
        return record(model, data, values=values, fields=fields, reduced="few", **options)

    def on(data, plain, best):
        """The third of the grid is the best one."""
        grid = [best if k == 2 else best - 5 for k in range(6)]
        return [
            *(
                of("mitterreiter_grid", data, x, widths=w)
                for x, w in zip(grid, widths, strict=True)
            ),
            of("capsnet", data, best - 1),
            of("convnet_avg", data, plain),
        ]

    digits, harder = on("mnist", 99.5, 99.0), on("cifar10", 80.0, 70.0)
    hundred, equal = on("cifar100", 50.0, 30.0), on("cifar100", 30.4, 30.0)
    assert word("does-not-scale", *digits, *harder) is None
    assert word("does-not-scale", *digits, *harder, *hundred) == "holds"
    # A gap of 0.4 points, where it is 0.5 on digits: one set is enough to contradict.
    assert word("does-not-scale", *digits, *harder, *equal) == "fails"
    # One of the grid less, and no best one is known.
    assert word("does-not-scale", *digits, *harder, *hundred[1:]) is None


def test_the_uniform_twin_must_win_on_both_sets():
    def of(data, routing, mean, reduced=None):
        name = "accuracy" if data == "cifar10" else f"accuracy@{IMAGES}"
        values = {name: [mean + n for n in NOISE]}
        fields = {"stop_at": None}.items()
        return record(NET, data, values=values, fields=fields, routing=routing, reduced=reduced)

    def both(data, routed, even, **ours):
        return of(data, "dynamic", routed, **ours), of(data, "uniform", even, **ours)

    digits = both("expanded-mnist", 80.0, 85.0)
    # One set alone can contradict and cannot confirm.
    assert word("uniform-routing-better", *digits) is None
    assert word("uniform-routing-better", *digits, *both("cifar10", 50.0, 55.0)) == "holds"
    assert word("uniform-routing-better", *both("cifar10", 60.0, 55.0)) == "fails"
    # After a few epochs one network is ahead that learns sooner.
    few = *both("expanded-mnist", 80.0, 85.0, reduced="few"), *both("cifar10", 50.0, 55.0)
    assert word("uniform-routing-better", *few) == "undecided"


def test_worse_dynamics_on_colour_are_compared_as_strangers():
    digits = net({f"dyr.{k}": 0.4 for k in range(1, 5)})
    values = {f"dyr.{k}": [0.2 + n for n in NOISE] for k in range(1, 5)}
    colour = record(NET, "cifar10", values=values)
    assert word("cifar10-worse-dynamics", digits, colour) == "holds"
    assert word("cifar10-worse-dynamics", digits) is None


@pytest.mark.parametrize(("last", "expected"), [(0.03, "undecided"), (0.02, "holds")])
def test_dynamics_that_still_rise_are_not_known(last, expected):
    digits = net({f"dyr.{k}": 0.4 for k in range(1, 5)})
    values = {f"dyr.{k}": [0.2 + n for n in NOISE] for k in range(1, 5)}
    curves = {"coupling_std/hidden_2": [(0.01, 0.025, last)] * len(NOISE)}
    colour = record(NET, "cifar10", values=values, curves=curves)
    name = "mitt2023-q-cifar10-worse-dynamics"
    found = judge_statement(find_claim(name), [digits, colour])
    assert (found.word, found.would) == (expected, None)


def grid(n, mean, *, d_pose=8):
    values = {f"dyr.{k}@{IMAGES}": [mean + noise for noise in NOISE] for k in range(1, n)}
    widths = ",".join(["16"] * (n - 1))
    return record(
        "mitterreiter_grid", "expanded-mnist", values=values, widths=widths, d_pose=d_pose
    )


def test_twelve_architectures_of_which_one_may_contradict():
    frozen = [grid(n, 0.1, d_pose=d) for n in (4, 5, 6, 7) for d in (4, 6, 8)]
    assert word("all-affnist-models-similar", *frozen) == "holds"
    assert word("all-affnist-models-similar", *frozen[1:]) is None
    assert word("all-affnist-models-similar", *frozen[1:], grid(4, 0.9, d_pose=4)) == "fails"


@pytest.mark.parametrize(
    ("highest", "expected"), [(0.2, "holds"), (0.8, "fails"), (0.49, "undecided")]
)
def test_few_capsules_are_dedicated_to_a_part_in_any_layer(highest, expected):
    def of(shares, *, more=0.0, **options):
        values = {f"one_part.{k}": [x + n for n in NOISE] for k, x in shares.items()}
        values |= {f"one_part_at_most.{k}": [x + more] * 5 for k, x in shares.items()}
        return record(NET, "part-whole", values=values, **options)

    shares = {1: 0.1, 2: 0.1, 3: highest, 4: 0.1, 5: 0.9}
    name, plenty = "no-dedicated-entity", of(dict.fromkeys(range(1, 5), 0.8), routing="uniform")
    assert word(name, of(shares), plenty) == expected
    # By other thresholds more of them are, or nobody looked.
    if expected == "holds":
        assert word(name, of(shares, more=0.35), plenty) == "undecided"
        once = {f"one_part.{k}": [x + n for n in NOISE] for k, x in shares.items()}
        assert word(name, record(NET, "part-whole", values=once), plenty) == "undecided"
    # Layer 4 had no living capsule, or the network has no routing.
    assert word(name, of({1: 0.1, 2: 0.1, 3: 0.2}), plenty) is None
    assert word(name, plenty) is None


def test_a_measure_that_finds_none_anywhere_shows_nothing():
    """Nought in the network, and nought in the one without routing that it is compared with."""
    none = {f"{x}.{k}": [0.0] * 5 for k in range(1, 5) for x in ("one_part", "one_part_at_most")}
    both = [record(NET, "part-whole", values=none, routing=r) for r in ("dynamic", "uniform")]
    claim = find_claim("mitt2023-q-no-dedicated-entity")
    for records in (both, both[:1]):
        found = judge_statement(claim, records)
        assert found.leaning().word == "undecided"
        assert found.open_because == (
            "without routing there are as few, so the measure may find none anywhere"
        )


LAYERS = ("primary", "hidden_2", "hidden_3", "hidden_4", "classes")


def dying(dead, revived, *, seeds=5, layer="hidden_3"):
    """Deaths and revivals of one layer, epoch by epoch, alike in all seeds; in others nothing."""
    nothing = (0,) * len(dead)
    curves = {
        f"{name}/{each}": [numbers if each == layer else nothing] * seeds
        for name, numbers in (("dead_capsules", dead), ("revivals", revived))
        for each in LAYERS
    }
    values = {"accuracy": [99.0] * seeds}
    return record(NET, "expanded-mnist", values=values, curves=curves, reduced="seven epochs")


@pytest.mark.parametrize(("dead", "revived", "seeds", "expected"), CASES["dead_capsules_stay_dead"])
def test_dead_capsules_stay_dead(dead, revived, seeds, expected):
    found = judge_statement(
        find_claim("mitt2023-q-dead-never-revives"), [dying(dead, revived, seeds=seeds)]
    )
    assert found.word == expected
    events = sum(dead[:-1])
    assert found.ours.mean == pytest.approx(sum(revived) / events if events else 0)
    # A share of none has no interval.
    assert (found.ours.low is None) == (found.open_because is not None) == (not events)


@pytest.mark.parametrize("layer", LAYERS)
def test_capsules_of_every_layer_count(layer):
    assert word("dead-never-revives", dying((40, 39, 39), (0, 1, 1), layer=layer)) == "fails"


def test_rows_without_revivals_say_nothing_of_them():
    curves = {f"dead_capsules/{layer}": [(9, 9, 0)] * 5 for layer in LAYERS}
    old = record(NET, "expanded-mnist", values={"accuracy": [99.0] * 5}, curves=curves)
    assert word("dead-never-revives", old) is None


ARCHITECTURES = [
    (widths, d_pose)
    for widths in ("8,8,8", "16,16,16", "16,16,16,16", "16,16,16,16,16", "32,32,32,32", "8,8,8,8")
    for d_pose in (4, 8)
]


# Of three seeds; none is left where a network has it the other way round.
CENTRED = NOISE[1:4]


def twins(*, gains, keeps, seeds=3, narrow=True):
    """Of each architecture on both sets the routed network, its twin without routing, which gains
    so many points, and the narrow one, which keeps such a share; each with more dead than the one
    before."""
    records = []
    for data in ("expanded-mnist", "cifar10"):
        suffix = "@affnist-style/test" if data == "expanded-mnist" else ""
        for k, ((widths, d_pose), gain) in enumerate(zip(ARCHITECTURES, gains, strict=False)):
            layers = widths.count(",") + 1
            names = ["primary", *(f"hidden_{n}" for n in range(2, layers + 1))]
            dead = {f"dead_capsules/{name}": [(0.0, 1.0)] * seeds for name in names}
            alive = ",".join(str(int(width) - 1) for width in widths.split(","))

            def of(points, rate, noise, layers=layers, d_pose=d_pose, **given):
                right = [70 + points + noise[seed] for seed in range(seeds)]
                values = {"accuracy": right}
                values |= {f"cdr.{n}": [rate] * seeds for n in range(1, layers + 1)}
                return values, {"d_pose": d_pose, **given}

            made = [of(0, 0.05 * k, CENTRED, widths=widths, curves=dead)]
            made.append(of(gain, 0.0, CENTRED, widths=widths, routing="uniform"))
            if narrow:
                made.append(of(keeps * gain, 0.0, CENTRED[::-1], widths=alive, routing="uniform"))
            for values, given in made:
                values = {f"{name}{suffix}": each for name, each in values.items()}
                records.append(
                    record("mitterreiter_grid", data, values=values, reduced="less", **given)
                )
    return records


GAINS = [0.5 + k / 4 for k in range(12)]


@pytest.mark.parametrize(
    ("given", "expected"),
    CASES["deaths_explain_a_gain"],
)
def test_deaths_explain_a_gain_that_goes_with_them_and_is_lost_without_them(given, expected):
    given = worked_out(given, globals())
    assert word("deaths-explain-uniform-gain", *twins(**given)) == expected


@pytest.mark.parametrize("keeps", [0.2, 2.0])
def test_a_gain_that_is_not_there_leans_nowhere(keeps):
    losses = [gain - 9 for gain in GAINS]
    name = "mitt2023-q-deaths-explain-uniform-gain"
    found = judge_statement(find_claim(name), twins(gains=losses, keeps=keeps))
    assert (found.word, found.would) == ("undecided", None)


def test_a_narrow_twin_is_that_of_its_own_seed():
    """Where a seed of the routed network has all alive, its twin without routing is the narrow one,
    and keeps all of the gain."""
    records = twins(gains=GAINS, keeps=0.5)
    first = records[0]
    rows = tuple(dict.fromkeys(row, 0.0) for row in first.seeds[1].per_epoch)
    seeds = (first.seeds[0], first.seeds[1].model_copy(update={"per_epoch": rows}), first.seeds[2])
    records[0] = first.model_copy(update={"seeds": seeds})
    found = judge_statement(find_claim("mitt2023-q-deaths-explain-uniform-gain"), records)
    # One seed of three of one architecture of twelve has half of its gain more than half.
    assert (found.word, found.threshold) == ("undecided", 0)
    assert found.ours.mean == pytest.approx(GAINS[0] / 2 / 12 / 3)
