"""Networks on disk: saved and loaded, with other classes, with weights of other code."""
