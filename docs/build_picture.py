"""Draw the picture in README: the page's example, and what the default model makes of it.

    PYTHONPATH=page python docs/build_picture.py

No photograph or recording of others may be in the repository, so pictures and sound are made by
page/build_example.py; the model was trained on photographs and recordings only.
"""

import tempfile
from pathlib import Path

from build_example import make_street

import soundspot
from soundspot.media.clips import write_video

OUT = Path(__file__).parent / "figures" / "at-work.jpg"


def main():
    """Localize the bird's song."""
    with tempfile.TemporaryDirectory() as folder:
        video = Path(folder) / "example.mp4"
        write_video(video, *make_street())
        result = soundspot.localize(video, at=1.5)
    print(result.describe())  # noqa: T201
    result.save(OUT)


if __name__ == "__main__":
    main()
