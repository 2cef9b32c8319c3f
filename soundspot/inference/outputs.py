"""The names of files to write, checked before any work is done for them.

Does not import torch, so that a wrong name is refused at once.
"""

from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path

from soundspot.common.errors import SoundspotError, install_advice

TIMELINES = (".srt", ".vtt", ".csv", ".json")
PICTURE_FORMATS = {".png": "PNG", ".jpg": "JPEG", ".jpeg": "JPEG", ".webp": "WEBP"}


def check_picture(path: Path, others: Iterable[Path] = ()) -> None:
    """`check_file` for a picture."""
    check_file(path, others, "picture", PICTURE_FORMATS)


def check_onnx(path: Path) -> None:
    """Refuse a file that cannot be written, or a missing package, before any work is done."""
    check_file(path, kind="ONNX file", endings=[".onnx"])
    for name in ("onnx", "onnxscript", "onnxruntime"):
        if find_spec(name) is None:
            raise SoundspotError(f"no {name}: {install_advice('export')}", "not-installed")


def check_file(
    path: Path, others: Iterable[Path] = (), kind: str = "file", endings: Iterable[str] = ()
) -> None:
    """Refuse a path that cannot be written, before any work is done for it.

    An existing file will be replaced, but none of the `others` of the job.
    """
    if endings and path.suffix.lower() not in endings:
        choices = ", ".join(endings)
        raise SoundspotError(f"the name of the {kind} must end in {choices}, got {path}")
    if path.is_dir():
        raise SoundspotError(f"{path} is a folder: give the name of a file in it")
    if not path.parent.is_dir():
        message = f"there is no folder {path.parent} to write {path.name} to"
        raise SoundspotError(message, "missing")
    for file in others:
        if path.resolve() == file.resolve():
            raise SoundspotError(f"{path} is the same file as {file}, which would be overwritten")
