"""House rules, kept by a test instead of a reviewer.

Each rule is a function over the parsed source. They cover which package may import which, time,
chance and threads inside the core (the simulator owns them), declarations without a use, functions
and classes too large to hold in mind, and names. A list of exceptions gives a reason for each entry
and is meant to shrink.
"""

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name


def words(text: str) -> frozenset[str]:
    return frozenset(text.split())


ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "odradek"
MODULES = sorted(SOURCE.rglob("*.py"))
# Code that uses the product and is not a test of it.
USERS = [
    path
    for folder in (ROOT / "src", ROOT / "benchmarks", ROOT / "tools")
    for path in sorted(folder.rglob("*.py"))
]

# What each package may import beside itself: packages, or single modules of one. Top-level modules
# (`__init__`, `__main__`) are a package of their own, "".
MAY_IMPORT: Mapping[str, frozenset[str]] = {
    package: words(allowed)
    for package, allowed in {
        "wire": "",
        "security": "wire",
        "log": "wire",
        "store": "wire java",
        "placement": "wire",
        "controller": "store wire log.disk",
        "replica": "log store wire",
        "coordinator": "replica log wire",
        "broker": "wire security log store placement controller replica coordinator",
        "client": "wire security placement",
        "operations": "client wire placement controller.journal",
        "balance": "client wire placement operations",
        "spark": "client wire balance java",
        "testing": "client wire security broker",
        "sim": "wire security log store placement controller replica coordinator broker client",
        "console": "wire client operations balance placement security controller.journal "
        "controller.partition_states controller.replica_states",
        "demo": "client wire operations balance spark testing cli java",
        "cli": "wire security log store placement controller replica coordinator broker client "
        "operations balance spark testing sim console demo java",
        "": "cli testing",
    }.items()
}
CORE = {"wire", "log", "placement", "controller", "replica", "coordinator", "broker"}

FUNCTION_LINES_MAX = 70
CONSTRUCTOR_ARGUMENTS_MAX = 7
PUBLIC_METHODS_MAX = 25

WIDE_CLASSES = {
    "Producer": "one argument per producer setting",
    "Cluster": "its arguments are fixed public names",
}

# Words that end in -ing and are the ordinary English noun for the thing.
ING_NOUNS = {"balancing", "healing"}

# Names that two classes of the core have.
SAME_NAMES = {
    "Broker": "a process, and to placement an id with a rack",
    "Partition": "a replica on this broker, and the controller's view of all of them",
}

# Classes whose users are outside: everything public on them is offered, not unused.
OFFERED_CLASSES = {"Cluster"}
# Declarations without a use in the product, with the reason they stay.
UNUSED = {
    **dict.fromkeys(words("serialize deserialize"), "kazoo calls them on a request"),
    "wait_closed": "asyncio calls it on a server",
}

# Attributes of the time module that read no clock of their own, and the class the core is handed.
PURE_TIME = {"strftime", "gmtime", "localtime"}
PURE_RANDOM = {"Random"}

# Modules that are called by name from outside: nothing inside imports them.
ENTRY_POINTS = {"odradek.__main__", "odradek.cli.main", "odradek.testing.plugin"}


def name_of(path: Path) -> str:
    root = SOURCE.parent if path.is_relative_to(SOURCE.parent) else ROOT
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def short_name(path: Path) -> str:
    """The module's name inside the package: "log.manager"."""
    return name_of(path).removeprefix("odradek").removeprefix(".")


def package_of(module: str) -> str | None:
    """The package of the product that a module is in, "" for its top level; None for others."""
    parts = module.split(".")
    if parts[0] != "odradek":
        return None
    return parts[1] if len(parts) > 1 and parts[1] in MAY_IMPORT else ""


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), str(path))


def imports_of(path: Path) -> Iterator[tuple[int, str]]:
    """Every module named by an import statement, wherever it stands, as an absolute name."""
    module = name_of(path).split(".")
    package = module if path.name == "__init__.py" else module[:-1]
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            origin = ".".join([*base, *(node.module or "").split(".")]).strip(".")
            yield node.lineno, origin
            for alias in node.names:
                yield node.lineno, f"{origin}.{alias.name}"


def where(path: Path, line: int) -> str:
    return f"{path.relative_to(ROOT)}:{line}"


def assert_only_exceptions(found: Mapping[str, object], listed: Collection[str]) -> None:
    """What breaks a rule is on the rule's list of exceptions, and nothing else is: an entry that is
    no longer needed is removed with the last change that needed it."""
    wrong = {name: found[name] for name in found.keys() - listed}
    stale = set(listed) - found.keys()
    assert not wrong, "\n".join(f"{name}: {what}" for name, what in sorted(wrong.items()))
    assert not stale, f"no longer exceptions, take them off the list: {sorted(stale)}"


# Dependencies


def test_a_package_imports_only_what_the_matrix_allows() -> None:
    wrong: dict[str, str] = {}
    for path in MODULES:
        own = package_of(name_of(path))
        assert own is not None
        for line, imported in imports_of(path):
            other = package_of(imported)
            if other is None or other == own or imported in {"odradek", "odradek.__version__"}:
                continue
            inside = imported.removeprefix("odradek.")
            if not any(inside == item or inside.startswith(f"{item}.") for item in MAY_IMPORT[own]):
                wrong[f"{short_name(path)} -> {other}"] = f"{where(path, line)} {imported}"
    assert not wrong, wrong


def test_every_package_is_in_the_matrix() -> None:
    packages = {path.parent.name for path in SOURCE.glob("*/__init__.py")}
    assert packages <= MAY_IMPORT.keys()


def test_the_core_owns_no_clock_no_dice_and_no_threads() -> None:
    core = [path for path in MODULES if package_of(name_of(path)) in CORE]
    wrong = [line for path in core for line in clocks_dice_and_threads(path)]
    assert not wrong, "\n".join(wrong)


def clocks_dice_and_threads(path: Path) -> list[str]:
    wrong = [
        f"{where(path, line)} imports {imported}"
        for line, imported in imports_of(path)
        if imported.split(".")[0] in {"threading", "concurrent", "multiprocessing", "secrets"}
        or imported in {"time.time", "time.monotonic", "time.sleep", "time.time_ns"}
        or (imported.startswith("random.") and imported.split(".")[1] not in PURE_RANDOM)
    ]
    for node in ast.walk(tree_of(path)):
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
            wrong.append(f"{where(path, node.lineno)} uses {owner}.{attribute}")
    return wrong


# Size


def test_functions_can_be_seen_whole() -> None:
    wrong = []
    for path in MODULES:
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                length = (node.end_lineno or node.lineno) - node.lineno + 1
                if length > FUNCTION_LINES_MAX:
                    wrong.append(f"{where(path, node.lineno)} {node.name} has {length} lines")
    assert not wrong, "\n".join(wrong)


def methods_of(node: ast.ClassDef) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for statement in node.body:
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
            yield statement


def constructor_arguments(node: ast.ClassDef) -> int:
    for method in methods_of(node):
        if method.name == "__init__":
            given = method.args
            return len(given.posonlyargs) + len(given.args) + len(given.kwonlyargs) - 1
    return 0


def wide_classes() -> dict[str, str]:
    """Every class that is too wide, and how."""
    found = {}
    for path in MODULES:
        for node in ast.walk(tree_of(path)):
            if not isinstance(node, ast.ClassDef):
                continue
            arguments = constructor_arguments(node)
            public = sum(not method.name.startswith("_") for method in methods_of(node))
            if arguments > CONSTRUCTOR_ARGUMENTS_MAX or public > PUBLIC_METHODS_MAX:
                found[node.name] = (
                    f"{where(path, node.lineno)} {arguments} arguments, {public} public methods"
                )
    return found


def test_a_class_is_narrow() -> None:
    assert_only_exceptions(wide_classes(), WIDE_CLASSES)


# Uses


def test_no_module_is_unused() -> None:
    used = set(ENTRY_POINTS)
    for path in USERS:
        used.update(imported for _, imported in imports_of(path) if imported != name_of(path))
    for path in MODULES:
        # A table that names modules in strings, to import each on first use, is a use.
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                used.add(f"{name_of(path)}.{node.value}")
                used.add(f"odradek.wire.messages.{node.value}")
                used.add(f"odradek.broker.handlers.{node.value}")
                used.add(node.value)
    unused = [
        name
        for path in MODULES
        if path.name != "__init__.py" and (name := name_of(path)) not in used
    ]
    assert not unused, f"nothing uses {unused}"


def references(node: ast.AST) -> Counter[str]:
    """How often each name is read under a node: as a variable, attribute, argument or import, or in
    a string that is made of names alone, such as a quoted annotation."""
    found: Counter[str] = Counter()
    documentation = {id(constant) for constant in docstrings(node)}
    for child in ast.walk(node):
        match child:
            case ast.Name(id=name, ctx=ast.Load()) | ast.Attribute(attr=name, ctx=ast.Load()):
                found[name] += 1
            case ast.keyword(arg=str(name)) | ast.alias(name=name):
                found[name] += 1
            case ast.MatchClass(kwd_attrs=names):
                found.update(names)
            case ast.Constant(value=str(text)) if id(child) not in documentation:
                if re.fullmatch(r"[\w.|\[\], ]+", text):
                    found.update(re.findall(r"\w+", text))
    return found


def docstrings(node: ast.AST) -> Iterator[ast.AST]:
    for child in ast.walk(node):
        match child:
            case (
                ast.Module(body=[ast.Expr(value=ast.Constant() as text), *_])
                | ast.ClassDef(body=[ast.Expr(value=ast.Constant() as text), *_])
                | ast.FunctionDef(body=[ast.Expr(value=ast.Constant() as text), *_])
                | ast.AsyncFunctionDef(body=[ast.Expr(value=ast.Constant() as text), *_])
            ):
                yield text
            case ast.Assign(targets=[ast.Name(id="__all__")], value=listed):
                yield from ast.walk(listed)


def declarations(tree: ast.Module, own_classes: set[str]) -> Iterator[tuple[str, ast.stmt]]:
    """What a module declares and something must use. A decorator that calls, such as a command's or
    a fixture's, is a use; so is a base class of another library for the methods it defines."""
    for node in tree.body:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                if not any(isinstance(each, ast.Call) for each in node.decorator_list):
                    yield node.name, node
            case ast.ClassDef():
                yield node.name, node
                foreign = any(ast.unparse(b).split("[")[0] not in own_classes for b in node.bases)
                if not foreign and node.name not in OFFERED_CLASSES:
                    yield from ((method.name, method) for method in methods_of(node))
            case ast.Assign(targets=targets):
                for target in targets:
                    names = target.elts if isinstance(target, ast.Tuple) else [target]
                    yield from ((each.id, node) for each in names if isinstance(each, ast.Name))
            case ast.AnnAssign(target=ast.Name(id=name)):
                yield name, node


def test_no_declaration_is_unused() -> None:
    uses: Counter[str] = Counter()
    for path in USERS:
        uses.update(references(tree_of(path)))
    own_classes = {"Protocol", "ABC", "object"} | {
        node.name
        for path in MODULES
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.ClassDef)
    }
    unused: dict[str, str] = {}
    for path in MODULES:
        for name, node in declarations(tree_of(path), own_classes):
            if name.startswith(("__", "pytest_")) or name == "statistics":
                continue
            if uses[name] <= references(node)[name]:
                unused[name] = where(path, node.lineno)
    # Only tests, if anything, use these: remove them, or list them with the reason.
    assert_only_exceptions(unused, UNUSED)


# Names and words


def test_modules_are_nouns() -> None:
    found = [path for path in MODULES if path.stem.endswith("ing") and path.stem not in ING_NOUNS]
    assert not found, [where(path, 1) for path in found]


def test_no_two_classes_of_the_core_share_a_name() -> None:
    """Messages are named as Kafka's schemas name them, and may repeat."""
    places: dict[str, list[str]] = defaultdict(list)
    for path in MODULES:
        if package_of(name_of(path)) not in CORE | {"store"} or path.parent.name == "messages":
            continue
        for node in tree_of(path).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(where(path, node.lineno))
    shared = {name: found for name, found in places.items() if len(found) > 1}
    assert_only_exceptions(shared, SAME_NAMES)


def test_a_logger_is_called_logger() -> None:
    wrong = [
        where(path, node.lineno)
        for path in MODULES
        for node in tree_of(path).body
        if isinstance(node, ast.Assign)
        and ast.unparse(node.value).endswith("getLogger(__name__)")
        and ast.unparse(node.targets[0]) != "logger"
    ]
    assert not wrong, wrong


# Tests of what is beside untyped libraries: clients of others, Spark.
UNTYPED = {"compatibility", "demo", "interop", "spark"}
# A test that says `Any` is one in which the type checker finds nothing. Lower it with each one that
# gets its type.
ANY_IN_TESTS_MAX = 406


def test_tests_have_types() -> None:
    """How often `Any` stands in tests, outside the edge to untyped libraries."""
    found = {
        str(path.relative_to(ROOT)): count
        for path in sorted((ROOT / "tests").rglob("*.py"))
        if path.relative_to(ROOT).parts[1] not in UNTYPED
        and (count := references(tree_of(path))["Any"] - 1) > 0  # its import is no use of it
    }
    most = sorted(found.items(), key=lambda each: -each[1])[:10]
    assert sum(found.values()) <= ANY_IN_TESTS_MAX, most


def test_every_module_says_what_it_is_for() -> None:
    silent = [where(path, 1) for path in MODULES if not ast.get_docstring(tree_of(path))]
    assert not silent, "no docstring: " + ", ".join(silent)


def test_no_docstring_points_elsewhere_for_what_it_should_say() -> None:
    wrong = [
        where(path, getattr(text, "lineno", 0))
        for path in MODULES
        for text in docstrings(tree_of(path))
        if isinstance(text, ast.Constant) and "See the module's text" in str(text.value)
    ]
    assert not wrong, "\n".join(wrong)


# Words that read as metaphors where Kafka or plain English has its own: "active controller", "no
# replica", "the client", "again".
UNWANTED_WORDS = re.compile(r"\b(office|nobody|somebody|whoever|anew)\b", re.IGNORECASE)
PAGES = [
    *(ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
# Classes of ours that are called as something of Spark is, whose members the pages name.
NAMES_OF_SPARK = {"StructType", "Trigger"}


def test_processes_are_not_called_persons() -> None:
    found = {
        str(path.relative_to(ROOT)): ", ".join(sorted(used))
        for path in (*MODULES, *PAGES)
        if (used := set(UNWANTED_WORDS.findall(path.read_text())))
    }
    assert not found, found


def test_tests_have_names_in_the_same_words() -> None:
    unwanted = re.compile(rf"{UNWANTED_WORDS.pattern}|\b(told|patience)\b")
    found = [
        f"{path.relative_to(ROOT)} {name}"
        for path in sorted((ROOT / "tests").rglob("*.py"))
        for name in re.findall(r"def (test_\w+)", path.read_text())
        if unwanted.search(name.replace("_", " "))
    ]
    assert not found, "\n".join(found)


# The repository


# Scripts of measurements that a specification cites by name, and that are not kept.
PAGES_OF_MEASUREMENTS = {"docs/spec/tables.md"}


def test_pages_name_files_that_exist() -> None:
    """In backquotes, `log/log.py` from any root, or `log.py` where the text is about a package."""
    files = [f"/{path.relative_to(ROOT)}" for path in (*USERS, *ROOT.glob("tests/**/*.py"))]
    missing = [
        f"{page.relative_to(ROOT)}: {name}"
        for page in PAGES
        if str(page.relative_to(ROOT)) not in PAGES_OF_MEASUREMENTS
        for name in re.findall(r"`([\w./]+\.py)\b", page.read_text())
        if not any(file.endswith(f"/{name}") for file in files)
    ]
    assert not missing, "\n".join(missing)


def test_pages_name_members_that_exist() -> None:
    """`Partition.lost_tail` in backquotes, where the class is one of ours."""
    members: dict[str, set[str]] = defaultdict(set)
    for path in MODULES:
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.ClassDef):
                members[node.name].update(names_in(node))
    missing = [
        f"{page.relative_to(ROOT)}: {owner}.{name}"
        for page in PAGES
        for owner, name in re.findall(r"`([A-Z]\w+)\.(\w+)(?:\(\))?`", page.read_text())
        if owner in members and owner not in NAMES_OF_SPARK and name not in members[owner]
    ]
    assert not missing, "\n".join(missing)


def names_in(node: ast.ClassDef) -> Iterator[str]:
    for child in ast.walk(node):
        match child:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield name


def anchors_of(page: Path) -> set[str]:
    """What a link may name behind "#", as the site and GitHub make it of headings."""
    found = set()
    for heading in re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
        found.add(re.sub(r"\s+", "-", re.sub(r"[^\w\s-]", "", plain)))
    return found


def test_links_between_pages_lead_to_headings() -> None:
    wrong = []
    for page in PAGES:
        for target in re.findall(r"\]\(([^)\s]*#[\w-]+)\)", page.read_text()):
            path, _, anchor = target.partition("#")
            other = page.parent / path if path else page
            is_page = "//" not in target and other.suffix == ".md"
            if is_page and anchor not in anchors_of(other):
                wrong.append(f"{page.relative_to(ROOT)}: {target}")
    assert not wrong, "\n".join(wrong)


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
