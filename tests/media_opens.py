"""A spy on the files that a job opens for decoding."""

from pathlib import Path

import av
import pytest
from PIL import Image

MOST = 3  # openings of all files of a job together


def count_opens(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files that were opened for decoding, once for each opening."""
    names: list[str] = []
    open_media, open_image = av.open, Image.open

    def spy_media(file, mode=None, *args, **kwargs):
        if mode != "w":
            names.append(Path(file).name)
        return open_media(file, mode, *args, **kwargs)

    def spy_image(file, *args, **kwargs):
        image = open_image(file, *args, **kwargs)  # raises if it is not an image
        names.append(Path(file).name)
        return image

    monkeypatch.setattr(av, "open", spy_media)
    monkeypatch.setattr(Image, "open", spy_image)
    return names
