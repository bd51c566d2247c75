"""Public names are frozen in public_api.json: one that goes, or comes, is a decision.

To freeze the present ones: python tests/architecture/test_public_api.py
"""

import importlib
import inspect
import json
import pkgutil
from pathlib import Path

import pytest

import torchcaps as tc

FROZEN = Path(__file__).with_name("public_api.json")
AGAIN = "if this is meant, run `python tests/architecture/test_public_api.py` and commit the file"


def packages():
    """torchcaps, its packages, and its modules of one file; an underscore makes one private."""
    inside = [each.name for each in pkgutil.iter_modules(tc.__path__)]
    return ["torchcaps", *(f"torchcaps.{name}" for name in inside if not name.startswith("_"))]


def names():
    return {name: sorted(importlib.import_module(name).__all__) for name in packages()}


def frozen():
    return json.loads(FROZEN.read_text())


def test_no_package_came_or_went():
    assert sorted(frozen()) == sorted(packages()), AGAIN


@pytest.mark.parametrize("package", packages())
def test_no_name_came_or_went(package):
    found = sorted(importlib.import_module(package).__all__)
    kept = set(frozen().get(package, ()))
    lost, new = kept - set(found), set(found) - kept
    assert not lost, f"{package} lost {sorted(lost)}: users import them; {AGAIN}"
    assert not new, f"{package} now has {sorted(new)}; {AGAIN}"


@pytest.mark.parametrize("package", packages())
def test_every_name_exists_once(package):
    module = importlib.import_module(package)
    assert all(hasattr(module, name) for name in module.__all__)
    assert len(set(module.__all__)) == len(module.__all__)
    assert set(module.__all__) <= set(dir(module))


# The names that are promised; those of later releases join when they exist.
PROMISED = {
    tc: ["create_model", "list_models", "load", "save", "Capsules"],
    tc.ops: [
        "conv3d_routing",
        "distance_routing",
        "dynamic_routing",
        "em_routing",
        "inverted_routing",
        "margin_loss",
        "materialise",
        "self_attention_routing",
        "squash",
        "uniform_routing",
    ],
    tc.layers: ["PrimaryCapsules", "DenseCapsules", "ConvCapsules"],
    tc.data: ["load"],
    tc.analysis: ["routing_dynamics", "capsule_activity"],
    tc.testing: ["assert_routing_contract"],
}


@pytest.mark.parametrize("package", PROMISED, ids=lambda package: package.__name__)
def test_promised_names_are_public(package):
    assert set(PROMISED[package]) <= set(package.__all__)


@pytest.mark.parametrize(
    ("call", "promise"),
    [
        (
            tc.ops.dynamic_routing,
            "votes, *, iterations=3, bias=None, prior=None, odd_bias=False, leaky=False, "
            "squash='hinton', detach='none', agreement=1.0, keep='none', couple=None",
        ),
        (
            tc.ops.em_routing,
            "votes, activation, *, beta_a, beta_u, iterations=3, variant='paper', "
            "compete='window', child_id=None, lambda_=0.01, lambda_schedule='growing', "
            "variance_floor=None, keep='none', couple=None",
        ),
        (
            tc.ops.inverted_routing,
            "votes, activation=None, *, iterations=2, norm=None, scale=1.0, beta_a=None, "
            "beta_u=None, lambda_=0.01, start=None, keep='none', couple=None",
        ),
        (
            tc.ops.distance_routing,
            "votes, activation, *, iterations=3, scale='sample', bias=None, p=0.9, "
            "squash='hinton', detach='none', keep='none', couple=None",
        ),
        (
            tc.ops.self_attention_routing,
            "votes, *, bias=None, squash='exp', keep='none', couple=None",
        ),
        (
            tc.ops.self_routing,
            "votes, activation=None, *, poses, weight, bias=None, keep='none', couple=None",
        ),
        (
            tc.ops.conv3d_routing,
            "votes, *, parent_grid, iterations=3, bias=None, squash_over='map', "
            "detach='none', keep='none', couple=None",
        ),
        (
            tc.ops.uniform_routing,
            "votes, *, normalise='softmax', bias=None, squash='hinton', keep='none', couple=None",
        ),
        (tc.create_model, "name, *, image=None, n_classes=None, standardise=None, **options"),
        (tc.save, "model, path"),
        (tc.load, "path, *, model=None, routing=None, n_classes=None"),
        (tc.data.load, "name, *, split='train', root=None, size=None, groups=None"),
        (
            tc.layers.DenseCapsules,
            "*, n_in, d_in, n_out, d_out, routing='dynamic', pose='vector', sharing='none', "
            "child_grid=None, coordinates=False, vote_bias=False, weight_std=0.1",
        ),
        (
            tc.layers.ConvCapsules,
            "*, child_grid, d_in, types, d_out, kernel=3, stride=1, routing='dynamic', "
            "pose='vector', vote_bias=False, weight_std=0.1",
        ),
    ],
    ids=lambda value: getattr(value, "__qualname__", ""),
)
def test_arguments_are_as_promised(call, promise):
    """None goes, moves or has another default; one that comes is by name and has a default."""
    bare = [
        each.replace(annotation=inspect.Parameter.empty)
        for each in inspect.signature(call).parameters.values()
    ]
    promised = promise.split(", ")
    new = [
        each
        for each in bare
        if str(each) not in promised
        and each.kind is each.KEYWORD_ONLY
        and each.default is not each.empty
        and not any(word.startswith(f"{each.name}=") for word in promised)
    ]
    assert str(inspect.Signature([each for each in bare if each not in new])) == f"({promise})"


def test_fields_of_the_data_model():
    assert tc.Capsules._fields == ("pose", "activation")
    assert tc.Step._fields == ("children", "coupling", "parents")
    assert tc.Routed._fields == ("parents", "steps", "scale")


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'torchcaps' has no attribute 'routing'"):
        _ = tc.routing


if __name__ == "__main__":
    FROZEN.write_text(json.dumps(names(), indent=2) + "\n")
