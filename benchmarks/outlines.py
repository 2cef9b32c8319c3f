"""Which mask to take: the rules of `soundspot/inference/outlines.py`, compared on ESC-VOC val.

    python benchmarks/outlines.py [--every 2] [--side 768] [-o results/outlines.json]

Every pair's map prompts MobileSAM, and each rule chooses among the masks of two points, of the box
around the hot region, or of both. Scored, by protocol `sspl`, are the boxes around the regions of
the mask that is chosen, and the map where there is none. What ships is "both: agreement x quality".
The last line is what outlines cost: CPU seconds of a picture on one thread, and their ratio to a
map that is made from frame and sound.
"""

import argparse
import json
import sys
import time
from pathlib import Path

import numpy as np
import torch

import soundspot
from soundspot.common.progress import progress
from soundspot.data.pair_set import PairSet
from soundspot.evaluation.metrics import auc, ciou_at, union_map
from soundspot.evaluation.predictions import box_map
from soundspot.evaluation.protocols import score
from soundspot.inference.maps import box_around, resize_map
from soundspot.inference.outlines import (
    LEAST_AGREEMENT,
    SIDE,
    Offer,
    Outliner,
    agreement,
    load_outliner,
    tidy,
)

PROMPTS = {"two points": slice(0, 3), "box": slice(3, 6), "both": slice(0, 6)}
GRID = 224


def filled(mask: np.ndarray) -> np.ndarray:
    """The box around a mask."""
    box = np.zeros_like(mask)
    if (found := box_around(mask)) is not None:
        x1, y1, x2, y2 = found
        box[y1:y2, x1:x2] = True
    return box


def overlap(some: np.ndarray, other: np.ndarray) -> float:
    return float((some & other).sum() / max((some | other).sum(), 1))


def rules(offer: Offer) -> dict[str, np.ndarray]:
    """Rule -> how much it likes each mask; what it likes less than 0.1 is not taken."""
    masks = offer.logits > 0
    boxes = [filled(mask) for mask in masks]
    agree = agreement(masks, offer.heat)
    hot = offer.heat >= 0.5
    enough = agree >= LEAST_AGREEMENT
    common = np.array([np.mean([overlap(box, other) for other in boxes]) for box in boxes])
    return {
        "quality": offer.quality,
        "agreement": agree * enough,
        "agreement x quality": agree * offer.quality * enough,
        "agreement of 0.3 x quality": agree * offer.quality * (agree >= 0.3),
        "agreement x quality x consensus": agree * offer.quality * common * enough,
        "overlap of box and heat x quality": offer.quality
        * np.array([overlap(box, hot) for box in boxes]),
    }


def answers(offer: Offer | None, similarity: np.ndarray, truth: np.ndarray) -> dict:
    """Rule -> the map that is scored."""
    plain = resize_map(similarity, GRID, GRID)
    if offer is None:
        return {"map": plain}
    boxed = [box_map(similarity, tidy(logits > 0)) for logits in offer.logits]
    possible = [score(found[None], truth[None])["sspl"][0] for found in boxed]
    chosen = {"map": plain, "both: the best of all (an upper bound)": boxed[np.argmax(possible)]}
    for rule, liked in rules(offer).items():
        for prompt, part in PROMPTS.items():
            best = part.start + int(liked[part].argmax())
            chosen[f"{prompt}: {rule}"] = boxed[best] if liked[best] > 0 else plain
    return chosen


def measure(pairs: PairSet, model_name: str, side: int, every: int) -> dict:
    """The scores of every rule, and the CPU seconds."""
    torch.set_num_threads(1)
    model, outliner = soundspot.load(model_name), load_outliner(torch.device("cpu"))
    outliner = Outliner(outliner.net, outliner.device, side)
    chosen, truths, seconds = [], [], {"map": [], "outline": []}
    for pair in progress(pairs.select("val")[::every], "pairs"):
        frame, waveform = pairs.frame(pair), pairs.waveform(pair)
        start = time.process_time()
        similarity = model.localize(frame, waveform).similarity
        mapped = time.process_time()
        offer = outliner.offer(outliner.see(frame), similarity)
        seconds["outline"].append(time.process_time() - mapped)
        seconds["map"].append(mapped - start)
        truths.append(union_map(pair.boxes[0]))
        chosen.append(answers(offer, similarity, truths[-1]))
    names = list(dict.fromkeys(name for one in chosen for name in one))
    table = {}
    for name in names:
        maps = np.stack([one.get(name, one["map"]) for one in chosen])
        per_pair = score(maps, np.stack(truths))["sspl"]
        table[name] = {"ciou": ciou_at(per_pair), "auc": auc(per_pair)}
    cpu = {name: float(np.median(values)) for name, values in seconds.items()}
    cpu["ratio"] = cpu["outline"] / cpu["map"]
    return {"model": model.name, "side": side, "pairs": len(truths), "rules": table, "cpu": cpu}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--pairs", type=Path, default=Path("data/escvoc"))
    parser.add_argument("--model", default="soundspot")
    parser.add_argument("--side", type=int, default=SIDE)
    parser.add_argument("--every", type=int, default=1, help="take every n-th pair")
    parser.add_argument("-o", "--out", type=Path)
    args = parser.parse_args()
    found = measure(PairSet.open(args.pairs), args.model, args.side, args.every)
    for name, row in found["rules"].items():
        print(f"{name:56s} {row['ciou']:.3f} {row['auc']:.3f}")
    print("CPU seconds:", *(f"{name} {value:.2f}" for name, value in found["cpu"].items()))
    if args.out:
        found["command"] = " ".join(["python", *sys.argv])
        args.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
