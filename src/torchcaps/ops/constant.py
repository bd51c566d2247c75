"""What does not change while a program runs, so that torch.compile asks for it once."""

from collections.abc import Callable
from typing import Any, TypeVar

Question = TypeVar("Question", bound=Callable[..., Any])


def constant(question: Question) -> Question:
    """Mark a function as torch.compiler.assume_constant_result does, which imports all of dynamo
    for it: a second for everybody, also for those who never compile."""
    marked: Any = question
    marked._dynamo_marked_constant = True
    return question
