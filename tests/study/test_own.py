"""Studies of one's own, out of TOML files."""

from pathlib import Path

import pytest

from error_text import text_of
from torchcaps.study.own import own_study, read_study
from torchcaps.train.protocols import PROTOCOLS
from torchcaps_claims import find_claim, plan_of

EXAMPLE = """
model = "mitterreiter_grid"
data = "part-whole"
epochs = 2
measure = ["accuracy", "dyr"]

[options]
widths = "16,16"

[vary]
routing = ["dynamic", "uniform"]
batch_size = [32, 64]
seed = [0, 1, 2]
"""


@pytest.fixture
def file(tmp_path):
    def write(text):
        path = tmp_path / "Depth of 2.toml"
        path.write_text(text)
        return str(path)

    return write


def test_every_combination_is_a_system(file):
    study = read_study(file(EXAMPLE))
    assert study.name == "depth-of-2"
    assert [system.label for system in study.systems] == [
        "routing=dynamic batch_size=32",
        "routing=dynamic batch_size=64",
        "routing=uniform batch_size=32",
        "routing=uniform batch_size=64",
    ]
    last = study.systems[-1]
    assert last.recipe.options == {"widths": "16,16", "routing": "uniform"}
    assert (last.recipe.batch_size, last.seeds, last.claims) == (64, (0, 1, 2), ())
    assert [look.name for look in last.looks] == [
        "accuracy@part-whole/test",
        "layers@part-whole/test",
    ]
    assert len({cell.name for cell in study.cells()}) == 12


def test_a_study_of_claims_trains_what_is_planned_or_says_how_it_is_smaller():
    claim = "peer2022-q-sign-not-learnable"
    (job, *_) = plan_of(find_claim(claim)).jobs
    fields = job.recipe().model_dump(exclude_unset=True)
    study = {"name": "x", "vary": {}, "measure": ["accuracy"], "claims": [claim]}
    assert own_study(fields, **study).systems[0].reduced is None
    shorter = {**fields, "epochs": 1}
    assert text_of(lambda: own_study(shorter, **study)) == (
        f"the study speaks of {claim}, whose plan does not train the network {job.model} in this "
        f'way, so it must say how it is smaller: reduced = "three epochs"; or leave claims out.'
    )
    assert own_study(shorter, **study, reduced="one epoch").systems[0].reduced == "one epoch"


def test_a_file_may_speak_of_claims(file):
    text = f'claims = ["mitt2023-q-cas-declines"]\nreduced = "made images"\nname = "x"\n{EXAMPLE}'
    study = read_study(file(text))
    assert study.name == "x"
    assert study.systems[0].claims == ("mitt2023-q-cas-declines",)
    assert study.systems[0].reduced == "made images"


def test_a_study_of_claims_says_where_it_departs_as_planned_ones_do():
    """From the paper, and from the protocol that it follows."""
    fields = {"protocol": "mitterreiter", "model": "mitterreiter_5x16", "data": "part-whole"}
    study = {"name": "x", "vary": {"epochs": [50, 3]}, "measure": ["accuracy"]}
    of_claims = {**study, "claims": ["mitt2023-q-cas-declines"], "reduced": "made images"}
    stops = PROTOCOLS["mitterreiter"].departs["stop_at"]
    assert [each.departures for each in own_study(fields, **of_claims).systems] == [
        (stops,),
        (stops, "epochs: 3, where the protocol mitterreiter has 50"),
    ]
    assert {each.departures for each in own_study(fields, **study).systems} == {()}


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('["dynamic", "uniform"]', '"dynamic"', "routing must be a list of values, for example"),
        ("[0, 1, 2]", "[0, 0]", "seed must list whole numbers, each once, but lists [0, 0]."),
        ("[0, 1, 2]", "[0, true]", "seed must list whole numbers, each once, but lists [0, True]."),
        ("[0, 1, 2]", "[0, -1]", "seed must list numbers from 0 to 4294967295, but lists [0, -1]."),
        ("[0, 1, 2]", '["a"]', "seed must list whole numbers, each once, but lists ['a']."),
        ('"dyr"', '"dyrr"', "statistic 'dyrr' cannot be measured in a study; did you mean 'dyr'?"),
        ("epochs", "epoch", "a recipe has no field 'epoch'; did you mean 'epochs'?"),
        ("[vary]", "[vary", "cannot be read as TOML"),
        ('["accuracy", "dyr"]', "[1]", "measure must list names of statistics, for example"),
        (
            '["dynamic", "uniform"]\nbatch_size = [32, 64]',
            '["dynamic"]\niterations = [3, 3]',
            "'routing=dynamic iterations=3' and 'routing=dynamic iterations=3' train the same "
            "network, which would count twice; leave one of them out.",
        ),
        (
            '["dynamic", "uniform"]\nbatch_size = [32, 64]',
            '["dynamic"]\ntest_data = ["part-whole", "part-whole"]',
            "train the same network, which would count twice",
        ),
        (
            'routing = ["dynamic", "uniform"]',
            'options = [{routing = "uniform"}]',
            "options cannot vary as a whole; name one of them under [vary], for example iterations "
            "= [1, 3].",
        ),
    ],
)
def test_what_is_wrong_is_a_sentence_with_the_file(file, old, new, says):
    path = file(EXAMPLE.replace(old, new))
    said = text_of(lambda: read_study(path))
    assert said.startswith(path)
    assert says in said


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("name = 3", "name is the folder of the records, lower-case letters, digits, - and _, for"),
        ('name = "My Study"', "but is 'My Study'; where none is given it"),
        ('name = "../x"', "but is '../x'; where none is given it is made of the name of the file."),
        ('claims = "abc"', "claims must be a list of ids, as `torchcaps study claims` prints them"),
        ("claims = [1]", "but is [1]."),
        ('claims = ["mitt2023-q-cas-decline"]', "no claim has the id 'mitt2023-q-cas-decline'"),
        ("reduced = 3", 'ask for, for example reduced = "2 epochs", but is 3.'),
        ('reduced = ""', "reduced must say in words how the study is smaller than what its claims"),
    ],
)
def test_what_no_record_could_hold_is_found_before_training(file, line, says):
    path = file(f"{line}\n{EXAMPLE}")
    said = text_of(lambda: read_study(path))
    assert said.startswith(path)
    assert says in said


@pytest.mark.parametrize(
    ("data", "statistic", "options", "says"),
    [
        (
            "mnist",
            "focus",
            "",
            "measure asks where the parts of an image are (focus@mnist/test), which only the "
            'images of part-whole tell, but data is "mnist"; leave it out.',
        ),
        (
            "part-whole",
            "entity_selectivity@mnist/test",
            "",
            "measure asks where the parts of an image are (selectivity@mnist/test), which only the "
            'images of part-whole tell, but data is "mnist"; leave it out.',
        ),
        (
            "part-whole",
            "saliency",
            "",
            "measure asks how far pruning moves saliency (saliency@part-whole/test), but nothing "
            'is pruned; set a way to prune, for example prune = "lobster", or leave it out.',
        ),
        (
            "part-whole",
            "class_separation",
            "decoder = false",
            "measure asks what a decoder sees (separation@part-whole/test), but mitterreiter_grid "
            "has none; set its option decoder = true, or leave it out.",
        ),
        (
            "part-whole",
            "accuracy@own/test",
            "",
            "'accuracy@own/test': images that a Python program holds have no name; name a data "
            "set.",
        ),
    ],
)
def test_what_cannot_be_measured_is_found_before_training(file, data, statistic, options, says):
    text = (
        f'model = "mitterreiter_grid"\ndata = "{data}"\nmeasure = ["accuracy", "{statistic}"]\n'
        f"[options]\n{options}\n"
    )
    assert text_of(lambda: read_study(file(text))).endswith(f": {says}")


@pytest.mark.parametrize("name", ["model", "data"])
def test_what_only_a_program_holds_is_no_study(file, name):
    old = {"model": "mitterreiter_grid", "data": "part-whole"}[name]
    text = EXAMPLE.replace(old, "own").partition("[options]")[0]
    assert text_of(lambda: read_study(file(text))).endswith(
        'model = "own" and data = "own" stand for what a Python program holds, and a study trains '
        "by names; name both, or call fit and compare in Python."
    )


def test_what_varies_is_a_table(file):
    path = file('model = "mitterreiter_grid"\ndata = "part-whole"\nvary = ["seed"]')
    assert text_of(lambda: read_study(path)) == (
        f"{path}: vary must be a table of lists, [vary] and below it a line such as seed = "
        f"[0, 1, 2], but is ['seed']."
    )


@pytest.mark.parametrize(("stem", "name"), [("_a", "a"), ("A b", "a-b"), ("研究", "")])
def test_the_name_of_a_file_names_its_records(tmp_path, stem, name):
    path = tmp_path / f"{stem}.toml"
    path.write_text(EXAMPLE)
    if name:
        assert read_study(str(path)).name == name
    else:
        said = text_of(lambda: read_study(str(path)))
        assert "but is ''; where none is given it is made of" in said


@pytest.mark.parametrize("path", sorted((Path(__file__).parents[2] / "studies").glob("*.toml")))
def test_the_studies_that_are_here_can_be_run(path):
    study = read_study(str(path))
    assert study.name == path.stem
    assert not study.waiting
    assert all(len(system.seeds) >= 3 and system.looks for system in study.systems)
