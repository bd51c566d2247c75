"""A network leaves torch: in ONNX it gives the same numbers, at any batch size."""

import pytest
import torch
from torch.utils import _pytree

from torchcaps import create_model

NETWORKS = {
    # Large weights: by the default ones, lengths this small would agree whatever they are.
    "capsnet": ((1, 17, 18), {"kernel": 3, "types": 2, "weight_std": 1.0}),
    "tsai_inverted_simple_c10": ((3, 13, 14), {"types": 4, "d_pose": 4}),
}


# Of torch.export and of the exporter, not of the network.
@pytest.mark.filterwarnings("ignore:`isinstance.treespec, LeafSpec.` is deprecated:FutureWarning")
@pytest.mark.slow
@pytest.mark.parametrize("name", NETWORKS)
def test_onnx_gives_the_same_numbers_at_another_batch_size(name, tmp_path):
    # Here, because the default tier reads this file without the extra that brings it.
    import onnxruntime

    image, options = NETWORKS[name]
    model = create_model(name, image=image, n_classes=3, **options).eval()
    path = tmp_path / "model.onnx"
    torch.onnx.export(
        model,
        (torch.rand(2, *image),),
        path,
        dynamo=True,
        dynamic_shapes={"image": {0: torch.export.Dim("batch")}},
        verbose=False,
    )
    session = onnxruntime.InferenceSession(path)
    images = torch.rand(5, *image)
    found = session.run(None, {"image": images.numpy()})
    with torch.no_grad():
        expected = [x for x in _pytree.tree_leaves(model(images)) if torch.is_tensor(x)]
    assert expected[0].std() > 1e-3
    assert len(found) == len(expected)
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.shape == theirs.shape
        assert (torch.from_numpy(ours) - theirs).abs().max() <= 1e-5
