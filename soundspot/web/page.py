"""What stands on the page, as HTML: the waveform, the labels, the sentences, the looks."""

from collections.abc import Sequence
from html import escape

import numpy as np
from jaxtyping import Float32

from soundspot.inference.result import Localization
from soundspot.media.clips import SOUND_SECONDS

TITLE = "soundspot: see what sounds"
INTRODUCTION = (
    "# soundspot\nDrop a video, or a picture and a sound, and see where the sound comes from. "
    "Nothing leaves this computer."
)
WAVE_HEIGHT = 64
# Moves the frame around what is heard with the slider, without asking the server.
FOLLOW = """
(at) => {
  const wave = document.querySelector("#wave svg");
  if (!wave) return;
  const seconds = Number(wave.dataset.seconds), heard = Number(wave.dataset.heard);
  const start = Math.min(Math.max(at - heard / 2, 0), seconds - heard);
  wave.querySelector("#heard").setAttribute("x", 1000 * start / seconds);
  const x = 1000 * at / seconds;
  wave.querySelector("#moment").setAttribute("d", `M${x} 0V${wave.viewBox.baseVal.height}`);
}
"""
CSS = """
main, .gradio-container { width: 100% !important; }
.gradio-container { max-width: 1180px !important; margin: 0 auto !important; }
#wave svg { width: 100%; height: 64px; display: block; border-radius: 6px;
  background: var(--background-fill-secondary); }
#wave .sound { fill: var(--primary-500); }
#wave #heard { fill: var(--primary-500); fill-opacity: .18; }
#wave #moment { stroke: var(--body-text-color); stroke-width: 2;
  vector-effect: non-scaling-stroke; }
/* Trimming in the browser would load a program from elsewhere. */
[aria-label="Trim video to selection"] { display: none !important; }
.note { padding: 10px 14px; border-radius: 8px; border-left: 4px solid; line-height: 1.45;
  background: var(--background-fill-secondary); overflow-wrap: anywhere; }
.note.error { border-color: #c0262d; }
.note.hint { border-color: var(--primary-500); }
.note.difference { border-color: #0a7d4b; font-size: 1.05em; }
.finding h3 { margin: 0 0 4px; overflow-wrap: anywhere; }
.finding p { margin: 0 0 8px; }
.finding li { display: grid; grid-template-columns: minmax(0, 1fr) 84px 40px; gap: 8px;
  align-items: center; list-style: none; }
.finding ul { padding: 0; margin: 0; }
.finding li span:first-child { overflow-wrap: anywhere; }
.finding .bar { height: 6px; border-radius: 3px; background: var(--border-color-primary); }
.finding .bar i { display: block; height: 6px; border-radius: 3px; background: var(--primary-500); }
.finding .share { text-align: right; font-variant-numeric: tabular-nums; }
button:focus-visible, input:focus-visible, [tabindex]:focus-visible, select:focus-visible {
  outline: 3px solid var(--primary-500) !important; outline-offset: 2px; }
@media (max-width: 640px) { .gradio-container { padding: 8px !important; } }
"""


def error(sentence: str) -> str:
    """A sentence that says what is wrong."""
    return f'<div class="note error" role="alert">{escape(_whole(sentence))}</div>'


def hint(sentence: str) -> str:
    """A sentence that says what to do."""
    return f'<div class="note hint" role="status">{escape(_whole(sentence))}</div>'


def difference(sentence: str) -> str:
    """The sentence that compares two maps; nothing if there is none."""
    return f'<div class="note difference" role="status">{escape(sentence)}</div>' * bool(sentence)


def plain(sentence: str) -> str:
    """A sentence for programs; gradio's own page would take it for HTML."""
    return escape(_whole(sentence), quote=False)


def _whole(sentence: str) -> str:
    first = sentence.split(" ", 1)[0]
    start = sentence[:1].upper() if first.isalpha() else sentence[:1]  # no name of a file
    end = "" if sentence.endswith((".", "!", "?")) else "."
    return start + sentence[1:] + end


def finding(name: str, found: Localization) -> str:
    """What is heard, and whether its source is in the picture."""
    rows = "".join(
        f"<li><span>{escape(label)}</span>"
        f'<span class="bar"><i style="width:{100 * min(max(score, 0.0), 1.0):.0f}%"></i></span>'
        f'<span class="share">{score:.2f}</span></li>'
        for label, score in found.labels
    )
    verdict = found.verdict[:1].upper() + found.verdict[1:]
    heard = f"<ul>{rows}</ul>" if rows else "<p>This model cannot name sounds.</p>"
    title = name[:1].upper() + name[1:]
    return (
        f'<div class="finding" role="status"><h3>{escape(title)}</h3>'
        f"<p>{escape(verdict)}.</p>{heard}"
        f"<p><small>{escape(found.model)}</small></p></div>"
    )


def wave(columns: Float32[np.ndarray, "columns 2"], seconds: float, at: float) -> str:
    """The waveform, as high as there is room, with what is heard around a moment."""
    peak = max(float(np.abs(columns).max()), 1e-6)
    width = 1000 / len(columns)
    path = "".join(
        _bar(k * width, width, low / peak, high / peak) for k, (low, high) in _rows(columns)
    )
    heard = min(SOUND_SECONDS, seconds)
    start = min(max(at - heard / 2, 0.0), seconds - heard)
    moment = 1000 * at / seconds
    return (
        f'<svg viewBox="0 0 1000 {WAVE_HEIGHT}" preserveAspectRatio="none" role="img" '
        f'aria-label="Waveform of {seconds:.1f} seconds" '
        f'data-seconds="{seconds}" data-heard="{heard}"><path class="sound" d="{path}"/>'
        f'<rect id="heard" x="{1000 * start / seconds:.1f}" y="0" '
        f'width="{1000 * heard / seconds:.1f}" height="{WAVE_HEIGHT}"/>'
        f'<path id="moment" d="M{moment:.1f} 0V{WAVE_HEIGHT}"/></svg>'
    )


def _rows(columns: Float32[np.ndarray, "columns 2"]) -> Sequence[tuple[int, list[float]]]:
    return list(enumerate(columns.tolist()))


def _bar(x: float, width: float, low: float, high: float) -> str:
    top = (1 - high) / 2 * WAVE_HEIGHT
    height = max((high - low) / 2 * WAVE_HEIGHT, 1.0)
    return f"M{x:.1f} {top:.1f}h{width:.1f}v{height:.1f}h-{width:.1f}z"
