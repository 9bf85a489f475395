// Which settings differ from their default, where they come from and who set them.
import {
  Action, Check, clock, count, day, Empty, Filter, html, Input, Link, Loaded, Page, Select, Table, Tag, Text, useDraft, useGet, useQuery,
} from "../ui.js";

const SOURCES = { topic: "this topic", broker: "this broker, dynamic", cluster: "all brokers, dynamic", file: "broker's file", default: "default" };

function Editor({ type, name, row }) {
  const subject = { kind: "alter-configs", type, name };
  if (row.read_only) return html`<span class="muted">read-only</span>`;
  return html`<span class="actions"><${Action} name=${`edit ${row.name}`} label="Edit" title=${row.name} verb="Set" initial=${{ value: row.sensitive ? "" : row.value ?? "" }} secret=${row.sensitive ? ["value"] : []} body=${({ value }) => ({ ...subject, set: { [row.name]: value }, delete: [] })}
      form=${(values, set) => html`${row.doc && html`<p class="muted">${row.doc}</p>`}<${Input} label=${row.name} value=${values.value} onValue=${(value) => set({ value })} spellcheck="false" hint=${row.default === null ? null : `Default: ${row.default}`} />`} />
    ${row.source === (type === "topic" ? "topic" : name === "" ? "cluster" : "broker") && html`<${Action} name=${`reset ${row.name}`} label="Reset" title=${`Reset ${row.name}`} verb="Reset to default" body=${() => ({ ...subject, set: {}, delete: [row.name] })} />`}</span>`;
}

export const SettingsTable = ({ type, name, items, empty }) => html`<${Table} label="Settings" rows=${items} keyOf=${(row) => row.name} empty=${empty} columns=${[
  { id: "name", name: "setting", cell: (row) => html`<code>${row.name}</code>${row.doc && html`<div class="muted">${row.doc}</div>`}`, long: true },
  { id: "value", name: "value", long: true, cell: (row) => (row.sensitive ? html`<${Tag}>hidden<//>` : html`<code class=${row.source === "default" ? "muted" : "strong"}><${Text} clip=${300}>${row.value ?? "null"}<//></code>`) },
  { id: "default", name: "default", long: true, cell: (row) => html`<code class="muted"><${Text} clip=${200}>${row.default ?? "–"}<//></code>` },
  { id: "source", name: "from", cell: (row) => SOURCES[row.source] ?? row.source },
  { id: "changed", name: "set by", cell: (row) => (row.changed ? html`<${Text} clip=${40}>${row.changed.user}<//> ${day(row.changed.time_ms)} ${clock(row.changed.time_ms)}` : html`<span class="muted">–</span>`) },
  { id: "act", name: "", label: "change", cell: (row) => html`<${Editor} type=${type} name=${name} row=${row} />` },
]} />`;

export function Configs() {
  const [{ type = "broker", name, all, q = "" }, change] = useQuery();
  const [typed, set] = useDraft("typed_name", name ?? "");
  const ready = type === "broker" || Boolean(name);
  const state = useGet(ready ? "/configs" : null, { type, name: name ?? "", all: all ? 1 : "" }, { subject: `${type} ${name}` });
  const brokers = useGet("/brokers");
  return html`<${Page} title="Configs" facts=${state.data && ready ? [html`<b>${count(state.data.differ)}</b> of <b>${count(state.data.total)}</b> differ from the default`] : []}>
    <form class="toolbar form" onSubmit=${(event) => { event.preventDefault(); change({ name: typed }); }}>
      <${Select} label="Of" value=${type} onValue=${(value) => change({ type: value, name: "", typed_name: "" })} options=${[["broker", "broker"], ["topic", "topic"]]} />
      ${type === "broker"
        ? html`<${Select} label="Broker" value=${name ?? ""} onValue=${(value) => change({ name: value })} options=${[["", "all brokers (cluster default)"], ...(brokers.data?.items ?? []).map(({ id }) => [String(id), `broker ${id}`])]} />`
        : html`<${Input} label="Topic" value=${typed} onValue=${set} required spellcheck="false" /><button>Show</button>`}
      <${Check} label="show all, also defaults" checked=${Boolean(all)} onValue=${(on) => change({ all: on ? 1 : "" })} />
      <span class="spring"></span><${Filter} label="Filter settings" /></form>
    ${!ready ? html`<${Empty} title="Which topic?">Name one above, or open a topic's settings from <${Link} to="topics">the list<//>.<//>`
      : html`<${Loaded} state=${state}>${({ items }) => html`<${SettingsTable} type=${type} name=${name ?? ""} items=${items.filter((row) => row.name.includes(q.toLowerCase()))}
          empty=${html`<${Empty} title=${q ? "No setting matches." : "Every setting has its default."} actions=${!all && html`<button onClick=${() => change({ all: 1 })}>Show all</button>`} />`} />`}<//>`}
  <//>`;
}
