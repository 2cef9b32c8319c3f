import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from filelock import FileLock
from PIL import Image

import soundspot
from made_files import small_model, tree
from soundspot.cli import main
from soundspot.common.errors import SoundspotError
from soundspot.inference import batch
from soundspot.inference.batch import BatchJob
from soundspot.inference.models import load
from soundspot.media import clips as media
from soundspot.model import checkpoint
from soundspot.parallel.engines import SERIAL, Engine

TONE = 0.5 * np.sin(np.arange(48_000) / 7).astype(np.float32)
NAMES = ["b.mp4", "mute.mp4", "notes.md", "photo.png", "sub/a.mp4", "sub/deep/c.mkv", "torn.mp4"]


def frame(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (46, 62, 3), dtype=np.uint8)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return small_model(tmp_path_factory.mktemp("model") / "run")


def write_clips(root: Path) -> Path:
    (root / "sub/deep").mkdir(parents=True)
    for seed, name in enumerate(("b.mp4", "sub/a.mp4", "sub/deep/c.mkv")):
        media.write_video(root / name, [frame(seed)] * 20, TONE, 10.0)
    media.write_video(root / "mute.mp4", [frame(3)] * 20, np.zeros_like(TONE), 10.0)
    whole = (root / "b.mp4").read_bytes()
    (root / "torn.mp4").write_bytes(whole[: len(whole) // 2])
    Image.fromarray(frame(4)).save(root / "photo.png")
    media.write_flac(root / "photo.flac", TONE)
    (root / "notes.md").write_text("not a video")
    (root / ".hidden").write_text("nobody asked")
    return root


@pytest.fixture(scope="module")
def clips(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_clips(tmp_path_factory.mktemp("media") / "clips")


@pytest.fixture(scope="module")
def whole(clips: Path, model: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What one process makes of the clips in one go."""
    out = tmp_path_factory.mktemp("whole") / "out"
    batch.run_batch(BatchJob(clips, out, model, engine=SERIAL), lambda line: None)
    return out


def lines(out: Path) -> list[dict]:
    return [json.loads(line) for line in (out / "localizations.jsonl").read_text().splitlines()]


def test_every_file_has_its_line_in_order(whole: Path, clips: Path, model: str) -> None:
    found = {line["path"]: line for line in lines(whole)}
    assert list(found) == NAMES
    faults = {name: line["fault"] for name, line in found.items() if "fault" in line}
    assert faults == {"mute.mp4": "silent", "notes.md": "unreadable", "torn.mp4": "unreadable"}
    assert found["torn.mp4"]["reason"].startswith("torn.mp4 ")
    alone = load(model)
    for name in ("b.mp4", "sub/deep/c.mkv", "photo.png"):
        line = found[name]
        sound = clips / "photo.flac" if name == "photo.png" else None
        one = soundspot.localize(clips / name, sound, model=alone)
        assert line["score"] == one.score and line["verdict"] == one.verdict == "unknown"
        assert line["box"] is None and line["caption"] == one.caption
        assert (line["width"], line["height"], line["at"]) == (62, 46, one.at)
        place = Path(name).with_suffix("")
        assert line["picture"] == f"{place}-soundspot.png"
        assert line["map"] == f"{place}-soundspot.npy"
        np.testing.assert_array_equal(np.load(whole / line["map"]), one.similarity)
        with Image.open(whole / line["picture"]) as picture:
            np.testing.assert_array_equal(np.asarray(picture), np.asarray(one.picture()))
    assert found["photo.png"]["audio"] == "photo.flac"


@pytest.mark.slow
def test_the_bytes_do_not_depend_on_the_number_of_processes(whole, clips, model, tmp_path):
    job = BatchJob(clips, tmp_path / "out", model, engine=Engine("local", 2))
    batch.run_batch(job, lambda line: None)
    assert tree(tmp_path / "out") == tree(whole)


def test_a_killed_run_goes_on_after_the_last_file(whole, clips, model, tmp_path):
    """Every file whose map is older than the second run was not made again."""
    out = tmp_path / "out"
    shutil.copytree(whole, out)
    job = BatchJob(clips, out, model, engine=SERIAL)
    # As a kill leaves it: no lines yet, the journal cut within a line, and a torn map.
    (out / "localizations.jsonl").unlink()
    journal = (out / ".journal.jsonl").read_text().splitlines(keepends=True)
    (out / ".journal.jsonl").write_text("".join(journal[:4]) + journal[4][:17])
    (out / "sub/.a-soundspot.0a1b2c3d.npy").write_text("torn")
    maps = [out / name for name in ("b-soundspot.npy", "sub/a-soundspot.npy")]
    kept, made = (path.stat().st_mtime_ns for path in maps)
    batch.run_batch(job, lambda line: None)
    assert maps[0].stat().st_mtime_ns == kept and maps[1].stat().st_mtime_ns > made
    assert tree(out) == tree(whole)


def test_only_changed_and_lost_files_are_made_again(model, whole, clips, tmp_path):
    source, out = tmp_path / "clips", tmp_path / "out"
    shutil.copytree(clips, source)
    shutil.copytree(whole, out)
    shutil.copy(source / "b.mp4", source / "mute.mp4")
    (source / "torn.mp4").unlink()
    (out / "photo-soundspot.npy").unlink()
    before = (out / "b-soundspot.npy").stat().st_mtime_ns
    batch.run_batch(BatchJob(source, out, model, engine=SERIAL), lambda line: None)
    assert [line["path"] for line in lines(out)] == NAMES[:-1]
    assert "box" in lines(out)[1] and (out / "photo-soundspot.npy").exists()
    assert (out / "b-soundspot.npy").stat().st_mtime_ns == before


def test_a_list_may_name_what_is_not_there(clips, model, tmp_path, monkeypatch):
    monkeypatch.chdir(clips)
    names = tmp_path / "list.txt"
    names.write_text(f"sub/a.mp4\n{clips / 'b.mp4'}\nabsent.mp4\nsub/a.mp4\n")
    said: list[str] = []
    job = BatchJob(names, tmp_path / "out", model, pictures=False, at="middle", engine=SERIAL)
    batch.run_batch(job, said.append)
    found = lines(tmp_path / "out")
    assert [line["path"] for line in found] == [str(clips / "b.mp4"), "absent.mp4", "sub/a.mp4"]
    assert "box" in found[0] and "picture" not in found[0] and "box" in found[2]
    assert "absent.mp4" in found[1]["reason"]
    assert said[0].startswith("3 files: 2 ")


def test_a_machine_that_does_not_see_the_files_says_so(model: str, tmp_path: Path) -> None:
    item = batch.BatchItem("gone.mp4", None, (17,), "gone")
    with pytest.raises(SoundspotError):
        batch.localize_one(load(model), tmp_path, False, "best", True, item)


def test_a_fault_of_ours_is_not_called_a_bad_file(clips, model, tmp_path, monkeypatch):
    def broken(*given: object, **options: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(batch, "localize", broken)
    with pytest.raises(ZeroDivisionError):
        batch.run_batch(BatchJob(clips, tmp_path / "out", model, engine=SERIAL), lambda line: None)


def test_a_changed_model_is_noticed(clips: Path, whole: Path, model: str, tmp_path: Path) -> None:
    """Two exports of one run, of which one zooms in, make other maps."""
    checkpoint.export(Path(model), tmp_path / "m.safetensors", zoom=0.3)
    job = BatchJob(clips, whole, str(tmp_path / "m.safetensors"), engine=SERIAL)
    with pytest.raises(SoundspotError):
        batch.run_batch(job, lambda line: None)


def test_folders_that_are_refused(clips: Path, whole: Path, model: str, tmp_path: Path) -> None:
    def refuse(out: Path, source: Path = clips, **options) -> None:
        with pytest.raises(SoundspotError):
            batch.run_batch(
                BatchJob(source, out, options.pop("model", model), **options), lambda line: None
            )

    refuse(clips / "out")
    refuse(tmp_path / "a.png")
    refuse(clips.parent)
    refuse(whole, pictures=False)
    refuse(whole, at="middle")
    refuse(whole, model=small_model(tmp_path / "other", seed=1))
    (tmp_path / "empty").mkdir()
    refuse(tmp_path / "out", source=tmp_path / "empty")
    with FileLock(whole / ".lock"):
        refuse(whole)


def test_the_command_line(clips, model, tmp_path, capsys):
    folder, video = str(clips / "sub/deep"), str(clips / "b.mp4")
    out = str(tmp_path / "out")
    assert main(["localize", folder, "-o", out, "--model", model, "--jobs", "1"]) == 0
    assert capsys.readouterr().out.startswith("1 file: 1 ")
    for arguments in (
        (folder, "-o", out, "--details"),
        (folder,),
        (video, "--jobs", "2"),
        (video, "--engine", "ray"),
        (folder, "-o", out, "--jobs", "0"),
    ):
        assert main(["localize", *arguments]) == 2
