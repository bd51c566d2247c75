"""`torchcaps data`: the data sets by name, fetched and looked at."""

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from torchcaps._printable import printable
from torchcaps.cli.arguments import AsJson, ImageSize, Root, sides
from torchcaps.cli.listed import add_group

app = typer.Typer(help="List, fetch and check data sets.", no_args_is_help=True)
add_group(160, app, "data")

Name = Annotated[str, typer.Argument(help="A name that `torchcaps data list` shows.")]


@app.command("list")
def list_data(as_json: AsJson = False) -> None:
    """List the data sets by name, and what fetching them costs."""
    from torchcaps.data import PUBLISHED, SOURCES
    from torchcaps.data.by_name import what_it_reads

    if as_json:
        rows = {
            name: {**asdict(PUBLISHED[name]), "size": PUBLISHED[name].size}
            if name in PUBLISHED
            else None
            for name in sorted(SOURCES)
        }
        print(json.dumps(rows, indent=2))
        return
    for name in sorted(SOURCES):
        if name in PUBLISHED:
            each = PUBLISHED[name]
            print(f"{name}  {each.holds}, {each.size / 1e6:,.0f} MB to fetch")
            print(f"    {each.terms}; {each.home}")
        else:
            print(f"{name}  {what_it_reads(name)}")


@app.command()
def get(
    name: Name,
    root: Annotated[Path, typer.Option(help="Folder to lay its files in.")],
    timeout: Annotated[float, typer.Option(help="Seconds to wait for a server.")] = 30.0,
    as_json: AsJson = False,
) -> None:
    """Fetch a published data set; the same line continues it.

    Prints the path of each file. Only files whose SHA-256 is right are kept.
    """
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    from torchcaps.data import fetch_data

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn())
    with Progress(
        *columns,
        TransferSpeedColumn(),
        console=Console(stderr=True),
        disable=not sys.stderr.isatty(),
    ) as bars:
        tasks = {}

        def show(file: str, here: int, size: int) -> None:
            if file not in tasks:
                tasks[file] = bars.add_task(file, total=size)
            bars.update(tasks[file], completed=here)

        places = fetch_data(name, root=root, timeout=timeout, progress=show)
    if as_json:
        print(json.dumps({"name": name, "files": [str(place) for place in places]}))
        return
    for place in places:
        print(place)


@app.command()
def check(
    name: Name,
    root: Root = None,
    image_size: ImageSize = None,
    as_json: AsJson = False,
) -> None:
    """Look at every image: range, balance, size, and what train and test share."""
    from torchcaps.data import check_images, load

    size = None if image_size is None else sides("--image-size", image_size, "48x64")
    train, test = (load(name, split=each, root=root, size=size) for each in ("train", "test"))
    found = check_images(train, test)
    if as_json:
        print(json.dumps({**asdict(found), "sentences": found.sentences()}))
        return
    for sentence in found.sentences():
        print(printable(sentence))
