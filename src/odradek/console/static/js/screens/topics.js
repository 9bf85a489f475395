// All topics as a list or a map, and one topic with its partitions, groups, settings and changes.
import {
  Action, BrokerLink, byteRate, bytes, Check, count, duration, Empty, Filter, GroupLink, html, href, Ids, Input, Link,
  Loaded, Moment, navigate, Page, PartitionLink, PartitionState, plural, rate, Section, Select, sorted, State, Table, Tabs, Text,
  TopicLink, UNKNOWN, useGet, useMemo, useQuery, useState, VirtualTable, may,
} from "../ui.js";
import { ClusterMap, Legend, ReplicaGrid } from "../grid.js";
import { SettingsTable } from "./configs.js";

const STATES = [["", "any state"], ["offline,under-min-isr,under-replicated", "anything wrong"], ["offline", "offline"], ["under-min-isr", "under min ISR"], ["under-replicated", "under-replicated"]];

const COLUMNS = [
  { id: "name", name: "topic", sort: "name", cell: (row) => html`<${TopicLink} name=${row.name} row />` },
  { id: "state", name: "state", sort: "state", tight: true, cell: (row) => html`<${PartitionState} state=${row.state} known=${row.known} />${row.moving > 0 && html` <${State} level="moving">${row.moving} moving<//>`}` },
  { id: "partitions", name: "partitions", sort: "partitions", number: true, cell: (row) => count(row.partitions) },
  { id: "replication", name: "RF", sort: "replication", number: true, title: "replication factor", cell: (row) => count(row.replication) },
  { id: "min", name: "min ISR", sort: "min_isr", number: true, cell: (row) => count(row.min_isr) },
  { id: "records", name: "records/s", sort: "records_per_s", number: true, cell: (row) => rate(row.records_per_s, "") },
  { id: "in", name: "in", sort: "bytes_in_per_s", number: true, cell: (row) => byteRate(row.bytes_in_per_s) },
  { id: "size", name: "size", sort: "size_bytes", number: true, cell: (row) => bytes(row.size_bytes) },
  { id: "retention", name: "retention", number: true, cell: (row) => (row.retention_ms === -1 ? "for ever" : duration(row.retention_ms)) },
  { id: "settings", name: "settings", number: true, title: "settings that differ from the default", cell: (row) => count(row.settings) },
  { id: "groups", name: "groups", number: true, cell: (row) => count(row.groups) },
];

const CreateTopic = () => html`<${Action} name="create" label="Create topic" verb="Create" initial=${{ name: "", partitions: 3, replication: "", retention: "", policy: "delete" }}
  body=${({ name, partitions, replication, retention, policy }) => ({
    kind: "create-topic", name, partitions: Number(partitions), replication: replication === "" ? -1 : Number(replication),
    configs: { ...(policy === "delete" ? {} : { "cleanup.policy": policy }), ...(retention === "" ? {} : { "retention.ms": retention }) },
  })}
  done=${(plan) => html`Created. <${TopicLink} name=${plan.changes[0]?.subject ?? ""} />`}
  form=${(values, set, field) => html`<${Input} label="Name" value=${values.name} onValue=${(name) => set({ name })} required maxlength="249" spellcheck="false" error=${field === "name" ? "not accepted" : null} />
    <div class="form"><${Input} label="Partitions" type="number" min="1" value=${values.partitions} onValue=${(partitions) => set({ partitions })} />
    <${Input} label="Replication factor" type="number" min="1" placeholder="default" value=${values.replication} onValue=${(replication) => set({ replication })} />
    <${Select} label="Cleanup" value=${values.policy} onValue=${(policy) => set({ policy })} options=${[["delete", "delete"], ["compact", "compact"], ["compact,delete", "compact and delete"]]} />
    <${Input} label="Retention in ms" inputmode="numeric" placeholder="default" value=${values.retention} onValue=${(retention) => set({ retention })} /></div>`} />`;

const electForm = (values, set) => html`<${Select} label="Election" value=${values.election} onValue=${(election) => set({ election })}
  options=${may("administer") ? [["preferred", "preferred leader"], ["unclean", "unclean: may lose records"]] : [["preferred", "preferred leader"]]} />`;

export function Topics() {
  const [query, change] = useQuery();
  const { at, q, sort, state, internal, view } = query;
  const [totals, setTotals] = useState(null);
  const asked = useMemo(() => ({ at, q, sort, state, internal }), [at, q, sort, state, internal]);
  return html`<${Page} title="Topics" facts=${totals ? [html`<b>${count(totals.matched)}</b> of <b>${count(totals.total)}</b>`] : []}
      actions=${html`<${CreateTopic} /><${Action} name="elect" label="Elect leaders" verb="Elect" form=${electForm} initial=${{ election: "preferred" }}
        body=${({ election }) => ({ kind: "elect", election, partitions: null })} />`}>
    <div class="toolbar"><${Filter} label="Filter by name" />
      <select aria-label="State" onChange=${(event) => change({ state: event.target.value })}>${STATES.map(([id, name]) => html`<option value=${id} selected=${id === (state ?? "")}>${name}</option>`)}</select>
      <${Check} label="internal topics" checked=${internal === "1"} onValue=${(on) => change({ internal: on ? "1" : "" })} />
      <span class="spring"></span>
      <span role="group" aria-label="View"><button aria-pressed=${view !== "map"} onClick=${() => change({ view: "" })}>List</button> <button aria-pressed=${view === "map"} onClick=${() => change({ view: "map" })}>Map</button></span></div>
    ${view === "map"
      ? html`<${TopicMap} at=${at} />`
      : html`<${VirtualTable} label="Topics" columns=${COLUMNS} path="/topics" query=${asked} live="topics" keyOf=${(row) => row.name} sort=${sort}
          onSort=${(next) => change({ sort: next })} onTotal=${setTotals}
          empty=${html`<${Empty} title=${q || state ? "No topic matches." : "There are no topics yet."} actions=${(q || state) && html`<button onClick=${() => change({ q: "", state: "" })}>Show all</button>`}>
            ${!q && !state && "Create one here, or let a producer do it."}<//>`} />`}
  <//>`;
}

function TopicMap({ at }) {
  const state = useGet("/grid", { at }, { live: "topics" });
  return html`<${Loaded} state=${state}>${(grid) => grid.topics.length === 0
    ? html`<${Empty} title="There are no topics yet." />`
    : html`<p class="legend"><span><i class="swatch-3"></i>in sync</span><span><span class="warn mono" aria-hidden="true">▲</span> a replica is behind</span>
        <span><span class="bad mono" aria-hidden="true">✖</span> a replica is offline</span><span><span class="note mono" aria-hidden="true">→</span> moving</span></p>
      <${ClusterMap} grid=${grid} onOpen=${(topic, p) => navigate(href("partition", { topic, p }))} />
      ${grid.total > grid.topics.length && html`<p class="muted">${count(grid.topics.length)} of ${count(grid.total)} topics are drawn.</p>`}
      <p class="muted">The same in a table: <${Link} to="topics" query=${{ sort: "-state" }}>the list, worst first<//>.</p>`}<//>`;
}

// One topic

const TABS = [["partitions", "Partitions"], ["groups", "Groups"], ["settings", "Settings"], ["producers", "Producers"]];

export function Topic() {
  const [query] = useQuery();
  const { name, at, tab = "partitions" } = query;
  const state = useGet("/topic", { name, at }, { live: `topic:${name}`, subject: `topic ${name}` });
  return html`<${Loaded} state=${state} title=${name}>${(topic) => html`<${Page} title=${topic.name} crumbs=${html`<${Link} to="topics">Topics<//>`}
      facts=${[html`<${PartitionState} state=${topic.state} known=${topic.known} />`, html`<b>${plural(topic.partitions, "partition")}</b>`, html`replication factor <b>${count(topic.replication)}</b>`,
        html`min ISR <b>${count(topic.min_isr)}</b>`, html`<b>${bytes(topic.size_bytes)}</b>`, html`<b>${rate(topic.records_per_s)}</b> records`, topic.internal && "internal"].filter(Boolean)}
      actions=${html`<${Link} class="button" to="records" query=${{ topic: topic.name }}>Records<//><${TopicActions} topic=${topic} />`}>
    <${Tabs} tabs=${TABS} />
    ${tab === "partitions" && html`<${Partitions} topic=${topic} at=${at} />`}
    ${tab === "groups" && html`<${TopicGroups} name=${topic.name} />`}
    ${tab === "settings" && html`<${Settings} name=${topic.name} />`}
    ${tab === "producers" && html`<${Producers} name=${topic.name} />`}
  <//>`}<//>`;
}

function TopicActions({ topic }) {
  const subject = { topic: topic.name };
  return html`
    <${Action} name="add" label="Add partitions" verb="Add" initial=${{ count: topic.partitions + 1 }} body=${({ count: wanted }) => ({ kind: "add-partitions", ...subject, count: Number(wanted) })}
      form=${(values, set) => html`<${Input} label="Partitions in all" type="number" min=${topic.partitions + 1} value=${values.count} onValue=${(wanted) => set({ count: wanted })}
        hint="Keys may go to another partition than before." />`} />
    ${may("operate") && html`<${Link} class="button" to="planner" query=${{ mode: "replication", topics: topic.name, factor: topic.replication }}>Replication factor…<//>`}
    <${Action} name="elect" label="Elect" verb="Elect" form=${electForm} initial=${{ election: "preferred" }}
      body=${({ election }) => ({ kind: "elect", election, partitions: topic.partitions_list.map(({ p }) => ({ ...subject, p })) })} />
    <${Action} name="empty" label="Empty" right="administer" danger verb="Delete all records" body=${() => ({ kind: "empty-topic", ...subject, before: "newest" })} />
    <${Action} name="delete" label="Delete" right="administer" danger verb="Delete topic" ends done=${() => html`Deleted. <${Link} to="topics">All topics<//>`} body=${() => ({ kind: "delete-topic", ...subject })} />`;
}

const lagText = (lags) => Object.entries(lags ?? {}).filter(([, lag]) => lag > 0).map(([broker, lag]) => `${broker} is ${count(lag)} records behind`).join(", ");

function withOffsets(rows, offsets) {
  const known = new Map(offsets.map((each) => [each.p, each]));
  return rows.map((row) => {
    const { start_offset: start = null, end_offset: end = null } = known.get(row.p) ?? {};
    return { ...row, start_offset: start, end_offset: end, offsets: start === null || end === null ? null : end - start };
  });
}

function Partitions({ topic, at }) {
  const [{ psort }, change] = useQuery();
  const grid = useGet("/grid", { topic: topic.name, at }, { live: "topics", subject: topic.name });
  // The ends are not in the picture of the cluster: they are asked for while they are looked at.
  const ends = useGet(at ? null : "/topic/offsets", { name: topic.name }, { poll: 2000, subject: topic.name });
  const rows = withOffsets(topic.partitions_list, at ? [] : ends.data?.items ?? []);
  const byNumber = new Map(topic.partitions_list.map((each) => [each.p, each]));
  const describe = (p) => {
    const each = byNumber.get(p);
    return each ? `${topic.name}-${p}: leader ${each.leader ?? "none"}, epoch ${each.leader_epoch ?? UNKNOWN}, ISR ${each.isr.join(",") || "none"} of ${each.replicas.join(",")}${lagText(each.lags) ? `; ${lagText(each.lags)}` : ""}` : `${topic.name}-${p}`;
  };
  const drawn = grid.data?.topics?.find((each) => each.name === topic.name);
  const move = (p, from, to) => {
    const replicas = byNumber.get(p)?.replicas.map((id) => (id === from ? to : id)) ?? [];
    navigate(href("planner", { mode: "manual", partitions: `${p}=${[...new Set(replicas)].join(",")}`, topics: topic.name }));
  };
  return html`${drawn && html`<${Section} title="Replicas" aside="a row per broker, a column per partition"><${Legend} />
      <${ReplicaGrid} brokers=${grid.data.brokers} cells=${drawn.cells} partitions=${drawn.partitions} describe=${describe} label=${`Replicas of ${topic.name}`}
        onOpen=${(p) => navigate(href("partition", { topic: topic.name, p }))} onMove=${may("operate") && !at ? move : null} /><//>`}
    <${Section} title="Partitions"><${Table} label="Partitions" tall rows=${sorted(rows, psort)} keyOf=${(row) => row.p} sort=${psort} onSort=${(next) => change({ psort: next })} columns=${[
      { id: "p", name: "partition", sort: "p", cell: (row) => html`<${PartitionLink} topic=${topic.name} p=${row.p} row />` },
      { id: "state", name: "state", sort: "state", cell: (row) => html`<${PartitionState} state=${row.state} known=${row.known} />` },
      { id: "leader", name: "leader", sort: "leader", number: true, cell: (row) => html`<${BrokerLink} id=${row.leader} />` },
      { id: "epoch", name: "epoch", sort: "leader_epoch", number: true, cell: (row) => count(row.leader_epoch) },
      { id: "replicas", name: "replicas", cell: (row) => html`<${Ids} ids=${row.replicas} />` },
      { id: "isr", name: "in sync", cell: (row) => html`<${Ids} ids=${row.isr} />` },
      { id: "start", name: "start", sort: "start_offset", number: true, cell: (row) => count(row.start_offset) },
      { id: "end", name: "end", sort: "end_offset", number: true, cell: (row) => count(row.end_offset) },
      { id: "count", name: "offsets", sort: "offsets", number: true, title: "end less start; a compacted log has fewer records", cell: (row) => count(row.offsets) },
      { id: "size", name: "size", sort: "size_bytes", number: true, cell: (row) => bytes(row.size_bytes) },
      { id: "records", name: "", label: "records", cell: (row) => html`<${Link} to="records" query=${{ topic: topic.name, p: row.p }}>records<//>` },
    ]} /><//>`;
}

function TopicGroups({ name }) {
  const state = useGet("/groups", { topic: name, limit: 500 }, { live: "groups", subject: name });
  return html`<${Loaded} state=${state}>${({ items }) => html`<${Table} label="Groups that read this topic" rows=${items} keyOf=${(row) => row.id} empty="No group has committed an offset here."
    columns=${[
      { id: "id", name: "group", cell: (row) => html`<${GroupLink} id=${row.id} row />` },
      { id: "state", name: "state", cell: (row) => row.state },
      { id: "members", name: "members", number: true, cell: (row) => count(row.members) },
      { id: "lag", name: "lag", number: true, cell: (row) => count(row.lag) },
      { id: "behind", name: "behind", number: true, cell: (row) => (row.lag_s === null ? UNKNOWN : duration(row.lag_s * 1000)) },
    ]} />`}<//>`;
}

function Settings({ name }) {
  const state = useGet("/configs", { type: "topic", name }, { subject: name });
  return html`<${Loaded} state=${state}>${({ items }) => html`<${SettingsTable} type="topic" name=${name} items=${items} empty="Every setting has its default." />`}<//>
    <p><${Link} to="configs" query=${{ type: "topic", name, all: 1 }}>All settings, also those with their default<//></p>`;
}

function Producers({ name }) {
  const state = useGet("/topic/producers", { name }, { poll: 5000, subject: name });
  return html`<${Loaded} state=${state}>${({ items }) => html`<${Table} label="Producers with state" rows=${items} keyOf=${(row) => `${row.p} ${row.id}`} empty=${html`<${Empty} title="No producer state.">Idempotent and transactional producers appear here.<//>`}
    columns=${[
      { id: "p", name: "partition", cell: (row) => html`<${PartitionLink} topic=${name} p=${row.p} row />` },
      { id: "id", name: "producer id", number: true, cell: (row) => row.id },
      { id: "epoch", name: "epoch", number: true, cell: (row) => row.epoch },
      { id: "sequence", name: "last sequence", number: true, cell: (row) => count(row.last_sequence) },
      { id: "last", name: "last write", number: true, cell: (row) => html`<${Moment} ms=${row.last_ms} />` },
      { id: "transaction", name: "transaction from", number: true, cell: (row) => (row.transaction_start === null || row.transaction_start < 0 ? "none open" : count(row.transaction_start)) },
    ]} />`}<//>`;
}
