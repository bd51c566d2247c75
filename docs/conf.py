"""Settings of `make docs`: the pages of docs/ and claims/pages/, and the API out of docstrings.

The root of the site is the repository, so links between pages, README and records hold as they do
on a plain git host. The pages of the reference are made anew by every build, in docs/reference/.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import gallery

import reference
import torchcaps

ROOT = Path(__file__).parents[1]

project = "torchcaps"
author = "The torchcaps maintainers"
version = release = torchcaps.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc"]
root_doc = "README"
include_patterns = [
    *("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs/**"),
    *("claims/README.md", "claims/pages/**"),
]
# Sphinx walks through every folder that is not named here.
exclude_patterns = [".*", "build", "dist", "runs", "evidence", "src", "tests", "benchmarks"]

html_theme = "furo"
html_title = f"torchcaps {release}"
html_copy_source = False
html_show_sourcelink = False
html_show_copyright = False
html_static_path = ["static"]
html_css_files = ["docs.css"]

myst_heading_anchors = 3
highlight_language = "text"  # an indented block may be commands, formulas or a table
smartquotes_action = "De"  # dashes; a quoted word is one to type

autodoc_inherit_docstrings = False  # else torch and Lightning explain our methods
autodoc_preserve_defaults = True
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
python_display_short_literal_types = True
python_maximum_signature_line_length = 80
add_module_names = False
toc_object_entries_show_parents = "hide"
nitpicky = True

# Every page of docs/ is in one of these; Sphinx warns of a page that is in none.
CONTENTS = {
    "Guide": [
        "docs/start",
        "docs/which-network",
        "docs/tutorials/*",
        "docs/demo",
        "docs/commands",
        "docs/explorer",
        "docs/zoo",
        "docs/own-pictures",
        "docs/practice",
        "docs/own-networks",
        "docs/fine-tuning",
        "docs/interoperability",
        "docs/training",
        "docs/logging",
        "docs/data",
        "docs/models",
        "docs/layers",
        "docs/traces",
        "docs/measures",
        "docs/gallery",
        "docs/pruning",
        "docs/pruned-trees",
        "docs/porting",
        "docs/studies",
        "docs/performance",
        "docs/backends",
        "docs/trust",
        "docs/not-yet",
    ],
    "Reference": [reference.page(module) for module in reference.modules()],
    "Routings": ["docs/routing/*"],
    "The court of five papers": [
        "claims/pages/README",
        "claims/pages/questions/*",
        "claims/pages/findings/*",
        "claims/pages/papers/*",
        "claims/pages/records/*",
        "claims/pages/verdicts",
        "claims/pages/what-was-run",
        "claims/pages/changed",
        "claims/pages/first-reading",
        "claims/pages/second-reading",
        "claims/pages/third-reading",
        "claims/pages/fourth-reading",
        "claims/pages/fifth-reading",
        "claims/README",
    ],
    "The house": ["docs/design", "CONTRIBUTING", "CHANGELOG"],
}


def with_contents(_app, name, text):
    """The README is the front page; the contents of the site are of no use elsewhere."""
    if name == root_doc:
        for caption, pages in CONTENTS.items():
            lines = [":hidden:", ":glob:", f":caption: {caption}", "", *pages]
            text[0] += "\n".join(["", "```{toctree}", *lines, "```", ""])


def with_pictures(_app, name, text):
    """The gallery is drawn as it is read."""
    if name == "docs/gallery":
        text[0] = gallery.with_pictures(text[0], ROOT / "docs" / "gallery-pictures")


def write_front(app, failure):
    """`index.html` is what a server shows of a folder."""
    if failure is None and app.builder.format == "html":
        page = '<!doctype html><meta http-equiv="refresh" content="0; url=README.html">\n'
        (Path(app.outdir) / "index.html").write_text(page, encoding="utf-8")


def setup(app):
    reference.write_pages(ROOT / "docs" / "reference")
    app.connect("source-read", with_contents)
    app.connect("source-read", with_pictures)
    app.connect("build-finished", write_front)
    app.connect("autodoc-process-docstring", reference.process)
    app.connect("autodoc-skip-member", reference.skip)
    app.connect("missing-reference", reference.resolve)
