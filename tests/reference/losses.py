"""Margin and reconstruction loss, one number after another: [mitterreiter2023] Eq. 3."""


def margin_loss(lengths, present, *, m_plus=0.9, m_minus=0.1, lambda_=0.5):
    """`present` holds, for each sample, the set of classes that are there."""
    total = 0.0
    for row, classes in zip(lengths, present, strict=True):
        for k, length in enumerate(row.unbind()):
            if k in classes:
                gap = m_plus - length
                weight = 1.0
            else:
                gap = length - m_minus
                weight = lambda_
            hinge = gap.clamp(min=0)
            total = total + weight * hinge * hinge
    return total / len(lengths)


def reconstruction_loss(reconstruction, image):
    total = 0.0
    for a, b in zip(reconstruction.reshape(-1), image.reshape(-1), strict=True):
        total = total + (a - b) * (a - b)
    return total / len(image)
