"""Builds the wheel from the files that git tracks: `make wheel`, or with HOME_URL= for a release.

A package index shows README without the repository around it, so links into the repository have to
be absolute there, and the project's addresses belong in the metadata. Both are derived from the
address given with --home, under which the repository's files are found; without it the wheel is for
local use, and its links stay as they are.
"""

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
RELATIVE_LINK = re.compile(r"\]\((?!https?:|mailto:|#)([^)\s]+)\)")
PAGES = {"Documentation": "docs/README.md", "Changelog": "CHANGELOG.md", "Security": "SECURITY.md"}


def build(directory: Path, home: str | None = None) -> Path:
    """The wheel's path, in the directory. Nothing is fetched; setuptools comes from this
    environment."""
    with tempfile.TemporaryDirectory(prefix="odradek-wheel-") as temporary:
        source = Path(temporary) / "source"
        _copy_tracked(source)
        if home:
            _point_to(home.rstrip("/"), source)
        command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps"]
        command += ["--no-build-isolation", "--disable-pip-version-check"]
        subprocess.run([*command, "--wheel-dir", directory, source], check=True)
    (wheel,) = directory.glob("odradek-*.whl")
    return wheel


def _copy_tracked(target: Path) -> None:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True)
    for name in listed.stdout.decode().split("\0"):
        is_needed = name.startswith("src/") or "/" not in name
        if name and is_needed and (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, target / name)


def _point_to(home: str, source: Path) -> None:
    readme = source / "README.md"
    readme.write_text(RELATIVE_LINK.sub(rf"]({home}/\1)", readme.read_text()))
    urls = "".join(f'{name} = "{home}/{page}"\n' for name, page in PAGES.items())
    with (source / "pyproject.toml").open("a") as project:
        project.write(f'\n[project.urls]\nSource = "{home}"\n{urls}')


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--home", help="the address under which the repository's files are found")
    parser.add_argument("--directory", type=Path, default=ROOT / "dist")
    options = parser.parse_args()
    shutil.rmtree(options.directory, ignore_errors=True)
    options.directory.mkdir(parents=True)
    print(build(options.directory, options.home))


if __name__ == "__main__":
    main()
