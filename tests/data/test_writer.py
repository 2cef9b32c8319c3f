import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from made_files import tone
from soundspot.common.errors import SoundspotError
from soundspot.data.pair_set import PairSet
from soundspot.data.writer import LedgerEntry, PairWriter
from soundspot.media import clips as media


def writer(root: Path, **provenance: object) -> PairWriter:
    return PairWriter(root, "tiny", "event", provenance)


def test_stored_media_have_the_documented_form(tmp_path: Path) -> None:
    one = writer(tmp_path / "set")
    one.begin()
    one.add_frame("k", lambda: np.full((31, 47, 3), 130, np.uint8))
    one.add_sound("k", lambda: tone(440.0, 3.0))
    with Image.open(tmp_path / "set/frames/k.jpg") as image:
        assert (image.format, image.size, image.mode) == ("JPEG", (256, 256), "RGB")
        # Quality 95 divides the standard tables by ten: 16 becomes 2.
        assert image.quantization[0][0] == 2
    info = media.probe(tmp_path / "set/sounds/k.flac")
    assert (info.kind, info.duration) == ("sound", 3.0)


def test_what_decodes_is_not_made_again_and_what_does_not_is(tmp_path: Path) -> None:
    one = writer(tmp_path)
    one.begin()
    calls = []

    def make() -> np.ndarray:
        calls.append(1)
        return np.full((256, 256, 3), 90, np.uint8)

    assert one.add_frame("k", make) == "frames/k.jpg"
    whole = (tmp_path / "frames/k.jpg").read_bytes()
    one.add_frame("k", make)
    assert len(calls) == 1
    (tmp_path / "frames/k.jpg").write_bytes(whole[:-20])
    one.add_frame("k", make)
    assert len(calls) == 2
    assert (tmp_path / "frames/k.jpg").read_bytes() == whole


@pytest.mark.parametrize("key", ["", "a/b", "a.b", "x" * 241, "é" * 121])
def test_keys_that_cannot_be_files_are_refused(tmp_path: Path, key: str) -> None:
    with pytest.raises(SoundspotError):
        writer(tmp_path).add_frame(key, lambda: np.zeros((2, 2, 3), np.uint8))


def test_a_folder_of_something_else_is_not_written_to(tmp_path: Path) -> None:
    (tmp_path / "diary.txt").write_text("dear diary")
    with pytest.raises(SoundspotError):
        writer(tmp_path).begin()
    with pytest.raises(SoundspotError):
        writer(tmp_path / "diary.txt").begin()


def test_other_rules_do_not_mix_with_a_started_set(tmp_path: Path) -> None:
    writer(tmp_path, window="middle").begin()
    writer(tmp_path, window="middle").begin()
    with pytest.raises(SoundspotError) as caught:
        writer(tmp_path, window="loudest").begin()
    assert '"middle"' in str(caught.value)


def test_nothing_prepared_is_an_error_and_leaves_a_ledger(tmp_path: Path) -> None:
    one = writer(tmp_path)
    one.begin()
    with pytest.raises(SoundspotError):
        one.finish([], [], [LedgerEntry("x", "unreadable", "is broken")])
    assert json.loads((tmp_path / "ledger.jsonl").read_text())["reason"] == "is broken"
    with pytest.raises(SoundspotError):
        PairSet.open(tmp_path)
