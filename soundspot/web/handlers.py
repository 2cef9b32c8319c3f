"""What happens when a visitor uploads a file, moves a control or calls from a program.

Every error reaches the visitor as a sentence; the server's log tells more about unexpected ones.
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
from soundspot.media.clips import MediaInfo
from soundspot.web.comparing import NOTHING, Question, ServedModels, answer_question
from soundspot.web.limits import Limits, check_upload
from soundspot.web.markup import note_html, plain_error, result_html
from soundspot.web.overlays import Overlays, make_overlays
from soundspot.web.sessions import Session, SessionStore
from soundspot.web.video_rendering import Stopped, render_within_limits
from soundspot.web.waveform import read_columns, waveform_svg

VIDEO, PICTURE = "video", "picture"
OVERLAYS = "overlays.npz"
UNEXPECTED = "something went wrong inside soundspot; see the server's log"
PROGRESS = gr.Progress()

log = logging.getLogger(__name__)
Upload = dict[str, Any] | None  # gradio's FileData


class Inputs(NamedTuple):
    """Values of the page's controls, in the order of the inputs."""

    kind: str
    video: Upload
    picture: Upload
    sound: Upload
    at: object
    model: str
    compare: str
    own: Upload


# What an answer changes on the page, in the order of the outputs.
OUTPUTS = (
    *("message", "results", "frame", "first", "second"),
    *("first_text", "second_text", "difference"),
)


class Missing(SoundspotError):
    """A file is still missing; says which."""


@dataclass(frozen=True)
class Handlers:
    """The handlers of all events, with what they share."""

    models: ServedModels
    limits: Limits
    sessions: SessionStore

    def on_upload(self, request: gr.Request, *values: Any) -> tuple[Any, ...]:
        """Show the waveform of new files, and a slider as long as the sound."""
        old_video = gr.HTML(visible=False), gr.Video(None, visible=False)
        hidden = gr.HTML(visible=False), gr.Slider(visible=False), *old_video
        try:
            heard = self._question(self._session(request), Inputs(*values)).heard
            seconds = heard.duration
            if seconds is None:
                return hidden
            columns = read_columns(heard, seconds)
        except Exception:  # `on_show`, which comes next, says what is wrong
            return hidden
        middle, end = round(seconds / 2, 2), math.floor(seconds * 100) / 100
        slider = gr.Slider(visible=True, maximum=end, value=min(middle, end))
        wave = gr.HTML(waveform_svg(columns, seconds, middle), visible=True)
        return wave, slider, *old_video

    def on_show(self, request: gr.Request, *values: Any) -> tuple[Any, ...]:
        """Locate the sound, and draw the map or maps."""
        *asked, strength = values
        try:
            session = self._session(request)
            answer = answer_question(self.models, self._question(session, Inputs(*asked)))
            overlays = make_overlays(answer)
            overlays.save(session.folder / OVERLAYS)
            frame = self.sessions.result_path(session, "frame.jpg")
            media.write_jpeg(frame, overlays.frame)
            pictures = self._draw(session, overlays, strength)
        except Exception as error:
            hidden = gr.Column(visible=False), *[None] * 3, *[_html("")] * 3
            return _html(self._note(error)), *hidden
        texts = [result_html(*named) for named in zip(answer.names, answer.results, strict=True)]
        notes = [*[*texts, ""][:2], note_html("difference", answer.difference)]
        return _html(""), gr.Column(visible=True), str(frame), *pictures, *map(_html, notes)

    def on_strength(self, strength: float | int, request: gr.Request) -> tuple[Any, Any]:
        """Draw the last answer again at another strength."""
        try:
            session = self._session(request)
            overlays = Overlays.read(session.folder / OVERLAYS)
            first, second = self._draw(session, overlays, strength)
        except (OSError, SoundspotError):  # there is no answer to draw (any more)
            return gr.skip(), gr.skip()
        return first, second

    def on_render_click(self, request: gr.Request) -> tuple[Any, Any]:
        """Before a video is made: clear the last stop, and show the stop button."""
        with suppress(SoundspotError):
            self._session(request).stop.clear()
        return gr.Button(interactive=False), gr.Button(visible=True)

    def on_render(
        self, request: gr.Request, progress: gr.Progress = PROGRESS, *values: Any
    ) -> tuple[Any, Any]:
        """Make the video with the moving map."""
        try:
            session = self._session(request)
            question = self._question(session, Inputs(*values))
            localizer = self.models.get(question.model)
            name = f"{question.picture.path.stem}-soundspot.mp4"

            def on_progress(share: float) -> None:
                self.sessions.touch(session)
                self.sessions.check_room()
                progress(share, desc="Making the video")

            with self.sessions.making(session, name) as out:
                stop = session.stop
                render_within_limits(localizer, question, out, self.limits, stop, on_progress)
        except Exception as error:
            return _html(self._note(error)), gr.Video(visible=False)
        return _html(""), gr.Video(str(out), visible=True)

    def on_stop(self, request: gr.Request) -> None:
        """Stop making the video."""
        with suppress(SoundspotError):
            self._session(request).stop.set()

    def on_api_call(
        self,
        file: Upload,
        sound: Upload,
        at: object,
        model: str | None,
        compare: str | None,
        own: Upload,
        request: gr.Request,
    ) -> tuple[dict[str, object], str]:
        """Locate the sound of a video, or a sound in a picture; returns numbers and a picture."""
        try:
            session = self._session(request)
            picture = self._claim(session, file)
            if picture is None:
                raise SoundspotError("expected a file: a video, or a picture and a sound")
            other, mine = self._claim(session, sound), self._claim(session, own)
            choices = model or self.models.names[0], compare or NOTHING
            question = Question(picture, other, _seconds(at), *choices, mine)
            answer = answer_question(self.models, question)
            out = self.sessions.result_path(session, "where.png")
            rows = [result.picture(answer.scale) for result in answer.results]
            figures.write_picture(out, figures.stack(rows))
        except Exception as error:
            raise gr.Error(plain_error(self._sentence(error)), print_exception=False) from None
        return answer.summary(), str(out)

    def _session(self, request: gr.Request) -> Session:
        return self.sessions.session(str(request.session_hash))

    def _question(self, session: Session, inputs: Inputs) -> Question:
        """What the page asks."""
        own = self._claim(session, inputs.own)
        if inputs.kind == VIDEO:
            picture, sound = self._claim(session, inputs.video), None
            if picture is None:
                raise Missing("Drop, choose or record a video.")
            if picture.kind != "video":
                raise SoundspotError(f"{picture.path.name} is not a video: use the other tab")
            if not picture.has_sound:
                raise SoundspotError(f"{picture.path.name} is a video without sound")
        else:
            picture = self._claim(session, inputs.picture)
            sound = self._claim(session, inputs.sound)
            if picture is None:
                raise Missing("Now add a picture." if sound else "Add a picture and a sound.")
            if sound is None:
                raise Missing("Now add a sound.")
        return Question(picture, sound, _seconds(inputs.at), inputs.model, inputs.compare, own)

    def _claim(self, session: Session, upload: Upload) -> MediaInfo | None:
        """What an upload holds; it is probed when it is first used."""
        if upload is None:
            return None
        path = self.sessions.claim(session, Path(str(upload.get("path"))))
        if path not in session.infos:
            session.infos[path] = check_upload(path, self.limits)
        return session.infos[path]

    def _draw(self, session: Session, overlays: Overlays, strength: float | int) -> list[Any]:
        """Write the maps to files; the second picture is hidden if there is only one map."""
        shown: list[Any] = []
        for number, picture in enumerate(overlays.pictures(float(strength) / 100), start=1):
            path = self.sessions.result_path(session, f"map-{number}.jpg")
            media.write_jpeg(path, picture)
            shown.append(gr.Image(str(path), visible=True))
        return [*shown, gr.Image(None, visible=False)][:2]

    def _note(self, error: Exception) -> str:
        kind = "hint" if isinstance(error, Missing | Stopped) else "error"
        return note_html(kind, self._sentence(error))

    def _sentence(self, error: Exception) -> str:
        """The error as a sentence that reveals nothing about the server's folders."""
        if not isinstance(error, SoundspotError):
            log.error("unexpected error", exc_info=error)
            return UNEXPECTED
        inside = rf"{re.escape(str(self.sessions.root))}/[^/\s]+/([^/\s]+/(?=[^/\s]))?"
        return re.sub(inside, "", str(error))


def _seconds(at: object) -> float | None:
    """Check the moment, as programs may send anything."""
    if at is None:
        return None
    if isinstance(at, bool) or not isinstance(at, int | float):
        raise SoundspotError(f"expected a moment in seconds, got {at!r}")
    return float(at)


def _html(text: str) -> gr.HTML:
    """An HTML element, hidden if it is empty."""
    return gr.HTML(text, visible=bool(text))
