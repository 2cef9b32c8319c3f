from pathlib import Path

import numpy as np
import pytest

from made_files import one_color, tree
from soundspot.common.errors import SoundspotError
from soundspot.data.corpora.folder import prepare as prepare_folder
from soundspot.data.manifest import SPLITS
from soundspot.data.options import SplitOptions
from soundspot.media import clips as media


def test_folder(tmp_path: Path) -> None:
    source = tmp_path / "videos"
    one_color(source / "dogs/rex.mp4", 50)
    one_color(source / "dogs/old/rex.mkv", 90)
    one_color(source / "-_gaZzFfzDQ_000517.mp4", 130)
    one_color(source / "Ünïcode ✓ (1).v2.mp4", 170)
    summary = prepare_folder(source, tmp_path / "out", SplitOptions(jobs=1, val=0.5))
    pairs = summary.pairset
    assert summary.losses == ()
    assert pairs.pairing == "event"
    by_source = {pair.source: pair for pair in pairs.pairs}
    assert {source: pair.id for source, pair in by_source.items()} == {
        "dogs/rex.mp4": "dogs__rex",
        "dogs/old/rex.mkv": "dogs__old__rex",
        "-_gaZzFfzDQ_000517.mp4": "-_gaZzFfzDQ_000517",
        "Ünïcode ✓ (1).v2.mp4": "Ünïcode____1__v2",
    }
    rex = by_source["dogs/old/rex.mkv"]
    assert rex.cls is None
    assert abs(pairs.frame(rex).astype(int).mean() - 90) < 4
    assert np.std(pairs.waveform(rex)) == pytest.approx(0.5 / np.sqrt(2), rel=0.1)
    assert set(pairs.splits()) <= set(SPLITS)


def test_folder_classes_are_the_first_sub_folder(tmp_path: Path) -> None:
    source = tmp_path / "videos"
    one_color(source / "dog/young/rex.mp4", 50)
    one_color(source / "stray.mp4", 60)
    summary = prepare_folder(source, tmp_path / "out", classes=True)
    assert [pair.cls for pair in summary.pairset.pairs] == ["dog"]
    (loss,) = summary.losses
    assert loss.reason == "stray.mp4 lies in no sub-folder, so it has no class"


def test_folder_goes_on_and_takes_what_is_new(tmp_path, monkeypatch):
    source, out = tmp_path / "videos", tmp_path / "out"
    one_color(source / "a.mp4", 50)
    one_color(source / "b.mp4", 80)
    prepare_folder(source, out)
    first = tree(out)
    read = []
    original = media.read_clip

    def counted(path: Path, audio: Path | None, at: float | None) -> media.Clip:
        read.append(path.name)
        return original(path, audio, at)

    monkeypatch.setattr(media, "read_clip", counted)
    (out / "sounds/b.flac").unlink()
    (out / "pairset.json").rename(out / "pairset.json.partial")
    prepare_folder(source, out)
    assert read == ["b.mp4"]
    assert tree(out) == first
    one_color(source / "c.mp4", 110)
    assert len(prepare_folder(source, out).pairset.pairs) == 3
    assert read == ["b.mp4", "c.mp4"]
    with pytest.raises(SoundspotError):
        prepare_folder(source, out, SplitOptions(jobs=1, val=0.3))


def test_a_disk_that_cannot_be_written_ends_the_run(tmp_path: Path) -> None:
    source, out = tmp_path / "videos", tmp_path / "out"
    one_color(source / "a.mp4", 50)
    prepare_folder(source, out)
    (out / "frames/a.jpg").unlink()
    (out / "frames").rmdir()
    (out / "frames").write_text("a file in the way")
    with pytest.raises(SoundspotError):
        prepare_folder(source, out)


def test_folder_wrong_places(tmp_path: Path) -> None:
    source = tmp_path / "videos"
    with pytest.raises(SoundspotError):
        prepare_folder(source, tmp_path / "out")
    source.mkdir()
    with pytest.raises(SoundspotError):
        prepare_folder(source, tmp_path / "out")
    with pytest.raises(SoundspotError):
        prepare_folder(source, source / "out")
    one_color(source / "a.mp4", 50)
    with pytest.raises(SoundspotError):
        prepare_folder(source, tmp_path / "out", SplitOptions(jobs=1, val=2.0))
    assert not (tmp_path / "out").exists()
