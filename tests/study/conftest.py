"""A study of one epoch on few numbers, and the command line that runs one."""

import pytest

from laid_runs import few_numbers
from study_line import Lines
from torchcaps.data import SOURCES
from torchcaps.study.ledger import Ledger
from torchcaps.study.look import Look
from torchcaps.study.system import Study, System
from torchcaps.train import make_recipe


@pytest.fixture(autouse=True, scope="module")
def _few_numbers():
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(SOURCES, "sign", few_numbers)
        yield


@pytest.fixture
def study():
    """Makes a study of sign networks that are trained for one epoch."""

    def make(*, seeds=(0,), learning_rate=1e-3, data="sign", epochs=1):
        recipe = make_recipe(
            model="peer_sign_em",
            data=data,
            epochs=epochs,
            batch_size=200,
            learning_rate=learning_rate,
            validation_share=0.0,
            options={"bias": True},
        )
        look = Look("accuracy", "sign", "train")
        system = System("sign", recipe, tuple(seeds), (look,), ("peer2022-t1-em-bias",))
        return Study("peer2022/table1", (system,))

    return make


@pytest.fixture
def ledger(tmp_path):
    return Ledger(tmp_path / "runs")


@pytest.fixture
def lines(tmp_path):
    made = Lines(tmp_path)
    yield made
    made.end()
