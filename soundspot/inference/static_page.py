"""The page that runs in the visitor's browser: its files, and a small server for them.

The page's own files are built by `make page` into soundspot/page/, which the wheel carries. The
model is exported once into the cache; what it knows is written beside it, so that the page says the
same words as the command line. Nothing here imports torch unless the model must be exported.
"""

import hashlib
import json
import logging
import shutil
from collections.abc import Mapping
from functools import lru_cache
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from soundspot import __version__
from soundspot.common.errors import SoundspotError
from soundspot.common.files import write_text
from soundspot.encoders.weights import weights_dir
from soundspot.inference.outputs import check_onnx

MODEL = "soundspot-fast"
PACKAGE = Path(__file__).parents[1]
BUILT = PACKAGE / "page"
KINDS = SimpleHTTPRequestHandler.extensions_map | {
    ".mjs": "text/javascript",
    ".webmanifest": "application/manifest+json",
    ".wasm": "application/wasm",
}
POLICY = (
    "default-src 'none'; script-src 'self' 'wasm-unsafe-eval' blob:; worker-src 'self' blob:; "
    "style-src 'self' 'unsafe-inline'; img-src 'self' blob: data:; media-src 'self' blob:; "
    "connect-src 'self' blob:; manifest-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
HEADERS = {
    "Cross-Origin-Opener-Policy": "same-origin",  # this and the next: threads for WASM
    "Cross-Origin-Embedder-Policy": "require-corp",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Content-Security-Policy": POLICY,
    "Permissions-Policy": "camera=(self), microphone=(self)",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-cache",
}
SMALL = 2**20  # bytes
STEP = 0.25  # s between the maps of a video, as in answer.js

log = logging.getLogger(__name__)

Files = Mapping[str, Path]  # by their paths in the address


def page_files() -> Files:
    """All files of the page; the model is exported first if the cache does not hold it."""
    if not (BUILT / "index.html").is_file():
        raise SoundspotError("the page is not built: run `make page`", "not-installed")
    found = [path for path in sorted(BUILT.rglob("*")) if path.is_file()]
    files = {path.relative_to(BUILT).as_posix(): path for path in found}
    model = _exported()
    files |= {"model.onnx": model, "model.json": model.with_suffix(".json")}
    return files | {"sw.js": _worker(files)}


def write_page(out: Path) -> int:
    """Write the page as a folder for any static host, and return how many bytes it has."""
    is_page = all((out / name).exists() for name in ("index.html", "sw.js"))
    if out.exists() and (not out.is_dir() or any(out.iterdir())) and not is_page:
        raise SoundspotError(f"{out} exists and is not a page: name a new folder", "exists")
    files = page_files()
    for name, source in files.items():
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, out / name)
    return sum(path.stat().st_size for path in files.values())


def open_server(host: str, port: int) -> ThreadingHTTPServer:
    """A server of the page, which listens but does not answer yet."""
    files = page_files()
    try:
        return ThreadingHTTPServer((host, port), _handler(files))
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise SoundspotError(
            f"cannot listen on {host}, port {port} ({reason}): choose another --host or --port",
            "busy",
        ) from error


@lru_cache
def code_digest() -> str:
    """Changes with everything that decides what the exported model gives."""
    sha = hashlib.sha256(f"{__version__} {MODEL}".encode())
    learned = MODEL.partition("+")[0]
    files = [sorted((PACKAGE / name).rglob("*")) for name in ("encoders", "model", "inference")]
    code = [path for folder in files for path in folder if path.suffix in (".py", ".yaml")]
    for path in [*code, *sorted((PACKAGE / "pretrained").glob(f"{learned}.*"))]:
        sha.update(path.read_bytes())
    return sha.hexdigest()[:16]


def _exported() -> Path:
    """The exported model in the cache, its facts beside it."""
    place = weights_dir().parent / "page"
    path = place / f"{code_digest()}.onnx"
    facts = path.with_suffix(".json")
    if path.is_file() and facts.is_file():
        return path
    place.mkdir(parents=True, exist_ok=True)
    check_onnx(path)
    from soundspot.inference.models import load
    from soundspot.inference.onnx_export import answer_video, write_answer_graph

    log.warning("preparing the model for the page, once")
    model = load(MODEL, "cpu")
    write_answer_graph(model, path, half=True)
    for old in place.glob("[!.]*"):
        if old.stem != path.stem:
            old.unlink(missing_ok=True)
    about = {"name": model.name, "digest": path.stem, "bytes": path.stat().st_size}
    about |= {"names": model.class_names, "words": page_words()}
    # The examples are answered beforehand, so that they play before the model has been loaded.
    videos = sorted(BUILT.glob("*.mp4"))
    about["examples"] = {video.name: answer_video(model, video, STEP) for video in videos}
    write_text(facts, json.dumps(about))
    return path


def page_words() -> dict[str, Any]:
    """What the page needs to name a sound and to say the verdict as `words.caption` does.

    Every sentence is made by `words.caption` itself, with `{name}` in place of the sound's name.
    """
    from soundspot.inference import result as words  # which imports torch

    some, voice = "Thing", min(words.VOICES)
    visible = [words.caption([(some, 1.0)], "visible", peak, 1.0) for peak in (words.SURE, 1.0)]
    absent = [words.caption([(n, 1.0)], "not visible", 0.0, 1.0) for n in (some, voice)]
    unknown = words.caption([(some, 1.0)], "unknown", 0.0, 1.0)
    sentences = {
        "sure": visible[0].replace(some, "{name}"),
        "visible": visible[1].replace(some, "{name}"),
        "absent": absent[0].replace(some, "{name}"),
        "absentVoice": absent[1].replace(voice, "{name}"),
        "unknown": unknown.replace(some, "{name}"),
        "perhaps": words.caption([(some, 0.2)], "visible", 1.0, 1.0).replace(some, "{name}"),
        "visibleUnnamed": words.caption([], "visible", 1.0, 1.0),
        "unknownUnnamed": words.caption([], "unknown", 0.0, 1.0),
    }
    return {
        "sentences": sentences,
        "broad": sorted(words.BROAD),
        "voices": sorted(words.VOICES),
        "unnamed": words.UNNAMED,
        "silence": words.SILENCE,
        "worthSaying": words.WORTH_SAYING,
        "nearly": words.NEARLY,
        "sure": words.SURE,
        "sureName": words.SURE_NAME,
    }


def _worker(files: Files) -> Path:
    """The service worker, told which files to keep, under a version that changes with them."""
    sha, place = hashlib.sha256(), weights_dir().parent / "page"
    for name, path in sorted(files.items()):
        sha.update(f"{name} {path.stat().st_size} ".encode())
        if path.stat().st_size < SMALL:  # the model's name is a digest, the runtime has a version
            sha.update(path.read_bytes())
    sha.update(files["model.onnx"].stem.encode())
    version = sha.hexdigest()[:16]
    known = json.dumps({"version": version, "files": sorted({*files} - {"sw.js"})})
    text = (BUILT / "sw.js").read_text("utf-8").replace("__KNOWN__", known)
    path = place / f"{files['model.onnx'].stem}.sw.js"
    write_text(path, text)
    return path


def _handler(files: Files) -> type[SimpleHTTPRequestHandler]:
    """Answers with these files, and with nothing else."""

    class Handler(SimpleHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        server_version, sys_version = "soundspot", ""
        extensions_map = KINDS

        def translate_path(self, path: str) -> str:
            # No other file has an empty name.
            return str(files.get(path.partition("?")[0].removeprefix("/") or "index.html", ""))

        def end_headers(self) -> None:
            for name, value in HEADERS.items():
                self.send_header(name, value)
            super().end_headers()

        def handle(self) -> None:
            try:
                super().handle()
            except ConnectionError:  # the visitor went away
                self.close_connection = True

        def log_message(self, format: str, *values: object) -> None:  # nothing about visitors
            pass

    return Handler
