// What waits, failed or was given up: messages, deliveries, and calls that wait for an approval.

import * as api from "../api.js";
import { html, useState } from "../lib.js";
import { may, refresh, useResource } from "../store.js";
import { address } from "../route.js";
import { ActionButton, ConfirmDialog, Empty, Loaded, Status, ViewHead } from "../ui.js";
import { Icon } from "../icons.js";
import { dateTime, relative } from "../format.js";
import { t, wordText } from "../i18n.js";
import { ApprovalCard } from "../chat/cards.js";

const TONES = { dead: "bad", unknown: "warn", waiting: "warn", pending: "", sending: "", queued: "", running: "ok" };
const RETRIABLE = ["dead", "failed", "waiting", "unknown"];

export function QueueView() {
  const queue = useResource("/api/queue", ["queue"]);
  const approvals = useResource("/api/approvals", ["approvals"]);
  const waiting = approvals.data ?? [];
  const retryAll = async () => {
    await api.post(`/api/queue/retry?outcomes=${RETRIABLE.join(",")}`);
    refresh(["queue"]);
  };
  return html`<div class="view">
    <${ViewHead} title=${t("queue")}>${queue.data?.length > 0 && may("change") && html`<${ActionButton} icon="retry" onAct=${retryAll}>${t("queue.retryAll")}<//>`}<//>
    ${
      waiting.length > 0 &&
      html`<section class="group"><h2 class="group-title">${t("queue.approvals")}</h2>${waiting.map(
        (approval) =>
          html`<div key=${approval.id}><a class="card-session" href=${address("chat", approval.session)}>${approval.shown.session}</a>
            <${ApprovalCard} approval=${approval} /></div>`,
      )}</section>`
    }
    <${Loaded} resource=${queue}>${(list) =>
      list.length === 0 && waiting.length === 0
        ? html`<${Empty} icon="queue" title=${t("queue.none")}>${t("queue.none.hint")}<//>`
        : html`<${Groups} list=${list} />`}<//>
  </div>`;
}

function Groups({ list }) {
  const dead = list.filter((entry) => entry.state === "dead" || entry.state === "unknown");
  const waiting = list.filter((entry) => !dead.includes(entry));
  return [
    ["queue.dead", dead],
    ["queue.waiting", waiting],
  ].map(
    ([title, entries]) =>
      entries.length > 0 &&
      html`<section class="group" key=${title}><h2 class="group-title">${t(title)}</h2>
        <ul class="rows">${entries.map((entry) => html`<${Entry} key=${entry.id} entry=${entry} />`)}</ul></section>`,
  );
}

function Entry({ entry }) {
  const [isAsking, setIsAsking] = useState(false);
  const since = entry.received_at ?? entry.created_at;
  const retry = async () => {
    const { asked_again: isAsked } = await api.post(`/api/queue/${entry.id}/retry`);
    if (isAsked === false) throw new Error(t("queue.retry.person"));
    refresh(["queue"]);
  };
  const drop = async () => {
    await api.remove(`/api/queue/${entry.id}`);
    refresh(["queue"]);
  };
  return html`<li class="row">
    <div class="row-main">
      <p class="row-title">${entry.kind === "outbound" ? t("queue.delivery", { channel: entry.channel }) : t("queue.message", { channel: entry.channel })} <${Status} tone=${TONES[entry.state]}>${wordText("queue.state", entry.state)}<//>
        </p>
      <p class="row-text">${entry.content}</p>
      ${entry.last_error && html`<p class="error-text">${entry.last_error}</p>`}
      <p class="row-facts">
        ${since && html`<time datetime=${since} title=${dateTime(since)}>${relative(since)}</time>`}
        ${entry.tries > 0 && html`<span>${t("queue.tries", { count: entry.tries })}</span>`}
        ${entry.next_at && html`<span>${t("queue.next", { when: relative(entry.next_at) })}</span>`}
        ${entry.turn && html`<a href=${address("turn", entry.turn)}>${t("turn.timeline")}</a>`}
      </p>
    </div>
    ${
      may("change") &&
      html`<div class="row-actions">
      <${ActionButton} class="quiet" icon="retry" onAct=${retry}>${t("retry")}<//>
      <button type="button" class="button quiet danger-text" onClick=${() => setIsAsking(true)}><${Icon} name="trash" size=${16} />${t("queue.drop")}</button>
    </div>`
    }
    ${
      isAsking &&
      html`<${ConfirmDialog} title=${t("queue.drop.title")} action=${t("queue.drop")} onConfirm=${drop} onClose=${() => setIsAsking(false)}><p>${t("queue.drop.hint")}</p>
      <//>`
    }
  </li>`;
}
