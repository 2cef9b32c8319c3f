"""A whole model as one ONNX file, for the page and for programs without torch.

Inputs: `frame`, uint8 RGB (1, 256, 256, 3), the whole frame as pair sets store it; `waveform`,
float32 mono 16 kHz (1, 48000). Outputs, as `Localizer.answer` makes them:

    map        (1, h, w)       the map S
    threshold  (1,)            the peak from which a source counts as visible
    known      (1,)            0 if it cannot be told whether the source is visible, else 1
    scores     (1, p, 521)     of every sound that has a name, for each 0.96 s of the waveform;
                               only with an audio encoder that names sounds

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
from jaxtyping import Float, Int, UInt8
from torch import Tensor, nn
from torch.nn import functional as F

from soundspot.common.errors import SoundspotError
from soundspot.common.files import atomic_write
from soundspot.encoders.views import STORED_SIZE, normalize
from soundspot.encoders.yamnet import YAMNet
from soundspot.features.spec import JoinedEncoder, join
from soundspot.inference.localizer import Localizer, Part
from soundspot.inference.maps import FINER, HOT, TIGHTER
from soundspot.inference.outputs import check_onnx
from soundspot.media.clips import read_frames, read_sounds, read_waveform
from soundspot.media.decoding import SAMPLE_RATE
from soundspot.media.resizing import resize_tensor
from soundspot.media.sound import SOUND_SAMPLES, SOUND_SECONDS
from soundspot.model import evidence
from soundspot.model.evidence import Known

OPSET = 18
TOLERANCE = 1e-3  # of a cosine, between ONNX and PyTorch
HALVED_FROM = 250_000  # values; of smaller tensors, early in a network, every digit counts
LEAST = 0.01  # score that is kept of an example

Frame = Float[Tensor, "1 3 side side"]


class Answer(NamedTuple):
    """What the graph gives."""

    map: Float[Tensor, "1 h w"]
    threshold: Float[Tensor, "1"]
    known: Float[Tensor, "1"]
    scores: Float[Tensor, "1 p s"] | None


class AnswerGraph(nn.Module):
    """A model, with its label map if it has one, and all evidence of a photograph."""

    noise: Tensor
    noise_scores: Tensor

    def __init__(self, localizer: Localizer) -> None:
        super().__init__()
        learned, named = localizer.learned, localizer.named
        self.seen = _Seen([learned] if named is None else [learned, named])
        self.audio, self.cycles = localizer.audio, localizer.cycles
        self.learned, self.small = learned.method, learned.card.zoom
        self.named = None if named is None else named.method
        self.table, self.ends = localizer.table, localizer.verdict_ends
        self.learned_threshold = localizer.threshold or 1.0
        self.names = bool(localizer.class_names)
        if named is not None:
            self.register_buffer("noise", localizer.noise.clone())
            self.register_buffer("noise_scores", torch.from_numpy(localizer.noise_scores))

    def forward(
        self, frame: UInt8[Tensor, "1 side side 3"], waveform: Float[Tensor, "1 48000"]
    ) -> Answer:
        """All that is known of a frame and its sound."""
        stored = frame.permute(0, 3, 1, 2).float()
        f_v, f_a = self.seen(stored), self.audio(waveform)
        maps = self.learned.maps(f_v[0], f_a, self.cycles)
        if self.small:
            maps = self._zoomed(maps, stored, f_a)
        scores = None
        if self.names:
            assert isinstance(self.audio, YAMNet)  # no other encoder names sounds
            scores = self.audio.classify(f_a)
        if self.named is not None and scores is not None:
            maps = self._weighed(maps, f_v, f_a, scores)
        threshold, doubt = self.ends
        peak = maps.amax(dim=(1, 2))
        known = torch.full_like(peak, threshold is not None)
        if threshold is not None and doubt is not None:
            known = ((peak >= threshold) | (peak < doubt)).float()
        return Answer(maps, torch.full_like(peak, threshold or 0.0), known, scores)

    def _weighed(
        self, learned: Tensor, f_v: Sequence[Tensor], f_a: Tensor, scores: Tensor
    ) -> Float[Tensor, "1 h w"]:
        """The learned map with all other evidence."""
        assert self.named is not None and self.table is not None
        named = self.named.maps(f_v[1], f_a)
        if named.shape != learned.shape:
            named = F.interpolate(named[None], learned.shape[1:], mode="bilinear")[0]
        known = Known(
            learned=learned,
            named=named,
            motion=torch.zeros_like(learned),
            noise=self.learned.maps(f_v[0], self.noise, self.cycles).amax(dim=(1, 2)),
            threshold=self.learned_threshold,
            sure=evidence.how_sure(scores.mean(dim=1), self.noise_scores, self.table),
            recorded=torch.zeros(1, dtype=torch.bool, device=learned.device),
        )
        return evidence.combine(known, evidence.read_weights())

    def _zoomed(self, first: Tensor, stored: Frame, f_a: Tensor) -> Float[Tensor, "1 h2 w2"]:
        """What `maps.zoom` gives; the window is always encoded, and only used if it counts."""
        cells = first.shape[1]
        stretched = evidence.stretch(first)
        share = (stretched >= HOT).float().mean()
        peak = first.flatten().argmax()
        rows, columns = (
            (FINER * at + FINER // 2 - cells // 2).clamp(0, (FINER - 1) * cells)
            for at in (peak // cells, peak % cells)
        )
        part = _cut(_cut(stored, rows, cells, 2), columns, cells, 3)
        closer = self.learned.maps(self.seen.once(part), f_a, self.cycles)
        # The window's place on the finer grid, as two matrices of zeros and ones.
        fine = F.interpolate(first[None], scale_factor=FINER, mode="bilinear")[0]
        grid, own = torch.arange(FINER * cells), torch.arange(cells)
        down, across = ((grid[:, None] == own + at).float() for at in (rows, columns))
        inside = down.sum(dim=1)[:, None] * across.sum(dim=1)
        met = torch.lerp(fine, down @ closer @ across.T, 0.5)
        fine = torch.where((inside > 0) & (share < self.small), met, fine)
        # Narrow the hot part, as `maps.tighten` does.
        stretched = evidence.stretch(fine)
        share = (stretched >= HOT).float().mean()
        level = HOT + TIGHTER * (1 - share / self.small).clamp(0, 1)
        low, high = (end(dim=(1, 2), keepdim=True) for end in (fine.amin, fine.amax))
        narrow: Tensor = low + (high - low) * stretched ** (math.log(HOT) / level.log())
        return narrow


class _Seen(nn.Module):
    """The visual features of all parts of a model; each encoder sees the frame once."""

    enlarge: Tensor

    def __init__(self, parts: Sequence[Part]) -> None:
        super().__init__()
        self.encoders, self.users = nn.ModuleList(), []
        self.register_buffer("enlarge", resizing_matrix(STORED_SIZE, STORED_SIZE // FINER))
        for part in parts:
            visual = part.encoders.visual
            each = list(visual.parts) if isinstance(visual, JoinedEncoder) else [visual]
            for encoder, size in zip(each, part.card.features.view_sizes, strict=True):
                if encoder not in list(self.encoders):
                    self.register_buffer(f"resize{len(self.encoders)}", resizing_matrix(size))
                    self.encoders.append(encoder)
            self.users.append([list(self.encoders).index(encoder) for encoder in each])

    def forward(self, stored: Frame) -> list[Tensor]:
        """The feature of each part."""
        needed = sorted({number for user in self.users for number in user})
        found = {number: self._see(number, stored) for number in needed}
        return [self._joined([found[number] for number in user]) for user in self.users]

    def once(self, part: Frame) -> Tensor:
        """The feature of the first part alone, of a window, which is stored like a frame."""
        stored = resize(part, self.enlarge)
        return self._joined([self._see(number, stored) for number in self.users[0]])

    def _see(self, number: int, stored: Frame) -> Tensor:
        view = resize(stored, self.get_buffer(f"resize{number}"))
        feature: Tensor = self.encoders[number](normalize(view / 255))
        return feature

    @staticmethod
    def _joined(features: list[Tensor]) -> Tensor:
        return features[0] if len(features) == 1 else join(features)


def _cut(
    stored: Float[Tensor, "1 3 _h _w"], at: Int[Tensor, ""], cells: int, dim: int
) -> Float[Tensor, "1 3 _h2 _w2"]:
    """Half of a frame along one axis, from a cell of the finer grid on, as `maps.cut` does."""
    pixels = stored.shape[dim]
    starts = torch.tensor([round(k * pixels / (FINER * cells)) for k in range(cells + 1)])
    return stored.index_select(dim, starts[at] + torch.arange(pixels // FINER))


def resize(
    picture: Float[Tensor, "1 3 side side"], matrix: Float[Tensor, "view side"]
) -> Float[Tensor, "1 3 view view"]:
    """The picture as an encoder sees it: like `resize_tensor`, rounded along each axis."""
    wide = (picture @ matrix.T + 0.5).floor().clamp(0, 255)
    return (matrix @ wide + 0.5).floor().clamp(0, 255)


def resizing_matrix(view: int, side: int = STORED_SIZE) -> Float[Tensor, "view side"]:
    """What antialiased bicubic interpolation of bytes does along one axis, as a product."""
    each = torch.eye(side, dtype=torch.float64)[None, :, :, None]  # a column for every pixel
    resized = F.interpolate(
        each.expand(1, side, side, 2), (view, 2), mode="bicubic", antialias=True
    )
    weights = resized[0, :, :, 0].T.contiguous()
    # torch computes with weights of 16 bits; so do we, for the same bytes.
    scale = 2 ** (14 - math.floor(math.log2(float(weights.max()))))
    rounded: Tensor = ((weights * scale).round() / scale).float()
    return rounded


def write_answer_graph(localizer: Localizer, path: Path, half: bool = False) -> dict[str, float]:
    """Write a localizer on the CPU; returns how far each output is from PyTorch's at most.

    The file's metadata says which model it is, and the frame's size. If `half`, it keeps large
    weights as float16.
    """
    check_onnx(path)
    fields = [name for name in Answer._fields if name != "scores" or localizer.class_names]
    features = localizer.card.features
    facts = {"model": localizer.name, "visual": features.visual, "audio": features.audio}
    facts["frame"] = f"{STORED_SIZE} x {STORED_SIZE}"
    return write_graph(AnswerGraph(localizer).eval(), STORED_SIZE, fields, path, facts, half)


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
        assert answer.scores is not None  # the page's model names sounds
        scores = answer.scores[0].numpy()
        heard = [[int(k), round(float(scores.flat[k]), 3)] for k in np.flatnonzero(scores > LEAST)]
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


# --- the file ---


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

    # What PyTorch makes of an example, to compare with.
    inputs = _example(side)
    model = model.eval()
    with torch.inference_mode():
        found = model(*inputs)
    expected = [output for output in found if output is not None]
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
        # The graph, what it says of itself, and perhaps smaller weights.
        assert program is not None
        proto = program.model_proto
        onnx.helper.set_model_props(proto, dict(facts))
        if half:
            _halve(proto.graph)
        onnx.save(proto, part)
        # The file is kept only if it gives the same.
        pairs = zip(outputs, run_onnx(part, *inputs), expected, strict=True)
        differences = {name: float(np.abs(a - b.numpy()).max()) for name, a, b in pairs}
        if not (worst := max(differences.values())) <= TOLERANCE:
            raise SoundspotError(
                f"the ONNX file differs from the model by {worst:.4f}, so it was not written"
            )
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


def _example(side: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    frame = torch.randint(0, 256, (1, side, side, 3), generator=generator)
    waveform = torch.randn(1, SOUND_SAMPLES, generator=generator) / 5
    return frame.to(torch.uint8), waveform
