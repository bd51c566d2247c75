"""The explorer: one page on this machine where a network is taken apart by hand.

    state.py       what a page asks: which network, which image, what is changed inside
    opened.py      the networks and the images that it was given, and nothing else
    remembered.py  what need not be computed twice
    looking.py     from a question to numbers and pictures
    pictures.py    pictures that somebody drops, decoded within bounds
    guard.py       who may ask, and how much
    server.py      the paths that are answered
    page/          the page itself: HTML, CSS and JS as they are sent

Needs the extra [explore].
"""

__all__: list[str] = []
