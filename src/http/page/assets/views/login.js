// The login: one token.

import * as api from "../api.js";
import { html, useState } from "../lib.js";
import { errorText } from "../ui.js";
import { setLanguage, t } from "../i18n.js";
import { otherLanguage } from "../settings.js";

export function Login({ onLogin }) {
  const [token, setToken] = useState("");
  const [error, setError] = useState(null);
  const [isBusy, setIsBusy] = useState(false);
  const isExpired = new URLSearchParams(location.search).get("login") === "expired";
  const other = otherLanguage();
  const submit = async (event) => {
    event.preventDefault();
    setIsBusy(true);
    setError(null);
    try {
      await api.post("/api/login", { token: token.trim() });
      if (isExpired) history.replaceState(null, "", `/${location.hash}`);
      await onLogin();
    } catch (caught) {
      setError(caught);
    }
    setIsBusy(false);
  };
  return html`<main class="login">
    <form onSubmit=${submit}>
      <img src="/assets/icon.svg" alt="" width="48" height="48" />
      <h1>daoyou</h1>
      ${isExpired && !error && html`<p class="note" role="status">${t("login.expired")}</p>`}
      <label class="field">${t("login.token")}
        <input type="password" name="token" autocomplete="current-password" autofocus required value=${token} aria-describedby="login-help" onInput=${(event) => setToken(event.target.value)} />
      </label>
      ${error && html`<p class="error-text" role="alert">${loginError(error)}</p>`}
      <button type="submit" class="button primary wide" disabled=${isBusy || token.trim() === ""}>${t("login")}</button>
      <div id="login-help" class="login-help">
        <p>${t("login.open")}</p><pre>daoyou open</pre>
        <p>${t("login.file")}</p><pre>~/.daoyou/token</pre>
      </div>
      <button type="button" class="button quiet" onClick=${() => setLanguage(other.code)}>${other.name}</button>
    </form>
  </main>`;
}

function loginError(error) {
  if (error.status === 401) return t("login.wrong");
  if (error.status === 429) return t("login.many");
  return errorText(error);
}
