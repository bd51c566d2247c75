"""From numbers and pictures to one self-contained page. Needs the extra [study]."""

from torchcaps._extras import needing

with needing("matplotlib", room="report", extra="study"):
    from torchcaps.report.page import Dissection, Picture, render
    from torchcaps.report.verdict import Sentence, verdict

__all__ = ["Dissection", "Picture", "Sentence", "render", "verdict"]
