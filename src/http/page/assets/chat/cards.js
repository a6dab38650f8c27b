// What the agent waits for: an approval of a call, or the answer to a question.

import * as api from "../api.js";
import { html, useEffect, useRef, useState } from "../lib.js";
import { app, may, refresh } from "../store.js";
import { ActionButton } from "../ui.js";
import { Icon } from "../icons.js";
import { relative } from "../format.js";
import { t } from "../i18n.js";

/** Returns true if the focus may be moved: nobody is writing. */
function isIdle() {
  const active = document.activeElement;
  return !active || active === document.body || (active.id === "composer" && active.value === "");
}

/** Asks the owner whether a call may run: what, with exactly which arguments, and why it is asked. */
export function ApprovalCard({ approval }) {
  const card = useRef(null);
  const { id, tool, expires, shown } = approval;
  useEffect(() => {
    // The safe answer has the focus.
    if (isIdle()) card.current.querySelector(".deny")?.focus({ preventScroll: true });
  }, [id]);
  const answer = (path) => async () => {
    try {
      await api.post(`/api/approvals/${api.segment(id)}/${path}`);
    } catch (error) {
      if (error.status !== 404) throw error;
      // The card goes away with the call, and the reader must not believe that this answer counted.
      app.set({ notice: t("approval.late") });
    }
    refresh(["approvals"]);
  };
  return html`<section class="card approval" ref=${card} role="group" aria-labelledby=${`approval-${id}`}>
    <h3 id=${`approval-${id}`}><${Icon} name="hand" size=${18} />${t("approval.title", { tool })}</h3>
    <pre tabindex="0" role="group" aria-label=${t("tool.arguments")}>${shown.arguments}</pre>
    <p class="card-why">${shown.taint.length > 0 ? t("approval.why") : t("approval.rule")}</p>
    ${shown.taint.length > 0 && html`<ul class="sources">${shown.taint.map((source) => html`<li>${source}</li>`)}</ul>`}
    ${
      may("change") &&
      html`<div class="card-actions">
      <${ActionButton} class="primary" onAct=${answer("approve")}>${t("approval.once")}<//>
      <${ActionButton} onAct=${answer("approve?session=true")}>${t("approval.session")}<//>
      <${ActionButton} class="deny danger" onAct=${answer("deny")}>${t("approval.deny")}<//>
      <small>${t("approval.expires", { when: relative(expires) })}</small>
    </div>`
    }
  </section>`;
}

/** What is sent for an option. The gateway reads a number as the place of an option, also if an option is a number. */
const answerFor = (option, at) => (/^\s*\p{Nd}/u.test(option) ? String(at + 1) : option);

/**
 * A question of the agent; its options are buttons, and any other answer is written below.
 * @param {{call: import("./turns.js").ToolCall, isCurrent: boolean, onAnswer: (text: string, shown: string) => Promise<void>}} props
 * `isCurrent`: the gateway takes the next answer for this question
 */
export function QuestionCard({ call, isCurrent, onAnswer }) {
  const [answer, setAnswer] = useState(null);
  const [error, setError] = useState(null);
  const { question = "", options } = call.arguments ?? {};
  const sent = call.answer ?? answer;
  const send = async (option, at) => {
    setAnswer(option);
    setError(null);
    try {
      await onAnswer(answerFor(option, at), option);
    } catch (caught) {
      setAnswer(null);
      setError(caught);
    }
  };
  return html`<section class="card question" role="group" aria-label=${t("question.title")}>
    <h3>${question}</h3>
    ${
      Array.isArray(options) &&
      // A model may give numbers.
      html`<div class="card-actions">${options.map(String).map(
        (option, at) =>
          html`<button type="button" class=${`button ${sent === option ? "chosen" : ""}`} disabled=${Boolean(sent) || !isCurrent} aria-pressed=${sent === option} onClick=${() => send(option, at)}>${option}</button>`,
      )}</div>`
    }
    <small>${sent ? t("question.given", { answer: sent }) : t(isCurrent ? "question.hint" : "question.later")}</small>
    ${error && html`<p class="error-text" role="alert">${error.message}</p>`}
  </section>`;
}

/** A question with the answer that it got. */
export function AnsweredQuestion({ call }) {
  return html`<div class="asked"><p>${call.arguments?.question ?? ""}</p><p class="user-text">${call.answer ?? call.result}</p></div>`;
}
