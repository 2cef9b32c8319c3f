"""Objectives (paper Eqs. 6-8, and the extensions Sec. 3.2 proposes). None of them uses negatives.

Axes: b batch, d dimensions of a representation.
"""

import math

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from soundspot.common.errors import SoundspotError


def negative_cosine(p: Float[Tensor, "b d"], z: Float[Tensor, "b d"]) -> Float[Tensor, ""]:
    """Eq. 6, L_NCS: p is Pred's output, z what it should have predicted."""
    return -F.cosine_similarity(p, z, dim=1).mean()


def simsiam(
    p1: Float[Tensor, "b d"],
    p2: Float[Tensor, "b d"],
    z1: Float[Tensor, "b d"],
    z2: Float[Tensor, "b d"],
    stop_gradient: bool = True,
) -> Float[Tensor, ""]:
    """Eq. 8: each view predicts the other, which is held constant.

    Args:
        p1: Pred(z1).
        p2: Pred(z2).
        z1: Projection of the first view.
        z2: Projection of the second view.
        stop_gradient: False gives Eq. 7, the collapsing variant of Table 3 (a) and (b).
    """
    if stop_gradient:
        z1, z2 = z1.detach(), z2.detach()
    return (negative_cosine(p1, z2) + negative_cosine(p2, z1)) / 2


def byol(
    p1: Float[Tensor, "b d"],
    p2: Float[Tensor, "b d"],
    target1: Float[Tensor, "b d"],
    target2: Float[Tensor, "b d"],
) -> Float[Tensor, ""]:
    """BYOL: squared distance of unit vectors to a momentum network's projections.

    The targets come from the exponential moving average of the trained weights, without gradient.
    """
    return 2 + negative_cosine(p1, target2.detach()) + negative_cosine(p2, target1.detach())


def barlow_twins(
    u: Float[Tensor, "b d"], v: Float[Tensor, "b d"], off_diagonal: float = 0.005
) -> Float[Tensor, ""]:
    """Barlow Twins: make the cross-correlation of two views' features the identity.

    Args:
        u: Features of one view.
        v: Features of the other.
        off_diagonal: Weight of the redundancy reduction term (λ, 0.005 in its paper).
    """
    correlation = standardise(u).T @ standardise(v) / len(u)
    diagonal = correlation.diagonal()
    on = (diagonal - 1).square().sum()
    off = correlation.square().sum() - diagonal.square().sum()
    return on + off_diagonal * off


def standardise(u: Float[Tensor, "b d"]) -> Float[Tensor, "b d"]:
    """Zero mean and unit variance over the batch, dimension by dimension."""
    centred = u - u.mean(dim=0)
    return centred / (centred.square().mean(dim=0) + 1e-5).sqrt()


def w_mse(
    z1: Float[Tensor, "b d"], z2: Float[Tensor, "b d"], ridge: float = 1e-3
) -> Float[Tensor, ""]:
    """W-MSE: whiten each view over the batch, then bring the pairs together.

    Whitening leaves no room to collapse: the whitened batch has the identity as its covariance.

    Args:
        z1: Projections of the first view; the batch must be larger than d.
        z2: Projections of the second view.
        ridge: Added to the covariance before it is factorised.
    """
    w1, w2 = F.normalize(whiten(z1, ridge), dim=1), F.normalize(whiten(z2, ridge), dim=1)
    return 2 + 2 * negative_cosine(w1, w2)


def whiten(z: Float[Tensor, "b d"], ridge: float = 1e-3) -> Float[Tensor, "b d"]:
    """Cholesky whitening over the batch."""
    batch, dim = z.shape
    if batch <= dim:
        raise SoundspotError(
            f"W-MSE whitens {dim} dimensions and needs a batch above {dim}, not {batch}: "
            "lower model.projection or raise train.batch"
        )
    centred = (z - z.mean(dim=0)).double()
    covariance = centred.T @ centred / (batch - 1)
    covariance = (1 - ridge) * covariance + ridge * torch.eye(
        dim, dtype=covariance.dtype, device=z.device
    )
    factor = torch.linalg.cholesky(covariance)
    white: Tensor = torch.linalg.solve_triangular(factor, centred.T, upper=False).T
    return white.to(z.dtype)


def collapse_monitor(z: Float[Tensor, "b d"]) -> Float[Tensor, ""]:
    """Std of the unit vectors z/|z| over the batch times sqrt(d): 1 when spread, 0 when collapsed.

    SimSiam's own diagnostic; logged in every epoch.
    """
    unit = F.normalize(z.detach(), dim=1)
    return unit.std(dim=0, correction=0).mean() * math.sqrt(unit.shape[1])
