import numpy as np
import pytest

from brightness import brightness_localizer
from soundspot.evaluation.annotations import BenchmarkItem
from soundspot.evaluation.source_detection import (
    NOISE,
    OFF_SCREEN,
    Detections,
    draw_negative_sounds,
    f1_at,
    score_extended,
    verdicts,
)

BOX = ((0.25, 0.25, 0.75, 0.75),)


def test_an_extended_benchmark_judges_its_negatives():
    maps = np.zeros((4, 3, 5), dtype=np.float32)
    maps[:, 1, 1] = [0.9, 0.8, 0.7, 0.1]
    visible = np.array([True, False, True, False])
    scores = score_extended("m", maps, visible, np.array([0.6, 0.7])).scores
    # By confidence: right, wrong, right. Precision 1, 1/2, 2/3; recall 1/2, 1/2, 1.
    assert scores.ap == pytest.approx(0.5 * 1 + 0.5 * 2 / 3)
    assert scores.max_f1 == pytest.approx(0.8)
    assert (scores.loc_acc, scores.positives, scores.negatives) == (1, 2, 2)


def test_f1_at_a_threshold_by_hand():
    detections = Detections(
        confidence=np.array([0.9, 0.5, 0.2, 0.6, 0.1]),
        scores=np.array([0.8, 0.1, 0.9, 0.0, 0.0]),
        positive=np.array([True, True, True, False, False]),
        kinds=("", "", "", NOISE, OFF_SCREEN),
    )
    # At 0.4: one true, one in the wrong place, one on noise, one missed.
    assert f1_at(detections, 0.4) == pytest.approx(2 / (2 + 2 + 1))
    assert f1_at(detections.only(OFF_SCREEN), 0.4) == pytest.approx(2 / (2 + 1 + 1))
    judged = detections.summarize()
    assert f1_at(detections, judged.threshold) == pytest.approx(judged.max_f1)


def test_negative_sounds_are_of_another_class():
    classes = ["cat", "dog", "cat", "cow", "dog", "cat", "cow"]
    scenes = [BenchmarkItem(str(i), "f", c, (BOX,), c) for i, c in enumerate(classes)]
    sounds = draw_negative_sounds(scenes)
    assert [sound is None for sound in sounds] == [i % 2 == 1 for i in range(7)]
    assert all(a != b for a, b in zip(sounds, classes, strict=True))
    assert sounds == draw_negative_sounds(scenes)


def test_verdicts_are_counted_by_kind():
    maps = np.zeros((5, 3, 5), dtype=np.float32)
    maps[:, 1, 1] = [0.9, 0.2, 0.7, 0.1, 0.8]
    scenes = [
        BenchmarkItem(str(i), "f", "s", (BOX,) if i in (0, 1, 4) else (), "ab"[i > 2])
        for i in range(5)
    ]
    rows = verdicts(brightness_localizer(threshold=0.5), maps, scenes)
    counts = {
        row.kind: (row.pairs, row.visible, row.called_visible, row.unknown, row.right)
        for row in rows
    }
    assert counts == {"all": (5, 3, 3, 0, 3), "a": (3, 2, 2, 0, 1), "b": (2, 1, 1, 0, 2)}
    assert verdicts(brightness_localizer(), maps, scenes) == []
