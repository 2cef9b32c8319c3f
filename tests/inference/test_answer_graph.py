"""The page's graph gives what the localizer gives."""

from pathlib import Path

import numpy as np
import pytest
import torch

from soundspot.encoders import weights
from soundspot.encoders.views import evaluation_view, normalize
from soundspot.inference.models import load
from soundspot.inference.onnx_export import resize, resizing_matrix, run_onnx, write_answer_graph
from soundspot.media.clips import read_frame, read_waveform
from soundspot.media.resizing import resize_frame


@pytest.mark.parametrize("size", [224, 320, 448])
def test_resizing_by_a_product_is_that_of_the_encoders_view(size: int):
    stored = torch.randint(0, 256, (3, 256, 256), generator=torch.Generator().manual_seed(0))
    ours = resize(stored.float()[None], resizing_matrix(size))
    expected = evaluation_view(stored.to(torch.uint8), size)
    torch.testing.assert_close(normalize(ours[0] / 255), expected, rtol=0, atol=1e-5)


def small(frame: np.ndarray) -> np.ndarray:
    """The frame in a corner of a gray one, to zoom in on."""
    canvas = np.full_like(frame, 128)
    canvas[140:230, 20:110] = resize_frame(frame, 90, 90)
    return canvas


@pytest.mark.weights
@pytest.mark.parametrize("name", ["soundspot", "soundspot-fast", "sspl"])
def test_the_graph_gives_the_answer_of_the_localizer(tmp_path: Path, name: str):
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    model, file = load(name, "cpu"), tmp_path / "answer.onnx"
    assert max(write_answer_graph(model, file, half=name == "soundspot-fast").values()) <= 1e-3
    frame = resize_frame(read_frame(weights.media("demo-dog-photo")), 256, 256)
    bark = np.resize(read_waveform(weights.media("demo-dog-bark"))[:48_000], 48_000)
    siren = np.sin(np.arange(48_000) / 5 + 900 * np.sin(np.arange(48_000) / 9000))
    siren = siren.astype(np.float32) / 3
    for shown, sound in ((frame, bark), (frame, siren), (small(frame), bark)):
        expected = model.localize(shown, sound)
        inputs = torch.from_numpy(shown)[None], torch.from_numpy(sound)[None]
        similarity, threshold, known, scores = run_onnx(file, *inputs)
        np.testing.assert_allclose(similarity[0], expected.similarity, atol=1e-3)
        assert threshold == pytest.approx(expected.threshold, abs=1e-3)
        assert known == (expected.verdict != "unknown")
        heard = scores[0].mean(axis=0)
        names = np.argsort(-heard, kind="stable")[:5]
        assert [model.class_names[k] for k in names] == [name for name, _ in expected.labels]
        np.testing.assert_allclose(heard[names], [score for _, score in expected.labels], atol=1e-3)
