// The timeline of one turn: each step with its start, duration, tokens and share of the cached prefix.

import * as api from "../api.js";
import { html, useMemo, useState } from "../lib.js";
import { app, may, useResource } from "../store.js";
import { address, navigate } from "../route.js";
import { ActionButton, ConfirmDialog, CopyButton, Loaded, Status, ViewHead } from "../ui.js";
import { Icon } from "../icons.js";
import { compact, dateTime, number, percent, span } from "../format.js";
import { t, wordText } from "../i18n.js";
import { summary } from "../chat/tools.js";

export function TurnView({ id }) {
  const turn = useResource(`/api/turns/${api.segment(id)}`, ["turns"]);
  return html`<div class="view"><${Loaded} resource=${turn}>${(data) => html`<${Timeline} turn=${data} />`}<//></div>`;
}

/**
 * The steps with their times, in milliseconds. A step is stored when it ends, so its start is its end less what it took.
 * @returns {{steps: {kind: string, start: number, end: number, body: any, seq: number, at: string}[], start: number, end: number}}
 */
function timesOf(turn) {
  const received = turn.messages.map((message) => new Date(message.received_at).getTime());
  const steps = turn.steps.map(({ seq, kind, at, body }) => {
    const end = new Date(at).getTime();
    const took = body?.response?.latency_ms ?? body?.result?.duration_ms ?? 0;
    return { seq, kind, at, body, start: end - took, end };
  });
  const start = Math.min(...received, ...steps.map((step) => step.start));
  const end = Math.max(...steps.map((step) => step.end), start + 1);
  return { steps, start, end };
}

function Timeline({ turn }) {
  const { steps, start, end } = useMemo(() => timesOf(turn), [turn]);
  const used = turn.used ?? {};
  const facts = [
    ["turn.received", dateTime(start)],
    ["duration", span(end - start)],
    [
      "tokens",
      t("turn.tokens.value", { input: number(used.input ?? 0), cached: number(used.cached ?? 0), output: number(used.output ?? 0) }),
    ],
    ["cost", used.cost],
    ["cost.model", (used.by_model ?? []).map((one) => one.model).join(", ")],
    ["turn.sent", turn.outbox.map((sent) => `${sent.channel}: ${wordText("queue.state", sent.state)}`).join(", ")],
  ].filter(([, value]) => value);
  return html`
    <a class="back" href=${address("chat", turn.session)}><${Icon} name="left" size=${16} />${turn.session}</a>
    <${ViewHead} title=${t("turn.timeline")}><${TurnActions} turn=${turn} /><//>
    ${turn.messages.map((message) => html`<blockquote class="job-text">${message.content}</blockquote>`)}
    <dl class="facts">${facts.map(([label, value]) => html`<div><dt>${t(label)}</dt><dd>${value}</dd></div>`)}</dl>
    ${!turn.intact && html`<p><${Status} tone="bad">${t("turn.broken")}<//></p>`}
    <ol class="timeline">${steps.map((step) => html`<${Step} key=${step.seq} step=${step} start=${start} total=${end - start} />`)}</ol>`;
}

function TurnActions({ turn }) {
  const [isAsking, setIsAsking] = useState(false);
  const { restorable, reason } = turn.checkpoint;
  const fork = async () => navigate("chat", (await api.post(`/api/turns/${turn.turn}/fork`)).session);
  const restore = async () => {
    const { restored } = await api.post(`/api/turns/${turn.turn}/restore`);
    if (!restored) app.set({ notice: t("turn.restore.later") });
    navigate("chat", turn.session);
  };
  return html`
    <${CopyButton} text=${JSON.stringify(turn, null, 2)} label=${t("turn.copy")} />
    ${
      restorable && may("change")
        ? html`<${ActionButton} class="quiet" icon="fork" onAct=${fork}>${t("fork")}<//>
          <button type="button" class="button quiet" onClick=${() => setIsAsking(true)}><${Icon} name="history" size=${16} />${t("turn.restore")}</button>`
        : reason && html`<small class="dim">${reason}</small>`
    }
    ${
      isAsking &&
      html`<${ConfirmDialog} title=${t("turn.restore")} action=${t("turn.restore")} onConfirm=${restore} onClose=${() => setIsAsking(false)}><p>${t("turn.restore.hint")}</p>
      <//>`
    }`;
}

/** What a step says in one line, and its tone. */
function describe({ kind, body }) {
  if (kind === "response") {
    const { text, tool_calls: calls = [], model } = body.response ?? {};
    return { title: model ?? t("step.response"), text: text || calls.map((call) => call.name).join(", "), tone: "accent" };
  }
  if (kind === "tool_result") return { title: body.name, text: body.result?.content, tone: body.result?.success === false ? "bad" : "ok" };
  if (kind === "tool_started") return { title: body.name, text: summary(body.arguments), tone: "" };
  if (kind === "context") return { title: t("step.context"), text: body.user, tone: "" };
  return { title: t("step.note"), text: typeof body === "string" ? body : (body.note ?? body.text ?? ""), tone: "" };
}

function Step({ step, start, total }) {
  const [isOpen, setIsOpen] = useState(false);
  const { title, text, tone } = describe(step);
  const usage = step.body?.response?.usage;
  const share = usage?.input_tokens ? usage.cached_tokens / usage.input_tokens : null;
  const left = ((step.start - start) / total) * 100;
  const width = Math.max(((step.end - step.start) / total) * 100, 0.5);
  return html`<li class="step">
    <button type="button" class="step-head" aria-expanded=${isOpen} onClick=${() => setIsOpen(!isOpen)}>
      <span class="step-title"><${Icon} name=${isOpen ? "down" : "right"} size=${14} />
        <span class="step-kind">${t(`step.${step.kind}`)}</span>${title !== t(`step.${step.kind}`) && html`<strong>${title}</strong>`}</span>
      <span class="step-text">${(text ?? "").slice(0, 200)}</span>
      <span class="step-facts"><span>+${span(step.start - start)}</span><span>${step.end > step.start ? span(step.end - step.start) : ""}</span>
        ${usage && html`<span>${t("step.tokens", { input: compact(usage.input_tokens), output: compact(usage.output_tokens) })}</span>`}
        ${share !== null && html`<span>${t("step.prefix", { share: percent(share) })}</span>`}</span>
    </button>
    <svg class="step-bar" viewBox="0 0 100 4" preserveAspectRatio="none" aria-hidden="true"><rect class=${`fill ${tone}`} x=${Math.min(left, 99.5)} y="0" width=${Math.min(width, 100 - Math.min(left, 99.5))} height="4" />
      </svg>
    ${isOpen && html`<pre class="step-body" tabindex="0" role="group" aria-label=${title}>${JSON.stringify(step.body, null, 2)}</pre>`}
  </li>`;
}
