"""What the page and programs ask, and what they get: files in, files and HTML out.

No error leaves this file but as a sentence; what nobody foresaw goes to the server's log.
"""

import logging
import math
import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import gradio as gr

from soundspot.common.errors import SoundspotError
from soundspot.inference import figures
from soundspot.media import clips as media
from soundspot.web import page, work
from soundspot.web.limits import Limits, check
from soundspot.web.store import Session, Store
from soundspot.web.work import Models, Question, Stopped

VIDEO, PICTURE = "video", "picture"
UNFORESEEN = "something went wrong inside soundspot; the log of the server says more"
PROGRESS = gr.Progress()

log = logging.getLogger(__name__)
Upload = dict[str, Any] | None  # gradio's FileData


class Inputs(NamedTuple):
    """The controls of the page, in their order."""

    kind: str
    video: Upload
    picture: Upload
    sound: Upload
    at: object
    model: str
    compare: str
    own: Upload


class Shown(NamedTuple):
    """What one answer fills in on the page, in the order of the outputs."""

    message: Any
    results: Any
    frame: Any
    first: Any
    second: Any
    first_finding: Any
    second_finding: Any
    difference: Any


@dataclass(frozen=True)
class Desk:
    """Answers the requests of all visitors.

    Attributes:
        models: Those served.
        limits: How much is lent out.
        store: The visitors' files.
    """

    models: Models
    limits: Limits
    store: Store

    def arrive(self, request: gr.Request, *values: Any) -> tuple[Any, ...]:
        """Look at new files: the waveform, and a slider as long as the sound."""
        hidden = gr.HTML(visible=False), gr.Slider(visible=False)
        old_video = gr.HTML(visible=False), gr.Video(None, visible=False)
        try:
            session = self.store.session(_key(request))
            question = self._question(session, Inputs(*values))
            if question is None:
                return *hidden, *old_video
            seconds = self._seconds(question)
            middle = round(seconds / 2, 2)
            columns = work.waveform(question.heard, seconds)
        except Exception:  # `show`, which comes next, says what is wrong
            return *hidden, *old_video
        end = math.floor(seconds * 100) / 100
        slider = gr.Slider(visible=True, maximum=end, value=min(middle, end))
        wave = gr.HTML(page.wave(columns, seconds, middle), visible=True)
        return wave, slider, *old_video

    def show(self, request: gr.Request, *values: Any) -> Shown:
        """Locate, and draw what was found."""
        *asked, strength = values
        try:
            session = self.store.session(_key(request))
            question = self._question(session, Inputs(*asked))
            if question is None:
                return _nothing(page.hint(_missing(Inputs(*asked))))
            found = work.answer(self.models, question)
            drawn = work.drawing(found)
            drawn.save(session.folder / "drawing.npz")
            frame = self.store.place(session, "frame.jpg")
            media.write_jpeg(frame, drawn.frame)
            pictures = self._draw(session, drawn, strength)
        except Exception as error:
            return _nothing(page.error(self._sentence(error)))
        findings = [page.finding(*both) for both in zip(found.names, found.found, strict=True)]
        texts = [*findings, ""][:2]
        return Shown(
            _html(""),
            gr.Column(visible=True),
            str(frame),
            pictures[0],
            pictures[1],
            _html(texts[0]),
            _html(texts[1]),
            _html(page.difference(work.difference(found))),
        )

    def redraw(self, strength: float | int, request: gr.Request) -> tuple[Any, Any]:
        """Draw the last answer again, more or less strongly."""
        try:
            session = self.store.session(_key(request))
            drawn = work.Drawing.read(session.folder / "drawing.npz")
            first, second = self._draw(session, drawn, strength)
        except (OSError, SoundspotError):  # there is no answer to draw, or no longer
            return gr.skip(), gr.skip()
        return first, second

    def ready(self, request: gr.Request) -> tuple[Any, Any]:
        """Before a video is made: forget that the last one was stopped, and offer to stop."""
        with suppress(SoundspotError):
            self.store.session(_key(request)).stop.clear()
        return gr.Button(interactive=False), gr.Button(visible=True)

    def render(
        self, request: gr.Request, progress: gr.Progress = PROGRESS, *values: Any
    ) -> tuple[Any, Any]:
        """Make the video with the moving map."""
        try:
            session = self.store.session(_key(request))
            question = self._question(session, Inputs(*values))
            if question is None:
                return _html(page.hint(_missing(Inputs(*values)))), gr.Video(visible=False)
            localizer = self.models.get(question.model)
            out = self.store.place(session, f"{question.picture.stem}-soundspot.mp4")

            def tell(share: float) -> None:
                self.store.touch(session)
                progress(share, desc="Making the video")

            work.moving(localizer, question, out, self.limits, session.stop, tell)
        except Stopped as error:
            return _html(page.hint(str(error))), gr.Video(visible=False)
        except Exception as error:
            return _html(page.error(self._sentence(error))), gr.Video(visible=False)
        return _html(""), gr.Video(str(out), visible=True)

    def stop(self, request: gr.Request) -> None:
        """Give up the video in the making."""
        self.store.stop(_key(request))

    def localize(
        self,
        file: Upload,
        sound: Upload,
        at: object,
        model: str | None,
        compare: str | None,
        own: Upload,
        request: gr.Request,
    ) -> tuple[dict[str, object], str]:
        """Where the sound of a video comes from, or a sound's in a picture; for programs.

        Returns:
            All numbers, and a picture.
        """
        try:
            session = self.store.session(_key(request))
            picture = self._claim(session, file)
            if picture is None:
                raise SoundspotError("expected a file: a video, or a picture and a sound")
            question = Question(
                picture,
                self._claim(session, sound),
                _seconds(at),
                model or self.models.names[0],
                compare or work.NOTHING,
                self._claim(session, own),
            )
            found = work.answer(self.models, question)
            out = self.store.place(session, "where.png")
            rows = [one.picture(found.scale) for one in found.found]
            figures.write_picture(out, figures.stack(rows))
        except Exception as error:
            raise gr.Error(page.plain(self._sentence(error)), print_exception=False) from None
        return work.summary(found), str(out)

    def _question(self, session: Session, inputs: Inputs) -> Question | None:
        """What the page asks; None as long as something is missing."""
        own = self._claim(session, inputs.own)
        if inputs.kind == VIDEO:
            video, sound = self._claim(session, inputs.video), None
            if video is None:
                return None
            info = media.probe(video)
            if info.kind != "video":
                raise SoundspotError(f"{video.name} is no video but {info.kind}: see the other tab")
            if not info.has_sound:
                raise SoundspotError(f"{video.name} is a video without sound: nothing can be found")
        else:
            video, sound = (self._claim(session, one) for one in (inputs.picture, inputs.sound))
            if video is None or sound is None:
                return None
        return Question(video, sound, _seconds(inputs.at), inputs.model, inputs.compare, own)

    def _claim(self, session: Session, upload: Upload) -> Path | None:
        if upload is None:
            return None
        path = self.store.claim(session, Path(str(upload.get("path"))))
        check(path, self.limits)
        return path

    def _seconds(self, question: Question) -> float:
        seconds = media.probe(question.heard).duration
        if seconds is None:
            raise SoundspotError(f"{question.heard.name} is no sound")
        return seconds

    def _draw(self, session: Session, drawn: work.Drawing, strength: float | int) -> list[Any]:
        """Both maps as files; the second is not shown if there is none."""
        shown: list[Any] = []
        for number, picture in enumerate(drawn.pictures(float(strength) / 100), start=1):
            path = self.store.place(session, f"map-{number}.jpg")
            media.write_jpeg(path, picture)
            shown.append(gr.Image(str(path), visible=True))
        return [*shown, gr.Image(None, visible=False)][:2]

    def _sentence(self, error: Exception) -> str:
        """The error in a sentence that tells nothing of the server's folders."""
        if not isinstance(error, SoundspotError):
            log.error("unforeseen", exc_info=error)
            return UNFORESEEN
        inside = rf"{re.escape(str(self.store.root))}/[^/\s]+/([^/\s]+/(?=[^/\s]))?"
        return re.sub(inside, "", str(error))


def _key(request: gr.Request) -> str:
    return str(request.session_hash)


def _seconds(at: object) -> float | None:
    """The moment, which a program may have given as anything."""
    if at is None:
        return None
    if isinstance(at, bool) or not isinstance(at, int | float):
        raise SoundspotError(f"expected a moment in seconds, not {at!r}")
    return float(at)


def _missing(inputs: Inputs) -> str:
    if inputs.kind == VIDEO:
        return "Give a video: drop it, choose it or record it."
    if inputs.picture is None and inputs.sound is None:
        return "Give a picture and a sound."
    return "Now give a sound." if inputs.sound is None else "Now give a picture."


def _nothing(message: str) -> Shown:
    return Shown._make((_html(message), gr.Column(visible=False), *[None] * 3, *[_html("")] * 3))


def _html(text: str) -> gr.HTML:
    """Nothing takes no room."""
    return gr.HTML(text, visible=bool(text))
