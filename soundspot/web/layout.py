"""The page's controls, and which handler each of them calls."""

from types import SimpleNamespace

import gradio as gr

from soundspot.web import markup
from soundspot.web.comparing import NOTHING, OWN_SOUND
from soundspot.web.controls import (
    EXAMPLE_OUTPUTS,
    LOOK_OUTPUTS,
    MOVING,
    MOVING_OUTPUTS,
    PICTURE,
    STILL,
    VIDEO,
    Inputs,
)
from soundspot.web.handlers import Handlers
from soundspot.web.knowledge import what_it_knows

PRIVATE = {"api_visibility": "private", "preprocess": False, "show_progress": "hidden"}
QUICK = {"queue": False, **PRIVATE}
# Work is done one request at a time; of the requests of one control, only the last counts.
PICTURES = {"concurrency_id": "pictures", "concurrency_limit": 1}
LOOK = {"trigger_mode": "always_last", **PICTURES, **PRIVATE}
# What comes first is quick, but looks at the headers of files: one request at a time, too.
BEGIN = {"concurrency_id": "beginnings", "concurrency_limit": 1, **PRIVATE}
RENDER = {"concurrency_id": "videos", "concurrency_limit": 1, **PRIVATE}
# What the model can use: a larger video would only keep the browser from recording all of it.
CAMERA = {"video": {"width": {"ideal": 640}, "height": {"ideal": 480}}}
ON_EXAMPLE = """
element.addEventListener("click", (event) => {
  const button = event.target.closest("[data-example]");
  if (button) trigger("click", { key: button.dataset.example });
});
"""
ON_STOP = """
element.addEventListener("click", (event) => {
  if (event.target.closest(".stop")) trigger("click");
});
"""
ON_TIMELINE = """
const seconds = () => Number(element.querySelector(".timeline").dataset.seconds);
const choose = (at, play) => {
  at = Math.min(Math.max(at, 0), Math.floor(100 * seconds()) / 100);
  window.soundspot.mark(at);
  if (play) window.soundspot.play(at);
  return at;
};
element.addEventListener("click", (event) => {
  const button = event.target.closest("[data-at]"), wave = event.target.closest(".wave");
  if (!button && !wave) return;
  const box = wave?.getBoundingClientRect();
  const at = button ? Number(button.dataset.at)
    : (seconds() * (event.clientX - box.left)) / box.width;
  trigger("click", { at: choose(at, true) });
});
let wait;
element.addEventListener("keydown", (event) => {
  const wave = event.target.closest(".wave");
  if (!wave) return;
  const now = Number(wave.getAttribute("aria-valuenow"));
  const at = { ArrowLeft: now - 0.25, ArrowRight: now + 0.25, ArrowDown: now - 0.25,
    ArrowUp: now + 0.25, PageDown: now - 2, PageUp: now + 2, Home: 0, End: seconds() }[event.key];
  if (at === undefined) return;
  event.preventDefault();
  const chosen = choose(at, false);
  clearTimeout(wait);
  wait = setTimeout(() => trigger("click", { at: chosen, still: true }), 400);
});
"""


def build_page(handlers: Handlers) -> gr.Blocks:
    """The whole page, with its handlers."""
    with gr.Blocks(title=markup.TITLE, analytics_enabled=False, fill_width=True) as page:
        gr.HTML(markup.HEADER)
        with gr.Row(equal_height=False):
            with gr.Column(scale=4, min_width=300):
                page_parts = _controls(handlers)
            with gr.Column(scale=7, min_width=300, elem_id="answer"):
                vars(page_parts).update(vars(_results()))
        gr.HTML(markup.HELP)
        _connect(handlers, page_parts)
        _connect_programs(handlers)
    page.queue(max_size=handlers.limits.waiting)
    return page


def _controls(handlers: Handlers) -> SimpleNamespace:
    """What the visitor gives and chooses."""
    camera = gr.WebcamOptions(mirror=False, constraints=CAMERA)
    longest, models = f"up to {handlers.limits.seconds:g} s", handlers.models
    part = SimpleNamespace(kind=gr.State(VIDEO))
    with gr.Tabs(selected=VIDEO) as part.tabs:
        with gr.Tab("A video", id=VIDEO) as part.video_tab:
            part.video = gr.Video(
                label=f"Video with sound, {longest}",
                height=300,
                elem_id="video",
                buttons=[],
                webcam_options=camera,
            )
        with gr.Tab("A picture and a sound", id=PICTURE) as part.picture_tab:
            part.picture = gr.Image(
                label="Picture",
                type="filepath",
                height=220,
                elem_id="picture",
                buttons=[],
                webcam_options=camera,
            )
            part.sound = gr.Audio(
                label=f"Sound, {longest}", type="filepath", elem_id="sound", buttons=[]
            )
    gr.HTML('<div id="complaint" class="note error" role="alert"></div>')
    part.show = gr.Button("Show where the sound is", variant="primary", elem_id="show")
    part.examples = gr.HTML(markup.examples_html(), js_on_load=ON_EXAMPLE, elem_id="examples")
    with gr.Column(elem_classes="choices"):
        part.model = gr.Dropdown(list(models.names), label="Model", filterable=False)
        offered = models.comparisons(models.names[0])
        part.compare = gr.Dropdown(offered, label="Compare with", filterable=False)
    part.own = gr.Audio(
        label="Your own sound", type="filepath", visible=False, elem_id="own", buttons=[]
    )
    part.knows = gr.HTML(markup.knows_html(what_it_knows(models.get(models.names[0]))))
    return part


def _results() -> SimpleNamespace:
    """What the visitor gets."""
    part = SimpleNamespace()
    part.message = gr.HTML(markup.empty_html(markup.HINT), elem_id="message")
    part.looking = gr.HTML(visible=False, js_on_load=ON_STOP, elem_id="looking")
    with gr.Column(visible=False) as part.answer, gr.Tabs(selected=STILL) as part.stage:
        with gr.Tab("This moment", id=STILL):
            part.maps = gr.HTML(elem_id="maps")
        with gr.Tab("Moving map", id=MOVING, visible=False) as part.moving_tab:
            part.moving = gr.HTML(elem_id="moving")
    part.making = gr.HTML(visible=False, js_on_load=ON_STOP, elem_id="making")
    part.render = gr.Button("Make the moving map", visible=False, elem_id="render")
    with gr.Column(visible=False) as part.listened:
        part.timeline = gr.HTML(js_on_load=ON_TIMELINE, elem_id="timeline")
        with gr.Row(elem_classes="knobs"):
            part.at = gr.Number(label="Moment (seconds)", step=0.01, min_width=120, elem_id="at")
            gr.HTML(markup.STRENGTH, min_width=160)
        part.findings = gr.HTML(elem_id="findings")
    return part


def _connect(handlers: Handlers, part: SimpleNamespace) -> None:
    asked = [getattr(part, name) for name in Inputs._fields]
    look = [getattr(part, name) for name in LOOK_OUTPUTS]
    moving = [getattr(part, name) for name in MOVING_OUTPUTS]
    turned = [
        tab.select(lambda kind=kind: kind, None, part.kind, **QUICK)
        for tab, kind in ((part.video_tab, VIDEO), (part.picture_tab, PICTURE))
    ]
    part.examples.click(handlers.on_example_click, None, part.looking, **QUICK)
    example = part.examples.click(
        handlers.on_example, None, [getattr(part, name) for name in EXAMPLE_OUTPUTS], **QUICK
    )
    moments = [
        part.timeline.click(handlers.on_moment, None, part.at, **QUICK),
        part.at.submit(handlers.on_typed, part.at, None, **QUICK),
        part.show.click(handlers.on_typed, part.at, None, **QUICK),
    ]
    part.compare.change(_show_own, part.compare, part.own, **QUICK)
    chosen = [part.model, part.compare]
    part.model.change(handlers.on_model, chosen, [part.knows, part.compare], **QUICK)
    controls = (part.video, part.picture, part.sound, part.model, part.compare, part.own)
    events = [
        *(event.then for event in (*turned, example, *moments)),
        *(control.change for control in controls),
    ]
    for event in events:
        begun = event(handlers.on_begin, asked, part.looking, **BEGIN)
        looked = begun.then(handlers.on_look, asked, look, **LOOK)
        looked.then(handlers.on_short_video, asked, moving, **RENDER)
    part.render.click(handlers.on_render, asked, moving, **RENDER)
    for progress in (part.looking, part.making):
        progress.click(handlers.on_stop, None, None, **QUICK)


def _connect_programs(handlers: Handlers) -> None:
    """The one call for programs, on controls that nobody sees."""
    with gr.Row(visible=False):
        file, sound, own = (gr.File(label=name, value=None) for name in ("file", "sound", "own"))
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


def _show_own(compare: str) -> gr.Audio:
    return gr.Audio(visible=compare == OWN_SOUND)
