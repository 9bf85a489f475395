// Each broker: what it leads and holds, its traffic, its time, its disks.
import {
  BrokerLink, byteRate, bytes, Chart, count, duration, Empty, html, Link, Loaded, Meter, Notice, Page, Pairs, percent, rate,
  Section, session, sorted, State, Table, Text, UNKNOWN, useGet, useQuery,
} from "../charts.js";

const BROKER_STATES = { alive: ["good", "up"], controller: ["good", "controller"], down: ["bad", "down"] };
const BrokerState = ({ state }) => {
  const [level, word] = BROKER_STATES[state] ?? ["off", state ?? "not known"];
  return html`<${State} level=${level}>${word}<//>`;
};

const diskLevel = (free) => (free === null || free === undefined ? "" : free < 0.05 ? "bad" : free < 0.15 ? "warn" : "");

export function Brokers() {
  const [{ at, sort }, change] = useQuery();
  const state = useGet("/brokers", { at }, { live: "brokers" });
  return html`<${Page} title="Brokers"><${Loaded} state=${state}>${({ items, known }) => html`
    ${known === false && html`<${Notice} level="warn">The journal does not cover this moment.<//>`}
    <${Table} label="Brokers" rows=${sorted(items, sort)} keyOf=${(row) => row.id} sort=${sort} onSort=${(next) => change({ sort: next })}
      empty="No broker is known."
      columns=${[
        { id: "id", name: "broker", sort: "id", cell: (row) => html`<${BrokerLink} id=${row.id} row />` },
        { id: "state", name: "state", sort: "state", cell: (row) => html`<${BrokerState} state=${row.state} />` },
        { id: "leads", name: "leads", sort: "leads", number: true, cell: (row) => count(row.leads) },
        { id: "holds", name: "holds", sort: "holds", number: true, cell: (row) => count(row.holds) },
        { id: "sync", name: "in sync", number: true, cell: (row) => html`<span class=${row.in_sync < row.holds ? "warn" : ""}>${count(row.in_sync)}/${count(row.holds)}</span>` },
        { id: "size", name: "size", sort: "size_bytes", number: true, cell: (row) => bytes(row.size_bytes) },
        { id: "in", name: "in", sort: "bytes_in_per_s", number: true, cell: (row) => byteRate(row.bytes_in_per_s) },
        { id: "out", name: "out", sort: "bytes_out_per_s", number: true, cell: (row) => byteRate(row.bytes_out_per_s) },
        { id: "busy", name: "busy", sort: "busy", number: true, cell: (row) => percent(row.busy), title: "share of time the broker's loop works" },
        { id: "p99", name: "produce p99", sort: "produce_ms_p99", number: true, cell: (row) => duration(row.produce_ms_p99) },
        { id: "lag", name: "loop lag p99", sort: "loop_lag_ms_p99", number: true, cell: (row) => duration(row.loop_lag_ms_p99) },
        { id: "disk", name: "disk free", sort: "disk_free", number: true, cell: (row) => html`<span class=${diskLevel(row.disk_free)}>${percent(row.disk_free)}</span>` },
        { id: "rack", name: "rack", sort: "rack", cell: (row) => (row.rack ? html`<${Text} clip=${24}>${row.rack}<//>` : UNKNOWN) },
      ]} />`}<//><//>`;
}

export function Broker() {
  const [{ id }] = useQuery();
  const state = useGet("/broker", { id }, { poll: 5000, subject: `broker ${id}` });
  return html`<${Loaded} state=${state} title=${`Broker ${id}`}>${(broker) => html`<${Page} title=${`Broker ${broker.id}`}
      crumbs=${html`<${Link} to="brokers">Brokers<//>`}
      facts=${[html`<${BrokerState} state=${broker.state} />`, html`<b class="mono">${broker.host}:${broker.port}</b>`, broker.rack && html`rack <b><${Text}>${broker.rack}<//></b>`, broker.version].filter(Boolean)}
      actions=${html`<${Link} class="button" to="configs" query=${{ type: "broker", name: broker.id }}>Configs<//>
        <${Link} class="button" to="planner" query=${{ mode: "empty", brokers: broker.id }}>Empty it…<//>
        ${session.get().features.journal && html`<${Link} class="button" to="controller" query=${{ broker: broker.id }}>Journal<//>`}`}>
    ${!broker.http && html`<${Notice} level="note">This broker keeps no journal and shows no figures over HTTP: its listener is not set, or it is another make.<//>`}
    <div class="columns">
      <${Section} title="Replicas and traffic"><${Pairs} pairs=${[
        ["leads", count(broker.leads)], ["holds", `${count(broker.holds)}, ${count(broker.in_sync)} in sync`], ["size", bytes(broker.size_bytes)],
        ["in", `${byteRate(broker.bytes_in_per_s)}, ${rate(broker.records_in_per_s)} records`], ["out", byteRate(broker.bytes_out_per_s)],
        ["requests", `${rate(broker.requests_per_s)}, ${rate(broker.errors_per_s)} failed`], ["busy", percent(broker.busy, 1)],
        ["produce p99", duration(broker.produce_ms_p99)], ["fetch p99", duration(broker.fetch_ms_p99)], ["loop lag p99", duration(broker.loop_lag_ms_p99)],
      ]} /><//>
      <${Section} title="Traffic over time"><${Chart} label="Bytes in and out" unit="bytes" series=${[[`broker.${broker.id}.bytes_in`, "in"], [`broker.${broker.id}.bytes_out`, "out"]]} /><//>
    </div>
    <${Section} title="Log directories">${broker.directories?.length
      ? html`<${Table} label="Log directories" rows=${broker.directories} keyOf=${(row) => row.path} columns=${[
          { id: "path", name: "path", cell: (row) => html`<code><${Text}>${row.path}<//></code>` },
          { id: "state", name: "state", cell: (row) => (row.error ? html`<${State} level="bad">${row.error}<//>` : html`<${State} level="good">ok<//>`) },
          { id: "replicas", name: "replicas", number: true, cell: (row) => count(row.replicas) },
          { id: "size", name: "size", number: true, cell: (row) => bytes(row.size_bytes) },
          { id: "free", name: "disk", number: true, cell: (row) => (row.total_bytes > 0 ? html`<${Meter} label="disk used" share=${1 - row.usable_bytes / row.total_bytes} level=${diskLevel(row.usable_bytes / row.total_bytes)} /> ${bytes(row.usable_bytes)} free of ${bytes(row.total_bytes)}` : UNKNOWN) },
        ]} />`
      : html`<${Empty} title="The broker did not say." />`}<//>
  <//>`}<//>`;
}
