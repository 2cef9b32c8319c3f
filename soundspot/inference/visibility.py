"""Is what is heard in the picture? Three answers: probably, probably not, cannot tell.

The peak of the map S is compared with a threshold. That of a learned model is on its
card: `soundspot export --calibrate` chose it on validation data (see
`evaluation.source_detection`); that of the bridge by names was chosen on anysound. Nothing is said
about sounds that neither knows.
"""

from soundspot.model.routing import Route, is_unknown

VISIBLE = "probably visible"
ABSENT = "probably not in the picture"
CANNOT_TELL = "cannot tell: this sound was not learned"


def is_visible(score: float, threshold: float | None, route: Route | None = None) -> bool | None:
    """Whether the source is probably in the picture; None if that cannot be told."""
    return None if threshold is None or is_unknown(route) else score >= threshold


def answer(score: float, threshold: float | None, route: Route | None = None) -> str | None:
    """One of the three answers; None if the model was never calibrated."""
    if is_unknown(route):
        return CANNOT_TELL
    visible = is_visible(score, threshold, route)
    return None if visible is None else VISIBLE if visible else ABSENT


def verdict(score: float, threshold: float | None, route: Route | None = None) -> str:
    """The answer with the numbers; only the peak if the model was never calibrated."""
    words, peak = answer(score, threshold, route), f"peak {score:.3f}"
    if words is None:
        return peak
    if words == CANNOT_TELL:
        return f"{words} ({peak})"
    return f"the source is {words} ({peak}, threshold {threshold:.3f})"
