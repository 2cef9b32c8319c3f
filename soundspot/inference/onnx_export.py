"""A model as one ONNX file, encoders included, for programs without torch.

Inputs: `frame`, uint8 RGB (1, side, side, 3), the whole frame resized to what the visual encoder
sees (VGG16: 224 pixels); `waveform`, float32 mono 16 kHz (1, 48000). Output: `map`, the cosines S
(1, 14, 14).
"""

import logging
import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, UInt8
from torch import Tensor, nn

from soundspot.common.errors import SoundspotError
from soundspot.common.files import atomic_write
from soundspot.encoders.views import normalize
from soundspot.inference.localizer import Localizer
from soundspot.inference.outputs import check_onnx
from soundspot.media.sound import SOUND_SAMPLES
from soundspot.model.methods.method import Method

OPSET = 18
TOLERANCE = 1e-3  # of a cosine, between ONNX and PyTorch
HALVED_FROM = 250_000  # values; of smaller tensors, early in a network, every digit counts


class WholeModel(nn.Module):
    """Frame and sound in, map out: what the file computes."""

    def __init__(self, localizer: Localizer) -> None:
        super().__init__()
        self.visual, self.audio = localizer.learned.encoders.visual, localizer.audio
        self.method: Method = localizer.learned.method

    def forward(
        self, frame: UInt8[Tensor, "1 side side 3"], waveform: Float[Tensor, "1 48000"]
    ) -> Float[Tensor, "1 h w"]:
        """The map S."""
        pixels = normalize(frame.permute(0, 3, 1, 2).float() / 255)
        return self.method.maps(self.visual(pixels), self.audio(waveform))


def export_onnx(localizer: Localizer, path: Path) -> float:
    """Write a localizer on the CPU as an ONNX file; returns how far a cosine is from PyTorch's."""
    if localizer.named is not None:
        raise SoundspotError(f"{localizer.name} is two models: export one of them")
    check_onnx(path)
    side = _view_size(localizer)
    differences = write_graph(WholeModel(localizer), side, ("map",), path, _facts(localizer))
    return differences["map"]


def write_graph(
    model: nn.Module,
    side: int,
    outputs: Sequence[str],
    path: Path,
    facts: Mapping[str, str],
    half: bool = False,
) -> dict[str, float]:
    """Write a module that takes a frame of `side` pixels and a waveform as an ONNX file.

    The file states the `facts`. If `half`, it keeps large weights as float16, which programs widen
    when they load it.

    Returns:
        The largest difference of each output from PyTorch's, which is within `TOLERANCE`.
    """
    import onnx

    inputs = _example(side)
    model = model.eval()
    with torch.inference_mode():
        found = model(*inputs)
    expected = [found] if isinstance(found, Tensor) else found
    with (
        torch.inference_mode(),
        _quiet("torch.onnx"),
        _quiet("onnx_ir"),
        atomic_write(path) as part,
    ):
        program = torch.onnx.export(
            model,
            inputs,
            input_names=["frame", "waveform"],
            output_names=list(outputs),
            opset_version=OPSET,
            dynamo=True,
            external_data=False,
            verbose=False,
        )
        assert program is not None
        proto = program.model_proto
        onnx.helper.set_model_props(proto, dict(facts))
        if half:
            _halve(proto.graph)
        onnx.save(proto, part)
        pairs = zip(outputs, run_onnx(part, *inputs), expected, strict=True)
        differences = {name: float(np.abs(a - b.numpy()).max()) for name, a, b in pairs}
        if not (worst := max(differences.values())) <= TOLERANCE:
            raise SoundspotError(f"the ONNX file would differ from the model by {worst:.4f}")
    return differences


def _halve(graph: Any) -> None:
    """Large weights as float16, each followed by a cast to float32."""
    from onnx import TensorProto, helper, numpy_helper

    casts = []
    for weight in graph.initializer:
        if weight.data_type == TensorProto.FLOAT and math.prod(weight.dims) >= HALVED_FROM:
            name, values = weight.name, numpy_helper.to_array(weight).astype(np.float16)
            weight.CopyFrom(numpy_helper.from_array(values, f"{name}.half"))
            casts.append(helper.make_node("Cast", [weight.name], [name], to=TensorProto.FLOAT))
    for number, cast in enumerate(casts):
        graph.node.insert(number, cast)


@contextmanager
def _quiet(name: str) -> Iterator[None]:
    """Only errors of a logger: the exporter's warnings are about packages that are not needed."""
    logger = logging.getLogger(name)
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(before)


def run_onnx(
    path: Path, frame: UInt8[Tensor, "1 side side 3"], waveform: Float[Tensor, "1 48000"]
) -> list[np.ndarray]:
    """What an exported file gives for a pair: the map first."""
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return list(session.run(None, {"frame": frame.numpy(), "waveform": waveform.numpy()}))


def _view_size(localizer: Localizer) -> int:
    features = localizer.card.features
    if len(features.view_sizes) > 1:
        raise SoundspotError(
            f"{localizer.name} joins {features.visual}, but an ONNX file holds one visual encoder: "
            "export a model with one"
        )
    return features.view_sizes[0]


def _example(side: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    frame = torch.randint(0, 256, (1, side, side, 3), generator=generator)
    waveform = torch.randn(1, SOUND_SAMPLES, generator=generator) / 5
    return frame.to(torch.uint8), waveform


def _facts(localizer: Localizer) -> dict[str, str]:
    """What the file says about itself: the model, and from which peak a source is visible."""
    features = localizer.card.features
    facts = {"model": localizer.name, "visual": features.visual, "audio": features.audio}
    if localizer.threshold is not None:
        facts["threshold"] = f"{localizer.threshold:.6f}"
    return facts
