// The named tokens of other programs, devices and people: added, listed and revoked.

import * as api from "../api.js";
import { html, useState } from "../lib.js";
import { refresh, useResource } from "../store.js";
import { ConfirmDialog, CopyButton, Dialog, Empty, ErrorNote, Loaded, SelectField, TextField } from "../ui.js";
import { Icon } from "../icons.js";
import { dateTime, relative } from "../format.js";
import { t } from "../i18n.js";

const SCOPES = ["chat", "read", "admin"];

export function Tokens() {
  const [isAdding, setIsAdding] = useState(false);
  const [revoked, setRevoked] = useState(null);
  const tokens = useResource("/api/tokens", ["tokens"]);
  const revoke = async () => {
    await api.remove(`/api/tokens/${api.segment(revoked)}`);
    refresh(["tokens"]);
  };
  const row = (token) => html`<li class="row part" key=${token.name}>
    <${Icon} name="link" />
    <div class="row-main">
      <p class="row-title">${token.name}</p>
      <p class="row-facts"><span>${t(`tokens.scope.${token.scope}`)}</span><span>${t("tokens.created", { at: dateTime(token.created_at) })}</span>
        <span>${token.used_at ? t("tokens.used", { at: relative(token.used_at) }) : t("tokens.unused")}</span></p>
    </div>
    <button type="button" class="button small danger" onClick=${() => setRevoked(token.name)}>${t("tokens.revoke")}</button>
  </li>`;
  return html`<${Loaded} resource=${tokens}>${(list) =>
    list.length === 0
      ? html`<${Empty} icon="link" title=${t("tokens.none")}>${t("tokens.hint")}<//>`
      : html`<ul class="rows">${list.map(row)}</ul>`}<//>
    <button type="button" class="button" onClick=${() => setIsAdding(true)}>${t("tokens.add")}</button>
    ${isAdding && html`<${AddDialog} onClose=${() => setIsAdding(false)} />`}
    ${revoked && html`<${ConfirmDialog} title=${t("tokens.revoke.title", { name: revoked })} action=${t("tokens.revoke")} onConfirm=${revoke} onClose=${() => setRevoked(null)}>
      <p>${t("tokens.revoke.hint")}</p>
    <//>`}`;
}

/** Asks for the name and the scope of a token, and shows the token once. */
function AddDialog({ onClose }) {
  const [request, setRequest] = useState({ name: "", scope: "chat", reuse: false });
  const [added, setAdded] = useState(null);
  const [error, setError] = useState(null);
  const add = async (event) => {
    event.preventDefault();
    try {
      setAdded(await api.post("/api/tokens", request));
      refresh(["tokens"]);
    } catch (failure) {
      setError(failure);
    }
  };
  if (added) {
    return html`<${Dialog} title=${t("tokens.added", { name: added.name })} onClose=${onClose}>
      <p>${t("tokens.once")}</p>
      <p class="secret"><code>${added.token}</code><${CopyButton} text=${added.token} /></p>
    <//>`;
  }
  return html`<${Dialog} title=${t("tokens.add")} onClose=${onClose}>
    <form onSubmit=${add}>
      <${TextField} label=${t("tokens.name")} value=${request.name} required autocomplete="off" onInput=${(event) => setRequest({ ...request, name: event.target.value })} />
      <${SelectField} label=${t("tokens.scope")} options=${SCOPES.map((scope) => [scope, t(`tokens.scope.${scope}`)])} value=${request.scope}
        onChange=${(event) => setRequest({ ...request, scope: event.target.value })} />
      <label class="inline-field"><input type="checkbox" checked=${request.reuse} onChange=${(event) => setRequest({ ...request, reuse: event.target.checked })} />${t("tokens.reuse")}</label>
      ${error && html`<${ErrorNote} error=${error} />`}
      <footer><button type="button" class="button" onClick=${onClose}>${t("cancel")}</button><button class="button primary">${t("tokens.add")}</button></footer>
    </form>
  <//>`;
}
