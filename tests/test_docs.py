"""Pages name files, functions, recipes and commands that exist; links of README lead somewhere."""

import ast
import re
import shlex
from pathlib import Path

import pytest

from soundspot.cli.app import app
from soundspot.model.methods import METHODS
from test_imports import FOLDERS

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
PAGE = (ROOT / "docs" / "paper_to_code.md").read_text(encoding="utf-8")
# `soundspot/file.py`, and after a colon the names in it: `function`, `Class.method`, ...
MENTION = re.compile(r"`(soundspot/[\w/]+\.py)`(?:: (`[\w.]+`(?:, `[\w.]+`)*))?")


def mentions() -> dict[str, set[str]]:
    """File -> names that the page says it has."""
    names: dict[str, set[str]] = {}
    for file, listed in MENTION.findall(PAGE):
        names.setdefault(file, set()).update(re.findall(r"[\w.]+", listed))
    return names


def defined(body: list[ast.stmt], prefix: str = "") -> set[str]:
    """Functions, classes, methods and constants of a module."""
    names = set()
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(prefix + node.name)
        if isinstance(node, ast.ClassDef):
            names |= defined(node.body, f"{prefix}{node.name}.")
        targets = node.targets if isinstance(node, ast.Assign) else []
        targets = [node.target] if isinstance(node, ast.AnnAssign) else targets
        names |= {prefix + target.id for target in targets if isinstance(target, ast.Name)}
    return names


@pytest.mark.parametrize("file", sorted(mentions()))
def test_the_paper_to_code_table_names_what_exists(file: str) -> None:
    assert (ROOT / file).is_file()
    present = defined(ast.parse((ROOT / file).read_text(encoding="utf-8")).body)
    assert mentions()[file] <= present, f"{file} lacks {sorted(mentions()[file] - present)}"


def test_every_path_in_the_table_is_checked() -> None:
    assert len(mentions()) > 10
    assert set(re.findall(r"[\w/]+\.py", PAGE.partition("|---")[2])) == set(mentions())
    for path in re.findall(r"`((?:soundspot|recipes|tests)/[\w./]*)`", PAGE):
        assert (ROOT / path).exists(), path


def test_the_links_of_the_readme_lead_somewhere() -> None:
    links = re.findall(r"\]\(([^)#]+)[^)]*\)", (ROOT / "README.md").read_text(encoding="utf-8"))
    here = [link for link in links if not link.startswith("https://")]
    assert len(here) > 10
    assert [link for link in here if not (ROOT / link).exists()] == []


def test_the_recipes_that_pages_name_exist() -> None:
    text = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
    named = set(
        re.findall(r"(?:`|train |recipe |recipes/)((?:escvoc|flickr|vggsound)\w*_\w+)", text)
    )
    assert named and named <= {path.stem for path in (ROOT / "recipes").glob("*.yaml")}


def test_the_page_of_methods_lists_the_table() -> None:
    page = (ROOT / "docs" / "methods.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| `([\w-]+)` \|.* \|", page, re.MULTILINE)
    assert set(listed) - {"method"} == set(METHODS)


COMMANDS = {
    (page.name, line)
    for page in PAGES
    for line in re.findall(r"^    soundspot (.*)", page.read_text(encoding="utf-8"), re.MULTILINE)
    if not line.startswith("prepare CORPUS")  # a pattern
}


@pytest.mark.parametrize(("page", "line"), sorted(COMMANDS))
def test_the_commands_of_the_pages_are_understood(page: str, line: str) -> None:
    app.parse_args(shlex.split(line, comments=True), print_error=False, exit_on_error=False)


def test_the_page_of_the_design_lists_the_folders_in_their_order() -> None:
    page = (ROOT / "docs" / "design.md").read_text(encoding="utf-8")
    listed = re.findall(r"^      (\w+)/ ", page, re.MULTILINE)
    assert listed == [*FOLDERS, "pretrained"]
