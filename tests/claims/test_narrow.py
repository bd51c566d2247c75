"""How many capsules of each layer a record has alive."""

from made_records import record
from torchcaps_claims.narrow import widths_alive


def routed(curves, **options):
    values = {"accuracy": [50.0] * len(next(iter(curves.values())))}
    return record("mitterreiter_grid", "part-whole", values=values, curves=curves, **options)


def test_the_last_epoch_says_how_many_live():
    dead = {
        # Three epochs of two seeds.
        "dead_capsules/primary": [(0.0, 0.0, 0.0), (0.0, 1.0, 1.0)],
        "dead_capsules/hidden_2": [(5.0, 4.0, 3.0), (0.0, 0.0, 0.0)],
        # A layer without a living capsule keeps one.
        "dead_capsules/hidden_3": [(4.0, 4.0, 4.0), (0.0, 2.0, 1.0)],
        # Those of classes are as many as there are classes.
        "dead_capsules/classes": [(1.0, 1.0, 1.0), (1.0, 1.0, 1.0)],
    }
    found = widths_alive(routed(dead, widths="8,6,4"))
    assert found == {0: "8,3,1", 1: "7,6,3"}


def test_widths_that_nobody_wrote_out_are_those_of_the_network():
    layers = ("primary", "hidden_2", "hidden_3", "hidden_4")
    dead = {f"dead_capsules/{layer}": [(float(k),)] for k, layer in enumerate(layers)}
    assert widths_alive(routed(dead)) == {0: "16,15,14,13"}


def test_seeds_that_failed_or_counted_nothing_have_none():
    counted = routed({f"dead_capsules/{x}": [(1.0,)] * 2 for x in ("primary", "hidden_2")})
    assert widths_alive(counted) == {}
    counted = routed(
        {f"dead_capsules/{x}": [(1.0,)] * 2 for x in ("primary", "hidden_2")}, widths="4,4"
    )
    assert widths_alive(counted) == {0: "3,3", 1: "3,3"}
    failed = counted.seeds[0].model_copy(update={"failed": "NaN"})
    assert widths_alive(counted.model_copy(update={"seeds": (failed, counted.seeds[1])})) == {
        1: "3,3"
    }
    epochless = counted.seeds[0].model_copy(update={"per_epoch": ()})
    assert widths_alive(counted.model_copy(update={"seeds": (epochless,)})) == {}
