"""Draw the pictures of these pages out of claims, of records, and of theory, in a few seconds.

    python claims/pages/findings/pictures.py

The same claims and records give the same bytes; `make tables` calls it, and a test compares.
"""

import json
import math
import statistics
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import torch

from torchcaps._paths import write_whole
from torchcaps.ops import dynamic_routing, em_routing, margin_loss, squash
from torchcaps.ops.routing.dynamic import Detach
from torchcaps.study import mean_interval, read_records
from torchcaps.study.intervals import Interval
from torchcaps.study.record import Record
from torchcaps_claims import claims, find_claim
from torchcaps_claims.judges.evidence import Evidence
from torchcaps_claims.said import interval
from torchcaps_claims.sizes import parameters_of
from torchcaps_claims.svg import Dot, Line, draw_dots, draw_lines

HERE = Path(__file__).parent
RECORDS = HERE.parents[2] / "benchmarks" / "records"
DRAWS = 20


def pictures() -> Iterator[tuple[str, str]]:
    """Every picture by the name of its file."""
    yield "bias-of-em.svg", bias_of_em()
    yield "living-targets.svg", living_targets()
    yield "lengths-and-dyr.svg", lengths_and_dyr()
    yield "gradient-and-magnitude.svg", gradient_and_magnitude()
    yield "initial-scale.svg", initial_scale()
    yield "variants-of-em.svg", variants_of_em()
    yield "tables-against-text.svg", tables_against_text()
    yield "equation-9.svg", equation_9()
    yield "scoring-rules.svg", scoring_rules()
    yield "compactness-by-chance.svg", compactness_by_chance()
    yield "odd-bias.svg", odd_bias()
    yield "chosen-levels.svg", chosen_levels()
    yield "iterations-and-trees.svg", iterations_and_trees()
    yield "opposite-gradients.svg", opposite_gradients()
    yield "late-signs.svg", late_signs()
    yield "own-weights.svg", own_weights()
    yield "doubtful-numbers.svg", doubtful_numbers()
    yield "more-trees-than-images.svg", more_trees_than_images()
    yield "sizes.svg", sizes()
    yield "no-routing.svg", no_routing()
    yield "three-sums.svg", three_sums()
    yield "what-entropy-measures.svg", what_entropy_measures()
    yield "scale-and-ablations.svg", scale_and_ablations()
    yield "soft-routing.svg", soft_routing()
    yield "first-weights.svg", first_weights()


def bias_of_em() -> str:
    """The largest change of an activation when all poses are negated, a bias on the first votes."""
    rows = []
    for variant in ("paper", "gritzman", "official"):
        for layers in (1, 2):
            changes = [_change(variant, layers, seed) for seed in range(DRAWS)]
            low, mean, high = min(changes), statistics.fmean(changes), max(changes)
            name = f"{variant}, {layers} layer{'s' * (layers > 1)}"
            rows.append(Dot(name, mean, low, high, f"{mean:.2f}"))
    return draw_dots(rows, label="largest change of an activation", low=0.0, high=0.4)


def _change(variant: str, layers: int, seed: int) -> float:
    draw = torch.Generator().manual_seed(seed)
    sizes = ((9, 4), (7, 5), (6, 3))
    pose = torch.randn(9, 4, generator=draw, dtype=torch.float64)
    active = torch.rand(9, generator=draw, dtype=torch.float64)
    states = [(sign * pose, active) for sign in (1, -1)]
    beta_a = pose.new_tensor(1e-3 if variant == "official" else 1.0)
    lambda_ = 0.02 if variant == "gritzman" else 1.0
    for depth in range(layers):
        (n_in, d_in), (n_out, d_out) = sizes[depth : depth + 2]
        weight = torch.randn(n_in, n_out, d_out, d_in, generator=draw, dtype=torch.float64)
        bias = torch.linspace(-3, 3, n_out * d_out, dtype=torch.float64).view(n_out, d_out)
        routed = []
        for child, activation in states:
            votes = torch.einsum("ijde,ie->ijd", weight, child) + (bias if depth == 0 else 0)
            routed.append(
                em_routing(
                    votes,
                    activation,
                    beta_a=beta_a,
                    beta_u=pose.new_tensor(0.5),
                    variant=variant,
                    lambda_=lambda_,
                ).parents
            )
        states = [(each.pose, each.activation) for each in routed]
    change = (states[0][1] - states[1][1]).abs().max().item()
    # What is left of rounding is nothing.
    return round(change, 6)


def living_targets() -> str:
    """dys / dyr of Table 1, the number of targets it counts, beside those alive above."""
    above = ("layer2", "layer3", "layer4", "layeroutput")
    lines: dict[str, list[tuple[float, float]]] = {"dys / dyr": [], "alive": [], "all": []}
    for number, layer in enumerate(above, 1):
        sum_, rate = (_number(f"mitt2023-t1-layer{number}-{name}") for name in ("dys", "dyr"))
        lines["dys / dyr"].append((number, sum_ / rate))
        lines["alive"].append((number, _number(f"mitt2023-t1-{layer}-capsules-alive")))
        lines["all"].append((number, 10 if layer == "layeroutput" else 16))
    named = [Line(name, points) for name, points in lines.items()]
    return draw_lines(named, x_label="routing", y_label="target capsules")


def lengths_and_dyr() -> str:
    """Dyr by the length of primary capsules: as they are, which stands alone, and at one length."""
    lines = []
    for data, says in (("cifar10", "CIFAR-10"), ("expanded-mnist", "moved digits")):
        looks = dyr_by_length(data)
        # Rounded, since the ends of the axes say their numbers.
        points = [
            (round(statistics.fmean(x[0] for x in y), 2), round(_dyr(y).mean, 3))
            for y in looks.values()
        ]
        lines += [Line(says, points[1:]), Line(f"{says}, as it is", points[:1])]
    return draw_lines(lines, x_label="length of primary capsules", y_label="dyr")


def dyr_by_length(data: str) -> dict[str, list[tuple[float, float, float]]]:
    """The length, mean dyr and accuracy of each seed, by what its lengths were set to."""
    found = json.loads((RECORDS / "lengths.json").read_text())["networks"]
    looks = [each["looks"] for each in found if each["data"] == data]
    return {
        name: [
            (x[name]["length"], statistics.fmean(x[name]["dyr"]), x[name]["accuracy"])
            for x in looks
        ]
        for name in looks[0]
    }


def _dyr(seeds: list[tuple[float, float, float]]) -> Interval:
    return mean_interval([dyr for _, dyr, _ in seeds])


def gradient_and_magnitude() -> str:
    """The norm of Theorem 1's gradient of the target class: 2 (0.9 − ‖u‖)."""
    line = Line("target class", [(k / 10, 2 * (0.9 - k / 10)) for k in range(10)])
    return draw_lines([line], x_label="length of the capsule", y_label="norm of the gradient")


def initial_scale() -> str:
    """Ten layers of dynamic routing on small digits, by how they begin."""
    runs = json.loads((RECORDS / "balanced_init.json").read_text(encoding="utf-8"))["runs"]
    rows = []
    for key, says in (("weight_std", "W ~ N(0, {}²)"), ("target", "balanced to length {}")):
        chosen = [r for r in runs if (r["routing"], r["squash"]) == ("dynamic", "exp") and key in r]
        for value in sorted({run[key] for run in chosen}):
            right = [100 * run["accuracy"][-1] for run in chosen if run[key] == value]
            found = mean_interval(right)
            rows.append(Dot(says.format(f"{value:g}"), *found[:3], f"{found.mean:.1f} %"))
    return draw_dots(rows, label="accuracy after three epochs, %", low=0, high=100, mark=10)


def variants_of_em() -> str:
    """By what the change of a pose grows through eight layers, as a power of ten."""
    found = json.loads((RECORDS / "em_depth.json").read_text(encoding="utf-8"))["rows"]
    rows = []
    for variant in ("paper", "gritzman"):
        for iterations in (1, 2, 3):
            last = [
                torch.tensor(row["change"][-1], dtype=torch.float64).log10().item()
                for row in found
                if (row["variant"], row["iterations"]) == (variant, iterations)
            ]
            name = f"{variant}, {iterations} iteration{'s' * (iterations > 1)}"
            interval = mean_interval(last)
            rows.append(Dot(name, *interval[:3], f"{interval.mean:.1f}"))
    label = "log10 of the change in the last layer over that in the input"
    return draw_dots(rows, label=label, low=-5, high=3, mark=0)


def tables_against_text() -> str:
    """Accuracy on affNIST by kernel, [gu2021] Table 3."""
    kernels = {
        "convnet-avg": (3, 5, 7, 9, 11),
        "capsnet": (3, 5, 7, 9, 11),
        "convnet-fc": (3, 5, 7),
    }
    lines = [
        Line(name, [(k, _number(f"gu2021-t3-{name}-k{k}-aff")) for k in sizes])
        for name, sizes in kernels.items()
    ]
    return draw_lines(lines, x_label="kernel", y_label="accuracy on affNIST, %")


def equation_9() -> str:
    """What Eq. 9 leaves out of the gradient of a vote, as a share of its norm."""
    rows = []
    for detach, says in (("states", "constant states"), ("none", "full graph")):
        for iterations in (2, 3, 4):
            shares = [_left_out(detach, iterations, seed) for seed in range(DRAWS)]
            low, mean, high = min(shares), statistics.fmean(shares), max(shares)
            rows.append(Dot(f"{says}, {iterations} iterations", mean, low, high, f"{mean:.2f}"))
    return draw_dots(rows, label="share of the gradient that is left out", low=0.0, high=1.0)


def _left_out(detach: Detach, iterations: int, seed: int) -> float:
    draw = torch.Generator().manual_seed(seed)
    votes = torch.randn(6, 4, 3, generator=draw, dtype=torch.float64, requires_grad=True)
    target = torch.tensor([1])
    routed = dynamic_routing(votes, iterations=iterations, detach=detach, keep="steps")
    length = routed.parents.activation
    assert length is not None
    (whole,) = torch.autograd.grad(margin_loss(length[None], target), votes)
    c, u_hat = routed.steps[-1].coupling.detach(), votes.detach()
    s = torch.einsum("ij,ijd->jd", c, u_hat).requires_grad_()
    (by_s,) = torch.autograd.grad(margin_loss(squash(s).norm(dim=-1)[None], target), s)
    earlier = sum(step.parents.pose.detach() for step in routed.steps[:-1])
    # ⟨∂L/∂s_m, û_im⟩ through the softmax of child i, and from its logit j to the vote.
    by_coupling = torch.einsum("md,imd->im", by_s, u_hat)
    by_logit = c * (by_coupling - (c * by_coupling).sum(-1, keepdim=True))
    printed = by_s * c.unsqueeze(-1) + by_logit.unsqueeze(-1) * earlier
    # What is left of rounding is nothing.
    return round(((whole - printed).norm() / whole.norm()).item(), 4)


def scoring_rules() -> str:
    """Ten independent detectors with logits N(±m, 1), two digits there: all ten right, or the two
    highest."""
    x = torch.linspace(-12, 12, 4801, dtype=torch.float64)
    # How the highest of the eight others is distributed about −m.
    density = 8 * torch.exp(-(x**2) / 2) / (2 * torch.pi) ** 0.5 * torch.special.ndtr(x) ** 7
    margins = [each / 4 for each in range(1, 13)]
    by_top = [
        float(torch.trapezoid(density * torch.special.ndtr(2 * m - x) ** 2, x)) for m in margins
    ]
    by_set = [
        float(torch.special.ndtr(torch.tensor(m, dtype=torch.float64))) ** 10 for m in margins
    ]
    lines = [
        Line(label, [(m, round(100 * right, 2)) for m, right in zip(margins, found, strict=True)])
        for label, found in (("the two highest", by_top), ("the set", by_set))
    ]
    return draw_lines(lines, x_label="mean logit m of a detector", y_label="right, %")


def _number(claim: str) -> float:
    value = find_claim(claim).value
    assert isinstance(value, int | float)
    return float(value)


def main() -> None:
    for name, picture in pictures():
        write_whole(HERE / name, picture)
        print(HERE / name)


def compactness_by_chance() -> str:
    """What Table 5 prints, from the lowest to the highest factor; the line is what independent
    components have with nine images."""
    rows = []
    factors = ("rotation", "trans-x", "trans-y", "scale", "shear-x", "shear-y")
    for name in ("convnet-r", "convnet-cr", "convnet-cr-sf", "capsnet"):
        printed = [_number(f"gu2021-t5-{name}-{factor}") for factor in factors]
        mean = statistics.fmean(printed)
        rows.append(Dot(f"{name}, printed", mean, min(printed), max(printed), f"{mean:.4f}"))
    return draw_dots(rows, label="score", low=0, high=0.35, mark=0.112)


def odd_bias() -> str:
    """Four and five capsule layers without a bias, with larger weights, with a bias that cannot
    tell signs, and with the paper's."""
    records = read_records(HERE.parents[2] / "evidence").values()
    claim = find_claim("peer2022-q-depth-rba-nobias")
    evidence = Evidence(claim, (x for x in records if x.recipe.get("data") == "mnist"))
    rows = []
    for n in (4, 5):
        for says, options in (
            ("no bias", {"bias": "none"}),
            ("no bias, W ~ N(0, 1)", {"bias": "none", "weight_std": 1.0}),
            ("no bias, W ~ N(0, 1.5²)", {"bias": "none", "weight_std": 1.5}),
            ("odd bias", {"bias": "odd"}),
            ("bias", {"bias": "added"}),
        ):
            values = evidence.values(
                "accuracy", "peer_deep_dynamic", n_layers=n, width=32, **options
            )
            if values:
                found = mean_interval([*values.values()])
                name = f"{n} layers, {says}, n = {found.n}"
                rows.append(Dot(name, *found[:3], f"{found.mean:.1f} %"))
    return draw_dots(rows, label="accuracy on MNIST, %", low=0, high=100, mark=10)


def chosen_levels() -> str:
    """Networks of 32 channels, their entropy on the levels that the rule chose and on 11."""
    records = read_records(HERE.parents[2] / "evidence", study="renzulli2025/pruned_trees")
    named = {"mnist": "MNIST", "fashion-mnist": "Fashion-MNIST"}
    strong = {3.4e-3: "lobster × 3"}
    found = {
        (
            each.recipe["data"],
            strong.get(each.recipe["prune_shrink"], each.recipe["prune"] or "unpruned"),
        ): each
        for each in records.values()
        if each.recipe["options"]["width"] == 32 and each.recipe["precision"] == "bfloat16"
    }
    rows = []
    for (data, way), record in sorted(found.items(), key=lambda item: (item[0][0], item[0][1])):
        chosen = [f"{seed.values['chosen_levels']:g}" for seed in record.seeds]
        for says, name in (
            (", ".join(chosen), "entropy_at_chosen_levels"),
            ("11", "entropy+K11"),
        ):
            bits = [seed.values[name] for seed in record.seeds]
            mean = statistics.fmean(bits)
            label = f"{named[data]}, {way}, K = {says}"
            rows.append(Dot(label, mean, min(bits), max(bits), f"{mean:.2f}"))
    return draw_dots(rows, label="entropy, bit", low=0, high=10, mark=9.97)


def iterations_and_trees() -> str:
    """Entropy of DR-CapsNet by how often it routes."""
    records = read_records(HERE.parents[2] / "evidence", study="trees-by-iterations").values()
    # A record leaves out three, which is what the network does unasked.
    by_count = {record.recipe["options"].get("iterations", 3): record for record in records}
    rows = []
    for count, record in sorted(by_count.items()):
        found = mean_interval(record.values("entropy+K11"))
        name = f"{count} iteration{'s' * (count > 1)}"
        rows.append(Dot(name, found.mean, found.low, found.high, f"{found.mean:.1f}"))
    return draw_dots(rows, label="entropy on eleven levels, bit", low=0, high=10, mark=9.97)


def opposite_gradients() -> str:
    """The cosine of the gradients of x and −x, of networks that learn signs."""
    claim = find_claim("peer2022-q-gradient-cancellation")
    records = read_records(HERE.parents[2] / "evidence", study=f"peer2022/{claim.id}").values()
    evidence = Evidence(claim, records)
    rows = []
    for model, routing, biases in (
        ("peer_sign_dynamic", "dynamic", ("none", "added")),
        ("peer_sign_em", "EM", (False, True)),
    ):
        for bias, says in zip(biases, ("no bias", "bias"), strict=True):
            for name, when in (("_at_start", "before training"), ("", "after 50 epochs")):
                cosine = f"cancellation_cosine{name}"
                values = evidence.values(cosine, model, bias=bias, loss="margin")
                found = mean_interval([*values.values()])
                label = f"{routing}, {says}, {when}, n = {found.n}"
                rows.append(Dot(label, *found[:3], f"{found.mean:.2f}"))
    return draw_dots(rows, label="cosine of the two gradients", low=-1, high=1, mark=0)


def own_weights() -> str:
    """The slope of log ‖∂L/∂W‖ against the log of the length of a child that W processes."""
    rows = []
    for own in (True, False):
        for softmax in ("parents", "children"):
            found = [_slope(softmax, own, seed) for seed in range(5)]
            label = f"{'own' if own else 'shared'} weights, softmax over {softmax}"
            mean = statistics.fmean(found)
            rows.append(Dot(label, mean, min(found), max(found), f"{round(mean, 2) + 0:.2f}"))
    return draw_dots(rows, label="slope of the gradient's norm", low=-0.2, high=1.2, mark=0.5)


def _slope(softmax: str, own: bool, seed: int) -> float:
    """Of two layers of 16 children, the first from 1e-4 to 1e-1 of its length."""
    draw = torch.Generator().manual_seed(seed)
    n, d = 16, 8

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=draw, dtype=torch.float64)

    def layer(weights: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
        made = torch.einsum("kide,ie->kid", weights, u)
        if softmax == "parents":
            return dynamic_routing(made.transpose(0, 1)[None]).parents.pose[0]
        query, key, value = made
        return (query @ key.T / d**0.5).softmax(-1) @ value

    kinds, children = (n if softmax == "parents" else 3), (n if own else 1)
    first, second = (0.5 * normal(kinds, children, d, d) for _ in range(2))
    u, target = torch.nn.functional.normalize(normal(n, d), dim=-1), normal(n, d)
    first.requires_grad_()
    scales = torch.logspace(-4, -1, 7, dtype=torch.float64)
    norms = []
    for scale in scales:
        scaled = torch.cat([u[:1] * scale, u[1:]])
        out = layer(second.expand(kinds, n, d, d), layer(first.expand(kinds, n, d, d), scaled))
        (gradient,) = torch.autograd.grad((out - target).square().sum(), first)
        norms.append(gradient[:, 0].norm())
    x, y = scales.log() - scales.log().mean(), torch.stack(norms).log()
    return float((x * (y - y.mean())).sum() / x.square().sum())


def late_signs() -> str:
    """The accuracy of networks with a bias that learn signs, every tenth epoch."""
    (record,) = read_records(HERE.parents[2] / "evidence", study="sign-for-longer").values()
    lines = [
        Line(
            f"seed {seed.seed}",
            [(row["epoch"], 100 * row["accuracy"]) for row in seed.per_epoch[9::10]],
        )
        for seed in record.seeds
    ]
    return draw_lines(lines, x_label="epoch; the paper trains 50", y_label="training accuracy, %")


def doubtful_numbers() -> str:
    """What rounding the couplings changes in every row of [renzulli2025] Table 1."""
    rows = []
    for claim in claims(paper="renzulli2025"):
        if claim.table == 1 and claim.id.endswith("-vanilla-acc"):
            change = _number(claim.id.replace("-vanilla-", "-q-")) - _number(claim.id)
            rows.append(Dot(f"{claim.system}, {claim.dataset}", change, note=f"{change:+.2f}"))
    return draw_dots(rows, label="accuracy gained by rounding, points", low=-2, high=2, mark=0)


def more_trees_than_images() -> str:
    """Keys that [renzulli2025] Table 11 prints for affNIST; the line is 10,000 images over ten."""
    rows = []
    for digit in range(10):
        keys = _number(f"rem-t11-affnist-q-class{digit}")
        rows.append(Dot(f"class {digit}", keys, note=f"{keys:,.0f}"))
    return draw_dots(rows, label="keys of DR-CapsNet+Q on affNIST", low=0, high=16000, mark=1000)


def sizes() -> str:
    """By how much the printed sizes of ConvNet-Avg, and two that are cut off, miss the count."""
    table: list[tuple[str, str, str, int | None]] = [
        (f"ConvNet-Avg, kernel {k}", f"gu2021-t3-convnet-avg-k{k}-params", "convnet_avg", k)
        for k in (3, 5, 7, 9, 11)
    ]
    table += [
        ("Aff-CapsNet", "gu2021-t1-aff-capsnet-params", "gu_aff_capsnet", None),
        ("Eff-CapsNet", "rem-t9-eff-capsnet-params", "rem_eff_mnist", None),
    ]
    rows = []
    for name, claim, model, kernel in table:
        off = 100 * (_number(claim) * 1e6 / parameters_of(model, kernel) - 1)
        rows.append(Dot(name, off, note=f"{off:+.2f} %"))
    return draw_dots(rows, label="printed size less the count, %", low=-4, high=4, mark=0)


def no_routing() -> str:
    """How long parents are at the start, by the coupling that stands for no routing."""
    rows = []
    for n_in, n_out in ((3200, 10), (16, 16)):
        sums = [_sums_of_votes(n_in, n_out, seed) for seed in range(5)]
        for says, coupling in (("1/I", 1 / n_in), ("1/J", 1 / n_out), ("1", 1.0)):
            found = [squash(coupling * each).norm(dim=-1).mean().item() for each in sums]
            mean = statistics.fmean(found)
            middle, low, high = (math.log10(each) for each in (mean, min(found), max(found)))
            name = f"{n_in:,} children, {n_out} parents, coupling {says}"
            rows.append(Dot(name, middle, low, high, f"{mean:.2g}"))
    return draw_dots(rows, label="length of a parent, as a power of ten", low=-6, high=0)


def _sums_of_votes(n_in: int, n_out: int, seed: int) -> torch.Tensor:
    """[j, d], of children that are half a unit long, W ~ N(0, 0.1²)."""
    draw = torch.Generator().manual_seed(seed)
    child = torch.randn(n_in, 8, generator=draw, dtype=torch.float64)
    weight = 0.1 * torch.randn(n_in, n_out, 16, 8, generator=draw, dtype=torch.float64)
    return torch.einsum("ijde,ie->jd", weight, child / (2 * child.norm(dim=-1, keepdim=True)))


def three_sums() -> str:
    """How far from even the last couplings are, by how many agreements they have."""
    lines: dict[str, list[tuple[float, float]]] = {
        "Eq. 7: r_T": [],
        "Algorithm 1: r_T - 1": [],
        "Eq. 23: r_T - 2": [],
    }
    for iterations in range(1, 6):
        for says, missing in zip(lines, (0, 1, 2), strict=True):
            # The couplings with n agreements are those of iteration n + 1.
            within = max(iterations - missing, 0) + 1
            found = [_polarisation(within, seed) for seed in range(DRAWS)]
            lines[says].append((iterations, round(statistics.fmean(found), 4)))
    return draw_lines(
        [Line(says, points) for says, points in lines.items()],
        x_label="iterations r_T",
        y_label="1 - H(c_i) / log J",
    )


def _polarisation(iterations: int, seed: int) -> float:
    draw = torch.Generator().manual_seed(seed)
    votes = torch.randn(32, 10, 8, generator=draw, dtype=torch.float64)
    (last,) = dynamic_routing(votes, iterations=iterations, keep="last").steps
    entropy = torch.special.entr(last.coupling).sum(-1).mean().item()
    return 1 - entropy / math.log(10)


# What is changed, the record with it and the one without; every row is of the same seeds.
TREES = (
    ("1 iteration for 3", "9a31bc9f9ac7", "012de5bdd24a"),
    ("2 iterations for 3", "6ee5aa989e0f", "012de5bdd24a"),
    ("4 iterations for 3", "7d727e6a6688", "012de5bdd24a"),
    ("10 iterations for 3", "587c98f5e361", "012de5bdd24a"),
    ("pruned by LOBSTER", "3ed6d8756bf2", "320aed6adc4a"),
    ("LOBSTER's steps, none pruned", "ef8b21d69361", "320aed6adc4a"),
    ("90 % pruned by magnitude", "d7dc5ba32e90", "320aed6adc4a"),
    ("90 % random masks", "abe77364f748", "320aed6adc4a"),
    ("90 % masked, not trained on", "1112a136fe93", "320aed6adc4a"),
)
ABLATIONS = (
    ("routing for votes averaged, CapsNet", "486f440ac040", "7ec7b0a6e443"),
    ("routing for even couplings, CapsNet", "d09a22814692", "17f9e1c1acd3"),
    ("a bias for none, 5 layers", "2fbf741604cb", "1e7b52b9b0ec"),
    ("a bias for an odd bias, 5 layers", "2fbf741604cb", "b0674ed956df"),
    ("routing for none, 9 layers, N(0, 0.1²)", "5e8a958a9c82", "1c595886c028"),
    ("routing for none, 9 layers, N(0, 1)", "a2c692185688", "999a594fdfda"),
    ("N(0, 1) for N(0, 0.1²), 9 layers, no routing", "999a594fdfda", "1c595886c028"),
)


def what_entropy_measures() -> str:
    """By how much each change moves the entropy of trees, with what it does to accuracy."""
    rows = []
    for says, of, less in TREES:
        found = _gap("entropy+K11", of, less)
        right = interval(_gap("accuracy+K11", of, less)._replace(low=None, high=None))
        rows.append(Dot(says, *found[:3], f"{interval(found)} bit, {right} points"))
    masked, right = (
        _gap(f"{what}_at_chosen_levels", "1112a136fe93", "1112a136fe93", f"{what}+K11")
        for what in ("entropy", "accuracy")
    )
    says = f"{interval(masked)} bit, {interval(right._replace(low=None, high=None))} points"
    rows.append(Dot("the same on chosen levels", *masked[:3], says))
    return draw_dots(rows, label="change of entropy, bit", low=-10, high=10, mark=0)


def scale_and_ablations() -> str:
    """What an ablation gains where it moves the scale too, and where the scale is kept."""
    rows = []
    for says, of, less in ABLATIONS:
        found = _gap("accuracy", of, less)
        # What differs in no seed by a tenth would read as if nothing could differ.
        digits = 2 if max(map(abs, found[:3])) < 0.1 else 1
        rows.append(Dot(says, *found[:3], interval(found, digits)))
    return draw_dots(rows, label="gain in accuracy, points", low=-10, high=100, mark=0)


def soft_routing() -> str:
    """By how much the spread of what agreement adds to logits lies above that of α = 1, where α is
    learned from a start."""
    rows = []
    for data, says in SETS.items():
        for start in STARTS:
            for where, layers in ROUTED.items():
                found = softer(data, start, layers)
                rows.append(Dot(f"{says}, {start}, {where}", *found[:3], interval(found, 3)))
    label = "spread of agreement less that of α = 1, in units of a logit"
    return draw_dots(rows, label=label, low=-0.25, high=0.25, mark=0)


SETS = {"mnist": "MNIST", "fashion-mnist": "Fashion-MNIST", "cifar10": "CIFAR-10"}
STARTS = ("from 0", "from 0.1", "from 1")
# The routed layers from below.
ROUTED = {"hidden": (1, 2), "classes": (3,)}


def softer(data: str, alpha: str, layers: tuple[int, ...], less: str = "1") -> Interval:
    """By how much the mean spread of some layers lies above that at another α, seed by seed."""
    found = read_records(HERE.parents[2] / "evidence", study="soft-routing-for-longer").values()
    high, low = (
        {
            seed.seed: statistics.fmean(seed.values[f"agreement_spread.{k}"] for k in layers)
            for each in found
            if (each.recipe["data"], each.recipe["options"]["alpha"]) == (data, chosen)
            for seed in each.seeds
        }
        for chosen in (alpha, less)
    )
    return mean_interval([value - low[seed] for seed, value in high.items()])


# Five layers from N(0, 1), trained for as long as the others.
OF_ONE = "42173fe386de"


def first_weights() -> str:
    """Active capsules of each layer of the network of [mitterreiter2023] Table 2, by the scale of
    its first weights, where it learns."""
    printed = [(k, _number(f"mitt2023-t2-layer{k}-cas")) for k in range(1, 6)]
    lines = [Line("printed", printed)]
    for scale, record in sorted(learning_scales().items()):
        found = [
            (k, statistics.fmean(record.values(f"cas.{k}@affnist-style/test"))) for k in range(1, 6)
        ]
        lines.append(Line(f"N(0, {scale:g}²)", found))
    return draw_lines(lines, x_label="capsule layer", y_label="active capsules an image")


def learning_scales() -> dict[float, Record]:
    """The records of the network by the scale of its first weights, where 95 % are right."""
    found = read_records(HERE.parents[2] / "evidence", study="initial-scales").values()
    by_scale = {each.recipe["options"]["weight_std"]: each for each in found}
    by_scale[1.0] = _records()[OF_ONE]
    return {
        scale: each
        for scale, each in by_scale.items()
        if statistics.fmean(each.values("accuracy")) >= 95
    }


@cache
def _records() -> dict[str, Record]:
    return read_records(HERE.parents[2] / "evidence")


def _gap(name: str, of: str, less: str, less_name: str = "") -> Interval:
    """By how much a statistic of one record lies above that of another, seed by seed."""
    high, low = (
        {seed.seed: seed.values[key] for seed in _records()[record].seeds if key in seed.values}
        for record, key in ((of, name), (less, less_name or name))
    )
    return mean_interval([value - low[seed] for seed, value in high.items() if seed in low])


if __name__ == "__main__":
    main()
