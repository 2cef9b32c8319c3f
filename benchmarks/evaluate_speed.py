"""Time protocols on 5,158 maps: `score` and a plain loop over maps, in one run.

The loop does what released evaluations do, one map at a time in NumPy: draw the ground truth,
resize and rescale the map, sort for each median, sort again for the top pixels, and compute cIoU.
Both start from the same maps and boxes, and must agree.

    python benchmarks/evaluate_speed.py [number of maps]
"""

import sys
import time

import numpy as np

from soundspot.evaluation.metrics import SIZE, auc, box_pixels, ciou_at, truth_maps
from soundspot.evaluation.protocols import score

TARGET = 20  # times faster, at least
TURN = 256  # maps
COMPARED = ("sspl", "lvs", "adaptive")
TOLERANCE = 1e-3  # the loop uses float64, so a few pixels at the threshold may differ


def plain_resize(cells):
    h, w = cells.shape
    y = np.clip((np.arange(SIZE) + 0.5) * h / SIZE - 0.5, 0, h - 1)
    x = np.clip((np.arange(SIZE) + 0.5) * w / SIZE - 0.5, 0, w - 1)
    y0, x0 = np.floor(y).astype(int), np.floor(x).astype(int)
    y1, x1 = np.minimum(y0 + 1, h - 1), np.minimum(x0 + 1, w - 1)
    v, u = (y - y0)[:, None], x - x0
    top = cells[np.ix_(y0, x0)] * (1 - u) + cells[np.ix_(y0, x1)] * u
    bottom = cells[np.ix_(y1, x0)] * (1 - u) + cells[np.ix_(y1, x1)] * u
    return top * (1 - v) + bottom * v


def plain_ciou(mask, truth):
    return np.sum(mask * truth) / (np.sum(truth) + np.sum(mask * (truth == 0)))


def plain_scores(cells, box):
    truth = np.zeros((SIZE, SIZE))
    x1, y1, x2, y2 = box_pixels(box)
    truth[y1:y2, x1:x2] = 1
    pixels = plain_resize(cells.astype(np.float64))
    pixels = (pixels - pixels.min()) / (pixels.max() - pixels.min())

    half = np.zeros((SIZE, SIZE))
    half[pixels >= 0.5] = 1
    lvs = np.zeros((SIZE, SIZE))
    lvs[pixels > np.sort(pixels.flatten())[SIZE * SIZE // 2]] = 1
    top = np.argsort(-pixels.flatten(), kind="stable")[: np.count_nonzero(truth)]
    adaptive = np.zeros(SIZE * SIZE)
    adaptive[top] = 1
    masks = (half, lvs, adaptive.reshape(SIZE, SIZE))
    return [plain_ciou(mask, truth) for mask in masks]


def now():
    return np.array([time.process_time(), time.perf_counter()])


def example(pairs):
    """Random boxes, and noisy 14x14 maps that are brighter inside them."""
    rng = np.random.default_rng(0)
    low, high = np.moveaxis(np.sort(rng.random((pairs, 2, 2)) * 0.9, axis=1), 1, 0)
    high += 0.1
    center = (np.arange(14) + 0.5) / 14
    inside = (center > low[:, :, None]) & (center < high[:, :, None])
    bright = inside[:, 1, :, None] & inside[:, 0, None, :]
    maps = (rng.random((pairs, 14, 14)) + bright).astype(np.float32)
    return maps, np.concatenate([low, high], axis=1).tolist()


def main(pairs):
    maps, boxes = example(pairs)
    annotations = [((tuple(box),),) for box in boxes]
    score(maps[:8], truth_maps(annotations[:8]))  # warm-up
    seconds = np.zeros((2, 2))  # rows: score, plain loop; columns: CPU time, wall time
    found, expected = [], []
    # They take turns, so that other load on the machine slows both down equally.
    for start in range(0, pairs, TURN):
        part = slice(start, start + TURN)
        began = now()
        found.append(score(maps[part], truth_maps(annotations[part]), COMPARED))
        between = now()
        expected += [plain_scores(*pair) for pair in zip(maps[part], boxes[part], strict=True)]
        seconds += [between - began, now() - between]

    print(f"{pairs:,} maps of 14x14, three protocols, truth drawn from boxes")
    for name, slow in zip(COMPARED, np.array(expected).T, strict=True):
        fast = np.concatenate([scores[name] for scores in found])
        gap = np.abs(fast - slow).max()
        print(
            f"  {name:9s} cIoU@0.5 {ciou_at(fast):.4f} | {ciou_at(slow):.4f}   "
            f"AUC {auc(fast):.4f} | {auc(slow):.4f}   largest gap {gap:.1e}"
        )
        if gap > TOLERANCE:
            sys.exit(f"{name}: the two disagree by {gap:.1e}")
    # Judged by CPU time, which other programs on the machine affect least.
    for kind, fast, slow in zip(("processor", "clock"), *seconds, strict=True):
        print(
            f"  {kind} time: plain loop {slow:.2f} s, score {fast:.2f} s, "
            f"{slow / fast:.0f} times faster"
        )
    if seconds[1, 0] / seconds[0, 0] < TARGET:
        print(f"  below the target of {TARGET} times")
        sys.exit(1)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5_158)
