// Write one record: previewed, then produced, and the offset it got.
import { Check, Empty, Field, html, Input, Link, may, Page, PlanView, Select, Text, useGet, useKept, usePlan, useQuery, ErrorNotice, count } from "../ui.js";

function Headers({ headers, onHeaders }) {
  const change = (at, changes) => onHeaders(headers.map((each, index) => (index === at ? { ...each, ...changes } : each)));
  return html`<fieldset><legend>Headers</legend>${headers.map((header, at) => html`<div class="form" key=${at}>
      <${Input} label="Name" value=${header.name} onValue=${(name) => change(at, { name })} /><${Input} wide label="Value" value=${header.value} onValue=${(value) => change(at, { value })} />
      <button type="button" onClick=${() => onHeaders(headers.filter((_, index) => index !== at))} aria-label=${`Remove header ${at + 1}`}>✕</button></div>`)}
    <button type="button" class="quiet" onClick=${() => onHeaders([...headers, { name: "", value: "" }])}>Add a header</button></fieldset>`;
}

const INITIAL = { p: "", key: "", hasKey: true, value: "", tombstone: false, headers: [], encoding: "text" };

export function Produce() {
  const [{ topic }] = useQuery();
  const flow = usePlan();
  const described = useGet("/topic", { name: topic }, { subject: topic });
  // A link would carry what the record contains to wherever links are kept.
  const [values, set] = useKept("form", INITIAL, { secret: ["key", "value", "headers"] });
  const change = (changes) => set((old) => ({ ...old, ...changes }));
  const partitions = described.data?.partitions ?? 0;
  if (!may("operate")) return html`<${Page} title="Produce"><${Empty} title="You may not produce here.">It needs the role operator, and a console that is not read-only.<//><//>`;
  const preview = (event) => {
    event.preventDefault();
    const { p, key, hasKey, value, tombstone, headers, encoding } = values;
    flow.make({ kind: "produce", topic, p: p === "" ? null : Number(p), key: hasKey ? key : null, value: tombstone ? null : value, headers, encoding });
  };
  return html`<${Page} title=${html`Produce to <${Text}>${topic}<//>`} crumbs=${html`<${Link} to="records" query=${{ topic }}>Records<//>`}>
    ${described.error && html`<${ErrorNotice} error=${described.error} />`}
    ${!flow.plan && html`<form class="stack" onSubmit=${preview}>
      <div class="form">
        <${Select} label="Partition" value=${values.p} onValue=${(p) => change({ p })} options=${[["", "by key"], ...Array.from({ length: Math.min(partitions, 1000) }, (_, p) => [String(p), String(p)])]} />
        <${Select} label="Written as" value=${values.encoding} onValue=${(encoding) => change({ encoding })} options=${[["text", "text (UTF-8)"], ["base64", "base64"]]} />
        <${Input} wide label="Key" value=${values.key} disabled=${!values.hasKey} onValue=${(key) => change({ key })} spellcheck="false" />
        <${Check} label="no key" checked=${!values.hasKey} onValue=${(none) => change({ hasKey: !none })} /></div>
      <${Field} label="Value">${(id) => html`<textarea id=${id} rows="8" spellcheck="false" disabled=${values.tombstone} value=${values.value} onInput=${(event) => change({ value: event.target.value })}></textarea>`}<//>
      <${Check} label="tombstone (the value is null)" checked=${values.tombstone} onValue=${(tombstone) => change({ tombstone })} />
      <${Headers} headers=${values.headers} onHeaders=${(headers) => change({ headers })} />
      ${flow.error && html`<${ErrorNotice} error=${flow.error} />`}
      <div class="actions"><button class="primary" disabled=${flow.busy}>Preview</button></div></form>`}
    <${PlanView} flow=${flow} verb="Produce" done=${({ details }) => html`Written to partition <b>${details.p}</b> at offset <b>${count(details.offset)}</b>. ${" "}
      <${Link} to="records" query=${{ topic, p: details.p, open: `${details.p}:${details.offset}` }}>Open it<//>`} />
    ${flow.plan && html`<p><button onClick=${flow.discard}>Write another</button></p>`}
  <//>`;
}
