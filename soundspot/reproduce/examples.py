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
from PIL import Image, ImageDraw

from soundspot.common.files import write_text
from soundspot.data.pair_set import PairSet
from soundspot.evaluation.annotations import BenchmarkItem
from soundspot.evaluation.report.charts import as_data_url, pair_picture
from soundspot.inference.figures import write_picture

SHOWN = 8
SIDE = 160  # pixels of a picture
CAPTION = 22
INK = "black"


@dataclass(frozen=True, eq=False)
class Column:
    """What a line of a table makes of every pair."""

    label: str
    maps: Float[np.ndarray, "n h w"]
    scores: Float[np.ndarray, "n"]


@dataclass(frozen=True, eq=False)
class Examples:
    """Pairs, and what every line makes of them; `measure` names the scores."""

    pairs: PairSet
    scenes: Sequence[BenchmarkItem]
    columns: Sequence[Column]
    measure: str

    def chosen(self) -> list[int]:
        """The pairs to show, those with the highest mean score first."""
        return choose_pairs(np.stack([column.scores for column in self.columns]), SHOWN)


def choose_pairs(scores: Float[np.ndarray, "l n"], count: int) -> list[int]:
    """Pairs at evenly spaced quantiles of the mean score over all lines, so as to favour none."""
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


def draw_sheet(examples: Examples) -> Image.Image:
    """One pair per row: the frame with the truth, then the map of every line."""
    labels = ["truth", *(column.label for column in examples.columns)]
    chosen = examples.chosen()
    sheet = Image.new("RGB", (SIDE * len(labels), SIDE * len(chosen) + CAPTION), "white")
    pen = ImageDraw.Draw(sheet)
    for number, label in enumerate(labels):
        short = label
        while pen.textlength(short) > SIDE - 8:
            short = short[:-2].rstrip(" .") + "."
        pen.text((SIDE * number + 4, 5), short, fill=INK)
    for row, i in enumerate(chosen):
        for number, picture in enumerate(_pictures(examples, i)):
            sheet.paste(picture, (SIDE * number, SIDE * row + CAPTION))
    return sheet


def html_page(examples: Examples, results: Mapping[str, Any]) -> str:
    """The same as one self-contained page, with the score of every map."""
    labels = ["truth", *(column.label for column in examples.columns)]
    rows = []
    for i in examples.chosen():
        scene = examples.scenes[i]
        scores = [float(column.scores[i]) for column in examples.columns]
        captions = [scene.cls or "", *(f"{score:.2f}" for score in scores)]
        sources = map(as_data_url, _pictures(examples, i))
        cells = zip(sources, labels, captions, strict=True)
        rows.append({"id": scene.id, "mean": float(np.mean(scores)), "cells": list(cells)})
    environment = Environment(
        loader=PackageLoader(__package__),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    template = environment.get_template("examples.html")
    return template.render(
        results=results, labels=labels, rows=rows, side=SIDE, measure=examples.measure
    )


def _pictures(examples: Examples, i: int) -> list[Image.Image]:
    scene = examples.scenes[i]
    frame = examples.pairs.frame(scene.frame)
    boxes = [box for annotator in scene.boxes for box in annotator]
    heats = [None, *(column.maps[i] for column in examples.columns)]
    return [pair_picture(frame, heat, boxes, SIDE) for heat in heats]
