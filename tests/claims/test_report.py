"""The report of all claims, made of the records of this repository."""

from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from error_text import text_of
from torchcaps.study import read_records
from torchcaps_claims import find_claim, result_of
from torchcaps_claims.report import GROUPS, group_of, write_claims_report

EVIDENCE = Path(__file__).parents[2] / "evidence"


@pytest.mark.parametrize(
    ("claim", "group"),
    [
        ("peer2022-lemma-1", "stands"),
        ("mitt2023-theorem-1-magnitude-remark", "falls"),
        ("gu2021-t1-ge-capsnet-mnist", "never"),
        ("gu2021-t1-capsnet-affnist", "open"),
    ],
)
def test_what_a_status_comes_to(claim, group):
    records = read_records(EVIDENCE, study="mitterreiter2023/tests")
    records |= read_records(EVIDENCE, study="peer2022/tests")
    assert group_of(result_of(find_claim(claim), records)) == group
    assert group in GROUPS


@pytest.mark.parametrize("name", ["evidence", "my #1? evidence 50%"])
def test_every_claim_is_on_the_page(tmp_path, name):
    (tmp_path / name).symlink_to(EVIDENCE, target_is_directory=True)
    path = write_claims_report(tmp_path / "out" / "claims.html", evidence=tmp_path / name)
    text = path.read_text(encoding="utf-8")
    assert text.count('<li class="') == 947
    link = text.split('<a href="', 1)[1].split('"', 1)[0]
    address = urlsplit(link)
    assert (address.query, address.fragment) == ("", "")
    assert (path.parent / unquote(address.path)).is_file()


@pytest.mark.parametrize("out", ["", ".", "claims"])
def test_a_folder_in_the_place_of_the_page_is_told(tmp_path, monkeypatch, out):
    """Found by make fuzz."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "claims").mkdir()
    said = text_of(lambda: write_claims_report(out, evidence=EVIDENCE))
    assert said.endswith("is a folder; name a file in it, ending in .html.")
