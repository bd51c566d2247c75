"""Networks named by where they come from: the zoo, or a hub, through huggingface_hub. There a file,
model.safetensors, is read as `load` reads any, and nothing is executed."""

import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import safetensors

from torchcaps._extras import check_installed
from torchcaps._json import read_json
from torchcaps._zoo import PREFIX as ZOO
from torchcaps._zoo import zoo_card, zoo_weights
from torchcaps.errors import TorchcapsError, short

PREFIX, FILE = "hf-hub:", "model.safetensors"
FORM = re.compile(r"([\w.-]+/[\w.-]+)(?:@([\w./-]+))?", re.ASCII)


def located(name: str | os.PathLike[str]) -> str | os.PathLike[str]:
    """Give the file of a network that is so named; a path as it is."""
    if (text := str(name)).startswith(ZOO):
        return zoo_weights(text.removeprefix(ZOO))
    if text.startswith(PREFIX):
        return fetched(text.removeprefix(PREFIX))
    return name


def fetched(name: str) -> Path:
    """Give the file of OWNER/NAME or OWNER/NAME@REVISION, in the cache of this machine."""
    repo, revision = _parts(name)
    with _in_words(repo, revision):
        path = Path(_api().hf_hub_download(repo, FILE, revision=revision))
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            said = (file.metadata() or {}).get("torchcaps", "")
    except safetensors.SafetensorError:
        said = ""  # `load` says what it is instead
    if said and '"sha256"' not in said:
        raise TorchcapsError(
            f"{FILE} of {repo} has no digest, so nobody can say whether it is whole; have it saved "
            f"and pushed again by a torchcaps of today."
        )
    return path


def described(name: str, config: dict[str, Any], known: dict[str, Any]) -> str:
    """Give a model card: how the network is opened, what it is, and what is known of its
    training."""
    image = "×".join(map(str, config["image"] or "?"))
    said = "\n".join(
        f"## {title}\n\n```json\n{json.dumps(each, indent=1, ensure_ascii=False)}\n```\n"
        for title, each in {"What it was made with": config, **known}.items()
    )
    return (
        f"---\nlibrary_name: torchcaps\npipeline_tag: image-classification\n"
        f"tags: [capsule-network]\n---\n\n# {name}\n\nA capsule network, `{config['name']}`, for "
        f"images of {image} and {config['n_classes']} classes.\n\n```python\n"
        f'import torchcaps as tc\n\nmodel = tc.load("{PREFIX}{name}")\n```\n\n{said}'
    )


def known_of(file: Path) -> dict[str, Any]:
    """Give what lies beside the file of a network: the recipe and the result of its run, or its
    card."""
    found = {"What is known of it": zoo_card(file)}
    for title, name in {"Recipe": "recipe.json", "Result": "result.json"}.items():
        if file.name == FILE and (file.parent / name).is_file():
            said = read_json(file.parent / name).items()
            # Of these it has a row a class.
            found[title] = {key: value for key, value in said if key != "measures"}
    return {title: said for title, said in found.items() if said}


def send(content: bytes, card: str, repo: str, *, private: bool) -> str:
    """Put both into a repository, which is made if it is not there; the name of what was put."""
    from huggingface_hub import CommitOperationAdd

    name, revision = _parts(repo)
    with _in_words(name, revision):
        api = _api()
        api.create_repo(name, private=private, exist_ok=True)
        files = [CommitOperationAdd(FILE, content), CommitOperationAdd("README.md", card.encode())]
        done = api.create_commit(name, files, commit_message="Push a network", revision=revision)
    return f"{PREFIX}{name}@{done.oid}"


def _parts(name: str) -> tuple[str, str | None]:
    form = FORM.fullmatch(name)
    if form is None:
        raise TorchcapsError(
            f"a network on a hub is named OWNER/NAME, or OWNER/NAME@REVISION, but came as "
            f"{short(name)}."
        )
    check_installed("huggingface_hub", room="load", extra="hub")
    return form[1], form[2]


def _api() -> Any:
    import huggingface_hub

    # Read now: the library reads it when it is imported.
    return huggingface_hub.HfApi(endpoint=os.environ.get("HF_ENDPOINT"), library_name="torchcaps")


@contextmanager
def _in_words(repo: str, revision: str | None) -> Iterator[None]:
    from huggingface_hub import errors

    at = "" if revision is None else f"@{revision}"
    unknown = (
        f"there is no {repo} on the hub that you may use; is the name right, and are you logged in "
        f"(hf auth login, or HF_TOKEN)"
    )
    try:
        yield
    except (errors.RepositoryNotFoundError, errors.LocalTokenNotFoundError):
        said = unknown
    except errors.RevisionNotFoundError:
        said = f"{repo} has no revision {revision}; is it a branch, a tag or a commit of it"
    except errors.RemoteEntryNotFoundError:
        said = f"{repo}{at} has no {FILE}; was it pushed by torchcaps"
    except errors.HFValidationError as error:
        said = f"the hub takes no such name as {repo}{at} ({str(error).splitlines()[0][:200]})"
    # Its bases are OSError and all errors of the client for HTTP, which one that may be. An upload
    # that fails is a RuntimeError.
    except (RuntimeError, *errors.HfHubHTTPError.__bases__) as error:  # type: ignore[misc]
        reason = (str(error.__cause__ or error) or type(error).__name__).splitlines()[0][:200]
        said = (
            f"the hub did not give or take {repo}{at} ({reason}), and no copy of it is on this "
            f"machine; is there a network, and is HF_ENDPOINT right where it is set"
        )
        if getattr(getattr(error, "response", None), "status_code", None) in (401, 403):
            said = unknown
    else:
        return
    raise TorchcapsError(f"{said}?") from None
