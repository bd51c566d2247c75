"""Templates of pages: one that is not given a value fails, and leaves no hole."""

import jinja2

from torchcaps._printable import printable


def template(name: str, package: str = "torchcaps.report") -> jinja2.Template:
    """Load a template of a package, from its folder `templates`; HTML escapes what it is given."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader(package),
        autoescape=jinja2.select_autoescape(),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_without_controls,
    )
    return environment.get_template(name)


def _without_controls(value: object) -> object:
    """Strip plain text of characters that no page may hold; what is marked as safe is our own."""
    return printable(value) if type(value) is str else value
