"""Text of somebody else's, on its way to a terminal or a picture: a name is not a command."""

import unicodedata

# Controls, marks that turn the direction of writing, halves of characters, and what is unassigned.
HIDDEN = ("Cc", "Cf", "Cs", "Cn", "Co")
# Joins the parts of one emoji, and parts letters in some languages: harmless and common.
HARMLESS = "\u200c\u200d"


def printable(text: str, *, keep: str = "\n\t") -> str:
    """The text with every character that steers a terminal, or that no XML may hold, as its escape.

    keep: such characters that stay as they are.

    >>> printable("cat\\x1b[2J")
    'cat\\\\x1b[2J'
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        character
        if character in keep
        or character in HARMLESS
        or unicodedata.category(character) not in HIDDEN
        else character.encode("unicode_escape", "surrogatepass").decode("ascii")
        for character in text
    )
