import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from filelock import FileLock
from PIL import Image

import soundspot
from soundspot.cli import main
from soundspot.common.config import to_dict
from soundspot.common.errors import SoundspotError
from soundspot.features.spec import FeatureSpec
from soundspot.inference import batch
from soundspot.inference.batch import BatchJob
from soundspot.inference.models import load
from soundspot.media import clips as media
from soundspot.model import checkpoint
from soundspot.model.checkpoint import Card
from soundspot.model.methods.sspl import SSPLConfig
from soundspot.parallel.engines import SERIAL, Engine

TONE = 0.5 * np.sin(np.arange(48_000) / 7).astype(np.float32)
NAMES = ["b.mp4", "mute.mp4", "notes.md", "photo.png", "sub/a.mp4", "sub/deep/c.mkv", "torn.mp4"]


def frame(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (46, 62, 3), dtype=np.uint8)


def write_model(path: Path, seed: int = 0) -> str:
    """A checkpoint that needs no pretrained encoders."""
    config = SSPLConfig(c_a=1024, hidden=29, projection=31)
    built = checkpoint.build_method("sspl", to_dict(config))
    card = Card("sspl", to_dict(config), FeatureSpec(pretrained=False, seed=seed))
    checkpoint.save(path / "best.safetensors", built, card)
    return str(path)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_model(tmp_path_factory.mktemp("model") / "run")


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
    """What one process makes of the clips in one go, three files to a shard."""
    out = tmp_path_factory.mktemp("whole") / "out"
    batch.run_batch(BatchJob(clips, out, model, engine=SERIAL, per_shard=3), lambda line: None)
    return out


def tree(root: Path) -> dict[str, bytes]:
    files = (path for path in root.rglob("*") if path.is_file() and path.name != ".lock")
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in files}


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
        with np.load(whole / line["maps"]) as shard:
            assert shard["paths"][line["row"]] == name
            np.testing.assert_array_equal(shard["maps"][line["row"]], one.similarity)
        place = Path(name).with_suffix("")
        assert line["picture"] == f"{place}-soundspot.png"
        with Image.open(whole / line["picture"]) as picture:
            np.testing.assert_array_equal(np.asarray(picture), np.asarray(one.picture()))
    assert found["photo.png"]["audio"] == "photo.flac"
    shards = [np.load(whole / f"maps-{k:05d}.npz")["maps"].shape for k in range(3)]
    assert shards == [(1, 14, 14), (3, 14, 14), (0, 0, 0)]


@pytest.mark.slow
def test_the_bytes_do_not_depend_on_the_number_of_processes(
    whole: Path, clips: Path, model: str, tmp_path: Path
) -> None:
    job = BatchJob(clips, tmp_path / "out", model, engine=Engine("local", 2), per_shard=3)
    batch.run_batch(job, lambda line: None)
    assert tree(tmp_path / "out") == tree(whole)


@pytest.mark.slow
def test_a_killed_run_goes_on_after_the_last_whole_shard(
    whole: Path, clips: Path, model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[str] = []
    real = batch.localize_one

    def counting(*given):
        tried.append(given[-1].name)
        if len(tried) == 5:
            raise KeyboardInterrupt
        return real(*given)

    monkeypatch.setattr(batch, "localize_one", counting)
    job = BatchJob(clips, tmp_path / "out", model, engine=SERIAL, per_shard=3)
    with pytest.raises(KeyboardInterrupt):
        batch.run_batch(job, lambda line: None)
    assert not (job.out / "localizations.jsonl").exists()
    (job.out / ".maps-00001.0a1b2c3d.npz").write_text("torn")  # as a kill -9 leaves it
    tried[:] = ["", "", "", "", ""]
    batch.run_batch(job, lambda line: None)
    assert tried[5:] == NAMES[3:]
    assert tree(job.out) == tree(whole)
    batch.run_batch(job, lambda line: None)
    assert tried[5:] == NAMES[3:]
    assert tree(job.out) == tree(whole)


@pytest.mark.slow
def test_only_the_shards_of_changed_files_are_made_again(
    model: str, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clips, out = write_clips(tmp_path / "clips"), tmp_path / "out"
    shutil.copytree(whole, out)
    tried: list[str] = []
    real = batch.localize_one

    def counting(*given):
        tried.append(given[-1].name)
        return real(*given)

    monkeypatch.setattr(batch, "localize_one", counting)
    shutil.copy(clips / "b.mp4", clips / "mute.mp4")
    (clips / "torn.mp4").unlink()
    job = BatchJob(clips, out, model, engine=SERIAL, per_shard=3)
    batch.run_batch(job, lambda line: None)
    assert tried == NAMES[:3]
    assert [line["path"] for line in lines(out)] == NAMES[:-1]
    assert "box" in lines(out)[1]
    assert not (out / "maps-00002.npz").exists()


def test_a_list_may_name_what_is_not_there(
    clips: Path, model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    item = batch.BatchItem("gone.mp4", None, (17,), "gone.png")
    with pytest.raises(SoundspotError):
        batch.localize_one(load(model), tmp_path, False, "best", True, item)


def test_a_fault_of_ours_is_not_called_a_bad_file(
    clips: Path, model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*given: object, **options: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(batch, "localize", broken)
    with pytest.raises(ZeroDivisionError):
        batch.run_batch(BatchJob(clips, tmp_path / "out", model, engine=SERIAL), lambda line: None)


def test_files_that_differ_only_in_their_suffix_have_pictures_of_their_own(tmp_path: Path) -> None:
    names = ["a.mkv", "a.mp4", "b.mp4", "p.flac", "p.png"]
    items = {item.name: item.picture for item in batch._items(tmp_path, names)}
    assert items == {
        "a.mkv": "a.mkv-soundspot.png",
        "a.mp4": "a.mp4-soundspot.png",
        "b.mp4": "b-soundspot.png",
        "p.png": "p-soundspot.png",
    }


def test_a_changed_model_is_noticed(clips: Path, whole: Path, model: str, tmp_path: Path) -> None:
    """Two exports of one run, of which one zooms in, make other maps."""
    checkpoint.export(Path(model), tmp_path / "m.safetensors", second_look=0.3)
    job = BatchJob(clips, whole, str(tmp_path / "m.safetensors"), engine=SERIAL, per_shard=3)
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
    refuse(whole, model=write_model(tmp_path / "other", seed=1))
    (tmp_path / "empty").mkdir()
    refuse(tmp_path / "out", source=tmp_path / "empty")
    with FileLock(whole / ".lock"):
        refuse(whole)


def test_the_command_line(
    clips: Path, model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, video = str(clips / "sub/deep"), str(clips / "b.mp4")
    out = str(tmp_path / "out")
    assert main(["localize", folder, "-o", out, "--model", model, "--jobs", "1"]) == 0
    assert capsys.readouterr().out.startswith("1 file: 1 ")
    for words, *arguments in (
        ("a single file", folder, "-o", out, "--details"),
        ("with -o", folder),
        ("is neither", video, "--jobs", "2"),
        ("is neither", video, "--engine", "ray"),
        ("at least 1 process, got 0", folder, "-o", out, "--jobs", "0"),
    ):
        assert main(["localize", *arguments]) == 2
        assert words in capsys.readouterr().err
