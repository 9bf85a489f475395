// What a move would cost, then the move, how far it is, and how to stop it.
import {
  Action, BrokerLink, byteRate, bytes, Check, Copy, count, duration, Empty, ErrorNotice, html, Ids, Input, known, Link, Loaded, may, Meter,
  Page, PartitionLink, percent, PlanView, plural, Section, Select, Table, Text, UNKNOWN, useGet, usePlan, useQuery,
} from "../ui.js";

const MODES = [["level", "level the cluster"], ["empty", "empty brokers"], ["replication", "change the replication factor"], ["manual", "place partitions by hand"]];
const numbers = (text) => (text ?? "").split(/[\s,]+/).filter(Boolean).map(Number);
const names = (text) => (text ?? "").split(/[\s,]+/).filter(Boolean);
const MEGA = 1e6;

// "3=1,2,4 5=2,3,1" of one topic.
function placements(text, topic) {
  return (text ?? "").split(/[\s;]+/).filter(Boolean).map((each) => {
    const [p, replicas] = each.split("=");
    return { topic, p: Number(p), replicas: numbers(replicas) };
  });
}

function bodyOf({ mode = "level", brokers, topics, factor, partitions, throttle, scratch, racks }) {
  return {
    kind: "reassign", mode, rack_aware: racks !== "0", from_scratch: scratch === "1",
    ...(mode !== "manual" && topics ? { topics: names(topics) } : {}),
    ...(brokers ? { brokers: numbers(brokers) } : {}),
    ...(mode === "replication" ? { factor: Number(factor) } : {}),
    ...(mode === "manual" ? { partitions: placements(partitions, topics) } : {}),
    throttle_bytes_per_s: throttle ? Number(throttle) * MEGA : null,
  };
}

const seconds = (value) => (value === null || value === undefined ? UNKNOWN : duration(value * 1000));

function Wish({ query, change, onPlan, busy }) {
  const { mode = "level" } = query;
  const text = (name) => ({ value: query[name] ?? "", onValue: (value) => change({ [name]: value }) });
  return html`<form class="stack" onSubmit=${(event) => { event.preventDefault(); onPlan(); }} aria-label="What to move">
    <div class="form"><${Select} label="Goal" value=${mode} onValue=${(value) => change({ mode: value })} options=${MODES} />
      ${mode === "empty" && html`<${Input} label="Brokers to empty" placeholder="3" required ...${text("brokers")} />`}
      ${mode === "level" && html`<${Input} label="Brokers" placeholder="all" ...${text("brokers")} />`}
      ${mode === "replication" && html`<${Input} label="Factor" type="number" min="1" required ...${text("factor")} />`}
      <${Input} wide label=${mode === "manual" ? "Topic" : "Topics"} placeholder=${mode === "manual" ? "name" : "all"} required=${mode === "manual" || mode === "replication"} ...${text("topics")} />
      ${mode === "manual" && html`<${Input} wide label="Partitions" placeholder="3=1,2,4 5=2,3,1" required hint="partition = brokers, the preferred leader first" ...${text("partitions")} />`}
      <${Input} label="Throttle in MB/s" type="number" min="1" placeholder="none" ...${text("throttle")} />
      <button class="primary" disabled=${busy}>${busy ? "Planning…" : "Plan"}</button></div>
    <div class="form"><${Check} label="keep racks apart" checked=${query.racks !== "0"} onValue=${(on) => change({ racks: on ? "" : "0" })} />
      <${Check} label="place everything from scratch" checked=${query.scratch === "1"} onValue=${(on) => change({ scratch: on ? "1" : "" })} /></div></form>`;
}

function Moved({ plan }) {
  const { partitions = [], json, rollback_json: back } = plan.details;
  return html`<p class="facts"><span><b>${plural(plan.details.moves, "move")}</b></span><span><b>${bytes(plan.details.total_bytes)}</b> to copy</span>
      ${plan.details.longest_broker !== null && plan.details.longest_broker !== undefined && html`<span>longest: broker <b>${plan.details.longest_broker}</b></span>`}
      <${Copy} text=${json ?? ""} label="Copy as JSON" /><${Copy} text=${back ?? ""} label="Copy the way back" /></p>
    <${Table} label="Moves" tall rows=${partitions.slice(0, 500)} keyOf=${(row) => `${row.topic}-${row.p}`} empty="Nothing needs to move." columns=${[
      { id: "partition", name: "partition", cell: (row) => html`<${PartitionLink} topic=${row.topic} p=${row.p} />` },
      { id: "from", name: "from", cell: (row) => html`<${Ids} ids=${row.from} />` },
      { id: "to", name: "to", cell: (row) => html`<${Ids} ids=${row.to} />` },
      { id: "why", name: "why", long: true, cell: (row) => html`<${Text}>${row.why ?? ""}<//>` },
    ]} />${partitions.length > 500 && html`<p class="muted">500 of ${count(partitions.length)} are shown; the JSON has all.</p>`}`;
}

function Cost({ plan }) {
  const { cost = [], seconds_at: at = {} } = plan.details;
  return html`<${Table} label="Cost per broker" rows=${cost} keyOf=${(row) => row.broker} empty="It costs nothing." columns=${[
      { id: "broker", name: "broker", cell: (row) => html`<${BrokerLink} id=${row.broker} />` },
      { id: "gains", name: "gains", number: true, cell: (row) => count(row.gains) },
      { id: "loses", name: "loses", number: true, cell: (row) => count(row.loses) },
      { id: "receives", name: "receives", number: true, cell: (row) => bytes(row.receives_bytes) },
      { id: "sends", name: "sends", number: true, cell: (row) => bytes(row.sends_bytes) },
      { id: "disk", name: "disk used", number: true, cell: (row) => (row.disk_before === null || row.disk_before === undefined ? UNKNOWN : `${percent(row.disk_before)} → ${percent(row.disk_after)}`) },
      { id: "time", name: "time", number: true, cell: (row) => seconds(row.seconds) },
    ]} />
    ${Object.keys(at).length > 0 && html`<p class="facts"><span>time at</span>${Object.entries(at).map(([limit, s]) => html`<span><b>${byteRate(Number(limit))}</b>: ${seconds(s)}</span>`)}</p>`}`;
}

export function Planner() {
  const [query, change] = useQuery();
  const flow = usePlan();
  if (!may("operate")) return html`<${Page} title="Planner"><${Empty} title="You may not plan moves.">It needs the role operator, and a console that is not read-only.<//><//>`;
  return html`<${Page} title="Planner" facts=${["Replicas move while the cluster serves; a plan costs nothing until it is started."]} actions=${html`<${Link} class="button" to="moves">Moves under way<//>`}>
    <ol class="steps">
      <li><h2><span class="step">1</span> What</h2><${Wish} query=${query} change=${(changes) => change({ ...changes, plan: "" })} busy=${flow.busy} onPlan=${() => flow.make(bodyOf(query))} />
        ${flow.error && !flow.plan && html`<${ErrorNotice} error=${flow.error} />`}</li>
      <li><h2><span class="step">2</span> Plan</h2>${flow.plan ? html`<${Moved} plan=${flow.plan} />` : html`<p class="muted">The fewest moves that reach the goal, with the reason of each.</p>`}</li>
      <li><h2><span class="step">3</span> Cost</h2>${flow.plan ? html`<${Cost} plan=${flow.plan} />` : html`<p class="muted">Bytes and copies per broker, disks afterwards, time at the throttle.</p>`}</li>
      <li><h2><span class="step">4</span> Start</h2>${flow.plan ? html`<${PlanView} flow=${flow} verb="Start moving" done=${() => html`The moves have begun: <${Link} to="moves">progress<//>.`}>${() => null}<//>` : html`<p class="muted">Progress, throttle and cancel are then under Moves, also after a reload.</p>`}</li>
    </ol><//>`;
}

// Moves under way

export function Moves() {
  const state = useGet("/moves", {}, { live: "moves", poll: 4000 });
  return html`<${Page} title="Moves" facts=${["Reassignments under way, whichever tool began them."]} actions=${html`
      <${Action} name="throttle" label="Throttle" verb="Set throttle" initial=${{ rate: "" }} body=${({ rate }) => ({ kind: "throttle", bytes_per_s: rate === "" ? null : Number(rate) * MEGA })}
        form=${(values, set) => html`<${Input} label="MB/s for each broker" type="number" min="1" placeholder="none" value=${values.rate} onValue=${(rate) => set({ rate })} hint="Empty: no throttle." />`} />
      ${state.data?.items.length > 0 && html`<${Action} name="cancel" label="Cancel all" danger verb="Cancel, and go back" body=${() => ({ kind: "cancel-moves", partitions: null })} />`}
      ${may("operate") && html`<${Link} class="button" to="planner">Plan a move<//>`}`}>
    <${Loaded} state=${state}>${(moves) => moves.items.length === 0
      ? html`<${Empty} title="No replica is moving.">${moves.throttle_bytes_per_s ? `A throttle of ${byteRate(moves.throttle_bytes_per_s)} is still set.` : ""}<//>`
      : html`<div class="progress"><${Meter} wide label="all moves" share=${moves.percent / 100} /><span><b>${percent(moves.percent / 100)}</b></span><span>${bytes(moves.done_bytes)} of ${bytes(moves.total_bytes)}</span>
          ${known(moves.bytes_per_s) && html`<span>${byteRate(moves.bytes_per_s)}</span>`}${known(moves.left_s) && html`<span>${seconds(moves.left_s)} left</span>`}<span>throttle ${moves.throttle_bytes_per_s ? byteRate(moves.throttle_bytes_per_s) : "none"}</span></div>
        <${Table} label="Moves" rows=${moves.items} keyOf=${(row) => `${row.topic}-${row.p}`} columns=${[
          { id: "partition", name: "partition", cell: (row) => html`<${PartitionLink} topic=${row.topic} p=${row.p} row />` },
          { id: "adding", name: "adding", cell: (row) => html`<${Ids} ids=${row.adding} />` },
          { id: "removing", name: "removing", cell: (row) => html`<${Ids} ids=${row.removing} />` },
          { id: "progress", name: "progress", tight: true, cell: (row) => html`<${Meter} label=${`${row.topic}-${row.p}`} share=${(row.percent ?? 0) / 100} /> ${percent((row.percent ?? 0) / 100)}` },
          { id: "bytes", name: "bytes", number: true, cell: (row) => `${bytes(row.done_bytes)} of ${bytes(row.total_bytes)}` },
          { id: "rate", name: "rate", number: true, cell: (row) => byteRate(row.bytes_per_s) },
          { id: "left", name: "left", number: true, cell: (row) => seconds(row.left_s) },
          { id: "back", name: "cancel goes back to", cell: (row) => html`<${Ids} ids=${row.back_to} />` },
          may("operate") && { id: "cancel", name: "", label: "cancel", cell: (row) => html`<${Action} name=${`cancel ${row.topic}-${row.p}`} label="Cancel" verb="Cancel, and go back" body=${() => ({ kind: "cancel-moves", partitions: [{ topic: row.topic, p: row.p }] })} />` },
        ]} />
        ${moves.brokers?.length > 0 && html`<${Section} title="By broker"><${Table} label="Bytes received by broker" rows=${moves.brokers} keyOf=${(row) => row.broker} columns=${[
          { id: "broker", name: "broker", cell: (row) => html`<${BrokerLink} id=${row.broker} />` },
          { id: "receives", name: "receives", number: true, cell: (row) => bytes(row.receives_bytes) },
          { id: "done", name: "there", number: true, cell: (row) => bytes(row.done_bytes) },
        ]} /><//>`}`}<//><//>`;
}
