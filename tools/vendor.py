"""Bring the browser libraries of the console from the npm registry, by name, version and hash.

Each package's archive must have the hash in `vendor.json`, which stands beside the files it lists;
`--update` writes the hashes of what the registry has now. Two changes are made, so that files load
as ES modules without a build step and in few requests: Preact, its hooks and htm become one module,
and uPlot, which ships no minified module, gets a default export.
"""

import argparse
import base64
import hashlib
import io
import json
import re
import tarfile
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
CONSOLE = ROOT / "src" / "odradek" / "console" / "static" / "vendor"
BROWSER_TESTS = ROOT / "tests" / "browser" / "vendor"


PARTS = ("preact.js", "hooks.js", "htm.js")
EXPORTS = """export const { h, render, Fragment, createContext } = preact;
export const {
  useState, useEffect, useLayoutEffect, useMemo, useRef, useCallback, useContext, useId,
  useErrorBoundary,
} = hooks;
export const html = htm.bind(h);
"""


class Package(NamedTuple):
    name: str
    version: str
    licence: str
    files: Mapping[str, str]  # in the archive -> here


PACKAGES: Mapping[Path, tuple[Package, ...]] = {
    CONSOLE: (
        Package(
            "preact",
            "11.2.0",
            "MIT",
            {
                "dist/preact.mjs": "preact.js",
                "hooks/dist/hooks.mjs": "hooks.js",
                "LICENSE": "preact.LICENSE",
            },
        ),
        Package("htm", "3.1.1", "Apache-2.0", {"dist/htm.mjs": "htm.js", "LICENSE": "htm.LICENSE"}),
        Package(
            "uplot",
            "1.6.32",
            "MIT",
            {
                "dist/uPlot.iife.min.js": "uplot.js",
                "dist/uPlot.min.css": "uplot.css",
                "LICENSE": "uplot.LICENSE",
            },
        ),
    ),
    BROWSER_TESTS: (
        Package(
            "axe-core",
            "4.14.0",
            "MPL-2.0",
            {"axe.min.js": "axe.js", "LICENSE": "axe.LICENSE"},
        ),
    ),
}


def as_module(name: str, text: str) -> str:
    lines = [line for line in text.splitlines() if not line.startswith("//# sourceMappingURL=")]
    text = "\n".join(lines).rstrip() + "\n"
    return text + "export default uPlot;\n" if name == "uplot.js" else text


def scoped(name: str, text: str) -> str:
    """A minified module as a constant of its exports, so that several fit into one file."""
    text = re.sub(r'import\{([^}]*)\}from"preact";', _destructured, text)
    text = re.sub(r"export default (\w+|function)", r"return \1", text)
    text = re.sub(r"export\{([^}]*)\};?", _returned, text)
    return f"const {name}=(()=>{{{text.strip()}}})();\n"


def _destructured(found: re.Match[str]) -> str:
    return f"const{{{found[1].replace(' as ', ':')}}}=preact;"


def _returned(found: re.Match[str]) -> str:
    pairs = (each.split(" as ") for each in found[1].split(","))
    return f"return{{{','.join(f'{names[-1]}:{names[0]}' for names in pairs)}}}"


def joined(files: dict[str, str]) -> str:
    parts = [scoped(name.removesuffix(".js"), files.pop(name)) for name in PARTS]
    return f"// {', '.join(PARTS)}: made by tools/vendor.py.\n{''.join(parts)}{EXPORTS}"


def fetch(package: Package, integrity: str | None) -> tuple[dict[str, str], str]:
    """The files wanted of a package, and the hash of its archive. Raises ValueError."""
    url = f"https://registry.npmjs.org/{package.name}/-/{package.name}-{package.version}.tgz"
    with urllib.request.urlopen(url, timeout=60) as response:
        archive: bytes = response.read()
    found = "sha512-" + base64.b64encode(hashlib.sha512(archive).digest()).decode()
    if integrity is not None and found != integrity:
        raise ValueError(f"{url} has the hash {found}, not {integrity}")
    files = {}
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        for source, target in package.files.items():
            member = tar.extractfile(f"package/{source}")
            if member is None:
                raise ValueError(f"{url} has no {source}")
            files[target] = as_module(target, member.read().decode())
    return files, found


def bring(folder: Path, packages: tuple[Package, ...], *, update: bool) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    record = folder / "vendor.json"
    known = {} if update else json.loads(record.read_text())["packages"]
    files: dict[str, str] = {}
    entries = {}
    for package in packages:
        added, integrity = fetch(package, known.get(package.name, {}).get("integrity"))
        files |= added
        entries[package.name] = {
            "version": package.version,
            "licence": package.licence,
            "integrity": integrity,
        }
    if PARTS[0] in files:
        files[PARTS[0]] = joined(files)
    for name, text in files.items():
        (folder / name).write_text(text)
    hashes = {name: hashlib.sha256(text.encode()).hexdigest() for name, text in files.items()}
    record.write_text(json.dumps({"packages": entries, "files": hashes}, indent=2) + "\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--update", action="store_true", help="take the registry's hashes")
    arguments = parser.parse_args()
    for each, wanted in PACKAGES.items():
        bring(each, wanted, update=arguments.update)
