// What is wrong right now, worst first, and whether it is getting better.
import {
  BrokerLink, byteRate, count, duration, Empty, EntryText, get, html, Link, Loaded, Moment, Notice, Page, plural,
  rate, Section, session, Since, Spark, State, Text, useEffect, useGet, useQuery, useState, useWatch, href,
} from "../ui.js";

const SEVERITIES = { critical: ["bad", "✖", "critical"], warning: ["warn", "▲", "warning"], notice: ["note", "◆", "notice"] };
const TRENDS = { better: ["good", "↓ getting better"], worse: ["bad", "↑ getting worse"], same: ["muted", "→ unchanged"] };
const ACTIONS = {
  history: (link) => [href("partition", { topic: link.topic, p: link.p }), "History"],
  elect: () => [href("topics", { act: "elect" }), "Elect…"],
  unhealthy: () => [href("topics", { state: "offline,under-min-isr,under-replicated", sort: "-state" }), "All of them"],
  plan: (link) => [href("planner", link.screen === "broker" ? { mode: "empty", brokers: link.id } : {}), "Plan a move"],
  moves: () => [href("moves"), "Moves"],
};

// Where a problem leads: the server names the screen and what identifies its subject.
function linkOf(link) {
  if (!link) return null;
  const { screen, ...query } = link;
  return href(screen, query);
}

function Problem({ problem }) {
  const [level, glyph, word] = SEVERITIES[problem.severity] ?? SEVERITIES.notice;
  const [trendLevel, trend] = TRENDS[problem.trend] ?? [null, null];
  const target = linkOf(problem.link);
  const actions = (problem.actions ?? []).filter((name) => ACTIONS[name] && problem.link);
  return html`<li class="problem">
    <span class="glyph ${level}" aria-hidden="true">${glyph}</span>
    <div><p class="line"><span class="visually-hidden">${word}:</span><span class="strong"><${Text} clip=${240}>${problem.text}<//></span>
        ${trend && html`<span class=${trendLevel}>${trend}</span>`}
        ${problem.since_ms && html`<span class="muted"><${Since} ms=${problem.since_ms} /></span>`}
        ${problem.left_s !== null && problem.left_s !== undefined && html`<span class="muted">~${duration(problem.left_s * 1000)} left</span>`}</p>
      ${(problem.reason || problem.journal_reason) && html`<p class="why"><${Text} clip=${400}>${problem.reason ?? ""}<//>
        ${problem.journal_reason && problem.journal_reason !== problem.reason && html`${problem.reason ? " · " : ""}journal: <span class="mono"><${Text} clip=${300}>${problem.journal_reason}<//></span>`}</p>`}
      ${problem.advice && html`<p class="advice">${problem.advice}</p>`}</div>
    <div class="actions">${target && html`<a class="button" href=${target}>Show</a>`}
      ${actions.map((name) => {
        const [url, text] = ACTIONS[name](problem.link);
        return html`<a class="button" href=${url}>${text}</a>`;
      })}</div>
  </li>`;
}

const Tile = ({ name, value, under, children }) =>
  html`<div class="tile"><dt>${name}</dt><dd>${value}${under && html`<div class="under">${under}</div>`}${children}</dd></div>`;

// What was decided, without the requests that carried it out: those are on the controller's screen.
const DECISIONS = ["controller", "leadership", "reassignment", "deletion", "failure"];

function Latest({ at }) {
  const [entries, set] = useState(null);
  useEffect(() => {
    get("/journal", { limit: 12, to: at, kind: DECISIONS }).then((answer) => set(answer.items), () => set([]));
  }, [at]);
  useWatch(at ? null : "journal", ({ entries: fresh }) => {
    const decided = fresh.filter((entry) => DECISIONS.includes(entry.kind)).reverse();
    if (decided.length) set((old) => [...decided, ...(old ?? [])].slice(0, 12));
  });
  if (!entries) return null;
  if (!session.get().features.journal) return html`<${Empty} title="These brokers keep no journal.">What their controller decides is not known.<//>`;
  if (entries.length === 0) return html`<${Empty} title="No entries.">The controller writes here what it decides, and why.<//>`;
  return html`<ol class="journal short boxed" aria-label="Latest decisions">${entries.map((entry) => html`<li key=${entry.id}>
    <span class="mono"><${Moment} ms=${entry.time_ms} /></span>
    <span class="text">${entry.kind} <${EntryText} entry=${entry} cause=${48} /></span></li>`)}</ol>`;
}

export function Overview() {
  const [{ at }] = useQuery();
  const state = useGet("/overview", { at }, { live: "overview" });
  return html`<${Loaded} state=${state} lines=${9} title="Overview">${(now) => html`<${Page} title="Overview" facts=${[
      html`<b>${now.brokers.alive.length}</b> of <b>${now.brokers.total}</b> brokers`,
      html`controller <b>${now.controller >= 0 && now.controller !== null ? html`<${BrokerLink} id=${now.controller} />` : "none"}</b>`,
      now.controller_epoch != null && html`epoch <b>${count(now.controller_epoch)}</b>`,
      html`<b>${plural(now.topics, "topic")}</b>, <b>${plural(now.partitions, "partition")}</b>`,
      html`<b>${plural(now.groups, "group")}</b>`,
    ].filter(Boolean)}>
    ${now.known === false && html`<${Notice} level="warn">The journal does not cover this moment: the state then is not known.<//>`}
    ${now.failure && html`<${Notice} level="warn">No broker answers. ${now.age_s === null ? "Nothing is known of the cluster yet." : `What is shown is as it was ${duration(now.age_s * 1000)} ago.`}<//>`}
    <${Section} title="Problems" aside=${now.problems.length ? `${now.problems.length}, worst first` : null}>
      ${now.problems.length === 0
        ? now.failure ? null : html`<div class="boxed problem"><span class="glyph good" aria-hidden="true">●</span><div>${
            now.known === false ? "Nothing is known of this moment." : "Nothing is wrong: every partition has a leader and all its replicas are in sync."}</div></div>`
        : html`<ul class="boxed" aria-label="Problems">${now.problems.map((each) => html`<${Problem} key=${`${each.kind} ${each.subject}`} problem=${each} />`)}</ul>`}
    <//>
    <${Section} title="Traffic" aside=${session.get().features.journal ? "the last two hours" : "no figures: the HTTP listener of these brokers is not set, or not visible to this console"}>
      <dl class="tiles">
        <${Tile} name="in" value=${byteRate(now.rates?.bytes_in_per_s)} under=${`${rate(now.rates?.records_in_per_s)} records`}>
          <${Spark} values=${now.spark?.bytes_in} label="bytes in over time" /><//>
        <${Tile} name="out" value=${byteRate(now.rates?.bytes_out_per_s)}><${Spark} values=${now.spark?.bytes_out} label="bytes out over time" /><//>
        <${Tile} name="requests" value=${rate(now.rates?.requests_per_s)}><${Spark} values=${now.spark?.requests} label="requests over time" /><//>
        <${Tile} name="produce p99" value=${duration(now.rates?.produce_ms_p99)} under=${`fetch p99 ${duration(now.rates?.fetch_ms_p99)}`} />
        <${Tile} name="partitions" value=${count(now.partitions)} under=${html`${count(now.offline)} offline, ${count(now.under_replicated)} under-replicated, ${count(now.under_min_isr)} under min ISR`} />
        <${Tile} name="moves" value=${count(now.moves)} under=${now.moves ? html`<${Link} to="moves">progress<//>` : now.moves === null ? "not permitted" : "no replica is moving"} />
      </dl>
    <//>
    <div class="columns">
      <${Section} title="Brokers" actions=${html`<${Link} to="brokers">all figures<//>`}>
        <ul class="boxed plain" aria-label="Brokers">${[...now.brokers.alive.map((id) => [id, true]), ...now.brokers.down.map((id) => [id, false])]
          .sort(([a], [b]) => a - b)
          .map(([id, alive]) => html`<li key=${id}><span>broker <${BrokerLink} id=${id} row /></span>
            ${alive && now.failure ? html`<${State} level="warn">last seen up<//>` : alive ? html`<${State} level="good">${id === now.controller ? "up, controller" : "up"}<//>` : html`<${State} level="bad">down<//>`}</li>`)}</ul>
      <//>
      <${Section} title="Latest decisions" aside="journal" actions=${html`<${Link} to="controller">all<//>`}><${Latest} at=${at} /><//>
    </div><//>`}<//>`;
}

