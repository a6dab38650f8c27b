// The state of the gateway's parts, with tests; the doctor; and the configuration with where each value comes from.

import * as api from "../api.js";
import { html, useState } from "../lib.js";
import { may, useResource } from "../store.js";
import { address } from "../route.js";
import { Empty, ErrorNote, Loaded, Status, Tabs, ViewHead } from "../ui.js";
import { Icon, channelIcon } from "../icons.js";
import { bytes, compact, relative, span } from "../format.js";
import { t, wordText } from "../i18n.js";
import { Configuration } from "./configuration.js";
import { Log } from "./log.js";
import { Tokens } from "./tokens.js";

const TABS = {
  overview: Overview,
  channels: Channels,
  models: Models,
  mcp: McpServers,
  skills: Skills,
  agents: Agents,
  doctor: Doctor,
  log: Log,
  tokens: Tokens,
  configuration: Configuration,
};

/** Checks start programs, and the log, the tokens and the configuration are the owner's. */
const OWNER_TABS = ["doctor", "log", "tokens", "configuration"];

export function SystemView({ id }) {
  const names = Object.keys(TABS).filter((name) => may("change") || !OWNER_TABS.includes(name));
  const current = names.includes(id) ? id : "overview";
  const Tab = TABS[current];
  const tabs = names.map((name) => ({ id: name, name: t(`system.${name}`), href: address("system", name) }));
  return html`<div class="view"><${ViewHead} title=${t("system")} />
    <${Tabs} label=${t("system")} tabs=${tabs} current=${current} /><${Tab} key=${current} /></div>`;
}

function Overview() {
  const status = useResource("/api/status", ["queue", "channels", "config"]);
  return html`<${Loaded} resource=${status}>${(data) => html`<${StatusPage} status=${data} />`}<//>`;
}

function StatusPage({ status }) {
  const {
    version,
    uptime,
    listen,
    model,
    home,
    database,
    queues,
    memory,
    today,
    sandbox,
    failures = [],
    restart_needed: restart = [],
  } = status;
  const facts = [
    ["system.version", version],
    ["system.uptime", uptime],
    ["system.listen", listen],
    ["system.model", model],
    ["system.home", home],
    ["system.database", database && bytes(database.size + database.wal)],
    ["system.queues", queues && t("system.queues.value", { running: queues.running, waiting: queues.inbound + queues.outbound })],
    ["system.memory", memory && memoryText(memory)],
    ["system.sandbox", sandbox?.in_force],
    [
      "system.today",
      today && t("system.today.value", { turns: today.turns, tokens: compact(today.input + today.output), cost: today.cost ?? "—" }),
    ],
  ].filter(([, value]) => value);
  return html`
    <p class="health"><${Status} tone=${status.ready ? "ok" : "bad"}>${t(status.ready ? "system.ready" : "system.notReady")}<//>
      ${restart.length > 0 && html`<${Status} tone="warn">${t("system.restart", { keys: restart.join(", ") })}<//>`}</p>
    <dl class="facts">${facts.map(([label, value]) => html`<div><dt>${t(label)}</dt><dd>${value}</dd></div>`)}</dl>
    ${
      failures.length > 0 &&
      html`<section class="group"><h2 class="group-title">${t("system.failures")}</h2>
      <ul class="rows">${failures.map(
        ({ provider, error }) => html`<li class="row"><p class="row-text">${provider}: ${error}</p>
      </li>`,
      )}</ul></section>`
    }`;
}

const memoryText = ({ enabled, known }) => (enabled ? t("system.memory.value", { count: known }) : t("off"));

/** A part with its state, and a button that tests it. */
function PartRow({ icon, name, tone, state, facts = [], error, test }) {
  return html`<li class="row part">
    <${Icon} name=${icon} />
    <div class="row-main">
      <p class="row-title">${name} <${Status} tone=${tone}>${state}<//></p>
      <p class="row-facts">${facts.filter(Boolean).map((fact) => html`<span>${fact}</span>`)}</p>
      ${error && html`<p class="error-text">${error}</p>`}
      ${test && may("change") && html`<${Test} path=${test} />`}
    </div>
  </li>`;
}

/** Runs a test, and shows what it found. */
function Test({ path }) {
  const [state, setState] = useState({ busy: false });
  const run = async () => {
    setState({ busy: true });
    try {
      setState({ busy: false, result: await api.get(path) });
    } catch (error) {
      setState({ busy: false, error });
    }
  };
  const { result, error, busy } = state;
  return html`<div class="test">
    <button type="button" class="button small" disabled=${busy} aria-busy=${busy} onClick=${run}>${busy ? html`<span class="spinner"></span>` : html`<${Icon} name="play" size=${14} />`}${t("test")}</button>
    <div role="status">${error && html`<${ErrorNote} error=${error} />`}
      ${result?.checks && html`<${Findings} list=${result.checks} />`}
      ${result && !result.checks && html`<${TestResult} result=${result} />`}</div>
  </div>`;
}

function TestResult({ result }) {
  if (result.providers) {
    const asked = result.providers.filter((provider) => provider.answers !== null);
    return html`<ul class="findings">${asked.map(
      (
        provider,
      ) => html`<li><${Status} tone=${provider.answers ? "ok" : "bad"}>${provider.answers ? t("system.answers") : (provider.error ?? provider.call_error)}<//>
      </li>`,
    )}</ul>`;
  }
  return html`<p><${Status} tone="ok">${t("system.mcp.tested", { tools: result.available, span: span(result.took_ms) })}<//></p>`;
}

const STATES = { running: "ok", ok: "ok", idle: "ok", stopped: "", disabled: "", failed: "bad", error: "bad" };
const tone = (state) => STATES[state] ?? "warn";

function Parts({ resource, rows, none, hint, icon }) {
  return html`<${Loaded} resource=${resource}>${(data) => {
    const list = rows(data);
    return list.length === 0
      ? html`<${Empty} icon=${icon} title=${t(none)}>${t(hint)}<//>`
      : html`<ul class="rows">${list.map((part) => html`<${PartRow} key=${part.name} ...${part} />`)}</ul>`;
  }}<//>`;
}

function Channels() {
  const rows = (list) =>
    list.map((channel) => ({
      icon: channelIcon(channel.kind),
      name: channel.name,
      tone: channel.enabled ? tone(channel.state) : "",
      state: wordText("system.state", channel.state),
      error: channel.error,
      facts: [
        channel.kind,
        channel.note,
        channel.queued > 0 && t("system.queued", { count: channel.queued }),
        channel.allow_from && t("system.allowed", { who: [channel.allow_from].flat().join(", ") }),
      ],
      test: `/api/channels/${api.segment(channel.name)}/test`,
    }));
  return html`<${Parts} resource=${useResource("/api/channels", ["channels"])} rows=${rows} icon="link" none="system.channels.none" hint="system.channels.hint" />`;
}

function Models() {
  const [isAll, setIsAll] = useState(false);
  const models = useResource("/api/models", ["config"]);
  const isUsable = (provider) => provider.in_use || provider.configured || provider.key;
  const rows = ({ providers }) =>
    providers
      .filter((provider) => isAll || isUsable(provider))
      .map((provider) => ({
        icon: "system",
        name: provider.name,
        tone: provider.error || provider.call_error ? "bad" : isUsable(provider) ? "ok" : "",
        state: t(
          provider.in_use
            ? "system.model.used"
            : isUsable(provider)
              ? "system.model.ready"
              : provider.needs_key
                ? "system.model.noKey"
                : "system.model.notFound",
        ),
        error: provider.error ?? provider.call_error ?? provider.last_failure,
        facts: [
          provider.model,
          provider.base_url,
          provider.key_from && t("system.model.key", { source: provider.key_from }),
          provider.context_tokens && t("system.model.context", { tokens: compact(provider.context_tokens) }),
          !isUsable(provider) && provider.key_variables?.join(", "),
        ],
        test: isUsable(provider) && provider.base_url ? `/api/models?ask=${api.segment(provider.name)}` : null,
      }));
  return html`<${Parts} resource=${models} rows=${rows} icon="system" none="system.models.none" hint="system.models.hint" />
    <button type="button" class="button quiet" aria-pressed=${isAll} onClick=${() => setIsAll(!isAll)}>${t(isAll ? "system.models.used" : "system.models.all")}</button>`;
}

function McpServers() {
  const rows = (list) =>
    list.map((server) => ({
      icon: "plug",
      name: server.title ?? server.name,
      tone: tone(server.state),
      state: wordText("system.state", server.state),
      error: server.last_error ?? server.problems?.join("; "),
      facts: [
        server.name,
        server.transport,
        server.tools !== undefined && t("system.mcp.tools", { count: server.tools }),
        server.trusted && t("system.mcp.trusted"),
        server.listed_at && relative(server.listed_at),
      ],
      test: server.enabled ? `/api/mcp/${api.segment(server.name)}/test` : null,
    }));
  return html`<${Parts} resource=${useResource("/api/mcp", ["mcp", "config"])} rows=${rows} icon="plug" none="system.mcp.none" hint="system.mcp.hint" />`;
}

function Skills() {
  const rows = ({ skills, problems }) => [
    ...skills.map((skill) => ({
      icon: "file",
      name: skill.name,
      tone: skill.available ? "ok" : "",
      state: t(skill.available ? "system.available" : "system.unavailable"),
      error: skill.reason,
      facts: [skill.description, wordText("system.source", skill.source)],
    })),
    ...problems.map(problemRow),
  ];
  return html`<${Parts} resource=${useResource("/api/skills", ["skills"])} rows=${rows} icon="file" none="system.skills.none" hint="system.skills.hint" />`;
}

function Agents() {
  const rows = ({ agents, problems }) => [
    ...agents.map((agent) => ({
      icon: "chat",
      name: agent.name,
      tone: "ok",
      state: wordText("system.source", agent.source),
      facts: [
        agent.description,
        agent.model,
        t("system.agent.tools", { count: wordText("system.agent.tools", agent.tool_count) }),
        t("system.agent.memory", { memory: wordText("system.agent.memory", agent.memory) }),
      ],
    })),
    ...problems.map(problemRow),
  ];
  return html`<${Parts} resource=${useResource("/api/agents", ["agents", "config"])} rows=${rows} icon="chat" none="system.agents.none" hint="system.agents.hint" />`;
}

function problemRow(problem) {
  const text = typeof problem === "string" ? problem : (problem.message ?? problem.error ?? JSON.stringify(problem));
  return { icon: "warn", name: problem.name ?? problem.path ?? t("problem"), tone: "bad", state: t("problem"), error: text };
}

const FINDING_TONES = { ok: "ok", warn: "warn", fail: "bad" };

function Findings({ list }) {
  return html`<ul class="findings">${list.map(
    (finding) => html`<li><${Status} tone=${FINDING_TONES[finding.state] ?? "warn"}><strong>${finding.name}</strong>
    <//><span>${finding.message}</span>${finding.mend && html`<small>${finding.mend}</small>`}</li>`,
  )}</ul>`;
}

function Doctor() {
  const checks = useResource("/api/checks");
  const order = ["fail", "warn", "ok"];
  return html`<${Loaded} resource=${checks}>${(list) => html`<${Findings} list=${list.toSorted((one, other) => order.indexOf(one.state) - order.indexOf(other.state))} />`}<//>
    <button type="button" class="button" disabled=${checks.loading} onClick=${checks.reload}><${Icon} name="retry" size=${16} />${t("system.doctor.again")}</button>`;
}
