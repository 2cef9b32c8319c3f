"""Image files -> upright RGB pixels, by Pillow."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from io import BytesIO
from pathlib import Path

import numpy as np
from PIL import ExifTags, Image, ImageOps, UnidentifiedImageError

from soundspot.common.errors import MediaError
from soundspot.media.decoding import Picture, explain

# Pillow knows many more, some of which start other programs (EPS runs Ghostscript).
FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF", "PPM", "AVIF")


def _explain_damage(name: object) -> AbstractContextManager[None]:
    # Pillow's plug-ins raise every kind of error for damaged files.
    return explain(f"{name} is an image that cannot be read", (Exception,))


def recognize(file: Path | BytesIO) -> Image.Image:
    """Open an image of one of FORMATS, whatever its name says; every image is opened by this."""
    return Image.open(file, formats=FORMATS)


@contextmanager
def only_listed_formats() -> Iterator[None]:
    """Keep other libraries, too, from opening images of formats that are not in FORMATS."""
    Image.init()
    known = list(Image.ID)  # what is tried if nobody says otherwise
    Image.ID[:] = [name for name in known if name in FORMATS]
    try:
        yield
    finally:
        Image.ID[:] = known


def open_image(path: Path) -> Image.Image | None:
    """Open an image, to be closed by the caller; None if the file is not an image."""
    with _explain_damage(path), suppress(UnidentifiedImageError):
        return recognize(path)
    return None


def upright_size(path: Path, image: Image.Image) -> tuple[int, int]:
    """(width, height) as displayed."""
    with _explain_damage(path):
        turned = image.getexif().get(ExifTags.Base.Orientation, 1) >= 5
    width, height = image.size
    return (height, width) if turned else (width, height)


def decode_image(name: object, source: Image.Image) -> Picture:
    """Decode an image of any mode: upright, and on white where it is transparent.

    Args:
        name: What errors call it, such as its path.
        source: The image.
    """
    with _explain_damage(name):
        image = ImageOps.exif_transpose(source)
        if image.mode == "F" or (image.mode == "I" and np.max(np.asarray(image)) >= 2**16):
            raise MediaError(f"{name} has 32-bit pixels: save it with 8 or 16 bits first")
        if image.mode.startswith("I"):  # 16 bits of gray
            image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
        if image.has_transparency_data:
            image = image.convert("RGBA")
            image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
        return np.array(image.convert("RGB"))
