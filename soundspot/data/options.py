"""Which clips of a corpus become a pair set, and how the work is done; no torch is needed."""

import hashlib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from soundspot.common.id_lists import read_ids
from soundspot.parallel.engines import EngineName


@dataclass(frozen=True)
class Options:
    """Which clips, and how they are prepared.

    Attributes:
        ids: List of ids, one per line (.txt) or in the first column (.csv); may be gzipped.
        subset: Only this many clips, drawn at random.
        seed: Seed of the draw.
        engine: Run on this machine (local) or on a Ray cluster (ray).
        jobs: Number of processes; default: one per core.
        strict: Exit with code 2 on any loss.
    """

    ids: Path | None = None
    subset: int | None = None
    seed: int = 0
    engine: EngineName = "local"
    jobs: int | None = None
    strict: bool = False

    @cached_property
    def listed(self) -> list[str] | None:
        """The lines of the list: ids, file names or paths."""
        return None if self.ids is None else read_ids(self.ids)

    def rules(self) -> dict[str, Any]:
        """The part that belongs to a pair set's provenance."""
        rules: dict[str, Any] = {}
        if self.listed is not None:
            rules["ids"] = digest_of("\n".join(self.listed))
        if self.subset is not None:
            rules |= {"subset": self.subset, "seed": self.seed}
        return rules


@dataclass(frozen=True)
class SplitOptions(Options):
    """The same, and how the clips are split.

    Attributes:
        val: Fraction of the clips in the validation split, chosen by the hash of their ids.
        test: Fraction of the clips in the test split.
    """

    val: float = 0.1
    test: float = 0.0

    def rules(self) -> dict[str, Any]:
        """The part that belongs to a pair set's provenance."""
        return {"val": self.val, "test": self.test, **super().rules()}


HERE, HERE_SPLIT = Options(jobs=1), SplitOptions(jobs=1)  # in this very process


def digest_of(text: str) -> str:
    """A short digest of a list, for a pair set's provenance."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
