import errno

import pytest

from soundspot.common.errors import SoundspotError
from soundspot.common.files import atomic_write, write_text


def test_the_file_appears_at_the_end_and_leaves_nothing_else(tmp_path):
    target = tmp_path / "a.json"
    with atomic_write(target) as part:
        part.write_text("new")
        assert not target.exists()
        assert part.suffix == ".json"
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]


def test_a_full_disk_keeps_what_was_there(tmp_path):
    target = tmp_path / "a.txt"
    write_text(target, "old")
    with pytest.raises(SoundspotError, match="No space left"), atomic_write(target) as part:
        part.write_text("ne")
        raise OSError(errno.ENOSPC, "No space left on device")
    assert target.read_text() == "old"
    assert len(list(tmp_path.iterdir())) == 1


def test_a_missing_folder_is_a_sentence(tmp_path):
    with pytest.raises(SoundspotError, match="cannot write"):
        write_text(tmp_path / "none" / "a.txt", "x")
