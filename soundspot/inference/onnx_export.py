"""A model as one ONNX file, encoders included, for programs without torch.

Inputs: `frame`, uint8 RGB (1, side, side, 3), the whole frame resized to what the visual encoder
sees (VGG16: 224 pixels); `waveform`, float32 mono 16 kHz (1, 48000). Output: `map`, the cosines S
(1, 14, 14).

`AnswerGraph` gives the whole answer for the page, from frames of 256 x 256, as `Localizer.answer`
makes it:

    map        (1, h, w)       the map S
    scores     (1, p, 521)     of every sound that has a name, for each 0.96 s of the waveform
    threshold  (1,)            the peak from which a source counts as visible
    known      (1,)            0 if it cannot be told whether the source is visible, else 1

Axes: h w the grid of the map, p audio patches, s sounds that have a name.
"""

import base64
import logging
import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, UInt8
from torch import Tensor, nn
from torch.nn import functional as F

from soundspot.common.errors import SoundspotError
from soundspot.common.files import atomic_write
from soundspot.encoders.views import STORED_SIZE, normalize
from soundspot.encoders.yamnet import YAMNet
from soundspot.inference.localizer import Localizer
from soundspot.inference.outputs import check_onnx
from soundspot.media.clips import read_frames, read_sounds, read_waveform
from soundspot.media.decoding import SAMPLE_RATE
from soundspot.media.resizing import resize_tensor
from soundspot.media.sound import SOUND_SAMPLES, SOUND_SECONDS
from soundspot.model import evidence
from soundspot.model.evidence import Known
from soundspot.model.methods.method import Method
from soundspot.model.methods.names import Names

OPSET = 18
TOLERANCE = 1e-3  # of a cosine, between ONNX and PyTorch
HALVED_FROM = 250_000  # values; of smaller tensors, early in a network, every digit counts
LEAST = 0.002  # score that is kept of an example


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
        raise SoundspotError(f"{localizer.name} joins encoders: an ONNX file holds one")
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


# --- the whole answer, for the page ---


class Answer(NamedTuple):
    """What the graph gives."""

    map: Float[Tensor, "1 h w"]
    scores: Float[Tensor, "1 p s"]
    threshold: Float[Tensor, "1"]
    known: Float[Tensor, "1"]


class AnswerGraph(nn.Module):
    """A learned model and the label map on one visual encoder, and all evidence of a photograph."""

    enlarge: Tensor
    noise: Tensor
    noise_scores: Tensor

    def __init__(self, localizer: Localizer) -> None:
        super().__init__()
        learned, named = localizer.learned, localizer.named
        sizes = learned.card.features.view_sizes
        # The page's own model, `static_page.MODEL`, is all of this; no user chooses another.
        assert named is not None and localizer.table is not None and len(sizes) == 1
        assert named.card.features.visual == learned.card.features.visual
        assert localizer.threshold is not None and not learned.card.zoom
        assert isinstance(localizer.audio, YAMNet) and isinstance(named.method, Names)
        self.visual, self.audio = learned.encoders.visual, localizer.audio
        self.learned, self.named = learned.method, named.method
        self.table, self.threshold = localizer.table, localizer.threshold
        self.register_buffer("noise", localizer.noise.clone())
        self.register_buffer("noise_scores", torch.from_numpy(localizer.noise_scores))
        self.register_buffer("enlarge", resizing_matrix(STORED_SIZE, sizes[0]))

    def forward(
        self, frame: UInt8[Tensor, "1 side side 3"], waveform: Float[Tensor, "1 48000"]
    ) -> Answer:
        """All that is known of a frame and its sound."""
        f_v = self.visual(normalize(self.view(frame.permute(0, 3, 1, 2).float()) / 255))
        f_a = self.audio(waveform)
        scores = self.audio.classify(f_a)
        learned, named = self.learned.maps(f_v, f_a), self.named.maps(f_v, f_a)
        known = Known(
            learned=learned,
            named=named,
            motion=torch.zeros_like(learned),
            noise=self.learned.maps(f_v, self.noise).amax(dim=(1, 2)),
            threshold=self.threshold,
            sure=evidence.how_sure(scores.mean(dim=1), self.noise_scores, self.table),
            recorded=torch.zeros(1, dtype=torch.bool, device=f_v.device),
        )
        maps = evidence.combine(known, evidence.read_weights())
        peak = maps.amax(dim=(1, 2))
        told = (peak >= evidence.VISIBLE) | (peak < evidence.DOUBT)
        threshold = torch.full_like(peak, evidence.VISIBLE)
        return Answer(maps, scores, threshold, told.float())

    def view(self, stored: Float[Tensor, "1 3 side side"]) -> Float[Tensor, "1 3 view view"]:
        """The picture as the encoder sees it: like `resize_tensor`, rounded along each axis."""
        wide = (stored @ self.enlarge.T + 0.5).floor().clamp(0, 255)
        return (self.enlarge @ wide + 0.5).floor().clamp(0, 255)


def resizing_matrix(side: int, view: int) -> Float[Tensor, "view side"]:
    """What antialiased bicubic interpolation of bytes does along one axis, as a product."""
    each = torch.eye(side)[None, :, :, None]  # a column for every pixel
    resized = F.interpolate(
        each.expand(1, side, side, 2), (view, 2), mode="bicubic", antialias=True
    )
    weights = resized[0, :, :, 0].T.contiguous()
    # torch computes with weights of 16 bits; so do we, for the same bytes.
    scale = 2 ** (14 - max(math.floor(math.log2(float(weights.max()))), 0))
    rounded: Tensor = (weights * scale).round() / scale
    return rounded


def write_answer_graph(localizer: Localizer, path: Path) -> dict[str, float]:
    """Write the graph, and return the largest difference of each output from PyTorch's."""
    facts = {"model": localizer.name}
    return write_graph(AnswerGraph(localizer), STORED_SIZE, Answer._fields, path, facts, half=True)


def answer_video(localizer: Localizer, video: Path, step: float) -> list[dict[str, Any]]:
    """What the graph gives of a video every `step` seconds, as JSON that the page reads.

    Maps are bytes, of which 255 is one, in base64; of the scores only those above `LEAST` are kept.
    """
    graph = AnswerGraph(localizer).eval()
    seconds = len(read_waveform(video)) / SAMPLE_RATE
    times = [min(k * step, seconds - 0.01) for k in range(math.ceil(seconds / step))]
    sounds = read_sounds(video, [(at, SOUND_SECONDS) for at in times])
    found = []
    for frame, sound in zip(read_frames(video, times), sounds, strict=True):
        stored = resize_tensor(torch.from_numpy(frame).permute(2, 0, 1), STORED_SIZE, STORED_SIZE)
        with torch.inference_mode():
            answer = graph(stored.permute(1, 2, 0)[None], torch.from_numpy(sound)[None])
        # Rounded down, so that no peak rises to the threshold.
        grid = (255 * answer.map[0]).clamp(0, 255).to(torch.uint8).numpy()
        scores = answer.scores[0].numpy()
        heard = [[int(k), round(float(scores.flat[k]), 4)] for k in np.flatnonzero(scores > LEAST)]
        found.append(
            {
                "map": base64.b64encode(grid.tobytes()).decode(),
                "side": grid.shape[1],
                "scores": heard,
                "patches": len(scores),
                "threshold": float(answer.threshold),
                "known": bool(answer.known > 0.5),
            }
        )
    return found
