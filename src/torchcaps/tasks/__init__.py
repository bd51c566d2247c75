"""The rooms that join both wings: what a command does. Needs the extra [study]."""

from typing import TYPE_CHECKING

from torchcaps._lazy import lazily

if TYPE_CHECKING:
    from torchcaps.tasks.check_run import CheckedRun, check_run
    from torchcaps.tasks.demo import demo
    from torchcaps.tasks.dictionary import Dictionary, dictionary
    from torchcaps.tasks.dissect import dissect, dissect_files, trace_images, write_report
    from torchcaps.tasks.estimate import Estimate, estimate
    from torchcaps.tasks.evaluate import evaluate, evaluate_file
    from torchcaps.tasks.examination.doctor import doctor, doctor_run, examine
    from torchcaps.tasks.export import Exported, export
    from torchcaps.tasks.perturb import Perturbed, perturb
    from torchcaps.tasks.predict import predict
    from torchcaps.tasks.predictions import write_predictions
    from torchcaps.tasks.prune_run import prune_run

__all__ = [
    "CheckedRun",
    "Dictionary",
    "Estimate",
    "Exported",
    "Perturbed",
    "check_run",
    "demo",
    "dictionary",
    "dissect",
    "dissect_files",
    "doctor",
    "doctor_run",
    "estimate",
    "evaluate",
    "evaluate_file",
    "examine",
    "export",
    "perturb",
    "predict",
    "prune_run",
    "trace_images",
    "write_predictions",
    "write_report",
]

lazily(__name__)
