// Makes a job, in words or by fields, or changes one. The next times are shown before it is saved.

import * as api from "../api.js";
import { html, useEffect, useState } from "../lib.js";
import { refresh, useResource } from "../store.js";
import { address, navigate } from "../route.js";
import { ActionButton, SelectField, TextField, ViewHead, errorText } from "../ui.js";
import { Icon } from "../icons.js";
import { dateTime, relative } from "../format.js";
import { t } from "../i18n.js";

/** The preview is asked for after this silence, in milliseconds. */
const DELAY = 400;
const SCHEDULES = ["at", "every", "cron"];
const DELIVERIES = ["always", "on_change", "when_asked"];
const MISFIRES = ["once", "all", "skip"];

/** Where the page gets what jobs send: a chat of its own. */
const HERE = { channel: "page", chat_id: "jobs" };

/** What the form shows of a job. */
function fieldsOf(job) {
  const schedule = SCHEDULES.find((name) => (job.schedule ?? job)[name]) ?? "at";
  const source = job.schedule ?? job;
  const kind = job.kind ?? (job.prompt ? "prompt" : "message");
  return {
    name: job.name ?? "",
    kind,
    text: job.text ?? job.message ?? job.prompt ?? "",
    schedule,
    when: source[schedule] ?? "",
    tz: source.tz ?? "",
    channel: job.channel ?? HERE.channel,
    chat: job.chat_id ?? (job.channel ? "" : HERE.chat_id),
    deliver: job.deliver ?? "always",
    misfire: job.misfire ?? "once",
  };
}

/** Fields that go with one kind of job, or one kind of schedule, alone. */
const BELONGS = { anchor: "every", tz: "every", keep: "at", session: "prompt", model: "prompt", agent: "prompt" };

/** What the gateway takes for the times. */
function scheduleOf({ schedule, when, tz }) {
  return { [schedule]: when.trim(), ...(schedule !== "every" && { tz: tz.trim() }) };
}

/** What the gateway takes; an empty text is the default. `rest` are fields of the job that the form does not show. */
function jobOf(fields, rest) {
  const fits = ([name]) => !(name in BELONGS) || [fields.kind, fields.schedule].includes(BELONGS[name]);
  return {
    ...Object.fromEntries(Object.entries(rest).filter(fits)),
    ...(fields.name.trim() && { name: fields.name.trim() }),
    [fields.kind]: fields.text.trim(),
    ...scheduleOf(fields),
    channel: fields.channel,
    chat_id: fields.chat.trim(),
    ...(fields.kind === "prompt" && { deliver: fields.deliver }),
    misfire: fields.misfire,
  };
}

/** What the form shows of a job that was made from words, by the names of the gateway. */
const SHOWN_FIELDS = ["name", "prompt", "message", ...SCHEDULES, "tz", "channel", "chat_id", "deliver", "misfire"];

/** The fields of an existing job that the form leaves as they are. */
function restOf(job) {
  if (!job) return {};
  const fields = Object.fromEntries(["model", "agent", "stale_after", "jitter"].filter((key) => job[key]).map((key) => [key, job[key]]));
  // A job without a session of its own runs in one that is named after it.
  if (job.kind === "prompt" && job.session && !job.session.startsWith("cron:")) fields.session = job.session;
  if (job.schedule?.at && !job.delete_after_run) fields.keep = true;
  if (job.schedule?.anchor) {
    fields.anchor = job.schedule.anchor;
    if (job.schedule.tz) fields.tz = job.schedule.tz;
  }
  return fields;
}

export function JobForm({ job }) {
  const [words, setWords] = useState("");
  const [fields, setFields] = useState(job ? fieldsOf(job) : null);
  const [rest, setRest] = useState(restOf(job));
  const fromWords = usePreview(job ? null : words.trim() && { text: words.trim() });
  const preview = usePreview(fields?.when.trim() ? scheduleOf(fields) : null);
  useEffect(() => {
    if (!fromWords.answer) return;
    const understood = fromWords.answer.job;
    setRest(Object.fromEntries(Object.entries(understood).filter(([key]) => !SHOWN_FIELDS.includes(key))));
    setFields(fieldsOf(understood));
  }, [fromWords.answer]);
  const set = (name) => (event) => setFields({ ...fields, [name]: event.target.value });
  const save = async () => {
    const body = jobOf(fields, rest);
    const saved = job ? await api.patch(`/api/cron/${api.segment(job.id)}`, body) : await api.post("/api/cron", body);
    refresh(["cron"]);
    navigate("jobs", saved.id);
  };
  const canSave = fields && fields.text.trim() !== "" && fields.when.trim() !== "" && !preview.error;
  return html`<div class="view narrow">
    <a class="back" href=${job ? address("jobs", job.id) : address("jobs")}><${Icon} name="left" size=${16} />${job ? job.name : t("jobs")}</a>
    <${ViewHead} title=${t(job ? "jobs.edit" : "jobs.add")} />
    ${
      !job &&
      html`<label class="field">${t("jobs.words")}
      <input type="text" autofocus value=${words} placeholder=${t("jobs.words.example")} onInput=${(event) => setWords(event.target.value)} />
      ${fromWords.error ? html`<span class="error-text" role="alert">${errorText(fromWords.error)}</span>` : html`<small>${t("jobs.words.hint")}</small>`}
    </label>`
    }
    ${!fields && html`<button type="button" class="button quiet" onClick=${() => setFields(fieldsOf({}))}>${t("jobs.byFields")}</button>`}
    ${fields && html`<${Fields} fields=${fields} set=${set} preview=${preview} />`}
    ${
      fields &&
      html`<div class="form-actions">
      <a class="button" href=${address("jobs")}>${t("cancel")}</a>
      ${canSave && html`<${ActionButton} class="primary" onAct=${save}>${t("save")}<//>`}
    </div>`
    }
  </div>`;
}

/** @param {{fields: object, set: (name: string) => (event: Event) => void, preview: {answer: any, error: Error | null}}} props */
function Fields({ fields, set, preview }) {
  const { kind, schedule } = fields;
  const channels = useResource("/api/channels");
  const targets = [...new Set([HERE.channel, fields.channel, ...(channels.data ?? []).map((channel) => channel.name)])];
  const texts = (names, prefix) => names.map((name) => [name, t(`${prefix}.${name}`)]);
  const radio = (name) => html`<label>
    <input type="radio" name="kind" value=${name} checked=${kind === name} onChange=${set("kind")} />${t(`jobs.kind.${name}`)}
  </label>`;
  return html`<div class="form">
    <fieldset class="choice"><legend>${t("jobs.kind")}</legend>${["message", "prompt"].map(radio)}</fieldset>
    <label class="field">${t(`jobs.text.${kind}`)}<textarea rows="3" value=${fields.text} onInput=${set("text")}></textarea></label>
    <div class="field-row">
      <${SelectField} label=${t("jobs.schedule")} value=${schedule} onChange=${set("schedule")} options=${texts(SCHEDULES, "jobs.schedule")} />
      <${TextField} label=${t("jobs.when")} class="grow" value=${fields.when} placeholder=${t(`jobs.when.${schedule}`)} onInput=${set("when")} />
      ${schedule !== "every" && html`<${TextField} label=${t("jobs.tz")} value=${fields.tz} placeholder="Europe/Berlin" onInput=${set("tz")} />`}
    </div>
    <${Times} preview=${preview} />
    <${TextField} label=${t("jobs.name")} value=${fields.name} onInput=${set("name")} />
    <details><summary>${t("jobs.more")}</summary>
      <div class="field-row">
        <${SelectField} label=${t("jobs.target")} value=${fields.channel} onChange=${set("channel")}
          options=${targets.map((name) => [name, name === HERE.channel ? t("jobs.target.page") : name])} />
        <${TextField} label=${t("jobs.chat")} value=${fields.chat} onInput=${set("chat")} />
      </div>
      <div class="field-row">
        ${
          kind === "prompt" &&
          html`<${SelectField} label=${t("jobs.deliver")} value=${fields.deliver} onChange=${set("deliver")} options=${texts(DELIVERIES, "jobs.deliver")} />`
        }
        <${SelectField} label=${t("jobs.misfire")} value=${fields.misfire} onChange=${set("misfire")} options=${texts(MISFIRES, "jobs.misfire")} />
      </div>
    </details>
  </div>`;
}

function Times({ preview: { answer, error } }) {
  if (error) return html`<p class="error-text" role="alert">${errorText(error)}</p>`;
  if (!answer) return html`<div class="times reserved"></div>`;
  return html`<div class="times reserved"><h2 class="group-title">${t("jobs.next")}${answer.when && `: ${answer.when}`}</h2>
    <ol>${answer.next.map((at) => html`<li><time datetime=${at}>${dateTime(at)}</time> <small>${relative(at)}</small></li>`)}</ol>
    </div>`;
}

/** Returns what the gateway makes of a schedule, a moment after the last change; nothing is asked for null. */
function usePreview(request) {
  const [state, setState] = useState({ answer: null, error: null });
  const key = request ? JSON.stringify(request) : "";
  useEffect(() => {
    if (key === "") {
      setState({ answer: null, error: null });
      return undefined;
    }
    const abort = new AbortController();
    const timer = setTimeout(async () => {
      try {
        setState({ answer: await api.post("/api/cron/preview", JSON.parse(key), { signal: abort.signal }), error: null });
      } catch (error) {
        if (error.name !== "AbortError") setState({ answer: null, error });
      }
    }, DELAY);
    return () => {
      clearTimeout(timer);
      abort.abort();
    };
  }, [key]);
  return state;
}
