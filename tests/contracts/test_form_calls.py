"""What a form says to a call that makes no sense, and what compilers, exporters and layers make of
it; on every backend alike."""

import pytest
import torch
from torch._dynamo.backends.registry import lookup_backend
from torch._subclasses.fake_tensor import FakeTensorMode

from contracts.forms import (
    BACKENDS,
    FORMS,
    PAIRS,
    SMALL,
    Case,
    Watch,
    call,
    dtype_of,
    leaves_of,
    marked,
    may_be_given,
    numbers_of,
    options_of,
    ran_by,
    results_of,
    route,
    vote_map_of,
    windows_of,
)
from error_text import text_of
from tables import beside
from torchcaps import ops
from torchcaps.layers import ConvCapsules, DenseCapsules, routing, use_backend
from torchcaps.ops import native
from torchcaps.types import Capsules, VoteMap, Window

EVERY_FORM = pytest.mark.parametrize(("algorithm", "way"), PAIRS)


def small_cases(drawn):
    """Of each form dense and through windows, with all that may be given."""
    items = []
    for algorithm, way in PAIRS:
        given, form = may_be_given(algorithm, way), FORMS[algorithm]
        options = form.alone | ({} if algorithm in ("self_attention", "uniform") else TWICE)
        for window in windows_of(algorithm, way, (None, SMALL)):
            more = {"compete": "all"} if algorithm == "em" and window is not None else {}
            case = Case(algorithm, "none", "vector", window, given, options | more, n_in=3)
            items.append((way, case))
    return pytest.mark.parametrize(("way", "case"), marked(items, drawn))


TWICE = {"iterations": 2}
BASE = {"n_in": 12, "n_out": 5, "d_in": 3, "d_out": 4}
POSE, WEIGHT = torch.zeros(2, 12, 3), torch.zeros(12, 5, 4, 3)
SEEN = Window((5, 4, 2), (2, 2), (1, 1))  # eight slots, not twelve
BAD = beside(__file__, "bad_calls.toml")


def bad(part):
    """A routing and arguments that it does not take."""
    return [(name, text) for text, names in BAD[part].items() for name in names]


def arguments(text):
    return eval(f"dict({text})", globals())


BAD_CALLS = [
    *((name, text, "") for name in FORMS for text in BAD["votes"]),
    *((name, text, "") for name, text in bad("children")),
    *((name, "", text) for name, text in bad("options")),
]


@pytest.mark.parametrize("way", BACKENDS)
@pytest.mark.parametrize(("algorithm", "votes", "options"), BAD_CALLS)
def test_what_the_plain_op_refuses_is_refused_in_its_words(algorithm, votes, options, way):
    if (algorithm, way) not in PAIRS:
        return
    case = Case(algorithm, **BASE)
    leaves = leaves_of(case, torch.float32)
    vote_map, given = vote_map_of(case, leaves), options_of(case, leaves)
    vote_map, given = vote_map._replace(**arguments(votes)), given | arguments(options)
    if not FORMS[algorithm].needs:
        vote_map = vote_map._replace(children=Capsules(vote_map.children.pose))
    theirs, found = (
        text_of(lambda each=each: call(each, algorithm, vote_map, given)) for each in ("plain", way)
    )
    assert found == theirs


@pytest.mark.parametrize(("algorithm", "options"), bad("asked_first"))
def test_a_prediction_refuses_it_where_a_kernel_is_asked_first(algorithm, options, monkeypatch):
    monkeypatch.setattr("torchcaps.ops.backend.LANES_FROM", 1)
    monkeypatch.setattr("torchcaps.ops.backend.KERNEL_FROM", {algorithm: 1})
    vote_map = VoteMap(Capsules(POSE, POSE[..., 0]), WEIGHT)
    given = arguments(options)
    with torch.no_grad():
        plain, auto = (
            text_of(lambda each=each: ops.route(vote_map, algorithm, backend=each, **given))
            for each in ("plain", "auto")
        )
    assert auto == plain


@pytest.mark.parametrize("algorithm", native.ROUTINGS)
def test_a_kernel_is_asked_about_one_part_of_the_votes_that_has_many_values(algorithm):
    leaves = leaves_of(Case(algorithm, **BASE), torch.float32)
    weights = torch.stack([leaves["weight"], 2 * leaves["weight"]])

    def pose(weight):
        return route("native", Case(algorithm, **BASE), leaves | {"weight": weight}).parents.pose

    found = torch.func.vmap(pose)(weights)
    torch.testing.assert_close(found, torch.stack([pose(x) for x in weights]), rtol=0, atol=1e-6)


@pytest.mark.parametrize("algorithm", native.ROUTINGS)
def test_numbers_that_are_kept_as_their_negatives(algorithm):
    leaves = leaves_of(Case(algorithm, **BASE), torch.float32)
    kept = torch.complex(leaves["pose"], -leaves["pose"]).conj().imag
    assert kept.is_neg()
    found = route("native", Case(algorithm, **BASE), leaves | {"pose": kept})
    expected = route("native", Case(algorithm, **BASE), leaves)
    assert torch.equal(found.parents.pose, expected.parents.pose)


@pytest.mark.filterwarnings("ignore:Anomaly Detection")
def test_no_gradient_of_a_kernel_is_left_unwritten():
    # Places of memory that nobody wrote hold no number then.
    case = Case("em", batch=(3,), options={"variance_floor": 0.05})
    leaves = {name: x.requires_grad_() for name, x in leaves_of(case, torch.float32).items()}
    torch.use_deterministic_algorithms(True)
    try:
        with torch.autograd.detect_anomaly(check_nan=True):
            route("native", case, leaves).parents.pose.sum().backward()
    finally:
        torch.use_deterministic_algorithms(False)
    assert bool(leaves["pose"].grad.isfinite().all())


@pytest.mark.parametrize(
    ("algorithm", "words"),
    [
        ("em", "EM routing weighs children by their activations"),
        (
            "distance",
            "distance routing keeps votes as short as their children, but the children came "
            "without lengths; give them, for example Capsules(pose, pose.norm(dim=-1)).",
        ),
    ],
)
@pytest.mark.parametrize("way", BACKENDS)
def test_children_without_activations_are_refused(way, algorithm, words):
    if (algorithm, way) not in PAIRS:
        return
    options = {"beta_a": torch.ones(5), "beta_u": torch.ones(5)} if algorithm == "em" else {}
    said = text_of(lambda: call(way, algorithm, VoteMap(Capsules(POSE), WEIGHT), options))
    assert said.startswith(words)


NO_SECOND = {
    ("distance", "fused"): ("fused distance routing", "ops.distance_routing"),
    ("distance", "native"): ("native distance routing", "ops.distance_routing"),
    ("dynamic", "native"): ("native dynamic routing", "ops.dynamic_routing"),
    ("em", "fused"): ("fused EM routing", "ops.em_routing"),
    ("em", "native"): ("native EM routing", "ops.em_routing"),
    **{
        (name, "fused"): ("fused routing", "the routing of torchcaps.ops")
        for name in ("dynamic", "inverted", "self_attention")
    },
}


@pytest.mark.parametrize(("algorithm", "way"), NO_SECOND)
def test_gradients_of_gradients_are_refused(algorithm, way):
    who, instead = NO_SECOND[algorithm, way]
    given = tuple(name for name in may_be_given(algorithm, way) if name in ("prior", "start"))
    case = Case(algorithm, given=given, n_in=2, options=FORMS[algorithm].alone)
    leaves = {name: x.requires_grad_() for name, x in leaves_of(case, dtype_of(way)).items()}
    pose = route(way, case, leaves, "none").parents.pose
    (gradient,) = torch.autograd.grad(pose.square().sum(), leaves["pose"], create_graph=True)
    assert text_of(lambda: gradient.sum().backward()) == (
        f"{who} gives gradients, but no gradients of gradients; where these are needed, as by "
        f"create_graph=True, route ops.materialise(vote_map) with {instead}."
    )


@small_cases({"fused": 12, "native": 9})
def test_one_graph_compiles_for_any_batch(way, case):
    torch._dynamo.reset()  # What one case was compiled for says nothing of the other.
    names = list(leaves_of(case))

    def numbers(*tensors):
        return numbers_of(route(way, case, dict(zip(names, tensors, strict=True)), "last"))

    targets = set()

    def backend(graph, inputs):
        targets.update(str(node.target) for node in graph.graph.nodes)
        return lookup_backend("aot_eager")(graph, inputs)

    compiled = torch.compile(numbers, backend=backend, fullgraph=True)
    bar = 1e-12 if way == "fused" else 1e-5
    for samples in (2, 3, 5):
        leaves = leaves_of(case._replace(batch=(samples,)), dtype_of(way))
        found = []
        for each in (numbers, compiled):
            given = [x.clone().requires_grad_() for x in leaves.values()]
            made = list(each(*given).values())
            loss = sum(x.square().sum() for x in made)
            found.append([*made, *torch.autograd.grad(loss, given, materialize_grads=True)])
        torch.testing.assert_close(*found, rtol=0, atol=bar)
    assert any(name.startswith(f"torchcaps.{'' if way == 'fused' else way}") for name in targets)


@pytest.mark.compile
@pytest.mark.parametrize(("algorithm", "way"), [("distance", "native"), ("dynamic", "native")])
def test_kernels_compile_within_machine_code(algorithm, way):
    case = Case(algorithm, given=("bias",))
    leaves = leaves_of(case, torch.float32)

    def pose(*tensors):
        given = dict(zip(leaves, tensors, strict=True))
        return route(way, case, given, "none").parents.pose

    found = []
    for each in (pose, torch.compile(pose, fullgraph=True)):
        given = [x.clone().requires_grad_() for x in leaves.values()]
        made = each(*given)
        found.append([made, *torch.autograd.grad(made.square().sum(), given)])
    torch.testing.assert_close(*found, rtol=1e-5, atol=1e-5)


@small_cases({"fused": 2, "native": 2})
def test_exports(way, case):
    leaves = leaves_of(case, torch.float32)

    class Layer(torch.nn.Module):
        def forward(self, *tensors):
            given = dict(zip(leaves, tensors, strict=True))
            return route(way, case, given, "none").parents.pose

    exported = torch.export.export(Layer(), tuple(leaves.values()))
    assert torch.equal(exported.module()(*leaves.values()), Layer()(*leaves.values()))


@small_cases({"fused": 1, "native": 1})
def test_operators_keep_the_rules_of_operators(way, case):
    expect_rules_kept(way, case)


def test_gradients_of_one_sum_keep_the_rules_of_operators():
    # Nothing is added to what the convolution gives back, which lies as it likes.
    expect_rules_kept("fused", Case("uniform", pose="matrix", window=SMALL))


def expect_rules_kept(way, case):
    leaves = leaves_of(case, dtype_of(way))
    for x in leaves.values():
        x.requires_grad_()
    with Watch() as watch:
        sum(x.square().sum() for x in numbers_of(route(way, case, leaves)).values()).backward()
    checked = set()
    for operator, arguments in watch.calls:
        kind = operator, tuple(x is None for x in arguments)
        if kind in checked:
            continue
        checked.add(kind)
        given = [
            x.detach().clone().requires_grad_() if isinstance(x, torch.Tensor) else x
            for x in arguments
        ]
        torch.library.opcheck(
            operator,
            tuple(given),
            test_utils=("test_schema", "test_autograd_registration", "test_faketensor"),
        )
    assert any("backward" in operator.name() for operator, _ in checked)


@small_cases({"fused": 1, "native": 1})
def test_sizes_can_be_asked_without_computing(way, case):
    leaves = leaves_of(case, torch.float32)
    real = numbers_of(route("plain", case, leaves))

    def expect(given):
        found = numbers_of(route(way, case, given))
        assert {n: (x.shape, x.dtype) for n, x in found.items()} == {
            n: (x.shape, x.dtype) for n, x in real.items()
        }

    with FakeTensorMode() as mode:
        expect({name: mode.from_tensor(x) for name, x in leaves.items()})
    if case.options.get("compete") != "all":  # which asks numbers who they are
        expect({name: x.to("meta") for name, x in leaves.items()})


@EVERY_FORM
def test_no_gradient_is_asked_for(algorithm, way):
    case = Case(algorithm, n_in=2, options=FORMS[algorithm].alone)
    leaves = leaves_of(case, torch.float32)
    assert not route(way, case, leaves).parents.pose.requires_grad
    with torch.no_grad():
        leaves["weight"].requires_grad_()
        assert not route(way, case, leaves).parents.pose.requires_grad


@EVERY_FORM
def test_without_a_library_the_fused_form_routes(algorithm, way, monkeypatch):
    if way != "native":
        return
    monkeypatch.setenv("TORCHCAPS_NATIVE", "0")
    case = Case(algorithm)
    leaves = leaves_of(case, torch.float32)
    assert ran_by(route, way, case, leaves) == "fused"
    found = (results_of(each, case, leaves) for each in ("native", "fused"))
    torch.testing.assert_close(*found, rtol=0, atol=0)


def layer_of(algorithm, n_in=40, n_out=3, d_out=4, window=False, **options):
    torch.manual_seed(0)
    made = routing.ROUTINGS[algorithm](**options)
    if window:
        grid = {"child_grid": (4, 5, 2), "pose": "matrix"}
        return ConvCapsules(**grid, types=3, d_in=4, d_out=4, routing=made)
    return DenseCapsules(n_in=n_in, d_in=4, n_out=n_out, d_out=d_out, routing=made)


def children_of(batch, n_in=40, dtype=torch.float32):
    pose = torch.randn(batch, n_in, 4, dtype=dtype)
    return Capsules(pose, pose.norm(dim=-1).clamp(max=1))


@EVERY_FORM
def test_layers_choose_it(algorithm, way):
    layer, children = layer_of(algorithm), children_of(20)
    assert ran_by(layer, children) is None  # So few votes are stored.
    for backend in (way, "fused", "plain"):
        use_backend(layer, backend)
        assert ran_by(layer, children) == {"plain": None}.get(backend, backend)
    use_backend(layer, way)
    wide = Capsules(*(x.double() for x in children))
    assert ran_by(layer.double(), wide) == "fused"


@EVERY_FORM
def test_layers_export_with_batches_of_any_size(algorithm, way):
    layer = layer_of(algorithm)
    use_backend(layer, way)

    class Classes(torch.nn.Module):
        def forward(self, pose, lengths):
            return layer(Capsules(pose, lengths)).parents.pose

    batch = {0: torch.export.Dim("batch", min=2)}
    with torch.no_grad():
        exported = torch.export.export(
            Classes(), (*children_of(5),), dynamic_shapes={"pose": batch, "lengths": batch}
        )
        for children in (children_of(2), children_of(37)):
            assert torch.equal(exported.module()(*children), layer(children).parents.pose)


@pytest.mark.parametrize("algorithm", FORMS)
def test_auto_fuses_large_votes_of_many_samples_alone(algorithm):
    layer, children = layer_of(algorithm, 512, 16, 16), children_of(16, 512)
    fewer = Capsules(*(x[1:] for x in children))
    assert isinstance(layer.votes(children), VoteMap)
    assert not isinstance(layer.votes(fewer), VoteMap)
    native_too = (algorithm, "native") in PAIRS and native.available()
    found = [layer(children).parents.pose]
    use_backend(layer, "native" if native_too else "fused")
    found.append(layer(children).parents.pose)
    assert torch.equal(*found)


LEARNS = [
    *(
        ("distance", {"detach": d, "scale": s})
        for d in ("none", "votes")
        for s in ("sample", "batch")
    ),
    *(("self_attention", {"prior": prior, "squash": "hinton"}) for prior in ("zero", "learned")),
    ("dynamic", {"bias": True, "prior": "learned", "squash": "exp"}),
    ("uniform", {"bias": True}),
    ("inverted", {"iterations": 3}),
    ("em", {"unit_poses": True, "lambda_": 1.0}),
]


# Windows in double precision alone: in single precision votes that are cut enlarge its rounding. So
# do many children, whose gradients are large.
@pytest.mark.parametrize(
    ("way", "window"), [("fused", False), ("fused", True), ("native", False)], ids=str
)
@pytest.mark.parametrize(("algorithm", "options"), LEARNS, ids=str)
def test_a_layer_learns_and_stores_the_same_either_way(algorithm, options, window, way):
    n_in = 40 if window else 9
    found, children = [], children_of(4, n_in, dtype_of(way))
    for backend in ("plain", way):
        layer = layer_of(algorithm, n_in, window=window, **options).to(dtype_of(way))
        for parameter in layer.routing.parameters():
            torch.nn.init.normal_(parameter, generator=torch.Generator().manual_seed(1))
        use_backend(layer, backend)
        routed = layer(children, keep="steps")
        sum(x.square().sum() for x in numbers_of(routed).values()).backward()
        gradients = [p.grad for p in layer.parameters()]
        judged = numbers_of(layer.eval()(children))
        found.append([numbers_of(routed), gradients, list(layer.buffers()), judged])
    relative, absolute = (0, 1e-10) if way == "fused" else (1e-4, 1e-5)
    torch.testing.assert_close(*found, rtol=relative, atol=absolute)
