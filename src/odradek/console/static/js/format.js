// Values as text. Pure functions: what is not known is an en dash.

export const UNKNOWN = "–";
const known = (value) => value !== null && value !== undefined && !Number.isNaN(value);
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
  known(value) ? scaled(value, 1024, [" B", " KiB", " MiB", " GiB", " TiB", " PiB"]) : UNKNOWN;
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
