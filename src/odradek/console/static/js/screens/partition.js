// Why is this broker leader? The partition's history: each change with cause, epoch, before and after.
import {
  Action, BrokerLink, bytes, clock, count, Empty, html, Ids, isoOf, JournalList, Link, Loaded, moment, Notice, Page, Pairs, PartitionState,
  Section, Table, TopicLink, UNKNOWN, useGet, useQuery, session,
} from "../ui.js";

const WIDTH = 900;

// A lane: what held from when to when, as a row of boxes over time.
function Lane({ y, name, points, from, to, isNone, format }) {
  const x = (ms) => 70 + ((ms - from) / Math.max(1, to - from)) * (WIDTH - 80);
  const boxes = points.map(([ms, value], at) => ({ value, start: Math.max(from, ms), end: points[at + 1]?.[0] ?? to }));
  return html`<g><text x="0" y=${y + 16} class="muted">${name}</text>${boxes.map((box) => {
    const width = Math.max(2, x(box.end) - x(box.start));
    const text = format(box.value);
    const fits = [text, String(box.value)].find((each) => width > each.length * 8 + 6);
    return html`<g><title>${`${name} ${text}, ${moment(box.start, true)} to ${moment(box.end, true)}`}</title>
      <rect class=${isNone(box.value) ? "none" : "lane"} x=${x(box.start)} y=${y} width=${width} height="22" rx="2"></rect>
      ${fits && html`<text x=${x(box.start) + 6} y=${y + 15}>${fits}</text>`}</g>`;
  })}</g>`;
}

function Lanes({ lanes, minIsr }) {
  const times = [...lanes.leader, ...lanes.isr].map(([ms]) => ms);
  if (times.length === 0) return null;
  const to = Date.now();
  const from = Math.min(...times, to - 1000);
  const ticks = [0, 0.25, 0.5, 0.75, 1].map((share) => from + share * (to - from));
  return html`<div class="lanes" tabindex="0" role="group" aria-label="Leader and ISR over time"><svg viewBox="0 0 ${WIDTH} 82" role="img" aria-label=${`Leader and size of the ISR over time, ${lanes.leader.length} leaderships since ${moment(from)}; the list below has each change`}>
    <${Lane} y=${2} name="leader" points=${lanes.leader} from=${from} to=${to} isNone=${(id) => id === null || id < 0} format=${(id) => (id === null || id < 0 ? "none" : `broker ${id}`)} />
    <${Lane} y=${32} name="ISR size" points=${lanes.isr} from=${from} to=${to} isNone=${(size) => size === 0 || (minIsr && size < minIsr)} format=${(size) => String(size)} />
    ${ticks.map((ms, at) => html`<text class="muted" y="76" x=${70 + at * 0.25 * (WIDTH - 80)} text-anchor=${at === 0 ? "start" : at === 4 ? "end" : "middle"}>${clock(ms)}</text>`)}
  </svg></div>`;
}

function History({ topic, p, at }) {
  const [{ limit = 100 }, change] = useQuery();
  const state = useGet("/partition/history", { topic, p, limit }, { poll: 3000, subject: `${topic}-${p}` });
  if (!session.get().features.journal) return html`<${Notice}>These brokers keep no journal, so there is no history to show.<//>`;
  return html`<${Loaded} state=${state}>${({ items, lanes, complete, kept_since_ms: kept }) => html`
    <${Lanes} lanes=${lanes ?? { leader: [], isr: [] }} />
    <${Section} title="Changes" aside="newest first, in the order of controller epoch and sequence">
      ${items.length === 0 ? html`<${Empty} title="No change is in the journal.">${kept ? `It is kept since ${moment(kept)}.` : ""}<//>`
        : html`<${JournalList} entries=${items} label="Changes of this partition" />`}
      <p class="muted">${complete ? "This is all that happened to the partition." : html`${kept ? `The journal goes back to ${moment(kept)}. ` : ""}
        ${items.length >= Number(limit) && html`<button class="linklike" onClick=${() => change({ limit: Number(limit) * 2 })}>Show more</button>`}`}</p>
      ${items.length > 0 && html`<p class="muted">The cluster ${" "}<${Link} to="partition" query=${{ topic, p, at: isoOf(items[0].time_ms - 1) }}>before<//>
        ${" "}and ${" "}<${Link} to="partition" query=${{ topic, p, at: isoOf(items[0].time_ms + 1) }}>after<//> the latest change.</p>`}
    <//>`}<//>`;
}

export function Partition() {
  const [{ topic, p, at }] = useQuery();
  const state = useGet("/partition", { topic, p, at }, { poll: at ? 0 : 2000, subject: `${topic}-${p}` });
  return html`<${Loaded} state=${state} title=${`${topic}-${p}`}>${(now) => html`<${Page} title=${`${topic}-${p}`}
      crumbs=${html`<${Link} to="topics">Topics<//> / <${TopicLink} name=${topic} />`}
      facts=${[html`<${PartitionState} state=${now.state} known=${now.known} />`, html`leader <b><${BrokerLink} id=${now.leader} /></b>`, html`epoch <b>${count(now.leader_epoch)}</b>`,
        html`ISR <b>${now.isr?.join(", ") || "none"}</b> of <b>${now.replicas?.join(", ")}</b>`]}
      actions=${html`<${Link} class="button" to="records" query=${{ topic, p }}>Records<//>
        ${Number(p) > 0 && html`<${PartitionLinkButton} topic=${topic} p=${Number(p) - 1} text="◂" />`}<${PartitionLinkButton} topic=${topic} p=${Number(p) + 1} text="▸" />
        <${Action} name="elect" label="Elect preferred" verb="Elect" body=${() => ({ kind: "elect", election: "preferred", partitions: [{ topic, p: Number(p) }] })} />
        <${Action} name="unclean" label="Unclean election" right="administer" danger verb="Elect, and accept loss" body=${() => ({ kind: "elect", election: "unclean", partitions: [{ topic, p: Number(p) }] })} />`}>
    ${now.known === false ? html`<${Notice} level="warn">Not known: the journal does not cover this moment.<//>`
      : html`<${Section} title="Replicas"><${Table} label="Replicas" rows=${now.replicas} keyOf=${(id) => id} columns=${[
          { id: "broker", name: "broker", cell: (id) => html`<${BrokerLink} id=${id} row />` },
          { id: "role", name: "role", cell: (id) => (id === now.leader ? "leader" : now.adding?.includes(id) ? "being added" : now.removing?.includes(id) ? "being removed" : "follower") },
          { id: "sync", name: "state", cell: (id) => html`<${PartitionState} state=${now.offline_replicas?.includes(id) ? "offline" : now.isr.includes(id) ? "ok" : "under-replicated"} />` },
          { id: "preferred", name: "preferred", cell: (id) => (id === now.preferred ? "yes" : "") },
          { id: "lag", name: "records behind", number: true, cell: (id) => (id === now.leader ? 0 : count(now.lags?.[id])) },
          { id: "size", name: "size", number: true, cell: (id) => bytes(now.sizes?.[id]) },
        ]} /><//>
        <${Section} title="Log"><${Pairs} pairs=${[["offsets", now.end_offset === null || now.end_offset === undefined ? UNKNOWN : `${count(now.start_offset)} to ${count(now.end_offset)}`], ["records", count(now.records)], ["size", bytes(now.size_bytes)], ["in sync", html`<${Ids} ids=${now.isr} />`]]} /><//>`}
    <${Section} title="History"><${History} topic=${topic} p=${p} at=${at} /><//>
  <//>`}<//>`;
}

const PartitionLinkButton = ({ topic, p, text }) => html`<${Link} class="button" to="partition" query=${{ topic, p }} aria-label=${`partition ${p}`}>${text}<//>`;
