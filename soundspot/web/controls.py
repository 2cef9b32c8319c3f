"""What the handlers get from the page's controls, and what they change on the page."""

from typing import Any, NamedTuple

import gradio as gr

from soundspot.web.comparing import OWN_SOUND

VIDEO, PICTURE = "video", "picture"  # what is given
STILL, MOVING = "still", "moving"  # what is shown
Upload = dict[str, Any] | None  # gradio's FileData
Updates = tuple[Any, ...]


class Inputs(NamedTuple):
    """Values of the page's controls, in the order of the inputs."""

    kind: str
    video: Upload
    picture: Upload
    sound: Upload
    model: str
    compare: str
    own: Upload


# What the handlers change on the page, in the order of their outputs.
EXAMPLE_OUTPUTS = ("kind", "tabs", "video", "picture", "sound", "compare", "looking", "message")
MOVING_OUTPUTS = ("making", "render", "moving", "moving_tab", "stage")
LOOK_OUTPUTS = (
    *("looking", "message", "answer", "maps", "findings", "listened", "timeline", "at"),
    *MOVING_OUTPUTS,
)


def own_is_missing(inputs: Inputs) -> bool:
    """Whether the visitor wants to compare with a sound that has not come yet."""
    return inputs.compare == OWN_SOUND and inputs.own is None


def html(text: str) -> gr.HTML:
    """An HTML element, hidden if it is empty."""
    return gr.HTML(text, visible=bool(text))


def without_video() -> dict[str, Any]:
    """The changes that remove the video with the moving map, and the way to it."""
    hidden = {"making": html(""), "render": gr.Button(visible=False)}
    return {**hidden, "moving": "", "moving_tab": gr.Tab(visible=False)}


def updates(outputs: tuple[str, ...], **changes: Any) -> Updates:
    """The changes in the order of the outputs; the others stay as they are."""
    return tuple(changes.get(name, gr.skip()) for name in outputs)
