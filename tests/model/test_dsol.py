"""DSOL: its losses by hand and by loops, its stages, its maps."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from small_batch import small_batch

from soundspot.model.methods.dsol import DSOL, DSOLConfig, masked_mean, objects
from soundspot.model.methods.method import Batch

SMALL = DSOLConfig(c_v=7, c_a=5, dim=3, kinds=2, stage_one=2, mask=0.5)


def a_method(config: DSOLConfig = SMALL) -> DSOL:
    torch.manual_seed(0)
    return DSOL(config)


def softplus(x: float) -> float:
    return math.log(1 + math.exp(x))


def test_objects_reach_one_location_beyond_the_mask() -> None:
    v = torch.arange(12.0).view(1, 1, 3, 4)
    mask = torch.zeros(1, 3, 4, dtype=torch.bool)
    mask[0, 1, 1] = True
    assert masked_mean(v, mask).item() == pytest.approx((1 + 4 + 5 + 6 + 9) / 5)
    mask[0, 0, 3] = True  # at the border, so it stays alone
    assert masked_mean(v, mask).item() == pytest.approx((1 + 4 + 5 + 6 + 9 + 3) / 6)


def unit(x: np.ndarray) -> np.ndarray:
    return x / np.linalg.norm(x)


def terms_by_loops(method: DSOL, batch: Batch, quarters: bool) -> list[float]:
    """L_loc, L_cls and L_c, with the dictionary as it is."""
    size = len(batch.cls)
    with torch.no_grad():
        sound = batch.f_a.mean(dim=1)
        heard = [unit(a) for a in method.audio(sound).numpy()]
        kinds = method.class_a(sound).softmax(dim=1).numpy()
        centers = [unit(c) for c in method.dictionary.centers.numpy()]
        w, scale = method.sharpness.item(), method.object_scale.item()
        terms = []
        for f_v in (batch.f_v1, batch.f_v2):
            seen = method.visual(f_v).permute(0, 2, 3, 1).numpy()
            localize, classify, match = [], [], []
            for i in range(size):
                cos = [[[unit(x) @ a for x in row] for row in seen[i]] for a in heard]
                logits = w * np.array(cos)
                negatives = []
                for j in range(size):
                    if j == i:
                        continue
                    whole = [logits[j]]
                    parts = [logits[j][y : y + 2, x : x + 3] for y in (0, 2) for x in (0, 2)]
                    negatives += [softplus(part.max()) for part in (parts if quarters else whole)]
                localize.append((softplus(-logits[i].max()) + np.mean(negatives)) / 2)
                where = 1 / (1 + np.exp(-logits[i]))
                mask = (where > 0.5) | (where == where.max())
                picture = objects(f_v)[i].numpy()
                found = masked_mean(objects(f_v)[i : i + 1], torch.tensor(mask)[None])
                label = int(method.dictionary.assign(found))
                classify.append(-math.log(kinds[i][label]))
                sounding = np.array(
                    [np.mean(where * scale * np.tensordot(c, picture, 1)) for c in centers]
                )
                q = np.exp(sounding) / np.exp(sounding).sum()
                match.append(float(np.sum(kinds[i] * np.log(kinds[i] / q))))
            terms.append([np.mean(localize), np.mean(classify), np.mean(match)])
    return list(np.mean(terms, axis=0))


def test_the_losses_are_the_naive_ones_in_both_stages() -> None:
    method, batch = a_method(), small_batch(5, (4, 5))
    method(batch)
    method.eval()  # the dictionary stays as it is
    localize, classify, _ = terms_by_loops(method, batch, quarters=False)
    assert method(batch).loss.item() == pytest.approx(localize + classify, rel=1e-4)
    method.step.fill_(2)
    localize, classify, match = terms_by_loops(method, batch, quarters=True)
    found = method(batch)
    assert found.loss.item() == pytest.approx(match + 0.5 * localize, rel=1e-4)
    assert found.report["classify"].item() == pytest.approx(classify, rel=1e-4)


def test_the_dictionary_learns_in_stage_one_alone() -> None:
    method, batch = a_method(), small_batch(5, (4, 5))
    weights = []
    for _ in range(4):
        method(batch)
        weights.append(method.dictionary.weights.sum().item())
    assert weights[0] < weights[1] == weights[2] == weights[3]
    assert method.step == 4
    resumed = a_method()
    resumed.load_state_dict(method.state_dict())
    assert resumed(batch).loss.item() == method(batch).loss.item()


def test_gradients_reach_what_each_stage_trains() -> None:
    method, batch = a_method(), small_batch(5, (4, 5))
    silent = []
    for step in (0, 2):
        method.step.fill_(step)
        method.zero_grad()
        method(batch).loss.backward()
        assert all(p.grad is not None for p in method.parameters())
        silent.append([n for n, p in method.named_parameters() if not p.grad.abs().sum() > 0])
    assert silent == [["object_scale"], ["class_a.weight", "class_a.bias"]]


@pytest.mark.parametrize("kind", ["objects", "cosine"])
def test_the_map_of_one_pair_is_the_naive_one(kind: str) -> None:
    method, batch = a_method(replace(SMALL, map=kind)), small_batch(5, (4, 5))
    method(batch)
    one = Batch(*(tensor if tensor is None else tensor[:1] for tensor in batch))
    with torch.no_grad():
        sound = one.f_a.mean(dim=1)
        heard = unit(method.audio(sound)[0].numpy())
        seen = method.visual(one.f_v1)[0].permute(1, 2, 0).numpy()
        kinds = method.class_a(sound).softmax(dim=1)[0].numpy()
        centers = [unit(c) for c in method.dictionary.centers.numpy()]
    picture = objects(one.f_v1)[0].permute(1, 2, 0).numpy()
    expected = np.empty((4, 5))
    for y in range(4):
        for x in range(5):
            cosine = unit(seen[y, x]) @ heard
            expected[y, x] = cosine if kind == "cosine" else 1 / (1 + math.exp(-5 * cosine))
            if kind == "objects":
                sounding = [expected[y, x] * 10 * c @ picture[y, x] for c in centers]
                scores = np.exp(3 * np.array(sounding))
                expected[y, x] = kinds @ scores / scores.sum()
    found = method.maps(one.f_v1, one.f_a).detach()
    assert found.shape == (1, 4, 5)
    np.testing.assert_allclose(found[0], expected, atol=1e-4)
