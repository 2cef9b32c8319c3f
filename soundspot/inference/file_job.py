"""What `soundspot localize` does: a picture, a row of pictures for several sounds, or a video."""

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from soundspot.common.errors import SoundspotError
from soundspot.common.files import atomic_write, write_text
from soundspot.inference import figures, video
from soundspot.inference.localization import Localization
from soundspot.inference.localizer import Localizer, load
from soundspot.media import clips as media
from soundspot.media.writing import FORMATS, is_video_name

Say = Callable[[str], None]
STANDARD_OUTPUT = "-"


@dataclass(frozen=True)
class Job:
    """What to show.

    Attributes:
        file: A video or an image.
        audio: A sound file in place of the video's sound.
        out: The picture or video to write.
        model: As `load` takes it.
        json: File for the findings; - is standard output.
        at: Seconds into the video.
        sources: How many sounds to tell apart.
        fps_map: Maps a second of a video.
    """

    file: Path
    audio: Path | None
    out: Path
    model: str | None = None
    json: str | None = None
    at: float | None = None
    sources: int = 1
    fps_map: float | None = None

    @property
    def inputs(self) -> list[Path]:
        """The files to read."""
        return [self.file] if self.audio is None else [self.file, self.audio]


def run(job: Job, say: Say) -> None:
    """Do a job and report it; what cannot work is refused before the model is loaded."""
    if job.json not in (None, STANDARD_OUTPUT):
        figures.check_file(Path(job.json), [*job.inputs, job.out])
    if is_video_name(job.out):
        _whole_video(job, say)
        return
    if job.fps_map is not None:
        endings = ", ".join(FORMATS)
        raise SoundspotError(f"--fps-map is for videos, whose names end in {endings}")
    figures.check_picture(job.out, job.inputs)
    if job.sources == 1:
        clip = media.read_clip(job.file, job.audio, job.at)
        found = load(job.model).localize_clip(clip)
        found.save(job.out)
        _report(job, found.summary(), [found.describe()], say)
    else:
        _several(job, say)


def _several(job: Job, say: Say) -> None:
    if job.at is not None:
        raise SoundspotError("--at names one moment, --sources looks for moments: give one of them")
    if job.sources < 1:
        raise SoundspotError(f"expected a number of sources of at least 1, not {job.sources}")
    media.probe(job.file)
    media.check_sound(job.inputs[-1])
    found = load(job.model).localize_sources(job.file, job.audio, job.sources)
    figures.write_picture(job.out, figures.stack([one.picture() for one in found]))
    _report(job, {"sources": [one.summary() for one in found]}, _paragraphs(job, found), say)


def _paragraphs(job: Job, found: Sequence[Localization]) -> Iterator[str]:
    if len(found) < job.sources:
        yield f"asked for {job.sources} sounds, told {len(found)} apart"
    for number, one in enumerate(found, start=1):
        start, end = one.span or (0.0, 0.0)
        yield f"sound {number}, {start:.2f} to {end:.2f} s\n{one.describe()}"


def _report(job: Job, summary: object, paragraphs: Sequence[str] | Iterator[str], say: Say) -> None:
    if job.json == STANDARD_OUTPUT:
        say(json.dumps(summary))
        return
    if job.json is not None:
        write_text(Path(job.json), json.dumps(summary) + "\n")
    for paragraph in paragraphs:
        say(paragraph)
    say(f"picture: {job.out}")


def _whole_video(job: Job, say: Say) -> None:
    if job.at is not None or job.sources != 1:
        raise SoundspotError("--at and --sources are for pictures: a video shows every moment")
    video.check_inputs(job.file, job.audio)
    video.check_video(job.out, job.inputs)
    rate = video.MAPS_PER_SECOND if job.fps_map is None else job.fps_map
    localizer = load(job.model)
    with _timeline(job.json) as note:
        done = video.render_video(
            localizer, job.file, job.out, audio=job.audio, maps_per_second=rate, note=note
        )
    if job.json != STANDARD_OUTPUT:
        _describe(localizer, done, say)
        say(f"video: {job.out}")


def _describe(localizer: Localizer, done: video.Rendered, say: Say) -> None:
    warning = "" if localizer.card.trained else f" ({figures.WARNING})"
    say(f"model: {localizer.name}{warning}")
    silent = f", {done.silent} of them of silence" if done.silent else ""
    say(f"maps:  {done.maps}{silent}")


@contextmanager
def _timeline(target: str | None) -> Iterator[Callable[[video.Moment], object]]:
    """Where moments go, line by line: nowhere, to standard output, or into a file."""
    if target is None:
        yield lambda moment: None
    elif target == STANDARD_OUTPUT:
        yield lambda moment: sys.stdout.write(moment.line() + "\n")
    else:
        with atomic_write(Path(target)) as part, part.open("w", encoding="utf-8") as file:
            yield lambda moment: file.write(moment.line() + "\n")
