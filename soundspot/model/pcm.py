"""The predictive coding module (paper Sec. 3.3; supplement A, Algorithm S1).

Vision predicts sound from the top level down, the prediction errors travel back up, and after T
rounds the top level has become a visual feature that knows what is being heard.

Axes: b batch, c visual channels (c_v), a audio channels (c_a), h w the grid of level L = 3.
Levels: r_3 lives on the h x w grid, r_2 on half of it, r_1 on a quarter; level 0 is the sound.
T counts the initializing pass (t = 0 in Algorithm S1) and the T - 1 recursive cycles after it.
"""

from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from soundspot.model.attention import precise
from soundspot.model.fast_convolutions import upsampled_conv3x3

A_INIT = 1.0
B_INIT = 0.5
SMALLEST_GRID = 7  # cells along a side

# Where the paper's text and the authors' released code differ; docs/differences.md lists how.
Variant = Literal["released", "paper"]


class _State(NamedTuple):
    r_1: Tensor
    r_2: Tensor
    r_3: Tensor


class _StepNorms(nn.Module):
    """The batch norms of one pass: below the top in feedback, at every level in feedforward.

    The paper's text also has one in the top level's feedback update.
    """

    def __init__(self, c_v: int, top: bool) -> None:
        super().__init__()
        self.feedback_1 = nn.BatchNorm2d(c_v)
        self.feedback_2 = nn.BatchNorm2d(c_v)
        self.feedback_3 = nn.BatchNorm2d(c_v) if top else nn.Identity()
        self.feedforward_1 = nn.BatchNorm2d(c_v)
        self.feedforward_2 = nn.BatchNorm2d(c_v)
        self.feedforward_3 = nn.BatchNorm2d(c_v)


class PCM(nn.Module):
    """Feedback predictions and feedforward errors, alternating for T passes.

    Args:
        c_v: Channels of the visual feature and of all three levels.
        c_a: Channels of the audio feature.
        cycles: T of the paper. It fixes how many sets of batch norms are learned.
        variant: "released" learns a_l and b_l per channel; "paper" learns them as scalars, with a
            batch norm at the top.
    """

    def __init__(
        self, c_v: int = 512, c_a: int = 128, cycles: int = 5, variant: Variant = "released"
    ) -> None:
        super().__init__()
        if cycles < 1:
            raise ValueError(f"PCM needs at least one pass, not T={cycles}")
        written = variant == "paper"
        # Feedback connections W_{l+1,l}: predictions travel down.
        self.w_32 = nn.Conv2d(c_v, c_v, 3, padding=1, bias=False)
        self.w_21 = nn.Conv2d(c_v, c_v, 3, padding=1, bias=False)
        self.w_10 = nn.Conv2d(c_v, c_a, 1)
        # Feedforward connections W_{l-1,l}: errors travel up.
        self.w_01 = nn.ConvTranspose2d(c_a, c_v, 1, bias=False)
        self.w_12 = nn.ConvTranspose2d(c_v, c_v, 3, bias=False)
        self.w_23 = nn.ConvTranspose2d(c_v, c_v, 3, bias=False)
        # a_l and b_l for l = 1, 2, 3, kept positive by a ReLU where they are used.
        width = 1 if written else c_v
        self.a = nn.ParameterList(torch.full((width, 1, 1), A_INIT) for _ in range(3))
        self.b = nn.ParameterList(torch.full((width, 1, 1), B_INIT) for _ in range(3))
        self.b.requires_grad_(cycles > 1)  # the first pass blends nothing; DDP wants to know
        self.norms = nn.ModuleList(_StepNorms(c_v, written and t > 0) for t in range(cycles))
        self.output = nn.Conv2d(c_v, c_v, 1)

    def forward(
        self,
        f_v: Float[Tensor, "b c h w"],
        f_a: Float[Tensor, "b a"],
        cycles: int | None = None,
    ) -> Float[Tensor, "b c h w"]:
        """The paper's f̃_v, a visual feature refined by the sound.

        Args:
            f_v: The frozen visual feature; the grid must be at least 7 x 7.
            f_a: The audio feature, L2-normalized.
            cycles: T for this call; default: the T the module was built with. A larger T reuses
                the last pass's batch norms.
        """
        for state in self._passes(f_v, f_a, cycles):
            last = state
        refined: Tensor = self.output(last.r_3)
        return refined

    def trace(
        self,
        f_v: Float[Tensor, "b c h w"],
        f_a: Float[Tensor, "b a"],
        cycles: int | None = None,
    ) -> list[Float[Tensor, "b c h w"]]:
        """The output as it would be after t = 1, 2, ..., T passes (the paper's Fig. 7)."""
        return [self.output(state.r_3) for state in self._passes(f_v, f_a, cycles)]

    def _passes(self, f_v: Tensor, f_a: Tensor, cycles: int | None) -> Iterator[_State]:
        """Algorithm S1: feedback and feedforward, T times."""
        if min(f_v.shape[-2:]) < SMALLEST_GRID:
            raise ValueError(f"PCM needs a grid of at least 7 x 7, not {tuple(f_v.shape[-2:])}")
        total = len(self.norms) if cycles is None else cycles
        if total < 1:
            raise ValueError(f"PCM needs at least one pass, not T={total}")
        f_v = precise(f_v)  # a convolution before may have rounded it
        state = self._initialize(f_v, f_a, self._norms_of(0))
        yield state
        for t in range(1, total):
            state = self._cycle(state, f_v, f_a, self._norms_of(t))
            yield state

    def _norms_of(self, t: int) -> _StepNorms:
        """The batch norms of pass t; beyond the trained T the last ones go on."""
        norms = self.norms[min(t, len(self.norms) - 1)]
        assert isinstance(norms, _StepNorms)
        return norms

    def _initialize(self, f_v: Tensor, f_a: Tensor, norms: _StepNorms) -> _State:
        """The first pass: every level starts as the activated prediction from above."""
        r_2 = F.gelu(norms.feedback_2(_down(self.w_32, f_v)))
        r_1 = F.gelu(norms.feedback_1(_down(self.w_21, r_2)))
        return self._feedforward((r_1, r_2, f_v), (r_1, r_2), f_a, norms)

    def _cycle(self, state: _State, f_v: Tensor, f_a: Tensor, norms: _StepNorms) -> _State:
        """One recursive cycle; the linear predictions serve the update and the error alike.

        Eqs. 9 and S10, p_l = (W_{l+1,l})^T r_{l+1}; Eqs. 10 and S11,
        r_l = φ((1 - b_l) r_l(t-1) + b_l p_l).
        """
        b_1, b_2, b_3 = map(F.relu, self.b)
        r_3 = F.gelu(norms.feedback_3(torch.lerp(state.r_3, f_v, b_3)))
        p_2 = _down(self.w_32, r_3)
        r_2 = F.gelu(norms.feedback_2(torch.lerp(state.r_2, p_2, b_2)))
        p_1 = _down(self.w_21, r_2)
        r_1 = F.gelu(norms.feedback_1(torch.lerp(state.r_1, p_1, b_1)))
        return self._feedforward((r_1, r_2, r_3), (p_1, p_2), f_a, norms)

    def _feedforward(
        self, r: tuple[Tensor, ...], p: tuple[Tensor, ...], f_a: Tensor, norms: _StepNorms
    ) -> _State:
        """From the bottom up, each error corrects the level above it.

        Eqs. 11 and S12, e_{l-1} = r_{l-1} - p_{l-1}; Eqs. 12 and S13,
        r_l = φ(r_l + a_l (W_{l-1,l})^T e_{l-1}).
        """
        (r_1, r_2, r_3), (p_1, p_2) = r, p
        a_1, a_2, a_3 = map(F.relu, self.a)
        e_0 = f_a - F.gelu(precise(self.w_10(r_1))).mean(dim=(2, 3))
        up_0 = precise(self.w_01(e_0[..., None, None].expand(-1, -1, *r_1.shape[2:])))
        r_1 = F.gelu(norms.feedforward_1(r_1 + a_1 * up_0))
        r_2 = F.gelu(norms.feedforward_2(r_2 + a_2 * _up(self.w_12, r_1 - p_1, r_2.shape[2:])))
        r_3 = F.gelu(norms.feedforward_3(r_3 + a_3 * _up(self.w_23, r_2 - p_2, r_3.shape[2:])))
        return _State(r_1, r_2, r_3)


def _down(w: nn.Module, r: Tensor) -> Tensor:
    """W^T r of a feedback connection, on the grid below."""
    return precise(F.max_pool2d(w(r), 2))


def _up(w: nn.Module, e: Tensor, size: Sequence[int]) -> Tensor:
    """W^T e of a feedforward connection, on the grid above.

    From n to 2n + 1 cells (3 -> 7) the convolution has a stride of 2; from other sizes (7 -> 14)
    up-sampling comes first.
    """
    assert isinstance(w, nn.ConvTranspose2d)
    if tuple(size) == (2 * e.shape[2] + 1, 2 * e.shape[3] + 1):
        return precise(F.conv_transpose2d(e, w.weight, stride=2))
    return upsampled_conv3x3(e, w.weight, size)
