import torch

from torchcaps.ops.constant import constant


def test_marked_as_torch_marks():
    def ours() -> bool:
        return True

    def theirs() -> bool:
        return True

    torch.compiler.assume_constant_result(theirs)
    assert constant(ours) is ours
    assert vars(ours) == vars(theirs) != {}
