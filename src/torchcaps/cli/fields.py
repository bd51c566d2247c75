"""A command whose unknown options may be fields of a recipe: it says how those are written."""

from typing import Any

from typer.core import TyperCommand

from torchcaps.errors import TorchcapsError

__all__ = ["FieldsCommand"]


class FieldsCommand(TyperCommand):
    """Where an option is unknown and a field is called so, here or elsewhere, the line to type."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        # Typer keeps the class of this error to itself.
        except Exception as error:
            asked = getattr(error, "option_name", None)
            if type(error).__name__ == "NoSuchOption" and asked is not None:
                self._explain(asked)
            raise

    def _explain(self, asked: str) -> None:
        # Here, for it takes a second, which only a wrong line costs.
        from torchcaps.train.meant import MEANT
        from torchcaps.train.recipe import Recipe

        name = asked.lstrip("-").replace("-", "_")
        name = MEANT.get(name, name)
        if name not in Recipe.model_fields:
            return
        option = f"--{name.replace('_', '-')}"
        known = {word for parameter in self.params for word in parameter.opts}
        line = option if option in known else f"--set {name}=VALUE"
        raise TorchcapsError(f"there is no option {asked}; write {line} for the recipe's {name}.")
