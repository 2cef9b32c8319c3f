"""The whole answer as one ONNX graph, for the page: map, names, threshold, what cannot be told.

Inputs: `frame`, uint8 RGB (1, 256, 256, 3), the whole frame as pair sets store it; `waveform`,
float32 mono 16 kHz (1, 48000). Outputs, as `Localizer.answer` makes them:

    map        (1, h, w)       the map S
    scores     (1, p, 521)     of every sound that has a name, for each 0.96 s of the waveform
    threshold  (1,)            the peak from which a source counts as visible
    known      (1,)            0 if it cannot be told whether the source is visible, else 1

Axes: h w the grid of the map, p audio patches, s sounds that have a name.
"""

import math
from pathlib import Path
from typing import NamedTuple

import torch
from jaxtyping import Float, UInt8
from torch import Tensor, nn
from torch.nn import functional as F

from soundspot.encoders.views import STORED_SIZE, normalize
from soundspot.encoders.yamnet import YAMNet
from soundspot.inference.localizer import Localizer
from soundspot.inference.onnx_export import write_graph
from soundspot.model import evidence
from soundspot.model.evidence import Known
from soundspot.model.methods.names import Names


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
        assert localizer.threshold is not None and not learned.card.second_look
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
