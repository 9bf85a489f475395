// What happens if a broker dies: done on a development cluster, with a timeline and what a client felt.
import {
  Action, address, BrokerLink, count, duration, Empty, html, Input, isoOf, Link, Loaded, Moment, Notice, Page, Pairs, Section, Select, session, State, Table, Text, useGet, useQuery,
} from "../ui.js";

const ACTIONS = [["kill", "kill (SIGKILL)"], ["stop", "stop (controlled shutdown)"], ["pause", "pause (SIGSTOP)"], ["resume", "resume"], ["start", "start"]];

const LEVELS = { done: "good", running: "note", failed: "bad" };

function Run({ brokers }) {
  const first = brokers[0]?.id ?? 1;
  return html`<${Action} name="drill" label="New drill" right="administer" primary danger verb="Run the drill" initial=${{ action: "kill", broker: first, seconds: 10 }}
    body=${({ action, broker, seconds }) => ({ kind: "drill", action, broker: Number(broker), seconds: Number(seconds) })}
    done=${(plan) => html`It runs: <${Link} to="drill" query=${{ id: plan.details.drill }}>timeline<//>.`}
    form=${(values, set) => html`<div class="form"><${Select} label="Action" value=${values.action} onValue=${(action) => set({ action })} options=${ACTIONS} />
      <${Select} label="Broker" value=${values.broker} onValue=${(broker) => set({ broker })} options=${brokers.map((each) => [each.id, `${each.id}${each.state === "controller" ? " (controller)" : ""}, leads ${count(each.leads)}`])} />
      <${Input} label="Undone after, seconds" type="number" min="1" max="600" value=${values.seconds} onValue=${(seconds) => set({ seconds })} /></div>`} />`;
}

export function Drills() {
  const state = useGet(session.get().features.drills ? "/drills" : null, {}, { poll: 3000 });
  const brokers = useGet("/brokers", {}, { live: "brokers" });
  if (!session.get().features.drills) return html`<${Page} title="Drills"><${Empty} title="Drills need a cluster that this console holds.">Start one with <code>odradek up --console</code>.<//><//>`;
  return html`<${Page} title="Drills" facts=${["A probe writes and reads meanwhile; afterwards a timeline says what it felt."]} actions=${html`<${Run} brokers=${brokers.data?.items ?? []} />`}>
    <${Loaded} state=${state}>${({ items }) => html`<${Table} label="Drills" rows=${items} keyOf=${(row) => row.id} empty=${html`<${Empty} title="No drill was run yet.">Kill a broker, and see how long nobody could write.<//>`} columns=${[
      { id: "id", name: "drill", cell: (row) => html`<${Link} class="rowlink" to="drill" query=${{ id: row.id }}>${row.action} broker ${row.broker}<//>` },
      { id: "state", name: "state", cell: (row) => html`<${State} level=${LEVELS[row.state]}>${row.state}<//>` },
      { id: "started", name: "started", cell: (row) => html`<${Moment} ms=${row.started_ms} />` },
      { id: "gap", name: "longest without a write", number: true, cell: (row) => duration(row.writes?.longest_gap_ms) },
      { id: "acknowledged", name: "acknowledged", number: true, cell: (row) => count(row.writes?.acknowledged) },
      { id: "lost", name: "lost", number: true, cell: (row) => html`<span class=${row.writes?.lost > 0 ? "bad" : ""}>${count(row.writes?.lost)}</span>` },
      { id: "repeated", name: "repeated", number: true, cell: (row) => count(row.writes?.repeated) },
    ]} />`}<//><//>`;
}

const SOURCES = { signal: "signal", journal: "journal", probe: "probe" };

export function Drill() {
  const [{ id, with: other }, change] = useQuery();
  const state = useGet(`/drills/${encodeURIComponent(id)}`, {}, { live: `drill:${id}`, subject: id });
  const all = useGet("/drills");
  const compared = useGet(other ? `/drills/${encodeURIComponent(other)}` : null, {}, { subject: other });
  const column = (drill) => html`<${Section} title=${`${drill.action} broker ${drill.broker}`} aside=${html`<${Moment} ms=${drill.started_ms} />`}>
    <${Pairs} pairs=${[["acknowledged", count(drill.writes?.acknowledged)], ["lost", html`<b class=${drill.writes?.lost > 0 ? "bad" : "good"}>${count(drill.writes?.lost)}</b>`], ["repeated", count(drill.writes?.repeated)],
      ["longest without a write", duration(drill.writes?.longest_gap_ms)], ["longest without a read", duration(drill.reads?.longest_gap_ms)]]} />
    <ol class="timeline" aria-label="Timeline">${(drill.timeline ?? []).map((step, at) => html`<li key=${at}><span class="mono">${duration(step.at_ms)}</span><span><${Text}>${step.what}<//> <span class="muted">${SOURCES[step.source] ?? step.source}</span></span></li>`)}</ol>
    ${drill.writes?.gaps?.length > 0 && html`<${Table} label="Partitions without writes" tall rows=${drill.writes.gaps} keyOf=${(row) => `${row.p} ${row.from_ms}`} columns=${[
      { id: "p", name: "partition", cell: (row) => row.p }, { id: "from", name: "from", number: true, cell: (row) => duration(row.from_ms) }, { id: "ms", name: "without writes", number: true, cell: (row) => duration(row.ms) },
    ]} />`}<//>`;
  return html`<${Loaded} state=${state} title="Drill">${(drill) => html`<${Page} title=${`Drill: ${drill.action} broker ${drill.broker}`} crumbs=${html`<${Link} to="drills">Drills<//>`}
      facts=${[html`<${State} level=${LEVELS[drill.state]}>${drill.state}<//>`, html`<${Moment} ms=${drill.started_ms} />`, html`broker <${BrokerLink} id=${drill.broker} />`]}
      actions=${html`<select aria-label="Compare with" onChange=${(event) => change({ with: event.target.value })}><option value="">compare with…</option>${(all.data?.items ?? []).filter((each) => each.id !== drill.id).map((each) => html`<option value=${each.id} selected=${each.id === other}>${each.action} ${each.broker}, ${each.id}</option>`)}</select>
        <a class="button" download=${`drill-${drill.id}.json`} href=${address(`/drills/${encodeURIComponent(drill.id)}`)}>Save JSON</a><button onClick=${() => print()}>Print</button>
        <${Link} class="button" to="controller" query=${{ tab: "journal", from: isoOf(drill.started_ms - 1000), to: isoOf(drill.started_ms + 60000) }}>Journal of this minute<//>`}>
    ${drill.state === "running" && html`<${Notice}>It is running; what happens appears here.<//>`}
    ${drill.error && html`<${Notice} level="bad" role="alert"><${Text}>${drill.error}<//><//>`}
    <div class="columns">${column(drill)}${compared.data && column(compared.data)}</div><//>`}<//>`;
}
