import numpy as np
import pytest
import torch

from soundspot.evaluation import predictions
from soundspot.evaluation.evaluate import evaluate
from soundspot.evaluation.metrics import union_map
from soundspot.evaluation.predictions import box_map, box_maps
from soundspot.evaluation.protocols import PROTOCOLS, score

RAMP = np.linspace(0, 1, 7 * 11, dtype=np.float32).reshape(7, 11)


def mask_of(*boxes: tuple[int, int, int, int]) -> np.ndarray:
    mask = np.zeros((28, 56), bool)
    for x1, y1, x2, y2 in boxes:
        mask[y1:y2, x1:x2] = True
        mask[y1 + 1, x1 + 1] = False  # a hole does not matter
    return mask


@pytest.mark.parametrize(
    "boxes",
    [[(14, 7, 42, 21)], [(0, 0, 14, 14), (28, 7, 49, 28)], [(53, 25, 56, 28)], [(0, 0, 56, 27)]],
)
def test_the_boxes_of_all_regions_are_what_is_scored(boxes: list) -> None:
    """Also where the map's peak lies elsewhere."""
    truth = union_map([(x1 / 56, y1 / 28, x2 / 56, y2 / 28) for x1, y1, x2, y2 in boxes])
    for s in (RAMP, -RAMP):
        found = box_map(s, mask_of(*boxes))
        scores = score(found[None], truth[None])
        assert scores["sspl"][0] > 0.999
        assert scores["adaptive"][0] > 0.999
        assert (found.min(), found.max()) == (0, 1)


def test_the_order_within_and_outside_stays_the_maps() -> None:
    found = box_map(RAMP, mask_of((14, 7, 42, 21)))
    assert found[100, 160] > found[80, 160] > found[200, 200] > found[10, 10]


class Outliner:
    """Outlines the left half where a map is hot there, and counts the pictures."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, ...]] = []

    def see(self, frame: np.ndarray) -> tuple[int, ...]:
        self.seen.append(frame.shape)
        return frame.shape

    def outline(self, seen: tuple[int, ...], similarity: np.ndarray) -> np.ndarray | None:
        mask = np.zeros(seen[:2], bool)
        mask[:, : seen[1] // 2] = True
        return mask if similarity[0, 0] > 0 else None


def test_a_map_without_an_outline_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    outliner = Outliner()
    monkeypatch.setattr(predictions, "load_outliner", lambda device: outliner)
    s = np.array([[[1, 0], [0, 0]], [[0, 1], [0, 1]]], np.float32)
    frames = ["a", "a"]
    found = box_maps(s, frames, lambda name: np.zeros((28, 56, 3), np.uint8), torch.device("cpu"))
    assert ((found[0] >= 0.5) == (np.arange(224) < 112)).all()
    assert ((found[1] >= 0.5) == (np.arange(224) >= 112)).all()
    assert len(outliner.seen) == 1


def test_an_evaluation_has_a_second_row(monkeypatch, tiny_pairs, tmp_path) -> None:
    from test_runner import save_model

    monkeypatch.setattr(predictions, "load_outliner", lambda device: Outliner())
    model = save_model(tmp_path / "model")
    (result,) = evaluate([model], ["escvoc-val"], data=tiny_pairs.root, outline=True).results
    first, second = [c for c in result.contenders if c.kind == "model"]
    assert first.name in second.name and set(second.scores) == set(PROTOCOLS)
    assert (first.maps != 0).any() and second.maps.shape[1:] == (224, 224)
