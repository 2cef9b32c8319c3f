"""Make the video with the moving map, until it is done, stopped or over the limit."""

import math
import threading
from collections.abc import Callable
from pathlib import Path

from soundspot.common.errors import SoundspotError
from soundspot.inference.localizer import Localizer
from soundspot.inference.video import MAPS_PER_SECOND, VideoMoment, render_video
from soundspot.web.comparing import Question
from soundspot.web.limits import Limits


class Stopped(SoundspotError):
    """The visitor no longer wants the video."""


def render_within_limits(
    localizer: Localizer,
    question: Question,
    out: Path,
    limits: Limits,
    stop: threading.Event,
    on_progress: Callable[[float], object],
) -> None:
    """Write the video with the moving map.

    The limits are checked again, as a file may be longer than its header says; `on_progress` gets
    the share that is done, 0..1.
    """
    info = question.picture
    if info.kind != "video":
        raise SoundspotError("a moving heat map needs a video; a picture has a single map")
    if not question.heard.has_sound:
        name = question.heard.path.name
        raise SoundspotError(f"{name} has no sound to locate: choose another video")
    total = max(1, math.ceil((info.duration or 0) * MAPS_PER_SECOND))

    def note(moment: VideoMoment) -> None:
        if stop.is_set():
            raise Stopped("Stopped: no video was made.")
        if moment.at > limits.seconds:
            raise SoundspotError(
                f"{info.path.name} is longer than the {limits.seconds:g} s that this page accepts"
            )
        on_progress(min(1.0, (round(moment.at * MAPS_PER_SECOND) + 1) / total))

    render_video(localizer, question.picture, out, audio=question.sound, note=note)
