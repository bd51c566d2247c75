"""The explorer as one file, with a small network inside that the page computes by itself: of
convolutions in a row, dense capsules, and dynamic, self-attention and uniform routing."""

import base64
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from torchcaps._paths import write_whole
from torchcaps.errors import TorchcapsError
from torchcaps.explore.looking import Looker
from torchcaps.explore.opened import Network, Opened
from torchcaps.explore.server import page_files
from torchcaps.explore.state import State
from torchcaps.layers import DenseCapsules, PrimaryCapsules
from torchcaps.models import CapsuleNetwork
from torchcaps.models.images import Standardise

# Of weights, so that the page stays below three.
MOST_BYTES = 2 << 20
ROUTINGS = ("dynamic", "self_attention", "uniform")
# The modules of the page in the order in which they need each other, without the server's.
MODULES = ("dom", "interpreter", "link", "local", "tree", "pane", "picture", "main")
POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
    "img-src data: blob:; base-uri 'none'; form-action 'none'"
)


def write_page(opened: Opened, path: Path) -> None:
    """Write the page of the only network that was opened."""
    if path.suffix.lower() not in (".html", ".htm") or path.is_dir():
        raise TorchcapsError(f"the page must end in .html, but is {path}.")
    if len(opened.networks) != 1:
        raise TorchcapsError(
            f"a page without a server holds one network, but {len(opened.networks)} were named; "
            f"write a page for each."
        )
    (network,) = opened.networks
    # Before the explorer puts its memory into the network.
    network.model.cpu()
    program = program_of(network)
    looker = Looker(opened)
    grids = [{"grid": row["grid"]} for row in looker.look(State())["layers"]]
    given: dict[str, Any] = {"about": looker.about(), "program": program, "layers": grids}
    given |= {"over": looker.over(State()), "lengths": {}, "images": []}
    if network.collection is not None:
        pixels = opened.collections[network.collection].pixels
        images = zip(looker.images(network.collection), (pixels * 255).round().byte(), strict=True)
        # The page draws its pictures itself.
        given["images"] = [{**each, "png": None, "data": _letters(p)} for each, p in images]
        lengths = looker.lengths(0).items()
        given["lengths"] = {k: v.double().mul(1e4).round().div(1e4).tolist() for k, v in lengths}
    write_whole(path, _bundled(given))


def program_of(network: Network) -> dict[str, Any]:
    """Give what the interpreter computes: kinds of modules in their order, with their numbers."""
    model = network.model
    if not isinstance(model, CapsuleNetwork):
        raise _refused(network, f"it is a {type(model).__name__}")
    if model.schedule != "sequential":
        raise _refused(network, "its layers route at the same time")
    layers = [_layer(network, name, layer) for name, layer in model.layers.items()]
    primary = model.primary
    if not isinstance(primary, PrimaryCapsules):
        raise _refused(network, f"its primary capsules are {type(primary).__name__}")
    standardise = getattr(model, "standardise", None)
    below = [
        op
        for part in (standardise, model.backbone, primary.projection)
        for op in _operators(network, part)
    ]
    head: Any = model.head
    program = {
        "image": network.image,
        "below": below,
        "primary": {"d": primary.d_out, "squash": primary.squash},
        "layers": layers,
        "head": None if head is None else {"weight": _sent(head.weight), "bias": _sent(head.bias)},
        "scores_are": model.head_scores,
        "iterations": network.iterations,
    }
    size = len(json.dumps(program)) * 3 // 4
    if size > MOST_BYTES:
        most = f"at most {MOST_BYTES:,} are held"
        raise _refused(network, f"its weights fill {size:,} bytes, and {most}")
    return program


def _refused(network: Network, why: str) -> TorchcapsError:
    return TorchcapsError(
        f"{network.label} cannot be computed by a page alone: {why}. Explore it with a server: "
        f"leave --export out."
    )


def _operators(network: Network, part: Any) -> Iterator[dict[str, Any]]:
    if isinstance(part, nn.Sequential):
        for each in part:
            yield from _operators(network, each)
    elif isinstance(part, nn.Conv2d) and (part.padding, part.dilation) == ((0, 0), (1, 1)):
        sizes = {"stride": part.stride[0], "groups": part.groups}
        yield {"op": "conv", **sizes, "weight": _sent(part.weight), "bias": _sent(part.bias)}
    elif isinstance(part, nn.BatchNorm2d | Standardise):
        # One factor and one number to add for each channel: what it makes of one and of zero.
        channels = part.num_features if isinstance(part, nn.BatchNorm2d) else len(part.mean)
        zero, one = (part(torch.full((1, channels, 1, 1), x)).flatten() for x in (0.0, 1.0))
        yield {"op": "scale", "weight": _sent(one - zero), "bias": _sent(zero)}
    elif isinstance(part, nn.ReLU):
        yield {"op": "relu"}
    elif part is not None:
        raise _refused(network, f"it has a {type(part).__name__} that the page does not know")


def _layer(network: Network, name: str, layer: Any) -> dict[str, Any]:
    if getattr(layer, "window", None) is not None:
        raise _refused(network, f"capsules of its layer {name} see each other through windows")
    if not isinstance(layer, DenseCapsules) or layer.pose != "vector":
        raise _refused(network, f"its layer {name} is a {type(layer).__name__} of another kind")
    routing: Any = layer.routing
    how = routing.options()
    is_other = how.get("odd_bias") or how.get("leaky") or layer.coordinates
    if routing.algorithm not in ROUTINGS or is_other or layer.own_coordinates is not None:
        raise _refused(network, f"its layer {name} routes by {type(routing).__name__}")
    sizes = {each: getattr(layer, each) for each in ("n_in", "n_out", "d_in", "d_out", "sharing")}
    return {
        **{"name": name, **sizes, "types": layer.weight.shape[0]},
        **{"weight": _sent(layer.weight), "vote_bias": _sent(layer.vote_bias)},
        **{"routing": routing.algorithm, "squash": how["squash"], "bias": _sent(how["bias"])},
        "iterations": how.get("iterations", 1),
        "agreement": float(how.get("agreement", 1)),
        "share": 1 / (layer.n_in if how.get("normalise") == "mean" else layer.n_out),
        "prior": _sent(how.get("prior")),
    }


def _sent(tensor: Tensor | None) -> dict[str, Any] | None:
    if tensor is None:
        return None
    return {"shape": [*tensor.shape], "data": _letters(tensor.detach().float())}


def _letters(tensor: Tensor) -> str:
    return base64.b64encode(tensor.cpu().contiguous().numpy().tobytes()).decode()


def _bundled(given: dict[str, Any]) -> str:
    """Make one file of all, its modules one after the other: a page from a disk may import none."""
    files = page_files()
    code = "".join(_module(name, files[f"{name}.js"]) for name in MODULES)
    # No text inside may end the element that it lies in.
    data = json.dumps(given, separators=(",", ":")).replace("<", "\\u003c")
    inside = {
        "<title>": f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n<title>',
        '<link rel="stylesheet" href="page/style.css">': f"<style>{files['style.css']}</style>",
        ' src="page/main.js">': f">{code}",
        "</body>": f'<script id="given" type="application/json">{data}</script>\n</body>',
    }
    page = files["index.html"]
    for mark, text in inside.items():
        page = page.replace(mark, text)
    return page


def _module(name: str, code: str) -> str:
    """Give a module as a function that returns what it exports."""
    exported = re.findall(r"^export (?:async )?(?:class|function|const) (\w+)", code, re.M)
    code = re.sub(r"^export ", "", code.replace("./ask.js", "./local.js"), flags=re.M)
    code = re.sub(r'^import ({.*}) from "\./(\w+)\.js";$', r"const \1 = \2;", code, flags=re.M)
    return f"const {name} = (() => {{\n{code}\nreturn {{ {', '.join(exported)} }};\n}})();\n"
