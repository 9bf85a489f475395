// Spark queries beside consumer groups: late, slow, rejecting?
import {
  bytes, count, duration, Empty, Filter, GroupLink, html, Lines, Link, Loaded, Moment, Notice, Page, Pairs, rate, Section, State, Table, Text, TopicLink, UNKNOWN, useGet, useQuery,
} from "../charts.js";

const LEVELS = { running: "good", stopped: "off", silent: "warn" };
const QueryState = ({ state }) => html`<${State} level=${LEVELS[state] ?? "note"}>${state}<//>`;
const Lag = ({ lag }) => Object.entries(lag ?? {}).map(([topic, records]) => html`<div><${TopicLink} name=${topic} /> ${count(records)}</div>`);
const isSlow = (row) => row.trigger_ms && row.batch_ms > row.trigger_ms;

export function Pipelines() {
  const [{ q = "" }] = useQuery();
  const state = useGet("/pipelines", {}, { live: "pipelines", poll: 10000 });
  return html`<${Page} title="Pipelines"><div class="toolbar"><${Filter} label="Filter by name" /></div>
    <${Loaded} state=${state}>${({ items, topic_exists: exists }) => html`<${Table} label="Pipelines" rows=${items.filter((row) => `${row.pipeline} ${row.query}`.toLowerCase().includes(q.toLowerCase()))} keyOf=${(row) => `${row.pipeline} ${row.query}`}
      empty=${html`<${Empty} title=${q ? "No pipeline matches." : "No pipeline has reported yet."}>${!exists && html`A pipeline started with <code>odradek pipeline run</code> writes its progress to the topic <code>odradek.pipelines</code>, and appears here.`}<//>`} columns=${[
        { id: "query", name: "pipeline / query", cell: (row) => html`<${Link} class="rowlink" to="pipeline" query=${{ name: row.pipeline, query: row.query }}><${Text} clip=${80}>${row.pipeline}<//> / <${Text} clip=${80}>${row.query}<//><//>` },
        { id: "state", name: "state", cell: (row) => html`<${QueryState} state=${row.state} />` },
        { id: "batch", name: "batch", number: true, cell: (row) => count(row.batch) },
        { id: "in", name: "rows in", number: true, cell: (row) => rate(row.rows_in_per_s) },
        { id: "out", name: "rows out", number: true, cell: (row) => rate(row.rows_out_per_s) },
        { id: "time", name: "batch / trigger", title: "how long a batch takes, and how often one begins", number: true, cell: (row) => html`<span class=${isSlow(row) ? "warn" : ""}>${duration(row.batch_ms)}</span> / ${duration(row.trigger_ms)}` },
        { id: "lag", name: "lag", tight: true, cell: (row) => html`<${Lag} lag=${row.lag} />` },
        { id: "state-size", name: "state store", number: true, cell: (row) => (row.state_rows ? `${count(row.state_rows)} rows, ${bytes(row.state_bytes)}` : UNKNOWN) },
        { id: "dead", name: "dead letters", number: true, cell: (row) => (row.dead_letters > 0 ? html`<${Link} class="warn" to="pipeline" query=${{ name: row.pipeline, query: row.query }}>▲ ${count(row.dead_letters)}<//>` : count(row.dead_letters)) },
        { id: "last", name: "last heard", number: true, cell: (row) => html`<${Moment} ms=${row.last_ms} />` },
      ]} />`}<//><//>`;
}

function DeadLetters({ pipeline }) {
  const records = pipeline.dead_letter_records ?? [];
  const reason = (record) => record.headers.find((header) => header.name === "odradek.reason")?.value?.text ?? "";
  return html`<${Section} title="Dead letters" aside=${pipeline.dead_letters ? `${count(pipeline.dead_letters)} in all` : null}
      actions=${pipeline.dead_letter_topic && html`<${Link} to="records" query=${{ topic: pipeline.dead_letter_topic }}>all of them<//>`}>
    <${Table} label="Dead letters" tall rows=${records} keyOf=${(row) => `${row.p}:${row.offset}`} empty="Nothing was rejected." columns=${[
      { id: "at", name: "partition @ offset", tight: true, cell: (row) => html`<${Link} class="rowlink mono" to="records" query=${{ topic: row.topic, p: row.p, open: `${row.p}:${row.offset}` }}>${row.p} @ ${row.offset}<//>` },
      { id: "reason", name: "reason", long: true, cell: (row) => html`<${Text} clip=${300}>${reason(row)}<//>` },
      { id: "value", name: "record", long: true, cell: (row) => (row.value ? html`<span class="clip mono"><${Text} clip=${160}>${row.value.text}<//></span>` : html`<span class="muted">null</span>`) },
      { id: "time", name: "time", tight: true, cell: (row) => html`<${Moment} ms=${row.timestamp_ms} />` },
    ]} /><//>`;
}

export function Pipeline() {
  const [{ name, query }] = useQuery();
  const state = useGet("/pipeline", { name, query }, { poll: 5000, subject: `${name} ${query}` });
  return html`<${Loaded} state=${state} title=${`${name} / ${query}`}>${(pipeline) => {
    const batches = pipeline.batches ?? [];
    const times = batches.map((batch) => batch.time_ms / 1000);
    return html`<${Page} title=${`${pipeline.pipeline} / ${pipeline.query}`} crumbs=${html`<${Link} to="pipelines">Pipelines<//>`}
        facts=${[html`<${QueryState} state=${pipeline.state} />`, html`batch <b>${count(pipeline.batch)}</b>`, html`<b>${rate(pipeline.rows_in_per_s)}</b> in, <b>${rate(pipeline.rows_out_per_s)}</b> out`, html`last heard <${Moment} ms=${pipeline.last_ms} />`]}>
      ${pipeline.state === "silent" && html`<${Notice} level="warn">Nothing was heard of this query for longer than its trigger: it may have been killed.<//>`}
      <${Section} title="Query"><${Pairs} pairs=${[["group", pipeline.group ? html`<${GroupLink} id=${pipeline.group} />` : UNKNOWN], ["lag", html`<${Lag} lag=${pipeline.lag} />`], ["batch time", html`${duration(pipeline.batch_ms)}${isSlow(pipeline) ? html` <b class="warn">▲ longer than the trigger</b>` : ""}`], ["trigger", duration(pipeline.trigger_ms)], ["state", pipeline.state_rows ? `${count(pipeline.state_rows)} rows, ${bytes(pipeline.state_bytes)}` : "none"]]} /><//>
      <div class="columns">
        <${Section} title="Batch time" aside=${`last ${batches.length} batches`}>${batches.length ? html`<div class="chart"><${Lines} label="Batch time" format=${duration} times=${times} lines=${[{ label: "batch time", values: batches.map((batch) => batch.duration_ms), bars: true }]} /></div>` : html`<${Empty} title="No batch yet." />`}<//>
        <${Section} title="Rows">${batches.length ? html`<div class="chart"><${Lines} label="Rows per batch" format=${(value) => (value === null ? UNKNOWN : count(value))} times=${times} lines=${[{ label: "in", values: batches.map((batch) => batch.rows_in) }, { label: "out", values: batches.map((batch) => batch.rows_out) }]} /></div>` : html`<${Empty} title="No batch yet." />`}<//>
      </div>
      <${DeadLetters} pipeline=${pipeline} /><//>`;
  }}<//>`;
}
