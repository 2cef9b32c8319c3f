"""Image files -> upright RGB pixels, by Pillow.

Axes: height width = the picture as displayed.
"""

from pathlib import Path

import numpy as np
from jaxtyping import UInt8
from PIL import ExifTags, Image, ImageOps, UnidentifiedImageError

from soundspot.media.decoding import MediaError

# Pillow's plug-ins raise many kinds of errors for damaged files.
_PILLOW_ERRORS = (OSError, SyntaxError, ValueError, RuntimeError, Image.DecompressionBombError)


def open_image(path: Path) -> Image.Image | None:
    """Open an image, to be closed by the caller; None if the file is not an image."""
    try:
        image = Image.open(path)
    except UnidentifiedImageError:
        return None
    except _PILLOW_ERRORS as error:
        raise _unreadable(path, error) from error
    if image.format == "MPEG":  # Pillow recognises this video but cannot read it
        image.close()
        return None
    return image


def upright_size(path: Path, image: Image.Image) -> tuple[int, int]:
    """(width, height) as displayed."""
    try:
        turned = image.getexif().get(ExifTags.Base.Orientation, 1) >= 5
    except _PILLOW_ERRORS as error:
        raise _unreadable(path, error) from error
    width, height = image.size
    return (height, width) if turned else (width, height)


def decode_image(path: Path, source: Image.Image) -> UInt8[np.ndarray, "height width 3"]:
    """Decode an image of any mode: upright, and on white where it is transparent."""
    try:
        image = ImageOps.exif_transpose(source)
        if image.mode == "F" or (image.mode == "I" and np.max(np.asarray(image)) >= 2**16):
            raise MediaError(f"{path} has 32-bit pixels: save it with 8 or 16 bits first.")
        if image.mode.startswith("I"):  # 16 bits of grey
            image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
        if image.has_transparency_data:
            image = image.convert("RGBA")
            image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
        return np.array(image.convert("RGB"))
    except _PILLOW_ERRORS as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: Exception) -> MediaError:
    return MediaError(f"{path} is an image that cannot be read ({error}).")
