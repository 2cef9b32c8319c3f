"""The page's controls, and which handler each of them calls."""

from functools import partial
from types import SimpleNamespace

import gradio as gr

from soundspot.web import markup
from soundspot.web.comparing import NOTHING, OWN_SOUND
from soundspot.web.handlers import OUTPUTS, PICTURE, VIDEO, Handlers, Inputs
from soundspot.web.waveform import FOLLOW_SLIDER

PRIVATE = {"api_visibility": "private", "preprocess": False}
QUICK = {"queue": False, "show_progress": "hidden", **PRIVATE}
# Work is done one request at a time; of the requests of one control, only the last counts.
PICTURES = {"concurrency_id": "pictures", "concurrency_limit": 1}
LOOK = {"show_progress": "hidden", **PICTURES, **PRIVATE}
LOCATE = {"trigger_mode": "always_last", **PICTURES, **PRIVATE}
DRAWN = {"interactive": False, "buttons": ["download", "fullscreen"]}
RENDER = {"concurrency_id": "videos", "concurrency_limit": 1, **PRIVATE}


def build_page(handlers: Handlers) -> gr.Blocks:
    """The whole page, with its handlers."""
    with gr.Blocks(title=markup.TITLE, analytics_enabled=False, fill_width=True) as page:
        gr.Markdown(markup.INTRODUCTION)
        with gr.Row(equal_height=False):
            with gr.Column(scale=2, min_width=300):
                controls = _controls(handlers)
            with gr.Column(scale=3, min_width=300):
                results = _results()
        _connect(handlers, controls, results)
        _connect_programs(handlers)
    page.queue(max_size=handlers.limits.waiting)
    return page


def _controls(handlers: Handlers) -> SimpleNamespace:
    """What the visitor gives and chooses."""
    longest, models = f"up to {handlers.limits.seconds:g} s", handlers.models
    controls = SimpleNamespace(kind=gr.State(VIDEO))
    with gr.Tabs():
        with gr.Tab("A video") as controls.video_tab:
            controls.video = gr.Video(label=f"Video with sound, {longest}")
        with gr.Tab("A picture and a sound") as controls.picture_tab:
            controls.picture = gr.Image(label="Picture", type="filepath", height=240)
            controls.sound = gr.Audio(label=f"Sound, {longest}", type="filepath")
    controls.wave = gr.HTML(visible=False, elem_id="wave")
    controls.at = gr.Slider(0, 1, step=0.01, visible=False, label="Moment (seconds)")
    controls.compare = gr.Dropdown(
        models.comparisons(),
        label="Compare with",
        info="What if it were another sound?",
        filterable=False,
    )
    controls.own = gr.Audio(label="Your own sound", type="filepath", visible=False)
    controls.model = gr.Dropdown(list(models.names), label="Model", filterable=False)
    controls.strength = gr.Slider(0, 100, value=100, step=1, label="Strength of the map (%)")
    controls.show = gr.Button("Show where the sound is", variant="primary", elem_id="show")
    controls.inputs = [getattr(controls, name) for name in Inputs._fields]
    return controls


def _results() -> SimpleNamespace:
    """What the visitor gets."""
    shown = SimpleNamespace()
    shown.message = gr.HTML(markup.note_html("hint", "Add a video, or a picture and a sound"))
    with gr.Column(visible=False) as shown.results:
        shown.difference = gr.HTML(visible=False)
        with gr.Row(equal_height=False):
            with gr.Column(min_width=240):
                shown.first = gr.Image(label="Where the sound is", elem_id="first-map", **DRAWN)
                shown.first_text = gr.HTML()
            with gr.Column(min_width=240):
                shown.second = gr.Image(
                    label="Compared with", elem_id="second-map", visible=False, **DRAWN
                )
                shown.second_text = gr.HTML(visible=False)
                shown.frame = gr.Image(label="The frame", elem_id="frame", **DRAWN)
        with gr.Column() as shown.video_column:
            shown.render = gr.Button("Make the video with the moving map", elem_id="render")
            shown.stop = gr.Button("Stop", variant="stop", visible=False, elem_id="stop")
            shown.note = gr.HTML(visible=False)
            shown.moving = gr.Video(
                label="The moving map", visible=False, interactive=False, elem_id="moving"
            )
    shown.outputs = [getattr(shown, name) for name in OUTPUTS]
    return shown


def _connect(handlers: Handlers, controls: SimpleNamespace, results: SimpleNamespace) -> None:
    asked = [*controls.inputs, controls.strength]
    # New files: look at them, then locate.
    tabs = ((controls.video_tab, VIDEO), (controls.picture_tab, PICTURE))
    outputs = [controls.kind, results.video_column]
    turned = [tab.select(partial(_turn_to, kind), None, outputs, **QUICK) for tab, kind in tabs]
    files = (controls.video, controls.picture, controls.sound)
    for event in (*(turn.then for turn in turned), *(file.change for file in files)):
        outputs = [controls.wave, controls.at, results.note, results.moving]
        looked = event(handlers.on_upload, controls.inputs, outputs, **LOOK)
        looked.then(handlers.on_show, asked, results.outputs, **LOCATE)
    # Choices: locate again, or only draw again.
    changes = [control.change for control in (controls.model, controls.compare, controls.own)]
    events = [controls.show.click, controls.at.release, *changes]
    gr.on(events, handlers.on_show, asked, results.outputs, **LOCATE)
    controls.at.change(None, controls.at, None, js=FOLLOW_SLIDER, **QUICK)
    controls.compare.change(_show_own, controls.compare, controls.own, **QUICK)
    pictures = [results.first, results.second]
    controls.strength.release(handlers.on_strength, controls.strength, pictures, **LOCATE)
    # The video.
    buttons = [results.render, results.stop]
    clicked = results.render.click(handlers.on_render_click, None, buttons, **QUICK)
    outputs = [results.note, results.moving]
    made = clicked.then(handlers.on_render, controls.inputs, outputs, **RENDER)
    made.then(_reset_buttons, None, buttons, **QUICK)
    results.stop.click(handlers.on_stop, None, None, **QUICK)


def _connect_programs(handlers: Handlers) -> None:
    """The one call for programs, on controls that nobody sees."""
    with gr.Row(visible=False):
        file, sound, own = (gr.File(label=name) for name in ("file", "sound", "own"))
        at = gr.Number(label="at", value=None)
        model = gr.Textbox(label="model", value=handlers.models.names[0])
        compare = gr.Textbox(label="compare", value=NOTHING)
        numbers, picture = gr.JSON(), gr.Image(type="filepath")
        call = gr.Button()
    call.click(
        handlers.on_api_call,
        [file, sound, at, model, compare, own],
        [numbers, picture],
        api_name="localize",
        preprocess=False,
        **PICTURES,
    )


def _turn_to(kind: str) -> tuple[str, gr.Column]:
    return kind, gr.Column(visible=kind == VIDEO)


def _show_own(compare: str) -> gr.Audio:
    return gr.Audio(visible=compare == OWN_SOUND)


def _reset_buttons() -> tuple[gr.Button, gr.Button]:
    return gr.Button(interactive=True), gr.Button(visible=False)
