"""The sum of votes through windows is that of a loop over them."""

import pytest
import torch

from torchcaps.ops.fused.window_sums import WindowSums
from torchcaps.types import Capsules, VoteMap, Window


@pytest.mark.parametrize("types", [1, 2])
@pytest.mark.parametrize(
    ("stride", "kernel"), [((1, 3), (3, 3)), ((3, 1), (3, 3)), ((2, 1), (2, 1)), ((2, 2), (2, 2))]
)
def test_sums_of_poses_of_one_number(stride, kernel, types):
    # Of one channel, oneDNN gets a convolution with the first stride wrong.
    window = Window((5, 5, types), kernel, stride)
    pose = torch.rand(4, 25 * types, 1)
    weight = torch.rand(kernel[0] * kernel[1] * types, 3, 2, 1)
    found = WindowSums(VoteMap(Capsules(pose), weight, window=window), window, pose.dtype).sums()
    for p, seen in enumerate(window.child_id()):
        expected = torch.zeros(4, 3, 2)
        for slot, child in enumerate(seen):
            expected += pose[:, child].unsqueeze(1) * weight[slot, :, :, 0]
        torch.testing.assert_close(found[:, p], expected, rtol=1e-6, atol=1e-6)
