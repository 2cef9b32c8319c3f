"""Can a benchmark be trusted? What a training list has of it, and which of its sources sound."""

import csv
import io
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from soundspot.common.config import read_bytes
from soundspot.common.errors import SoundspotError
from soundspot.common.id_lists import write_ids
from soundspot.evaluation.annotations import BenchmarkItem, vggss

COLUMNS = ("video_id", "label", "modality")  # of VGGSounder
MEDIA_SUFFIX = re.compile(r"\.(mp4|mkv|webm|avi|mov|wav|flac|mp3|m4a|jpg|jpeg|png)$", re.IGNORECASE)


@dataclass(frozen=True)
class AuditReport:
    """What a training list of so many items shares with a benchmark, and the list without that."""

    train: int
    benchmark: int
    leaked: tuple[str, ...]
    clean_train: tuple[str, ...]

    def describe(self, train_list: Path, benchmark: str) -> str:
        """The findings in two lines."""
        return (
            f"{benchmark}: {len(self.leaked):,} of {self.benchmark:,} items are in "
            f"{train_list.name} ({self.train:,} items) by id\n"
            f"clean: {len(self.clean_train):,} items to train on, or "
            f"{self.benchmark - len(self.leaked):,} to evaluate on"
        )


def compare_ids(train_ids: Iterable[str], items: Sequence[BenchmarkItem]) -> AuditReport:
    """Find the benchmark's items in a training list."""
    key = partial(MEDIA_SUFFIX.sub, "")  # some lists name clips with a suffix, some without
    train = {id: key(id) for id in train_ids}  # in the list's order, without duplicates
    listed = set(train.values())
    used = {key(name) for item in items for name in (item.frame, item.audio)}
    return AuditReport(
        train=len(train),
        benchmark=len(items),
        leaked=tuple(i.id for i in items if listed & {key(i.frame), key(i.audio)}),
        clean_train=tuple(id for id, name in train.items() if name not in used),
    )


@dataclass(frozen=True)
class SounderAudit:
    """VGG-SS joined with VGGSounder.

    Attributes:
        clips: How many clips VGG-SS has, of which VGGSounder knows `joined`.
        modalities: How many annotated classes are AV, A, V, or not confirmed ("").
        verified: Clips whose annotated class is heard and seen.
        offscreen: Clips in which some class is heard and not seen.
        single: Verified clips in which no other class is heard.
    """

    clips: int
    joined: int
    modalities: Mapping[str, int]
    verified: tuple[str, ...]
    offscreen: tuple[str, ...]
    single: tuple[str, ...]

    def write(self, folder: Path) -> None:
        """Write the lists that vggss-verified, -offscreen and -single are read from."""
        folder.mkdir(parents=True, exist_ok=True)
        for name in ("verified", "offscreen", "single"):
            write_ids(folder / f"vggss_{name}.txt", getattr(self, name))

    def describe(self) -> str:
        """The counts, one per line."""
        return "\n".join(
            [
                f"{self.joined:,} of {self.clips:,} clips are in VGGSounder",
                f"{len(self.verified):,} ({len(self.verified) / self.joined:.1%}): the annotated "
                "class is heard and seen",
                f"{self.modalities['A']:,}: heard only",
                f"{self.modalities['V']:,}: seen only",
                f"{self.modalities['']:,}: not confirmed",
                f"{len(self.offscreen):,} ({len(self.offscreen) / self.joined:.1%}): with a sound "
                "from outside the picture",
                f"{len(self.single):,}: heard and seen, and nothing else is heard",
            ]
        )


def audit_vggss(sounder: Path, annotations: Path) -> SounderAudit:
    """Join VGG-SS with VGGSounder's CSV file (the one with background music has most clips).

    VGGSounder lists for VGG-Sound's test clips every class with its modality: A (heard), V (seen)
    or AV (both). VGG-SS boxes one class per clip, without asking either.
    """
    items, labels = vggss(annotations), _read_sounder(sounder)
    modality = {i.id: labels[i.id].get(i.cls or "", "") for i in items if i.id in labels}
    if not modality:
        raise SoundspotError(f"{sounder} has none of the {len(items):,} clips of VGG-SS")
    verified = [id for id, found in modality.items() if found == "AV"]
    heard = {id: [m for m in labels[id].values() if "A" in m] for id in modality}
    return SounderAudit(
        clips=len(items),
        joined=len(modality),
        modalities=Counter(modality.values()),
        verified=tuple(verified),
        offscreen=tuple(id for id in modality if "A" in heard[id]),
        single=tuple(id for id in verified if len(heard[id]) == 1),
    )


def _read_sounder(path: Path) -> Mapping[str, Mapping[str, str]]:
    """Clip -> class -> modality."""
    labels: dict[str, dict[str, str]] = defaultdict(dict)
    try:
        reader = csv.DictReader(io.StringIO(read_bytes(path).decode()), strict=True)
        if missing := set(COLUMNS) - set(reader.fieldnames or ()):
            raise ValueError(f"it has no column {', '.join(sorted(missing))}")
        for clip, label, modality in ([row[column] for column in COLUMNS] for row in reader):
            if modality not in ("A", "V", "AV"):
                raise ValueError(f"the modality of {clip} is {modality!r}, not A, V or AV")
            labels[clip][label] = modality
    except FileNotFoundError as error:
        raise SoundspotError(f"cannot open {path}: no such file", "missing") from error
    except (OSError, ValueError, csv.Error) as error:
        raise SoundspotError(f"{path} is not VGGSounder's list ({error})", "damaged") from error
    return labels
