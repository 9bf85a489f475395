// Which client hammers the cluster, and whether it is throttled.
import {
  Action, byteRate, count, duration, Empty, Filter, html, Input, Loaded, Notice, Page, percent, Section, Table, Text, UNKNOWN, useGet, useQuery,
} from "../ui.js";

const QUOTAS = [["producer_byte_rate", "Produce, bytes per second"], ["consumer_byte_rate", "Fetch, bytes per second"], ["request_percentage", "Time, percent of one core"], ["controller_mutation_rate", "Changes per second"]];

const entity = (row) => [row.user !== null && row.user !== undefined && `user ${row.user || "(default)"}`, row.client_id !== null && row.client_id !== undefined && `client id ${row.client_id || "(default)"}`].filter(Boolean).join(", ") || "default";
const shown = (name, value) => (name.endsWith("byte_rate") ? byteRate(value) : name === "request_percentage" ? `${value} %` : `${value}/s`);

function QuotaAction({ name, label, row }) {
  const fixed = row ? { user: row.user, client_id: row.client_id } : null;
  const initial = { user: row?.user ?? "", client_id: row?.client_id ?? "", ...Object.fromEntries(QUOTAS.map(([key]) => [key, row?.quotas?.[key] ?? ""])) };
  return html`<${Action} name=${name} label=${label} title=${row ? `Quota of ${entity(row)}` : "Add a quota"} verb="Set" initial=${initial}
    body=${(values) => ({
      kind: "alter-quotas", user: fixed ? fixed.user : values.user || null, client_id: fixed ? fixed.client_id : values.client_id || null,
      set: Object.fromEntries(QUOTAS.filter(([key]) => values[key] !== "").map(([key]) => [key, Number(values[key])])),
      delete: QUOTAS.map(([key]) => key).filter((key) => values[key] === "" && row?.quotas?.[key] !== undefined),
    })}
    form=${(values, set) => html`${!fixed && html`<div class="form"><${Input} label="User" placeholder="any" value=${values.user} onValue=${(user) => set({ user })} />
        <${Input} label="Client id" placeholder="any" value=${values.client_id} onValue=${(id) => set({ client_id: id })} /></div>`}
      <div class="form">${QUOTAS.map(([key, text]) => html`<${Input} key=${key} label=${text} type="number" min="0" step="any" placeholder="none" value=${values[key]} onValue=${(value) => set({ [key]: value })} />`)}</div>`} />`;
}

export function Clients() {
  const [{ q = "" }] = useQuery();
  const state = useGet("/quotas", {}, { poll: 5000 });
  const matches = (row) => `${row.client_id ?? ""} ${row.user ?? ""}`.toLowerCase().includes(q.toLowerCase());
  return html`<${Page} title="Clients & quotas" actions=${html`<${QuotaAction} name="quota" label="Add a quota" />`}>
    <div class="toolbar"><${Filter} label="Filter by client id or user" /></div>
    <${Loaded} state=${state}>${({ items, clients, use_known: known }) => html`
      <${Section} title="Clients" aside=${known ? "present use" : null}>
        ${known
          ? html`<p class="muted">Brokers measure clients that have a quota: to see all of them, set a high one for any client id.</p>`
          : html`<${Notice}>These brokers do not report what clients use; quotas are shown.<//>`}
        <${Table} label="Clients" rows=${clients.filter(matches)} keyOf=${(row) => `${row.user} ${row.client_id}`} empty=${html`<${Empty} title=${q ? "No client matches." : "No client with a quota has been active."} />`} columns=${[
          { id: "client", name: "client id", long: true, cell: (row) => html`<${Text} clip=${120}>${row.client_id || "(none)"}<//>` },
          { id: "user", name: "user", cell: (row) => (row.user ? html`<${Text} clip=${60}>${row.user}<//>` : UNKNOWN) },
          { id: "in", name: "in", number: true, cell: (row) => byteRate(row.in_per_s) },
          { id: "out", name: "out", number: true, cell: (row) => byteRate(row.out_per_s) },
          { id: "busy", name: "busy", number: true, cell: (row) => percent(row.busy, 1), title: "share of the brokers' time" },
          { id: "throttled", name: "throttled", number: true, cell: (row) => (row.throttled_s_per_min === null || row.throttled_s_per_min === undefined ? UNKNOWN : row.throttled_s_per_min > 0 ? html`<span class="warn">▲ ${duration(row.throttled_s_per_min * 1000)} per minute</span>` : "no") },
        ]} /><//>
      <${Section} title="Quotas" aside=${items.length ? count(items.length) : null}>
        <${Table} label="Quotas" rows=${items.filter(matches)} keyOf=${entity} empty=${html`<${Empty} title="No quota is set.">Every client may use as much as there is.<//>`} columns=${[
          { id: "entity", name: "for", long: true, cell: (row) => html`<${Text} clip=${160}>${entity(row)}<//>` },
          { id: "limits", name: "limits", cell: (row) => Object.entries(row.quotas).map(([name, value]) => html`<div>${QUOTAS.find(([key]) => key === name)?.[1] ?? name}: <b>${shown(name, value)}</b></div>`) },
          { id: "act", name: "", label: "change", cell: (row) => html`<${QuotaAction} name=${`quota ${entity(row)}`} label="Edit" row=${row} />` },
        ]} /><//>`}<//><//>`;
}
