"""The report as one self-contained HTML page: no script, no request, for any screen.

Axes: n pairs, k pairs that are shown, h w the map as a model made it.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from jinja2 import Environment, PackageLoader, StrictUndefined

from soundspot.data.pair_set import ItemError
from soundspot.evaluation.report.pictures import as_data_url, pair_picture, success_chart
from soundspot.evaluation.report.tables import detail_tables, headline_tables, percent
from soundspot.evaluation.rows import MAIN, Contender
from soundspot.evaluation.runner import Evaluation, Result

SHOWN = 4  # pairs of each kind
LISTED = 200  # missing ids on the page; report.json has them all


Picture = dict[str, str | None]
"""Source of an image and its caption; without a source, the caption says why."""


def html_page(evaluation: Evaluation, facts: Mapping[str, Any]) -> str:
    """The whole page; `facts` say how the evaluation was made."""
    environment = Environment(
        loader=PackageLoader(__package__),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("report.html").render(
        names=", ".join(result.benchmark.name for result in evaluation.results),
        protocol=MAIN,
        sections=[_section(result) for result in evaluation.results],
        facts={key: value for key, value in facts.items() if not isinstance(value, dict | list)},
    )


def _section(result: Result) -> dict[str, Any]:
    own = [contender for contender in result.contenders if contender.kind != "trivial"]
    listed = list(result.missing.items())[:LISTED]
    return {
        "result": result,
        "missing": listed,
        "unlisted": result.lost - len(listed),
        "headline_tables": headline_tables(result),
        "detail_tables": detail_tables(result),
        "success_chart": success_chart(result.contenders),
        "examples": {c.name: grids for c in own if (grids := _examples(c, result))},
    }


def _examples(contender: Contender, result: Result) -> dict[str, list[Picture]]:
    """The best, median and worst pairs; nothing without pictures."""
    if contender.maps is None or result.pairs is None:
        return {}
    scores = contender.scores[MAIN]
    captions = [
        f"{percent(score)} · {scene.cls or ''} · {scene.id}"
        for score, scene in zip(scores, result.scenes, strict=True)
    ]
    return {
        kind: [_picture(result, i, contender.maps[i], captions[i]) for i in chosen.tolist()]
        for kind, chosen in extremes(scores, SHOWN).items()
    }


def extremes(scores: Float[np.ndarray, "n"], count: int) -> dict[str, Int[np.ndarray, "k"]]:
    """The indices of the best, median and worst pairs; few pairs are not repeated."""
    order = np.argsort(-scores, kind="stable")
    count = max(1, min(count, len(order) // 3))
    middle = (len(order) - count) // 2
    parts = (order[:count], order[middle : middle + count], order[::-1][:count])
    return dict(zip(("Best", "Median", "Worst"), parts, strict=True))


def _picture(result: Result, i: int, map: Float[np.ndarray, "h w"], caption: str) -> Picture:
    scene = result.scenes[i]
    assert result.pairs is not None  # callers have checked
    boxes = [box for annotator in scene.boxes for box in annotator]
    try:
        picture = pair_picture(result.pairs.frame(scene.frame), map, boxes)
    except ItemError as error:  # cached features may outlive their frame
        return {"source": None, "caption": str(error)}
    return {"source": as_data_url(picture), "caption": caption}
