// Requests to the gateway.

/** An answer that is not a success, or no answer at all (`code` is then "offline"). */
export class ApiError extends Error {
  constructor(status, code, message) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

let unauthorized = () => {};

/** Sets what happens when the gateway no longer knows this browser. */
export function onUnauthorized(handler) {
  unauthorized = handler;
}

async function failure(response) {
  const body = await response.json().catch(() => null);
  const { code = "http", message = `${response.status} ${response.statusText}` } = body?.error ?? {};
  if (response.status === 401 && code !== "wrong_token") unauthorized();
  return new ApiError(response.status, code, message);
}

/** Throws the error of a request without an answer, or with half of one. */
function offline(error) {
  throw error.name === "AbortError" ? error : new ApiError(0, "offline", error.message);
}

/**
 * Makes a request and returns the response, whose status is a success.
 * @param {string} method
 * @param {string} path
 * @param {{body?: any, raw?: Blob, signal?: AbortSignal, headers?: Record<string, string>}} options `body` is sent as JSON, `raw` as it is
 */
export async function request(method, path, { body, raw, signal, headers = {} } = {}) {
  const sent = { ...headers };
  // What changes something carries this header, which no form of another site can send.
  if (method !== "GET") sent["X-Daoyou"] = "page";
  if (body !== undefined) sent["Content-Type"] = "application/json";
  if (raw !== undefined) sent["Content-Type"] = raw.type || "application/octet-stream";
  const payload = body === undefined ? raw : JSON.stringify(body);
  const response = await fetch(path, { method, headers: sent, body: payload, signal, cache: "no-store" }).catch(offline);
  if (!response.ok) throw await failure(response);
  return response;
}

async function json(method, path, options) {
  const response = await request(method, path, options);
  const text = await response.text().catch(offline);
  return text === "" ? null : JSON.parse(text);
}

export const get = (path, options) => json("GET", path, options);
export const post = (path, body, options) => json("POST", path, { ...options, body });
export const patch = (path, body) => json("PATCH", path, { body });
export const remove = (path) => json("DELETE", path);

/** Encodes one segment of a path; the keys of sessions contain colons and slashes. */
export const segment = encodeURIComponent;

/** The pauses before an upload is tried again for which the gateway has no memory now, in milliseconds. */
const UPLOAD_PAUSES = [1_000, 2_000, 4_000, 8_000, 16_000];

let lastUpload = Promise.resolve();

/**
 * Uploads a file, after those before it: side by side, each would take the time of all.
 * @returns {Promise<{id: string, name: string, size: number, mime: string}>}
 */
export function upload(file, signal) {
  const result = lastUpload.then(() => uploadNow(file, signal));
  lastUpload = result.catch(() => {});
  return result;
}

async function uploadNow(file, signal) {
  for (const pause of [...UPLOAD_PAUSES, null]) {
    signal.throwIfAborted();
    try {
      return await json("POST", `/api/files?name=${segment(file.name || "file")}`, { raw: file, signal });
    } catch (error) {
      if (error.code !== "body_budget" || pause === null) throw error;
      await new Promise((resolve) => setTimeout(resolve, pause));
    }
  }
}
