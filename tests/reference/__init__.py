"""Loop-by-loop twins of the ops, written from the papers; nothing here imports torchcaps.

Every number is a 0-d tensor and every sum one of Python, so a twin can be read against the paper
line by line, and autograd on it gives the gradients that the paper's equations have. Slow
on purpose.
"""
