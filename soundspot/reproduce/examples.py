"""Figs. 2, 5, S2 and S3: the same pairs under every line of a table, as a picture and as a page.

Axes: n pairs, l lines, h w the map as a model made it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float
from jinja2 import Environment, PackageLoader, StrictUndefined
from PIL import Image, ImageDraw, ImageFont

from soundspot.common.files import write_text
from soundspot.data.pair_set import PairSet
from soundspot.evaluation.annotations import BenchmarkItem
from soundspot.evaluation.report.charts import as_data_url, pair_picture
from soundspot.inference.figures import write_picture

SHOWN = 8
SIDE = 160  # pixels of a picture, as those below
GAP = 6
CAPTION = 26  # the score below a picture
HEADER = 44  # two lines of a label
TEXT = 14
INK, PAPER = "#1b1b1b", "white"

AnyFont = ImageFont.FreeTypeFont | ImageFont.ImageFont


@dataclass(frozen=True, eq=False)
class Column:
    """What a line of a table makes of every pair."""

    label: str
    maps: Float[np.ndarray, "n h w"]
    scores: Float[np.ndarray, "n"]


@dataclass(frozen=True, eq=False)
class Examples:
    """Pairs, and what every line makes of them.

    Attributes:
        pairs: Their media.
        scenes: The pairs.
        columns: One per line.
        measure: What the scores are.
        absent: Labels of the lines of the table that have no maps to show.
    """

    pairs: PairSet
    scenes: Sequence[BenchmarkItem]
    columns: Sequence[Column]
    measure: str
    absent: Sequence[str] = ()

    def chosen(self) -> list[int]:
        """The pairs to show, those with the highest mean score first."""
        return choose_pairs(np.stack([column.scores for column in self.columns]), SHOWN)


def choose_pairs(scores: Float[np.ndarray, "l n"], count: int) -> list[int]:
    """Pairs at evenly spaced quantiles of the mean score over all lines, so as to favor none."""
    order = np.argsort(-scores.mean(axis=0), kind="stable")
    count = min(count, len(order))
    places = (np.arange(count) + 0.5) / count * len(order)
    return [int(i) for i in order[places.astype(int)]]


def write_examples(examples: Examples, results: Mapping[str, Any], folder: Path) -> Path:
    """Write NAME.png and NAME.html into a folder, and return the page."""
    name = results["table"]
    write_picture(folder / f"{name}.png", draw_sheet(examples))
    page = folder / f"{name}.html"
    write_text(page, html_page(examples, results))
    return page


def sheet_size(columns: int, rows: int) -> tuple[int, int]:
    """Width and height of a sheet of pictures, in pixels."""
    return GAP + (SIDE + GAP) * columns, HEADER + (SIDE + CAPTION) * rows + GAP


def draw_sheet(examples: Examples) -> Image.Image:
    """One pair per row: the frame with the truth, then the map of every line with its score."""
    labels = _labels(examples)
    chosen = examples.chosen()
    sheet = Image.new("RGB", sheet_size(len(labels), len(chosen)), PAPER)
    pen, font = ImageDraw.Draw(sheet), ImageFont.load_default(size=TEXT)
    lefts = [GAP + (SIDE + GAP) * number for number in range(len(labels))]
    for left, label in zip(lefts, labels, strict=True):
        place = left + SIDE // 2, HEADER - GAP
        two_lines = "\n".join(fit(label, font))
        pen.multiline_text(place, two_lines, INK, font, anchor="md", align="center", spacing=2)
    for row, i in enumerate(chosen):
        top = HEADER + (SIDE + CAPTION) * row
        cells = zip(lefts, _pictures(examples, i), _captions(examples, i), strict=True)
        for left, picture, caption in cells:
            sheet.paste(picture, (left, top))
            pen.text((left + SIDE // 2, top + SIDE + 2), caption, INK, font, anchor="ma")
    return sheet


def fit(label: str, font: AnyFont, width: int = SIDE) -> list[str]:
    """A label on at most two lines of a width; what does not fit is cut off with three dots."""
    words, first = label.split(), ""
    while words and font.getlength(f"{first} {words[0]}".strip()) <= width:
        first = f"{first} {words.pop(0)}".strip()
    last = kept = " ".join(words)
    while font.getlength(last) > width:
        kept = kept[:-1].rstrip()
        last = f"{kept}..."
    return [line for line in (first, last) if line]


def html_page(examples: Examples, results: Mapping[str, Any]) -> str:
    """The same as one self-contained page."""
    labels = _labels(examples)
    rows = []
    for i in examples.chosen():
        sources = map(as_data_url, _pictures(examples, i))
        cells = zip(sources, labels, _captions(examples, i), strict=True)
        rows.append({"id": examples.scenes[i].id, "cells": list(cells)})
    environment = Environment(
        loader=PackageLoader(__package__),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    template = environment.get_template("examples.html")
    return template.render(
        results=results,
        labels=labels,
        rows=rows,
        side=SIDE,
        measure=examples.measure,
        truth=any(scene.boxes for scene in examples.scenes),
        absent=examples.absent,
    )


def _labels(examples: Examples) -> list[str]:
    return ["frame", *(column.label for column in examples.columns)]


def _captions(examples: Examples, i: int) -> list[str]:
    """The class and the mean score below the frame, and its score below each map."""
    scores = [float(column.scores[i]) for column in examples.columns]
    named = [examples.scenes[i].cls, f"mean {np.mean(scores):.2f}"]
    return [", ".join(filter(None, named)), *(f"{score:.2f}" for score in scores)]


def _pictures(examples: Examples, i: int) -> list[Image.Image]:
    scene = examples.scenes[i]
    frame = examples.pairs.frame(scene.frame)
    boxes = [box for annotator in scene.boxes for box in annotator]
    heats = [None, *(column.maps[i] for column in examples.columns)]
    return [pair_picture(frame, heat, boxes, SIDE) for heat in heats]
