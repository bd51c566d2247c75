"""The picture of images by tree, read back from the figure."""

import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg

from torchcaps.viz import TreeImages, draw_dictionary

IMAGES = torch.rand(10, 1, 5, 4, generator=torch.Generator().manual_seed(0))


def test_a_row_has_the_overlap_and_up_to_eight_images():
    rows = [
        TreeImages("7: 10 of 12", IMAGES.mean(0), IMAGES),
        TreeImages("7: 2", IMAGES[0], IMAGES[:2]),
    ]
    figure = draw_dictionary(rows)
    assert len(figure.axes) == 9 + 3
    shown = [torch.from_numpy(axes.images[0].get_array().data) for axes in figure.axes]
    assert torch.allclose(shown[0], IMAGES.mean(0)[0])
    assert all(torch.equal(shown[1 + k], IMAGES[k, 0]) for k in range(8))
    assert [text.get_text() for text in figure.texts] == ["7: 10 of 12", "7: 2"]
    # Nothing lies outside the page.
    assert all(0 <= axes.get_position().x0 < axes.get_position().x1 <= 1 for axes in figure.axes)


def test_no_title_reaches_into_the_overlap():
    titles = ["0: 268 of 1033 images", "4: 88 of 945 images", "ankle boot: 92 of 1033 images"]
    figure = draw_dictionary([TreeImages(title, IMAGES[0], IMAGES) for title in titles])
    # An Agg canvas can tell how wide text is.
    renderer = FigureCanvasAgg(figure).get_renderer()
    overlap = min(axes.get_window_extent(renderer).x0 for axes in figure.axes)
    assert len(figure.texts) == len(titles)
    for text, row in zip(figure.texts, figure.axes[::9], strict=True):
        box, image = text.get_window_extent(renderer), row.get_window_extent(renderer)
        assert box.x1 < overlap
        assert image.y0 - 2 < box.y0 < box.y1 < image.y1 + 2
