"""The rooms that join both wings: what a command does. Needs the extra [study]."""

from torchcaps.tasks.demo import demo
from torchcaps.tasks.dissect import dissect, dissect_files, trace_images, write_report

__all__ = ["demo", "dissect", "dissect_files", "trace_images", "write_report"]
