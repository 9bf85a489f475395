// The frame around every screen: login, navigation, search, time bar, keys, and which screen it is.
import {
  announcement, clock, count, current, Dialog, dismiss, duration, Empty, ErrorNotice, get, GroupLink, href,
  html, Input, isoOf, keep, Link, localOf, moment, navigate, Notice, picture, plural, post, Problem, reachable, render, restoreScroll,
  session, Skeleton, startLive, State, stopLive, Text, toasts, TopicLink, useEffect, useErrorBoundary, useGet,
  useKept, useLocation, useQuery, useRef, useState,
} from "./ui.js";

// Screens by the first part of the path; each is loaded when it is first shown. `key`: g, then it.
const SCREENS = {
  overview: { name: "Overview", key: "o", module: "overview", part: "Overview" },
  brokers: { name: "Brokers", key: "b", module: "brokers", part: "Brokers" },
  broker: { module: "brokers", part: "Broker", under: "brokers" },
  topics: { name: "Topics", key: "t", module: "topics", part: "Topics" },
  topic: { module: "topics", part: "Topic", under: "topics" },
  partition: { module: "partition", part: "Partition", under: "topics" },
  records: { name: "Records", key: "r", module: "records", part: "Records" },
  produce: { module: "produce", part: "Produce", under: "records" },
  groups: { name: "Groups", key: "g", module: "groups", part: "Groups" },
  group: { module: "groups", part: "Group", under: "groups" },
  pipelines: { name: "Pipelines", key: "s", module: "pipelines", part: "Pipelines" },
  pipeline: { module: "pipelines", part: "Pipeline", under: "pipelines" },
  planner: { name: "Planner", key: "p", module: "planner", part: "Planner" },
  moves: { name: "Moves", key: "m", module: "planner", part: "Moves" },
  configs: { name: "Configs", key: "c", module: "configs", part: "Configs" },
  clients: { name: "Clients & quotas", key: "q", module: "clients", part: "Clients" },
  security: { name: "Users & ACLs", key: "u", module: "security", part: "Security" },
  controller: { name: "Controller", key: "k", module: "controller", part: "Controller" },
  drills: { name: "Drills", key: "d", module: "drills", part: "Drills" },
  drill: { module: "drills", part: "Drill", under: "drills" },
  audit: { name: "Audit", key: "a", module: "audit", part: "Audit" },
};
const PARTS = [
  ["Cluster", ["overview", "brokers", "topics", "controller"]],
  ["Data", ["records", "groups", "pipelines"]],
  ["Change", ["planner", "moves", "configs", "clients", "security"]],
  ["Trust", ["drills", "audit"]],
];

// Theme: the system's, unless the switch says otherwise.
const THEMES = ["system", "light", "dark"];
const themeNow = () => localStorage.getItem("theme") ?? "system";
function showTheme(theme) {
  if (theme === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  dispatchEvent(new Event("theme"));
}
showTheme(themeNow());

function ThemeSwitch() {
  const [theme, set] = useState(themeNow());
  const next = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length];
  return html`<button class="quiet" title="Change the colours" onClick=${() => {
    localStorage.setItem("theme", next);
    set(next);
    showTheme(next);
  }}><span class="visually-hidden">Colours: </span>${{ system: "Auto", light: "Light", dark: "Dark" }[theme]}</button>`;
}

// Login

function Login({ ways, onDone, failed }) {
  const [values, set] = useState({ token: "", user: "", password: "" });
  const [error, setError] = useState(failed);
  const byToken = !ways.includes("password");
  const submit = async (event) => {
    event.preventDefault();
    const { token, user, password } = values;
    try {
      onDone(await post("/login", byToken ? { token: token.replace(/^.*#token=/, "").trim() } : { user, password }));
    } catch (problem) {
      setError(problem);
    }
  };
  const text = (name) => ({ value: values[name], onValue: (value) => set((old) => ({ ...old, [name]: value })) });
  return html`<main class="login"><div class="brand"><${Spool} />Odradek console</div>
    <form class="stack" onSubmit=${submit}>
      <h1>Sign in</h1>
      ${error && html`<${ErrorNotice} error=${error} />`}
      ${byToken
        ? html`<${Input} label="Token" type="password" autocomplete="off" hint="Open the link that odradek console printed when it started, or paste it here." ...${text("token")} />`
        : html`<${Input} label="User" autocomplete="username" ...${text("user")} />
            <${Input} label="Password" type="password" autocomplete="current-password" ...${text("password")} />`}
      <button class="primary">Sign in</button>
    </form></main>`;
}

// The link's token is in the fragment, which no server logs; it leaves the address at once.
async function signIn() {
  const token = new URLSearchParams(location.hash.slice(1)).get("token");
  if (token) {
    history.replaceState(null, "", location.pathname + location.search);
    return post("/login", { token });
  }
  return get("/session");
}

const Spool = () => html`<svg width="20" height="20" viewBox="0 0 24 24" fill="none" stroke="currentColor" stroke-width="2"
  stroke-linecap="round" aria-hidden="true"><path d="M5 3h14M5 21h14M8 3v18M16 3v18M8 8l8-2M8 12l8-2M8 16l8-2M16 18l4 2"></path></svg>`;

// The head: cluster, age of the picture, search, moment, user

function Status() {
  const answers = reachable.use();
  const last = picture.use();
  const [, tick] = useState(0);
  useEffect(() => {
    const timer = setInterval(() => tick((n) => n + 1), 1000);
    return () => clearInterval(timer);
  }, []);
  const age = last && last.age_s !== null ? last.age_s * 1000 + (Date.now() - last.seen) : null;
  return html`<div class="status"><strong><${Text} clip=${40}>${session.get().cluster.name}<//></strong>
    ${!answers
      ? html`<${State} level="bad">console does not answer<//>`
      : last?.ok === false
        ? html`<${State} level="bad">no broker answers<//>`
        : last && html`<${State} level="good">connected<//>`}
    ${age !== null && html`<span class="age">picture ${duration(Math.max(100, age))} old</span>`}
    ${last?.problems > 0 && html`<${Link} to="overview">${plural(last.problems, "problem")}<//>`}</div>`;
}

function TimeBar({ onClose }) {
  const [query, change] = useQuery();
  const state = useGet("/timeline", {}, { poll: 15000 });
  const at = query.at ? Date.parse(query.at) : null;
  const span = state.data;
  const first = span?.first_entry_ms ?? span?.from_ms ?? Date.now() - 3600000;
  const last = Math.max(span?.to_ms ?? 0, Date.now());
  const timer = useRef();
  const [shown, show] = useState(null);
  const go = (ms) => {
    show(ms);
    clearTimeout(timer.current);
    timer.current = setTimeout(() => {
      show(null);
      change({ at: ms >= last - 500 ? "" : isoOf(Math.round(ms)) });
    }, 150);
  };
  const marks = span?.marks ?? [];
  const neighbour = (direction) => {
    const from = at ?? last;
    const times = marks.map((mark) => mark.time_ms).filter((ms) => (direction < 0 ? ms < from : ms > from));
    const found = direction < 0 ? Math.max(...times) : Math.min(...times);
    return Number.isFinite(found) ? found : null;
  };
  const value = shown ?? at ?? last;
  return html`<div class="timebar" role="group" aria-label="Moment shown">
    <button onClick=${() => go(neighbour(-1) ?? first)} disabled=${neighbour(-1) === null}>◀ Change before</button>
    <input type="range" min=${first} max=${last} step="1" value=${value} list="marks" aria-label="Moment"
      aria-valuetext=${value >= last - 500 ? "now" : moment(value)} onInput=${(event) => go(Number(event.target.value))} />
    <datalist id="marks">${marks.slice(0, 300).map((mark) => html`<option value=${mark.time_ms}></option>`)}</datalist>
    <button onClick=${() => go(neighbour(1) ?? last)} disabled=${at === null}>Change after ▶</button>
    <input type="datetime-local" step="1" aria-label="Exact moment" value=${localOf(value)}
      onChange=${(event) => event.target.value && change({ at: isoOf(Date.parse(event.target.value)) })} />
    <button onClick=${() => change({ at: "" })} disabled=${at === null}>Now</button>
    <button class="quiet" onClick=${onClose} aria-label="Close the time bar">✕</button>
    <p class="scale"><span>${span?.first_entry_ms ? `journal since ${moment(first)}` : "no journal entries yet"}</span>
      <span>${at !== null && html`<b class="warn">as of ${moment(at, true)}</b>`}</span><span>now ${clock(last)}</span></p>
  </div>`;
}

function Finder({ onClose }) {
  const [q, set] = useKept("find", "");
  useEffect(() => () => keep({ find: "" }), []);
  const state = useGet(q.trim() ? "/find" : null, { q });
  const found = q.trim() ? state.data : null;
  const screens = Object.entries(SCREENS).filter(([, each]) => each.name && each.name.toLowerCase().includes(q.toLowerCase()));
  const list = (title, items, item) => items?.length > 0 && html`<h3>${title}</h3><ul>${items.map((each) => html`<li key=${each}>${item(each)}</li>`)}</ul>`;
  const follow = (event) => event.target.closest("a") && onClose();
  const walk = (event) => {
    if (event.key !== "ArrowDown" && event.key !== "ArrowUp") return;
    event.preventDefault();
    const all = [...event.currentTarget.querySelectorAll("input, .results a")];
    const at = all.indexOf(document.activeElement) + (event.key === "ArrowDown" ? 1 : -1);
    all[Math.max(0, Math.min(all.length - 1, at))]?.focus();
  };
  return html`<${Dialog} title="Search everything" onClose=${onClose}><div onKeyDown=${walk}>
    <form onSubmit=${(event) => {
      event.preventDefault();
      event.target.parentNode.querySelector(".results a")?.click();
    }}><${Input} label="Topic, group, broker, setting or screen" value=${q} onValue=${set} autofocus autocomplete="off" spellcheck="false" wide /></form>
    <div class="results" onClick=${follow}>
      ${list("Topics", found?.topics, (name) => html`<${TopicLink} name=${name} />`)}
      ${list("Groups", found?.groups, (id) => html`<${GroupLink} id=${id} />`)}
      ${list("Brokers", found?.brokers, (id) => html`<${Link} to="broker" query=${{ id }}>broker ${id}<//>`)}
      ${list("Settings", found?.settings, (name) => html`<${Link} to="configs" query=${{ type: "broker", all: 1, q: name }}><${Text}>${name}<//><//>`)}
      ${list("Pipelines", found?.pipelines, (name) => html`<${Link} to="pipelines" query=${{ q: name }}><${Text}>${name}<//><//>`)}
      ${list("Screens", screens.map(([id]) => id), (id) => html`<${Link} to=${id}>${SCREENS[id].name}<//>`)}
      ${q.trim() && found && !screens.length && !Object.values(found).some((each) => each.length) && html`<p class="muted">Nothing is called like this.</p>`}
    </div></div><//>`;
}

const KEYS = [
  ["/", "search everything"], ["t", "time bar"], ["j k", "next, previous row"], ["Enter", "open the row"], ["?", "these keys"],
];
const Help = ({ onClose }) => html`<${Dialog} title="Keys" onClose=${onClose}><dl class="pairs">
  ${KEYS.map(([keys, text]) => html`<dt>${keys.split(" ").map((key) => html`<kbd>${key}</kbd> `)}</dt><dd>${text}</dd>`)}
  ${Object.values(SCREENS).filter((each) => each.name).map((each) => html`<dt><kbd>g</kbd> <kbd>${each.key}</kbd></dt><dd>${each.name}</dd>`)}
</dl><//>`;

// Keys act unless something is being typed.
function useKeys(actions) {
  const latest = useRef(actions);
  latest.current = actions;
  useEffect(() => {
    let goes = false;
    const pressed = (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
      if (event.target.closest("input, select, textarea, dialog, [role=application]")) return;
      if (goes) {
        goes = false;
        const found = Object.entries(SCREENS).find(([, each]) => each.key === event.key);
        if (found) {
          event.preventDefault();
          navigate(href(found[0]));
        }
        return;
      }
      if (event.key === "g") goes = true;
      else if (event.key === "j" || event.key === "k") moveRow(event.key === "j" ? 1 : -1);
      else if (latest.current[event.key]) {
        event.preventDefault();
        latest.current[event.key]();
      }
    };
    addEventListener("keydown", pressed);
    return () => removeEventListener("keydown", pressed);
  }, []);
}

function moveRow(step) {
  const rows = [...document.querySelectorAll("main .rowlink")];
  const now = rows.indexOf(document.activeElement);
  rows[Math.max(0, Math.min(rows.length - 1, now < 0 ? 0 : now + step))]?.focus();
}

function Nav({ screen }) {
  const here = SCREENS[screen]?.under ?? screen;
  const features = session.get().features;
  const hidden = (id) => id === "drills" && !features.drills;
  return html`<nav class="nav" aria-label="Screens"><div class="fixed">${PARTS.map(
    ([name, ids]) => html`<h2>${name}</h2><ul>${ids.filter((id) => !hidden(id)).map(
      (id) => html`<li><a href=${href(id)} aria-current=${id === here ? "page" : null}>${SCREENS[id].name}</a></li>`,
    )}</ul>`,
  )}</div></nav>`;
}

// The screen

const modules = new Map();

function Screen({ screen }) {
  const [, redraw] = useState(0);
  const [problem, forget] = useErrorBoundary((error) => console.error(error));
  const known = SCREENS[screen];
  const loaded = known && modules.get(known.module);
  useEffect(() => {
    if (!known || loaded) return;
    import(`./screens/${known.module}.js`).then(
      (module) => modules.set(known.module, module),
      () => modules.set(known.module, { failed: true }),
    ).then(() => redraw((n) => n + 1));
  }, [screen]);
  useEffect(() => forget(), [screen]);
  if (!known) return html`<h1>No such screen</h1><${Empty} title="The address leads nowhere."
    actions=${html`<${Link} to="overview">Overview<//>`} />`;
  const failed = (notice) => html`<h1>${known.name ?? SCREENS[known.under].name}</h1>${notice}`;
  if (problem) return failed(html`<${Notice} level="bad" role="alert">This screen failed: ${String(problem)} ${" "}
    <button class="linklike" onClick=${forget}>Try again</button><//>`);
  if (!loaded) return html`<${Skeleton} lines=${8} />`;
  if (loaded.failed) return failed(html`<${Notice} level="bad" role="alert">This screen could not be loaded: the console does not answer.${" "}
    <button class="linklike" onClick=${() => location.reload()}>Load again</button><//>`);
  const Part = loaded[known.part];
  return html`<${Part} key=${screen} />`;
}

function User({ onOut }) {
  const { user, role, read_only: readOnly } = session.get();
  return html`<span class="muted who"><${Text} clip=${24}>${user}<//>, ${role}${readOnly ? ", read-only" : ""}</span>
    <button class="quiet" onClick=${async () => {
      await post("/logout").catch(() => {});
      onOut();
    }}>Sign out</button>`;
}

function Toasts() {
  const shown = toasts.use();
  const said = announcement.use();
  return html`<div class="visually-hidden" role="status" aria-live="polite">${said}</div>
    <div class="toasts">${shown.map((each) => html`<${Notice} key=${each.id} level=${each.level}
      onDismiss=${() => dismiss(each.id)}><${Text}>${each.text}<//><//>`)}</div>`;
}

function Frame({ onOut }) {
  const { screen, query } = useLocation();
  const [open, set] = useKept("dialog", ""); // finder, help
  const [timed, setTimed] = useKept("timebar", false);
  useEffect(() => {
    // It stays open from screen to screen.
    if (timed && !current().query.timebar) keep({ timebar: "true" });
  });
  useEffect(restoreScroll, []);
  const main = useRef();
  const before = useRef(screen);
  useEffect(() => {
    // A reader that follows focus learns of the new screen; the first screen is read from the top.
    if (before.current !== screen) main.current.focus({ preventScroll: true });
    before.current = screen;
  }, [screen]);
  useKeys({ "/": () => set("finder"), "?": () => set("help"), t: () => setTimed((now) => !now) });
  const journal = session.get().features.journal;
  return html`<a class="skip" href="#main" onClick=${(event) => {
      event.preventDefault();
      main.current.focus();
    }}>To the content</a>
    <div class="frame ${query.at ? "past" : ""}">
      <header class="head"><div class="bar">
        <a class="brand" href=${href("overview")}><${Spool} />Odradek</a><${Status} /><span class="spring"></span>
        <button class="finder" onClick=${() => set("finder")}>Search <kbd>/</kbd></button>
        ${journal && html`<button aria-pressed=${timed || Boolean(query.at)} onClick=${() => setTimed(!timed)}>Time <kbd>t</kbd></button>`}
        <${ThemeSwitch} /><button class="quiet" onClick=${() => set("help")} aria-label="Keys">?</button><${User} onOut=${onOut} />
      </div>
      ${journal && (timed || query.at) && html`<${TimeBar} onClose=${() => {
        setTimed(false);
        if (query.at) navigate(location.pathname + location.search.replace(/([?&])at=[^&]*/, "$1"), { replace: true });
      }} />`}</header>
      <${Nav} screen=${screen} />
      <main class="main" id="main" tabindex="-1" ref=${main}><${Screen} screen=${screen} /></main>
    </div>
    ${open === "finder" && html`<${Finder} onClose=${() => set("")} />`}
    ${open === "help" && html`<${Help} onClose=${() => set("")} />`}
    <${Toasts} />`;
}

function App() {
  const [state, set] = useState({ stage: "starting" });
  const enter = (found) => {
    session.set(found);
    if (!location.pathname.startsWith("/c/")) history.replaceState(null, "", `/c/${encodeURIComponent(found.cluster.name)}/overview${location.search}`);
    startLive();
    set({ stage: "in" });
  };
  const leave = (error) => {
    stopLive();
    session.set(null);
    if (error instanceof Problem && error.status !== 401 && error.status !== 403) set({ stage: "failed", error });
    else set({ stage: "out", ways: error?.problem?.login ?? state.ways ?? ["token"], failed: error?.status === 403 ? error : null });
  };
  const begin = () => signIn().then(enter, leave);
  useEffect(() => {
    begin();
    const out = () => get("/session").then(enter, leave);
    addEventListener("signed-out", out);
    return () => removeEventListener("signed-out", out);
  }, []);
  if (state.stage === "in") return html`<${Frame} onOut=${() => get("/session").then(enter, leave)} />`;
  if (state.stage === "out") return html`<${Login} ways=${state.ways} failed=${state.failed} onDone=${enter} />`;
  if (state.stage === "failed") return html`<main class="login"><div class="brand"><${Spool} />Odradek console</div>
    <${ErrorNotice} error=${state.error} retry=${begin} /></main>`;
  return html`<div class="frame"><header class="head"><div class="bar"><span class="brand"><${Spool} />Odradek</span></div></header>
    <div class="nav"></div><main class="main"><${Skeleton} /></main></div>`;
}

// How many problems there are is in the tab's title, also while another tab is looked at.
setInterval(() => {
  const problems = picture.get()?.problems ?? 0;
  const bare = document.title.replace(/^\(\d+\) /, "");
  const title = problems > 0 ? `(${count(problems)}) ${bare}` : bare;
  if (document.title !== title) document.title = title;
}, 1000);

const page = document.getElementById("page");
page.textContent = "";
render(html`<${App} />`, page);
