"""What `soundspot localize FILE` does: a picture, a row per sound, or a whole video.

What cannot work is refused before torch is imported and the model is loaded, which take seconds.
"""

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from soundspot.common.errors import SoundspotError
from soundspot.common.files import atomic_write, write_text
from soundspot.inference import outputs
from soundspot.media.clips import read_clip
from soundspot.media.opening import OpenMedia, opened
from soundspot.media.writing import FORMATS, is_video_name

if TYPE_CHECKING:
    from soundspot.inference.localizer import Localizer
    from soundspot.inference.video import VideoMoment

Say = Callable[[str], None]
LoadModel = Callable[[], "Localizer"]
STANDARD_OUTPUT = "-"


@dataclass(frozen=True)
class FileJob:
    """One file to localise, and what to write.

    Attributes:
        file: A video or an image.
        audio: A sound file that replaces the video's sound.
        out: The picture or video to write.
        json: JSON file for the results; - is standard output.
        at: Seconds into the video; None for its best moment.
        sources: How many sounds to separate.
        fps_map: Maps per second of a video.
        every_frame: Encode every frame of a video, even if nothing has changed.
    """

    file: Path
    audio: Path | None
    out: Path
    json: str | None = None
    at: float | None = None
    sources: int = 1
    fps_map: float | None = None
    every_frame: bool = False


class Inputs(NamedTuple):
    """The open files of a job; a video's own sound is the same file."""

    picture: OpenMedia
    sound: OpenMedia


class Outcome(NamedTuple):
    """The results of a picture: plain values for JSON, and paragraphs for people."""

    summary: Any
    paragraphs: Sequence[str]


def run_file_job(job: FileJob, load_model: LoadModel, say: Say) -> None:
    """Do a job and report it."""
    with _checked(job) as inputs:
        if is_video_name(job.out):
            _whole_video(job, inputs, load_model(), say)
            return
        outcome = _make_picture(job, inputs, load_model())
    if job.json == STANDARD_OUTPUT:
        say(json.dumps(outcome.summary))
        return
    if job.json is not None:
        write_text(Path(job.json), json.dumps(outcome.summary) + "\n")
    for paragraph in outcome.paragraphs:
        say(paragraph)


def run_file_jobs(jobs: Sequence[FileJob], load_model: LoadModel, say: Say, complain: Say) -> int:
    """Do several jobs with one model; one that fails does not stop the others.

    Args:
        jobs: Pictures to make, all with the same `json`: it gets one line per file.
        load_model: Loads the model.
        say: Receives the results.
        complain: Receives the reason of each failure.

    Returns:
        How many failed.
    """
    load_once, target = cache(load_model), jobs[0].json
    lines: list[str] = []
    for job in jobs:
        try:
            with _checked(job) as inputs:
                outcome = _make_picture(job, inputs, load_once())
        except SoundspotError as error:
            complain(str(error))
            continue
        lines.append(json.dumps({"path": str(job.file), **outcome.summary}))
        if target == STANDARD_OUTPUT:
            say(lines[-1])
        else:
            say("\n".join([str(job.file), *outcome.paragraphs, ""]))
    if target not in (None, STANDARD_OUTPUT):
        write_text(Path(target), "".join(f"{line}\n" for line in lines))
    return len(jobs) - len(lines)


@contextmanager
def _checked(job: FileJob) -> Iterator[Inputs]:
    """Open the files of a job and refuse what cannot work."""
    given = [job.file] if job.audio is None else [job.file, job.audio]
    outputs.check_picture_or_video(job.out, given)
    if job.json not in (None, STANDARD_OUTPUT):
        outputs.check_file(Path(job.json), [*given, job.out])
    video = is_video_name(job.out)
    if video and (job.at is not None or job.sources != 1):
        raise SoundspotError("--at and --sources are for pictures: a video shows every moment")
    if job.fps_map is not None and not video:
        endings = ", ".join(FORMATS)
        raise SoundspotError(f"--fps-map is for videos, whose names end in {endings}")
    if job.sources < 1:
        raise SoundspotError(f"expected at least 1 source, got {job.sources}")
    if job.at is not None and job.sources != 1:
        raise SoundspotError("--at names one moment, --sources looks for moments: give one of them")
    with opened(job.file) as picture:
        if job.audio is None and not picture.info.has_sound:
            kind = "an image" if picture.info.kind == "image" else "a video"
            raise SoundspotError(f"{job.file} is {kind} without sound: name one with --audio")
        with opened(job.audio or picture) as sound:
            sound.info.require_sound()
            if video:
                picture.info.require_video()
            picture.info.require_picture()
            if job.at is not None:
                (picture if picture.info.kind == "video" else sound).info.moment(job.at)
            yield Inputs(picture, sound)


def _make_picture(job: FileJob, inputs: Inputs, localizer: "Localizer") -> Outcome:
    from soundspot.inference import figures, moments

    if job.sources != 1:
        return _several_sounds(job, inputs, localizer)
    said = []
    if job.at is None and inputs.picture.info.kind == "video":
        result, looks = moments.localize_best(localizer, *inputs)
        if len(looks) > 1:
            why = f"best of {len(looks)} moments; --at takes another"
            said.append(f"moment: {result.at:.2f} s ({why})")
    else:
        audio = None if job.audio is None else inputs.sound
        result = localizer.localize_clip(read_clip(inputs.picture, audio, job.at))
    figures.write_picture(job.out, result.picture())
    return Outcome(result.summary(), [*said, result.describe(), f"picture: {job.out}"])


def _several_sounds(job: FileJob, inputs: Inputs, localizer: "Localizer") -> Outcome:
    from soundspot.inference import figures

    results = localizer.localize_sources(*inputs, job.sources)
    figures.write_picture(job.out, figures.stack([result.picture() for result in results]))
    paragraphs = []
    if len(results) < job.sources:
        paragraphs.append(f"asked for {job.sources} sounds, found {len(results)}")
    for number, result in enumerate(results, start=1):
        start, end = result.span or (0.0, 0.0)
        paragraphs.append(f"sound {number}, {start:.2f} to {end:.2f} s\n{result.describe()}")
    summary = {"sources": [result.summary() for result in results]}
    return Outcome(summary, [*paragraphs, f"picture: {job.out}"])


def _whole_video(job: FileJob, inputs: Inputs, localizer: "Localizer", say: Say) -> None:
    from soundspot.inference import figures, video

    rate = video.MAPS_PER_SECOND if job.fps_map is None else job.fps_map
    with _timeline(job.json) as note:
        done = video.render_video(
            localizer,
            inputs.picture,
            job.out,
            audio=inputs.sound,
            maps_per_second=rate,
            reuse=not job.every_frame,
            note=note,
        )
    if job.json != STANDARD_OUTPUT:
        warning = "" if localizer.card.trained else f" ({figures.WARNING})"
        silent = f", {done.silent} of them silent" if done.silent else ""
        say(f"model: {localizer.name}{warning}")
        say(f"maps:  {done.maps}{silent}")
        say(f"video: {job.out}")


@contextmanager
def _timeline(target: str | None) -> Iterator[Callable[["VideoMoment"], object]]:
    """Write moments as lines of JSON: nowhere, to standard output, or into a file."""
    if target is None:
        yield lambda moment: None
    elif target == STANDARD_OUTPUT:
        yield lambda moment: sys.stdout.write(moment.line() + "\n")
    else:
        with atomic_write(Path(target)) as part, part.open("w", encoding="utf-8") as file:
            yield lambda moment: file.write(moment.line() + "\n")
