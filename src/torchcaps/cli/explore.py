"""`torchcaps explore`: a page where networks are taken apart by hand."""

from pathlib import Path
from typing import Annotated

import typer

from torchcaps.cli.arguments import Imports, Root
from torchcaps.cli.listed import command


@command(65)
def explore(
    networks: Annotated[
        list[Path] | None, typer.Argument(help="Run folders, saved networks, or zoo:NAME.")
    ] = None,
    data: Annotated[
        str | None, typer.Option(help="Images to show; those of each run if not given.")
    ] = None,
    root: Root = None,
    host: Annotated[
        str, typer.Option(help="Where to listen; the default lets this machine alone ask.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes one that is free.")] = 0,
    export: Annotated[
        Path | None, typer.Option(help="Write a page with one small network inside; no server.")
    ] = None,
    own_code: Imports = None,
) -> None:
    """Open a page where networks are taken apart by hand.

    Prints its link and answers it until Ctrl-C: pick, draw or drop an image, turn and move it, and
    watch the tree. Without a network it opens those that come with torchcaps.
    """
    from torchcaps.explore.looking import Looker
    from torchcaps.explore.opened import of_the_zoo, opened
    from torchcaps.explore.server import serve

    if export is not None:
        from torchcaps.explore.export import write_page

        write_page(opened(networks or of_the_zoo()[:1], data=data, root=root), export)
        print(export)
        return
    serve(Looker(opened(networks or of_the_zoo(), data=data, root=root)), host=host, port=port)
