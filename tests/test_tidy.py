"""The house rules, kept by a test instead of a reviewer.

Each rule is a function over the parsed source. What may not be: a room that imports from a room
below it, a module nobody uses, a function too long to see whole, time, chance or threads
inside the core, which the simulator must own, and a package that is installed but not pinned.
"""

import ast
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "odradek"

# Each room imports only from itself and from rooms before it.
ROOMS = (
    "wire",
    "security",
    "log",
    "store",
    "placement",
    "controller",
    "replica",
    "coordinator",
    "broker",
    "client",
    "operations",
    "spark",
    "testing",
    "sim",
    "cli",
    "demo",
)
CORE = {"wire", "log", "placement", "controller", "replica", "coordinator", "broker"}

FUNCTION_LINES_MAX = 70

# Attributes of the time module that read no clock of their own, and the class the core is handed.
PURE_TIME = {"strftime", "gmtime", "localtime"}
PURE_RANDOM = {"Random"}

# Modules the outside world calls by name: nobody inside imports them, and that is right.
ENTRANCES = {
    "odradek.__main__",
    "odradek.cli.main",
    "odradek.testing.plugin",
}

MODULES = sorted(SOURCE.rglob("*.py"))


def name_of(path: Path) -> str:
    root = SOURCE.parent if path.is_relative_to(SOURCE) else ROOT  # a benchmark
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def room_of(module: str) -> str | None:
    parts = module.split(".")
    return parts[1] if parts[0] == "odradek" and len(parts) > 1 and parts[1] in ROOMS else None


def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), str(path))


def imports(tree: ast.Module, module: str, is_package: bool) -> Iterator[tuple[int, str]]:
    """Every module named by an import statement, wherever it stands, as an absolute name."""
    package = module.split(".") if is_package else module.split(".")[:-1]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            origin = ".".join([*base, *(node.module or "").split(".")]).strip(".")
            yield node.lineno, origin
            for alias in node.names:
                yield node.lineno, f"{origin}.{alias.name}"


def imports_of(path: Path) -> Iterator[tuple[int, str]]:
    return imports(tree_of(path), name_of(path), path.name == "__init__.py")


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_a_room_imports_only_from_rooms_above(path: Path) -> None:
    room = room_of(name_of(path))
    if room is None:
        return
    allowed = set(ROOMS[: ROOMS.index(room) + 1])
    wrong = [
        f"{path.relative_to(ROOT)}:{line} imports {imported}"
        for line, imported in imports_of(path)
        if room_of(imported) is not None and room_of(imported) not in allowed
    ]
    assert not wrong, "\n".join(wrong)


def test_no_module_is_unused() -> None:
    used = set(ENTRANCES)
    for path in [*MODULES, *sorted((ROOT / "benchmarks").rglob("*.py"))]:
        used.update(imported for _, imported in imports_of(path) if imported != name_of(path))
    for path in MODULES:
        # A table that names modules in strings, to import each on first use, is a use.
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                used.add(f"{name_of(path).removesuffix('.__init__')}.{node.value}")
                used.add(f"odradek.wire.messages.{node.value}")
                used.add(f"odradek.broker.handlers.{node.value}")
                used.add(node.value)
    unused = [
        name
        for path in MODULES
        if path.name != "__init__.py" and (name := name_of(path)) not in used
    ]
    assert not unused, f"nobody uses {unused}"


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_functions_can_be_seen_whole(path: Path) -> None:
    text = path.read_text()
    where = path.relative_to(ROOT)
    wrong = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > FUNCTION_LINES_MAX:
                wrong.append(f"{where}:{node.lineno} {node.name} has {length} lines")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    "path", [path for path in MODULES if room_of(name_of(path)) in CORE], ids=name_of
)
def test_the_core_owns_no_clock_no_dice_and_no_threads(path: Path) -> None:
    tree = tree_of(path)
    where = path.relative_to(ROOT)
    wrong = [
        f"{where}:{line} imports {imported}"
        for line, imported in imports_of(path)
        if imported.split(".")[0] in {"threading", "concurrent", "multiprocessing", "secrets"}
        or imported in {"time.time", "time.monotonic", "time.sleep", "time.time_ns"}
        or (imported.startswith("random.") and imported.split(".")[1] not in PURE_RANDOM)
    ]
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)):
            continue
        owner, attribute = node.value.id, node.attr
        if (
            (owner == "time" and attribute not in PURE_TIME)
            or (owner == "random" and attribute not in PURE_RANDOM)
            or (owner == "uuid" and attribute in {"uuid1", "uuid4"})
            or (owner == "os" and attribute == "urandom")
            or (owner in {"datetime", "date"} and attribute in {"now", "today", "utcnow"})
            or (owner == "asyncio" and attribute == "to_thread")
        ):
            wrong.append(f"{where}:{node.lineno} uses {owner}.{attribute}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_every_module_says_what_it_is_for(path: Path) -> None:
    assert ast.get_docstring(tree_of(path)), f"{path.relative_to(ROOT)} has no docstring"


def test_all_that_is_installed_is_pinned() -> None:
    lines = (ROOT / "requirements.lock").read_text().splitlines()
    pinned = [Requirement(line) for line in lines if line and not line.startswith("#")]
    names = {canonicalize_name(requirement.name) for requirement in pinned}
    missing = set()
    for requirement in pinned:
        for text in metadata.requires(requirement.name) or ():
            needed = Requirement(text)
            extras = requirement.extras or {""}
            if needed.marker is None or any(needed.marker.evaluate({"extra": e}) for e in extras):
                missing |= {canonicalize_name(needed.name)} - names
    assert not missing
