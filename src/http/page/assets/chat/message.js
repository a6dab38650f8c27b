// One turn of a conversation: what the person wrote, how the agent worked, and its answer.

import * as api from "../api.js";
import { may } from "../store.js";
import { html, memo, useState } from "../lib.js";
import { address, navigate } from "../route.js";
import { ActionButton, CopyButton, errorText } from "../ui.js";
import { Icon } from "../icons.js";
import { Markdown } from "../markdown.js";
import { bytes, compact, dateTime, span, time } from "../format.js";
import { t } from "../i18n.js";
import { AnsweredQuestion, ApprovalCard, QuestionCard } from "./cards.js";
import { waitsForGateway } from "./conversations.js";
import { ToolRow } from "./tools.js";
import { isOpen, openQuestion } from "./turns.js";

/**
 * @param {object} props
 * @param {import("./turns.js").Turn} props.turn
 * @param {any[]} props.approvals those that this turn waits for
 * @param {boolean} props.isLast whether the turn can be tried again
 * @param {string | null} props.summary the summary of what is above, where older text was consolidated
 * @param {{answer: (text: string, shown: string) => Promise<void>, retry: (turn: any) => Promise<void>, resend: (turn: any) => void, takeBack: (turn: any) => void}} props.actions
 */
function Turn({ turn, approvals, isLast, actions, summary }) {
  const isStreaming = turn.state === "running";
  const lastAt = turn.parts.length - 1;
  return html`${summary !== null && html`<${SummaryMark} text=${summary} />`}
  <article class="turn" aria-label=${t("turn.label")} aria-busy=${isOpen(turn)}>
    ${turn.users.map((user, at) => html`<${UserMessage} key=${at} user=${user} turn=${turn} actions=${actions} />`)}
    ${turn.job && html`<a class="job-link" href=${address("jobs", turn.job.id)}><${Icon} name="jobs" size=${16} />${turn.job.name}</a>`}
    <div class="answer">
      ${turn.parts.map((part, at) => html`<${Part} key=${at} part=${part} turn=${turn} isLast=${isStreaming && at === lastAt} hasApproval=${approvals.some((approval) => approval.tool === part.name)} actions=${actions} />`)}
      ${approvals.map((approval) => html`<${ApprovalCard} key=${approval.id} approval=${approval} />`)}
      <${Progress} turn=${turn} isAsked=${approvals.length > 0 || openQuestion([turn]) !== null} />
      ${turn.state === "error" && html`<div class="turn-error" role="alert"><${Icon} name="warn" size=${16} /><span>${turn.error}</span></div>`}
      <${TurnFoot} turn=${turn} isLast=${isLast} actions=${actions} />
    </div>
  </article>`;
}

const isSameList = (one, other) => one.length === other.length && one.every((item, at) => item === other[at]);

/** While an answer streams, the turns before it stay as they are. */
export const TurnView = memo(
  Turn,
  (one, other) =>
    one.turn === other.turn &&
    one.summary === other.summary &&
    one.isLast === other.isLast &&
    one.actions === other.actions &&
    isSameList(one.approvals, other.approvals),
);

function UserMessage({ user, turn, actions }) {
  const isFailed = turn.state === "failed";
  const failure = isFailed && (waitsForGateway(turn) ? t("send.waits") : t("send.failed", { reason: errorText(turn.cause) }));
  return html`<div class=${`user ${turn.state === "sending" ? "sending" : ""}`}>
    <h3 class="visually-hidden">${t("you")}</h3>
    <div class="user-text" dir="auto">${user.text}</div>
    <${Attachments} files=${user.attachments} />
    ${
      isFailed
        ? html`<div class="send-failed" role="alert"><span>${failure}</span>
          <button type="button" class="button small" onClick=${() => actions.resend(turn)}>${t("send.again")}</button>
          <button type="button" class="button small" onClick=${() => actions.takeBack(turn)}>${t("edit")}</button></div>`
        : html`<div class="user-foot">${user.at && html`<time title=${dateTime(user.at)}>${time(user.at)}</time>`}<${CopyButton} text=${user.text} />
          </div>`
    }
  </div>`;
}

function Attachments({ files }) {
  if (files.length === 0) return null;
  return html`<ul class="attachments">${files.map((file) => {
    const path = `/api/files/${api.segment(file.id)}`;
    if (/^image\/(png|jpeg|gif|webp|avif)$/.test(file.mime)) {
      return html`<li><a href=${path} target="_blank" rel="noopener"><img class="thumbnail" src=${path} alt=${file.name} width="160" height="120" loading="lazy" />
        </a></li>`;
    }
    return html`<li><a class="file-chip" href=${path} download=${file.name}><${Icon} name="file" size=${16} />
      <span>${file.name}</span><small>${bytes(file.size)}</small></a></li>`;
  })}</ul>`;
}

function Part({ part, turn, isLast, hasApproval, actions }) {
  if (part.kind === "thinking") return html`<${ThinkingRow} part=${part} isRunning=${isLast} />`;
  if (part.kind === "files") return html`<${Attachments} files=${part.files} />`;
  if (part.kind === "notice") return html`<p class="progress">${part.text}</p>`;
  if (part.kind === "text") return html`<${Markdown} text=${part.text} isStreaming=${isLast} />`;
  const isWaiting = part.result === null && isOpen(turn);
  if (part.name === "ask_user" && part.isComplete && isWaiting) {
    return html`<${QuestionCard} call=${part} isCurrent=${openQuestion([turn])?.call.id === part.id} onAnswer=${actions.answer} />`;
  }
  if (part.name === "ask_user" && part.result !== null && part.success) return html`<${AnsweredQuestion} call=${part} />`;
  return html`<${ToolRow} call=${part} isRunning=${isWaiting} hasApproval=${hasApproval && isWaiting} />`;
}

function ThinkingRow({ part, isRunning }) {
  const [isShown, setIsShown] = useState(false);
  const label = isRunning
    ? t("thinking.now")
    : part.begun && part.ended
      ? t("thinking.for", { span: span(part.ended - part.begun) })
      : t("thinking.done");
  return html`<div class="thinking">
    <button type="button" class=${`thinking-head ${isRunning ? "pulse" : ""}`} aria-expanded=${isShown} onClick=${() => setIsShown(!isShown)}>${label}<${Icon} name=${isShown ? "down" : "right"} size=${14} />
      </button>
    ${isShown && html`<div class="thinking-text" dir="auto">${part.text}</div>`}
  </div>`;
}

/** What happens while there is nothing to read yet. */
function Progress({ turn, isAsked }) {
  if (isAsked) return null;
  if (turn.state === "sending" || turn.state === "queued") return html`<p class="progress">${t(`turn.${turn.state}`)}</p>`;
  if (turn.state === "waiting") return html`<p class="progress"><${Icon} name="hand" size=${16} />${t("turn.waiting")}</p>`;
  const last = turn.parts.at(-1);
  const isIdle = turn.state === "running" && (!last || (last.kind === "tool" && last.result !== null));
  return isIdle
    ? html`<p class="progress"><span class="typing" aria-hidden="true"><i></i><i></i><i></i></span>
      <span class="visually-hidden">${t("turn.running")}</span></p>`
    : null;
}

function TurnFoot({ turn, isLast, actions }) {
  if (isOpen(turn) || turn.state === "failed") return html`<div class="turn-foot"></div>`;
  const answer = turn.parts
    .filter((part) => part.kind === "text")
    .map((part) => part.text)
    .join("\n\n");
  const { input, output, cached } = turn.usage;
  const facts = [
    turn.duration !== null && span(turn.duration),
    input + output > 0 &&
      t(cached > 0 ? "turn.tokens.cached" : "turn.tokens", { tokens: compact(input + output), cached: compact(cached) }),
    turn.cost,
  ].filter(Boolean);
  const hasPoint = !turn.isLocal && !turn.isExtra;
  const canChange = hasPoint && may("change");
  const fork = async () => {
    const { session } = await api.post(`/api/turns/${turn.id}/fork`);
    navigate("chat", session);
  };
  return html`<div class="turn-foot">
    ${hasPoint && html`<a class="turn-facts" href=${address("turn", turn.id)} title=${t("turn.timeline")}><${Icon} name="timeline" size=${14} />${facts.length > 0 ? facts.join(" · ") : t("turn.timeline")}</a>`}
    <span class="turn-actions">
      ${answer && html`<${CopyButton} text=${answer} />`}
      ${isLast && turn.users.length > 0 && canChange && html`<${ActionButton} class="quiet" icon="retry" onAct=${() => actions.retry(turn)}>${t("retry.answer")}<//>`}
      ${canChange && html`<${ActionButton} class="quiet" icon="fork" onAct=${fork}>${t("fork")}<//>`}
    </span>
  </div>`;
}

/** Where older text was consolidated: the model reads a summary of what is above. */
export function SummaryMark({ text }) {
  const [isShown, setIsShown] = useState(false);
  return html`<div class="summary-mark">
    <button type="button" aria-expanded=${isShown} onClick=${() => setIsShown(!isShown)}>${t("chat.summary")}<${Icon} name=${isShown ? "down" : "right"} size=${14} />
      </button>
    ${isShown && html`<p>${text}</p>`}
  </div>`;
}
