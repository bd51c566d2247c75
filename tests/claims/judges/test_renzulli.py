"""Couplings, entropy, keys and sparsity by made records."""

from functools import partial

import pytest

from made_records import record, word_of
from tables import rows_beside
from torchcaps_claims.claim import find_claim
from torchcaps_claims.judges import judge_statement
from torchcaps_claims.pruned import MATCHED

CASES = rows_beside(__file__, "cases.toml")["renzulli"]

word = partial(word_of, "rem-q-")

NOISE = (-0.2, -0.1, 0.0, 0.1, 0.2)


def leaning(name, *records):
    """Which way networks of a smaller form lean: by what they would decide at size."""
    smaller = [each.model_copy(update={"reduced": "less"}) for each in records]
    found = judge_statement(find_claim(f"rem-q-{name}"), smaller)
    return found.would if found.word == "undecided" else found.word


AT_HAND = ("mnist", "fashion-mnist", "cifar10")


def net(data, numbers, *, model="rem_dr", fields=(), **options):
    values = {name: [mean + n for n in NOISE] for name, mean in numbers.items()}
    if (model, data) == ("rem_dr", "cifar10"):
        options["types"] = 64
    return record(model, data, values=values, fields=fields, **options)


def pruned(data, numbers, *, to=None, way="lobster", **options):
    # Long enough for every ramp.
    fields = {"prune": way, "epochs": 10, **({} if to is None else {"prune_to": to})}
    return net(data, numbers, fields=fields.items(), **options)


@pytest.mark.parametrize(("after", "expected"), [(6.0, "holds"), (9.0, "fails")])
def test_pruning_lowers_the_entropy_everywhere(after, expected):
    dense = [net(data, {"entropy+K11": 8.0}) for data in AT_HAND]
    less = [pruned(data, {"entropy+K11": 6.0}) for data in AT_HAND[:2]]
    last = pruned("cifar10", {"entropy+K11": after})
    assert word("entropy-lower-everywhere", *dense, *less) is None
    every = [*dense, *less, last]
    # A single architecture is not every one.
    alone = "undecided" if expected == "holds" else expected
    assert word("entropy-lower-everywhere", *every) == alone
    of_classes = {
        ("rem_eff_mnist", "mnist"): "K11",
        ("rem_gamma", "mnist"): "K11,6",
        ("rem_deepcaps", "fashion-mnist"): "K11",
        ("rem_eff_cifar", "cifar10"): "K11",
    }
    other = []
    for (model, data), grid in of_classes.items():
        assert word("entropy-lower-everywhere", *every, *other) == alone
        other += [net(data, {f"entropy+{grid}": 8.0}, model=model)]
        other += [pruned(data, {f"entropy+{grid}": 6.0}, model=model)]
    assert word("entropy-lower-everywhere", *every, *other) == expected
    # A cell that was run and whose entropy nobody measured is no reason to leave it out.
    other += [pruned("fashion-mnist", {"accuracy": 80.0}, model="rem_eff_mnist")]
    unmeasured = None if expected == "holds" else expected
    assert word("entropy-lower-everywhere", *every, *other) == unmeasured


@pytest.mark.parametrize(("after", "expected"), [(7.0, "undecided"), (9.0, "fails")])
def test_a_set_that_is_not_at_hand_counts_where_it_was_run(after, expected):
    """Of the architectures that are built for those at hand, three are missing."""
    records = [net(data, {"entropy+K11": 8.0}) for data in AT_HAND]
    records += [pruned(data, {"entropy+K11": 6.0}) for data in AT_HAND]
    records += [
        net("svhn", {"entropy+K11": 8.0}, types=64),
        pruned("svhn", {"entropy+K11": after}, types=64),
        # Whose unpruned network nobody ran.
        pruned("svhn", {"entropy+K11": 99.0}, model="rem_eff_svhn"),
    ]
    assert word("entropy-lower-everywhere", *records) == expected


def test_another_architecture_may_contradict():
    both = [net(data, {"entropy+K11": 8.0}) for data in AT_HAND]
    both += [pruned(data, {"entropy+K11": 6.0}) for data in AT_HAND]
    gamma = [
        net("mnist", {"entropy+K11,6": 2.0}, model="rem_gamma"),
        pruned("mnist", {"entropy+K11,6": 3.0}, model="rem_gamma"),
    ]
    assert word("entropy-lower-everywhere", *both, *gamma) == "fails"


@pytest.mark.parametrize(
    ("accuracy", "sparsity", "expected"),
    [(91.0, 80.0, "holds"), (91.0, 20.0, "undecided"), (89.0, 80.0, "fails")],
)
def test_sparse_at_little_loss(accuracy, sparsity, expected):
    sets = ("fashion-mnist", "cifar10")
    whole = [net(data, {"accuracy": 92.0}) for data in sets]
    less = [pruned(data, {"accuracy+K11": accuracy, "sparsity": sparsity}) for data in sets]
    assert word("negligible-loss", *whole, *less) == expected


def test_a_narrow_network_has_nothing_to_spare():
    sets = ("fashion-mnist", "cifar10")
    whole = [net(data, {"accuracy": 92.0}, width=16) for data in sets]
    less = [pruned(data, {"accuracy+K11": 89.0, "sparsity": 80.0}, width=16) for data in sets]
    assert word("negligible-loss", *whole, *less) is None
    # One that is as wide as the paper's may contradict it alone.
    wide = [net("fashion-mnist", {"accuracy": 92.0}, model="rem_eff_mnist")]
    numbers = {"accuracy+K11": 89.0, "sparsity": 80.0}
    wide += [pruned("fashion-mnist", numbers, model="rem_eff_mnist")]
    assert word("negligible-loss", *whole, *less, *wide) == "fails"


def test_couplings_that_were_even_cannot_become_less_sparse():
    def of(before):
        dense = record("rem_dr", "mnist", values={"small_couplings": [0.0] * 5, "gini": before})
        values = {"small_couplings": [0.0] * 5, "gini": [0.0001] * 5}
        fields = {"prune": "lobster", "epochs": 10}.items()
        return word(
            "sparser-couplings", dense, record("rem_dr", "mnist", values=values, fields=fields)
        )

    assert of([0.009, 0.0091, 0.0092, 0.0093, 0.0094]) == "undecided"
    assert of([0.011, 0.0111, 0.0112, 0.0113, 0.0114]) == "fails"


def couplings(small, gini):
    return {"small_couplings": small, "gini": gini}


@pytest.mark.parametrize(
    ("small", "gini", "expected"), CASES["couplings_are_sparser_by_both_measures"]
)
def test_couplings_are_sparser_by_both_measures(small, gini, expected):
    dense = net("mnist", couplings(0.4, 0.5))
    assert word("sparser-couplings", dense, pruned("mnist", couplings(small, gini))) == expected
    assert word("sparser-couplings", dense) is None
    other = pruned("fashion-mnist", couplings(small, gini))
    assert word("sparser-couplings", dense, other) is None


@pytest.mark.parametrize(("curve", "expected"), CASES["entropy_rises_and_falls_again"])
def test_entropy_rises_and_falls_again(curve, expected):
    curves = {"entropy": [[h + n * e for e, h in enumerate(curve)] for n in NOISE]}
    rem = pruned("mnist", {"entropy+K11": 1.0}, curves=curves)
    assert word("entropy-starts-low", rem) == expected
    # Epochs of a network that is not pruned count no keys.
    assert word("entropy-starts-low", pruned("mnist", {"entropy+K11": 1.0})) is None


@pytest.mark.parametrize(
    ("std", "entropy", "elsewhere", "expected"), CASES["self_attention_collapses_on_cifar"]
)
def test_self_attention_collapses_on_cifar(std, entropy, elsewhere, expected):
    def of(data, model, std, entropy):
        values = {
            "coupling_std.1": [std + n / 100 for n in NOISE],
            "entropy+K11": [entropy + n for n in NOISE],
        }
        return record(model, data, values=values)

    others = [of(data, "rem_eff_mnist", elsewhere, 4.0) for data in AT_HAND[:2]]
    last = of("cifar10", "rem_eff_cifar", std, entropy)
    assert word("selfattention-collapse", *others, last) == expected
    assert word("selfattention-collapse", *others) is None


def test_any_way_of_pruning():
    sets, ways = ("mnist", "cifar10"), ("lobster", "magnitude", "snip", "random_masks")
    dense = [net(data, {"entropy+K11": 8.0}) for data in sets]

    def of(data, entropy, sparsity=80.0, way="random_masks"):
        numbers = {"entropy+K11": entropy, "sparsity": sparsity}
        return pruned(data, numbers, to=0.8, way=way)

    less = [of(data, 6.0, way=way) for data in sets for way in ways]
    assert word("any-pruning", *dense, *less) == "holds"
    noisier = of("cifar10", 9.0)
    assert word("any-pruning", *dense, *less[:-1], noisier) == "fails"
    assert word("any-pruning", *dense, *less[:-1]) is None
    # It was asked for 80 % and ended at 60.
    assert word("any-pruning", *dense, *less[:-1], of("cifar10", 6.0, 60.0)) == "undecided"
    unknown = pruned("cifar10", {"entropy+K11": 6.0}, to=0.8, way="random_masks")
    assert word("any-pruning", *dense, *less[:-1], unknown) == "undecided"


def test_what_lowers_entropy_in_narrow_networks_leans_nowhere():
    """Wider ones of ours have higher entropy after pruning by magnitude; it may still fail."""
    sets, ways = ("mnist", "cifar10"), ("lobster", "magnitude", "snip", "random_masks")

    def of(entropy, width):
        numbers = {"entropy+K11": entropy, "sparsity": 80.0}
        dense = [
            net(data, {"entropy+K11": 8.0}, width=width).model_copy(update={"reduced": "narrow"})
            for data in sets
        ]
        return dense + [
            pruned(data, numbers, to=0.8, way=way, width=width).model_copy(
                update={"reduced": "narrow"}
            )
            for data in sets
            for way in ways
        ]

    def found(*records):
        return judge_statement(find_claim("rem-q-any-pruning"), records)

    assert found(*of(6.0, 128)).word == "holds"
    narrow = found(*of(6.0, 16))
    assert (narrow.word, narrow.would) == ("undecided", None)
    assert "561b2d096632" in narrow.open_because
    assert found(*of(9.0, 16)).word == "fails"


def low_and_high(data, low, high, *, short=0.0):
    """`low` at a sparsity of 20 %; `short` is how far each network ended from what was asked."""
    entropies = {0.1: 8.0, 0.2: low, 0.3: 8.0, 0.8: high, 0.9: high}
    return [
        net(data, {"entropy+K11": 8.0}),
        *(
            pruned(data, {"entropy+K11": h, "sparsity": 100 * to - short}, to=to)
            for to, h in entropies.items()
        ),
    ]


@pytest.mark.parametrize(
    ("low", "high", "short", "expected"), CASES["little_pruning_is_noisy_and_much_is_not"]
)
def test_little_pruning_is_noisy_and_much_is_not(low, high, short, expected):
    records = [*low_and_high("mnist", 9.0, 5.0), *low_and_high("cifar10", low, high, short=short)]
    assert word("low-pruning-noisy", *records) == expected


@pytest.mark.parametrize(("short", "expected"), [(0.0, "fails"), (5.0, None)])
def test_networks_of_another_sparsity_lean_nowhere(short, expected):
    both = (low_and_high(data, 8.0, 9.0, short=short) for data in ("mnist", "cifar10"))
    assert leaning("low-pruning-noisy", *(record for each in both for record in each)) == expected


def test_snip_beside_lobster_at_the_same_sparsity():
    def of(sparsity):
        records = [net(data, {"entropy+K11": 8.0}) for data in ("mnist", "cifar10")]
        for data, entropy in (("mnist", 6.0), ("cifar10", 7.0)):
            snip = {"accuracy+K11": 90.0, "entropy+K11": entropy, "sparsity": 80.0}
            ours = {"accuracy+K11": 95.0, "entropy+K11": 5.0, "sparsity": sparsity}
            records += [pruned(data, snip, to=0.8, way="snip"), pruned(data, ours, to=0.8)]
        return records

    assert word("snip-worse", *of(79.0)) == "holds"
    # LOBSTER kept three times as many weights, which would explain the accuracy.
    assert word("snip-worse", *of(40.0)) == "undecided"


def test_a_robust_network_has_a_low_entropy():
    images = "+K11@affnist-style/test"

    def of(entropy, accuracy, *, stops, **options):
        values = {f"entropy{images}": entropy, f"accuracy{images}": accuracy}
        fields = {"prune": "lobster", "stop_at": 0.9922 if stops else None}
        return net("expanded-mnist", values, fields=fields.items(), **options)

    under = of(9.0, 80.0, stops=True)
    name = "undertrained-high-entropy"
    assert word(name, under, of(7.0, 85.0, stops=False)) == "holds"
    assert word(name, under, of(7.0, 75.0, stops=False)) == "undecided"
    assert word(name, under, of(9.9, 85.0, stops=False)) == "fails"
    # Of the smaller forms the one that stops is the one that is trained for longer.
    for entropy in (7.0, 9.9):
        smaller = [
            of(9.0, 80.0, stops=True, reduced="ten epochs"),
            of(entropy, 85.0, stops=False, reduced="six epochs"),
        ]
        assert word(name, *smaller) == "undecided"
        assert leaning(name, *smaller) is None


def test_masks_of_as_many_weights_are_the_control():
    shares = {data: MATCHED[data] / 100 for data in AT_HAND}

    def masked(entropy, sparsity=80.0, **options):
        values = {"entropy+K11": entropy, "sparsity": sparsity}
        return [
            pruned(data, values, to=to, way=way, **options)
            for data, to in shares.items()
            for way in ("random_masks", "mask_at_the_end")
        ]

    dense = [net(data, {"entropy+K11": 8.0}) for data in AT_HAND]
    less = [pruned(data, {"entropy+K11": 6.0, "sparsity": 80.5}) for data in AT_HAND]
    assert word("entropy-falls-by-pruning", *dense, *less, *masked(7.0)) == "holds"
    assert word("entropy-falls-by-pruning", *dense, *less, *masked(2.0)) == "fails"
    # Masks of more weights are no control.
    assert word("entropy-falls-by-pruning", *dense, *less, *masked(2.0, 85.0)) == "undecided"
    assert leaning("entropy-falls-by-pruning", *dense, *less, *masked(2.0)) == "fails"
    assert leaning("entropy-falls-by-pruning", *dense, *less, *masked(2.0, 85.0)) is None
    # Masks of another network are none.
    assert word("entropy-falls-by-pruning", *dense, *less, *masked(7.0, kernel=5)) is None
