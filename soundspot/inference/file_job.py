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
from typing import TYPE_CHECKING, Literal

from soundspot.common.errors import SoundspotError
from soundspot.common.files import atomic_write, write_text
from soundspot.inference import outputs
from soundspot.media.opening import OpenMedia, opened
from soundspot.media.writing import FORMATS, is_video_name

if TYPE_CHECKING:
    from soundspot.inference.localizer import Localizer
    from soundspot.inference.result import Localization
    from soundspot.inference.video import VideoMoment

Say = Callable[[str], None]
LoadModel = Callable[[], "Localizer"]
STANDARD_OUTPUT = "-"


@dataclass(frozen=True)
class FileJob:
    """One file to localize, and what to write: the arguments of `soundspot localize`."""

    file: Path
    audio: Path | None
    out: Path
    json: str | None = None
    at: float | Literal["best", "middle"] = "best"
    sources: int = 1
    fps_map: float | None = None
    details: bool = False
    outline: bool | None = None
    mask: Path | None = None


def run_file_jobs(jobs: Sequence[FileJob], load_model: LoadModel, say: Say, complain: Say) -> int:
    """Do jobs with one model, say the results, and return how many failed.

    Several jobs are pictures, all with the same `json`, which gets a line per file, and one that
    fails does not stop the others.
    """
    load_once, target, several = cache(load_model), jobs[0].json, len(jobs) > 1
    lines: list[str] = []
    failed = 0
    for job in jobs:
        try:
            with _checked(job) as (picture, sound):
                if is_video_name(job.out):
                    _whole_video(job, picture, sound, load_once(), say)
                    continue
                results = _make_picture(job, picture, sound, load_once())
        except SoundspotError as error:
            if not several:
                raise
            complain(str(error))
            failed += 1
            continue
        name = {"path": str(job.file)} if several else {}
        found = [result.summary() for result in results]
        facts = found[0] if job.sources == 1 else {"sources": found}
        lines.append(json.dumps({**name, **facts}))
        told = _paragraphs(job, results)
        if target == STANDARD_OUTPUT:
            told = lines[-1:]
        elif several:
            told = [str(job.file), *told, ""]
        say("\n".join(told))
    if target not in (None, STANDARD_OUTPUT) and lines:
        write_text(Path(target), "".join(f"{line}\n" for line in lines))
    return failed


def _is_timeline(job: FileJob) -> bool:
    return job.out.suffix.lower() in outputs.TIMELINES


@contextmanager
def _checked(job: FileJob) -> Iterator[tuple[OpenMedia, OpenMedia]]:
    """Open the picture and the sound of a job, and refuse what cannot work."""
    # The names of the outputs, which must not be those of the inputs.
    given = [job.file] if job.audio is None else [job.file, job.audio]
    known = [*outputs.PICTURE_FORMATS, *FORMATS, *outputs.TIMELINES]
    outputs.check_file(job.out, given, "output", known)
    if job.json not in (None, STANDARD_OUTPUT):
        outputs.check_file(Path(job.json), [*given, job.out])
    video = is_video_name(job.out)
    if _is_timeline(job) and (job.at != "best" or job.mask or job.json or job.fps_map):
        raise SoundspotError("a timeline has every moment, without masks; as JSON it is OUT.json")
    if video and (job.at != "best" or job.sources != 1):
        raise SoundspotError("a video shows every moment and sound: ask for a picture of one")
    if job.mask is not None:
        outputs.check_picture(job.mask, [*given, job.out])
    if job.mask is not None and (video or job.outline is False or job.sources != 1):
        raise SoundspotError("a mask is that of one picture with its outline")
    if job.fps_map is not None and not video:
        endings = ", ".join(FORMATS)
        raise SoundspotError(f"maps per second are for videos, whose names end in {endings}")
    if job.sources < 1:
        raise SoundspotError(f"expected at least 1 source, got {job.sources}")
    if job.at != "best" and job.sources != 1:
        raise SoundspotError("ask for one moment, or for the moments of several sources, not both")
    # What the files hold: something to see, something to hear, the moment asked for.
    with opened(job.file) as picture:
        if job.audio is None and not picture.info.has_sound:
            kind = "an image" if picture.info.kind == "image" else "a video"
            raise SoundspotError(f"{job.file} is {kind} without sound: name one too", "no-sound")
        with opened(job.audio or picture) as sound:
            sound.info.require_sound()
            if video:
                picture.info.require_video()
            picture.info.require_picture()
            if isinstance(job.at, float):
                (picture if picture.info.kind == "video" else sound).info.moment(job.at)
            yield picture, sound


def _make_picture(
    job: FileJob, picture: OpenMedia, sound: OpenMedia, localizer: "Localizer"
) -> list["Localization"]:
    """The answers of a file, of each of its sounds or of all of its moments, and their file."""
    from soundspot.inference import figures
    from soundspot.inference.files import localize, localize_sources, localize_timeline
    from soundspot.inference.timeline import write_timeline

    if _is_timeline(job):
        results = localize_timeline(picture, sound, count=job.sources, model=localizer)
        write_timeline(job.out, results)
        return results
    if job.sources != 1:
        results = localize_sources(
            picture, sound, count=job.sources, outline=job.outline is not False, model=localizer
        )
    else:
        audio = None if job.audio is None else sound
        outline = job.outline is not False
        results = [localize(picture, audio, at=job.at, outline=outline, model=localizer)]
    figures.write_picture(job.out, figures.stack([result.picture() for result in results]))
    if job.mask is not None:
        results[0].save_mask(job.mask)
    return results


def _paragraphs(job: FileJob, results: Sequence["Localization"]) -> list[str]:
    """The results for people."""
    told = []
    kind = "timeline" if _is_timeline(job) else "picture"
    if len(results) < job.sources and kind == "picture":
        told.append(f"asked for {job.sources} sounds, found {len(results)}")
    for number, result in enumerate(results, start=1):
        start, end = result.span or (0.0, 0.0)
        heading = f"sound {number}, {start:.2f} to {end:.2f} s\n" if result.span else ""
        told.append(heading + result.describe(job.details))
    return [*told, f"{kind}: {job.out}"]


def _whole_video(
    job: FileJob, picture: OpenMedia, sound: OpenMedia, localizer: "Localizer", say: Say
) -> None:
    from soundspot.inference import video

    rate = video.MAPS_PER_SECOND if job.fps_map is None else job.fps_map
    with _timeline(job.json) as note:
        done = video.render_video(
            localizer,
            picture,
            job.out,
            audio=sound,
            maps_per_second=rate,
            outline=bool(job.outline),
            note=note,
        )
    if job.json != STANDARD_OUTPUT:
        silent = f", {done.silent} of them silent" if done.silent else ""
        say(f"model: {localizer.name}")
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
