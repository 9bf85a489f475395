// What the controller decides and why, live; its queue and channels; its state machines, drawn from their tables.
import {
  BrokerLink, count, duration, Empty, Filter, html, isoOf, JournalList, Link, Loaded, Moment, Notice, Page, Section, Since, session, Table, Tabs, Tag, Text, UNKNOWN, useEffect, useGet,
  useKept, useQuery, useRef, useState, useWatch,
} from "../ui.js";

const KINDS = ["controller", "partition", "replica", "leadership", "reassignment", "deletion", "request", "response", "failure", "audit"];
// Where each state stands. One that is not here is placed below the others.
const PLACES = {
  partition: { NON_EXISTENT: [90, 50], NEW: [300, 50], ONLINE: [510, 50], OFFLINE: [510, 150] },
  replica: {
    NON_EXISTENT: [90, 50], NEW: [300, 50], ONLINE: [510, 50], OFFLINE: [510, 150], DELETION_STARTED: [300, 150], DELETION_SUCCESSFUL: [90, 150], DELETION_INELIGIBLE: [300, 250],
  },
};
const [W, H] = [150, 46];
const ALARMS = new Set(["OFFLINE", "DELETION_INELIGIBLE"]);

// From the edge of one box to the edge of the other, bent if there is an arrow back.
function edgePath([x1, y1], [x2, y2], hasReverse) {
  if (x1 === x2 && y1 === y2) return `M${x1 + W / 2 - 40},${y1 - H / 2} c0,-26 28,-26 28,-4`;
  const [dx, dy] = [x2 - x1, y2 - y1];
  const reach = Math.min(dx === 0 ? Infinity : W / 2 / Math.abs(dx), dy === 0 ? Infinity : H / 2 / Math.abs(dy));
  const length = Math.hypot(dx, dy);
  const shift = hasReverse ? 7 : 0;
  const [ox, oy] = [(-dy / length) * shift, (dx / length) * shift];
  const end = 1 - reach - 6 / length;
  return `M${x1 + dx * reach + ox},${y1 + dy * reach + oy} L${x1 + dx * end + ox},${y1 + dy * end + oy}`;
}

function Machine({ kind, name, states, lit }) {
  const { counts = {}, edges = [] } = states ?? {};
  const all = [...new Set([...Object.keys(PLACES[kind]), ...Object.keys(counts), ...edges.flat()])];
  const places = { ...PLACES[kind] };
  all.filter((state) => !places[state]).forEach((state, at) => { places[state] = [90 + 210 * at, 330]; });
  const height = Math.max(...all.map((state) => places[state][1])) + 40;
  const marker = `arrow-${kind}`;
  const text = all.map((state) => `${state} ${count(counts[state] ?? 0)}`).join(", ");
  return html`<figure class="machine"><svg viewBox="0 0 620 ${height}" role="img" aria-label=${`${name}: ${text}`}>
    <defs><marker id=${marker} viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto-start-reverse"><path d="M0,0 L8,4 L0,8 Z"></path></marker></defs>
    ${edges.map(([from, to]) => html`<path key=${`${from} ${to}`} class="edge ${lit.has(`${kind} ${from} ${to}`) ? "lit" : ""}" marker-end="url(#${marker})"
      d=${edgePath(places[from], places[to], edges.some(([a, b]) => a === to && b === from))}><title>${`${from} → ${to}`}</title></path>`)}
    ${all.map((state) => {
      const [x, y] = places[state];
      const number = counts[state] ?? 0;
      return html`<g key=${state} class="node ${number > 0 ? (ALARMS.has(state) ? "alarm" : "some") : ""}"><rect x=${x - W / 2} y=${y - H / 2} width=${W} height=${H} rx="4"></rect>
        <text x=${x} y=${y - 5}>${state.toLowerCase().replaceAll("_", " ")}</text><text class="figure" x=${x} y=${y + 15}>${count(number)}</text></g>`;
    })}</svg>
    <details><summary class="muted">As a table</summary><${Table} label=${name} rows=${all} keyOf=${(state) => state} columns=${[
      { id: "state", name: "state", cell: (state) => state }, { id: "count", name: "count", number: true, cell: (state) => count(counts[state] ?? 0) },
      { id: "from", name: "comes from", cell: (state) => edges.filter(([, to]) => to === state).map(([from]) => from).join(", ") },
    ]} /></details></figure>`;
}

// Transitions of the last second and a half, for the arrows.
function useLit() {
  const [lit, set] = useState(new Set());
  useWatch("journal", ({ entries }) => {
    const seen = entries.filter((entry) => entry.kind === "partition" || entry.kind === "replica").map((entry) => `${entry.kind} ${entry.before} ${entry.after}`);
    if (seen.length === 0) return;
    set(new Set(seen));
    setTimeout(() => set((now) => (now.size && seen.every((each) => now.has(each)) ? new Set() : now)), 1500);
  });
  return lit;
}

function Journal() {
  const [query, change] = useQuery();
  const { kind, broker, topic, q, at, from, to } = query;
  const [entries, set] = useState(null);
  const [fresh, setFresh] = useState(new Set());
  const [paused, pause] = useKept("paused", false);
  const [missed, setMissed] = useState(0);
  const held = useRef(false);
  held.current = paused;
  const asked = { kind, broker, topic, q, limit: 200, from, to: at ?? to };
  const state = useGet("/journal", asked);
  useEffect(() => {
    if (state.data) set(state.data.items);
  }, [state.data]);
  const fits = (entry) => (!kind || entry.kind === kind) && (!broker || String(entry.broker) === broker) && (!topic || entry.topic === topic) && (!q || (entry.why ?? "").toLowerCase().includes(q.toLowerCase()));
  useWatch(at || to ? null : "journal", ({ entries: added, missed: lost }) => {
    if (held.current) return;
    const wanted = added.filter(fits);
    setMissed((old) => old + (lost ?? 0));
    setFresh(new Set(wanted.map((entry) => entry.id)));
    set((old) => {
      const known = new Set((old ?? []).map((entry) => entry.id));
      return [...wanted.filter((entry) => !known.has(entry.id)).reverse(), ...(old ?? [])].slice(0, 500);
    });
  });
  return html`<div class="toolbar"><select aria-label="Kind" onChange=${(event) => change({ kind: event.target.value })}>${["", ...KINDS].map((each) => html`<option value=${each} selected=${each === (kind ?? "")}>${each || "any kind"}</option>`)}</select>
      <${Filter} name="topic" label="Topic" /><${Filter} name="broker" label="Broker" /><${Filter} name="q" label="Cause" />
      <span class="spring"></span>${!at && html`<button aria-pressed=${paused} onClick=${() => pause(!paused)}>${paused ? "Resume" : "Pause"}</button>`}</div>
    ${missed > 0 && html`<${Notice} level="warn">${count(missed)} entries came faster than this page takes them. <button class="linklike" onClick=${() => { setMissed(0); state.reload(); }}>Read them</button><//>`}
    <${Loaded} state=${state}>${() => !entries || entries.length === 0 ? html`<${Empty} title="No entry matches." />`
      : html`<${JournalList} entries=${entries} fresh=${fresh} label="Journal, newest first" />
        <p class="muted">${entries.length >= 200 && html`<${Link} to="controller" query=${{ ...query, scroll: "", to: isoOf(entries.at(-1).time_ms) }}>Older entries<//>`}</p>`}<//>`;
}

export function Controller() {
  const [{ tab = "states" }] = useQuery();
  const state = useGet("/controller", {}, { live: "controller", poll: 5000 });
  const lit = useLit();
  return html`<${Loaded} state=${state} title="Controller">${(now) => html`<${Page} title="Controller" facts=${[
      html`broker <b><${BrokerLink} id=${now.broker} /></b>`, now.journal && html`epoch <b>${count(now.epoch)}</b>`, now.since_ms && html`<${Since} ms=${now.since_ms} />`,
      now.journal && html`queue <b>${count(now.queue)}</b>`, !now.journal ? null : now.event ? html`in hand <b>${now.event.kind}</b> ${duration(now.event.running_ms)}` : "idle"].filter(Boolean)}>
    ${!now.journal ? html`<${Notice}>These brokers keep no journal, and do not report what their controller does: all that is known is which broker it is.<//>` : html`
    <${Tabs} tabs=${[["states", "State machines"], ["journal", "Journal"], ["work", "Queue and channels"], ["terms", "Terms"]]} />
    ${tab === "states" && html`<div class="columns"><${Section} title="Partitions"><${Machine} kind="partition" name="Partition states" states=${now.partition_states} lit=${lit} /><//>
      <${Section} title="Replicas"><${Machine} kind="replica" name="Replica states" states=${now.replica_states} lit=${lit} /><//></div>
      ${session.get().features.journal && html`<${Section} title="Journal" aside="newest first"><${Journal} /><//>`}`}
    ${tab === "journal" && html`<${Journal} />`}
    ${tab === "work" && html`<div class="columns"><${Section} title="Events"><${Table} label="Events" rows=${now.events ?? []} keyOf=${(row) => row.kind} empty="No event was handled yet." columns=${[
        { id: "kind", name: "event", cell: (row) => html`<${Text}>${row.kind}<//>` }, { id: "count", name: "count", number: true, cell: (row) => count(row.count) },
        { id: "mean", name: "mean", number: true, cell: (row) => duration(row.mean_ms) }, { id: "max", name: "worst", number: true, cell: (row) => duration(row.max_ms) },
      ]} /><//>
      <${Section} title="Channels to brokers"><${Table} label="Channels" rows=${now.channels ?? []} keyOf=${(row) => row.broker} empty="No channel is open." columns=${[
        { id: "broker", name: "broker", cell: (row) => html`<${BrokerLink} id=${row.broker} />` }, { id: "queued", name: "queued", number: true, cell: (row) => count(row.queued) },
        { id: "sent", name: "sent", number: true, cell: (row) => count(row.sent) }, { id: "retries", name: "retries", number: true, cell: (row) => count(row.retries) },
      ]} /><//></div>`}
    ${tab === "terms" && html`<${Table} label="Terms" rows=${now.terms ?? []} keyOf=${(row) => row.epoch} empty="No term is in the journal." columns=${[
      { id: "epoch", name: "epoch", cell: (row) => count(row.epoch) }, { id: "broker", name: "controller", cell: (row) => html`<${BrokerLink} id=${row.broker} />` },
      { id: "since", name: "since", cell: (row) => html`<${Moment} ms=${row.since_ms} />` }, { id: "until", name: "until", cell: (row) => (row.until_ms ? html`<${Moment} ms=${row.until_ms} />` : html`<${Tag} level="good">now<//>`) },
      { id: "lasted", name: "lasted", number: true, cell: (row) => (row.since_ms ? duration((row.until_ms ?? Date.now()) - row.since_ms) : UNKNOWN) }, { id: "end", name: "ended by", cell: (row) => html`<${Text}>${row.end ?? ""}<//>` },
    ]} />`}`}
  <//>`}<//>`;
}
