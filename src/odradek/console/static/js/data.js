// Where the page is (every state is a URL), what it asks the console, and what it hears live.
import { useEffect, useRef, useState } from "../vendor/preact.js";

// Location: /c/CLUSTER/SCREEN?…, where names of topics, groups and the like are in the query.

export function current() {
  const [, cluster = "main", screen = "overview"] = location.pathname.split("/").filter(Boolean);
  return { cluster, screen, query: Object.fromEntries(new URLSearchParams(location.search)) };
}

export function parameters(query) {
  const pairs = Object.entries(query).flatMap(([name, value]) =>
    Array.isArray(value) ? value.map((each) => [name, each]) : [[name, value]],
  );
  const given = pairs.filter(([, v]) => v !== undefined && v !== null && v !== "");
  const text = new URLSearchParams(given).toString();
  return text ? `?${text}` : "";
}

// The address of a screen. The moment that is looked at stays.
export function href(screen, query = {}) {
  const { cluster, query: now } = current();
  return `/c/${cluster}/${screen}${parameters({ at: now.at, ...query })}`;
}

// Whether what the screen shows is being ended by an act of its own: it is not asked for again, since
// it may be gone before the act is answered. Another screen, or a failed act, ends that.
let ended = null;
const shown = () => {
  const { screen, query } = current();
  return `${screen} ${query.name ?? query.id ?? ""}`;
};
const isEnded = () => ended === shown();
// What is being asked for; an answer that is on its way would find it gone, too.
const asking = new Set();
export function endScreen(isEnding) {
  ended = isEnding ? shown() : null;
  if (isEnding) asking.forEach((question) => question.abort());
  else refresh();
}

// What is typed but not sent, opened, paused or scrolled to is in the address, too, each under a name
// of its own: written after a short while, since it changes with every key, and without drawing
// anything again. What must not be in a history or a link is left out by its screen (`secret`).
const QUIET_MS = 200;
const KEPT_MAX = 2000; // letters: longer addresses are refused here and there
let keeping = {};
let keepingTimer;

export function keep(changes) {
  keeping = { ...keeping, ...changes };
  clearTimeout(keepingTimer);
  keepingTimer = setTimeout(settle, QUIET_MS);
}

function settle() {
  clearTimeout(keepingTimer);
  const changes = keeping;
  keeping = {};
  if (Object.keys(changes).length === 0) return;
  const address = location.pathname + parameters({ ...current().query, ...changes });
  if (address !== location.pathname + location.search) history.replaceState(history.state, "", address);
}

const isObject = (value) => value !== null && typeof value === "object";

// The difference from how it began, as JSON; of a form the fields that were changed.
function written(value, initial, secret) {
  if (!isObject(initial)) return value === initial ? "" : JSON.stringify(value);
  const changed = Object.entries(value).filter(([name, each]) => !secret.includes(name) && each !== initial[name]);
  const short = [];
  let left = KEPT_MAX;
  for (const [name, each] of changed.sort(([, a], [, b]) => String(a).length - String(b).length)) {
    left -= String(each).length;
    if (left > 0) short.push([name, each]);
  }
  return short.length ? JSON.stringify(Object.fromEntries(short)) : "";
}

// An address is written by anybody: a form takes from it values of the fields that it has.
function restored(text, initial, secret) {
  if (!text) return initial;
  let value;
  try {
    value = JSON.parse(text);
  } catch {
    return initial;
  }
  if (!isObject(initial)) return typeof value === typeof initial ? value : initial;
  if (!isObject(value)) return initial;
  const fields = Object.keys(initial).filter((name) => Object.hasOwn(value, name) && !secret.includes(name) && !isObject(value[name]));
  return { ...initial, ...Object.fromEntries(fields.map((name) => [name, value[name]])) };
}

// As useState, and in the address under a name.
export function useKept(name, initial, { secret = [] } = {}) {
  const [value, set] = useState(() => restored(current().query[name], initial, secret));
  const latest = useRef(value);
  latest.current = value;
  const change = (next) => {
    latest.current = typeof next === "function" ? next(latest.current) : next;
    set(latest.current);
    keep({ [name]: written(latest.current, initial, secret) });
  };
  return [value, change];
}

// A text that is being changed, and becomes the `settled` one when it is sent.
export function useDraft(name, settled) {
  const [text, change] = useKept(name, settled);
  const before = useRef(settled);
  useEffect(() => {
    if (before.current !== settled) change(settled);
    before.current = settled;
  }, [settled]);
  return [text, change];
}

// How far the page (in pixels) and its boxes (by name; the first row in sight) are scrolled: ?scroll=.

const PAGE = "";
const RESTORED_MS = 10000; // what is not there until then has become another list
let restoring = null;

function firstRow(box) {
  // Of a long list the rows that a jump brings into sight are drawn after this; all are as high.
  const drawn = box.classList.contains("virtual") && box.querySelector("tbody tr[aria-rowindex]");
  if (drawn) return Math.floor((box.scrollTop + 1) / drawn.getBoundingClientRect().height);
  const head = box.querySelector("thead")?.getBoundingClientRect().bottom ?? box.getBoundingClientRect().top;
  const row = [...box.querySelectorAll("tr.row")].find((each) => each.getBoundingClientRect().bottom > head + 1);
  return row ? rowNumber(row) : 0;
}
// In a list of which only a part is in the page, aria-rowindex counts the head and begins with 1.
const rowNumber = (row) => (row.ariaRowIndex ? Number(row.ariaRowIndex) - 2 : row.sectionRowIndex);
const boxes = () => [...document.querySelectorAll("main .scroll[aria-label]")];

function noteScroll() {
  if (restoring) return;
  const found = { [PAGE]: Math.round(scrollY) };
  for (const box of boxes()) if (box.scrollTop > 0) found[box.ariaLabel] = firstRow(box);
  const moved = Object.entries(found).filter(([, at]) => at > 0);
  keep({ scroll: moved.length ? JSON.stringify(Object.fromEntries(moved)) : "" });
}

// Lists come later than the page, and long ones in parts: each place is gone to once it is there.
function goToPlaces() {
  for (const [name, at] of restoring) {
    if (name === PAGE) scrollTo(0, at);
    const box = name === PAGE ? null : boxes().find((each) => each.ariaLabel === name);
    const row = box?.querySelector("tr.row");
    if (row && box.classList.contains("virtual")) box.scrollTop = at * row.getBoundingClientRect().height;
    else if (row) {
      const wanted = [...box.querySelectorAll("tr.row")].find((each) => rowNumber(each) === at);
      if (wanted) box.scrollTop += wanted.getBoundingClientRect().top - box.querySelector("thead").getBoundingClientRect().bottom;
    }
    if (name === PAGE ? Math.round(scrollY) === at : row && firstRow(box) === at) restoring.delete(name);
  }
  if (restoring.size === 0) restoring = null;
}

export function restoreScroll() {
  const begun = Date.now();
  let found = {};
  try {
    found = JSON.parse(current().query.scroll ?? "{}");
  } catch {
    // not ours
  }
  restoring = new Map(Object.entries(isObject(found) ? found : {}).filter(([, at]) => Number.isInteger(at) && at > 0));
  const step = () => {
    if (!restoring) return;
    if (Date.now() - begun > RESTORED_MS) restoring = null;
    else goToPlaces();
    if (restoring) setTimeout(step, 50);
  };
  step();
}
addEventListener("scroll", noteScroll, { capture: true, passive: true });
// Who scrolls meanwhile decides where.
for (const sign of ["wheel", "pointerdown", "keydown", "touchmove"])
  addEventListener(sign, () => { restoring = null; }, { capture: true, passive: true });

const travellers = new Set();
const travelled = () => {
  if (!isEnded()) ended = null;
  travellers.forEach((listener) => listener());
};
addEventListener("popstate", () => {
  keeping = {}; // it was of the address that was left
  travelled();
  restoreScroll();
});

export function navigate(url, { replace = false } = {}) {
  settle();
  const before = current().screen;
  restoring = null;
  history[replace ? "replaceState" : "pushState"](null, "", url);
  travelled();
  if (before !== current().screen) scrollTo(0, 0);
  noteScroll();
}

export function useLocation() {
  const [, redraw] = useState(0);
  useEffect(() => {
    const listener = () => redraw((n) => n + 1);
    travellers.add(listener);
    return () => travellers.delete(listener);
  }, []);
  return current();
}

// The screen's filters, and a function that changes some of them in the address.
export function useQuery() {
  const { query } = useLocation();
  const change = (changes, options = { replace: true }) => {
    settle();
    navigate(location.pathname + parameters({ ...current().query, ...changes }), options);
  };
  return [query, change];
}

// Links inside the console change the screen without loading the page again.
addEventListener("click", (event) => {
  if (event.defaultPrevented || event.button !== 0) return;
  if (event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
  const anchor = event.target instanceof Element ? event.target.closest("a[href]") : null;
  if (!anchor || anchor.target || anchor.hasAttribute("download")) return;
  const url = new URL(anchor.href);
  if (url.origin !== location.origin || !url.pathname.startsWith("/c/")) return;
  event.preventDefault();
  navigate(url.pathname + url.search);
});

// Requests

export const address = (path, query = {}) => `/api/v1${path}${parameters(query)}`;

// What went wrong, in the words of application/problem+json. Status 0: the console did not answer.
export class Problem extends Error {
  constructor(status, problem = {}) {
    super(problem.detail || problem.title || `The console answered with status ${status}.`);
    this.status = status;
    this.problem = problem;
  }
}

async function request(method, path, { query, body, signal } = {}) {
  const options = { method, signal, headers: { Accept: "application/json" } };
  if (body !== undefined) {
    options.body = JSON.stringify(body);
    options.headers["Content-Type"] = "application/json";
  }
  let response;
  try {
    response = await fetch(address(path, query), options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    reachable.set(false);
    throw new Problem(0, { detail: "The console process does not answer." });
  }
  reachable.set(true);
  const text = await response.text();
  const isJson = /json/.test(response.headers.get("Content-Type") ?? "");
  const value = isJson && text ? JSON.parse(text) : null;
  if (response.ok) return value;
  if (response.status === 401 && path !== "/session") dispatchEvent(new Event("signed-out"));
  throw new Problem(response.status, value ?? {});
}

export const get = (path, query, signal) => request("GET", path, { query, signal });
export const post = (path, body = {}) => request("POST", path, { body });
export const remove = (path) => request("DELETE", path, { body: {} });

// A value that several parts of the page show.
function shared(initial) {
  let value = initial;
  const listeners = new Set();
  return {
    get: () => value,
    set(next) {
      if (next === value) return;
      value = next;
      listeners.forEach((listener) => listener(next));
    },
    use() {
      const [seen, see] = useState(value);
      useEffect(() => {
        see(value);
        listeners.add(see);
        return () => listeners.delete(see);
      }, []);
      return seen;
    },
  };
}

export const reachable = shared(true); // whether the console process answers
export const picture = shared(null); // the last `picture` event: {age_s, ok, problems}
export const session = shared(null);
export const announcement = shared(""); // read out politely; see announce()
export const toasts = shared([]);

let announcedAt = 0;
let announcing;
// At most one message in five seconds is read out: the last one.
export function announce(text) {
  clearTimeout(announcing);
  const wait = Math.max(0, announcedAt + 5000 - Date.now());
  announcing = setTimeout(() => {
    announcedAt = Date.now();
    announcement.set(text);
  }, wait);
}

let toastNumber = 0;
export function toast(text, level = "good") {
  toastNumber += 1;
  const entry = { id: toastNumber, text, level };
  toasts.set([...toasts.get().slice(-3), entry]);
  announce(text);
  setTimeout(() => dismiss(entry.id), level === "bad" ? 12000 : 6000);
}
export const dismiss = (id) => toasts.set(toasts.get().filter((each) => each.id !== id));

export const may = (right) => {
  const now = session.get();
  return Boolean(now && now.can.includes(right) && (!now.read_only || right === "records" || right === "read"));
};

// Live events: one stream for the whole tab, closed while the tab is hidden.

const EVENTS = [
  "overview", "brokers", "topics", "topic", "groups", "group", "moves", "controller", "journal",
  "search", "drill", "pipelines",
];
const NAMED = { topic: "name", group: "id", search: "id", drill: "id" };
const watchers = new Map(); // "group:billing" -> functions of the event's data
const refreshers = new Set(); // called after the stream was away
let stream = null;
let reopening;

function open() {
  close();
  if (document.hidden || !session.get()) return;
  stream = new EventSource(address("/events", { watch: [...watchers.keys()] }));
  for (const name of EVENTS) {
    stream.addEventListener(name, (event) => {
      const data = JSON.parse(event.data);
      const key = NAMED[name] ? `${name}:${data[NAMED[name]]}` : name;
      watchers.get(key)?.forEach((watcher) => watcher(data));
    });
  }
  stream.addEventListener("hello", () => reachable.set(true));
  stream.addEventListener("picture", (event) => picture.set({ ...JSON.parse(event.data), seen: Date.now() }));
  stream.addEventListener("reset", refresh);
  stream.addEventListener("gap", refresh);
  stream.onerror = () => {
    reachable.set(false);
    // A refused stream is not tried again by the browser.
    if (stream?.readyState === EventSource.CLOSED) reopen(3000);
  };
}

function close() {
  stream?.close();
  stream = null;
}

// Screens name what they watch one after the other as they are drawn: one stream for all of it.
function reopen(delay = 200) {
  clearTimeout(reopening);
  reopening = setTimeout(open, delay);
}

export const refresh = () => refreshers.forEach((refresher) => refresher());

document.addEventListener("visibilitychange", () => {
  if (document.hidden) close();
  else {
    open();
    refresh();
  }
});
addEventListener("pagehide", close);
export const startLive = () => reopen();
export const stopLive = () => close();

export function watch(name, watcher) {
  const isNew = !watchers.has(name);
  if (isNew) watchers.set(name, new Set());
  watchers.get(name).add(watcher);
  if (isNew) reopen();
  return () => {
    const all = watchers.get(name);
    all.delete(watcher);
    if (all.size === 0) {
      watchers.delete(name);
      reopen();
    }
  };
}

export function useWatch(name, watcher) {
  const latest = useRef(watcher);
  latest.current = watcher;
  useEffect(() => (name ? watch(name, (data) => latest.current(data)) : undefined), [name]);
}

// What a path answers. Data stays on the screen while it is asked for again, also when that fails.
// `live` names a watch whose events replace the data, or make it be asked for again (`version`);
// the past does not change, so nothing is watched with `at`.
export function useGet(path, query = {}, { live = null, poll = 0, subject = path } = {}) {
  const [state, set] = useState({ data: null, error: null, loading: true, subject });
  const key = path === null ? null : address(path, query);
  const controller = useRef(null);
  const load = () => {
    if (key === null || isEnded()) return;
    controller.current?.abort();
    const mine = new AbortController();
    controller.current = mine;
    asking.add(mine);
    set((old) => ({ ...(old.subject === subject ? old : { data: null, error: null }), loading: true, subject }));
    get(path, query, mine.signal).finally(() => asking.delete(mine)).then(
      (data) => mine === controller.current && set({ data, error: null, loading: false, subject }),
      (error) => {
        if (error.name === "AbortError" || mine !== controller.current) return;
        set((old) => ({ ...old, error, loading: false, subject }));
      },
    );
  };
  const latest = useRef(load);
  latest.current = load;
  useEffect(() => {
    latest.current();
    return () => controller.current?.abort();
  }, [key]);
  useEffect(() => {
    const refresher = () => latest.current();
    refreshers.add(refresher);
    const timer = poll && !query.at ? setInterval(() => document.hidden || refresher(), poll) : 0;
    return () => {
      refreshers.delete(refresher);
      clearInterval(timer);
    };
  }, [key, poll]);
  useWatch(query.at ? null : live, (data) =>
    "version" in data ? latest.current() : set({ data, error: null, loading: false, subject }),
  );
  const shown = state.subject === subject ? state : { data: null, error: null, loading: true };
  return { ...shown, reload: () => latest.current() };
}
