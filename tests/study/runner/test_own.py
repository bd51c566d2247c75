"""Studies of one's own, out of TOML files."""

from pathlib import Path

import pytest

from error_text import text_of
from torchcaps.study.runner import study_of

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
    study = study_of(file(EXAMPLE))
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


def test_a_file_may_speak_of_claims(file):
    text = f'claims = ["mitt2023-q-cas-declines"]\nreduced = "made images"\nname = "x"\n{EXAMPLE}'
    study = study_of(file(text))
    assert study.name == "x"
    assert study.systems[0].claims == ("mitt2023-q-cas-declines",)
    assert study.systems[0].reduced == "made images"


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('["dynamic", "uniform"]', '"dynamic"', "routing must be a list of values, for example"),
        ("[0, 1, 2]", "[0, 0]", "seed must list whole numbers, each once, but lists [0, 0]."),
        ("[0, 1, 2]", '["a"]', "seed must list whole numbers, each once, but lists ['a']."),
        ('"dyr"', '"dyrr"', "statistic 'dyrr' cannot be measured in a study; did you mean 'dyr'?"),
        ("epochs", "epoch", "a recipe has no field 'epoch'; did you mean 'epochs'?"),
        ("[vary]", "[vary", "cannot be read as TOML"),
    ],
)
def test_what_is_wrong_is_a_sentence_with_the_file(file, old, new, says):
    path = file(EXAMPLE.replace(old, new))
    said = text_of(lambda: study_of(path))
    assert said.startswith(path)
    assert says in said


@pytest.mark.parametrize("path", sorted((Path(__file__).parents[3] / "studies").glob("*.toml")))
def test_the_studies_that_are_here_can_be_run(path):
    study = study_of(str(path))
    assert study.name == path.stem
    assert not study.waiting
    assert all(len(system.seeds) >= 3 and system.looks for system in study.systems)
