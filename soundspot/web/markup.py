"""The page's texts and HTML snippets; what visitors wrote is escaped here."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from urllib.parse import quote

from soundspot.inference.heat_layer import ANCHORS
from soundspot.inference.result import UNNAMED, Localization, worth_saying
from soundspot.model.routing import is_unknown
from soundspot.web.comparing import READY_SOUNDS, THIS_SOUND, Answer
from soundspot.web.examples import EXAMPLES, thumbnail
from soundspot.web.following import Step

TITLE = "soundspot: see what is sounding"
HEADER = """
<header class="top"><h1>soundspot</h1>
<p>Give it a video, or a picture and a sound, and see where the sound comes from.
<span id="where">Nothing leaves this computer.</span></p></header>
"""
HINT = "Drop, choose or record a video, or try an example"
PROMISE = "Here you will see where the sound comes from: bright where the picture fits the sound."
STRENGTH = """
<label class="strength">Strength of the map
<input type="range" min="0" max="100" value="100"></label>
"""
# The client that docs/web.md shows and a test runs.
CLIENT = """from gradio_client import Client, handle_file

client = Client("http://127.0.0.1:7860", verbose=False)
numbers, picture = client.predict(
    file=handle_file("clip.mp4"), compare="a siren", api_name="/localize"
)
for found in numbers["maps"]:
    print(found["name"], found["at"], found["score"], found["box"])
print(picture)  # where the picture was downloaded to
client.close()
"""
HELP = f"""
<footer class="help"><details><summary>How to read a map</summary>
<p>The brighter a place, the more it looks like what is heard; the white line is half of the peak,
the green box surrounds the largest part within it. The peak is at most 1. No box is drawn if the
source is probably not in the picture. The model sees one frame and hears three seconds, the shaded
part of the timeline.</p></details>
<details><summary>Use it from a program</summary>
<p>This page can be called by programs (<a href="gradio_api/info">the calls as JSON</a>),
for example with <code>gradio_client</code>:</p>
<pre tabindex="0"><code>{escape(CLIENT)}</code></pre>
</details>
<details><summary>Documentation</summary><p>The documentation comes with the source code:
docs/web.md explains this page; start with docs/index.md. In a clone, <code>make docs</code>
builds it as a site; <code>soundspot --help</code> lists the commands.</p></details></footer>
"""


def asset(name: str) -> str:
    """The text of a file beside this one."""
    return files("soundspot.web").joinpath(name).read_text("utf-8")


def address(path: object) -> str:
    """Where the browser gets a file of its session, relative to the page."""
    return "gradio_api/file=" + quote(str(path))


def note_html(kind: str, sentence: str) -> str:
    """A sentence of kind error, hint or difference; no note without a sentence."""
    role = "alert" if kind == "error" else "status"
    note = f'<div class="note {kind}" role="{role}">{escape(_capitalised(sentence))}</div>'
    return note if sentence else ""


def empty_html(sentence: str) -> str:
    """What stands in the place of the answer as long as there is none: what to do for it."""
    return (
        f'<div class="note hint empty" role="status"><strong>{escape(_capitalised(sentence))}'
        f"</strong><span>{PROMISE}</span></div>"
    )


def plain_error(sentence: str) -> str:
    """A sentence for programs; escaped, because gradio's own page would take it for HTML."""
    return escape(_capitalised(sentence), quote=False)


def _capitalised(sentence: str) -> str:
    """With a capital, unless it starts with a file name, and a full stop."""
    first = sentence.split(" ", 1)[0]
    start = sentence[:1].upper() if first.isalpha() else sentence[:1]
    end = "" if sentence.endswith((".", "!", "?")) else "."
    return start + sentence[1:] + end


def examples_html() -> str:
    """A button for every example."""
    buttons = ""
    for key, example in EXAMPLES.items():
        picture = thumbnail(key)
        image = f'<img src="{picture}" alt="">' if picture else ""
        buttons += (
            f'<button type="button" data-example="{key}">{image}<span>{example.title}</span>'
            "</button>"
        )
    return f'<div class="examples" role="group" aria-label="Examples">{buttons}</div>'


def progress_html(step: Step) -> str:
    """How far the work is, and a button that stops it."""
    left = "" if step.left is None else f", about {max(round(step.left), 1)} s left"
    return (
        f'<div class="working"><span class="words">{escape(step.words)}: '
        f"{100 * step.share:.0f}&nbsp;%{left}</span>"
        f'<progress max="1" value="{step.share:.3f}" aria-label="{escape(step.words)}"></progress>'
        '<button type="button" class="stop">Stop</button></div>'
    )


@dataclass(frozen=True)
class ShownMap:
    """A map as the page shows it: addresses of the frame and the map, and their size."""

    frame: str
    picture: str
    file: str  # name of the download
    size: tuple[int, int]  # width, height


def maps_html(answer: Answer, shown: Sequence[ShownMap]) -> str:
    """The maps side by side, under one color scale."""
    two = len(shown) > 1
    figures = "".join(
        _figure_html(name if two else "", result, one)
        for name, result, one in zip(answer.names, answer.results, shown, strict=True)
    )
    return (
        f"{note_html('difference', answer.difference)}"
        f'<div class="maps{" two" if two else ""}">{figures}</div>{_scale_html(answer)}'
    )


def _figure_html(name: str, result: Localization, shown: ShownMap) -> str:
    width, height = shown.size
    size = f'width="{width}" height="{height}"'
    name = _capitalised_words(name)
    title = f"<h2>{escape(name)}</h2>" if name else ""
    kind = {True: "yes", False: "no", None: "unknown"}[result.visible]
    words, _, numbers = f"{result.verdict[:1].upper()}{result.verdict[1:]}.".partition(" (")
    numbers = f" ({numbers}" if numbers else ""
    if result.route is not None and not is_unknown(result.route):
        numbers += f" Located {result.route.describe()}."
    return (
        f"<figure>{title}"
        f'<a class="stack" href="{escape(shown.picture)}" target="_blank" rel="noopener" '
        f'style="--ratio:{width / height:.4f}">'
        f'<img class="frame" src="{escape(shown.frame)}" alt="" {size}>'
        f'<img class="map" src="{escape(shown.picture)}" alt="{escape(describe(result))}" {size}>'
        f'</a><figcaption class="verdict {kind}"><strong>{escape(words)}</strong>'
        f"{escape(numbers)}</figcaption></figure>"
    )


def _capitalised_words(name: str) -> str:
    """A sound of ours with a capital; names of files and models stay as they are."""
    ours = name in (THIS_SOUND, *READY_SOUNDS)
    return name[:1].upper() + name[1:] if ours else name


def findings_html(answer: Answer, files: dict[str, str]) -> str:
    """What is heard, and the files to download: their addresses by name."""
    two = len(answer.results) > 1 and answer.same_scale
    named = list(zip(answer.names, answer.results, strict=True))
    if not two:  # two models hear the same sound; perhaps only one can name it
        named = [("", next((r for r in answer.results if r.labels), answer.results[0]))]
    heard = "".join(heard_html(name, result) for name, result in named)
    return f'<div class="findings{" two" if two else ""}">{heard}</div>{downloads_html(files)}'


def heard_html(name: str, result: Localization) -> str:
    """The names of a sound that are worth saying, with their scores."""
    rows = "".join(
        f"<li><span>{escape(label)}</span>"
        f'<span class="bar"><i style="width:{100 * min(max(score, 0.0), 1.0):.0f}%"></i></span>'
        f'<span class="share">{score:.2f}</span></li>'
        for label, score in worth_saying(result.labels)
    )
    heard = f"<ul>{rows}</ul>" if rows else f"<p>{UNNAMED}</p>"
    if not result.labels:
        heard = "<p>this model cannot name sounds</p>"
    title = f"Heard in {name}" if name else "Heard"
    return f"<div><h2>{escape(title)}</h2>{heard}</div>"


def downloads_html(files: dict[str, str]) -> str:
    """Links to files: their addresses by name."""
    links = "".join(
        f'<a href="{escape(place)}" download="{escape(file)}">{escape(file)}</a>'
        for file, place in files.items()
    )
    return f'<p class="downloads"><span>Download</span>{links}</p>'


def describe(result: Localization) -> str:
    """A map in words, for those who cannot see it."""
    moment = "" if result.at is None else f" at {result.at:.1f} s"
    heard = ", ".join(name for name, _ in worth_saying(result.labels)) or UNNAMED
    place = "The map is flat"
    if result.box is not None:
        (height, width), (x1, y1, x2, y2) = result.map.shape, result.box
        across = ("left", "center", "right")[min(int(1.5 * (x1 + x2) / width), 2)]
        down = ("top", "middle", "bottom")[min(int(1.5 * (y1 + y2) / height), 2)]
        place = f"It is hottest at the {down} {across}"
    return f"The map over the frame{moment}. Heard: {heard}. {place}; {result.verdict}."


def _scale_html(answer: Answer) -> str:
    """The colors of all maps, from cold to hot."""
    stops = ", ".join(f"rgb{color}" for color in ANCHORS)
    low, high = answer.scale or (
        float(answer.results[0].map.min()),
        float(answer.results[0].map.max()),
    )
    ends = (f"{low:.2f}", f"{high:.2f}")
    words = "Likeness of picture and sound"
    if not answer.same_scale:
        ends, words = ("lowest", "highest"), "Likeness, scaled for each model"
    return (
        f'<div class="scale"><span>{words}</span><span>{ends[0]}</span>'
        f'<i style="background:linear-gradient(to right, {stops})"></i><span>{ends[1]}</span></div>'
    )


def moving_html(video: str, file: str) -> str:
    """The video with the moving map, which plays at once."""
    return (
        f'<video controls autoplay playsinline src="{escape(video)}" '
        f'aria-label="The video with the moving map"></video>{downloads_html({file: video})}'
    )


def knows_html(sentence: str) -> str:
    """What the chosen model knows."""
    return f'<p class="knows">{escape(sentence)}</p>' if sentence else ""
