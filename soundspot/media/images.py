"""Image files -> upright RGB pixels, by Pillow."""

from contextlib import AbstractContextManager, suppress
from pathlib import Path

import numpy as np
from PIL import ExifTags, Image, ImageOps, UnidentifiedImageError

from soundspot.media.decoding import MediaError, Picture, explain

# Pillow's plug-ins raise many kinds of errors for damaged files.
_PILLOW_ERRORS = (OSError, SyntaxError, ValueError, RuntimeError, Image.DecompressionBombError)


def _explain_damage(path: Path) -> AbstractContextManager[None]:
    return explain(f"{path} is an image that cannot be read", _PILLOW_ERRORS)


def open_image(path: Path) -> Image.Image | None:
    """Open an image, to be closed by the caller; None if the file is not an image."""
    with _explain_damage(path), suppress(UnidentifiedImageError):
        image = Image.open(path)
        if image.format != "MPEG":  # Pillow recognises this video but cannot read it
            return image
        image.close()
    return None


def upright_size(path: Path, image: Image.Image) -> tuple[int, int]:
    """(width, height) as displayed."""
    with _explain_damage(path):
        turned = image.getexif().get(ExifTags.Base.Orientation, 1) >= 5
    width, height = image.size
    return (height, width) if turned else (width, height)


def decode_image(path: Path, source: Image.Image) -> Picture:
    """Decode an image of any mode: upright, and on white where it is transparent."""
    with _explain_damage(path):
        image = ImageOps.exif_transpose(source)
        if image.mode == "F" or (image.mode == "I" and np.max(np.asarray(image)) >= 2**16):
            raise MediaError(f"{path} has 32-bit pixels: save it with 8 or 16 bits first")
        if image.mode.startswith("I"):  # 16 bits of grey
            image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
        if image.has_transparency_data:
            image = image.convert("RGBA")
            image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
        return np.array(image.convert("RGB"))
