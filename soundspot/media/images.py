"""Image files -> upright RGB pixels, by Pillow."""

from contextlib import AbstractContextManager, suppress
from io import BytesIO
from pathlib import Path

import numpy as np
from PIL import ExifTags, Image, ImageOps, UnidentifiedImageError

from soundspot.common.errors import MediaError
from soundspot.media.decoding import MOST_PIXELS, Picture, check_size, explain

# Pillow knows many more, some of which start other programs (EPS runs Ghostscript).
FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF", "PPM", "AVIF")


def _explain_damage(name: object) -> AbstractContextManager[None]:
    # Pillow's plug-ins raise every kind of error for damaged files.
    return explain(f"{name} is an image that cannot be read", (Exception,))


def recognize(file: Path | BytesIO) -> Image.Image:
    """Open an image of one of FORMATS, whatever its name says; every image is opened by this."""
    return Image.open(file, formats=FORMATS)


def open_image(path: Path) -> Image.Image | None:
    """Open an image, to be closed by the caller; None if the file is not an image."""
    with _explain_damage(path), suppress(UnidentifiedImageError):
        image = recognize(path)
        _limit_size(path, image)
        return image
    return None


def _limit_size(path: Path, image: Image.Image) -> None:
    """Let a large JPEG be decoded at a part of its size; refuse other formats."""
    width, height = image.size
    if width * height <= MOST_PIXELS:
        return
    for part in (2, 4, 8):
        if width * height <= MOST_PIXELS * part**2:
            image.draft(None, (width // part, height // part))
            break
    check_size(path, *image.size)


def upright_size(path: Path, image: Image.Image) -> tuple[int, int]:
    """(width, height) as displayed."""
    with _explain_damage(path):
        turned = image.getexif().get(ExifTags.Base.Orientation, 1) >= 5
    width, height = image.size
    return (height, width) if turned else (width, height)


def decode_image(name: object, source: Image.Image) -> Picture:
    """Decode an image of any mode: upright, and on white where it is transparent."""
    with _explain_damage(name):
        image = ImageOps.exif_transpose(source)
        if image.mode == "F" or (image.mode == "I" and np.max(np.asarray(image)) >= 2**16):
            raise MediaError(f"{name} has 32-bit pixels: save it with 8 or 16 bits first")
        if image.mode.startswith("I"):  # 16 bits of gray
            image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
        if image.has_transparency_data:
            image = image.convert("RGBA")
            image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
        return np.array(image if image.mode == "RGB" else image.convert("RGB"))
