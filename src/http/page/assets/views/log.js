// The last lines of the gateway's log, which go on while the view is open.

import * as api from "../api.js";
import { html, useEffect, useLayoutEffect, useRef, useState } from "../lib.js";
import { Empty, ErrorNote, Segmented } from "../ui.js";
import { clock, dateTime } from "../format.js";
import { t } from "../i18n.js";

/** The levels that can be chosen, and how many lines are kept. */
const LEVELS = ["error", "warn", "trace"];
const MAX_LINES = 2_000;
/** How often new lines are asked for, in milliseconds. */
const PACE = 2_000;

const TONES = { ERROR: "bad", WARN: "warn" };

export function Log() {
  const [level, setLevel] = useState("trace");
  const options = LEVELS.map((name) => [name, t(`log.level.${name}`)]);
  return html`<${Segmented} label=${t("log.level")} options=${options} value=${level} onChange=${setLevel} />
    <${Lines} key=${level} level=${level} />`;
}

function Lines({ level }) {
  const [lines, setLines] = useState(null);
  const [error, setError] = useState(null);
  const box = useRef(null);
  const follows = useRef(true);
  useEffect(() => {
    let timer;
    let last = 0;
    let since = null;
    let isOver = false;
    const load = async () => {
      try {
        const { started, lines: more } = await api.get(`/api/logs?level=${level}&after=${last}&lines=${MAX_LINES}`);
        if (isOver) return;
        // A gateway that was started again counts from the beginning.
        const isNew = started !== since;
        if (isNew && since !== null) {
          since = null;
          last = 0;
          return void (timer = setTimeout(load, 0));
        }
        since = started;
        last = more.at(-1)?.number ?? last;
        if (isNew) setLines(more);
        else if (more.length > 0) setLines((known) => [...known, ...more].slice(-MAX_LINES));
        setError(null);
      } catch (failure) {
        if (isOver) return;
        setError(failure);
      }
      timer = setTimeout(load, PACE);
    };
    load();
    return () => {
      isOver = true;
      clearTimeout(timer);
    };
  }, [level]);
  useLayoutEffect(() => {
    if (follows.current && box.current) box.current.scrollTop = box.current.scrollHeight;
  }, [lines]);
  const onScroll = () => {
    if (!box.current) return;
    const { scrollTop, scrollHeight, clientHeight } = box.current;
    follows.current = scrollHeight - scrollTop - clientHeight < 8;
  };
  if (error) return html`<${ErrorNote} error=${error} />`;
  if (lines?.length === 0) return html`<${Empty} icon="system" title=${t("log.none")} />`;
  return html`<ol class="log" ref=${box} onScroll=${onScroll} tabindex="0" aria-label=${t("system.log")} aria-busy=${lines === null}>
    ${(lines ?? []).map(
      (line) => html`<li key=${line.number} data-tone=${TONES[line.level]}>
        <time datetime=${line.at} title=${dateTime(line.at)}>${clock(line.at)}</time> <b>${line.level}</b> <span>${line.target.replace(/^daoyou::/, "")}</span> ${line.text}
      </li>`,
    )}
  </ol>`;
}
