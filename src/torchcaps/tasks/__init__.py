"""The rooms that join both wings: what a command does. Needs the extra [study]."""

from typing import TYPE_CHECKING

from torchcaps._lazy import lazily

if TYPE_CHECKING:
    from torchcaps.tasks.check_run import CheckedRun as CheckedRun
    from torchcaps.tasks.check_run import check_run as check_run
    from torchcaps.tasks.demo import demo as demo
    from torchcaps.tasks.dictionary import Dictionary as Dictionary
    from torchcaps.tasks.dictionary import dictionary as dictionary
    from torchcaps.tasks.dissect import dissect as dissect
    from torchcaps.tasks.dissect import dissect_files as dissect_files
    from torchcaps.tasks.dissect import trace_images as trace_images
    from torchcaps.tasks.dissect import write_report as write_report
    from torchcaps.tasks.estimate import Estimate as Estimate
    from torchcaps.tasks.estimate import estimate as estimate
    from torchcaps.tasks.evaluate import evaluate as evaluate
    from torchcaps.tasks.evaluate import evaluate_file as evaluate_file
    from torchcaps.tasks.examination.doctor import doctor as doctor
    from torchcaps.tasks.examination.doctor import doctor_run as doctor_run
    from torchcaps.tasks.examination.doctor import examine as examine
    from torchcaps.tasks.export import Exported as Exported
    from torchcaps.tasks.export import export as export
    from torchcaps.tasks.perturb import Perturbed as Perturbed
    from torchcaps.tasks.perturb import perturb as perturb
    from torchcaps.tasks.predict import predict as predict
    from torchcaps.tasks.predictions import write_predictions as write_predictions
    from torchcaps.tasks.prune_run import prune_run as prune_run


lazily(__name__)
