// Which agent and which model answer: chosen here for a session, and sent with each of its messages from this browser.

import { html, useState } from "../lib.js";
import { createLoginStore, useResource } from "../store.js";
import { Dialog } from "../ui.js";
import { Icon } from "../icons.js";
import { t } from "../i18n.js";

/** How many sessions' choices are kept. */
const MAX_CHOICES = 200;

/** @type {{get: () => Record<string, {agent?: string, model?: string}>, set: Function}} */
export const choices = createLoginStore("daoyou.choices", {});

/** Sets what was chosen for a session; null is the chat that has no message yet. */
export function choose(id, choice) {
  const { [id ?? ""]: _old, ...others } = choices.get();
  const all = Object.keys(choice).length > 0 ? { ...others, [id ?? ""]: choice } : others;
  choices.set(() => Object.fromEntries(Object.entries(all).slice(-MAX_CHOICES)));
}

/**
 * @param {object} props
 * @param {{agent?: string, model?: string}} props.choice what was chosen for this session
 */
export function AgentPicker({ choice, onChoose, session, agents }) {
  const [isOpen, setIsOpen] = useState(false);
  const status = useResource("/api/status");
  const model = choice.model ?? session?.model ?? status.data?.model ?? "";
  const agent = choice.agent ?? session?.agent ?? agents[0]?.name ?? "";
  const name = [agent, model].filter(Boolean).join(" · ");
  return html`
    <button type="button" class="button quiet picker" aria-haspopup="dialog" title=${t("picker")} aria-label=${`${t("picker")}: ${name}`} onClick=${() => setIsOpen(true)}>
      <${Icon} name="sliders" size=${16} /><span>${name}</span>
    </button>
    ${isOpen && html`<${PickerDialog} choice=${choice} agents=${agents} agent=${agent} model=${model} onChoose=${onChoose} onClose=${() => setIsOpen(false)} />`}`;
}

function PickerDialog({ choice, agents, agent, model, onChoose, onClose }) {
  const models = useResource("/api/models");
  const [chosen, setChosen] = useState({ agent, model });
  const save = (event) => {
    event.preventDefault();
    const changed = { ...choice };
    if (chosen.agent !== agent) changed.agent = chosen.agent;
    if (chosen.model.trim() !== model) changed.model = chosen.model.trim() || undefined;
    onChoose(changed);
    onClose();
  };
  const description = agents.find((one) => one.name === chosen.agent)?.description;
  return html`<${Dialog} title=${t("picker")} onClose=${onClose}>
    <form onSubmit=${save}>
      <label class="field">${t("picker.agent")}
        <select value=${chosen.agent} onChange=${(event) => setChosen({ ...chosen, agent: event.target.value })}>
          ${agents.map((one) => html`<option value=${one.name}>${one.name}</option>`)}
        </select>
        ${description && html`<small>${description}</small>`}
      </label>
      <label class="field">${t("picker.model")}
        <input type="text" list="models" value=${chosen.model} onInput=${(event) => setChosen({ ...chosen, model: event.target.value })} autocomplete="off" spellcheck="false" />
        <small>${t("picker.model.hint")}</small>
      </label>
      <datalist id="models">${modelNames(models.data).map((name) => html`<option value=${name} />`)}</datalist>
      <footer>
        <button type="button" class="button" onClick=${onClose}>${t("cancel")}</button>
        <button type="submit" class="button primary">${t("picker.use")}</button>
      </footer>
    </form>
  <//>`;
}

/** The models of the services that have a key, or need none. */
function modelNames(models) {
  const names = (models?.providers ?? [])
    .filter((provider) => provider.in_use || provider.configured || provider.key)
    .flatMap((provider) => [provider.model, ...(provider.models ?? [])].filter(Boolean).map((model) => `${provider.name}/${model}`));
  return [...new Set(names)];
}
