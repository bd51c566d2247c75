"""What a test of theory leaves open is told to the record of claims."""

from claims.conftest import ours

__all__ = ["ours"]
