"""What is wrong with the fields of a recipe, in one sentence."""

import re

from pydantic import ValidationError

from torchcaps._names import joined
from torchcaps.errors import short


def in_words(error: ValidationError) -> str:
    """Say every fault with its field, of very many the first."""
    faults = []
    fields = [fault["loc"][:1] for fault in error.errors()]
    for fault in error.errors():
        is_list = isinstance(fault["input"], list | tuple)
        if fields.count(fault["loc"][:1]) > 1 and (fault["type"] == "tuple_type" or is_list):
            # Of a field that takes a number or a list, the fault of what it did not come as.
            continue
        # Without the name of the type that was tried.
        kept = [str(x) for x in fault["loc"] if not re.match(r"float$|(tuple|literal)\[", str(x))]
        where = ".".join(part[:40] for part in kept)
        if fault["type"] == "missing":
            faults.append(f"{where} is missing, --{where} on the command line")
        elif fault["type"] == "tuple_type":
            came = fault["input"]
            # 48x64 is how the command line has an image size.
            sides = re.fullmatch(r"([0-9]{1,5})(?:x([0-9]{1,5}))?", str(came))
            example = f"{sides[1]}, {sides[2] or sides[1]}" if sides else short(came)
            faults.append(f"{where} must be a list, such as [{example}], but came as {short(came)}")
        else:
            what = fault["msg"].removeprefix("Value error, ")
            what += ", or a list" if "literal[" in str(fault["loc"]) else ""
            said = "" if fault["type"] == "value_error" else f", not {short(fault['input'])}"
            if any(each.endswith(f": {what}") for each in faults):
                # A list of all names is told once.
                what = "the same"
            faults.append(f"{where}: {what[0].lower()}{what[1:]}{said}" if where else what)
    return joined(faults)
