// Who changed what, from where, and what came of it.
import { Empty, Filter, html, Loaded, Moment, Page, State, Table, Text, useGet, useQuery } from "../ui.js";

const isGood = (outcome) => outcome === "done" || outcome === "ok" || outcome === "started";

export function Audit() {
  const [{ q, limit = 100 }, change] = useQuery();
  const state = useGet("/audit", { q, limit }, { poll: 5000 });
  return html`<${Page} title="Audit" facts=${["Every change made through this console, and every request it refused."]}>
    <div class="toolbar"><${Filter} label="Filter by user, action or subject" /></div>
    <${Loaded} state=${state}>${({ items, next }) => html`<${Table} label="Audit" rows=${items} keyOf=${(row) => `${row.time_ms} ${row.user} ${row.action} ${row.subject} ${row.outcome}`} empty=${html`<${Empty} title=${q ? "No line matches." : "Nothing was changed yet."} />`} columns=${[
        { id: "time", name: "time", tight: true, cell: (row) => html`<span class="mono"><${Moment} ms=${row.time_ms} withMilliseconds /></span>` },
        { id: "user", name: "user", tight: true, cell: (row) => html`<${Text} clip=${60}>${row.user ?? "–"}<//>` },
        { id: "address", name: "address", tight: true, cell: (row) => html`<span class="mono"><${Text} clip=${60}>${row.address ?? "–"}<//></span>` },
        { id: "action", name: "action", tight: true, cell: (row) => html`<${Text} clip=${80}>${row.action}<//>` },
        { id: "subject", name: "subject", long: true, cell: (row) => html`<${Text} clip=${200}>${row.subject ?? ""}<//>` },
        { id: "change", name: "before → after", long: true, cell: (row) => (row.before || row.after ? html`<code><${Text} clip=${200}>${plain(row.before)}<//> → <${Text} clip=${200}>${plain(row.after)}<//></code>` : "") },
        { id: "outcome", name: "outcome", long: true, cell: (row) => html`<${State} level=${isGood(row.outcome) ? "good" : "warn"}>${""}<//><${Text} clip=${200}>${row.outcome ?? ""}<//>` },
      ]} />${next && html`<p><button onClick=${() => change({ limit: Math.min(500, Number(limit) + 200) })}>Show more</button></p>`}`}<//><//>`;
}

const plain = (value) => (value === null || value === undefined || value === "" ? "nothing" : typeof value === "string" ? value : JSON.stringify(value));
