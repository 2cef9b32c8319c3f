"""The tables of a report, defined once for the terminal, Markdown and HTML.

Numbers are in %. Axes: n pairs.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float
from rich.box import SIMPLE_HEAD
from rich.table import Table as RichTable
from rich.text import Text

from soundspot.evaluation.benchmarks import HARD
from soundspot.evaluation.metrics import auc, ciou_at
from soundspot.evaluation.protocols import PROTOCOLS
from soundspot.evaluation.rows import MAIN
from soundspot.evaluation.runner import Result

SMALL, LARGE = 0.1, 0.5  # shares of the frame
LISTENING = {  # measure -> its short name, and whose share it is
    "peak_side": ("peak side", "sounds whose peak is on the sounding side"),
    "both_sides": ("both sides", "duets where both are"),
    "peak_in_box": ("peak box", "peaks in the true box"),
    "flips": ("flips", "pairs of sounds whose peaks are each in its own box only"),
    "peak_in_box_large": ("box, large", "peaks in a true box of at least 3 % of the frame"),
    "flips_large": ("flips, large", "pairs of sounds of those that flip"),
    "both_found": ("both found", "mixtures of which each sound is named and its peak in its box"),
    "precision": ("precision", "maps that are"),
    "cap": ("CAP", "the pixel precision of the maps of classes"),
    "piap": ("PIAP", "that of the maps in the best order"),
    "ciou_03": ("CIoU@0.3", "mixtures whose mean IoU of classes is at least 0.3"),
    "iiou": ("IIoU", "pictures located with all of their sounds (sspl)"),
    "map_correlation": ("corr.", "agreement: the correlation of a picture's maps (1 = deaf)"),
}


@dataclass(frozen=True)
class Table:
    """Text in rows and columns; the second line of a cell is small print."""

    title: str
    note: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def markdown(self) -> str:
        """As Markdown."""
        lines = [f"### {self.title}", "", self.note, ""]
        lines.append(f"| {' | '.join(self.header)} |")
        lines.append("|---" + "|---:" * (len(self.header) - 1) + "|")
        for row in self.rows:
            cells = (cell.replace("|", "\\|").replace("\n", "<br>") for cell in row)
            lines.append(f"| {' | '.join(cells)} |")
        return "\n".join(lines) + "\n"

    def rich(self) -> RichTable:
        """For the terminal."""
        table = RichTable(
            title=self.title, caption=self.note, box=SIMPLE_HEAD, padding=(0, 1, 0, 0)
        )
        table.title_justify = table.caption_justify = "left"
        for i, name in enumerate(self.header):
            # If space is short, break names: numbers must stay whole.
            table.add_column(name, justify="right" if i else "left", no_wrap=i > 0, overflow="fold")
        for row in self.rows:
            parts = (cell.partition("\n") for cell in row)
            table.add_row(*(Text.assemble(a + newline, (b, "dim")) for a, newline, b in parts))
        return table


def headline_tables(result: Result) -> list[Table]:
    """The main tables, which the terminal shows too."""
    tables = [_scores(result)]
    if result.benchmark.name in HARD:
        tables.append(_by_class(result, "By kind"))
    if any(row.listening for row in result.rows):
        tables.append(_listening(result))
    if result.verdicts:
        tables.append(_verdicts(result))
    if result.source_detections:
        tables.append(_source_detections(result))
    if result.unseen:
        tables.append(_unseen(result))
    if result.comparisons:
        tables.append(_comparisons(result))
    return tables


def overview(results: Sequence[Result]) -> Table:
    """All contenders on all benchmarks."""
    names = [result.benchmark.name for result in results]
    cells: dict[str, dict[str, str]] = {}
    for result in results:
        for row in result.rows:
            if row.protocol == MAIN:
                peak = row.listening.get("both_found", row.listening.get("peak_in_box"))
                part = "–" if peak is None else percent(peak)
                cell = f"{percent(row.ciou)} / {percent(row.auc)}\npeak {part}"
                cells.setdefault(row.model, {})[result.benchmark.name] = cell
    rows = ((model, *(known.get(name, "–") for name in names)) for model, known in cells.items())
    note = (
        f"cIoU@0.5 / AUC in %, protocol {MAIN}; below, peaks in the true box (mixtures: of both)."
    )
    return Table("all benchmarks", note, ("model", *names), tuple(rows))


def detail_tables(result: Result) -> list[Table]:
    """The same numbers by class and by object size."""
    tables = []
    if result.benchmark.name not in HARD and any(scene.cls for scene in result.scenes):
        tables.append(_by_class(result, "By class"))
    share = (result.truths > 0).mean(axis=(1, 2))
    sizes = {
        f"small, < {SMALL:.0%}": share < SMALL,
        f"medium, {SMALL:.0%} to {LARGE:.0%}": (share >= SMALL) & (share <= LARGE),
        f"large, > {LARGE:.0%}": share > LARGE,
    }
    note = "cIoU / AUC by the share of the frame that the truth covers"
    tables.append(_parts(result, "By object size", note, sizes))
    return tables


def _by_class(result: Result, title: str) -> Table:
    classes = [scene.cls for scene in result.scenes]
    names = sorted({name for name in classes if name is not None})
    parts = {name: np.array([cls == name for cls in classes]) for name in names}
    return _parts(result, title, f"cIoU / AUC of each {title.removeprefix('By ')}", parts)


def _scores(result: Result) -> Table:
    rules = "; ".join(f"{name}: {protocol.rule}" for name, protocol in PROTOCOLS.items())
    note = f"cIoU@0.5 / AUC in %, with the 95 % interval of cIoU below. {rules}."
    models: dict[str, tuple[str, ...]] = {}
    for row in result.rows:
        cell = f"{percent(row.ciou)} / {percent(row.auc)}\n{_range(row.ciou_low, row.ciou_high)}"
        models[row.model] = (*models.get(row.model, (row.model,)), cell)
    title = f"{result.benchmark.name}: {result.coverage}"
    return Table(title, note, ("model", *PROTOCOLS), tuple(models.values()))


def _listening(result: Result) -> Table:
    measured = [row for row in result.rows if row.protocol == MAIN and row.listening]
    shown = {
        key: words
        for key, words in LISTENING.items()
        if any(key in row.listening for row in measured)
    }
    rows = [(row.model, *(_measure(row.listening, key) for key in shown)) for row in measured]
    names = (name for name, _ in shown.values())
    note = f"Share of {'; of '.join(told for _, told in shown.values())}."
    title = f"{result.benchmark.name}: where is the peak, does it listen?"
    return Table(title, note, ("model", *names), tuple(rows))


def _measure(values: Mapping[str, float], key: str) -> str:
    if key not in values:
        return "–"
    middle, low, high = values[key], values[f"{key}_low"], values[f"{key}_high"]
    if key == "map_correlation":  # it can be negative, so not in %
        return f"{middle:.2f}\n{low:.2f}–{high:.2f}"
    return f"{percent(middle)}\n{_range(low, high)}"


def _verdicts(result: Result) -> Table:
    counts = ("pairs", "right", "visible", "called_visible", "unknown")
    rows = [
        (row.model, row.kind, *(f"{getattr(row, key):,}" for key in counts))
        for row in result.verdicts
    ]
    note = 'Pairs whose verdict is right, beside those of which "always visible" is right.'
    header = ("model", "kind", "pairs", "right", "constant", "called visible", "unknown")
    return Table(f"{result.benchmark.name}: the verdict", note, header, tuple(rows))


def _source_detections(result: Result) -> Table:
    rows = [
        (
            row.model,
            row.negatives,
            f"{row.scores.positives:,} + {row.scores.negatives:,}",
            percent(row.scores.ap),
            f"{percent(row.scores.max_f1)}\nat {row.scores.threshold:.3f}",
            "–" if row.f1 is None else f"{percent(row.f1)}\nat {row.calibrated:.3f}",
            percent(row.scores.loc_acc),
        )
        for row in result.source_detections
    ]
    note = (
        "Pairs with and without a visible source, separated by the peak of the map: average "
        "precision, best F1, F1 at the threshold chosen on val, and share of positives located."
    )
    header = ("model", "negatives", "pairs", "AP", "max-F1", "F1 (val)", "LocAcc")
    title = f"{result.benchmark.name}: no visible source?"
    return Table(title, note, header, tuple(rows))


def _unseen(result: Result) -> Table:
    kinds = list(result.unseen[0].lit)
    rows = [
        (
            row.model,
            f"{percent(row.ciou)}\nat {row.threshold:.3f}",
            *(percent(row.lit[kind]) for kind in kinds),
            f"{row.alignment:.3f}\n{row.separability:+.3f}",
            *(" / ".join(map(percent, found)) for found in (row.frames, row.sounds)),
        )
        for row in result.unseen
    ]
    note = (
        "cIoU of maps cut at one threshold, chosen on val, and the share of the frame above it "
        "(pIA); the mean peak, and how far it is above that under other classes' sounds; "
        "R@1 / 5 / 10 by class."
    )
    lit = (f"lit by {kind}" for kind in kinds)
    header = ("model", "cIoU", *lit, "alignment", "frames by sound", "sounds by frame")
    return Table(f"{result.benchmark.name}: sounds from nowhere", note, header, tuple(rows))


def _comparisons(result: Result) -> Table:
    rows = [
        (
            f"{tested.first} − {tested.other}",
            {"ciou": "cIoU", "auc": "AUC"}[tested.measure],
            f"{100 * tested.test.difference:+.1f}",
            f"{100 * tested.test.interval.low:+.1f} to {100 * tested.test.interval.high:+.1f}",
            "< 0.001" if tested.test.p < 0.001 else f"{tested.test.p:.3f}",
        )
        for tested in result.comparisons
    ]
    note = "On the same pairs, protocol sspl: difference in points, 95 % interval, sign-flip test."
    header = ("models", "measure", "difference", "interval", "p")
    return Table(f"{result.benchmark.name}: paired tests", note, header, tuple(rows))


def _parts(
    result: Result, title: str, note: str, parts: Mapping[str, Bool[np.ndarray, "n"]]
) -> Table:
    shown = [c for c in result.contenders if c.kind != "trivial"]
    shown += [c for c in result.contenders if c.name == "centered disc"]
    rows = [
        (name, f"{members.sum():,}", *(_short(c.scores[MAIN][members]) for c in shown))
        for name, members in parts.items()
    ]
    header = (title.removeprefix("By "), "pairs", *(contender.name for contender in shown))
    return Table(title, f"{note}, in %, protocol {MAIN}.", header, tuple(rows))


def _short(scores: Float[np.ndarray, "n"]) -> str:
    return f"{percent(ciou_at(scores))} / {percent(auc(scores))}" if len(scores) else "–"


def percent(value: float) -> str:
    """A fraction in % with one decimal, halves rounded up."""
    return f"{math.floor(1000 * value + 0.5 + 1e-9) / 10:.1f}"


def _range(low: float, high: float) -> str:
    return f"{percent(low)}–{percent(high)}"
