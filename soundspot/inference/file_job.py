"""What `soundspot localize FILE` does: a picture, a row per sound, or a whole video."""

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from soundspot.common.errors import SoundspotError
from soundspot.common.files import atomic_write, write_text
from soundspot.inference import figures, video
from soundspot.inference.localizer import load
from soundspot.media.clips import opened, read_clip
from soundspot.media.writing import FORMATS, is_video_name

Say = Callable[[str], None]
STANDARD_OUTPUT = "-"


@dataclass(frozen=True)
class FileJob:
    """One file to localise, and what to write.

    Attributes:
        file: A video or an image.
        audio: A sound file that replaces the video's sound.
        out: The picture or video to write.
        model: As `load` accepts it.
        json: JSON file for the results; - is standard output.
        at: Seconds into the video.
        sources: How many sounds to separate.
        fps_map: Maps per second of a video.
    """

    file: Path
    audio: Path | None
    out: Path
    model: str | None = None
    json: str | None = None
    at: float | None = None
    sources: int = 1
    fps_map: float | None = None


def run_file_job(job: FileJob, say: Say) -> None:
    """Do a job and report it; what cannot work is refused before the model is loaded."""
    inputs = [job.file] if job.audio is None else [job.file, job.audio]
    if job.json not in (None, STANDARD_OUTPUT):
        figures.check_file(Path(job.json), [*inputs, job.out])
    if is_video_name(job.out):
        figures.check_file(job.out, inputs)
        _whole_video(job, say)
        return
    if job.fps_map is not None:
        endings = ", ".join(FORMATS)
        raise SoundspotError(f"--fps-map is for videos, whose names end in {endings}")
    figures.check_picture(job.out, inputs)
    if job.sources == 1:
        clip = read_clip(job.file, job.audio, job.at)
        result = load(job.model).localize_clip(clip)
        result.save(job.out)
        _report(job, result.summary(), [result.describe()], say)
    else:
        _several_sounds(job, say)


def _several_sounds(job: FileJob, say: Say) -> None:
    if job.at is not None:
        raise SoundspotError("--at names one moment, --sources looks for moments: give one of them")
    if job.sources < 1:
        raise SoundspotError(f"expected at least 1 source, got {job.sources}")
    with opened(job.file) as picture, opened(job.audio or picture) as sound:
        sound.info.require_sound()
        results = load(job.model).localize_sources(picture, sound, job.sources)
    figures.write_picture(job.out, figures.stack([result.picture() for result in results]))
    paragraphs = []
    if len(results) < job.sources:
        paragraphs.append(f"asked for {job.sources} sounds, found {len(results)}")
    for number, result in enumerate(results, start=1):
        start, end = result.span or (0.0, 0.0)
        paragraphs.append(f"sound {number}, {start:.2f} to {end:.2f} s\n{result.describe()}")
    _report(job, {"sources": [result.summary() for result in results]}, paragraphs, say)


def _report(job: FileJob, summary: object, paragraphs: Sequence[str], say: Say) -> None:
    if job.json == STANDARD_OUTPUT:
        say(json.dumps(summary))
        return
    if job.json is not None:
        write_text(Path(job.json), json.dumps(summary) + "\n")
    for paragraph in (*paragraphs, f"picture: {job.out}"):
        say(paragraph)


def _whole_video(job: FileJob, say: Say) -> None:
    if job.at is not None or job.sources != 1:
        raise SoundspotError("--at and --sources are for pictures: a video shows every moment")
    rate = video.MAPS_PER_SECOND if job.fps_map is None else job.fps_map
    with opened(job.file) as pictures, opened(job.audio or pictures) as sound:
        pictures.info.require_video()
        sound.info.require_sound()
        localizer = load(job.model)
        with _timeline(job.json) as note:
            done = video.render_video(
                localizer, pictures, job.out, audio=sound, maps_per_second=rate, note=note
            )
    if job.json != STANDARD_OUTPUT:
        warning = "" if localizer.card.trained else f" ({figures.WARNING})"
        silent = f", {done.silent} of them silent" if done.silent else ""
        say(f"model: {localizer.name}{warning}")
        say(f"maps:  {done.maps}{silent}")
        say(f"video: {job.out}")


@contextmanager
def _timeline(target: str | None) -> Iterator[Callable[[video.VideoMoment], object]]:
    """Write moments as lines of JSON: nowhere, to standard output, or into a file."""
    if target is None:
        yield lambda moment: None
    elif target == STANDARD_OUTPUT:
        yield lambda moment: sys.stdout.write(moment.line() + "\n")
    else:
        with atomic_write(Path(target)) as part, part.open("w", encoding="utf-8") as file:
            yield lambda moment: file.write(moment.line() + "\n")
