"""Every option of every network has a sentence, and no sentence is about an option that is gone."""

from torchcaps.models import MODELS
from torchcaps.models.meanings import MEANINGS


def test_every_option_has_a_meaning_and_every_meaning_an_option() -> None:
    assert set(MEANINGS) == {option for preset in MODELS.values() for option in preset.options}


def test_they_read_like_one_list() -> None:
    for meaning in MEANINGS.values():
        assert not meaning.endswith(".")
        assert len(meaning) < 120
