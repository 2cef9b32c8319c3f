"""The page in gradio: its controls, which of them asks what, and the server."""

import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import gradio as gr
from starlette.middleware import Middleware

from soundspot.common.errors import SoundspotError
from soundspot.web import memory, page, work
from soundspot.web.desk import PICTURE, VIDEO, Desk
from soundspot.web.guard import Guard
from soundspot.web.limits import Limits
from soundspot.web.store import Store
from soundspot.web.work import Models

LOOPBACK = ("127.0.0.1", "localhost", "::1")
FONT = ["system-ui", "sans-serif"]
FONT_MONO = ["ui-monospace", "monospace"]
PRIVATE = {"api_visibility": "private", "preprocess": False}


@contextmanager
def serving(
    models: Sequence[str] = (), host: str = "127.0.0.1", port: int | None = None, **limits: Any
) -> Iterator[str]:
    """Serve the page as long as the context lasts.

    Args:
        models: Names or paths, the first is the default; default: the trained ones that ship.
        host: The address to listen at.
        port: Default: a free one.
        limits: As `Limits` names them.

    Yields:
        The address of the page.
    """
    lent = Limits(**limits)
    served = Models(tuple(models) or work.trained_models())
    for name in served.names:
        served.get(name)  # what cannot be loaded is said now, not to the first visitor
    store = Store(lent)
    with _environment(store.root):
        demo = build(Desk(served, lent, store))
        try:
            yield _launch(demo, store, host, port)
        finally:
            demo.close(verbose=False)
            store.clear()


def _launch(demo: gr.Blocks, store: Store, host: str, port: int | None) -> str:
    try:
        _, url, _ = demo.launch(
            server_name=host,
            server_port=port,
            prevent_thread_lock=True,
            quiet=True,
            share=False,
            show_error=False,
            ssr_mode=False,
            run_history=False,
            enable_monitoring=False,
            mcp_server=False,
            pwa=False,
            footer_links=[],
            max_file_size=f"{store.limits.upload_mb}mb",
            state_session_capacity=store.limits.visitors,
            app_kwargs={"middleware": [Middleware(Guard, store=store)]},
            theme=gr.themes.Default(primary_hue="blue", font=FONT, font_mono=FONT_MONO),
            css=page.CSS,
        )
    except (OSError, OverflowError) as error:
        raise SoundspotError(
            f"cannot listen at {host}:{port}: the port is taken, or the address is not one of this "
            "computer; choose another --port or --host"
        ) from error
    return str(url)


def run(
    say: Callable[[str], None], host: str, port: int, models: Sequence[str], limits: dict[str, Any]
) -> None:
    """Serve until the keyboard interrupts."""
    memory.few_heaps()
    with serving(models, host, port, **limits) as url:
        say(f"soundspot: {url}")
        if host not in LOOPBACK:
            say("WARNING: everyone who reaches this computer can use the page.")
        say("Stop with Ctrl+C.")
        # The visitors' files must go, however the server is stopped.
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        with suppress(KeyboardInterrupt):
            threading.Event().wait()


@contextmanager
def _environment(root: Path) -> Iterator[None]:
    """Gradio reads much from the environment, what must not be changed there among it."""
    before = {name: value for name, value in os.environ.items() if name.startswith("GRADIO_")}
    ours = {"GRADIO_TEMP_DIR": str(root), "GRADIO_ANALYTICS_ENABLED": "False"}
    _replace_all(before, ours)
    try:
        yield
    finally:
        _replace_all(ours, before)


def _replace_all(old: dict[str, str], new: dict[str, str]) -> None:
    for name in old:
        os.environ.pop(name, None)
    os.environ.update(new)


def build(desk: Desk) -> gr.Blocks:
    """The page, for a desk that answers."""
    lent = desk.limits
    with gr.Blocks(title=page.TITLE, analytics_enabled=False, fill_width=True) as demo:
        gr.Markdown(page.INTRODUCTION)
        kind = gr.State(VIDEO)
        with gr.Row(equal_height=False):
            with gr.Column(scale=2, min_width=300):
                with gr.Tabs():
                    with gr.Tab("A video") as video_tab:
                        video = gr.Video(label=f"Video with sound, up to {lent.seconds:g} s")
                    with gr.Tab("A picture and a sound") as picture_tab:
                        picture = gr.Image(label="Picture", type="filepath", height=240)
                        sound = gr.Audio(label=f"Sound, up to {lent.seconds:g} s", type="filepath")
                wave = gr.HTML(visible=False, elem_id="wave")
                at = gr.Slider(0, 1, step=0.01, visible=False, label="Moment (seconds)")
                compare = gr.Dropdown(
                    desk.models.comparisons(),
                    value=work.NOTHING,
                    label="Compare with",
                    info="What if it had been another sound?",
                    filterable=False,
                )
                own = gr.Audio(label="The sound of my own", type="filepath", visible=False)
                model = gr.Dropdown(
                    list(desk.models.names),
                    value=desk.models.names[0],
                    label="Model",
                    filterable=False,
                )
                strength = gr.Slider(0, 100, value=100, step=1, label="Strength of the map (%)")
                show = gr.Button("Show where it sounds", variant="primary", elem_id="show")
            with gr.Column(scale=3, min_width=300):
                message = gr.HTML(page.hint("Give a video, or a picture and a sound"))
                with gr.Column(visible=False) as results:
                    difference = gr.HTML(visible=False)
                    with gr.Row(equal_height=False):
                        with gr.Column(min_width=240):
                            first = _picture("Where it sounds", "first-map")
                            first_finding = gr.HTML()
                        with gr.Column(min_width=240):
                            second = _picture("Compared with", "second-map", visible=False)
                            second_finding = gr.HTML(visible=False)
                            frame = _picture("The frame", "frame")
                    with gr.Column() as whole:
                        render = gr.Button("Make the video with the moving map", elem_id="render")
                        stop = gr.Button("Stop", variant="stop", visible=False, elem_id="stop")
                        note = gr.HTML(visible=False)
                        moving = gr.Video(
                            label="The moving map",
                            visible=False,
                            interactive=False,
                            elem_id="moving",
                        )

        asked = [kind, video, picture, sound, at, model, compare, own]
        answer = [message, results, frame, first, second, first_finding, second_finding, difference]
        quick: dict[str, Any] = {"queue": False, "show_progress": "hidden", **PRIVATE}
        located: dict[str, Any] = {
            "trigger_mode": "always_last",
            "concurrency_id": "pictures",
            "concurrency_limit": 1,
            **PRIVATE,
        }
        new = [
            tab.select(partial(_turn_to, name), None, [kind, whole], **quick)
            for tab, name in ((video_tab, VIDEO), (picture_tab, PICTURE))
        ]
        for came in (*(event.then for event in new), video.change, picture.change, sound.change):
            seen = came(desk.arrive, asked, [wave, at, note, moving], **quick)
            seen.then(desk.show, [*asked, strength], answer, **located)
        gr.on(
            [show.click, at.release, model.change, compare.change, own.change],
            desk.show,
            [*asked, strength],
            answer,
            **located,
        )
        at.change(None, at, None, js=page.FOLLOW, **quick)
        compare.change(_offer_own, compare, own, **quick)
        strength.release(desk.redraw, strength, [first, second], **located)
        made = render.click(desk.ready, None, [render, stop], **quick).then(
            desk.render,
            asked,
            [note, moving],
            concurrency_id="videos",
            concurrency_limit=1,
            **PRIVATE,
        )
        made.then(_swap_back, None, [render, stop], **quick)
        stop.click(desk.stop, None, None, **quick)
        _for_programs(desk)
    demo.queue(max_size=lent.waiting)
    return demo


def _turn_to(kind: str) -> tuple[str, gr.Column]:
    return kind, gr.Column(visible=kind == VIDEO)


def _offer_own(compare: str) -> gr.Audio:
    return gr.Audio(visible=compare == work.OWN_SOUND)


def _swap_back() -> tuple[gr.Button, gr.Button]:
    return gr.Button(interactive=True), gr.Button(visible=False)


def _picture(label: str, name: str, visible: bool = True) -> gr.Image:
    return gr.Image(
        label=label,
        elem_id=name,
        visible=visible,
        interactive=False,
        buttons=["download", "fullscreen"],
    )


def _for_programs(desk: Desk) -> None:
    """The one call for programs, on controls that nobody sees."""
    with gr.Row(visible=False):
        file, sound, own = (gr.File(label=name) for name in ("file", "sound", "own"))
        at = gr.Number(label="at", value=None)
        model = gr.Textbox(label="model", value=desk.models.names[0])
        compare = gr.Textbox(label="compare", value=work.NOTHING)
        numbers, picture = gr.JSON(), gr.Image(type="filepath")
        call = gr.Button()
    call.click(
        desk.localize,
        [file, sound, at, model, compare, own],
        [numbers, picture],
        api_name="localize",
        preprocess=False,
        concurrency_id="pictures",
        concurrency_limit=1,
    )
