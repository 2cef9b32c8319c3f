"""The page's texts, looks and HTML snippets."""

from html import escape

from soundspot.inference.result import Localization

TITLE = "soundspot: see what is sounding"
INTRODUCTION = (
    "# soundspot\nDrop a video, or a picture and a sound, and see where the sound comes from. "
    "Nothing leaves this computer."
)
CSS = """
main, .gradio-container { width: 100% !important; }
.gradio-container { max-width: 1180px !important; margin: 0 auto !important; }
#wave svg { width: 100%; height: 64px; display: block; border-radius: 6px;
  background: var(--background-fill-secondary); }
#wave .sound { fill: var(--primary-500); }
#wave #heard { fill: var(--primary-500); fill-opacity: .18; }
#wave #moment { stroke: var(--body-text-color); stroke-width: 2;
  vector-effect: non-scaling-stroke; }
/* Trimming in the browser would load a program from another site. */
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


def note_html(kind: str, sentence: str) -> str:
    """A sentence of kind error, hint or difference; no note without a sentence."""
    role = "alert" if kind == "error" else "status"
    note = f'<div class="note {kind}" role="{role}">{escape(_capitalised(sentence))}</div>'
    return note if sentence else ""


def plain_error(sentence: str) -> str:
    """A sentence for programs; escaped, because gradio's own page would take it for HTML."""
    return escape(_capitalised(sentence), quote=False)


def _capitalised(sentence: str) -> str:
    """With a capital, unless it starts with a file name, and a full stop."""
    first = sentence.split(" ", 1)[0]
    start = sentence[:1].upper() if first.isalpha() else sentence[:1]
    end = "" if sentence.endswith((".", "!", "?")) else "."
    return start + sentence[1:] + end


def result_html(name: str, result: Localization) -> str:
    """What is heard, and whether its source is in the picture."""
    rows = "".join(
        f"<li><span>{escape(label)}</span>"
        f'<span class="bar"><i style="width:{100 * min(max(score, 0.0), 1.0):.0f}%"></i></span>'
        f'<span class="share">{score:.2f}</span></li>'
        for label, score in result.labels
    )
    heard = f"<ul>{rows}</ul>" if rows else "<p>This model cannot name sounds.</p>"
    title, verdict = (text[:1].upper() + text[1:] for text in (name, result.verdict))
    return (
        f'<div class="finding" role="status"><h3>{escape(title)}</h3>'
        f"<p>{escape(verdict)}.</p>{heard}"
        f"<p><small>{escape(result.model)}</small></p></div>"
    )
