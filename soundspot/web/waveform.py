"""The waveform above the slider: the sound's lowest and highest samples, drawn as SVG."""

import numpy as np
from jaxtyping import Float32

from soundspot.media import clips as media
from soundspot.media.clips import SAMPLE_RATE, SOUND_SECONDS, Media

COLUMNS = 240
HEIGHT = 64
# Moves the marks with the slider, without asking the server.
FOLLOW_SLIDER = """
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

Columns = Float32[np.ndarray, "columns 2"]


def read_columns(sound: Media, seconds: float) -> Columns:
    """The lowest and highest sample in every column of a sound, in constant memory."""
    step = seconds / COLUMNS
    middles = [(k + 0.5) * step for k in range(COLUMNS)]
    columns = np.zeros((COLUMNS, 2), np.float32)
    length = max(step, 1 / SAMPLE_RATE)
    for k, windows in enumerate(media.iter_windows(sound, middles, (length,))):
        if windows is not None:
            columns[k] = windows[0].min(), windows[0].max()
    return columns


def waveform_svg(columns: Columns, seconds: float, at: float) -> str:
    """The waveform, scaled to the full height, with marks at a moment and what is heard there."""
    peak = max(float(np.abs(columns).max()), 1e-6)
    width = 1000 / len(columns)
    path = ""
    for k, (low, high) in enumerate((columns / peak).tolist()):
        top, height = (1 - high) / 2 * HEIGHT, max((high - low) / 2 * HEIGHT, 1.0)
        path += f"M{k * width:.1f} {top:.1f}h{width:.1f}v{height:.1f}h-{width:.1f}z"
    heard = min(SOUND_SECONDS, seconds)
    start = min(max(at - heard / 2, 0.0), seconds - heard)
    return (
        f'<svg viewBox="0 0 1000 {HEIGHT}" preserveAspectRatio="none" role="img" '
        f'aria-label="Waveform of {seconds:.1f} seconds" '
        f'data-seconds="{seconds}" data-heard="{heard}"><path class="sound" d="{path}"/>'
        f'<rect id="heard" x="{1000 * start / seconds:.1f}" y="0" '
        f'width="{1000 * heard / seconds:.1f}" height="{HEIGHT}"/>'
        f'<path id="moment" d="M{1000 * at / seconds:.1f} 0V{HEIGHT}"/></svg>'
    )
