"""A run is a folder. Every file in it is replaced whole, so no moment leaves it unreadable."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, overload

from torch import nn

from torchcaps._digests import NAME, check_digest
from torchcaps._paths import beside, path_of, put_in_place
from torchcaps.analysis.shares import Commonest
from torchcaps.errors import TorchcapsError
from torchcaps.layers import with_channels_last
from torchcaps.models import load
from torchcaps.models.files.saving import content_of
from torchcaps.models.preset import NamedNetwork, Net
from torchcaps.train.class_measures import MEASURES
from torchcaps.train.folder.digests import expect, is_partial, settle
from torchcaps.train.folder.environment import check_imported, commit, environment
from torchcaps.train.folder.objects import check_seen, damaged, read_objects
from torchcaps.train.folder.recipe_file import channels_last, read_fields, read_recipe, sides
from torchcaps.train.recipe import Recipe
from torchcaps.train.selecting import in_words

# What of an environment is a version.
VERSIONS = ("torchcaps", "torch", "python")


class _File:
    """A file of a run, by its name in the folder."""

    def __init__(self, name: str):
        self.name = name

    def __get__(self, run: Any, kind: Any = None) -> Path:
        return Path(self.name) if run is None else Path(run.folder, self.name)


@dataclass(frozen=True)
class Run:
    """Where the files of a run lie. digests.json has the digest of each, so that a damaged one is
    not used."""

    folder: Path
    # What is trained, and versions, machine and command.
    recipe_file = _File("recipe.json")
    environment_file = _File("environment.json")
    # One line an epoch, and everything that is needed to go on.
    metrics_file = _File("metrics.jsonl")
    state_file = _File("state.ckpt")
    # The network of the best epoch so far, where a recipe keeps it; that of the end; its accuracy
    # on test images, which are looked at when training is over.
    best_file = _File("best.safetensors")
    model_file = _File("model.safetensors")
    result_file = _File("result.json")

    def __post_init__(self) -> None:
        # Text is a path, too.
        object.__setattr__(self, "folder", path_of("folder", self.folder))

    @property
    def recipe(self) -> Recipe:
        check_digest(self.recipe_file)
        return read_recipe(self.recipe_file)

    def about(self) -> dict[str, Any]:
        """Read all that was written down when it began, of the environment and of the network."""
        return read_objects(self.environment_file)[0]

    @overload
    def model(self, own: None = None) -> NamedNetwork: ...
    @overload
    def model(self, own: Net | type[Net]) -> Net: ...
    def model(self, own: Any = None) -> nn.Module:
        """Give the trained network, ready to look at images (in evaluation mode).

        Arguments:
            own: of a network of one's own its class, or a module that takes the weights.
        """
        self.check_imported()
        network: nn.Module = load(self.folder, model=own)
        return with_channels_last(network) if self.is_channels_last else network

    def check_imported(self) -> None:
        """Make sure that the code of one's own which it was trained with is here."""
        if self.environment_file.is_file():
            check_imported(self.folder, self.about())

    def _fields(self) -> dict[str, Any]:
        """Read what its recipe says, whose data may be known no longer; without one nothing."""
        if not self.recipe_file.is_file():
            return {}
        check_digest(self.recipe_file)
        return read_fields(self.recipe_file)

    @property
    def is_channels_last(self) -> bool:
        return channels_last(self.recipe_file, self._fields())

    @property
    def shown(self) -> tuple[tuple[int, int] | None, tuple[int, int] | None]:
        """The size that its recipe stretches images to, and the window of them that it shows."""
        file, fields = self.recipe_file, self._fields()
        return sides(file, fields, "image_size"), sides(file, fields, "crop")

    @property
    def parted(self) -> tuple[str | None, tuple[int, int] | None]:
        """How its recipe tells groups of pictures, and which fold it tests."""
        fields = self._fields()
        return fields.get("groups"), fields.get("fold")

    @property
    def is_done(self) -> bool:
        return self.result_file.is_file() and self.model_file.is_file()

    def result(self) -> dict[str, Any]:
        """Read the accuracy on the test images and the time it took."""
        (result,) = read_objects(self.result_file)
        check_seen(self.result_file, result)
        return result

    @property
    def epochs_trained(self) -> int:
        """How many they were, which may be fewer than the recipe allows."""
        return max((row["epoch"] for row in self.metrics()), default=self.recipe.epochs)

    @property
    def kept(self) -> str | None:
        """The epoch whose weights were kept as the best, and why; None where they are the last."""
        best = self.result().get("best_epoch")
        if best is None:
            return None
        return f"epoch {best} of {self.epochs_trained}, {in_words(self.recipe.select_by)}"

    @property
    def evened(self) -> str | None:
        """How classes of unequal size were evened out in training; None where they were not."""
        if self.recipe.sampling == "balanced":
            return "every class shown equally often"
        found = self.result().get("class_weights")
        if found is None:
            return None
        try:
            return "class weights " + ", ".join(f"{name} {x:.3g}" for name, x in found.items())
        except (AttributeError, TypeError, ValueError):
            raise damaged(self.result_file, "its 'class_weights' are no numbers") from None

    @property
    def commonest(self) -> Commonest | None:
        """The line that the accuracy has to beat; None of runs that did not write it down."""
        found = self.result().get("commonest")
        if found is None:
            return None
        try:
            return Commonest(str(found["class"]), float(found["share"]))
        except (KeyError, TypeError, ValueError):
            raise damaged(self.result_file, "its 'commonest' has no class and share") from None

    @property
    def measures(self) -> dict[str, float]:
        """The measures in which every class counts the same, in percent, those that are known."""
        found = self.result().get("measures", {})
        try:
            values = {name: found[name]["value"] for name in MEASURES if name in found}
            return {name: 100 * float(x) for name, x in values.items() if x is not None}
        except (KeyError, TypeError, ValueError):
            raise damaged(self.result_file, "its 'measures' have no values") from None

    @property
    def constant(self) -> str | None:
        """What the network says of every test image, where that is always the same."""
        found = self.result().get("constant")
        return None if found is None else str(found)

    @property
    def accuracy(self) -> float:
        """In percent of the test images."""
        (result,) = read_objects(self.result_file, numbers=("test_accuracy",))
        return float(100 * result["test_accuracy"])

    @property
    def seconds(self) -> float:
        """What training took."""
        if not self.metrics_file.exists():
            return 0.0
        rows = read_objects(self.metrics_file, numbers=("epoch", "seconds"))
        return float(sum(row["seconds"] for row in rows))

    def began(self) -> dict[str, Any]:
        """Give what `environment` said when it began: code, versions, machine, command."""
        words = (*VERSIONS, "machine", "command")
        (found,) = read_objects(
            self.environment_file, needs=("commit",), numbers=("threads",), words=words
        )
        return found

    def commits(self) -> list[str | None]:
        """Name the commits of the code that began it, and of other code that went on with it."""
        seen = self.about()
        more = seen.get("went_on_with", [])
        found = [seen.get("commit"), *(more if isinstance(more, list) else [more])]
        if not all(isinstance(each, str | None) for each in found):
            raise damaged(self.environment_file, "its 'commit' is no text")
        return found

    def image_digests(self) -> dict[str, str]:
        """Read the digests of the images it was trained and tested on, by "train" and "test"."""
        (result,) = read_objects(self.result_file, needs=("digests",))
        found = result["digests"]
        named = isinstance(found, dict) and all(
            isinstance(found.get(split), str) for split in ("train", "test")
        )
        if not named:
            raise damaged(self.result_file, "its 'digests' do not name the images")
        return dict(found)

    @property
    def root(self) -> Path | None:
        """The folder of its data when it began, where that is files."""
        if not self.environment_file.is_file():
            return None
        root = self.about().get("root")
        return Path(root) if isinstance(root, str) else None

    def root_or(self, given: str | os.PathLike[str] | None) -> Path | None:
        """Give the folder that is given, or else the remembered one, which must still be there."""
        if given is not None:
            return path_of("root", given)
        root = self.root
        if root is None or root.exists():
            return root
        raise TorchcapsError(
            f"{self.folder} was begun on the data in {root}, which is not there now; name the "
            f"folder where they are: --root FOLDER on the command line, root= in Python."
        )

    def metrics(self) -> list[dict[str, Any]]:
        """Read the rows of metrics, one an epoch."""
        if not self.metrics_file.exists():
            return []
        return read_objects(self.metrics_file, numbers=("epoch",))

    def write_metrics(self, rows: list[dict[str, Any]]) -> None:
        lines = [json.dumps(row, allow_nan=False) + "\n" for row in rows]
        self.write(self.metrics_file, "".join(lines))

    def write(self, path: Path, text: str) -> None:
        """Replace one of the files, whose digest is written down first."""
        with beside(path) as partial:
            partial.write_text(text, encoding="utf-8")
            self.put(partial, path)

    def put(self, partial: Path, path: Path) -> None:
        """Put a finished partial file in the place of `path`, its digest first."""
        expect(partial, path)
        put_in_place(partial, path)

    def finish(self, result: dict[str, Any]) -> None:
        """Write the result, the last file, and forget the digests of what the files were before."""
        self.write(self.result_file, json.dumps(result, indent=2))
        settle(self.folder)

    def put_network(self, network: nn.Module, path: Path) -> None:
        """Replace one of the networks, whose digest is written down first."""
        with beside(path) as partial:
            partial.write_bytes(content_of(network))
            self.put(partial, path)

    def remove_partial_files(self) -> None:
        """Remove what killed processes left; only who holds the folder alone may."""
        for file in self.folder.iterdir():
            if is_partial(file):
                file.unlink(missing_ok=True)

    def settled(self, recipe: Recipe) -> Recipe:
        """Give the recipe with this run's answers where it leaves a choice to torchcaps: the same
        line goes on though a later version chooses otherwise."""
        if not self.recipe_file.is_file():
            return recipe
        # The name of a protocol changes nothing beside the fields; earlier runs hold none.
        there = self.recipe
        settled: dict[str, Any] = {"protocol": there.protocol}
        if "channels_last" not in recipe.model_fields_set:
            settled["channels_last"] = there.channels_last
        return recipe.model_copy(update=settled)

    def is_finished(self, recipe: Recipe) -> bool:
        """Say whether nothing is left to do; the number of epochs may have been raised."""
        if self.check(recipe) != recipe or not self.is_done:
            return False
        check_digest(self.model_file)
        return bool(self.result())

    def check(self, recipe: Recipe) -> Recipe | None:
        """Refuse a folder that is not free or of this recipe; return the recipe it holds."""
        if self.recipe_file.is_file():
            old = self.recipe
            if old != recipe and not recipe.goes_on_from(old):
                changed = recipe.unlike(old)
                is_empty = not (self.metrics_file.exists() or self.state_file.exists())
                remove = ", remove it, for it has no epoch yet" if is_empty else ""
                raise TorchcapsError(
                    f"{self.folder} holds a run of another recipe ({changed}); continue it with "
                    f"its own recipe{remove}, or choose another folder."
                )
            return old
        there = self.folder.iterdir() if self.folder.is_dir() else ()
        # A process that is killed before it wrote its recipe leaves these behind.
        if any(file.name != NAME and not is_partial(file) for file in there):
            raise TorchcapsError(
                f"{self.folder} is not empty and holds no run; nothing was touched: choose a new "
                f"folder."
            )
        if self.folder.exists() and not self.folder.is_dir():
            raise TorchcapsError(f"{self.folder} is a file; a run needs a folder.")
        return None

    def begin(self, recipe: Recipe, data: str, **about: Any) -> None:
        """Make the folder, or make sure that `data`, a digest, is what the run saw so far, and its
        network of the class that it was. `about` is written beside the environment."""
        self.folder.mkdir(parents=True, exist_ok=True)
        # Before anything is written: a refused line leaves a finished run as it is.
        if self.environment_file.is_file():
            self.check_began(data, about)
        # The recipe first: it is what makes the folder a run. A result must be that of its recipe.
        if not self.recipe_file.is_file() or self.recipe != recipe:
            self.result_file.unlink(missing_ok=True)
            self.write(self.recipe_file, recipe.model_dump_json(indent=2))
        if not self.environment_file.is_file():
            seen = {**environment(), "keeps_memory": False, **about, "training_images": data}
            self.write(self.environment_file, json.dumps(seen, indent=2))
            return
        began = seen = self.about()
        if (now := commit()) not in (known := self.commits()):
            seen = {**seen, "went_on_with": [*known[1:], now]}
        # That of a stretch before counts, unless nothing came of it.
        if "compiled" in about or ("compiled" in seen and not self.state_file.is_file()):
            seen = {**seen, "compiled": "compiled" in about}
        if seen != began:
            self.write(self.environment_file, json.dumps(seen, indent=2))

    def check_began(self, data: str, about: Mapping[str, Any]) -> None:
        """Make sure that it began on images of this digest, and with a network of this class."""
        own_class = about.get("class")
        seen = read_objects(self.environment_file)[0]
        if seen.get("training_images") != data:
            raise TorchcapsError(
                f"{self.folder} was begun on other training images (digest "
                f"{seen.get('training_images')}, now {data}); is --root another folder now?"
            )
        if seen.get("class") != own_class:
            raise TorchcapsError(
                f"{self.folder} was begun with a network of the class {seen.get('class')}, now it "
                f"is {own_class}; choose another folder."
            )
