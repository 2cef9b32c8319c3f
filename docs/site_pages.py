"""Pages of the site that are kept elsewhere in the repository, for mkdocs."""

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
# What README.md links to -> where it is on the site; links to other files become plain text.
MOVED = {"CONTRIBUTING.md": "contributing.md", "SECURITY.md": "SECURITY.md"}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add README.md as the start page, the model cards and the other pages of the top folder."""
    cards = sorted((ROOT / "soundspot" / "pretrained").glob("*.md"))
    pages = {
        "index.md": start_page(_read("README.md")),
        "cards.md": "\n".join(card.read_text(encoding="utf-8") for card in cards),
        "contributing.md": _read("CONTRIBUTING.md"),
        "SECURITY.md": _read("SECURITY.md"),
        "changelog.md": _read("CHANGELOG.md"),
    }
    for name, text in pages.items():
        files.append(File.generated(config, name, content=text))
    return files


def start_page(readme: str) -> str:
    """README.md with the links that the site needs."""

    def link(match: re.Match[str]) -> str:
        text, target = match.groups()
        path, hash_, part = target.partition("#")
        if target.startswith("https:"):
            return match[0]
        if path.startswith("docs/"):
            return f"[{text}]({target.removeprefix('docs/')})"
        return f"[{text}]({MOVED[path]}{hash_}{part})" if path in MOVED else text

    return re.sub(r"\[([^]]*)\]\(([^)]*)\)", link, readme)


def _read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")
