from pathlib import Path, PurePath

import pytest

from soundspot.common.errors import SoundspotError
from soundspot.common.files import file_size, list_files, make_id


def test_files_are_listed_once_though_links_make_a_circle(tmp_path: Path) -> None:
    with pytest.raises(SoundspotError, match="contains no files"):
        list_files(tmp_path)
    (tmp_path / "b").mkdir()
    (tmp_path / "b/file").touch()
    (tmp_path / "c").touch()
    (tmp_path / "a").symlink_to(tmp_path / "b")
    (tmp_path / "b/up").symlink_to(tmp_path)
    assert list_files(tmp_path) == [PurePath("a/file"), PurePath("c")]


def test_the_size_of_no_file_is_told_from_an_empty_one(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert (file_size(tmp_path / "file"), file_size(tmp_path / "none")) == (0, -1)


def test_ids_are_valid_file_names() -> None:
    assert make_id(PurePath("a/b c.d.mp4")) == "a__b_c_d"
    assert make_id(PurePath("猫.mp4")) == "猫"
    assert make_id(PurePath("e\u0301.mp4")) == "\u00e9"
    assert make_id(PurePath("bad\udcff.mp4")) == "bad_"
    for letter in "x猫":
        long = make_id(PurePath(letter * 300 + ".mp4"))
        assert 197 <= len(long.encode()) <= 200
        assert long != make_id(PurePath(letter * 301 + ".mp4"))
