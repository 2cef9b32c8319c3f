"""Build the page into soundspot/page/: our files, onnxruntime-web and the examples.

    make page

The runtime comes from npm, pinned with its hash in package-lock.json, and is not committed.
"""

import shutil
import subprocess
import sys
from pathlib import Path

import av
from build_example import make_room, make_street

from soundspot.common.errors import SoundspotError
from soundspot.common.files import write_text
from soundspot.encoders.weights import weights_dir
from soundspot.inference.static_page import BUILT, POLICY
from soundspot.media.clips import SAMPLE_RATE

HERE = Path(__file__).parent
RUNTIME = HERE / "node_modules" / "onnxruntime-web"
# For WASM, and for WebGPU where the browser has it.
PARTS = (
    *("ort.wasm.bundle.min.mjs", "ort-wasm-simd-threaded.wasm", "ort-wasm-simd-threaded.mjs"),
    *("ort.webgpu.bundle.min.mjs", "ort-wasm-simd-threaded.asyncify.wasm"),
    "ort-wasm-simd-threaded.asyncify.mjs",
)


def build() -> None:
    """Fetch the runtime, then copy everything."""
    if shutil.which("npm") is None:
        raise SoundspotError("building the page needs npm: install Node.js 20 or newer")
    subprocess.run(["npm", "ci", "--ignore-scripts", "--silent"], cwd=HERE, check=True)
    shutil.rmtree(BUILT, ignore_errors=True)
    (BUILT / "ort").mkdir(parents=True)
    for part in PARTS:
        shutil.copyfile(RUNTIME / "dist" / part, BUILT / "ort" / part)
    write_small(BUILT / "street.mp4", *make_street())
    write_small(BUILT / "room.mp4", *make_room())
    # The exported model comes with its answers to the examples.
    shutil.rmtree(weights_dir().parent / "page", ignore_errors=True)
    copy_sources()


def write_small(path: Path, frames, sound, fps: int) -> None:
    """Write a video for download, smaller than `write_video` would."""
    with av.open(str(path), "w") as file:
        film = file.add_stream("libx264", fps, options={"crf": "28", "preset": "slow"})
        film.height, film.width = frames[0].shape[:2]
        film.pix_fmt = "yuv420p"
        track = file.add_stream("aac", SAMPLE_RATE, layout="mono")
        track.bit_rate = 32_000
        for frame in frames:
            file.mux(film.encode(av.VideoFrame.from_ndarray(frame)))
        file.mux(film.encode())
        heard = av.AudioFrame.from_ndarray(sound[None], "fltp", "mono")
        heard.sample_rate = SAMPLE_RATE
        file.mux(track.encode(heard))
        file.mux(track.encode())


def copy_sources() -> None:
    """Our own files, with the policy that the server sends for hosts that send none."""
    policy = "; ".join(rule for rule in POLICY.split("; ") if "frame-ancestors" not in rule)
    for path in (HERE / "src").iterdir():
        text = path.read_text("utf-8").replace("__POLICY__", policy)
        place = BUILT / path.name
        if not place.exists() or place.read_text("utf-8") != text:
            write_text(place, text)


if __name__ == "__main__":
    try:
        build()
    except (SoundspotError, subprocess.CalledProcessError) as error:
        sys.exit(f"soundspot: {error}")
