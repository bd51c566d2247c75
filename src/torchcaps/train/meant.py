"""Fields of a recipe by the names that they have elsewhere, for who types those."""

__all__ = ["MEANT"]

MEANT = {
    "amp": "precision",
    "bs": "batch_size",
    "criterion": "loss",
    "dataset": "data",
    "early_stopping": "patience",
    "img_size": "image_size",
    "lr": "learning_rate",
    "lr_scheduler": "schedule",
    "max_epochs": "epochs",
    "opt": "optimiser",
    "wd": "weight_decay",
}
