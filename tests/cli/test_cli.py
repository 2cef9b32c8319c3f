import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from made_files import THIN_VGG16, refused, small_model
from soundspot.cli import main
from soundspot.encoders import vgg16, weights
from soundspot.encoders.registry import RegistryEntry
from soundspot.features.spec import FeatureSpec
from soundspot.inference import models
from soundspot.media import clips as media
from soundspot.model.methods.sspl import SSPLConfig

TONE = 0.5 * np.sin(np.arange(48_000) / 7).astype(np.float32)
FRAME = np.random.default_rng(0).integers(0, 256, (46, 62, 3), dtype=np.uint8)


def run_apart(*arguments: str, **options) -> subprocess.CompletedProcess:
    """The command line in a separate process."""
    command = [sys.executable, "-m", "soundspot", *arguments]
    return subprocess.run(command, text=True, check=False, **options)


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(vgg16, "LAYOUT", THIN_VGG16)
    return small_model(tmp_path / "model")


@pytest.fixture
def photo(tmp_path: Path) -> str:
    Image.fromarray(FRAME).save(tmp_path / "photo.png")
    return str(tmp_path / "photo.png")


@pytest.fixture
def sound(tmp_path: Path) -> str:
    media.write_flac(tmp_path / "sound.flac", TONE)
    return str(tmp_path / "sound.flac")


@pytest.fixture
def video(tmp_path: Path) -> str:
    media.write_video(tmp_path / "video.mp4", [FRAME] * 40, TONE, 10.0)
    return str(tmp_path / "video.mp4")


def test_a_video_becomes_a_picture(capsys, tmp_path, video, model):
    out, mask = tmp_path / "where.png", tmp_path / "mask.png"
    assert main(["localize", video, "-o", str(out), "--mask", str(mask), "--model", model]) == 0
    assert Image.open(out).width > 700
    assert Image.open(mask).size == FRAME.shape[1::-1]
    captured = capsys.readouterr()
    assert str(out) in captured.out
    assert captured.err == ""


def test_without_a_name_the_picture_is_named_after_the_file(tmp_path, monkeypatch, video, model):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    assert main(["localize", video, "--model", model]) == 0
    assert [path.name for path in Path().iterdir()] == ["video-soundspot.png"]


def test_json_to_standard_output_is_nothing_but_json(capsys, tmp_path, photo, sound, model):
    arguments = ["localize", photo, "--audio", sound, "--model", model]
    assert main([*arguments, "-o", str(tmp_path / "a.png"), "--json", "-"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert (summary["width"], summary["height"], summary["at"]) == (62, 46, None)
    assert np.shape(summary["similarity"]) == (14, 14)
    file = tmp_path / "summary.json"
    assert main([*arguments, "-o", str(tmp_path / "a.png"), "--json", str(file)]) == 0
    assert json.loads(file.read_text()) == summary


def test_at_takes_another_moment(capsys, tmp_path, video, model):
    out = str(tmp_path / "a.png")
    for text, seconds in (("0.5", 0.5), ("0:02", 2.0)):
        command = ["localize", video, "--at", text, "-o", out, "--model", model, "--json", "-"]
        assert main(command) == 0
        assert json.loads(capsys.readouterr().out)["at"] == pytest.approx(seconds)
    assert "9" in refused(capsys, "localize", video, "--at", "9", "-o", out, "--model", model)


def test_the_best_moment_is_chosen_and_named(capsys, tmp_path, video, model):
    out = ["-o", str(tmp_path / "a.png"), "--model", model]
    assert main(["localize", video, *out]) == 0
    assert "moment: " not in capsys.readouterr().out
    assert main(["localize", video, *out, "--details"]) == 0
    chosen = capsys.readouterr().out.partition("moment: ")[2].split()[0]
    assert 0 < float(chosen) < 4
    assert main(["localize", video, *out, "--json", "-"]) == 0
    best = json.loads(capsys.readouterr().out)
    assert main(["localize", video, *out, "--json", "-", "--at", str(best["at"])]) == 0
    again = json.loads(capsys.readouterr().out)
    for numbers in ("map", "score"):  # frames that are looked over together round differently
        assert again.pop(numbers) == pytest.approx(best.pop(numbers), abs=1e-6)
    assert again == best


def test_several_files_become_several_pictures(capsys, tmp_path, video, photo, model):
    other = tmp_path / "other.mp4"
    other.write_bytes(Path(video).read_bytes())
    folder = tmp_path / "pictures"
    command = ["localize", video, photo, str(other), "-o", str(folder), "--model", model]
    assert main(command) == 2
    captured = capsys.readouterr()
    assert sorted(path.name for path in folder.iterdir()) == [
        "other-soundspot.png",
        "video-soundspot.png",
    ]
    assert "photo.png" in captured.err
    assert str(other) in captured.out
    lines = tmp_path / "lines.jsonl"
    assert main([*command[:2], str(other), *command[4:], "--json", str(lines)]) == 0
    rows = [json.loads(line) for line in lines.read_text().splitlines()]
    assert [row["path"] for row in rows] == [video, str(other)]


def test_what_several_files_cannot_be(capsys, tmp_path, video):
    assert "need a folder" in refused(capsys, "localize", video, video, "-o", "a.png")
    assert "pass it alone" in refused(capsys, "localize", video, str(tmp_path), "-o", "out")
    sentence = refused(capsys, "localize", video, str(tmp_path / "sub" / "video.mkv"))
    assert "both become video-soundspot.png" in sentence


def test_bad_inputs_are_refused_without_torch(tmp_path, photo):
    code = (
        "import sys; from soundspot.cli import main; code = main(sys.argv[1:]);"
        "assert 'torch' not in sys.modules; sys.exit(code)"
    )
    arguments = ["localize", photo, "-o", str(tmp_path / "a.png")]
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2, done.stderr
    assert "photo.png" in done.stderr


def test_several_sounds_become_rows(capsys, tmp_path, model):
    sound = np.concatenate([TONE[:16_000], np.zeros(16_000, np.float32), TONE[:16_000] / 3])
    video, out = str(tmp_path / "two.mp4"), tmp_path / "rows.png"
    media.write_video(video, [FRAME] * 30, sound, 10.0)
    command = ["localize", video, "--sources", "3", "-o", str(out), "--model", model]
    assert main(command) == 0
    said = capsys.readouterr().out
    assert "asked for 3 sounds, found 2" in said
    assert "sound 1, 0.00 to 1.00 s" in said and "sound 2, 2.00 to 3.00 s" in said
    assert Image.open(out).height > 600  # two rows
    assert main([*command, "--json", "-"]) == 0
    sources = json.loads(capsys.readouterr().out)["sources"]
    assert [source["span"] for source in sources] == [[0, 1], [2, 3]]
    refused(capsys, *command, "--at", "1")
    refused(capsys, "localize", video, "--sources", "0")


def test_several_sounds_need_a_sound(capsys, tmp_path, photo, model):
    command = ["localize", photo, "--sources", "2", "--model", model]
    out = ["-o", str(tmp_path / "rows.png")]
    assert "without sound" in refused(capsys, *command, *out)
    assert "without sound" in refused(capsys, *command, *out, "--audio", photo)


def test_the_ending_of_a_video_makes_a_video(capsys, tmp_path, video, model):
    out, file = tmp_path / "where.mp4", tmp_path / "moments.jsonl"
    command = ["localize", video, "-o", str(out), "--model", model, "--fps-map", "1"]
    assert main([*command, "--json", str(file)]) == 0
    said = capsys.readouterr().out
    assert "maps:  4" in said and f"video: {out}" in said
    assert media.probe(out).has_sound
    moments = [json.loads(line) for line in file.read_text().splitlines()]
    assert [m["at"] for m in moments] == [0, 1, 2, 3]
    assert main([*command, "--json", "-"]) == 0
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == moments


def test_what_cannot_become_a_video(capsys, tmp_path, video, photo, sound):
    out = ("-o", str(tmp_path / "where.mp4"))
    assert "every moment" in refused(capsys, "localize", video, *out, "--at", "1")
    assert "every moment" in refused(capsys, "localize", video, *out, "--sources", "2")
    assert "is an image, not a video" in refused(capsys, "localize", photo, *out, "--audio", sound)
    assert "is the same file as" in refused(capsys, "localize", video, "-o", video)
    picture = ("-o", str(tmp_path / "a.png"))
    assert "for videos" in refused(capsys, "localize", video, *picture, "--fps-map", "2")
    mute = tmp_path / "mute.mp4"
    media.write_video(mute, [FRAME] * 5, None, 10.0)
    assert "without sound" in refused(capsys, "localize", str(mute), *out)
    assert not (tmp_path / "where.mp4").exists()


def test_an_untrained_model_says_so(caplog, tmp_path, photo, sound, monkeypatch):
    config = SSPLConfig(c_a=1024, hidden=29, projection=31)
    monkeypatch.setitem(models.UNTRAINED, "untrained-sspl", config)
    monkeypatch.setattr(models, "FeatureSpec", lambda: FeatureSpec(pretrained=False))
    out = tmp_path / "a.png"
    arguments = ["localize", photo, "--audio", sound, "-o", str(out)]
    assert main([*arguments, "--model", "untrained-sspl"]) == 0
    assert "MEAN NOTHING" in caplog.text


def test_inputs_that_are_refused(capsys, tmp_path, photo, sound, video, model):
    text = tmp_path / "notes.txt"
    text.write_text("not a video")
    half = tmp_path / "half.mp4"
    half.write_bytes(Path(video).read_bytes()[: Path(video).stat().st_size // 2])
    mute = tmp_path / "mute.mp4"
    media.write_video(mute, [FRAME] * 40, np.zeros_like(TONE), 10.0)
    out = ["-o", str(tmp_path / "a.png"), "--model", model]
    for file, words in (
        (text, "notes.txt"),
        (half, "half.mp4"),
        (mute, "silent"),
        (tmp_path, str(tmp_path)),
        (tmp_path / "absent.mp4", "absent.mp4"),
        (photo, "photo.png"),
        (sound, "sound.flac"),
    ):
        assert words in refused(capsys, "localize", str(file), *out)
    assert not (tmp_path / "a.png").exists()


def test_a_text_that_is_no_list_of_files_is_called_that(capsys, tmp_path, video):
    """Whether or not -o is given; a list with one file that exists is a list."""
    text = tmp_path / "notes.txt"
    text.write_text(f"buy milk\n{'long ' * 99}\n")
    for out in ([], ["-o", str(tmp_path / "out")], ["-o", str(tmp_path / "a.png")]):
        sentence = refused(capsys, "localize", str(text), *out)
        assert "notes.txt names a file" in sentence and "'buy milk'" in sentence
        assert " -o" not in sentence
    text.write_text(f"absent.mp4\n{video}\n")
    assert "name an output folder" in refused(capsys, "localize", str(text))


def test_outputs_that_are_refused(capsys, tmp_path, photo, sound):
    before = Path(photo).read_bytes()
    command = ["localize", photo, "--audio", sound]
    assert "is the same file as" in refused(capsys, *command, "-o", photo)
    assert "is the same file as" in refused(
        capsys, *command, "-o", str(tmp_path / "a.png"), "--json", sound
    )
    both = str(tmp_path / "both.png")
    assert "is the same file as" in refused(capsys, *command, "-o", both, "--json", both)
    assert "no folder" in refused(capsys, *command, "-o", str(tmp_path / "absent" / "a.png"))
    sentence = refused(capsys, *command, "-o", str(tmp_path / "a.gif"))
    assert all(ending in sentence for ending in (".png", ".webp", ".mp4", ".webm"))
    assert Path(photo).read_bytes() == before


def test_a_model_that_is_not_there(capsys, tmp_path, video, monkeypatch):
    monkeypatch.setattr(models, "MODELS", tmp_path)
    monkeypatch.chdir(tmp_path)
    out = ("-o", str(tmp_path / "a.png"))
    assert "no model 'soundspot'" in refused(capsys, "localize", video, *out)
    assert "no model 'nonsense'" in refused(capsys, "localize", video, *out, "--model", "nonsense")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("lokalize", 'Unknown command "lokalize"'),
        ("frob", "see `soundspot --help`"),
        ("recipes all of them", "too many arguments: of them; see `soundspot recipes --help`"),
        ("localize", "FILE requires an argument"),
        ("localize a.mp4 --modell x", "Did you mean --model?"),
        ("localize a.mp4 --at soon", '"soon" is not a time'),
        ("localize a.mp4 --at 1:2:3:4", '"1:2:3:4" is not a time'),
        ("localize a.mp4 --at 9:99", '"9:99" is not a time'),
        ("localize a.mp4 --at 1:60:00", '"1:60:00" is not a time'),
        ("localize a.mp4 --modell x", "see `soundspot localize --help`"),
        ("prepare folder", "see `soundspot prepare folder --help`"),
        ("pairs check absent", "no folder absent"),
        ("weights fetch nonsense", "nonsense"),
        ("weights frob", 'Unknown command "frob"'),
    ],
)
def test_words_that_are_refused(capsys, words, sentence):
    assert sentence in refused(capsys, *words.split())


def test_options_that_do_not_apply(capsys, tmp_path, video):
    for words in (["--sources", "2"], ["--audio", video], ["--details"]):
        assert words[0] in refused(capsys, "localize", str(tmp_path), *words)
    refused(capsys, "localize", str(tmp_path))
    assert "--no-pictures" in refused(capsys, "localize", video, "--no-pictures")
    mask = ["--mask", str(tmp_path / "mask.png")]
    assert "--mask" in refused(capsys, "localize", str(tmp_path), *mask)
    assert "--mask" in refused(capsys, "localize", video, video, *mask)
    for words in (["--no-outline"], ["--sources", "2"], ["-o", str(tmp_path / "a.mp4")]):
        refused(capsys, "localize", video, *mask, *words)
    refused(capsys, "localize", video, "--mask", video)
    refused(capsys, "localize", video, "-o", mask[1], *mask)
    assert [path.name for path in tmp_path.iterdir()] == ["video.mp4"]


def test_an_interruption_is_one_word(capsys, tmp_path, video, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("soundspot.inference.file_job.opened", interrupt)
    assert main(["localize", video, "-o", str(tmp_path / "a.png")]) == 130
    assert capsys.readouterr().err == "soundspot: interrupted\n"


@pytest.mark.slow
def test_a_reader_that_has_gone_is_no_news(tmp_path):
    read, write = os.pipe()
    os.close(read)
    done = run_apart("weights", "list", stdout=write, stderr=subprocess.PIPE)
    os.close(write)
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["localize", "--help"], []])
def test_help_does_not_import_torch(arguments):
    code = (
        "import sys; from soundspot.cli import main; code = main(sys.argv[1:]);"
        "assert 'torch' not in sys.modules and 'numpy' not in sys.modules; sys.exit(code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "soundspot" in done.stdout


def test_the_api_is_lazy_and_complete():
    import soundspot

    assert set(soundspot.__all__) <= set(dir(soundspot))
    assert soundspot.load is models.load
    with pytest.raises(AttributeError):
        _ = soundspot.nonsense


def test_verify_tells_damage_by_its_exit_code(capsys, monkeypatch):
    def found(state):
        entry = RegistryEntry("w", "weights", "", "", ())
        return lambda verify: [weights.WeightStatus(entry, state, 7)]

    monkeypatch.setattr(weights, "list_entries", found("cached"))
    assert main(["weights", "verify"]) == 0
    monkeypatch.setattr(weights, "list_entries", found("damaged"))
    assert main(["weights", "verify"]) == 2
    assert "damaged" in capsys.readouterr().out.splitlines()[-1]


@pytest.mark.slow
@pytest.mark.weights
def test_the_demo(capsys, tmp_path):
    torch.set_num_threads(1)
    assert main(["demo", "-o", str(tmp_path / "demo")]) == 0
    said = capsys.readouterr().out
    assert "Dog" in said and "soundspot localize" in said
    names = sorted(path.name for path in (tmp_path / "demo").iterdir())
    assert names == ["demo-photo.png", "demo-two-sounds.png", "demo-video.png", "demo.mp4"]
    assert "Siren" in said
