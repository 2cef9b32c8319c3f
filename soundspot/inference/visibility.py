"""The rule for "no visible source": is what is heard in the picture?

The peak of the map S, a cosine, is compared with a threshold that `soundspot export --calibrate`
chose on validation data (see `evaluation.source_detection`) and stored in the model's card.
"""


def is_visible(score: float, threshold: float | None) -> bool | None:
    """Whether the source is probably in the picture; None if the model is not calibrated."""
    return None if threshold is None else score >= threshold


def verdict(score: float, threshold: float | None) -> str:
    """`is_visible` in words, with the numbers; only the peak if the model is not calibrated."""
    peak = f"peak cosine {score:.3f}"
    if threshold is None:
        return peak
    words = "probably visible" if is_visible(score, threshold) else "maybe not in the picture"
    return f"the source is {words} ({peak}, threshold {threshold:.3f})"
