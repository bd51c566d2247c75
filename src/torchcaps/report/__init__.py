"""From numbers and pictures to one self-contained page. Needs the extra [study]."""

from torchcaps._extras import needing

with needing("matplotlib", room="report", extra="study"):
    from torchcaps.report.claims import ClaimRow, Overview, Strip, render_claims
    from torchcaps.report.page import Dissection, Picture, Trees, render
    from torchcaps.report.verdict import Sentence, verdict

__all__ = [
    "ClaimRow",
    "Dissection",
    "Overview",
    "Picture",
    "Sentence",
    "Strip",
    "Trees",
    "render",
    "render_claims",
    "verdict",
]
