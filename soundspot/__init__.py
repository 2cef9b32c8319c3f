"""soundspot: a frame and its sound go in, a map of where the sound comes from goes out.

import soundspot

found = soundspot.load().localize_file("clip.mp4")
found.box, found.score, found.labels
found.save("where.png")
"""

from typing import TYPE_CHECKING, Any

from soundspot.errors import SoundspotError

if TYPE_CHECKING:
    from soundspot.localize import Localization, Localizer, load, model_names

__version__ = "0.1.0.dev0"
__all__ = ["Localization", "Localizer", "SoundspotError", "load", "model_names"]


def __getattr__(name: str) -> Any:
    """Import what needs torch when it is first asked for, so that `import soundspot` is quick."""
    if name in __all__:
        from soundspot import localize

        return getattr(localize, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
