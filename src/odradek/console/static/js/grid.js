// Replicas on one canvas. Every cell is a shape as well as a colour, the arrow keys walk the cells, and
// what a cell means is written below; a table with the same facts stands beside it.
import { cssColour, html, Text, useEffect, useKept, useLayoutEffect, useRef, useState, useTheme } from "./ui.js";

const MEANINGS = {
  L: "leads", F: "in sync", B: "behind", X: "offline", ">": "being added", "<": "being removed", ".": "no replica", "?": "not known",
};
const SYMBOLS = { L: "■", F: "□", B: "▲", X: "✖", ">": "→", "<": "←", ".": "·", "?": "?" };
const CELL = 22;
const TOP = 22;

export const Legend = ({ letters = "LFBX><" }) => html`<p class="legend">${[...letters].map(
  (letter) => html`<span><span class="mono" aria-hidden="true">${SYMBOLS[letter]}</span> ${MEANINGS[letter]}</span>`,
)}</p>`;

function colours() {
  const names = { L: "accent", F: "accent", B: "warn", X: "bad", ">": "good", "<": "muted", ".": "line-strong", "?": "muted" };
  return Object.fromEntries(Object.entries(names).map(([letter, name]) => [letter, cssColour(name)]));
}

function drawCell(context, letter, x, y, size) {
  const pad = size * 0.22;
  const [left, top, side] = [x + pad, y + pad, size - 2 * pad];
  context.beginPath();
  if (letter === "L") context.fillRect(left, top, side, side);
  else if (letter === "F") context.strokeRect(left + 0.75, top + 0.75, side - 1.5, side - 1.5);
  else if (letter === "B") {
    context.moveTo(left + side / 2, top);
    context.lineTo(left + side, top + side);
    context.lineTo(left, top + side);
    context.fill();
  } else if (letter === "X") {
    context.moveTo(left, top);
    context.lineTo(left + side, top + side);
    context.moveTo(left + side, top);
    context.lineTo(left, top + side);
    context.stroke();
  } else if (letter === ">" || letter === "<") {
    const [from, to] = letter === ">" ? [left, left + side] : [left + side, left];
    context.moveTo(from, top + side / 2);
    context.lineTo(to, top + side / 2);
    context.moveTo((from + to) / 2, top);
    context.lineTo(to, top + side / 2);
    context.lineTo((from + to) / 2, top + side);
    context.stroke();
  } else if (letter === ".") context.fillRect(x + size / 2 - 1, y + size / 2 - 1, 2, 2);
  else context.fillText("?", x + size / 2 - 3, y + size / 2 + 4);
}

// The canvas in device pixels, cleared, scaled to CSS pixels.
function prepare(canvas, width, height) {
  const ratio = devicePixelRatio || 1;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const context = canvas.getContext("2d");
  context.scale(ratio, ratio);
  context.clearRect(0, 0, width, height);
  return context;
}

// A row per broker, a column per partition. onMove(p, from, to): a cell was dragged to another broker.
export function ReplicaGrid({ brokers, cells, partitions, describe, onOpen, onMove, label }) {
  const canvas = useRef();
  // The cell that was walked to is in the address; the pointer only passes over them.
  const [cell, keepCell] = useKept("cell", "");
  const [cursor, setCursor] = useState(() => {
    const [p, row] = cell.split(".").map(Number);
    return cell && p < partitions && row < brokers.length ? { p, row } : null;
  });
  const [drag, setDrag] = useState(null);
  const theme = useTheme();
  useLayoutEffect(() => {
    const context = prepare(canvas.current, Math.max(partitions * CELL, CELL), TOP + brokers.length * CELL);
    const colour = colours();
    const [accent, text] = [cssColour("accent"), cssColour("muted")];
    context.font = "11px system-ui";
    context.fillStyle = text;
    context.textAlign = "center";
    for (let p = 0; p < partitions; p += partitions > 1000 ? 10 : 1) context.fillText(String(p), p * CELL + CELL / 2, 14);
    context.lineWidth = 1.5;
    brokers.forEach((broker, row) => {
      const line = cells[broker] ?? "";
      for (let p = 0; p < partitions; p += 1) {
        const letter = line[p] ?? "?";
        context.fillStyle = colour[letter];
        context.strokeStyle = colour[letter];
        drawCell(context, letter, p * CELL, TOP + row * CELL, CELL);
      }
    });
    for (const [at, dash] of [[cursor, []], [drag, [3, 2]]]) {
      if (!at) continue;
      context.setLineDash(dash);
      context.strokeStyle = accent;
      context.strokeRect(at.p * CELL + 1.5, TOP + at.row * CELL + 1.5, CELL - 3, CELL - 3);
      context.setLineDash([]);
    }
  }, [theme, cells, partitions, brokers, cursor, drag]);
  const locate = (event) => {
    const p = Math.floor(event.offsetX / CELL);
    const row = Math.floor((event.offsetY - TOP) / CELL);
    return p >= 0 && p < partitions && row >= 0 && row < brokers.length ? { p, row } : null;
  };
  const walk = (event) => {
    const steps = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1], Home: [-partitions, 0], End: [partitions, 0] };
    if (event.key === "Enter" && cursor) return onOpen(cursor.p);
    const step = steps[event.key];
    if (!step) return undefined;
    event.preventDefault();
    const at = cursor ?? { p: 0, row: 0 };
    const clamp = (value, last) => Math.max(0, Math.min(last, value));
    const next = cursor ? { p: clamp(at.p + step[0], partitions - 1), row: clamp(at.row + step[1], brokers.length - 1) } : at;
    keepCell(`${next.p}.${next.row}`);
    return setCursor(next);
  };
  const dropped = (event) => {
    const at = locate(event);
    const from = drag;
    setDrag(null);
    if (!from || !at) return;
    if (at.p === from.p && at.row === from.row) onOpen(at.p);
    else if (onMove && at.p === from.p) onMove(at.p, brokers[from.row], brokers[at.row]);
  };
  const letter = cursor && (cells[brokers[cursor.row]]?.[cursor.p] ?? "?");
  const readout = cursor ? `${describe(cursor.p)}; broker ${brokers[cursor.row]}: ${MEANINGS[letter]}` : "";
  return html`<div class="heat"><div class="rows" aria-hidden="true">${brokers.map((id) => html`<div class="lane">broker ${id}</div>`)}</div>
      <div class="cells"><canvas ref=${canvas} tabindex="0" role="application" aria-roledescription="grid of replicas"
        aria-label=${`${label}. Arrow keys walk the cells, Enter opens the partition.`} onKeyDown=${walk}
        onPointerMove=${(event) => setCursor(locate(event) ?? cursor)} onPointerDown=${(event) => setDrag(locate(event))}
        onPointerUp=${dropped} onFocus=${() => setCursor((now) => now ?? { p: 0, row: 0 })}></canvas></div></div>
    <p class="readout" aria-live="polite">${readout ? html`<${Text}>${readout}<//>` : html`<span class="muted">Point at a cell, or focus the grid and use the arrow keys${onMove ? "; drag a cell to another broker to plan a move" : ""}.</span>`}</p>`;
}

const ORDER = "X?B><FL.";
const MAP = { X: "bad", B: "warn", ">": "note", "<": "note", "?": "muted", ok: "series-3" };

// Every partition of the cluster as one cell: the worst of its replicas, topic after topic.
export function ClusterMap({ grid, onOpen }) {
  const canvas = useRef();
  const box = useRef();
  const [width, setWidth] = useState(0);
  const [cell, keepCell] = useKept("cell", "");
  const [at, setAt] = useState(() => {
    let before = 0;
    for (const topic of grid.topics) {
      const p = cell.startsWith(`${topic.name}-`) ? Number(cell.slice(topic.name.length + 1)) : NaN;
      if (p < topic.partitions) return before + p;
      before += topic.partitions;
    }
    return null;
  });
  const theme = useTheme();
  const total = grid.topics.reduce((sum, topic) => sum + topic.partitions, 0);
  const size = total > 40000 ? 5 : total > 6000 ? 7 : total > 800 ? 11 : 16;
  const across = Math.max(1, Math.floor(width / size));
  const worst = (lines, p) => {
    let found = ".";
    for (const line of lines) {
      const letter = line[p] ?? "?";
      if (letter !== "." && (found === "." || ORDER.indexOf(letter) < ORDER.indexOf(found))) found = letter;
    }
    return found === "L" || found === "F" ? "ok" : found === "." ? "?" : found;
  };
  useEffect(() => {
    const element = box.current;
    const observer = new ResizeObserver(() => setWidth(element.clientWidth));
    observer.observe(element);
    setWidth(element.clientWidth);
    return () => observer.disconnect();
  }, []);
  useLayoutEffect(() => {
    if (!width) return;
    const context = prepare(canvas.current, across * size, Math.ceil(total / across) * size);
    const colour = Object.fromEntries(Object.entries(MAP).map(([state, name]) => [state, cssColour(name)]));
    let index = 0;
    let filled = null;
    for (const topic of grid.topics) {
      const lines = Object.values(topic.cells);
      for (let p = 0; p < topic.partitions; p += 1, index += 1) {
        const state = worst(lines, p);
        const x = (index % across) * size;
        const y = Math.floor(index / across) * size;
        if (state !== filled) context.fillStyle = colour[state];
        filled = state;
        if (state === "ok") context.fillRect(x + 1, y + 1, size - 2, size - 2);
        else {
          context.fillRect(x, y, size, size);
          if (size >= 11) {
            filled = null;
            context.fillStyle = cssColour("page");
            context.font = `${size - 4}px ui-monospace`;
            context.fillText({ X: "✖", B: "▲", ">": "→", "<": "←" }[state] ?? "?", x + 2, y + size - 3);
          }
        }
      }
    }
    if (at !== null) {
      context.strokeStyle = cssColour("text");
      context.lineWidth = 2;
      context.strokeRect((at % across) * size, Math.floor(at / across) * size, size, size);
    }
  }, [theme, grid, width, at]);
  const named = (index) => {
    let rest = index;
    for (const topic of grid.topics) {
      if (rest < topic.partitions) return { topic, p: rest };
      rest -= topic.partitions;
    }
    return null;
  };
  const indexOf = (event) => {
    const index = Math.floor(event.offsetY / size) * across + Math.min(across - 1, Math.floor(event.offsetX / size));
    return index < total ? index : null;
  };
  const open = (index) => {
    const found = index === null ? null : named(index);
    if (found) onOpen(found.topic.name, found.p);
  };
  const walk = (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -across, ArrowDown: across }[event.key];
    if (event.key === "Enter") return open(at);
    if (!step) return undefined;
    event.preventDefault();
    const next = Math.max(0, Math.min(total - 1, (at ?? 0) + step));
    const { topic, p } = named(next);
    keepCell(`${topic.name}-${p}`);
    return setAt(next);
  };
  const shown = at === null ? null : named(at);
  const words = { ok: "in sync", X: "has an offline replica", B: "has a replica behind", ">": "is moving", "<": "is moving", "?": "not known" };
  return html`<div ref=${box} class="heat"><canvas ref=${canvas} tabindex="0" role="application" aria-roledescription="map of partitions"
      aria-label=${`${total} partitions, a cell each. Arrow keys walk the cells, Enter opens the partition.`} onKeyDown=${walk}
      onPointerMove=${(event) => setAt(indexOf(event) ?? at)} onClick=${(event) => open(indexOf(event))}></canvas></div>
    <p class="readout" aria-live="polite">${shown ? html`<${Text}>${`${shown.topic.name}-${shown.p}`}<//>: ${words[worst(Object.values(shown.topic.cells), shown.p)]}` : html`<span class="muted">Point at a cell, or focus the map and use the arrow keys.</span>`}</p>`;
}
