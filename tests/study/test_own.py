"""Studies of one's own, out of TOML files."""

from pathlib import Path

import pytest

from error_text import text_of
from registries import as_before
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


def test_several_data_sets_are_systems_of_one_table(file):
    text = EXAMPLE.replace("batch_size = [32, 64]", 'data = ["mnist", "fashion-mnist"]')
    study = read_study(file(text.replace('data = "part-whole"\n', "")))
    assert [(each.label, each.looks[0].name) for each in study.systems[:2]] == [
        ("routing=dynamic data=mnist", "accuracy@mnist/test"),
        ("routing=dynamic data=fashion-mnist", "accuracy@fashion-mnist/test"),
    ]


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


def test_a_claim_names_an_option_in_braces(file):
    """A table of a paper is one study, whose records speak of one number each; three layers are
    the default."""
    text = """
    model = "peer_deep_dynamic"
    data = "mnist"
    claims = ["peer2022-t2-mnist-nobias-n{n_layers}"]
    reduced = "one epoch"

    [vary]
    n_layers = [2, 3]
    """
    assert [each.claims for each in read_study(file(text)).systems] == [
        ("peer2022-t2-mnist-nobias-n2",),
        ("peer2022-t2-mnist-nobias-n3",),
    ]
    unknown = text.replace("[2, 3]", "[6]")
    assert "peer2022-t2-mnist-nobias-n6" in text_of(lambda: read_study(file(unknown)))


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
    with as_before():
        study = read_study(str(path))
    assert study.name == path.stem
    assert not study.waiting
    assert all(len(system.seeds) >= 3 and system.looks for system in study.systems)
