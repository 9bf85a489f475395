// Users and ACLs, where the cluster has them.
import { Action, Check, Empty, ErrorNotice, html, Input, Page, Select, session, Skeleton, Table, Tabs, Tag, Text, useGet, useQuery } from "../ui.js";

const MECHANISMS = ["SCRAM-SHA-256", "SCRAM-SHA-512"];
const ENUMS = {
  resource_type: ["TOPIC", "GROUP", "CLUSTER", "TRANSACTIONAL_ID", "DELEGATION_TOKEN", "USER"],
  pattern: ["LITERAL", "PREFIXED"],
  operation: ["READ", "WRITE", "CREATE", "DELETE", "ALTER", "DESCRIBE", "CLUSTER_ACTION", "DESCRIBE_CONFIGS", "ALTER_CONFIGS", "IDEMPOTENT_WRITE", "ALL"],
  permission: ["ALLOW", "DENY"],
};
const options = (name) => ENUMS[name].map((each) => [each, each.toLowerCase().replaceAll("_", " ")]);

// What a cluster without security answers is a fact, not a failure.
function Secured({ state, children }) {
  const { data, error, reload } = state;
  if (!session.get().features.security || error?.problem?.error === "SECURITY_DISABLED")
    return html`<${Empty} title="This cluster has no users and no ACLs.">Every client may do everything. Brokers started with security show theirs here.<//>`;
  if (error && !data) return html`<${ErrorNotice} error=${error} retry=${reload} />`;
  return data ? children(data) : html`<${Skeleton} />`;
}

const NewUser = () => html`<${Action} name="user" label="Add a user" right="administer" verb="Create" initial=${{ user: "", password: "", sha512: false }} secret=${["password"]}
  body=${({ user, password, sha512 }) => ({ kind: "create-user", user, password, mechanisms: sha512 ? MECHANISMS : MECHANISMS.slice(0, 1) })}
  form=${(values, set) => html`<${Input} label="Name" required value=${values.user} onValue=${(user) => set({ user })} autocomplete="off" />
    <${Input} label="Password" type="password" required value=${values.password} onValue=${(password) => set({ password })} autocomplete="new-password" />
    <${Check} label="also SCRAM-SHA-512" checked=${values.sha512} onValue=${(sha512) => set({ sha512 })} />`} />`;

const NewAcl = () => html`<${Action} name="acl" label="Add an ACL" right="administer" verb="Add"
  initial=${{ resource_type: "TOPIC", resource_name: "", pattern: "LITERAL", principal: "User:", host: "*", operation: "READ", permission: "ALLOW" }}
  body=${(acl) => ({ kind: "add-acls", acls: [acl] })}
  form=${(values, set) => html`<div class="form"><${Select} label="Permission" value=${values.permission} onValue=${(permission) => set({ permission })} options=${options("permission")} />
      <${Input} label="Principal" required value=${values.principal} onValue=${(principal) => set({ principal })} /><${Input} label="From host" required value=${values.host} onValue=${(host) => set({ host })} />
      <${Select} label="To" value=${values.operation} onValue=${(operation) => set({ operation })} options=${options("operation")} /></div>
    <div class="form"><${Select} label="Resource" value=${values.resource_type} onValue=${(type) => set({ resource_type: type })} options=${options("resource_type")} />
      <${Select} label="Pattern" value=${values.pattern} onValue=${(pattern) => set({ pattern })} options=${options("pattern")} />
      <${Input} wide label="Name" required value=${values.resource_name} onValue=${(name) => set({ resource_name: name })} /></div>`} />`;

function Users() {
  const state = useGet(session.get().features.security ? "/users" : null);
  return html`<${Secured} state=${state}>${({ items }) => html`<${Table} label="Users" rows=${items} keyOf=${(row) => row.user ?? row.name} empty="There are no users yet." columns=${[
    { id: "user", name: "user", cell: (row) => html`<${Text} clip=${120}>${row.user ?? row.name}<//>` },
    { id: "mechanisms", name: "mechanisms", cell: (row) => (row.mechanisms ?? []).map((each) => html`<${Tag}>${typeof each === "string" ? each : each.mechanism}<//> `) },
    { id: "act", name: "", label: "change", cell: (row) => html`<${Action} name=${`delete ${row.user ?? row.name}`} label="Delete" right="administer" danger verb="Delete user" body=${() => ({ kind: "delete-user", user: row.user ?? row.name, mechanisms: (row.mechanisms ?? MECHANISMS).map((each) => (typeof each === "string" ? each : each.mechanism)) })} />` },
  ]} />`}<//>`;
}

const aclKey = (row) => JSON.stringify(row);

function Acls() {
  const state = useGet(session.get().features.security ? "/acls" : null);
  return html`<${Secured} state=${state}>${({ items }) => html`<${Table} label="ACLs" tall rows=${items} keyOf=${aclKey} empty="There are no ACLs yet." columns=${[
    { id: "principal", name: "principal", cell: (row) => html`<${Text} clip=${120}>${row.principal}<//>` },
    { id: "permission", name: "permission", cell: (row) => row.permission.toLowerCase() },
    { id: "operation", name: "operation", cell: (row) => row.operation.toLowerCase().replaceAll("_", " ") },
    { id: "resource", name: "resource", long: true, cell: (row) => html`${row.resource_type.toLowerCase()} <${Text} clip=${120}>${row.resource_name}<//>${row.pattern === "PREFIXED" ? "*" : ""}` },
    { id: "host", name: "host", cell: (row) => html`<${Text} clip=${60}>${row.host}<//>` },
    { id: "act", name: "", label: "change", cell: (row) => html`<${Action} name=${`delete ${aclKey(row)}`} label="Delete" right="administer" danger verb="Delete ACL" body=${() => ({ kind: "delete-acls", acls: [row] })} />` },
  ]} />`}<//>`;
}

export function Security() {
  const [{ tab = "users" }] = useQuery();
  const has = session.get().features.security;
  return html`<${Page} title="Users & ACLs" actions=${has && (tab === "users" ? html`<${NewUser} />` : html`<${NewAcl} />`)}>
    <${Tabs} tabs=${[["users", "Users"], ["acls", "ACLs"]]} />${tab === "users" ? html`<${Users} />` : html`<${Acls} />`}<//>`;
}
