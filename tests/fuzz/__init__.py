"""Bad input and odd numbers without end: `make fuzz`.

Everything is drawn from a seed that is printed. What is found becomes a case of its own in a test
here, and is mended.
"""
