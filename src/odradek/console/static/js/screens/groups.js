// Who is behind, since when, and when they will have caught up; and where a group goes on reading.
import {
  Action, BrokerLink, Chart, count, duration, Empty, Filter, GroupLink, html, Input, Link, Loaded, localOf, isoOf, may, Page,
  PartitionLink, percent, PlanView, rate, Section, Select, sorted, State, Table, Tabs, Tag, Text, UNKNOWN, useGet, useMemo, usePlan,
  useQuery, useState, VirtualTable, plural, ErrorNotice,
} from "../charts.js";

const seconds = (value) => (value === null || value === undefined ? UNKNOWN : duration(value * 1000));
const slope = (value) => (value === null || value === undefined ? UNKNOWN : `${value > 0 ? "+" : ""}${rate(value)}`);

// When lag is gone at the present rate.
function left(row) {
  if (row.lag === null) return UNKNOWN;
  if (row.lag === 0) return "now";
  if (row.left_s !== null && row.left_s !== undefined) return seconds(row.left_s);
  return row.slope_per_s === null ? UNKNOWN : "never";
}

const GROUP_LEVELS = { Stable: "good", Empty: "off", Dead: "bad", PreparingRebalance: "warn", CompletingRebalance: "warn" };
const GroupState = ({ state }) => html`<${State} level=${GROUP_LEVELS[state] ?? "note"}>${state}<//>`;
const Slowest = ({ slowest }) => slowest ? html`<${PartitionLink} topic=${slowest.topic} p=${slowest.p} /> <span class="muted">(${percent(slowest.share)})</span>` : UNKNOWN;

const COLUMNS = [
  { id: "id", name: "group", sort: "id", cell: (row) => html`<${GroupLink} id=${row.id} row />${row.query && html` <span class="muted">query <${Text} clip=${60}>${row.query}<//></span>`}` },
  { id: "kind", name: "kind", cell: (row) => (row.kind === "spark" ? "Spark" : row.kind) },
  { id: "state", name: "state", sort: "state", cell: (row) => html`<${GroupState} state=${row.state} />` },
  { id: "members", name: "members", sort: "members", number: true, cell: (row) => count(row.members) },
  { id: "lag", name: "lag", sort: "lag", number: true, title: "records not yet read", cell: (row) => count(row.lag) },
  { id: "behind", name: "behind", sort: "lag_s", number: true, title: "age of the first record not yet read", cell: (row) => seconds(row.lag_s) },
  { id: "slope", name: "slope", sort: "slope_per_s", number: true, title: "how fast lag grows", cell: (row) => html`<span class=${row.slope_per_s > 0 ? "warn" : ""}>${slope(row.slope_per_s)}</span>` },
  { id: "left", name: "caught up in", number: true, title: "at the present rate", cell: (row) => left(row) },
  { id: "slowest", name: "slowest", tight: true, cell: (row) => html`<${Slowest} slowest=${row.slowest} />` },
  { id: "coordinator", name: "coordinator", number: true, cell: (row) => html`<${BrokerLink} id=${row.coordinator} />` },
];

export function Groups() {
  const [{ q, sort, topic }, change] = useQuery();
  const [totals, setTotals] = useState(null);
  const asked = useMemo(() => ({ q, sort, topic }), [q, sort, topic]);
  return html`<${Page} title="Groups" facts=${totals ? [html`<b>${count(totals.matched)}</b> of <b>${count(totals.total)}</b>`] : []}>
    <div class="toolbar"><${Filter} label="Filter by name" />${topic && html`<${Tag}>reads <${Text}>${topic}<//><//> <button class="linklike" onClick=${() => change({ topic: "" })}>all topics</button>`}</div>
    <${VirtualTable} label="Groups" columns=${COLUMNS} path="/groups" query=${asked} live="groups" keyOf=${(row) => row.id} sort=${sort} onSort=${(next) => change({ sort: next })} onTotal=${setTotals}
      empty=${html`<${Empty} title=${q ? "No group matches." : "There are no consumer groups yet."}>${!q && "Consumers that commit offsets, and Spark queries with commitGroup, appear here."}<//>`} /><//>`;
}

const TABS = [["lag", "Lag"], ["members", "Members"], ["reset", "Reset offsets"]];

export function Group() {
  const [{ id, tab = "lag" }] = useQuery();
  const state = useGet("/group", { id }, { live: `group:${id}`, subject: `group ${id}` });
  const tabs = may("operate") ? TABS : TABS.slice(0, 2);
  return html`<${Loaded} state=${state} title=${id || "(no name)"}>${(group) => html`<${Page} title=${group.id || "(no name)"} crumbs=${html`<${Link} to="groups">Groups<//>`}
      facts=${[html`<${GroupState} state=${group.state} />`, html`<b>${plural(group.members, "member")}</b>`, html`lag <b>${count(group.lag)}</b>`, html`behind <b>${seconds(group.lag_s)}</b>`,
        html`slope <b>${slope(group.slope_per_s)}</b>`, html`caught up in <b>${left(group)}</b>`, html`coordinator <${BrokerLink} id=${group.coordinator} />`]}
      actions=${html`<${Action} name="delete" label="Delete group" right="administer" danger verb="Delete group" ends done=${() => html`Deleted. <${Link} to="groups">All groups<//>`} body=${() => ({ kind: "delete-group", group: group.id })} />`}>
    <${Tabs} tabs=${tabs} />
    ${tab === "lag" && html`<${Lag} group=${group} />`}
    ${tab === "members" && html`<${Members} group=${group} />`}
    ${tab === "reset" && html`<${Reset} group=${group} />`}
  <//>`}<//>`;
}

function Lag({ group }) {
  const [{ psort = "-lag" }, change] = useQuery();
  return html`<div class="columns">
      <${Section} title="Records behind"><${Chart} label="Lag in records" series=${[[`group.${group.id}.lag`, "lag"]]} /><//>
      <${Section} title="Time behind"><${Chart} label="Lag in time" unit="seconds" series=${[[`group.${group.id}.lag_s`, "behind"]]} /><//></div>
    <${Section} title="Partitions"><${Table} label="Partitions of the group" tall rows=${sorted(group.partitions, psort)} keyOf=${(row) => `${row.topic}-${row.p}`} sort=${psort} onSort=${(next) => change({ psort: next })}
      empty="The group has committed nothing yet." columns=${[
        { id: "partition", name: "partition", sort: "p", cell: (row) => html`<${PartitionLink} topic=${row.topic} p=${row.p} row />` },
        { id: "committed", name: "committed", sort: "committed", number: true, cell: (row) => count(row.committed) },
        { id: "end", name: "end", sort: "end", number: true, cell: (row) => count(row.end) },
        { id: "lag", name: "lag", sort: "lag", number: true, cell: (row) => count(row.lag) },
        { id: "behind", name: "behind", sort: "lag_s", number: true, cell: (row) => seconds(row.lag_s) },
        { id: "owner", name: "owner", long: true, cell: (row) => (row.client_id || row.owner ? html`<${Text} clip=${80}>${row.client_id ?? row.owner}<//>` : html`<span class="muted">none</span>`) },
        { id: "records", name: "", label: "records", cell: (row) => html`<${Link} to="records" query=${{ topic: row.topic, p: row.p, from: `group:${group.id}` }}>next record<//>` },
      ]} /><//>`;
}

const Members = ({ group }) => html`<${Table} label="Members" rows=${group.members_list} keyOf=${(row) => row.id} empty=${html`<${Empty} title="No member is live.">Offsets stay as they were committed.<//>`} columns=${[
  { id: "client", name: "client id", long: true, cell: (row) => html`<${Text} clip=${120}>${row.client_id}<//>` },
  { id: "member", name: "member", long: true, cell: (row) => html`<span class="mono"><${Text} clip=${120}>${row.id}<//></span>` },
  { id: "host", name: "host", cell: (row) => html`<span class="mono"><${Text} clip=${60}>${row.host}<//></span>` },
  { id: "partitions", name: "partitions", long: true, cell: (row) => row.partitions.slice(0, 40).map(({ topic, p }) => html`<${PartitionLink} topic=${topic} p=${p} /> `) },
]} />`;

const POSITIONS = [["earliest", "earliest"], ["latest", "latest"], ["time", "time"], ["offset", "offset"], ["shift", "shift by"]];

function Reset({ group }) {
  const flow = usePlan();
  const topics = [...new Set(group.partitions.map((each) => each.topic))];
  const [query, change] = useQuery();
  const [hourAgo] = useState(Date.now() - 3600000);
  const values = { to: query.to ?? "earliest", time: localOf(query.time ? Date.parse(query.time) : hourAgo), offset: query.offset ?? "0", shift: query.shift ?? "-100", topic: query.topic ?? "" };
  const preview = (event) => {
    event.preventDefault();
    const { to, time, offset, shift, topic } = values;
    const position = { time: `time:${isoOf(Date.parse(time))}`, offset: `offset:${offset}`, shift: `shift:${shift}` }[to] ?? to;
    flow.make({ kind: "reset-offsets", group: group.id, to: position, topics: topic ? [topic] : [] });
  };
  return html`<p class="muted">First a preview; nothing changes until it is applied. ${group.members > 0 ? html`<b class="warn">▲ ${plural(group.members, "member")} live: offsets can only be reset once they have left.</b>` : ""}</p>
    <form class="form" onSubmit=${preview} aria-label="Reset offsets">
      <${Select} label="To" value=${values.to} onValue=${(to) => change({ to: to === "earliest" ? "" : to })} options=${POSITIONS} />
      ${values.to === "time" && html`<${Input} label="Time" type="datetime-local" step="1" required value=${values.time} onValue=${(time) => change({ time: time && isoOf(Date.parse(time)) })} />`}
      ${values.to === "offset" && html`<${Input} label="Offset" type="number" min="0" required value=${values.offset} onValue=${(offset) => change({ offset })} />`}
      ${values.to === "shift" && html`<${Input} label="Records" type="number" required value=${values.shift} onValue=${(shift) => change({ shift })} hint="below zero: back" />`}
      <${Select} label="Topics" value=${values.topic} onValue=${(topic) => change({ topic })} options=${[["", "all the group has read"], ...topics.map((name) => [name, name])]} />
      <button class="primary" disabled=${flow.busy}>Preview</button></form>
    ${flow.error && !flow.plan && html`<${ErrorNotice} error=${flow.error} />`}
    ${flow.plan && html`<${Section} title="Preview"><${PlanView} flow=${flow} verb="Apply" done=${() => "The offsets are set."}>${(plan) => html`<${ResetRows} rows=${plan.details.rows ?? []} />`}<//><//>`}`;
}

const ResetRows = ({ rows }) => html`<${Table} label="Offsets before and after" tall rows=${rows} keyOf=${(row) => `${row.topic}-${row.p}`} empty="No partition would change." columns=${[
  { id: "partition", name: "partition", cell: (row) => html`<${PartitionLink} topic=${row.topic} p=${row.p} />` },
  { id: "from", name: "from", number: true, cell: (row) => (row.from === null ? "nothing committed" : count(row.from)) },
  { id: "to", name: "to", number: true, cell: (row) => count(row.to) },
  { id: "effect", name: "effect", number: true, cell: (row) => (row.delta === 0 ? "none" : row.delta === null ? UNKNOWN : row.delta > 0 ? `${count(row.delta)} skipped` : `${count(-row.delta)} read again`) },
]} />`;
