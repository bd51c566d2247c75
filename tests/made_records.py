"""Records made by hand: values of systems that nobody trained."""

import random
from datetime import UTC, datetime

from torchcaps.study import Seed, make_record
from torchcaps.study.look import OF_LAYERS
from torchcaps.train import make_recipe
from torchcaps_claims import Job, find_claim
from torchcaps_claims.at_rest import STEPS
from torchcaps_claims.judges import judge_statement
from torchcaps_claims.judges.gu import FACTORS
from torchcaps_claims.judges.mitterreiter import NAMES, OF_DEATHS
from torchcaps_claims.looks import looks_of
from torchcaps_claims.result import result_of
from torchcaps_claims.viewpoint import STRENGTHS

# More layers than any planned network has.
LAYERS = range(1, 10)


def job_of(**changes):
    """A planned job of one number, asked of CapsNet on MNIST unless told otherwise."""
    usual = {"model": "capsnet", "protocol": "peer", "metrics": ("accuracy",), "seeds": 5}
    return Job(**{"train": "mnist", "test": "mnist"} | usual | changes)


def word_of(prefix, name, *records):
    """Return the word for the statement PREFIX-NAME; None where these records do not judge it."""
    found = judge_statement(find_claim(f"{prefix}{name}"), records)
    return None if found is None else found.word


def result_by(claim, *records):
    """Return what these records alone say of a claim, or one by its name; each is known by its
    number."""
    claim = find_claim(claim) if isinstance(claim, str) else claim
    return result_of(claim, {str(k): each for k, each in enumerate(records)})


def diverged(record, *seeds):
    """The same record, whose given seeds failed."""
    return record.model_copy(
        update={
            "seeds": tuple(
                Seed(seed=s.seed, wall_seconds=1, failed="not finite") if s.seed in seeds else s
                for s in record.seeds
            )
        }
    )


def made(recipe, by_seed, *, claim="peer2022-q-sign-not-learnable", reduced=None, curves=()):
    """A record of a recipe with these values, a table a seed, and the rows of its epochs."""
    epochs = dict(enumerate(curves))
    return make_record(
        study="a/b",
        claims=(claim,),
        recipe=recipe.model_dump(mode="json"),
        recipe_hash=recipe.digest(),
        data={"sign/train": "1"},
        seeds=tuple(
            Seed(seed=k, values=v, per_epoch=epochs.get(k, ()), wall_seconds=1)
            for k, v in enumerate(by_seed)
        ),
        commit="a1b2c3d4e5f6",
        dirty=False,
        versions={},
        device="",
        command="",
        made=datetime(2026, 1, 2, tzinfo=UTC),
        reduced=reduced,
    )


def record(model, data, *, reduced=None, fields=(), claim="peer2022-q-sign-not-learnable", **given):
    """A record of a system: names with a `values` list are statistics, the others its options.

    Statistics are written as {"dyr.2@affnist/test": [0.1, 0.2, 0.3]} in `given["values"]`, those
    of epochs as {"entropy": [(0.1, 0.2), (0.1, 0.3)]}, a row a seed, in `given["curves"]`.
    """
    values, curves = given.pop("values"), given.pop("curves", {})
    n = max(map(len, values.values()))
    recipe = make_recipe(model=model, data=data, options=given, **dict(fields))
    by_seed = [{name: v[k] for name, v in values.items() if k < len(v)} for k in range(n)]
    rows = [
        tuple(dict(zip(curves, point, strict=True)) for point in zip(*each, strict=True))
        for each in zip(*curves.values(), strict=True)
    ]
    return made(recipe, by_seed, claim=claim, reduced=reduced, curves=rows)


def by_layer(*names):
    """These numbers, of every layer."""
    return [f"{name}.{k}" for name in names for k in LAYERS]


def of_job(job, *, reduced=None):
    """A record of a planned job with everything that its looks would give, near 99.2, so that
    networks that stop there count."""
    draw = random.Random(job.key)
    recipe = job.recipe()
    if job.is_narrow:
        # As the rows of all epochs below have it: of each layer one is dead.
        widths = ",".join(str(int(width) - 1) for width in job.options["widths"].split(","))
        recipe = recipe.model_copy(update={"options": {**recipe.options, "widths": widths}})
    names = ["accuracy"]
    for look in looks_of(job):
        numbers = {
            "accuracy": ["accuracy"],
            "weights": ["sparsity", "nonzero_parameters"],
            "calibration": ["confidence"],
            "compactness": ["compactness", *(f"compactness.{factor}" for factor in FACTORS)],
            "invariance": [
                *(f"corr.{each.name}.1" for each in STRENGTHS),
                *by_layer(*(f"pearson.{each.name}" for each in STRENGTHS)),
                *by_layer(*(f"spearman.{each.kind}" for each in STRENGTHS)),
            ],
            "tree-size": ["tree_size"],
            "trees": ["distance.different", "share_as_far"],
            "antipodal": by_layer("antipodal_share", "lowest_cosine", "negative_share"),
            "antipodal-at-start": by_layer("antipodal_share_at_start", "lowest_cosine_at_start"),
            "cancellation": ["cancellation_cosine"],
            "cancellation-at-start": ["cancellation_cosine_at_start", "cancellation_chi_at_start"],
            "fixed-point": [f"fixed_point_distance.{t}" for t in STEPS],
            "inequality": ["small_couplings", "even_couplings", "gini"],
            "perturbation": ["change.0.2", "change.8"],
            "focus": ["focus", "focus_known"],
            "saliency": ["saliency", "saliency_known"],
            "redrawn": ["drawn_components", "drawn_change", "drawn_known"],
            "polarisation": ["polarisation", *(f"polarisation.1.{t}" for t in range(1, 11))],
            "selectivity": by_layer("one_part", "one_part_at_most"),
            "separation": ["silhouette", "nearest_centroid"],
            "zero-votes": ["zero_blocks", "zero_votes"],
            "keys": ["entropy", "keys", *(f"keys.{k}" for k in range(10))],
            "layers": by_layer(*OF_LAYERS),
        }[look.kind]
        tested_on = recipe.test_data or recipe.data
        names += [look.key(number, tested_on=tested_on) for number in numbers]
    by_seed = [
        {name: 99.22 + draw.uniform(-0.04, 0.04) for name in names} for _ in range(job.seeds)
    ]
    row = {"validation_accuracy": 0.5, "training_sample_accuracy": 0.96, "entropy": 1.0}
    # As many deaths as capsules that were dead before, and no revival.
    layers = (*NAMES, f"hidden_{len(NAMES)}")
    row |= {f"{name}/{layer}": float(name != "revivals") for name in OF_DEATHS for layer in layers}
    return made(recipe, by_seed, reduced=reduced, curves=[(row,) * 3] * job.seeds)
