"""A command of a recipe: unknown options may be fields of it, and numbers may be mistyped."""

from typing import Any

from typer.core import TyperCommand

from torchcaps.errors import TorchcapsError, short


class FieldsCommand(TyperCommand):
    """Where an option is unknown and a field is called so, here or elsewhere, the line to type;
    where a value is no number, what it was."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        # They are taken out of the list one by one.
        words = list(args)
        try:
            return super().parse_args(ctx, args)
        # Typer keeps the class of this error to itself.
        except Exception as error:
            asked = getattr(error, "option_name", None)
            if type(error).__name__ == "NoSuchOption" and asked is not None:
                self._explain_name(asked)
            if type(error).__name__ == "BadParameter":
                _explain_value(error, words)
            raise

    def _explain_name(self, asked: str) -> None:
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


def _explain_value(error: Any, words: list[str]) -> None:
    """As the recipe says it of a field: Typer does not tell what came."""
    names = getattr(getattr(error, "param", None), "opts", [])
    # As --seed=x, or as --seed x.
    given = [
        after if equals else following
        for word, following in zip(words, [*words[1:], ""], strict=True)
        for name, equals, after in [word.partition("=")]
        if name in names
    ]
    if given:
        expected = str(error.message).partition(",")[0].rstrip(".")
        raise TorchcapsError(
            f"{names[0]}: {expected[0].lower()}{expected[1:]}, not {short(given[-1])}."
        )
