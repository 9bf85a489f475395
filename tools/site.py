"""Hooks of the documentation site: the root's pages, links that leave docs/, diagrams as pictures.

MkDocs reads docs/ only. README, ARCHITECTURE and the others at the root are added as pages, with
their links rewritten; a link from docs/ to one of them likewise. A Mermaid state diagram, which
GitHub draws with a script, becomes an SVG picture, so that no page loads anything from elsewhere.
"""

import html
import math
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parent.parent
# Page at the root: its place in the site.
ROOT_PAGES = {
    "README.md": "overview.md",
    "ARCHITECTURE.md": "ARCHITECTURE.md",
    "CONTRIBUTING.md": "CONTRIBUTING.md",
    "CHANGELOG.md": "CHANGELOG.md",
    "SECURITY.md": "SECURITY.md",
    "CODE_OF_CONDUCT.md": "CODE_OF_CONDUCT.md",
}
LINK = re.compile(r"\]\((?!https?:|mailto:|#)([^)#\s]*)(#[^)\s]*)?\)")
DIAGRAM = re.compile(r"```mermaid\nstateDiagram-v2\n(.*?)```", re.DOTALL)
EDGE = re.compile(r"(\w+) --> (\w+)(?:: (.*))?")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for source, place in ROOT_PAGES.items():
        text = LINK.sub(_from_root, (ROOT / source).read_text())
        files.append(File.generated(config, place, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    depth = page.file.src_uri.count("/")

    def from_docs(found: re.Match[str]) -> str:
        target, anchor = found[1], found[2] or ""
        up = "../" * (depth + 1)
        if target.startswith(up) and (name := target.removeprefix(up)) in ROOT_PAGES:
            return f"]({'../' * depth}{ROOT_PAGES[name]}{anchor})"
        return found[0]

    return DIAGRAM.sub(lambda found: picture(found[1]), LINK.sub(from_docs, markdown))


def _from_root(found: re.Match[str]) -> str:
    target, anchor = found[1], found[2] or ""
    if target in ROOT_PAGES:
        target = ROOT_PAGES[target]
    elif target == "docs/":
        target = "README.md"
    else:
        target = target.removeprefix("docs/")
    return f"]({target}{anchor})"


# Diagrams

WIDTH, HEIGHT = 960, 620
BOX_WIDTH, BOX_HEIGHT = 190, 34


def picture(mermaid: str) -> str:
    """A state diagram as SVG: the states on an ellipse in the order they appear, arrows between."""
    edges = [(m[1], m[2], m[3] or "") for m in EDGE.finditer(mermaid)]
    states = list(dict.fromkeys(name for edge in edges for name in edge[:2]))
    places = {name: _on_ellipse(number, len(states)) for number, name in enumerate(states)}
    parts = [
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" style="max-width:100%" '
        'fill="none" stroke="currentColor" font-size="13">',
        '<defs><marker id="arrow" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" '
        'markerHeight="7" orient="auto"><path d="M0 0L10 5L0 10z" fill="currentColor"/>'
        "</marker></defs>",
    ]
    parts += [_arrow(places[start], places[end], label) for start, end, label in edges]
    parts += [_box(name, *places[name]) for name in states]
    return "\n" + "".join([*parts, "</svg>"]) + "\n"


def _on_ellipse(number: int, count: int) -> tuple[float, float]:
    angle = 2 * math.pi * number / count - math.pi / 2
    return (
        WIDTH / 2 + (WIDTH - BOX_WIDTH) / 2 * 0.9 * math.cos(angle),
        HEIGHT / 2 + (HEIGHT - BOX_HEIGHT) / 2 * 0.85 * math.sin(angle),
    )


def _box(name: str, x: float, y: float) -> str:
    return (
        f'<rect x="{x - BOX_WIDTH / 2:.0f}" y="{y - BOX_HEIGHT / 2:.0f}" width="{BOX_WIDTH}" '
        f'height="{BOX_HEIGHT}" rx="8" fill="var(--md-default-bg-color, white)"/>'
        f"{_text(x, y + 5, name)}"
    )


def _arrow(start: tuple[float, float], end: tuple[float, float], label: str) -> str:
    (x1, y1), (x2, y2) = start, end
    if start == end:
        edge = y1 - BOX_HEIGHT / 2 if y1 < HEIGHT / 2 else y1 + BOX_HEIGHT / 2
        away = -46 if y1 < HEIGHT / 2 else 46
        path = f"M{x1 - 40:.0f} {edge:.0f}C{x1 - 40:.0f} {edge + away:.0f} "
        path += f"{x1 + 40:.0f} {edge + away:.0f} {x1 + 40:.0f} {edge:.0f}"
        return _line(path) + _text(x1, edge + away * 0.8 + 4, label)
    # Bent to the right of its direction, so that an arrow and its reverse are two lines.
    length = math.hypot(x2 - x1, y2 - y1)
    bend = min(40.0, length / 6)
    middle = ((x1 + x2) / 2 - (y2 - y1) / length * bend, (y1 + y2) / 2 + (x2 - x1) / length * bend)
    (sx, sy), (ex, ey) = _border(start, middle), _border(end, middle)
    path = f"M{sx:.0f} {sy:.0f}Q{middle[0]:.0f} {middle[1]:.0f} {ex:.0f} {ey:.0f}"
    x, y = (sx + 2 * middle[0] + ex) / 4, (sy + 2 * middle[1] + ey) / 4
    return _line(path) + _text(x, y + 4, label)


def _border(box: tuple[float, float], towards: tuple[float, float]) -> tuple[float, float]:
    """Where the line from a box's centre leaves the box."""
    dx, dy = towards[0] - box[0], towards[1] - box[1]
    scale = max(abs(dx) / (BOX_WIDTH / 2), abs(dy) / (BOX_HEIGHT / 2)) or 1.0
    return box[0] + dx / scale, box[1] + dy / scale


def _line(path: str) -> str:
    return f'<path d="{path}" marker-end="url(#arrow)" opacity="0.7"/>'


def _text(x: float, y: float, text: str) -> str:
    """A label with a halo in the page's colour, so that lines under it do not cross its letters."""
    if not text:
        return ""
    halo = 'stroke="var(--md-default-bg-color, white)" stroke-width="4"'
    place = f'x="{x:.0f}" y="{y:.0f}" text-anchor="middle"'
    words = html.escape(text)
    return (
        f'<text {place} {halo} aria-hidden="true">{words}</text>'
        f'<text {place} stroke="none" fill="currentColor">{words}</text>'
    )
