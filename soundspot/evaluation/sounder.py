"""What VGGSounder says of VGG-SS: which annotated sources are heard and seen, and what else sounds.

VGGSounder lists for VGG-Sound's test clips every class with its modality: A (heard), V (seen) or AV
(both). VGG-SS boxes one class per clip, without asking either.
"""

import csv
import io
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from soundspot.common.config import read_bytes
from soundspot.common.errors import SoundspotError
from soundspot.common.id_lists import write_ids
from soundspot.evaluation.annotations import BenchmarkItem, vggss

COLUMNS = ("video_id", "label", "modality")
Labels = Mapping[str, Mapping[str, str]]  # clip -> class -> modality


@dataclass(frozen=True)
class SounderAudit:
    """VGG-SS joined with VGGSounder.

    Attributes:
        clips: How many clips VGG-SS has.
        joined: How many of these VGGSounder knows.
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
    """Join VGG-SS with VGGSounder's CSV file (the one with background music has most clips)."""
    return join(vggss(annotations), read_sounder(sounder), sounder)


def join(items: Sequence[BenchmarkItem], labels: Labels, where: object) -> SounderAudit:
    """Ask VGGSounder about every clip and its annotated class."""
    known = [item for item in items if item.id in labels]
    if not known:
        raise SoundspotError(f"{where} has none of the {len(items):,} clips of VGG-SS")
    modality = {item.id: labels[item.id].get(item.cls or "", "") for item in known}
    verified = [id for id, found in modality.items() if found == "AV"]
    heard = {id: [m for m in labels[id].values() if "A" in m] for id in modality}
    return SounderAudit(
        clips=len(items),
        joined=len(known),
        modalities=Counter(modality.values()),
        verified=tuple(verified),
        offscreen=tuple(id for id in modality if "A" in heard[id]),
        single=tuple(id for id in verified if len(heard[id]) == 1),
    )


def read_sounder(path: Path) -> Labels:
    """Read VGGSounder's CSV: one row per clip and class."""
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


def write_lists(audit: SounderAudit, folder: Path) -> None:
    """Write the lists from which the benchmarks vggss-verified, -offscreen and -single are read."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("verified", "offscreen", "single"):
        write_ids(folder / f"vggss_{name}.txt", getattr(audit, name))
