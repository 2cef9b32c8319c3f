"""The predictive coding module (paper Sec. 3.3; supplement A, Algorithm S1).

Vision predicts sound from the top level down, the prediction errors travel back up, and after T
rounds the top level has become a visual feature that knows what is being heard.

Axes: b batch, c visual channels (c_v), a audio channels (c_a), h w the grid of level L = 3.
Levels: r_3 lives on the h x w grid, r_2 on half of it, r_1 on a quarter; level 0 is the sound.
T counts the initializing pass (t = 0 in Algorithm S1) and the T - 1 recursive cycles after it.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from soundspot.model.fast_convolutions import (
    broadcast_conv1x1,
    conv1x1,
    pooled_conv3x3,
    upward_conv3x3,
)

A_INIT = 1.0
B_INIT = 0.5
BOTTOM_CHANNELS = 128  # of r_1, as the paper writes it
SMALLEST_GRID = 7  # cells along a side

# Where the paper's text and the authors' released code differ; docs/differences.md lists how.
Variant = Literal["released", "paper"]


class PCMOutput(NamedTuple):
    """What PCM hands on.

    Attributes:
        f_v: The new visual feature, the paper's f̃_v.
        e_0: The error of the last prediction of the audio feature, e_0(T).
    """

    f_v: Float[Tensor, "b c h w"]
    e_0: Float[Tensor, "b a"]


class _State(NamedTuple):
    r_1: Tensor
    r_2: Tensor
    r_3: Tensor
    e_0: Tensor


class _Maps(NamedTuple):
    """The linear maps between the levels, made once for the T passes.

    Attributes:
        w_32: (W_{3,2})^T and the pooling that brings its prediction to the grid below.
        w_21: (W_{2,1})^T, likewise.
        w_10: (W_{1,0})^T.
        w_01: (W_{0,1})^T of a vector that is the same in every cell of a grid of a given size.
        w_12: (W_{1,2})^T, to a grid of a given size.
        w_23: (W_{2,3})^T, likewise.
    """

    w_32: Callable[[Tensor], Tensor]
    w_21: Callable[[Tensor], Tensor]
    w_10: Callable[[Tensor], Tensor]
    w_01: Callable[[Tensor, Sequence[int]], Tensor]
    w_12: Callable[[Tensor, Sequence[int]], Tensor]
    w_23: Callable[[Tensor, Sequence[int]], Tensor]


class _StepNorms(nn.Module):
    """The batch norms of one pass: below the top in feedback, at every level in feedforward.

    The paper's text also has one in the top level's feedback update.
    """

    def __init__(self, c_v: int, c_1: int, top: bool) -> None:
        super().__init__()
        self.feedback_1 = nn.BatchNorm2d(c_1)
        self.feedback_2 = nn.BatchNorm2d(c_v)
        self.feedback_3 = nn.BatchNorm2d(c_v) if top else nn.Identity()
        self.feedforward_1 = nn.BatchNorm2d(c_1)
        self.feedforward_2 = nn.BatchNorm2d(c_v)
        self.feedforward_3 = nn.BatchNorm2d(c_v)


class PCM(nn.Module):
    """Feedback predictions and feedforward errors, alternating for T passes.

    Args:
        c_v: Channels of the visual feature and of all three levels.
        c_a: Channels of the audio feature.
        cycles: T of the paper. It fixes how many sets of batch norms are learned.
        variant: "released" has c_v channels at every level and a_l, b_l a channel; "paper" has
            128 channels at the bottom, a_l and b_l as scalars and a batch norm at the top.
    """

    def __init__(
        self, c_v: int = 512, c_a: int = 128, cycles: int = 5, variant: Variant = "released"
    ) -> None:
        super().__init__()
        if cycles < 1:
            raise ValueError(f"PCM needs at least one pass, not T={cycles}")
        written = variant == "paper"
        c_1 = BOTTOM_CHANNELS if written else c_v
        # Feedback connections W_{l+1,l}: predictions travel down.
        self.w_32 = nn.Conv2d(c_v, c_v, 3, padding=1, bias=False)
        self.w_21 = nn.Conv2d(c_v, c_1, 3, padding=1, bias=False)
        self.w_10 = nn.Conv2d(c_1, c_a, 1)
        # Feedforward connections W_{l-1,l}: errors travel up.
        self.w_01 = nn.ConvTranspose2d(c_a, c_1, 1, bias=False)
        self.w_12 = nn.ConvTranspose2d(c_1, c_v, 3, bias=False)
        self.w_23 = nn.ConvTranspose2d(c_v, c_v, 3, bias=False)
        # a_l and b_l for l = 1, 2, 3, kept positive by a ReLU where they are used.
        widths = (1, 1, 1) if written else (c_1, c_v, c_v)
        self.a = nn.ParameterList(torch.full((width, 1, 1), A_INIT) for width in widths)
        self.b = nn.ParameterList(torch.full((width, 1, 1), B_INIT) for width in widths)
        self.b.requires_grad_(cycles > 1)  # the first pass blends nothing; DDP wants to know
        self.norms = nn.ModuleList(_StepNorms(c_v, c_1, written and t > 0) for t in range(cycles))
        self.output = nn.Conv2d(c_v, c_v, 1)

    def forward(
        self,
        f_v: Float[Tensor, "b c h w"],
        f_a: Float[Tensor, "b a"],
        cycles: int | None = None,
    ) -> PCMOutput:
        """Refine a visual feature by the sound.

        Args:
            f_v: The frozen visual feature; the grid must be at least 7 x 7.
            f_a: The audio feature, L2-normalized.
            cycles: T for this call; default: the T the module was built with. A larger T reuses
                the last pass's batch norms.
        """
        for state in self._passes(f_v, f_a, cycles):
            last = state
        return PCMOutput(self.output(last.r_3), last.e_0)

    def trace(
        self,
        f_v: Float[Tensor, "b c h w"],
        f_a: Float[Tensor, "b a"],
        cycles: int | None = None,
    ) -> list[PCMOutput]:
        """The output as it would be after t = 1, 2, ..., T passes (the paper's Fig. 7)."""
        return [
            PCMOutput(self.output(state.r_3), state.e_0) for state in self._passes(f_v, f_a, cycles)
        ]

    def _passes(self, f_v: Tensor, f_a: Tensor, cycles: int | None) -> Iterator[_State]:
        if min(f_v.shape[-2:]) < SMALLEST_GRID:
            raise ValueError(f"PCM needs a grid of at least 7 x 7, not {tuple(f_v.shape[-2:])}")
        total = len(self.norms) if cycles is None else cycles
        if total < 1:
            raise ValueError(f"PCM needs at least one pass, not T={total}")
        maps = self._maps()
        f_v = f_v.to(self.w_32.weight.dtype)  # a convolution before may have rounded it
        state = self._initialize(f_v, f_a, maps)
        yield state
        for t in range(1, total):
            state = self._cycle(state, f_v, f_a, maps, self._norms_of(t))
            yield state

    def _maps(self) -> _Maps:
        return _Maps(
            pooled_conv3x3(self.w_32.weight),
            pooled_conv3x3(self.w_21.weight),
            conv1x1(self.w_10.weight, self.w_10.bias),
            broadcast_conv1x1(self.w_01.weight),
            upward_conv3x3(self.w_12.weight),
            upward_conv3x3(self.w_23.weight),
        )

    def _norms_of(self, t: int) -> _StepNorms:
        """The batch norms of pass t; beyond the trained T the last ones go on."""
        norms = self.norms[min(t, len(self.norms) - 1)]
        assert isinstance(norms, _StepNorms)
        return norms

    def _initialize(self, f_v: Tensor, f_a: Tensor, maps: _Maps) -> _State:
        """The first pass: every level starts as the activated prediction from above."""
        norms = self._norms_of(0)
        r_3 = f_v
        r_2 = F.gelu(norms.feedback_2(maps.w_32(r_3)))
        r_1 = F.gelu(norms.feedback_1(maps.w_21(r_2)))
        return self._feedforward(r_1, r_2, r_3, p_1=r_1, p_2=r_2, f_a=f_a, maps=maps, norms=norms)

    def _cycle(
        self, state: _State, f_v: Tensor, f_a: Tensor, maps: _Maps, norms: _StepNorms
    ) -> _State:
        """One recursive cycle; the linear predictions serve the update and the error alike.

        Eqs. 9, S10: p_l = (W_{l+1,l})^T r_{l+1}.
        """
        r_3 = F.gelu(norms.feedback_3(self._blend(3, state.r_3, f_v)))
        p_2 = maps.w_32(r_3)
        r_2 = F.gelu(norms.feedback_2(self._blend(2, state.r_2, p_2)))
        p_1 = maps.w_21(r_2)
        r_1 = F.gelu(norms.feedback_1(self._blend(1, state.r_1, p_1)))
        return self._feedforward(r_1, r_2, r_3, p_1=p_1, p_2=p_2, f_a=f_a, maps=maps, norms=norms)

    def _blend(self, level: int, r: Tensor, p: Tensor) -> Tensor:
        """The argument of φ in Eqs. 10, S11: (1 - b_l) r_l(t-1) + b_l p_l(t)."""
        return torch.lerp(r, p, F.relu(self.b[level - 1]))

    def _correct(self, level: int, r: Tensor, error: Tensor) -> Tensor:
        """The argument of φ in Eqs. 12, S13: r_l + a_l (W_{l-1,l})^T e_{l-1}, W already applied."""
        return torch.addcmul(r, F.relu(self.a[level - 1]), error)

    def _feedforward(
        self,
        r_1: Tensor,
        r_2: Tensor,
        r_3: Tensor,
        *,
        p_1: Tensor,
        p_2: Tensor,
        f_a: Tensor,
        maps: _Maps,
        norms: _StepNorms,
    ) -> _State:
        """Eqs. 11 and 12 (S12, S13) from the bottom up: each error corrects the level above it."""
        p_0 = F.gelu(maps.w_10(r_1)).mean(dim=(2, 3))
        e_0 = f_a - p_0
        up_0 = maps.w_01(e_0, r_1.shape[-2:])
        r_1 = F.gelu(norms.feedforward_1(self._correct(1, r_1, up_0)))
        up_1 = maps.w_12(r_1 - p_1, r_2.shape[-2:])
        r_2 = F.gelu(norms.feedforward_2(self._correct(2, r_2, up_1)))
        up_2 = maps.w_23(r_2 - p_2, r_3.shape[-2:])
        r_3 = F.gelu(norms.feedforward_3(self._correct(3, r_3, up_2)))
        return _State(r_1, r_2, r_3, e_0)
