"""What one look at the visitor's files does: the timeline, the maps, and their files."""

import json
import re
import threading
from dataclasses import dataclass
from pathlib import Path

from soundspot.common.errors import SoundspotError
from soundspot.common.files import write_text
from soundspot.media import clips as media
from soundspot.web.comparing import Answer, Question, Report, ServedModels, answer_question
from soundspot.web.markup import ShownMap, address, findings_html, maps_html
from soundspot.web.overlays import make_overlays
from soundspot.web.timeline import Timeline, read_timeline
from soundspot.web.video_rendering import Stopped

LONGEST_STEM = 60  # characters


@dataclass(frozen=True, eq=False)
class Look:
    """The timeline, and the answer or why there is none (silence at this moment, for one)."""

    timeline: Timeline
    answer: Answer | SoundspotError


def look(
    models: ServedModels,
    question: Question,
    timeline: Timeline | None,
    stop: threading.Event,
    report: Report,
) -> Look:
    """Listen to the whole sound, unless its timeline is known, and locate what is asked for."""

    def step(share: float, words: str) -> None:
        if stop.is_set():
            raise Stopped("Stopped.")
        report(share, words)

    listening = 0.0
    if timeline is None:
        listening = 0.4
        localizer = models.get(question.model)
        lengths = (info.duration for info in (question.picture, question.heard))
        seconds = min(filter(None, lengths))
        timeline = read_timeline(
            question.heard, seconds, localizer, lambda share, words: step(listening * share, words)
        )
    try:
        answer = answer_question(
            models,
            question,
            lambda share, words: step(listening + (1 - listening) * share, words),
        )
    except Stopped:
        raise
    except SoundspotError as error:
        if media.is_silent(timeline.columns.ravel()):  # then no other moment is worth a try
            raise
        return Look(timeline, error)
    return Look(timeline, answer)


def file_stem(question: Question) -> str:
    """How the files of an answer are called, after what was given."""
    return question.picture.path.stem[:LONGEST_STEM] + "-map"


def write_answer(folder: Path, stem: str, answer: Answer) -> tuple[str, str]:
    """Write the pictures and numbers of an answer; returns the HTML of both."""
    overlays = make_overlays(answer)
    frame = folder / f"{stem}-frame.jpg"
    media.write_jpeg(frame, overlays.frame)
    height, width, _ = overlays.frame.shape
    shown = []
    for number, picture in enumerate(overlays.pictures()):
        path = folder / f"{stem}{f'-{_slug(answer.names[number])}' if number else ''}.jpg"
        media.write_jpeg(path, picture)
        shown.append(ShownMap(address(frame), address(path), path.name, (width, height)))
    numbers = folder / f"{stem}.json"
    write_text(numbers, json.dumps(answer.summary()) + "\n")
    files = {one.file: one.picture for one in shown} | {numbers.name: address(numbers)}
    return maps_html(answer, shown), findings_html(answer, files)


def _slug(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:LONGEST_STEM] or "other"
