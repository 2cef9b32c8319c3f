"""The report as one HTML page that needs nothing else: no script, no request, any screen.

Axes: n pairs, k pairs that are shown.
"""

from collections.abc import Sequence
from html import escape
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from soundspot.data.pair_set import ItemError
from soundspot.evaluation.metrics import SIZE, THRESHOLDS, auc, ciou_at, success_curve
from soundspot.evaluation.report.charts import Series, line_chart, pair_picture
from soundspot.evaluation.report.tables import detail_tables, headline_tables, percent
from soundspot.evaluation.rows import MAIN, Contender
from soundspot.evaluation.runner import Evaluation, Result

SHOWN = 4  # pairs of each kind
PASSES_SHOWN = 3  # pairs whose maps are shown after every pass
LISTED = 200  # missing ids that the page names; report.json names them all

STYLE = """
:root { color-scheme: light; }
body { margin: 0 auto; max-width: 980px; padding: 1.2rem; background: #fff; color: #20242c;
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: .4rem 0; }
h2 { font-size: 1.35rem; margin: 2.6rem 0 .2rem; padding-top: 1rem; border-top: 2px solid #20242c; }
h3 { font-size: 1.05rem; margin: 2rem 0 .2rem; }
p { margin: .2rem 0 .8rem; color: #555b66; max-width: 46rem; }
p.warn { color: #c81824; font-weight: 600; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: .92rem; font-variant-numeric: tabular-nums; }
th, td { padding: .4rem .8rem; text-align: right; white-space: nowrap; vertical-align: top;
  border-bottom: 1px solid #e1e4e9; }
th:first-child, td:first-child { text-align: left; padding-left: 0; }
th { border-bottom: 2px solid #20242c; }
td small { display: block; color: #707682; font-size: .8em; }
.facts td { text-align: left; white-space: normal; overflow-wrap: anywhere; }
.chart { width: 100%; max-width: 720px; height: auto; display: block; }
.chart text { font-size: 13px; fill: #555b66; }
.chart .grid { stroke: #e1e4e9; }
.legend { list-style: none; display: flex; flex-wrap: wrap; gap: .2rem 1.4rem; padding: 0;
  margin: .3rem 0 0; font-size: .9rem; }
.key { width: 32px; height: 10px; margin-right: .5rem; }
.pictures { display: grid; grid-template-columns: repeat(4, 1fr); gap: .7rem; max-width: 780px;
  margin-bottom: 1rem; }
.passes { display: grid; grid-auto-flow: column; grid-auto-columns: 112px; gap: .4rem;
  overflow-x: auto; margin-bottom: .6rem; }
figure { margin: 0; }
figure img { width: 100%; display: block; border-radius: 4px; }
figcaption { font-size: .78rem; color: #555b66; line-height: 1.3; overflow-wrap: anywhere; }
details { margin: .8rem 0; font-size: .88rem; }
summary { cursor: pointer; }
@media (max-width: 600px) {
  .pictures { grid-template-columns: repeat(2, 1fr); }
  .chart text { font-size: 19px; }
}
"""


def page(evaluation: Evaluation, provenance: dict[str, Any]) -> str:
    """The whole page."""
    sections = "".join(_section(result) for result in evaluation.results)
    names = ", ".join(result.benchmark.name for result in evaluation.results)
    untrained = [model.name for model in evaluation.models if not model.card.trained]
    warning = ""
    if untrained:
        listed = escape(", ".join(untrained))
        warning = f'<p class="warn">Untrained, so its maps mean nothing: {listed}</p>'
    facts = "".join(
        f"<tr><td>{escape(key)}</td><td>{escape(str(value))}</td></tr>"
        for key, value in provenance.items()
        if not isinstance(value, dict | list)
    )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>soundspot: {escape(names)}</title><style>{STYLE}</style></head><body>"
        f"<h1>Where does the sound come from?</h1><p>Evaluation on {escape(names)}</p>{warning}"
        f'{sections}<h2>How it was made</h2><table class="facts">{facts}</table>'
        "</body></html>\n"
    )


def _section(result: Result) -> str:
    own = [one for one in result.contenders if one.kind != "trivial"]
    parts = [
        f"<h2>{escape(result.benchmark.name)}</h2><p>{escape(result.benchmark.description)}; "
        f"{result.coverage}. {_flaws(result)}</p>",
        _missing(result),
        *(table.html() for table in headline_tables(result)),
        _success(result),
        _passes_chart(own),
        *(_passes(one, result) for one in own),
        *(_grid(one, result) for one in own),
        *(table.html() for table in detail_tables(result)),
    ]
    return f"<section>{''.join(parts)}</section>"


def _flaws(result: Result) -> str:
    found = result.flaws
    if not found.degenerate and not found.empty:
        return ""
    return (
        f"{len(found.degenerate):,} annotations have a box without a pixel, {len(found.empty):,} "
        "have no usable box at all and count as failures."
    )


def _missing(result: Result) -> str:
    if not result.lost:
        return ""
    listed = list(result.missing.items())[:LISTED]
    rows = "".join(f"<li>{escape(id)}: {escape(reason)}</li>" for id, reason in listed)
    more = result.lost - len(listed)
    rest = f"<li>and {more:,} more</li>" if more else ""
    return f"<details><summary>{result.lost:,} missing</summary><ul>{rows}{rest}</ul></details>"


def _success(result: Result) -> str:
    series = [
        Series(one.name, THRESHOLDS.tolist(), success_curve(one.scores[MAIN]).tolist(), fixed)
        for one in result.contenders
        if one.name != "oracle ceiling"
        for fixed in (one.kind == "trivial",)
    ]
    chart = line_chart(series, "cIoU threshold", "success ratio, %")
    return (
        "<h3>Success ratio</h3><p>Share of the pairs whose cIoU reaches the threshold, protocol "
        f"{MAIN}; the area under a line is its AUC. Baselines are dashed.</p>{chart}"
    )


def _passes_chart(own: Sequence[Contender]) -> str:
    series = []
    for one in own:
        if one.cycle_scores:
            scores = one.cycle_scores
            times = [float(t) for t in range(1, len(scores) + 1)]
            series.append(Series(f"cIoU, {one.name}", times, [ciou_at(s) for s in scores]))
            series.append(Series(f"AUC, {one.name}", times, [auc(s) for s in scores]))
    if not series:
        return ""
    chart = line_chart(series, "passes t of the PCM", "%", from_zero=False)
    return f"<h3>Performance against PCM passes</h3><p>Protocol {MAIN}.</p>{chart}"


def _passes(one: Contender, result: Result) -> str:
    if one.by_cycle is None or result.pairs is None:
        return ""
    order = np.argsort(one.scores[MAIN], kind="stable")
    chosen = order[np.linspace(len(order) - 1, len(order) // 2, PASSES_SHOWN).astype(int)]
    strips = []
    for i in dict.fromkeys(chosen.tolist()):
        pictures = [
            _picture(result, i, passed[i], f"t = {t}", side=112)
            for t, passed in enumerate(one.by_cycle, start=1)
        ]
        strips.append(f'<div class="passes">{"".join(pictures)}</div>')
    return f"<h3>Maps against PCM passes, {escape(one.name)}</h3>{''.join(strips)}"


def _grid(one: Contender, result: Result) -> str:
    """The best, median and worst pairs; without pictures there is nothing to show."""
    if one.maps is None or result.pairs is None:
        return ""
    scores = one.scores[MAIN]
    parts = []
    for name, chosen in extremes(scores, SHOWN).items():
        pictures = []
        for i in chosen.tolist():
            item = result.scenes[i].item
            caption = f"{percent(scores[i])} · {item.cls or ''} · {item.id}"
            pictures.append(_picture(result, i, one.maps[i], caption))
        parts.append(f'<p>{name}</p><div class="pictures">{"".join(pictures)}</div>')
    return (
        f"<h3>Best, median and worst pairs, {escape(one.name)}</h3>"
        f"<p>Heat and white contour: the map and where it is cut in half; green: the truth; the "
        f"number is the cIoU in %.</p>{''.join(parts)}"
    )


def extremes(scores: Float[np.ndarray, "n"], count: int) -> dict[str, Int[np.ndarray, "k"]]:
    """The indices of the best, median and worst pairs; no pair twice if there are few."""
    order = np.argsort(-scores, kind="stable")
    count = max(1, min(count, len(order) // 3))
    middle = (len(order) - count) // 2
    parts = (order[:count], order[middle : middle + count], order[::-1][:count])
    return dict(zip(("Best", "Median", "Worst"), parts, strict=True))


def _picture(
    result: Result, i: int, map: Float[np.ndarray, "h w"], caption: str, side: int = SIZE
) -> str:
    scene = result.scenes[i]
    boxes = [box for annotator in scene.item.boxes for box in annotator]
    if result.pairs is None or scene.frame is None:
        return ""
    try:
        source = pair_picture(result.pairs.frame(scene.frame), map, boxes, side)
    except ItemError as error:  # features may outlive their frame
        return f"<figure><figcaption>{escape(str(error))}</figcaption></figure>"
    text = escape(caption)
    return f'<figure><img src="{source}" alt="{text}"><figcaption>{text}</figcaption></figure>'
