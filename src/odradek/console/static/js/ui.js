// How values are written, and the components that screens are made of. Text that came from a client goes
// through <Text>. One module, so that a first screen takes few requests.
import { html, useEffect, useId, useRef, useState } from "../vendor/preact.js";
import { endScreen, get, href, may, post, refresh, toast, useKept, useQuery, watch } from "./data.js";

export * from "../vendor/preact.js";
export * from "./data.js";

// Values as text. What is not known is an en dash.

export const UNKNOWN = "–";
export const known = (value) => value !== null && value !== undefined && !Number.isNaN(value);
const integers = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

export const count = (value) => (known(value) ? integers.format(value) : UNKNOWN);

// "3 partitions", "1 partition"
export const plural = (value, one, many = `${one}s`) => `${count(value)} ${value === 1 ? one : many}`;

function scaled(value, base, units) {
  let unit = 0;
  let size = Math.abs(value);
  while (size >= base && unit < units.length - 1) {
    size /= base;
    unit += 1;
  }
  const digits = unit === 0 ? (Number.isInteger(size) ? 0 : 1) : size >= 100 ? 0 : 1;
  return `${value < 0 ? "−" : ""}${size.toFixed(digits)}${units[unit]}`;
}

export const bytes = (value) =>
  known(value) ? scaled(value, 1000, [" B", " kB", " MB", " GB", " TB", " PB"]) : UNKNOWN;
export const byteRate = (value) =>
  known(value) ? scaled(value, 1000, [" B/s", " kB/s", " MB/s", " GB/s"]) : UNKNOWN;
export const rate = (value, unit = "/s") =>
  known(value) ? `${scaled(value, 1000, ["", "k", "M", "G"])}${unit}` : UNKNOWN;
export const compact = (value) => (known(value) ? scaled(value, 1000, ["", "k", "M", "G"]) : UNKNOWN);
export const percent = (share, digits = 0) =>
  known(share) ? `${(share * 100).toFixed(digits)} %` : UNKNOWN;

export function duration(ms) {
  if (!known(ms)) return UNKNOWN;
  const size = Math.abs(ms);
  if (size === 0) return "0 ms";
  if (size < 1) return `${ms.toFixed(2)} ms`;
  if (size < 10) return `${ms.toFixed(1).replace(/\.0$/, "")} ms`;
  if (size < 1000) return `${Math.round(ms)} ms`;
  const seconds = size / 1000;
  if (seconds < 10) return `${(ms / 1000).toFixed(1)} s`;
  if (seconds < 120) return `${Math.round(ms / 1000)} s`;
  if (seconds < 7200) return `${Math.round(ms / 60000)} min`;
  if (seconds < 48 * 3600) return `${Math.round(ms / 3600000)} h`;
  return `${Math.round(ms / 86400000)} d`;
}

const two = (value) => String(value).padStart(2, "0");
const three = (value) => String(value).padStart(3, "0");

export function clock(ms, withMilliseconds = false) {
  if (!known(ms)) return UNKNOWN;
  const at = new Date(ms);
  const text = `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
  return withMilliseconds ? `${text}.${three(at.getMilliseconds())}` : text;
}

export function day(ms) {
  if (!known(ms)) return UNKNOWN;
  const at = new Date(ms);
  return `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
}

// The time of today, and the day before it for any other day.
export function moment(ms, withMilliseconds = false) {
  if (!known(ms)) return UNKNOWN;
  const text = clock(ms, withMilliseconds);
  return day(ms) === day(Date.now()) ? text : `${day(ms)} ${text}`;
}

export const isoOf = (ms) => new Date(ms).toISOString().replace(/\.000Z$/, "Z");

// What a <input type="datetime-local"> takes and gives, in the reader's time zone.
export function localOf(ms) {
  return `${day(ms)}T${clock(ms)}`;
}

// Characters that could hide, reorder or break text, shown as escapes: controls, bidirectional
// marks, zero-width and lone surrogates. Line feeds stay where `multiline` says so.
const DANGEROUS =
  // eslint-disable-next-line no-control-regex
  /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb]|[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]|\udb40[\udc00-\udfff]/g;
const SHORT = { "\n": "\\n", "\r": "\\r", "\t": "\\t", "\u001b": "\\e", "\u0000": "\\0" };

function escaped(match) {
  if (SHORT[match]) return SHORT[match];
  const code = match.codePointAt(0);
  return code < 0x100
    ? `\\x${code.toString(16).padStart(2, "0")}`
    : `\\u${code > 0xffff ? `{${code.toString(16)}}` : code.toString(16).padStart(4, "0")}`;
}

export function visible(text, multiline = false) {
  if (text === null || text === undefined) return "";
  return String(text).replace(DANGEROUS, (match) =>
    multiline && (match === "\n" || match === "\t") ? match : escaped(match),
  );
}

// [{text, escape}] so that escapes can be set apart from text that merely looks like one.
export function visibleParts(text, multiline = false) {
  const source = String(text ?? "");
  const parts = [];
  let last = 0;
  for (const match of source.matchAll(DANGEROUS)) {
    if (multiline && (match[0] === "\n" || match[0] === "\t")) continue;
    if (match.index > last) parts.push({ text: source.slice(last, match.index) });
    parts.push({ text: escaped(match[0]), escape: true });
    last = match.index + match[0].length;
  }
  if (last < source.length) parts.push({ text: source.slice(last) });
  return parts;
}

// Text

export function Text({ children, multiline = false, clip = 0 }) {
  const source = String(children ?? "");
  const shown = clip && source.length > clip ? source.slice(0, clip) : source;
  return html`<bdi>${visibleParts(shown, multiline).map((part) =>
    part.escape ? html`<span class="escape">${part.text}</span>` : part.text,
  )}${shown.length < source.length && "…"}</bdi>`;
}

export function Moment({ ms, withMilliseconds = false }) {
  if (ms === null || ms === undefined) return UNKNOWN;
  return html`<time datetime=${new Date(ms).toISOString()} title=${new Date(ms).toISOString()}>
    ${moment(ms, withMilliseconds)}</time>`;
}

export const Since = ({ ms }) => html`since <${Moment} ms=${ms} /> (${duration(Date.now() - ms)})`;

const LEVELS = {
  bad: "✖", warn: "▲", good: "●", note: "◆", off: "○", moving: "→",
};
// A state is a shape and a word; colour comes on top.
export const State = ({ level, children }) =>
  html`<span class="state ${level}"><span class="glyph" aria-hidden="true">${LEVELS[level] ?? "○"}</span>${children}</span>`;

const TOPIC_STATES = {
  ok: ["good", "in sync"],
  offline: ["bad", "offline"],
  "under-min-isr": ["bad", "under min ISR"],
  "under-replicated": ["warn", "under-replicated"],
  moving: ["note", "moving"],
};
export function PartitionState({ state, known = true }) {
  if (known === false || !state) return html`<${State} level="off">not known<//>`;
  const [level, word] = TOPIC_STATES[state] ?? ["note", state];
  return html`<${State} level=${level}>${word}<//>`;
}

export const Tag = ({ level = "", children }) => html`<span class="tag ${level}">${children}</span>`;
export const Link = ({ to, query, children, class: className, ...rest }) =>
  html`<a href=${href(to, query)} class=${className} ...${rest}>${children}</a>`;

export const TopicLink = ({ name, row = false }) =>
  html`<${Link} to="topic" query=${{ name }} class=${row ? "rowlink" : ""}><${Text} clip=${120}>${name}<//><//>`;
export const PartitionLink = ({ topic, p, row = false }) =>
  html`<${Link} to="partition" query=${{ topic, p }} class=${row ? "rowlink" : ""}>
    <${Text} clip=${120}>${`${topic}-${p}`}<//><//>`;
export const GroupLink = ({ id, row = false }) =>
  html`<${Link} to="group" query=${{ id }} class=${row ? "rowlink" : ""}>${
    id ? html`<${Text} clip=${120}>${id}<//>` : "(no name)"}<//>`;
export const BrokerLink = ({ id, row = false }) =>
  id === null || id === undefined || id < 0
    ? html`<span class="bad">none</span>`
    : html`<${Link} to="broker" query=${{ id }} class=${row ? "rowlink" : ""}>${id}<//>`;
export const Ids = ({ ids }) =>
  ids?.length ? html`<span class="mono ids">${ids.join(", ")}</span>` : html`<span class="muted">none</span>`;

// Frame of a screen

export function Page({ title, crumbs, facts = [], actions, children }) {
  useEffect(() => {
    document.title = `${typeof title === "string" ? title : "Console"} · Odradek`;
  }, [title]);
  return html`
    <header class="page-head">
      <div class="top"><div class="what">
        ${crumbs && html`<nav class="crumbs" aria-label="Path">${crumbs}</nav>`}
        <h1>${typeof title === "string" ? html`<${Text}>${title}<//>` : title}</h1>
      </div>
      ${actions && html`<div class="actions">${actions}</div>`}</div>
      ${facts.length > 0 && html`<p class="facts">${facts.map((fact) => html`<span>${fact}</span>`)}</p>`}
    </header>
    ${children}`;
}

export function Section({ title, aside, actions, children, id }) {
  const own = useId();
  return html`<section class="section" aria-labelledby=${own} id=${id}>
    <header><h2 id=${own}>${title}</h2>${aside && html`<span class="aside">${aside}</span>`}
      ${actions && html`<span class="spring"></span><span class="actions">${actions}</span>`}</header>
    ${children}
  </section>`;
}

// Tabs are links: ?tab= is part of the address.
export function Tabs({ tabs, label = "Views" }) {
  const [query] = useQuery();
  const { at: _, ...rest } = query;
  const shown = query.tab ?? tabs[0][0];
  const screen = location.pathname.split("/")[3];
  return html`<nav class="tabs" aria-label=${label}>${tabs.map(
    ([id, name]) => html`<a href=${href(screen, { ...keep(rest), tab: id === tabs[0][0] ? "" : id })}
      aria-current=${id === shown ? "page" : null}>${name}</a>`,
  )}</nav>`;
}
const keep = ({ id, name, topic, p, query, type }) => ({ id, name, topic, p, query, type });

export function Notice({ level = "note", children, onDismiss, role }) {
  return html`<div class="notice ${level}" role=${role}>
    <span class="glyph" aria-hidden="true">${LEVELS[level]}</span><div class="grow">${children}</div>
    ${onDismiss && html`<button class="quiet" onClick=${onDismiss} aria-label="Dismiss">✕</button>`}
  </div>`;
}

export const Empty = ({ title, children, actions }) => html`<div class="empty">
  <p class="strong">${title}</p>${children && html`<p>${children}</p>`}
  ${actions && html`<div class="actions">${actions}</div>`}
</div>`;

export const Skeleton = ({ lines = 5 }) =>
  html`<div class="skeleton" role="status"><span class="visually-hidden">Loading</span>
    ${Array.from({ length: lines }, () => html`<i></i>`)}</div>`;

export function ErrorNotice({ error, retry }) {
  const { problem = {}, status } = error;
  const level = status === 404 || status === 409 ? "warn" : "bad";
  return html`<${Notice} level=${level} role="alert">
    <p><${Text}>${error.message}<//></p>
    ${problem.error && html`<p class="muted mono">${problem.error}</p>`}
    ${problem.changed?.length > 0 &&
    html`<p>Changed since: <${Text}>${problem.changed.join(", ")}<//></p>`}
    ${problem.blockers?.length > 0 &&
    html`<ul>${problem.blockers.map((each) => html`<li><${Text}>${each}<//></li>`)}</ul>`}
    ${retry && html`<p><button class="linklike" onClick=${retry}>Try again</button></p>`}
  <//>`;
}

// Loading, failed, out of date or there: `children` is a function of the data. A whole screen has a
// `title`, so that it has a heading if there is nothing else to show.
export function Loaded({ state, lines, title, children }) {
  const { data, error, reload } = state;
  if (!data && error) {
    const notice = html`<${ErrorNotice} error=${error} retry=${reload} />`;
    return title ? html`<${Page} title=${title}>${notice}<//>` : notice;
  }
  if (!data) return html`<${Skeleton} lines=${lines} />`;
  return html`${error &&
    html`<${Notice} level="warn" role="status">${error.message} What is shown is the last that was known.
      ${" "}<button class="linklike" onClick=${reload}>Try again</button><//>`}
    ${children(data)}`;
}

// Controls

export function Field({ label, hint, error, wide = false, children }) {
  const id = useId();
  const control = children(id);
  return html`<div class="field ${wide ? "wide" : ""}"><label for=${id}>${label}</label>${control}
    ${hint && html`<span class="hint">${hint}</span>`}
    ${error && html`<span class="bad" role="alert">${error}</span>`}</div>`;
}

export const Input = ({ label, hint, error, wide, onValue, ...rest }) =>
  html`<${Field} label=${label} hint=${hint} error=${error} wide=${wide}>${(id) =>
    html`<input id=${id} ...${rest} aria-invalid=${error ? "true" : null}
      onInput=${(event) => onValue(event.target.value)} />`}<//>`;

export const Select = ({ label, options, value, onValue, hint }) =>
  html`<${Field} label=${label} hint=${hint}>${(id) =>
    html`<select id=${id} value=${value} onChange=${(event) => onValue(event.target.value)}>
      ${options.map(([key, text]) => html`<option value=${key} selected=${String(key) === String(value)}>${text}</option>`)}
    </select>`}<//>`;

export const Check = ({ label, checked, onValue }) =>
  html`<label class="choice"><input type="checkbox" checked=${checked}
    onChange=${(event) => onValue(event.target.checked)} />${label}</label>`;

// A text filter that is in the address, changed as one types.
export function Filter({ name = "q", label, placeholder }) {
  const [query, change] = useQuery();
  const [text, set] = useState(query[name] ?? "");
  const timer = useRef();
  useEffect(() => set(query[name] ?? ""), [query[name]]);
  return html`<input type="search" class="finder" aria-label=${label} placeholder=${placeholder ?? label}
    value=${text} onInput=${(event) => {
      const value = event.target.value;
      set(value);
      clearTimeout(timer.current);
      timer.current = setTimeout(() => change({ [name]: value }), 120);
    }} />`;
}

export function Copy({ text, label = "Copy" }) {
  return html`<button class="quiet" onClick=${async () => {
    try {
      await navigator.clipboard.writeText(text);
      toast("Copied.");
    } catch {
      toast("The browser did not allow copying.", "bad");
    }
  }}>${label}</button>`;
}

export function Dialog({ title, onClose, children }) {
  const ref = useRef();
  const id = useId();
  useEffect(() => {
    const opener = document.activeElement;
    ref.current.showModal();
    (ref.current.querySelector(".body input, .body select, .body textarea") ?? ref.current).focus();
    return () => opener?.focus?.();
  }, []);
  return html`<dialog ref=${ref} tabindex="-1" aria-labelledby=${id} onClose=${onClose}
    onClick=${(event) => event.target === ref.current && ref.current.close()}>
    <header><h2 id=${id}>${title}</h2>
      <button class="quiet" onClick=${() => ref.current.close()} aria-label="Close">✕</button></header>
    <div class="body">${children}</div>
  </dialog>`;
}

// Tables. A column: {id, name, cell, number, sort, tight, long, grow}. The first cell heads its row.

function Head({ columns, sort, onSort }) {
  const [key, descending] = sort?.startsWith("-") ? [sort.slice(1), true] : [sort, false];
  return html`<thead><tr>${columns.map((column) => {
    const sorted = column.sort && column.sort === key;
    const order = sorted ? (descending ? "descending" : "ascending") : null;
    return html`<th key=${column.id} scope="col" class=${column.number ? "number" : ""} aria-sort=${order} title=${column.title}>
      ${column.sort && onSort
        ? html`<button onClick=${() => onSort(sorted && !descending ? `-${column.sort}` : sorted ? "" : column.number ? `-${column.sort}` : column.sort)}>
            ${column.name}${sorted && html`<span aria-hidden="true">${descending ? "▾" : "▴"}</span>`}</button>`
        : column.name || html`<span class="visually-hidden">${column.label ?? column.id}</span>`}
    </th>`;
  })}</tr></thead>`;
}

function Row({ columns, row, index, selected, onSelect }) {
  return html`<tr class="row" aria-selected=${selected ? "true" : null} aria-rowindex=${index}
    onClick=${onSelect && ((event) => !event.target.closest("a,button,input") && onSelect(row))}>
    ${columns.map((column, at) => {
      const classes = `${column.number ? "number" : ""} ${column.tight ? "tight" : ""} ${column.long ? "long" : ""} ${column.grow ? "grow-cell" : ""}`;
      return at === 0
        ? html`<th key=${column.id} scope="row" class=${classes}>${column.cell(row)}</th>`
        : html`<td key=${column.id} class=${classes}>${column.cell(row)}</td>`;
    })}</tr>`;
}

export function Table({ label, columns, rows, keyOf, sort, onSort, empty, tall = false, selected, onSelect, foot }) {
  const shown = columns.filter(Boolean);
  if (rows.length === 0) return typeof empty === "object" ? empty : html`<${Empty} title=${empty ?? "Nothing here."} />`;
  return html`<div class="scroll ${tall ? "tall" : ""}" tabindex="0" role="group" aria-label=${label}>
    <table><caption class="visually-hidden">${label}</caption>
      <${Head} columns=${shown} sort=${sort} onSort=${onSort} />
      <tbody>${rows.map((row) => html`<${Row} key=${keyOf(row)} columns=${shown} row=${row}
        selected=${selected !== undefined && keyOf(row) === selected} onSelect=${onSelect} />`)}</tbody>
      ${foot && html`<tfoot>${foot}</tfoot>`}
    </table></div>`;
}

// Sorting for tables that have all their rows.
export function sorted(rows, sort, values = {}) {
  if (!sort) return rows;
  const [key, sign] = sort.startsWith("-") ? [sort.slice(1), -1] : [sort, 1];
  const valueOf = values[key] ?? ((row) => row[key]);
  return [...rows].sort((a, b) => {
    const [x, y] = [valueOf(a), valueOf(b)];
    if (x === y) return 0;
    if (x === null || x === undefined) return 1;
    if (y === null || y === undefined) return -1;
    return (x < y ? -1 : 1) * sign;
  });
}

const ROW_PX = 30;
const PAGE_ROWS = 100;
const OVERSCAN = 12;

// A list of any length: rows of one height, only those in sight in the page, fetched in pages.
export function VirtualTable({ label, columns, path, query, live, keyOf, sort, onSort, empty, onTotal }) {
  const box = useRef();
  const pages = useRef(new Map());
  const [, redraw] = useState(0);
  const [view, setView] = useState({ first: 0, rows: 40 });
  const [state, set] = useState({ matched: null, error: null });
  const key = JSON.stringify([path, query]);
  const wanted = useRef(key);
  wanted.current = key;

  const load = async (page, force = false) => {
    const held = pages.current.get(page);
    if (held && !force) return;
    if (!held) pages.current.set(page, []);
    try {
      const answer = await get(path, { ...query, offset: page * PAGE_ROWS, limit: PAGE_ROWS });
      if (wanted.current !== key) return;
      pages.current.set(page, answer.items);
      set({ matched: answer.matched, error: null });
      onTotal?.(answer);
    } catch (error) {
      if (!held) pages.current.delete(page);
      if (wanted.current === key) set((old) => ({ ...old, error }));
    }
    redraw((n) => n + 1);
  };
  const pagesInView = () => {
    const first = Math.floor(view.first / PAGE_ROWS);
    const last = Math.floor((view.first + view.rows) / PAGE_ROWS);
    return Array.from({ length: last - first + 1 }, (_, n) => first + n);
  };
  useEffect(() => {
    pages.current = new Map();
    box.current?.scrollTo(0, 0);
    setView((old) => ({ ...old, first: 0 }));
    load(0, true);
  }, [key]);
  useEffect(() => {
    pagesInView().forEach((page) => load(page));
  }, [view.first, view.rows]);
  useEffect(() => {
    if (!live || query.at) return undefined;
    return watch(live, () => pagesInView().forEach((page) => load(page, true)));
  }, [key, view.first, live]);

  const scrolled = () => {
    const first = Math.max(0, Math.floor(box.current.scrollTop / ROW_PX) - OVERSCAN);
    const rows = Math.min(60, Math.ceil(box.current.clientHeight / ROW_PX) + 2 * OVERSCAN);
    if (first !== view.first || rows !== view.rows) setView({ first, rows });
  };
  if (state.matched === null)
    return state.error
      ? html`<${ErrorNotice} error=${state.error} retry=${() => load(0, true)} />`
      : html`<${Skeleton} lines=${9} />`;
  if (state.matched === 0) return empty;
  const shown = columns.filter(Boolean);
  const last = Math.min(state.matched, view.first + view.rows);
  const indexes = Array.from({ length: Math.max(0, last - view.first) }, (_, n) => view.first + n);
  const rowAt = (index) => pages.current.get(Math.floor(index / PAGE_ROWS))?.[index % PAGE_ROWS];
  return html`<div class="scroll virtual" ref=${box} onScroll=${scrolled} tabindex="0" role="group" aria-label=${label}>
    <table aria-rowcount=${state.matched + 1}><caption class="visually-hidden">${label}</caption>
      <${Head} columns=${shown} sort=${sort} onSort=${onSort} />
      <tbody>
        <${Pad} px=${view.first * ROW_PX} columns=${shown.length} />
        ${indexes.map((index) => {
          const row = rowAt(index);
          return row
            ? html`<${Row} key=${keyOf(row)} columns=${shown} row=${row} index=${index + 2} />`
            : html`<tr key=${`#${index}`} aria-rowindex=${index + 2}><td colspan=${shown.length} class="muted">…</td></tr>`;
        })}
        <${Pad} px=${(state.matched - last) * ROW_PX} columns=${shown.length} />
      </tbody></table></div>`;
}

function Pad({ px, columns }) {
  return px > 0 && html`<tr class="pad" aria-hidden="true"><td colspan=${columns} style=${{ height: `${px}px` }}></td></tr>`;
}

// Figures

export function Spark({ values, label, width = 120, height = 28 }) {
  const known = (values ?? []).map((value) => value ?? 0);
  if (known.length < 2) return html`<svg class="spark" width=${width} height=${height} role="img" aria-label=${`${label}: no history yet`}></svg>`;
  const top = Math.max(...known, 1e-9);
  const points = known.map((value, at) =>
    `${((at / (known.length - 1)) * width).toFixed(1)},${(height - 2 - (value / top) * (height - 4)).toFixed(1)}`);
  return html`<svg class="spark" width="100%" height=${height} viewBox="0 0 ${width} ${height}" preserveAspectRatio="none"
    role="img" aria-label=${label}><path class="fill" d="M0,${height} L${points.join(" L")} L${width},${height} Z"></path>
    <path class="line" d="M${points.join(" L")}"></path></svg>`;
}

export function Meter({ share, level = "", label, wide = false }) {
  const width = Math.max(0, Math.min(1, share ?? 0)) * 100;
  return html`<span class="meter ${level} ${wide ? "wide" : ""}" role="meter" aria-label=${label} aria-valuemin="0" aria-valuemax="100"
    aria-valuenow=${Math.round(width)}><i style=${{ width: `${width}%` }}></i></span>`;
}

export const Pairs = ({ pairs }) => html`<dl class="pairs">${pairs
  .filter(Boolean)
  .map(([name, value]) => html`<dt>${name}</dt><dd>${value}</dd>`)}</dl>`;

// A colour of the style sheet as the canvas wants it, in the theme that is shown.
export function cssColour(name) {
  const probe = document.createElement("span");
  probe.style.color = `var(--${name})`;
  document.body.append(probe);
  const colour = getComputedStyle(probe).color;
  probe.remove();
  return colour;
}

// Calls back when the theme changes; what is on a canvas must be drawn again.
export function useTheme() {
  const [theme, set] = useState(0);
  useEffect(() => {
    const changed = () => set((n) => n + 1);
    const media = matchMedia("(prefers-color-scheme: dark)");
    media.addEventListener("change", changed);
    addEventListener("theme", changed);
    return () => {
      media.removeEventListener("change", changed);
      removeEventListener("theme", changed);
    };
  }, []);
  return theme;
}

// Journal

// A cause names up to twenty partitions; the whole of it is in the tooltip and on the partition's page.
const CAUSE = 120;
const ENTRY_LEVELS = { failure: "bad", response: "warn", leadership: "note", audit: "note" };

export function EntryText({ entry, cause = CAUSE }) {
  const subject = entry.topic
    ? entry.p !== null && entry.p !== undefined
      ? html`<${PartitionLink} topic=${entry.topic} p=${entry.p} />`
      : html`<${TopicLink} name=${entry.topic} />`
    : entry.broker !== null && entry.broker !== undefined
      ? html`broker <${BrokerLink} id=${entry.broker} />`
      : null;
  const isState = ["leadership", "partition", "replica", "audit"].includes(entry.kind);
  return html`${subject} ${entry.user && html`<${Tag} level="note"><${Text}>${entry.user}<//><//>`}
    ${isState && (entry.before || entry.after)
      ? html` <span class="mono"><${Text} clip=${300}>${entry.before || "nothing"}<//> → <${Text} clip=${300}>${entry.after || "nothing"}<//></span>`
      : html` <${Text} clip=${300}>${[entry.before, entry.after].filter(Boolean).join(" → ")}<//>`}
    ${entry.partitions > 0 && html` <span class="muted">(${count(entry.partitions)} partitions)</span>`}
    ${entry.why && html` <span class="muted" title=${visible(entry.why)}>why: <${Text} clip=${cause}>${entry.why}<//></span>`}`;
}

export function JournalList({ entries, label, fresh }) {
  return html`<ol class="journal boxed" aria-label=${label}>${entries.map(
    (entry) => html`<li key=${entry.id} class=${fresh?.has(entry.id) ? "fresh" : ""}>
      <span class="mono"><${Moment} ms=${entry.time_ms} withMilliseconds /></span>
      <span class="mono muted epoch" title="controller epoch and sequence number">e${entry.controller_epoch} #${entry.sequence}</span>
      <span class=${ENTRY_LEVELS[entry.kind] ?? ""}>${entry.kind}</span>
      <span class="text"><${EntryText} entry=${entry} /></span>
    </li>`,
  )}</ol>`;
}

// Changes: a plan first, an act second. The plan's id is in the address (?plan=), so that the very
// plan can be looked at again, and by a colleague, before it is started.

// `ends`: the act ends what the screen shows, so that there is nothing to ask for again.
export function usePlan({ ends = false } = {}) {
  const [query, change] = useQuery();
  const [state, set] = useState({ plan: null, error: null, busy: false });
  const id = query.plan;
  useEffect(() => {
    if (!id) return set({ plan: null, error: null, busy: false });
    if (state.plan?.id === id) return undefined;
    get(`/plans/${encodeURIComponent(id)}`).then(
      (plan) => set({ plan, error: null, busy: false }),
      (error) => set({ plan: null, error, busy: false }),
    );
    return undefined;
  }, [id]);
  const attempt = async (action) => {
    set((old) => ({ ...old, busy: true, error: null }));
    try {
      const plan = await action();
      set({ plan, error: null, busy: false });
      return plan;
    } catch (error) {
      set((old) => ({ ...old, error, busy: false }));
      return null;
    }
  };
  return {
    ...state,
    make: async (body) => {
      const plan = await attempt(() => post("/plans", body));
      if (plan) change({ plan: plan.id });
      return plan;
    },
    start: async (confirm) => {
      if (ends) endScreen(true);
      const plan = await attempt(() =>
        post(`/plans/${encodeURIComponent(state.plan.id)}/start`, confirm ? { confirm } : {}),
      );
      if (plan && plan.state !== "failed") {
        toast(`${plan.title}: done.`);
        if (!ends) refresh();
      } else if (ends) endScreen(false);
      return plan;
    },
    discard: () => change({ plan: "" }),
  };
}

export function ChangesTable({ plan }) {
  if (plan.changes.length === 0) return html`<p class="muted">Nothing would change.</p>`;
  return html`<${Table} label="What changes" tall rows=${plan.changes} keyOf=${(row) => row.subject}
    columns=${[
      { id: "subject", name: "what", cell: (row) => html`<${Text} clip=${160}>${row.subject}<//>` },
      { id: "before", name: "before", cell: (row) => html`<code><${Text} clip=${300}>${row.before ?? ""}<//></code>`, long: true },
      { id: "after", name: "after", cell: (row) => html`<code><${Text} clip=${300}>${row.after ?? ""}<//></code>`, long: true },
      { id: "note", name: "note", cell: (row) => html`<${Text} clip=${300}>${row.note ?? ""}<//>` },
    ]} />
    ${plan.changes_total > plan.changes.length &&
    html`<p class="muted">${count(plan.changes.length)} of ${count(plan.changes_total)} are shown.</p>`}`;
}

export function PlanView({ flow, verb = "Start", danger = false, children, done }) {
  const [typed, type] = useState("");
  const { plan, error, busy } = flow;
  if (!plan && !error) return null;
  if (!plan) return html`<${ErrorNotice} error=${error} />`;
  const finished = ["started", "done", "failed"].includes(plan.state);
  const failures = (plan.outcomes ?? []).filter((each) => each.error);
  const expired = plan.expires_ms && plan.expires_ms < Date.now() && !finished;
  return html`<div class="stack" role="group" aria-label="Plan">
    <p class="facts"><span>Plan <b class="mono">${plan.id}</b>: <b><${Text}>${plan.title}<//></b></span>
      <span>made ${clock(plan.made_ms)}</span>
      <span>${finished ? plan.state : expired ? "expired" : plan.state === "blocked" ? "cannot start" : "nothing has changed yet"}</span></p>
    ${plan.warnings?.map((each) => html`<${Notice} level="warn"><${Text}>${each}<//><//>`)}
    ${plan.blockers?.map((each) => html`<${Notice} level="bad"><${Text}>${each}<//><//>`)}
    ${children ? children(plan) : html`<${ChangesTable} plan=${plan} />`}
    ${error && html`<${ErrorNotice} error=${error} />`}
    ${finished && failures.length === 0 && plan.state !== "failed" &&
      html`<${Notice} level="good" role="status">${done ? done(plan) : "Done."}<//>`}
    ${failures.length > 0 && html`<${Notice} level="bad" role="alert"><p>${count(failures.length)} failed:</p>
      <ul>${failures.slice(0, 50).map((each) => html`<li><${Text}>${`${each.subject}: ${each.error} ${each.message ?? ""}`}<//></li>`)}</ul><//>`}
    ${!finished && html`<form class="form" onSubmit=${(event) => { event.preventDefault(); flow.start(plan.confirm ? typed : null); }}>
      ${plan.confirm && html`<${Input} label=${html`Type <b class="mono"><${Text}>${plan.confirm}<//></b> to confirm`}
        value=${typed} onValue=${type} autocomplete="off" spellcheck="false" />`}
      <button class="primary ${danger ? "danger" : ""}" disabled=${busy || expired || plan.state === "blocked" || (plan.confirm && typed !== plan.confirm)}>
        ${busy ? "Working…" : verb}</button>
      <button type="button" onClick=${flow.discard}>Discard plan</button>
    </form>`}
  </div>`;
}

// An action of a screen: ?act=NAME opens its dialog, which holds a form and then the plan. What is in
// the form is in the address, too, but for fields that are `secret`. What is typed to confirm a plan is
// not: it is for whoever starts it.
export function Action({ name, label, right = "operate", danger = false, title, verb, form, body, initial = {}, done, primary = false, ends = false, secret = [] }) {
  const [query, change] = useQuery();
  if (!may(right)) return null;
  const isOpen = query.act === name;
  return html`<button class="${danger ? "danger" : ""} ${primary ? "primary" : ""}" onClick=${() => change({ act: name, plan: "", form: "" }, {})}>${label}</button>
    ${isOpen && html`<${ActionDialog} ...${{ title: title ?? label, verb, danger, form, body, initial, done, ends, secret }}
      onClose=${() => change({ act: "", plan: "", form: "" })} />`}`;
}

function ActionDialog({ title, verb, danger, form, body, initial, done, onClose, ends, secret }) {
  const flow = usePlan({ ends });
  const [values, set] = useKept("form", initial, { secret });
  const [query] = useQuery();
  useEffect(() => {
    if (!form && !query.plan) flow.make(body({}));
  }, []);
  const change = (changes) => set((old) => ({ ...old, ...changes }));
  const planned = Boolean(flow.plan);
  return html`<${Dialog} title=${title} onClose=${onClose}>
    ${form && !planned && html`<form class="stack" onSubmit=${(event) => { event.preventDefault(); flow.make(body(values)); }}>
      ${form(values, change, flow.error?.problem?.field)}
      ${flow.error && html`<${ErrorNotice} error=${flow.error} />`}
      <footer><button class="primary" disabled=${flow.busy}>${flow.busy ? "Planning…" : "Preview"}</button></footer>
    </form>`}
    ${!form && !planned && !flow.error && html`<${Skeleton} lines=${3} />`}
    ${(planned || !form) && html`<${PlanView} flow=${flow} verb=${verb} danger=${danger} done=${done} />`}
  <//>`;
}
