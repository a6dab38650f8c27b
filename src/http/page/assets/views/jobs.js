// Jobs: what runs when, by day; one job with its history; and the form that makes or changes one.

import * as api from "../api.js";
import { groupBy, html, useState } from "../lib.js";
import { may, refresh, useResource } from "../store.js";
import { address, navigate } from "../route.js";
import { ActionButton, ConfirmDialog, Empty, Loaded, Status, ViewHead } from "../ui.js";
import { Icon } from "../icons.js";
import { dateTime, dayName, relative, span, time } from "../format.js";
import { t, wordText } from "../i18n.js";
import { JobForm } from "./job_form.js";

export function JobsView({ id, more }) {
  if (id === "new") return html`<${JobForm} key="new" />`;
  if (id && more === "edit") return html`<${EditJob} key=${id} id=${id} />`;
  if (id) return html`<${JobPage} key=${id} id=${id} />`;
  return html`<${JobList} />`;
}

const change = (job, verb) => async () => {
  await api.post(`/api/cron/${api.segment(job.id)}/${verb}`);
  refresh(["cron"]);
};

function JobList() {
  const jobs = useResource("/api/cron", ["cron"]);
  return html`<div class="view">
    <${ViewHead} title=${t("jobs")}>${may("change") && html`<a class="button primary" href=${address("jobs", "new")}><${Icon} name="plus" size=${16} />${t("jobs.add")}</a>`}<//>
    <${Loaded} resource=${jobs}>${(list) => (list.length === 0 ? html`<${NoJobs} />` : html`<${JobDays} jobs=${list} />`)}<//>
  </div>`;
}

function NoJobs() {
  return html`<${Empty} icon="jobs" title=${t("jobs.none")}><p>${t("jobs.none.hint")}</p>${may("change") && html`<a class="button primary" href=${address("jobs", "new")}>${t("jobs.add")}</a>`}<//>`;
}

function JobDays({ jobs }) {
  const due = jobs.filter((job) => job.next_at).sort((one, other) => (one.next_at < other.next_at ? -1 : 1));
  const resting = jobs.filter((job) => !job.next_at);
  const days = groupBy(due, (job) => dayName(job.next_at));
  return html`${days.map(([day, list]) => html`<${JobGroup} key=${day} title=${day} jobs=${list} />`)}
    ${resting.length > 0 && html`<${JobGroup} title=${t("jobs.resting")} jobs=${resting} />`}`;
}

function JobGroup({ title, jobs }) {
  return html`<section class="group"><h2 class="group-title">${title}</h2>
    <ul class="rows">${jobs.map((job) => html`<${JobRow} key=${job.id} job=${job} />`)}</ul></section>`;
}

const TONES = { enabled: "ok", paused: "warn", disabled: "", unreadable: "bad" };
const OUTCOMES = { ok: "ok", error: "bad", missed: "warn", skipped: "", queued: "", started: "ok", running: "ok" };
const outcomeText = (run) => wordText("jobs.outcome", run.outcome);
const deliveryText = (run) => (run.delivery ? wordText("jobs.delivery", run.delivery) : "");

function JobRow({ job }) {
  return html`<li class="row">
    <span class="row-time">${job.next_at ? time(job.next_at) : "—"}</span>
    <div class="row-main">
      <a class="row-title" href=${address("jobs", job.id)}>${job.name}</a>
      <p class="row-text">${job.error ?? job.text}</p>
      <p class="row-facts"><span>${job.when}</span>${job.state !== "enabled" && html`<${Status} tone=${TONES[job.state]}>${t(`jobs.${job.state}`)}<//>`}
        ${job.last && html`<${Status} tone=${OUTCOMES[job.last.outcome]}>${t("jobs.last", { outcome: outcomeText(job.last), delivery: deliveryText(job.last) || "—" })}<//>`}</p>
    </div>
    <div class="row-actions"><${JobButtons} job=${job} /></div>
  </li>`;
}

function JobButtons({ job }) {
  if (job.state === "unreadable" || !may("change")) return null;
  return html`
    <${ActionButton} class="quiet" icon="play" onAct=${change(job, "run")}>${t("jobs.run")}<//>
    ${
      job.enabled
        ? html`<${ActionButton} class="quiet" icon="pause" onAct=${change(job, "disable")}>${t("jobs.pause")}<//>`
        : html`<${ActionButton} class="quiet" icon="play" onAct=${change(job, "enable")}>${t("jobs.resume")}<//>`
    }`;
}

function JobPage({ id }) {
  const job = useResource(`/api/cron/${api.segment(id)}`, ["cron"]);
  return html`<div class="view"><a class="back" href=${address("jobs")}><${Icon} name="left" size=${16} />${t("jobs")}</a>
    <${Loaded} resource=${job}>${(data) => html`<${JobDetails} job=${data} />`}<//></div>`;
}

function JobDetails({ job }) {
  const [isAsking, setIsAsking] = useState(false);
  const history = useResource(`/api/cron/${api.segment(job.id)}/history?limit=50`, ["cron"]);
  const remove = async () => {
    await api.remove(`/api/cron/${api.segment(job.id)}`);
    navigate("jobs");
    refresh(["cron"]);
  };
  const facts = [
    ["jobs.when", job.when],
    ["jobs.kind", t(`jobs.kind.${job.kind}`)],
    ["jobs.target", [job.channel, job.chat_id].filter(Boolean).join(" ")],
    ["jobs.deliver", t(`jobs.deliver.${job.deliver}`)],
    ["jobs.model", [job.agent, job.model].filter(Boolean).join(" · ")],
    ["jobs.paused", job.paused],
  ].filter(([, value]) => value);
  return html`
    <${ViewHead} title=${job.name}>
      <${JobButtons} job=${job} />
      ${
        may("change") &&
        html`<a class="button quiet" href=${address("jobs", job.id, "edit")}><${Icon} name="edit" size=${16} />${t("edit")}</a>
      <button type="button" class="button quiet danger-text" onClick=${() => setIsAsking(true)}><${Icon} name="trash" size=${16} />${t("delete")}</button>`
      }
    <//>
    <blockquote class="job-text">${job.text}</blockquote>
    <dl class="facts">${facts.map(([label, value]) => html`<div><dt>${t(label)}</dt><dd>${value}</dd></div>`)}</dl>
    ${
      job.upcoming?.length > 0 &&
      html`<section class="group"><h2 class="group-title">${t("jobs.next")}</h2>
      <ol class="times">${job.upcoming.map(
        (at) => html`<li><time datetime=${at}>${dateTime(at)}</time> <small>${relative(at)}</small>
      </li>`,
      )}</ol></section>`
    }
    <section class="group"><h2 class="group-title">${t("jobs.history")}</h2>
      <${Loaded} resource=${history}>${(runs) => (runs.length === 0 ? html`<p class="dim">${t("jobs.history.none")}</p>` : html`<${Runs} runs=${runs} />`)}<//>
    </section>
    ${
      isAsking &&
      html`<${ConfirmDialog} title=${t("jobs.delete")} action=${t("delete")} onConfirm=${remove} onClose=${() => setIsAsking(false)}><p>${t("jobs.delete.hint", { name: job.name })}</p>
      <//>`
    }`;
}

function Runs({ runs }) {
  const length = (run) => (run.started && run.ended ? span(new Date(run.ended) - new Date(run.started)) : "");
  return html`<div class="table-scroll" tabindex="0" role="group" aria-label=${t("jobs.history")}><table>
    <thead><tr><th>${t("jobs.due")}</th><th>${t("jobs.outcome")}</th><th>${t("jobs.delivery")}</th><th>${t("duration")}</th>
      <th>${t("tokens")}</th><th></th></tr></thead>
    <tbody>${runs.map(
      (run) => html`<tr>
      <td><time datetime=${run.due}>${dateTime(run.due)}</time></td>
      <td><${Status} tone=${OUTCOMES[run.outcome]}>${outcomeText(run)}<//>${run.reason && html` <small>${run.reason}</small>`}</td>
      <td>${deliveryText(run)}${run.delivery_error && html` <small>${run.delivery_error}</small>`}</td>
      <td>${length(run)}</td><td class="number">${run.tokens || ""}</td>
      <td>${run.turn && html`<a href=${address("turn", run.turn)}>${t("turn.timeline")}</a>`}</td>
    </tr>`,
    )}</tbody></table></div>`;
}

function EditJob({ id }) {
  const job = useResource(`/api/cron/${api.segment(id)}`);
  return html`<${Loaded} resource=${job}>${(data) => html`<${JobForm} job=${data} />`}<//>`;
}
