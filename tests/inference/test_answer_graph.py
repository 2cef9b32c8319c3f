"""The page's graph gives what the localizer gives."""

from pathlib import Path

import numpy as np
import pytest
import torch

from soundspot.encoders import weights
from soundspot.encoders.views import evaluation_view, normalize
from soundspot.inference.models import load
from soundspot.inference.onnx_export import (
    AnswerGraph,
    resizing_matrix,
    run_onnx,
    write_answer_graph,
)
from soundspot.media.clips import read_frame, read_waveform
from soundspot.media.resizing import resize_frame

MODEL = "soundspot-fast"


def test_enlarging_by_a_product_is_that_of_the_encoders_view():
    stored = torch.randint(0, 256, (3, 256, 256), generator=torch.Generator().manual_seed(0))
    enlarge = resizing_matrix(256, 320)
    ours = AnswerGraph.view(type("Sized", (), {"enlarge": enlarge})(), stored.float()[None])  # type: ignore[arg-type]
    expected = evaluation_view(stored.to(torch.uint8), 320)
    torch.testing.assert_close(normalize(ours[0] / 255), expected, rtol=0, atol=1e-5)


@pytest.mark.weights
def test_the_graph_gives_the_answer_of_the_localizer(tmp_path: Path):
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    model, file = load(MODEL, "cpu"), tmp_path / "answer.onnx"
    write_answer_graph(model, file)
    frame = resize_frame(read_frame(weights.media("demo-dog-photo")), 256, 256)
    bark = read_waveform(weights.media("demo-dog-bark"))[:48_000]
    siren = np.sin(np.arange(48_000) / 5 + 900 * np.sin(np.arange(48_000) / 9000))
    for sound in (np.resize(bark, 48_000), siren.astype(np.float32) / 3):
        expected = model.localize(frame, sound)
        inputs = torch.from_numpy(frame)[None], torch.from_numpy(sound)[None]
        similarity, scores, threshold, known = run_onnx(file, *inputs)
        np.testing.assert_allclose(similarity[0], expected.similarity, atol=1e-3)
        assert threshold == pytest.approx(expected.threshold, abs=1e-3)
        assert known == (expected.verdict != "unknown")
        heard = scores[0].mean(axis=0)
        names = np.argsort(-heard, kind="stable")[:5]
        assert [model.class_names[k] for k in names] == [name for name, _ in expected.labels]
        np.testing.assert_allclose(heard[names], [score for _, score in expected.labels], atol=1e-3)
