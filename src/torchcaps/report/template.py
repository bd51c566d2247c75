"""Where pages come from: templates that escape what they are given and miss nothing silently."""

from importlib import resources

import jinja2

__all__ = ["template"]


def template(name: str) -> jinja2.Template:
    """A template of this package."""
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(_text),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(name)


def _text(name: str) -> str:
    return (resources.files("torchcaps.report") / "templates" / name).read_text(encoding="utf-8")
