"""Objectives: the paper's (Eqs. 6-8), the extensions it proposes (Sec. 3.2), and the contrastive.

Axes: b batch (of frames as rows, of sounds as columns), d dimensions of a representation.
"""

import math

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from soundspot.common.errors import SoundspotError
from soundspot.model.attention import precise
from soundspot.model.whole_batch import whole

Vectors = Float[Tensor, "b d"]
Pairs = Float[Tensor, "b b"]
Scalar = Float[Tensor, ""]


def negative_cosine(p: Vectors, z: Vectors) -> Scalar:
    """Eq. 6, L_NCS: p is Pred's output, z what it should have predicted."""
    return -F.cosine_similarity(precise(p), precise(z), dim=1).mean()


def byol(p1: Vectors, p2: Vectors, target1: Vectors, target2: Vectors) -> Scalar:
    """BYOL: squared distance of unit vectors to a momentum network's projections.

    The targets come from the exponential moving average of the trained weights, without gradient.
    """
    return 2 + negative_cosine(p1, target2.detach()) + negative_cosine(p2, target1.detach())


def barlow_twins(u: Vectors, v: Vectors, off_diagonal: float = 0.005) -> Scalar:
    """Barlow Twins: make the cross-correlation of two views' features the identity.

    `off_diagonal` weighs the redundancy reduction term (λ, 0.005 in its paper).
    """
    correlation = standardize(u).T @ standardize(v) / len(u)
    diagonal = correlation.diagonal()
    on = (diagonal - 1).square().sum()
    off = correlation.square().sum() - diagonal.square().sum()
    return on + off_diagonal * off


def swapped_prediction(seen: Vectors, heard: Vectors, temperature: float = 0.1) -> Scalar:
    """SwAV across modalities: each predicts to which cluster the other is assigned.

    The scores are cosines with d prototypes. Balanced assignments leave no room to collapse, so no
    negatives are needed; they are targets and pass no gradient.
    """
    losses = [
        -(balanced_assignment(target.detach()) * (scores / temperature).log_softmax(dim=1))
        for scores, target in ((seen, heard), (heard, seen))
    ]
    return torch.stack(losses).sum(dim=2).mean()


def balanced_assignment(scores: Vectors, temperature: float = 0.05, rounds: int = 3) -> Vectors:
    """Sinkhorn-Knopp: soft assignments that use every cluster equally often over the batch.

    Each row sums to 1, each column to about b / d.
    """
    shares = ((scores - scores.max()) / temperature).exp()
    for _ in range(rounds):
        shares = F.normalize(shares, p=1, dim=0)
        shares = F.normalize(shares, p=1, dim=1)
    return shares


def standardize(u: Vectors) -> Vectors:
    """Zero mean and unit variance over the batch, dimension by dimension."""
    centered = u - u.mean(dim=0)
    return centered / (centered.square().mean(dim=0) + 1e-5).sqrt()


def w_mse(z1: Vectors, z2: Vectors, ridge: float = 1e-3) -> Scalar:
    """W-MSE: whiten each view over the batch, then bring the pairs together.

    Whitening leaves no room to collapse: the whitened batch has the identity as its covariance. The
    batch must be larger than d; `ridge` is added to the covariance before it is factorised.
    """
    w1, w2 = F.normalize(whiten(z1, ridge), dim=1), F.normalize(whiten(z2, ridge), dim=1)
    return 2 + 2 * negative_cosine(w1, w2)


def whiten(z: Vectors, ridge: float = 1e-3) -> Vectors:
    """Cholesky whitening over the batch."""
    batch, dim = z.shape
    if batch <= dim:
        raise SoundspotError(f"W-MSE of {dim} dimensions needs a larger batch than {batch}")
    centered = (z - z.mean(dim=0)).double()
    covariance = centered.T @ centered / (batch - 1)
    identity = torch.eye(dim, dtype=covariance.dtype, device=z.device)
    factor = torch.linalg.cholesky((1 - ridge) * covariance + ridge * identity)
    white: Tensor = torch.linalg.solve_triangular(factor, centered.T, upper=False).T
    return white.to(z.dtype)


def collapse_monitor(z: Vectors) -> Scalar:
    """Std of the unit vectors z/|z| over the batch times sqrt(d): 1 when spread, 0 when collapsed.

    SimSiam's own diagnostic; logged in every epoch.
    """
    unit = F.normalize(whole(z.detach()), dim=1)
    return unit.std(dim=0, correction=0).mean() * math.sqrt(unit.shape[1])


def pick_own(logits: Float[Tensor, "b _k"]) -> Scalar:
    """Cross-entropy of every frame over the sounds, of which its own has the frame's number."""
    return F.cross_entropy(logits, torch.arange(len(logits), device=logits.device))


def among(logits: Pairs, negatives: Bool[Tensor, "b b"]) -> Pairs:
    """Leave every frame its own sound and its negatives."""
    own = torch.eye(len(logits), dtype=torch.bool, device=logits.device)
    return logits.masked_fill(~(own | negatives), -torch.inf)


def info_nce(logits: Pairs) -> Scalar:
    """Cross-entropy of frames over sounds and of sounds over frames, the mean of both."""
    return (pick_own(logits) + pick_own(logits.T)) / 2


def matched(logits: Pairs) -> Scalar:
    """The share of frames that fit their own sound best."""
    diagonal = torch.arange(len(logits), device=logits.device)
    return (logits.argmax(dim=1) == diagonal).float().mean()
