"""What a page asks of the explorer, and its link says; an answer depends on these fields alone."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

# A layer and a capsule in it.
Capsule = tuple[Annotated[str, Field(max_length=200)], Annotated[int, Field(ge=0, le=10**7)]]
# The most iterations of routing, and the most levels that couplings are rounded to.
MOST_ITERATIONS, MOST_LEVELS = 10, 101


class _Part(BaseModel):
    """Frozen, so that it can be looked up among earlier questions."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Shown(_Part):
    """Which image is shown, and how it lies: x and y are shares of its sides, turn is degrees."""

    collection: int | None = Field(default=None, ge=0, le=100)
    number: int = Field(default=0, ge=0, le=10**7)
    # The digest of one that was sent before; instead of an image of a collection.
    picture: str | None = Field(default=None, pattern="^[0-9a-f]{16}$")
    turn: float = Field(default=0, ge=-180, le=180)
    x: float = Field(default=0, ge=-1, le=1)
    y: float = Field(default=0, ge=-1, le=1)
    scale: float = Field(default=1, ge=0.2, le=5)
    shear: float = Field(default=0, ge=-2, le=2)
    invert: bool = False


class Changed(_Part):
    """What is changed inside the network."""

    iterations: int | None = Field(default=None, ge=1, le=MOST_ITERATIONS)
    levels: int | None = Field(default=None, ge=2, le=MOST_LEVELS)
    silenced: tuple[Capsule, ...] = Field(default=(), max_length=200)
    # Layers whose couplings are all the same.
    even: tuple[Annotated[str, Field(max_length=200)], ...] = Field(default=(), max_length=100)


class State(_Part):
    """One question about one network."""

    network: int = Field(default=0, ge=0, le=100)
    shown: Shown = Shown()
    changed: Changed = Changed()
    selected: Capsule | None = None
