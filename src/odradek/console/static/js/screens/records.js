// Records: browse, follow as they are written, search with progress, and look into one.
import {
  address, bytes, byteRate, Copy, count, duration, Empty, ErrorNotice, get, html, href, Link, Loaded, may, Meter, Moment, moment,
  Notice, Page, Pairs, percent, plural, post, rate, remove, Section, Select, State, Table, Text, toast, useDraft, useEffect, useGet, useKept, useQuery,
  useRef, useState, isoOf, localOf, Field, Input,
} from "../ui.js";

const FORMATS = [["", "auto"], ["json", "JSON"], ["avro", "Avro"], ["protobuf", "Protobuf"], ["msgpack", "MessagePack"], ["text", "text"], ["hex", "hex"]];
const STRUCTURED = new Set(["json", "avro", "protobuf", "msgpack"]);
const KEPT = 500;

const keyOf = (record) => `${record.p}:${record.offset}`;

function Cell({ field, empty, clip = 200 }) {
  if (field === null || field === undefined) return html`<span class="muted">${empty}</span>`;
  return html`<span class="clip mono">${field.error && html`<span class="warn" title=${field.error}>▲ </span>`}<${Text} clip=${clip}>${field.text}<//></span>`;
}

function RecordTable({ records, topic, label, empty, open, onOpen }) {
  return html`<${Table} label=${label} tall rows=${records} keyOf=${keyOf} empty=${empty} selected=${open} onSelect=${(row) => onOpen(keyOf(row))} columns=${[
    { id: "offset", name: "partition @ offset", tight: true, cell: (row) => html`<a class="rowlink mono" href=${href("records", { ...linkQuery(), open: keyOf(row) })}>${row.p} @ ${row.offset}</a>` },
    { id: "time", name: "time", tight: true, cell: (row) => html`<span class="mono"><${Moment} ms=${row.timestamp_ms} withMilliseconds /></span>` },
    { id: "key", name: "key", tight: true, cell: (row) => html`<${Cell} field=${row.key} empty="null" clip=${32} />` },
    { id: "value", name: "value", grow: true, cell: (row) => html`<${Cell} field=${row.value} empty="tombstone" />` },
    { id: "size", name: "size", number: true, cell: (row) => bytes(row.size_bytes) },
  ]} />`;
}
const linkQuery = () => Object.fromEntries(new URLSearchParams(location.search));

// One record

// What was opened or closed by hand is in the address, by the numbers of the fields: their names may be
// contents.
function Tree({ name, value, path = "0", turned, onTurn }) {
  const byDefault = path.split(".").length < 3;
  const open = turned.includes(path) ? !byDefault : byDefault;
  const set = (isOpen) => isOpen !== open && onTurn(path);
  const label = name === undefined ? null : html`<span class="name"><${Text} clip=${120}>${name}<//>: </span>`;
  if (value === null || typeof value !== "object") {
    return html`<div class="leaf">${label}<${Text} clip=${4000}>${typeof value === "string" ? JSON.stringify(value) : String(value)}<//></div>`;
  }
  const entries = Object.entries(value);
  const brackets = Array.isArray(value) ? "[]" : "{}";
  if (entries.length === 0) return html`<div class="leaf">${label}${brackets}</div>`;
  return html`<details open=${open} onToggle=${(event) => set(event.currentTarget.open)}><summary>${label}<span class="muted">${brackets[0]} ${plural(entries.length, Array.isArray(value) ? "item" : "field")} ${brackets[1]}</span></summary>
    ${open && entries.slice(0, 500).map(([key, each], at) => html`<${Tree} key=${key} name=${key} value=${each} path=${`${path}.${at}`} turned=${turned} onTurn=${onTurn} />`)}
    ${open && entries.length > 500 && html`<p class="muted">${count(entries.length - 500)} more are in the text.</p>`}</details>`;
}

function hexLines(hex) {
  const lines = [];
  for (let at = 0; at < hex.length; at += 32) {
    const pairs = hex.slice(at, at + 32).match(/../g) ?? [];
    const letters = pairs.map((pair) => {
      const code = parseInt(pair, 16);
      return code >= 32 && code < 127 ? String.fromCharCode(code) : ".";
    });
    lines.push(`${(at / 2).toString(16).padStart(6, "0")}  ${pairs.join(" ").padEnd(47)}  ${letters.join("")}`);
  }
  return lines.join("\n");
}

function Payload({ field, view, name }) {
  const [tree, turn] = useKept("tree", "");
  const turned = tree.split(" ").filter(Boolean);
  const onTurn = (path) => turn((turned.includes(path) ? turned.filter((each) => each !== path) : [...turned, path]).join(" "));
  if (!field) return html`<p class="muted">${name === "value" ? "tombstone: the value is null" : "null"}</p>`;
  let parsed;
  if (view === "tree" && STRUCTURED.has(field.format)) {
    try {
      parsed = { value: JSON.parse(field.text) };
    } catch {
      parsed = null; // cut short, or deeper than the parser goes: the text is shown
    }
  }
  return html`${field.error && html`<${Notice} level="warn"><${Text}>${field.error}<//><//>`}
    <div class="payload" tabindex="0" role="group" aria-label=${name}>${
      view === "hex" && field.hex ? html`<pre class="hex">${hexLines(field.hex)}</pre>`
        : parsed ? html`<div class="tree"><${Tree} value=${parsed.value} turned=${turned} onTurn=${onTurn} /></div>`
          : html`<pre><${Text} multiline>${field.text}<//></pre>`}</div>
    ${field.truncated && html`<p class="muted">The first ${bytes(new Blob([field.text]).size)} of ${bytes(field.size_bytes)}; download it for the rest.</p>`}`;
}

function Detail({ topic, open }) {
  const [{ view = "tree", decode, key_decode: keyDecode }, change] = useQuery();
  const [p, offset] = open.split(":");
  const state = useGet("/record", { topic, p, offset, decode, key_decode: keyDecode }, { subject: `${topic} ${open}` });
  const original = (field) => {
    if (!field?.base64) return field?.text ?? "";
    return new TextDecoder().decode(Uint8Array.from(atob(field.base64), (letter) => letter.charCodeAt(0)));
  };
  return html`<aside class="detail" aria-label="Record"><${Loaded} state=${state}>${(record) => html`
    <header><h2><${Text}>${`${topic}-${p} @ ${offset}`}<//></h2><span class="actions">
      <button class="quiet" disabled=${Number(offset) === 0} onClick=${() => change({ open: `${p}:${Number(offset) - 1}` })} aria-label="Record before">◂</button>
      <button class="quiet" onClick=${() => change({ open: `${p}:${Number(offset) + 1}` })} aria-label="Record after">▸</button>
      <button class="quiet" onClick=${() => change({ open: "" })} aria-label="Close the record">✕</button></span></header>
    <${Pairs} pairs=${[
      ["time", html`<${Moment} ms=${record.timestamp_ms} withMilliseconds /> (${record.timestamp_type} time)`], ["size", bytes(record.size_bytes)],
      ["leader epoch", count(record.leader_epoch)],
      ...record.headers.map((header) => [html`header <b><${Text} clip=${80}>${header.name}<//></b>`, html`<span class="mono"><${Text} clip=${400}>${header.value ? header.value.text : "null"}<//></span>`]),
    ]} />
    <h3>Key</h3><${Payload} field=${record.key} view=${view === "hex" ? "hex" : "text"} name="key" />
    <div class="toolbar"><h3>Value</h3><span class="muted">${record.value ? `${record.value.format}, ${bytes(record.value.size_bytes)}` : ""}</span><span class="spring"></span>
      ${["tree", "text", "hex"].map((each) => html`<button class="quiet" aria-pressed=${each === view} onClick=${() => change({ view: each === "tree" ? "" : each })}>${each}</button>`)}</div>
    <${Payload} field=${record.value} view=${view} name="value" />
    <p class="actions">${record.value && html`<${Copy} text=${original(record.value)} label="Copy value" />`}<${Copy} text=${location.origin + href("records", { topic, open, p, decode, key_decode: keyDecode, view: view === "tree" ? "" : view })} label="Copy link" />
      ${record.value && html`<a class="button" download href=${address("/record/download", { topic, p, offset, part: "value" })}>Download value</a>`}</p>`}<//></aside>`;
}

// Browse

function Browse({ topic, open, onOpen }) {
  const [{ p, from, decode, key_decode: keyDecode, before, after, limit }, change] = useQuery();
  const asked = { topic, p, from, decode, key_decode: keyDecode, before, after, limit };
  const state = useGet("/records", asked, { subject: `${topic} ${from}` });
  const download = (as) => address("/records/download", { ...asked, as });
  return html`<${Loaded} state=${state} lines=${8}>${(answer) => html`
    <${RecordTable} records=${answer.items} topic=${topic} open=${open} onOpen=${onOpen} label="Records"
      empty=${html`<${Empty} title="No records here.">${answer.ranges.every((range) => range.start === range.end) ? "The topic is empty." : "The log ends before this position."}<//>`} />
    <div class="toolbar"><button disabled=${!answer.before} onClick=${() => change({ before: answer.before, after: "" })}>◂ Older</button>
      <button disabled=${!answer.after} onClick=${() => change({ after: answer.after, before: "" })}>Newer ▸</button>
      <span class="muted">${answer.ranges.map((range) => `${range.p}: ${count(range.start)}–${count(range.end)}`).slice(0, 6).join(" · ")}${answer.ranges.length > 6 ? " …" : ""}</span>
      <span class="spring"></span><span class="muted">download</span>${["jsonl", "csv", "raw"].map((as) => html`<a href=${download(as)} download>${as}</a>`)}</div>`}<//>`;
}

// Live

const STAGES = { starting: ["note", "starting"], live: ["good", "live"], broken: ["bad", "the stream broke; trying again"] };

function Live({ topic, open, onOpen }) {
  const [{ p, decode, filter }, change] = useQuery();
  const [records, set] = useState([]);
  const [figures, setFigures] = useState(null);
  const [paused, pause] = useKept("paused", false);
  const [stage, enter] = useState("starting"); // then live, broken, or the reason why it ended
  const held = useRef(false);
  held.current = paused;
  useEffect(() => {
    set([]);
    enter("starting");
    const stream = new EventSource(address("/records/tail", { topic, p, decode, filter }));
    stream.addEventListener("records", (event) => {
      const data = JSON.parse(event.data);
      setFigures(data);
      if (!held.current) set((old) => [...[...data.records].reverse(), ...old].slice(0, KEPT));
    });
    stream.addEventListener("started", () => enter("live"));
    stream.addEventListener("failed", (event) => {
      stream.close();
      enter(JSON.parse(event.data).detail);
    });
    stream.onerror = () => enter("broken");
    const hide = () => document.hidden && change({ mode: "" });
    document.addEventListener("visibilitychange", hide);
    return () => {
      stream.close();
      document.removeEventListener("visibilitychange", hide);
    };
  }, [topic, p, decode, filter]);
  return html`<div class="progress" role="group" aria-label="Live tail">
      ${STAGES[stage] ? html`<${State} level=${paused ? "off" : STAGES[stage][0]}>${paused ? "paused" : STAGES[stage][1]}<//>` : html`<${State} level="bad"><${Text}>${stage}<//><//>`}
      <span>${rate(figures?.per_s ?? 0)} written</span><span>${count(figures?.shown ?? 0)} shown</span><span>${count(figures?.counted ?? 0)} only counted</span>
      <span class="muted">${count(figures?.written ?? 0)} written since it began; the last ${count(Math.min(records.length, KEPT))} are kept here</span>
      <span class="spring"></span><button onClick=${() => pause(!paused)}>${paused ? "Resume" : "Pause"}</button><button onClick=${() => change({ mode: "" })}>Stop</button></div>
    <${RecordTable} records=${records} topic=${topic} open=${open} onOpen=${onOpen} label="Records as they are written" empty=${html`<${Empty} title="Waiting for records.">What is written from now on appears here.<//>`} />`;
}

// Search

function Progress({ search, onDone }) {
  const act = async (verb) => {
    try {
      if (verb === "cancel") await remove(`/searches/${encodeURIComponent(search.id)}`);
      else await post(`/searches/${encodeURIComponent(search.id)}/${verb}`);
      onDone();
    } catch (problem) {
      toast(problem.message, "bad");
    }
  };
  const running = search.state === "running";
  const word = { running: "searching", paused: "paused", done: "done", cancelled: "cancelled", failed: "failed" }[search.state] ?? search.state;
  return html`<div class="progress" role="group" aria-label="Search">
    <${State} level=${{ running: "note", done: "good", failed: "bad" }[search.state] ?? "off"}>${word}<//>
    <${Meter} label="searched" share=${(search.percent ?? 0) / 100} />
    <span>${percent((search.percent ?? 0) / 100)}, ${bytes(search.scanned_bytes)} of ${bytes(search.total_bytes)}</span>
    <span><b>${count(search.found)}</b> found</span>
    ${search.reached_ms && html`<span>reached ${moment(search.reached_ms)}</span>`}
    ${running && html`<span>${byteRate(search.bytes_per_s)}${search.limit_bytes_per_s ? `, limit ${byteRate(search.limit_bytes_per_s)}` : ""}</span>`}
    ${running && search.left_s !== null && html`<span>${duration(search.left_s * 1000)} left</span>`}
    <span class="muted">${search.engine}, ${count(search.scanned_records)} records</span>
    <span class="spring"></span>
    ${running && html`<button onClick=${() => act("pause")}>Pause</button>`}${search.state === "paused" && html`<button onClick=${() => act("resume")}>Resume</button>`}
    ${(running || search.state === "paused") && html`<button onClick=${() => act("cancel")}>Cancel</button>`}</div>`;
}

function SearchResult({ id, topic, open, onOpen }) {
  const state = useGet(`/searches/${encodeURIComponent(id)}`, {}, { live: `search:${id}`, subject: id });
  const [all, set] = useState([]);
  const [, change] = useQuery();
  useEffect(() => {
    if (!state.data) return;
    set((old) => {
      const known = new Map(old.map((record) => [keyOf(record), record]));
      for (const record of state.data.records ?? []) known.set(keyOf(record), record);
      return [...known.values()];
    });
  }, [state.data]);
  return html`<${Loaded} state=${state}>${(search) => html`<${Progress} search=${search} onDone=${state.reload} />
    ${search.error && html`<${Notice} level="bad"><${Text}>${search.error}<//><//>`}
    <${RecordTable} records=${all} topic=${topic} open=${open} onOpen=${onOpen} label="Records found"
      empty=${html`<${Empty} title=${search.state === "running" ? "Nothing found yet." : "Nothing was found."}>${search.complete ? "Every record up to the ends at which the search began was looked at." : ""}<//>`} />
    <p><button class="linklike" onClick=${() => change({ search: "" })}>Back to browsing</button></p>`}<//>`;
}

// The form

function Where({ from, onFrom }) {
  const [kind, rest] = from.includes(":") ? [from.slice(0, from.indexOf(":")), from.slice(from.indexOf(":") + 1)] : [from, ""];
  const [value, set] = useDraft("typed_from", rest);
  const chosen = (next) => {
    if (next === "newest" || next === "oldest") onFrom(next === "newest" ? "" : next);
    else onFrom(`${next}:${{ offset: "0", time: isoOf(Date.now() - 3600000), group: "" }[next]}`);
  };
  const local = () => (Number.isNaN(Date.parse(value)) ? "" : localOf(Date.parse(value)));
  return html`<${Select} label="From" value=${kind} onValue=${chosen} options=${[["newest", "newest"], ["oldest", "oldest"], ["offset", "offset"], ["time", "time"], ["group", "commit of group"]]} />
    ${kind === "offset" && html`<${Input} label="Offset" type="number" min="0" value=${value} onValue=${set} onChange=${() => onFrom(`offset:${value}`)} />`}
    ${kind === "time" && html`<${Input} label="Time" type="datetime-local" step="1" value=${local()} onValue=${(text) => text && onFrom(`time:${isoOf(Date.parse(text))}`)} />`}
    ${kind === "group" && html`<${Input} label="Group" value=${value} onValue=${set} onChange=${() => onFrom(`group:${value}`)} />`}`;
}

function TopicPicker({ topic, onTopic }) {
  const [text, set] = useDraft("typed_topic", topic ?? "");
  const found = useGet(text.trim() ? "/find" : null, { q: text }, { subject: "topics" });
  return html`<${Field} label="Topic">${(id) => html`<input id=${id} list="topic-names" value=${text} required spellcheck="false" autocomplete="off" placeholder="name of a topic"
    onInput=${(event) => set(event.target.value)} onChange=${(event) => event.target.value && onTopic(event.target.value)} />
    <datalist id="topic-names">${(found.data?.topics ?? []).map((name) => html`<option key=${name} value=${name}></option>`)}</datalist>`}<//>`;
}

async function beginSearch({ topic, p, from, decode, filter, limit_mb: limit }) {
  const { filter: parsed } = await get("/filter", { text: filter });
  const begun = await post("/searches", {
    topic, partitions: p === undefined || p === "" ? null : [Number(p)], from: from && from !== "newest" ? from : "oldest", until: "newest", decode: decode || "auto", limit: 1000,
    limit_bytes_per_s: limit === "0" ? null : Number(limit || 100) * 1e6, filter: parsed,
  });
  return begun.id;
}

function Controls({ query, change }) {
  const { topic, p, from = "newest", decode, filter, mode } = query;
  const [text, set] = useDraft("typed_filter", filter ?? "");
  const [error, fail] = useState(null);
  const submit = async (event) => {
    event.preventDefault();
    fail(null);
    if (!text.trim()) return change({ filter: "", search: "" });
    try {
      const id = await beginSearch({ ...query, filter: text });
      return change({ filter: text, search: id, mode: "", before: "", after: "" });
    } catch (problem) {
      return fail(problem);
    }
  };
  const fresh = { before: "", after: "", search: "", open: "" };
  return html`<form class="form" onSubmit=${submit} role="search" aria-label="Records">
      <${TopicPicker} topic=${topic} onTopic=${(name) => change({ ...fresh, topic: name, p: "" })} />
      <${Input} label="Partition" type="number" min="0" placeholder="all" value=${p ?? ""} onValue=${(value) => change({ ...fresh, p: value })} />
      <${Where} from=${from} onFrom=${(value) => change({ ...fresh, from: value })} />
      <${Select} label="Decode" value=${decode ?? ""} onValue=${(value) => change({ decode: value })} options=${FORMATS} />
      <${Input} wide label="Search" placeholder='word, key = "user-12", $.order.id = 4711' value=${text} onValue=${set} spellcheck="false" error=${error?.status === 422 ? error.message : null} />
      <${Select} label="Limit" value=${query.limit_mb ?? "100"} onValue=${(value) => change({ limit_mb: value === "100" ? "" : value })} options=${[["10", "10 MB/s"], ["100", "100 MB/s"], ["500", "500 MB/s"], ["0", "none"]]} />
      <button class="primary" disabled=${!topic}>Search</button>
      <button type="button" disabled=${!topic} aria-pressed=${mode === "live"} onClick=${() => change({ ...fresh, mode: mode === "live" ? "" : "live", filter: text })}>● Live</button></form>
    ${error && error.status !== 422 && html`<${ErrorNotice} error=${error} />`}`;
}

function Decoders({ topic }) {
  const [query, change] = useQuery();
  const state = useGet(query.schema ? "/decoders" : null, { topic });
  const [values, set] = useKept("decoder", { format: "avro", schema: "", message: "", descriptor: "" });
  const [error, fail] = useState(null);
  if (!query.schema) return html`<button onClick=${() => change({ schema: 1 })}>Schema…</button>`;
  const save = async (event) => {
    event.preventDefault();
    const { format, schema, message, descriptor } = values;
    const value = format === "avro" ? { format, schema } : format === "protobuf" ? { format, message, descriptor } : { format };
    try {
      await post("/decoders", { topic, value });
      toast("Remembered for this topic.");
      change({ schema: "", decoder: "", decode: format });
    } catch (problem) {
      fail(problem);
    }
  };
  const readFile = async (event) => {
    const data = new Uint8Array(await event.target.files[0].arrayBuffer());
    if (values.format === "avro") set({ ...values, schema: new TextDecoder().decode(data) });
    else set({ ...values, descriptor: btoa(Array.from(data, (byte) => String.fromCharCode(byte)).join("")) });
  };
  return html`<form class="boxed stack decoder" onSubmit=${save} aria-label="How values of this topic are decoded">
    <h2>How values of this topic are decoded</h2>
    ${error && html`<${ErrorNotice} error=${error} />`}
    <div class="form"><${Select} label="Format" value=${values.format} onValue=${(format) => set({ ...values, format })} options=${FORMATS.slice(1)} />
      ${["avro", "protobuf"].includes(values.format) && html`<${Field} label=${values.format === "avro" ? "Schema file" : "Descriptor file (FileDescriptorSet)"}>${(id) => html`<input id=${id} type="file" onChange=${readFile} />`}<//>`}
      ${values.format === "protobuf" && html`<${Input} label="Message" placeholder="shop.Order" value=${values.message} onValue=${(message) => set({ ...values, message })} />`}</div>
    ${values.format === "avro" && html`<${Field} label="Schema">${(id) => html`<textarea id=${id} rows="6" value=${values.schema} onInput=${(event) => set({ ...values, schema: event.target.value })}></textarea>`}<//>`}
    <div class="actions"><button class="primary">Remember</button><button type="button" onClick=${() => change({ schema: "", decoder: "" })}>Close</button>
      ${state.data?.value && html`<span class="muted">now: ${state.data.value.format}</span>`}</div></form>`;
}

export function Records() {
  const [query, change] = useQuery();
  const { topic, mode, search, open } = query;
  if (!may("records")) return html`<${Page} title="Records"><${Empty} title="You may not read records.">Reading what records contain is a right of its own.<//><//>`;
  const onOpen = (key) => change({ open: key });
  const part = { topic, open, onOpen };
  return html`<${Page} title="Records" facts=${topic ? [html`topic <${Link} to="topic" query=${{ name: topic }}><${Text}>${topic}<//><//>`] : []}
      actions=${topic && html`<${Decoders} topic=${topic} />${may("operate") && html`<${Link} class="button" to="produce" query=${{ topic }}>Produce…<//>`}`}>
    <${Controls} query=${query} change=${change} />
    ${!topic ? html`<${Section} title="Which topic?"><${Recent} /><//>`
      : html`<${Section} title=${search ? "Search" : mode === "live" ? "Live" : "Records"}><div class=${open ? "split" : ""}><div>${
          search ? html`<${SearchResult} key=${search} id=${search} ...${part} />`
            : mode === "live" ? html`<${Live} ...${part} />` : html`<${Browse} ...${part} />`}</div>
          ${open && html`<${Detail} topic=${topic} open=${open} />`}</div><//>`}
  <//>`;
}

function Recent() {
  const state = useGet("/topics", { limit: 12, sort: "-bytes_in_per_s" });
  return html`<${Loaded} state=${state}>${({ items }) => items.length === 0 ? html`<${Empty} title="There are no topics yet." />`
    : html`<p class="muted">The busiest:</p><ul class="results">${items.map((row) => html`<li key=${row.name}><${Link} to="records" query=${{ topic: row.name }} class="rowlink"><${Text} clip=${120}>${row.name}<//><span class="muted">${byteRate(row.bytes_in_per_s)}</span><//></li>`)}</ul>`}<//>`;
}
