"""Pages of the site that are kept elsewhere in the repository, for mkdocs."""

from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the model cards, CONTRIBUTING.md, SECURITY.md and CHANGELOG.md."""
    cards = sorted((ROOT / "soundspot" / "pretrained").glob("*.md"))
    pages = {
        "cards.md": "\n".join(card.read_text(encoding="utf-8") for card in cards),
        "contributing.md": (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"),
        "SECURITY.md": (ROOT / "SECURITY.md").read_text(encoding="utf-8"),
        "changelog.md": (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"),
    }
    for name, text in pages.items():
        files.append(File.generated(config, name, content=text))
    return files
