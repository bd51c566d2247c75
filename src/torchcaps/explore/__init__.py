"""The explorer: one page on this machine where a network is taken apart by hand. Needs the extra
[explore]."""

__all__: list[str] = []
