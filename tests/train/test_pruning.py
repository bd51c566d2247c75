"""Pruning inside a run: what the rows say, that masks belong to the state, that no bit is lost."""

import itertools
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch

from error_text import text_of
from laid_runs import assert_same, tiny_images
from single_steps import before_steps, by_single_steps
from torchcaps import load
from torchcaps._digests import NAME
from torchcaps.data import SOURCES
from torchcaps.errors import Interrupted
from torchcaps.ops import margin_loss
from torchcaps.prune import Magnitude, prunable, ramp, sparsity
from torchcaps.train import Run, fit, make_recipe
from torchcaps.train.batches import Batches
from torchcaps.train.loop import Loop
from torchcaps.train.loss import loss_parts
from torchcaps.train.pruning import Prune, make_pruner
from torchcaps.train.ranks import Ranks
from torchcaps.train.seeds import HOLD_OUT, seed_of
from torchcaps.train.start import initial_model

EPOCHS, STEPS = 3, 3
WAYS = {
    "lobster": {"prune_tolerance": 0.05},
    # A layer at a time: the smallest weights of all are those of the map of the primary capsules.
    "magnitude": {"prune_to": 0.8, "prune_ramp": 2, "prune_scope": "layer"},
    "mask_at_the_end": {"prune_to": 0.8, "prune_scope": "layer"},
    "random_masks": {"prune_to": 0.8},
    "snip": {"prune_to": 0.8, "prune_batches": 2},
}


tiny = tiny_images(48, size=20)
DATA = {"tiny": tiny}


def recipe(way, **changed):
    fields = {"model": "rem_eff_mnist", "data": "tiny", "epochs": EPOCHS, "batch_size": 16}
    return make_recipe(**{**fields, "prune": way, **WAYS.get(way or "", {}), **changed})


DROPPING = {"dropout": 0.3, "width": 8, "types": 2}


class Runs(dict[str, Run]):
    """A run for every way, made when it is first looked at."""

    def __init__(self, folder):
        self.folder = folder

    def __missing__(self, way):
        self[way] = fit(recipe(way), self.folder / way)
        return self[way]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return Runs(tmp_path_factory.mktemp("runs"))


# The others tell nothing more of what runs do with masks.
SOME = ("lobster", "magnitude")
EACH = [way if way in SOME else pytest.param(way, marks=pytest.mark.slow) for way in WAYS]


def shares(run):
    return [row["sparsity"] for row in run.metrics()]


@pytest.mark.parametrize("way", EACH)
def test_the_rows_say_how_much_is_pruned(way, runs):
    found = shares(runs[way])
    if way == "lobster":
        assert 0 < found[0] <= found[1] <= found[2] < 1
    else:
        expected = {"magnitude": [*ramp(0.8, epochs=2), 0.8], "mask_at_the_end": [0.0] * 3}
        assert found == pytest.approx(expected.get(way, [0.8] * 3), abs=1e-4)
    for row in runs[way].metrics():
        assert {"entropy", "entropy_bound", "keys", "zero_blocks/classes"} < set(row)
        assert 0 <= row["entropy"] <= row["entropy_bound"]


@pytest.mark.parametrize("way", EACH)
def test_the_saved_network_and_the_result_are_pruned(way, runs):
    found = sparsity(load(runs[way].model_file))
    assert runs[way].result()["sparsity"] == found.numbers()
    if way != "lobster":
        assert found.share == pytest.approx(0.8, abs=1e-4)


def test_a_run_that_prunes_nothing_says_nothing_of_it(tmp_path):
    run = fit(recipe(None, epochs=1), tmp_path)
    assert "sparsity" not in run.result()
    assert "sparsity" not in run.metrics()[0]


def differ_from_those_by_hand(run, model, *, batches):
    """The share of a run's masks that are not those of |w g|, of the mean loss over the first
    batches of epoch 0, in a network with its first weights."""
    settled = run.recipe
    training, _ = tiny("train", None).hold_out(share=0.1, seed=seed_of(settled.seed, HOLD_OUT))
    for batch in itertools.islice(Batches(training, 16, seed=settled.seed), batches):
        margin_loss(model(batch.pixels).scores, batch.labels).backward()
    weights = prunable(model)
    scores = torch.cat([(w * w.grad).abs().flatten() for w in weights.values()])
    saved = prunable(load(run.model_file))
    left = torch.cat([saved[name].flatten() != 0 for name in weights])
    kept = torch.zeros_like(left)
    kept[scores.topk(int(left.sum())).indices] = True
    return float((kept != left).double().mean())


@pytest.mark.slow
def test_masks_that_are_there_before_training_are_those_of_the_first_weights(runs):
    model = initial_model(runs["snip"].recipe, tiny("train", None)).train()
    # But for the few at the edge, whose order rounding decides.
    assert differ_from_those_by_hand(runs["snip"], model, batches=2) <= 0.001


def test_snip_asks_frozen_parts_as_steps_do(tmp_path):
    """Their batch normalisation goes by its running numbers, not by those of the batch."""
    fields = {"model": "mitterreiter_5x16", "options": {"decoder": False}, "epochs": 1}
    run = fit(recipe("snip", **fields, freeze=("backbone",), prune_batches=1), tmp_path / "run")
    model = initial_model(run.recipe, tiny("train", None)).train()
    model.backbone.requires_grad_(False).eval()
    assert differ_from_those_by_hand(run, model, batches=1) <= 0.001


def test_what_snip_drops_out_is_drawn_by_the_seed(tmp_path):
    """Whatever was drawn in this process before, the same recipe has the same masks."""
    fields = {"model": "tsai_inverted_simple_c10", "epochs": 1, "options": DROPPING}
    found = []
    for before in (1, 2):
        torch.manual_seed(before)
        run = fit(recipe("snip", **fields), tmp_path / str(before))
        found.append(run.model_file.read_bytes())
    assert found[0] == found[1]


@pytest.mark.parametrize("is_reached", [False, True])
def test_nothing_is_pruned_after_the_accuracy_at_which_it_stops(is_reached):
    """Within an epoch; at its end accuracy is checked after the epoch's pruning."""
    data, settled = tiny("train", None), recipe("lobster")
    model = initial_model(settled, data)
    asked = []
    pruner = make_pruner(settled, model)
    pruner.after_epoch = lambda epoch, loss: asked.append(epoch)
    prune = Prune(pruner, data)
    loop = SimpleNamespace(should_stop=is_reached, current_epoch=2, model=model)
    prune.on_validation_start(loop)
    assert asked == ([] if is_reached else [2])


def test_lobster_goes_by_the_loss_that_is_logged():
    """Of the spread loss, with its whole margin from the first epoch on."""
    data, settled = tiny("train", None), recipe("lobster", loss="spread", spread_steps=500)
    model = initial_model(settled, data).eval()
    prune = Prune(make_pruner(settled, model), data)
    loop = Loop(settled, model, Batches(data, 16), Batches(data, 16), ranks=Ranks())
    batch = data.batch(slice(None))
    with torch.no_grad():
        expected = loss_parts(settled, model(batch.pixels), batch, 500)["classification_loss"]
    assert prune._loss(loop) == pytest.approx(float(expected), rel=1e-5)


def snipped(rank, ranks, gradients):
    """The weights of one rank after SNIP went by the gradients that it is given there."""
    data, settled = tiny("train", None), recipe("snip")
    model = initial_model(settled, data)
    prune = Prune(make_pruner(settled, model), data)
    prune._gradients = lambda _: gradients(rank)
    device = torch.device("cpu")
    loop = SimpleNamespace(device=device, global_step=0, ranks=Ranks(rank, ranks))
    prune.on_train_start(loop)
    return dict(model.state_dict())


def drawn(rank):
    """Gradients that differ from rank to rank by more than rounding."""
    model = initial_model(recipe("snip"), tiny("train", None))
    generator = torch.Generator().manual_seed(rank)
    return {n: torch.randn(w.shape, generator=generator) for n, w in prunable(model).items()}


def _rank(rank, folder):
    torch.set_num_threads(1)
    SOURCES["tiny"] = tiny
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2
    )
    for name, gradients in (("differ", drawn), ("alike", lambda _: drawn(0))):
        torch.save(snipped(rank, 2, gradients), f"{folder}/{name}{rank}.pt")
    torch.distributed.destroy_process_group()


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_two_ranks_prune_what_one_prunes_by_their_mean_gradient(tmp_path):
    """Each pruned by its own before it heard of the other's; what they sent was a pickle."""
    # Forked, since what a new process imports takes seconds.
    torch.multiprocessing.start_processes(_rank, (str(tmp_path),), nprocs=2, start_method="fork")
    one, other = drawn(0), drawn(1)
    mean = {name: (one[name] + other[name]) / 2 for name in one}
    for name, gradients in (("differ", mean), ("alike", one)):
        expected = snipped(0, 1, lambda _, gradients=gradients: gradients)
        for rank in (0, 1):
            found = torch.load(tmp_path / f"{name}{rank}.pt", weights_only=True)
            torch.testing.assert_close(found, expected, rtol=0, atol=0)


@pytest.mark.parametrize("way", EACH)
def test_a_run_that_is_cut_off_everywhere_comes_to_the_same_bits(way, runs, tmp_path):
    # The next call takes masks, weights and optimiser up again.
    assert_same(by_single_steps(recipe(way), tmp_path / way), runs[way])


def test_masks_hold_in_bfloat16_with_momentum_and_weight_decay(tmp_path):
    more = {"precision": "bfloat16", "optimiser": "sgd", "momentum": 0.9, "weight_decay": 0.01}
    seen = []
    with pytest.MonkeyPatch.context() as patch:
        spy = before_steps(lambda loop: seen.append(sparsity(loop.model).share))
        patch.setattr(Loop, "training_step", spy)
        run = fit(recipe("snip", learning_rate=0.1, **more), tmp_path)
    assert seen == pytest.approx([0.8] * EPOCHS * STEPS, abs=1e-4)
    assert len(set(seen)) == 1
    assert sparsity(load(run.model_file)).share == seen[0]


def stopped(folder):
    with pytest.raises(Interrupted):
        fit(recipe("snip"), folder, time_budget=1e-6)
    return Run(folder)


def cut(state):
    masks = state["Prune"]["masks"]
    masks["layers.classes.weight"] = masks["layers.classes.weight"][:3]


NO_TABLE = "masks must be a table of boolean tensors by the names of weights, but came as an int"


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (
            lambda state: state.pop("Prune"),
            "the state of this run holds no masks, so which weights are pruned is not known; it is "
            "damaged: remove state.ckpt, and the run begins anew.",
        ),
        (
            cut,
            "these masks are of another network: that of layers.classes.weight has shape [3, 10, "
            "16, 8]",
        ),
        (lambda state: state.update(Prune=3), NO_TABLE),
        (lambda state: state.update(Prune={"masks": 3}), NO_TABLE),
    ],
    ids=["none", "of another network", "a number", "a number inside"],
)
def test_a_state_whose_masks_are_not_its_own_is_refused(tmp_path, damage, said):
    run = stopped(tmp_path / "run")
    state = torch.load(run.state_file, weights_only=True)
    damage(state["callbacks"])
    torch.save(state, run.state_file)
    (run.folder / NAME).unlink()
    assert text_of(lambda: fit(recipe("snip"), run.folder)).startswith(said)


def test_a_convnet_is_pruned_by_weights(tmp_path):
    fields = {"model": "efficient_convnet", "data": "tiny", "epochs": 1, "prune": "random_masks"}
    run = fit(make_recipe(**fields, prune_to=0.5), tmp_path / "run")
    assert run.result()["sparsity"]["share"] == pytest.approx(0.5, abs=1e-4)
    assert "entropy" not in run.metrics()[0]


def test_the_pruner_is_that_of_the_recipe():
    model = initial_model(recipe(None), tiny("train", None))
    pruner = make_pruner(recipe("magnitude", prune_to=0.5), model)
    assert isinstance(pruner, Magnitude)
    assert pruner.targets == ramp(0.5, epochs=2)
    assert make_pruner(recipe(None), model) is None


CHILD = """
import os
import sys
from pathlib import Path
import torch
from torchcaps.data import SOURCES, PartWholeSpec, part_whole
from torchcaps.prune.weights import prunable
from torchcaps.train import fit, read_recipe

torch.set_num_threads(1)
training, models = sys.modules["torchcaps.train.prepare"], []
made = training.make_pruner

def kept(recipe, model):
    models.append(model)
    return made(recipe, model)

training.make_pruner = kept
SOURCES["tiny"] = lambda split, root: part_whole(
    split, {"train": 48, "test": 12}[split], spec=PartWholeSpec(size=20)
)
out = Path(sys.argv[1])
for name in sys.argv[2:]:
    fit(read_recipe(out / f"{name}.json"), out / name)
    masks = {key: weight.detach() == 0 for key, weight in prunable(models[-1]).items()}
    torch.save(masks, out / f"{name}{os.environ['RANK']}.pt")
"""


@pytest.mark.cluster
def test_two_processes_prune_the_same_weights_as_one(tmp_path):
    """Both processes have the same masks, and those of one but for what rounding moves over a
    threshold."""
    ways = ("snip", "magnitude", "lobster", "random_masks")
    plain = {"model": "rem_dr", "optimiser": "sgd", "learning_rate": 0.01}
    plain["options"] = {"kernel": 7, "types": 2}
    alone = {}
    for way in ways:
        one = recipe(way).model_copy(update=plain)
        (tmp_path / f"{way}.json").write_text(one.model_dump_json())
        alone[way] = fit(one, tmp_path / f"alone-{way}")
    (tmp_path / "child.py").write_text(CHILD)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc-per-node", "2", str(tmp_path / "child.py"), str(tmp_path), *ways]
    quiet = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=quiet)
    assert done.returncode == 0, done.stderr
    for way in ways:
        assert shares(Run(tmp_path / way)) == pytest.approx(shares(alone[way]), abs=0.01)
        one, two = (prunable(load(run.model_file)) for run in (alone[way], Run(tmp_path / way)))
        differ = sum(int(((one[name] == 0) != (two[name] == 0)).sum()) for name in one)
        assert differ <= 0.01 * sum(weight.numel() for weight in one.values())
        first, second = (torch.load(tmp_path / f"{way}{rank}.pt") for rank in (0, 1))
        assert all(torch.equal(first[name], second[name]) for name in one)
        assert all(torch.equal(first[name], two[name] == 0) for name in one)
