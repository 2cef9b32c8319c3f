"""A folder as people have it, and runs that are killed: each item reported, the same bytes."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from made_files import one_color, tone, tree, write_clip
from soundspot.cli import main
from soundspot.common.errors import SoundspotError
from soundspot.common.files import TEMPORARY
from soundspot.data.corpora import folder
from soundspot.data.options import SplitOptions
from soundspot.data.pair_set import PairSet, find_problems
from soundspot.media import clips as media

SECONDS = 4


def film(path: Path, video: str, audio: str, shade: int) -> None:
    """A clip of one color in any container."""
    pictures = [np.full((48, 64, 3), shade, np.uint8)] * (10 * SECONDS)
    sound = tone(200 + shade, SECONDS, 48_000)
    write_clip(
        path, pictures=pictures, sound=sound, video_codec=video, sound_codec=audio, rate=48_000
    )


STATUSES = {
    "a copy.mp4": "done",
    "good.mp4": "duplicate",  # of the copy, which comes first
    "clip.webm": "done",
    "old.avi": "done",
    "mute.mp4": "no sound",
    "silent.mp4": "silent",
    "torn.mp4": "unreadable",
    "cut.webm": "unreadable",
    "empty.mp4": "unreadable",
    "notes.txt": "unreadable",
    "naïve 猫 ✓.mp4": "done",
    " two  spaces .mp4": "done",
    "line\nbreak.mp4": "done",
    "bad-\udcff.mp4": "done",
    "-o.mp4": "done",
    "twin.mp4": "duplicate",
    "Twin.webm": "duplicate",
    "photo.jpg": "done",  # with photo.wav
    "lonely.jpg": "no sound",
    "link.mp4": "missing",
    ".hidden.mp4": "ignored",
}


@pytest.fixture(scope="module")
def messy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    source = tmp_path_factory.mktemp("messy") / "videos"
    source.mkdir()
    one_color(source / "good.mp4", 50)
    (source / "a copy.mp4").write_bytes((source / "good.mp4").read_bytes())
    film(source / "clip.webm", "libvpx", "libopus", 60)
    film(source / "old.avi", "mpeg4", "pcm_s16le", 70)
    write_clip(source / "mute.mp4", pictures=[np.full((48, 64, 3), 80, np.uint8)] * 20)
    one_color(source / "silent.mp4", 90, np.zeros(SECONDS * 16_000, np.float32))
    whole = (source / "good.mp4").read_bytes()
    (source / "torn.mp4").write_bytes(whole[: len(whole) // 2])
    whole = (source / "clip.webm").read_bytes()
    (source / "cut.webm").write_bytes(whole[: len(whole) // 5])
    (source / "empty.mp4").write_bytes(b"")
    (source / "notes.txt").write_text("to do: sort this folder")
    odd = ("naïve 猫 ✓", " two  spaces ", "line\nbreak", "bad-\udcff", "-o")
    for number, name in enumerate(odd):
        one_color(source / "x.mp4", 100 + 10 * number)
        (source / "x.mp4").rename(source / f"{name}.mp4")
    one_color(source / "twin.mp4", 160)
    film(source / "Twin.webm", "libvpx", "libopus", 170)
    for name in ("photo", "lonely"):
        media.write_jpeg(source / f"{name}.jpg", np.full((31, 37, 3), 180, np.uint8))
    media.write_flac(source / "photo.flac", tone(300, SECONDS))
    (source / "link.mp4").symlink_to(source / "nowhere.mp4")
    (source / ".hidden.mp4").write_bytes(b"")
    return source


def ledger(root: Path) -> dict[str, tuple[str, str]]:
    rows = [json.loads(line) for line in (root / "ledger.jsonl").open()]
    return {row["item"]: (row["status"], row.get("reason", "")) for row in rows}


@pytest.fixture(scope="module")
def clean(messy: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The output of a run that nothing disturbed."""
    out = tmp_path_factory.mktemp("clean") / "files"
    folder.prepare(messy, out)
    return tree(out)


def test_every_item_is_reported_rightly(messy: Path, tmp_path: Path) -> None:
    summary = folder.prepare(messy, tmp_path)
    found = ledger(tmp_path)
    assert {item: status for item, (status, _) in found.items()} == STATUSES
    reasons = {item: reason for item, (_, reason) in found.items()}
    assert reasons["good.mp4"] == "has the same frame and sound as a copy.mp4"
    assert reasons["Twin.webm"] == "gives the same id Twin as twin.mp4"
    assert reasons["empty.mp4"] == "empty.mp4 is empty (0 bytes)"
    assert "moov" in reasons["torn.mp4"]
    assert "without sound" in reasons["mute.mp4"]
    assert "cut short or damaged" in reasons["cut.webm"]
    assert all(str(messy) not in reason for reason in reasons.values())
    assert len(summary.losses) == sum(s not in ("done", "ignored") for s in STATUSES.values())
    sources = {pair.source for pair in summary.pairset.pairs}
    assert {"line\nbreak.mp4", "bad-\udcff.mp4", "photo.jpg + photo.flac"} < sources
    assert list(find_problems(summary.pairset)) == []


def test_processes_do_not_change_the_bytes(messy, tmp_path, clean):
    folder.prepare(messy, tmp_path, options=SplitOptions(jobs=2))
    assert tree(tmp_path) == clean


def killed_at(write: int, work: Callable[[], object]) -> bool:
    """Run in a child that kill -9 hits between writing a file and naming it; False if it ended."""
    child = os.fork()
    if child == 0:
        writes = iter(range(1, 10**6))

        def fsync(_: int) -> None:
            if next(writes) == write:
                os.kill(os.getpid(), signal.SIGKILL)

        os.fsync = fsync
        try:
            work()
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL


def test_killed_again_and_again_it_ends_with_the_same_bytes(messy, tmp_path, clean):
    run = partial(folder.prepare, messy, tmp_path, options=SplitOptions(jobs=1))
    kills = [killed_at(write, run) for write in range(1, 7)]
    assert all(kills)
    assert any(TEMPORARY.fullmatch(path.name) for path in tmp_path.rglob("*"))
    with pytest.raises(SoundspotError):
        PairSet.open(tmp_path)
    while killed_at(7, run):
        pass
    assert tree(tmp_path) == clean


@pytest.mark.slow
def test_kill_leaves_no_processes_and_no_lock(messy, tmp_path, clean):
    script = (
        "import sys; from pathlib import Path\n"
        "from soundspot.data.corpora import folder\n"
        "from soundspot.data.options import SplitOptions\n"
        "from soundspot.data.writer import PairWriter\n"
        "store = PairWriter.store\n"
        "def told(self, name, data):\n"
        "    store(self, name, data); print(name, flush=True); sys.stdin.read()\n"
        "if __name__ == '__main__':\n"
        "    PairWriter.store = told\n"
        "    options = SplitOptions(jobs=2)\n"
        "    folder.prepare(Path(sys.argv[1]), Path(sys.argv[2]), options=options)\n"
    )
    (tmp_path / "run.py").write_text(script)
    out = tmp_path / "out"
    command = [sys.executable, tmp_path / "run.py", messy, out]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "frames/_two__spaces_.jpg\n"
        with pytest.raises(SoundspotError):
            folder.prepare(messy, out)
        process.kill()
        # The end of the stream: every process that could still write to it has ended.
        process.communicate(timeout=60)
    folder.prepare(messy, out)
    assert tree(out) == clean


def test_strict_fails_on_any_loss(messy, tmp_path, capsys):
    words = ["prepare", "folder", str(messy), str(tmp_path / "out"), "--jobs", "1"]
    assert main(words) == 0
    assert main([*words, "--strict"]) == 2
    out = capsys.readouterr().out
    rows = [line.split() for line in out.splitlines()]
    assert ["done", "9"] in [row[:2] for row in rows]
    assert ["no", "sound", "2"] in [row[:3] for row in rows]
    assert "11 of 20 items lost" in out
    fine = tmp_path / "fine"
    fine.mkdir()
    one_color(fine / "line\nbreak.mp4", 40)
    assert main(["prepare", "folder", str(fine), str(tmp_path / "b"), "--strict"]) == 0
    assert "line\\nbreak.mp4" in capsys.readouterr().out


def test_a_rerun_makes_anew_what_changed_in_the_corpus_or_in_the_set(tmp_path: Path) -> None:
    """A video that another of the same size replaces, and stored bytes that are damaged."""
    source, out = tmp_path / "videos", tmp_path / "out"
    source.mkdir()
    (source / "b.avi").write_bytes(raw_film(tmp_path, 200))
    (source / "a.avi").write_bytes(raw_film(tmp_path, 40))
    again = partial(folder.prepare, source, out, options=SplitOptions(jobs=1))
    first = again().pairset
    assert np.median(first.frame(first.pairs[0])) < 60

    replaced = raw_film(tmp_path, 150)
    assert len(replaced) == (source / "a.avi").stat().st_size
    (source / "a.avi").write_bytes(replaced)
    second = again().pairset
    assert 130 < np.median(second.frame(second.pairs[0])) < 170
    assert second.pairs[1] == first.pairs[1]

    clean = tree(out)
    stored = out / second.pairs[1].frame
    data = bytearray(stored.read_bytes())
    place = data.index(b"\xff\xda") + 40  # in the first picture's pixels
    data[place] ^= 0xFF
    stored.write_bytes(data)
    assert "changed" in {problem.kind for problem in find_problems(PairSet.open(out))}
    again()
    assert tree(out) == clean


def raw_film(tmp_path: Path, brightness: int) -> bytes:
    """A film whose length in bytes does not depend on what it shows."""
    path = tmp_path / "raw.avi"
    film(path, "rawvideo", "pcm_s16le", brightness)
    return path.read_bytes()


def test_a_fault_of_ours_is_not_two_million_bad_files(messy, tmp_path, monkeypatch):
    def broken(*_: object) -> None:
        raise AttributeError("a bug")

    monkeypatch.setattr(media, "read_clip", broken)
    with pytest.raises(AttributeError):
        folder.prepare(messy, tmp_path)
