"""How images are shown: in another size, a window of them, changed anew in every epoch."""
