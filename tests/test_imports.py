"""The package's import graph: downward between folders, and without cycles between modules."""

import ast
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import soundspot

ROOT = Path(soundspot.__file__).parent
# A folder imports only from folders to its left.
FOLDERS = (
    *("common", "parallel", "media", "data", "encoders", "features", "model"),
    *("training", "inference", "evaluation", "reproduce", "cli"),
)
TOP_LEVEL_FILES = {"__init__.py", "__main__.py", "py.typed"}
TOP_LEVEL_FOLDERS = {*FOLDERS, "pretrained"}  # pretrained holds the weights that ship
Graph = Mapping[str, set[str]]


def module_name(path: Path, root: Path) -> str:
    parts = path.relative_to(root.parent).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


def read_graph(root: Path) -> Graph:
    """Every module of a package, with the modules of the package that it names."""
    paths = {module_name(path, root): path for path in sorted(root.rglob("*.py"))}
    graph = {}
    for module, path in paths.items():
        package = module if path.name == "__init__.py" else module.rpartition(".")[0]
        names = imported_names(ast.parse(path.read_text("utf-8")), package, set(paths))
        graph[module] = {longest_module(name, set(paths)) for name in names} - {"", module}
    return graph


def imported_names(tree: ast.AST, package: str, modules: set[str]) -> Iterator[str]:
    """Dotted names that a file imports anywhere: on top, in a function, for types, by string."""
    top = package.partition(".")[0]
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                # A bare `import soundspot` imports nothing yet: its attributes tell, see below.
                yield from (alias.name for alias in names if alias.name != top)
            case ast.ImportFrom(module=module, names=names, level=level):
                above = package.rsplit(".", level - 1)[0] if level else ""
                start = ".".join(part for part in (above, module) if part)
                yield from (f"{start}.{alias.name}" for alias in names)
            case ast.Attribute(value=ast.Name(id=name), attr=attribute) if name == top:
                yield f"{top}.{attribute}"
            case ast.Constant(value=str(text)) if text.partition(":")[0] in modules - {top}:
                yield text.partition(":")[0]  # a table of things to import when they are needed


def longest_module(name: str, modules: set[str]) -> str:
    """The module that a dotted name belongs to; "" if it is not ours, or everyone's version."""
    if name.endswith(".__version__"):
        return ""
    while name and name not in modules:
        name = name.rpartition(".")[0]
    return name


def rank(module: str) -> int:
    """The folder's place in the order. Only cli may use the public functions."""
    _, *inner = module.split(".")
    return FOLDERS.index(inner[0] if inner else "cli")


def upward_imports(graph: Graph) -> list[str]:
    return [
        f"{module} imports {target}"
        for module, targets in graph.items()
        if module not in ("soundspot", "soundspot.__main__")
        for target in sorted(targets)
        if rank(target) > rank(module)
    ]


def import_cycle(graph: Graph) -> list[str]:
    """The modules of one cycle, in order; empty if there is none."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_folders_import_downward_only():
    assert list(upward_imports(read_graph(ROOT))) == []


def test_modules_do_not_import_each_other_in_a_circle():
    assert import_cycle(read_graph(ROOT)) == []


def test_the_top_level_holds_folders_only():
    entries = [path for path in ROOT.iterdir() if path.name != "__pycache__"]
    assert {path.name for path in entries if path.is_file()} == TOP_LEVEL_FILES
    built = {"page"}  # by `make page`
    assert {path.name for path in entries if path.is_dir()} - built == TOP_LEVEL_FOLDERS
