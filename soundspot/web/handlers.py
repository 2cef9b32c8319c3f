"""What happens when a visitor gives a file, moves a control or calls from a program.

Every error reaches the visitor as a sentence; the server's log tells more about unexpected ones.
Several events may follow from one action, so a look does nothing if the page already shows
its result. `Session.shown` holds what the page shows: "asked" the question, "at" its moment in
seconds, "timeline" that of "files"; "looked" the files and the model; and what is to come: "chosen"
the moment that the visitor chose, "still" whether its own map is to come to the front (a click
plays the moving map from there), "job" the files and the model, "tried" those of the last video.
"""

import logging
import math
import re
import threading
from collections.abc import Generator, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import gradio as gr

from soundspot.common.errors import SoundspotError
from soundspot.inference import figures
from soundspot.media.clips import MediaInfo
from soundspot.web import markup
from soundspot.web.comparing import (
    ADD_OWN,
    MODEL,
    NOTHING,
    Question,
    Report,
    ServedModels,
    answer_question,
)
from soundspot.web.controls import (
    EXAMPLE_OUTPUTS,
    LOOK_OUTPUTS,
    MOVING,
    MOVING_OUTPUTS,
    PICTURE,
    STILL,
    VIDEO,
    Inputs,
    Updates,
    Upload,
    html,
    own_is_missing,
    updates,
    without_video,
)
from soundspot.web.examples import EXAMPLES, example_files
from soundspot.web.following import Step, follow, no_type_check
from soundspot.web.knowledge import what_it_knows
from soundspot.web.limits import Limits, check_upload
from soundspot.web.looking import Look, file_stem, look, write_answer
from soundspot.web.sessions import Session, SessionStore
from soundspot.web.timeline import timeline_html
from soundspot.web.uploads import NO_ROOM
from soundspot.web.video_rendering import Stopped, render_within_limits

SHORT = 20.0  # s; the moving map of a longer video is made only when asked for
WAITING, MAKING = "Waiting for its turn", "Making the moving map"
UNEXPECTED = "something went wrong inside soundspot; see the server's log"

log = logging.getLogger(__name__)
T = TypeVar("T")


class Missing(SoundspotError):
    """A file is still missing; says which."""


@dataclass(frozen=True)
class Handlers:
    """The handlers of all events, with what they share."""

    models: ServedModels
    limits: Limits
    sessions: SessionStore

    def on_example_click(self) -> gr.HTML:
        """Show that an example is coming."""
        return html(markup.progress_html(Step(0.0, "Making the example")))

    def on_example(self, event: gr.EventData, request: gr.Request) -> Updates:
        """Fill the page with an example, as if the visitor had uploaded its files."""
        try:
            session, key = self._session(request), str(event.key)
            if key not in EXAMPLES:
                raise SoundspotError(f"there is no example {key!r}")
            uploads = [self._add(session, *file) for file in example_files(key).items()]
        except Exception as error:
            note = html(self._note(error))
            return updates(EXAMPLE_OUTPUTS, looking=html(""), message=note)
        kind = VIDEO if EXAMPLES[key].moving else PICTURE
        places = ("video",) if kind == VIDEO else ("picture", "sound")
        files = dict(zip(places, uploads, strict=True))
        chosen = {"kind": kind, "tabs": gr.Tabs(selected=kind), "compare": EXAMPLES[key].compare}
        return updates(EXAMPLE_OUTPUTS, **chosen, **files)

    def on_model(self, model: str, compare: str) -> tuple[str, gr.Dropdown]:
        """Say what the chosen model knows, and offer only the others to compare it with."""
        known = model in self.models.names
        choices = self.models.comparisons(model)
        kept = {} if compare in choices else {"value": NOTHING}
        return (
            markup.knows_html(what_it_knows(self.models.get(model))) if known else "",
            gr.Dropdown(choices=choices, **kept),
        )

    def on_moment(self, event: gr.EventData, request: gr.Request) -> Any:
        """Take a moment from the timeline."""
        with suppress(AttributeError, SoundspotError):
            at, shown = _seconds(event.at), self._session(request).shown
            shown |= {"chosen": at, "still": getattr(event, "still", False)}
            return at
        return gr.skip()

    def on_typed(self, at: object, request: gr.Request) -> None:
        """Take a moment from its field, if it is not the one that is shown."""
        with suppress(SoundspotError):
            shown = self._session(request).shown
            if at is not None and at != shown.get("at"):
                shown["chosen"] = _seconds(at)
            shown["still"] = at is not None

    def on_begin(self, request: gr.Request, *values: Any) -> gr.HTML:
        """Before the work gets its turn: show that it is coming, and stop what is out of date."""
        try:
            session = self._session(request)
            question = self._question(session, Inputs(*values))
        except Exception:  # `on_look`, which comes next, says what is wrong
            return html("")
        job = _job(question)
        if session.stop.is_set() or session.shown.get("job") != job:
            session.stop.set()
            session.stop = threading.Event()
            session.shown["job"] = job
        same = session.shown.get("asked") == question
        return html("" if same else markup.progress_html(Step(0.0, WAITING)))

    @no_type_check
    def on_look(self, request: gr.Request, *values: Any) -> Iterator[Updates]:
        """Locate the sound, and show the map or maps and the timeline."""
        shown: dict[str, Any] = {}
        try:
            session = self._session(request)
            shown = session.shown
            inputs = Inputs(*values)
            question = self._question(session, inputs)
            hint = markup.note_html("hint", ADD_OWN) if own_is_missing(inputs) else ""
            changes: dict[str, Any] = {"message": html(hint)}
            if shown.pop("still", False):
                changes["stage"] = gr.Tabs(selected=STILL)
            if shown.get("asked") == question:
                yield updates(LOOK_OUTPUTS, looking=html(""), **changes)
                return
            if shown.get("looked") != _job(question):
                shown.pop("tried", None)
                changes |= {**without_video(), "stage": gr.Tabs(selected=STILL)}
            yield updates(LOOK_OUTPUTS, **changes)
            timeline = shown.get("timeline") if shown.get("files") == _files(question) else None
            work = partial(look, self.models, question, timeline, session.stop)
            found = yield from self._steps(session, work, "looking", LOOK_OUTPUTS)
            yield self._found(session, question, found)
        except Exception as error:
            shown.pop("asked", None)
            kept = isinstance(error, Stopped)  # then the page stays as it is
            gone = {} if kept else {"answer": gr.Column(visible=False), **without_video()}
            gone |= {} if kept else {"listened": gr.Column(visible=False)}
            message = html(self._note(error))
            yield updates(LOOK_OUTPUTS, looking=html(""), message=message, **gone)

    def _found(self, session: Session, question: Question, found: Look) -> Updates:
        """What a look changes on the page, which is noted."""
        seconds, shown = found.timeline.seconds, session.shown
        at = seconds / 2 if question.at is None else question.at
        changes: dict[str, Any] = {"looking": html("")}
        if isinstance(found.answer, SoundspotError):
            shown.pop("asked", None)
            message = self._note(found.answer)
            changes |= {"message": html(message), "answer": gr.Column(visible=False)}
            changes["findings"] = ""  # those of another moment
        else:
            at = at if found.answer.results[0].at is None else found.answer.results[0].at
            stem = file_stem(question)
            _keep_last_video(session)
            folder = self.sessions.result_path(session, stem).parent
            maps, findings = write_answer(folder, stem, found.answer)
            shown["asked"] = question
            changes |= {"answer": gr.Column(visible=True), "maps": maps, "findings": findings}
            if question.compare != NOTHING:
                changes["stage"] = gr.Tabs(selected=STILL)
        at = round(at, 2)
        shown |= {"at": at, "files": _files(question), "timeline": found.timeline}
        shown["looked"] = _job(question)
        sound = None if question.sound is None else markup.address(question.sound.path)
        changes["timeline"] = timeline_html(found.timeline, at, sound)
        changes |= {"at": at, "listened": gr.Column(visible=True)}
        return updates(LOOK_OUTPUTS, **changes)

    @no_type_check
    def on_short_video(self, request: gr.Request, *values: Any) -> Iterator[Updates]:
        """After a look: make the video with the moving map, or offer it if that takes long."""
        with suppress(SoundspotError):
            session = self._session(request)
            question = self._question(session, Inputs(*values))
            job, shown = _job(question), session.shown
            wanted = question.picture.kind == "video" and shown.get("looked") == job
            if wanted and "asked" in shown and shown.get("tried") != job:
                shown["tried"] = job
                if (question.picture.duration or 0) > SHORT:
                    yield updates(MOVING_OUTPUTS, render=gr.Button(visible=True))
                elif not session.stop.is_set():
                    yield from self._make_video(session, question)
                return
        yield updates(MOVING_OUTPUTS)

    @no_type_check
    def on_render(self, request: gr.Request, *values: Any) -> Iterator[Updates]:
        """Make the video with the moving map."""
        try:
            session = self._session(request)
            question = self._question(session, Inputs(*values))
        except Exception as error:
            yield updates(MOVING_OUTPUTS, making=html(self._note(error)))
            return
        if session.stop.is_set():
            session.stop = threading.Event()
        yield from self._make_video(session, question)

    def _make_video(self, session: Session, question: Question) -> Iterator[Updates]:
        stop = session.stop
        try:
            waiting = html(markup.progress_html(Step(0.0, MAKING)))
            yield updates(MOVING_OUTPUTS, making=waiting, render=gr.Button(visible=False))
            with self.sessions.making(session, f"{file_stem(question)}.mp4") as out:
                work = partial(self._render, question, out, stop)
                yield from self._steps(session, work, "making", MOVING_OUTPUTS)
        except Exception as error:
            if session.stop is not stop:  # other files have come meanwhile
                yield updates(MOVING_OUTPUTS, making=html(""))
                return
            note, again = html(self._note(error)), gr.Button(visible=True)
            yield updates(MOVING_OUTPUTS, making=note, render=again)
            return
        moving = markup.moving_html(markup.address(out), out.name)
        changes = {"making": html(""), "moving": moving, "moving_tab": gr.Tab(visible=True)}
        if session.shown.get("asked", question).compare == NOTHING:  # by now, not at the start
            changes["stage"] = gr.Tabs(selected=MOVING)
        yield updates(MOVING_OUTPUTS, **changes)

    def _render(self, question: Question, out: Path, stop: threading.Event, report: Report) -> None:
        def note(share: float) -> None:
            self.sessions.check_room()
            report(share, MAKING)

        localizer = self.models.get(question.model)
        render_within_limits(localizer, question, out, self.limits, stop, note)

    def on_stop(self, request: gr.Request) -> None:
        """Stop the work of this page."""
        with suppress(SoundspotError):
            self._session(request).stop.set()

    def on_api_call(
        self,
        request: gr.Request,
        file: Upload,
        sound: Upload = None,
        at: object = None,
        model: str | None = None,
        compare: str | None = None,
        own: Upload = None,
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
            out = self.sessions.result_path(session, f"{file_stem(question)}.png")
            rows = [result.picture(answer.scale) for result in answer.results]
            figures.write_picture(out, figures.stack(rows))
        except Exception as error:
            sentence = markup.plain_error(self._sentence(error))
            raise gr.Error(sentence, print_exception=False) from None
        return answer.summary(), str(out)

    def _session(self, request: gr.Request) -> Session:
        return self.sessions.session(str(request.session_hash))

    def _steps(
        self, session: Session, work: Any, place: str, outputs: tuple[str, ...]
    ) -> Generator[Updates, None, Any]:
        """Show how far some work is; returns its result."""
        steps = follow(work)
        while True:
            try:
                step = next(steps)
            except StopIteration as end:
                return end.value
            self.sessions.touch(session)
            yield updates(outputs, **{place: html(markup.progress_html(step))})

    def _question(self, session: Session, inputs: Inputs) -> Question:
        """What the page asks; a moment that belongs to other files does not count."""
        own = self._claim(session, inputs.own)
        if inputs.kind == VIDEO:
            picture, sound = self._claim(session, inputs.video), None
            if picture is None:
                raise Missing(markup.HINT)
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
        # Until its own sound comes, or until the list no longer offers the model itself.
        alone = own_is_missing(inputs) or inputs.compare == f"{MODEL}{inputs.model}"
        compare = NOTHING if alone else inputs.compare
        question = Question(picture, sound, None, inputs.model, compare, own)
        if session.shown.get("files") != _files(question):
            session.shown.pop("chosen", None)
        return replace(question, at=session.shown.get("chosen"))

    def _claim(self, session: Session, upload: Upload) -> MediaInfo | None:
        """What an upload holds; it is probed when it is first used."""
        if upload is None:
            return None
        path = self.sessions.claim(session, Path(str(upload.get("path"))))
        if path not in session.infos:
            session.infos[path] = check_upload(path, self.limits)
        return session.infos[path]

    def _add(self, session: Session, name: str, content: bytes) -> str:
        """Make a file of ours an upload of the session."""
        self.sessions.check_room()
        folder = self.sessions.upload_folder()
        if folder is None:
            raise SoundspotError(NO_ROOM)
        (folder / name).write_bytes(content)
        return str(self.sessions.claim(session, self.sessions.add_upload(folder / name)))

    def _note(self, error: Exception) -> str:
        if isinstance(error, Missing):
            return markup.empty_html(str(error))
        kind = "hint" if isinstance(error, Stopped) else "error"
        return markup.note_html(kind, self._sentence(error))

    def _sentence(self, error: Exception) -> str:
        """The error as a sentence that reveals nothing about the server's folders."""
        if not isinstance(error, SoundspotError):
            log.error("unexpected error", exc_info=error)
            return UNEXPECTED
        inside = rf"{re.escape(str(self.sessions.root))}/[^/\s]+/([^/\s]+/(?=[^/\s]))?"
        return re.sub(inside, "", str(error))


def _files(question: Question) -> tuple[Path, Path]:
    return question.picture.path, question.heard.path


def _job(question: Question) -> tuple[Path, Path, str]:
    return *_files(question), question.model


def _seconds(at: object) -> float | None:
    """Check the moment, as programs may send anything."""
    if at is None:
        return None
    if isinstance(at, bool) or not isinstance(at, int | float) or not math.isfinite(at):
        raise SoundspotError(f"expected a moment in seconds, got {at!r}")
    return float(at)


def _keep_last_video(session: Session) -> None:
    """Make it the newest result: it is on the page as long as maps of its moments are asked for."""
    for video in [path for path in session.results if path.name.endswith("-map.mp4")][-1:]:
        session.results.remove(video)
        session.results.append(video)
