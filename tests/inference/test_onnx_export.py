"""ONNX files: the same maps as PyTorch."""

import re
import wave
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from soundspot.cli import main
from soundspot.common.errors import SoundspotError
from soundspot.encoders import logmel, weights
from soundspot.inference.models import load
from soundspot.inference.onnx_export import run_onnx
from soundspot.inference.outputs import check_onnx
from soundspot.media.clips import read_clip, read_frame, read_waveform, write_jpeg

PAGE = Path(__file__).parents[2] / "docs" / "onnx.md"


@pytest.mark.parametrize("samples", [15_600, 48_000, 20_011])
def test_the_spectrum_by_products_is_that_of_the_fft(samples: int):
    waveform = torch.randn(3, samples, generator=torch.Generator().manual_seed(0))
    expected = logmel._magnitude(waveform)
    torch.testing.assert_close(
        logmel.magnitude_by_products(waveform), expected, rtol=1e-4, atol=1e-3
    )


def test_what_cannot_be_written_is_refused(tmp_path: Path, capsys):
    with pytest.raises(SoundspotError):
        check_onnx(tmp_path / "model.pt")
    assert main(["export-onnx", "sspl", str(tmp_path / "none" / "a.onnx")]) == 2
    assert "there is no folder" in capsys.readouterr().err


@pytest.fixture(scope="module")
def exported(tmp_path_factory) -> Path:
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    file = tmp_path_factory.mktemp("onnx") / "soundspot.onnx"
    assert main(["export-onnx", "soundspot-fast", str(file)]) == 0
    return file


@pytest.mark.weights
def test_an_exported_model_gives_the_maps_of_the_model(exported: Path):
    clip = read_clip(weights.media("demo-dog-photo"), weights.media("demo-dog-bark"))
    expected = load("soundspot-fast", "cpu").localize(clip.frame, clip.waveform).similarity
    # As programs without torch do it; a gray level of the resizing is allowed for.
    small = Image.fromarray(clip.frame).resize((256, 256), Image.Resampling.BICUBIC)
    frame = torch.from_numpy(np.asarray(small).copy())[None]
    (found,), *_ = run_onnx(exported, frame, torch.from_numpy(clip.waveform)[None])
    np.testing.assert_allclose(found, expected, atol=5e-3)


@pytest.mark.weights
def test_the_page_without_torch(exported: Path, monkeypatch, capsys):
    monkeypatch.chdir(exported.parent)
    write_jpeg("photo.jpg", read_frame(weights.media("demo-dog-photo")))
    bark = read_waveform(weights.media("demo-dog-bark"))
    with wave.open("bark.wav", "wb") as file:
        file.setparams((1, 2, 16_000, 0, "NONE", ""))
        file.writeframes((bark * 32_767).astype(np.int16).tobytes())
    (block,) = re.findall(r"^```python\n(.*?)^```", PAGE.read_text("utf-8"), re.M | re.S)
    exec(compile(block, PAGE.name, "exec"), {})
    assert "peak 0." in capsys.readouterr().out
