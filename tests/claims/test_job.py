"""Jobs: the commands that run them, their smaller form."""

import shlex

import pytest

from made_records import job_of as job
from torchcaps.cli.arguments import options_from
from torchcaps_claims import Reduced, claims, find_claim, plan_of


def test_quantising_is_no_training():
    assert job(after=("quantise",)).key == job().key != job(after=("prune",)).key
    assert job(after=("prune",), at={"sparsity": 50}).key != job(after=("prune",)).key


def test_levels_are_those_of_the_row_or_of_the_paper():
    assert job().levels == ()
    assert job(after=("quantise",)).levels == (11,)
    assert job(after=("quantise",), model="rem_gamma").levels == (11, 6)
    assert job(after=("quantise",), model="rem_gamma", at={"K": 21}).levels == (21,)
    # A row says so in words; `torchcaps study status` reads every row.
    assert job(after=("quantise",), at={"K": "not stated for SVHN"}).levels == (11,)


def test_a_quantised_job_is_evaluated_on_the_grid():
    (_, command) = job(after=("quantise",), metrics=("accuracy", "entropy")).commands()
    assert command.endswith("--split test --quantise 11 --measure keys --json")


def test_what_is_written_out_trains_no_other_network():
    assert job(options={"iterations": 3}, fields={"loss": "auto"}).key == job().key
    for changes in (
        {"options": {"iterations": 2}},
        {"fields": {"loss": "binary"}},
        {"fields": {"stop_at": 0.5}},
        {"train": "fashion-mnist"},
        {"protocol": "gu"},
        {"model": "rem_dr"},
    ):
        assert job(**changes).key != job().key
    assert job(test="fashion-mnist", metrics=("dyr",), seeds=3).key == job().key


def test_commands_train_and_look():
    (found,) = plan_of(find_claim("gu2021-t4-squash-no-train")).jobs
    run = f"runs/gu_capsnet-{found.key}-s2"
    assert found.commands(seed=2, root="sets") == (
        "torchcaps train --protocol gu_multi_mnist --model gu_capsnet --data multi-mnist-100 "
        "--root sets --option primary_squash=none --option class_squash=none --seed 2 "
        f"--out {run}",
        f"torchcaps eval {run} --data multi-mnist-100 --root sets --split train --json",
    )


def test_images_of_the_run_itself_need_no_second_command():
    (found,) = plan_of(find_claim("gu2021-t1-capsnet-mnist")).jobs
    assert [command.split()[1] for command in found.commands()] == ["train"]
    (found,) = plan_of(find_claim("gu2021-t1-capsnet-affnist")).jobs
    assert [command.split()[1] for command in found.commands()] == ["train", "eval"]
    (found,) = plan_of(find_claim("mitt2023-t1-layer1-dyr")).jobs
    assert [command.split()[1] for command in found.commands()] == ["train", "dissect"]


def test_made_images_need_no_root():
    (found,) = plan_of(find_claim("peer2022-t1-rba-bias")).jobs
    assert "--root" not in " ".join(found.commands())


@pytest.mark.parametrize("value", [True, False, None, 3, 0.5, "none", "16", "16,16", [5, 8]])
def test_a_command_line_reads_what_was_meant(value):
    text = job(options={"x": value}).commands()[0]
    words = shlex.split(text)
    assert options_from([words[words.index("--option") + 1]]) == {"x": value}


def test_a_size_of_images_is_an_argument_of_its_own():
    text = job(fields={"image_size": (24, 32), "epochs": 2}).commands()[0]
    assert "--image-size 24x32 --set epochs=2" in text


def test_the_smaller_form_says_so():
    full = job(test="affnist", train="expanded-mnist")
    assert full.smaller() == full
    smaller = Reduced("5 epochs", {"epochs": 5}, test="affnist-style")
    small = job(test="affnist", train="expanded-mnist", reduced=smaller).smaller()
    assert (small.train, small.test, small.fields) == (
        "expanded-mnist",
        "affnist-style",
        {"epochs": 5},
    )
    assert small.departures == ("reduced: 5 epochs",)
    assert small.recipe().epochs == 5
    # A smaller training set is tested on its own test images.
    narrow = job(reduced=Reduced("narrow", options={"width": 64})).smaller()
    assert narrow.options == {**job().options, "width": 64}
    other = job(reduced=Reduced("other", train="fashion-mnist")).smaller()
    assert (other.train, other.test) == ("fashion-mnist", "fashion-mnist")
    assert other.protocol == job().protocol
    assert job(reduced=Reduced("to the end", protocol="gu")).smaller().protocol == "gu"


def test_seeds_are_the_only_difference():
    first, second = job().recipe(seed=0), job().recipe(seed=1)
    assert first.model_copy(update={"seed": 1}) == second
    assert job().numbers()["key"] == job().key


def test_a_run_that_ends_early_is_the_beginning_of_a_longer_one():
    """A cosine, or milestones beyond its end, would give other rates to the same first epochs."""
    early = [job for claim in claims() for job in plan_of(claim).jobs if job.ends]
    recipes = [each.recipe() for job in early for each in (job, job.smaller())]
    assert recipes
    assert {recipe.schedule for recipe in recipes} == {"exponential"}
    assert {recipe.epochs for recipe in recipes} == {1}
