"""films.py: small pictures around a moment, and their PNG."""

from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from soundspot.common.errors import MediaError
from soundspot.media.clips import write_jpeg, write_video
from soundspot.media.films import decode_film, film_bytes, read_films, walk_films


@pytest.fixture(scope="module")
def video(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six seconds; second k has a brightness of 40 k."""
    path = tmp_path_factory.mktemp("films") / "v.mp4"
    write_video(path, [np.full((36, 48, 3), 40 * (k // 8), np.uint8) for k in range(48)], None, 8.0)
    return path


def test_a_film_is_what_is_shown_around_its_moment(video: Path, tmp_path: Path) -> None:
    early, middle, late = read_films(video, [0.5, 3.0, 5.9])
    assert early is not None and middle is not None and late is not None
    assert middle.shape == (25, 64, 64) and len(early) == 17 and len(late) < 25
    seconds = (middle.mean(axis=(1, 2)) / 40).round().astype(int).tolist()
    assert seconds == [1] * 4 + [2] * 8 + [3] * 8 + [4] * 5
    write_jpeg(tmp_path / "p.jpg", np.zeros((31, 37, 3), np.uint8))
    assert read_films(tmp_path / "p.jpg", [0.0]) == [None]


def test_walking_gives_the_same_films(video: Path) -> None:
    walked = list(islice(walk_films(video, 2.0), 13))
    (read,) = read_films(video, [3.0])
    np.testing.assert_array_equal(walked[6], read)
    assert all(film is not None and len(film) <= 26 for film in walked)


def test_a_film_survives_as_png_and_a_torn_one_is_refused(video: Path) -> None:
    (film,) = read_films(video, [3.0])
    np.testing.assert_array_equal(decode_film(film_bytes(film)), film)
    with pytest.raises(MediaError):
        decode_film(film_bytes(film)[:99])
    with pytest.raises(MediaError):
        decode_film(film_bytes(film[:, :63, :63]))
