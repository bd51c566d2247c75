"""Pages of the documentation, the code on them, and the scripts beside them."""

import importlib.util
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"


def blocks_of(page, language="python"):
    """The code on a page, in the order it stands there."""
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)


def script_at(path):
    """A script as a module, though it is in no package."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
