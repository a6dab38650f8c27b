// A tool call as one row that opens to its arguments and its result.

import { html, useState } from "../lib.js";
import { CopyButton } from "../ui.js";
import { Icon } from "../icons.js";
import { highlight } from "../highlight.js";
import { span } from "../format.js";
import { t } from "../i18n.js";

/** Longer results are cut until the reader asks for all. In characters. */
const RESULT_LIMIT = 20_000;
const SUMMARY_LIMIT = 200;

/** Arguments that say most about a call, in this order. */
const TELLING = ["command", "path", "url", "query", "pattern", "question", "content", "message", "task", "name", "action"];

/** Returns the arguments of a call in one line. */
export function summary(args) {
  if (args === null || args === undefined) return "";
  if (typeof args !== "object") return String(args).slice(0, SUMMARY_LIMIT);
  const key = TELLING.find((name) => typeof args[name] === "string" && args[name] !== "");
  const text = key ? args[key] : Object.keys(args).length > 0 ? JSON.stringify(args) : "";
  return text.slice(0, SUMMARY_LIMIT).replace(/\s+/g, " ");
}

/** Returns arguments as text to read. */
export function argumentsText(args) {
  return typeof args === "string" ? args : JSON.stringify(args ?? {}, null, 2);
}

const STATES = {
  running: { className: "running", icon: null, label: "state.running" },
  approval: { className: "warn", icon: "hand", label: "state.approval" },
  ok: { className: "ok", icon: "check", label: "state.ok" },
  failed: { className: "bad", icon: "cross", label: "state.failed" },
  none: { className: "", icon: "stop", label: "state.none" },
};

function stateOf(call, isRunning, hasApproval) {
  if (hasApproval) return STATES.approval;
  if (call.result === null) return isRunning ? STATES.running : STATES.none;
  return call.success === false ? STATES.failed : STATES.ok;
}

/**
 * @param {{call: import("./turns.js").ToolCall, isRunning: boolean, hasApproval: boolean}} props
 */
export function ToolRow({ call, isRunning, hasApproval }) {
  const [isOpen, setIsOpen] = useState(false);
  const state = stateOf(call, isRunning, hasApproval);
  return html`<div class=${`tool ${isOpen ? "open" : ""}`}>
    <button type="button" class="tool-head" aria-expanded=${isOpen} onClick=${() => setIsOpen(!isOpen)}>
      <span class=${`tool-state ${state.className}`} role="img" aria-label=${t(state.label)}>${state.icon ? html`<${Icon} name=${state.icon} size=${16} />` : html`<span class="spinner"></span>`}</span>
      <span class="tool-name">${call.name}</span>
      <span class="tool-summary">${summary(call.arguments)}</span>
      <span class="tool-time">${call.duration !== null ? span(call.duration) : ""}</span>
      <${Icon} name=${isOpen ? "down" : "right"} size=${14} />
    </button>
    ${
      isOpen &&
      html`<div class="tool-body">
      <${Section} title=${t("tool.arguments")} text=${argumentsText(call.arguments)} language="json" />
      ${call.result !== null && html`<${Section} title=${t("tool.result")} text=${call.result} language="" />`}
    </div>`
    }
  </div>`;
}

function Section({ title, text, language }) {
  const [isWhole, setIsWhole] = useState(false);
  const isCut = text.length > RESULT_LIMIT && !isWhole;
  const shown = isCut ? text.slice(0, RESULT_LIMIT) : text;
  return html`<section class="tool-section">
    <header><h4>${title}</h4><${CopyButton} text=${text} /></header>
    <pre tabindex="0" role="group" aria-label=${title}>${pieces(shown, language)}</pre>
    ${isCut && html`<button type="button" class="button small" onClick=${() => setIsWhole(true)}>${t("tool.all")}</button>`}
  </section>`;
}

const pieces = (text, language) =>
  highlight(text, language).map((piece) =>
    typeof piece === "string" ? piece : html`<span class=${`code-${piece.kind}`}>${piece.text}</span>`,
  );
