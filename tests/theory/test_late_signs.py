"""The networks of docs/findings/late-signs.md: the paper's, and the same for four times as long."""

from pathlib import Path

import pytest

from torchcaps.study import read_records

EVIDENCE = Path(__file__).parents[2] / "evidence"
AFTER = 50


def test_what_the_paper_prints_after_fifty_epochs_is_there_after_two_hundred():
    (longer,) = read_records(EVIDENCE, study="sign-for-longer").values()
    of_paper = read_records(EVIDENCE, study="peer2022/table1").values()
    (short,) = (each for each in of_paper if "peer2022-t1-rba-bias" in each.claims)
    # The same networks: seed by seed as accurate after the paper's 50 epochs.
    at_fifty = {seed.seed: 100 * seed.per_epoch[AFTER - 1]["accuracy"] for seed in longer.seeds}
    printed = {seed.seed: seed.values["accuracy"] for seed in short.seeds}
    for seed, accuracy in at_fifty.items():
        assert accuracy == pytest.approx(printed[seed], abs=1.5), seed
    assert min(at_fifty.values()) == pytest.approx(50, abs=0.1)
    assert min(seed.values["accuracy"] for seed in longer.seeds) > 98
