"""All pages of the court, written at once: the front page, the questions, the papers, and their
appendices with the records; and the overview in the README."""

import os
from pathlib import Path
from urllib.parse import quote

from torchcaps._paths import write_whole
from torchcaps.errors import TorchcapsError
from torchcaps.study.record import read_records
from torchcaps_claims.claim import PAPERS
from torchcaps_claims.pages import appendix, changed, decided, overview, page
from torchcaps_claims.questions import front_page, question_pages
from torchcaps_claims.result import results

BEGIN, END = "<!-- claims: made by `make tables` -->", "<!-- end of claims -->"


def write_pages(
    evidence: str | os.PathLike[str], out: str | os.PathLike[str], readme: str | os.PathLike[str]
) -> list[Path]:
    """Write all pages into a folder, and the overview between its markers in the README; return the
    paths. Refused where there are no records: the pages would say that nothing was ever judged."""
    records = read_records(evidence)
    if not records:
        raise TorchcapsError(
            f"there is no record in {evidence}, so every page would lose its verdicts; name the "
            f"folder of the records: --evidence FOLDER on the command line."
        )
    found, folder = results(evidence), Path(out)
    with_overview = _put_between(Path(readme), overview(found, way(Path(readme).parent, out)))
    to_evidence = way(folder / "records", evidence)
    texts = question_pages(found, records, to_evidence)
    for paper in PAPERS:
        of_paper = [each for each in found if each.claim.paper == paper]
        texts[f"papers/{paper}.md"] = page(paper, of_paper, to_evidence)
        texts[f"records/{paper}.md"] = appendix(paper, of_paper, to_evidence)
    texts["papers/decided.md"] = decided(found)
    texts["changed.md"] = changed({each.claim.id: each for each in found})
    texts["README.md"] = front_page(found, records, texts, overview(found, "."))
    paths = {folder / name: text for name, text in texts.items()} | {Path(readme): with_overview}
    for path, text in paths.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, text)
    return [*paths]


def way(folder: str | os.PathLike[str], to: str | os.PathLike[str]) -> str:
    """How a page in a folder links to another one."""
    return quote(Path(os.path.relpath(to, folder)).as_posix())


def _put_between(path: Path, text: str) -> str:
    """A file, with other text between its markers."""
    try:
        # A pipe would be waited for.
        whole = path.read_text(encoding="utf-8") if path.is_file() else ""
    except UnicodeDecodeError:
        whole = ""
    if whole.count(BEGIN) != 1 or whole.count(END) != 1 or whole.index(BEGIN) > whole.index(END):
        raise TorchcapsError(
            f"{path} must hold the lines {BEGIN!r} and {END!r} once each and in this order; what "
            f"stands between them is replaced."
        )
    before, _, rest = whole.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{text}\n{END}{after}"
