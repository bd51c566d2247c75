"""The grid of drawings, read back from the figure."""

import torch

from torchcaps.viz import draw_perturbations

STEPS = (-0.2, 0.0, 0.2)


def test_a_row_is_a_component_and_its_drawings_stand_side_by_side():
    generator = torch.Generator().manual_seed(0)
    drawn = torch.rand(4, 3, 1, 5, 6, generator=generator)
    image = torch.rand(1, 5, 6, generator=generator)
    figure = draw_perturbations(image, drawn, steps=STEPS)
    *rows, above = [torch.from_numpy(axes.images[0].get_array().data) for axes in figure.axes]
    assert torch.equal(above, image[0])
    for d in range(4):
        assert torch.equal(rows[d], torch.cat([drawn[d, k, 0] for k in range(3)], 1))
    words = [text.get_text() for text in figure.texts]
    assert words[:7] == ["0", "1", "2", "3", "-0.2", "as is", "+0.2"]
    for axes in figure.axes:
        box = axes.get_position()
        assert 0 <= box.x0 < box.x1 <= 1.0001
        assert -1e-9 <= box.y0 < box.y1 <= 1.0001
