// The turns of a conversation, as pure functions: from the stored history, from what runs, and from events.

/**
 * @typedef {{kind: "thinking", text: string, begun: number | null, ended: number | null}} Thinking
 * @typedef {{kind: "text", text: string}} Text
 * @typedef {{kind: "files", files: Attachment[]}} Files
 * @typedef {{kind: "notice", text: string}} Notice
 * @typedef {{kind: "tool", id: string, name: string, arguments: any, isComplete: boolean, result: string | null, success: boolean | null, duration: number | null}} ToolCall
 * @typedef {{text: string, attachments: Attachment[], at: string | number | null}} UserMessage
 * @typedef {{id: string, name: string, mime: string, size: number}} Attachment
 * @typedef {"sending" | "failed" | "queued" | "running" | "waiting" | "done" | "error"} TurnState
 * @typedef {object} Turn
 * @property {string} id
 * @property {TurnState} state
 * @property {UserMessage[]} users
 * @property {(Thinking | Text | Files | Notice | ToolCall)[]} parts
 * @property {{input: number, output: number, cached: number}} usage
 * @property {string | null} cost
 * @property {string | null} error
 * @property {number | null} begun milliseconds, if this page saw it
 * @property {number | null} duration milliseconds
 * @property {string | number | null} at
 * @property {boolean} isLocal only this page knows it yet: a message that is on its way
 * @property {boolean} isExtra it is not in the history that the model reads: a slash command and its answer, or what a job sent
 * @property {{id: string, name: string} | null} job the job that sent it
 */

/** The advice for the model at the end of a failed call's result; its presence says that the call failed. */
const ERROR_ADVICE = "\n\n[Please analyze the error above and try a different approach.]";

/**
 * The note that the gateway puts before a job's message, so that the model knows why it is there. Text after it would be somebody's
 * message, which must be shown.
 */
const JOB_NOTE = /^\[The scheduled job "(.+)" \(id ([^)\n]+)\), due [^\n]+, sent this to the chat:\]$/;

/** Returns the job that sent a message, if this is the note before it. */
function jobOfNote(text) {
  const [, name, id] = JOB_NOTE.exec(text) ?? [];
  return id ? { id, name } : null;
}

/** @returns {Turn} */
export function newTurn(id, state) {
  const usage = { input: 0, output: 0, cached: 0 };
  return {
    id,
    state,
    users: [],
    parts: [],
    usage,
    cost: null,
    error: null,
    begun: null,
    duration: null,
    at: null,
    isLocal: false,
    isExtra: false,
    job: null,
  };
}

const isTool = (part) => part.kind === "tool";

/** Builds the turns of a stored session. @returns {Turn[]} */
export function fromHistory(messages) {
  const turns = new Map();
  for (const { turn: id, at, role, message, text, attachments } of messages) {
    if (!turns.has(id)) turns.set(id, { ...newTurn(id, "done"), at });
    const turn = turns.get(id);
    const job = role === "user" ? jobOfNote(text ?? message.content) : null;
    if (job) turn.job = job;
    else if (role === "user") turn.users.push({ text: text ?? message.content, attachments: attachments ?? [], at });
    if (role === "assistant") turn.parts.push(...assistantParts(message));
    if (role === "tool") addStoredResult(turn, message);
  }
  return [...turns.values()];
}

function assistantParts({ content, reasoning, tool_calls: calls = [] }) {
  const parts = [];
  if (reasoning?.text) parts.push({ kind: "thinking", text: reasoning.text, begun: null, ended: null });
  if (content) parts.push({ kind: "text", text: content });
  for (const { id, name, arguments: written } of calls) parts.push(newTool(id, name, parseArguments(written), true));
  return parts;
}

function newTool(id, name, args, isComplete) {
  return { kind: "tool", id, name, arguments: args, isComplete, result: null, success: null, duration: null };
}

function parseArguments(written) {
  try {
    return JSON.parse(written || "{}");
  } catch {
    return written;
  }
}

function addStoredResult(turn, { call_id: id, content }) {
  const call = turn.parts.findLast((part) => isTool(part) && part.id === id && part.result === null);
  if (!call) return;
  call.success = !content.endsWith(ERROR_ADVICE);
  call.result = content.replace(ERROR_ADVICE, "");
}

/**
 * Joins the stored history, what runs, and what this page knows of both. The history wins; what only this page saw (how long a call took)
 * is kept.
 * @param {Turn[]} known
 * @param {Turn[]} history
 * @param {{turn: string, state: TurnState, at: string, content: string, attachments?: Attachment[], events: any[]}[]} live
 * @param {Map<string, any>} usages rows of `/api/turns` by turn
 * @param {any[]} deliveries what the chat was sent beside the history
 */
export function merge(known, { history, live, usages, deliveries }) {
  const before = new Map(known.map((turn) => [turn.id, turn]));
  const turns = history.map((turn) => withUsage(keepSeen(turn, before.get(turn.id)), usages.get(turn.id)));
  const stored = new Set(turns.map((turn) => turn.id));
  for (const running of live) {
    if (!stored.has(running.turn)) turns.push(fromLive(running, before.get(running.turn)));
    stored.add(running.turn);
  }
  addDeliveries(turns, deliveries);
  turns.push(...known.filter((turn) => turn.isLocal));
  return turns.sort((one, other) => order(one) - order(other));
}

/** The clock of this machine is not the gateway's: what only this page knows comes last. */
const order = (turn) => (turn.isLocal ? Number.MAX_SAFE_INTEGER : new Date(turn.at ?? 0).getTime());

/** Adds answers to slash commands, messages of jobs, notices and files. */
function addDeliveries(turns, deliveries) {
  for (const delivery of deliveries) {
    const files = delivery.attachments ?? [];
    const at = turns.findIndex((turn) => turn.id === delivery.turn);
    // The call of `ask_user` and the card of the approval say more, in their own conversation.
    if (delivery.kind === "question" || (delivery.notice === "approval" && at >= 0)) continue;
    if (delivery.in_history) {
      if (at >= 0 && files.length > 0) addPart(turns, at, { kind: "files", files });
    } else if (delivery.kind === "notice" && at >= 0) addPart(turns, at, { kind: "notice", text: delivery.text });
    else turns.push(extraTurn(delivery, files));
  }
}

function addPart(turns, at, part) {
  turns[at] = { ...turns[at], parts: [...turns[at].parts, part] };
}

function extraTurn({ id, turn, at, in_reply_to: command, text, error, job }, files) {
  const parts = error ? [] : [{ kind: "text", text }];
  if (files.length > 0) parts.push({ kind: "files", files });
  const users = command ? [{ text: command, attachments: [], at }] : [];
  return {
    ...newTurn(command ? turn : id, error ? "error" : "done"),
    at,
    users,
    parts,
    error: error ? text : null,
    job: job ? { id: job, name: job } : null,
    isExtra: true,
  };
}

function fromLive({ turn: id, state, at, content, attachments = [], events }, before) {
  let turn = { ...newTurn(id, state), users: [{ text: content, attachments, at }], at, begun: before?.begun ?? null };
  for (const event of events) turn = applyToTurn(turn, event, null);
  return { ...keepSeen(turn, before), state, begun: turn.begun ?? before?.begun ?? null };
}

function keepSeen(turn, before) {
  if (!before) return turn;
  const thoughts = before.parts.filter((part) => part.kind === "thinking");
  const parts = turn.parts.map((part) => {
    if (isTool(part)) {
      const seen = before.parts.find((other) => isTool(other) && other.id === part.id);
      return seen ? { ...part, duration: part.duration ?? seen.duration, success: seen.success ?? part.success } : part;
    }
    if (part.kind !== "thinking") return part;
    const seen = thoughts.shift();
    return seen ? { ...part, begun: seen.begun, ended: seen.ended } : part;
  });
  const users = turn.users.map((user, at) =>
    user.attachments.length > 0 ? user : { ...user, attachments: before.users[at]?.attachments ?? [] },
  );
  const hasUsage = turn.usage.input + turn.usage.output > 0;
  return {
    ...turn,
    parts,
    users,
    usage: hasUsage ? turn.usage : before.usage,
    cost: turn.cost ?? before.cost,
    duration: turn.duration ?? before.duration,
  };
}

function withUsage(turn, row) {
  if (!row) return turn;
  const usage = { input: row.input_tokens ?? 0, output: row.output_tokens ?? 0, cached: row.cached_tokens ?? 0 };
  // A turn is stored when it ends; it stands where it was asked for.
  const at = row.received_at ?? turn.at;
  return { ...turn, at, usage, cost: row.cost ?? null, duration: turn.duration ?? row.duration_ms ?? null };
}

/** Applies an event of a turn to a conversation; a turn that is not known yet is added. @returns {Turn[]} */
export function applyEvent(turns, id, event, now) {
  const at = turns.findIndex((turn) => turn.id === id);
  if (at < 0) return [...turns, applyToTurn({ ...newTurn(id, event.type === "accepted" ? "queued" : "running"), at: now }, event, now)];
  return turns.with(at, applyToTurn(turns[at], event, now));
}

/** `now` is null for events of the past, whose times are unknown. */
function applyToTurn(turn, event, now) {
  switch (event.type) {
    // Events of the turn may have come before the answer to the page's own request.
    case "accepted":
      return { ...turn, users: turn.users.length > 0 ? turn.users : event.users, begun: event.begun, at: event.at };
    case "started":
      return { ...turn, state: "running", begun: turn.begun ?? now };
    case "thinking":
      return { ...turn, state: "running", parts: grow(turn.parts, "thinking", event.delta, now) };
    case "text":
      return { ...turn, state: "running", parts: grow(endThinking(turn.parts, now), "text", event.delta, now) };
    case "tool_call":
      return { ...turn, state: "running", parts: addCall(endThinking(turn.parts, now), event) };
    case "tool_result":
      return { ...turn, parts: addResult(turn.parts, event) };
    case "restart":
      return { ...turn, parts: turn.parts.slice(0, turn.parts.findLastIndex((part) => isTool(part) && part.isComplete) + 1) };
    case "usage":
      return { ...turn, parts: endThinking(turn.parts, now), usage: addUsage(turn.usage, event) };
    case "done":
      return end(turn, event, now);
    case "error":
      return { ...turn, state: "error", error: event.message, parts: endThinking(turn.parts, now), duration: since(turn, now) };
    default:
      return turn;
  }
}

const since = (turn, now) => (turn.begun === null || now === null ? turn.duration : now - turn.begun);

function grow(parts, kind, delta, now) {
  const last = parts.at(-1);
  if (last?.kind === kind && !last.ended) return parts.with(-1, { ...last, text: last.text + delta });
  return [...parts, kind === "thinking" ? { kind, text: delta, begun: now, ended: null } : { kind, text: delta }];
}

function endThinking(parts, now) {
  const last = parts.at(-1);
  if (last?.kind !== "thinking" || last.ended !== null || now === null) return parts;
  return parts.with(-1, { ...last, ended: now });
}

function addCall(parts, { id, name, arguments: args, args_complete: isComplete }) {
  const at = parts.findLastIndex((part) => isTool(part) && part.id === id && part.result === null);
  if (at < 0) return [...parts, newTool(id, name, args, isComplete)];
  const known = parts[at];
  return parts.with(at, { ...known, name, arguments: args ?? known.arguments, isComplete: isComplete || known.isComplete });
}

function addResult(parts, { id, name, content, success, duration_ms: duration }) {
  const at = parts.findLastIndex((part) => isTool(part) && part.id === id);
  const call = at < 0 ? newTool(id, name, null, true) : parts[at];
  const ended = { ...call, isComplete: true, result: content.replace(ERROR_ADVICE, ""), success, duration };
  return at < 0 ? [...parts, ended] : parts.with(at, ended);
}

function addUsage(usage, event) {
  return {
    input: usage.input + event.input_tokens,
    output: usage.output + event.output_tokens,
    cached: usage.cached + event.cached_tokens,
  };
}

function end(turn, { reply, input_tokens: input, output_tokens: output, cost }, now) {
  let parts = endThinking(turn.parts, now);
  const last = parts.at(-1);
  // The reply is complete; what was streamed may lack events.
  if (reply && last?.kind === "text") parts = parts.with(-1, { kind: "text", text: reply });
  else if (reply) parts = [...parts, { kind: "text", text: reply }];
  return { ...turn, state: "done", parts, usage: { ...turn.usage, input, output }, cost, duration: since(turn, now) };
}

/** Returns the call of `ask_user` that waits for an answer, if one does. */
export function openQuestion(turns) {
  for (const turn of turns) {
    if (turn.state !== "running" && turn.state !== "waiting") continue;
    const call = turn.parts.find((part) => isTool(part) && part.name === "ask_user" && part.isComplete && part.result === null);
    if (call) return { turn, call };
  }
  return null;
}

/** A turn that has not ended. */
export const isOpen = (turn) => ["sending", "queued", "running", "waiting"].includes(turn.state);
