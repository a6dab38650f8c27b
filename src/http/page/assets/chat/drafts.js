// Texts and files that the gateway has not accepted yet, by session; kept until the tab is closed.

import { createLoginStore } from "../store.js";

/** What stands in the composer. */
export const drafts = createLoginStore("daoyou.drafts", {}, () => sessionStorage);

/** The uploaded files beside it. */
const draftFiles = createLoginStore("daoyou.draftFiles", {}, () => sessionStorage);

/** Messages that were not accepted, as [session, text, files] by the id of their turn. The turn shows them while the page is open. */
const unsent = createLoginStore("daoyou.unsent", {}, () => sessionStorage);

/**
 * The message that is back in the composer, as [text, ids of its files, id] by session: the gateway may have accepted it, although its
 * answer was lost. Sent as it was, it keeps its id, so that it counts once.
 */
const returned = createLoginStore("daoyou.returned", {}, () => sessionStorage);

/** Sets the value of a session; an empty one is removed. */
function put(store, id, value) {
  store.set((all) => {
    const { [id ?? ""]: _old, ...others } = all;
    return value.length === 0 ? others : { ...others, [id ?? ""]: value };
  });
}

export const setDraft = (id, text) => put(drafts, id, text);

export const draftFilesOf = (id) => draftFiles.get()[id ?? ""] ?? [];

export const setDraftFiles = (id, files) => put(draftFiles, id, files);

function addDraftFiles(id, files) {
  const known = draftFilesOf(id).filter((file) => files.every((other) => other.id !== file.id));
  setDraftFiles(id, [...files, ...known]);
}

/** Puts a text before what was written meanwhile. */
export function addToDraft(id, text) {
  setDraft(id, [text, drafts.get()[id ?? ""]].filter(Boolean).join("\n\n"));
}

/** What was written while a new chat got its key belongs to that chat. */
export function moveDraft(id, to) {
  addToDraft(to, drafts.get()[id ?? ""] ?? "");
  setDraft(id, "");
  addDraftFiles(to, draftFilesOf(id));
  setDraftFiles(id, []);
}

export function keepUnsent(id, turn, { content, attachments }) {
  unsent.set((all) => ({ ...all, [turn]: [id, content, attachments] }));
}

export function forgetUnsent(turn) {
  unsent.set((all) => {
    const { [turn]: _old, ...others } = all;
    return others;
  });
}

/** Keeps the id of a message that goes back to the composer; `asked` is the call of the question that it answers. */
export const keepReturned = (id, turn, { content, attachments }, asked = null) =>
  put(returned, id, [content, attachments.map((file) => file.id), turn, asked]);

/** Forgets it: the text was changed, and what is written from then on is another message. */
export const forgetReturned = (id) => put(returned, id, []);

/** Returns the id of the message that came back, if it is sent as it was, and forgets it. */
export function takeReturned(id, { content, attachments }, asked = null) {
  const [text, files, turn, question = null] = returned.get()[id ?? ""] ?? [];
  forgetReturned(id);
  const isSame =
    text === content && question === asked && files.join() === attachments.map((file) => file.id).join();
  return isSame ? turn : undefined;
}

// The page was loaded again, and the turns that showed these messages are gone.
for (const [turn, [id, text, files = []]] of Object.entries(unsent.get()).reverse()) {
  keepReturned(id, turn, { content: text, attachments: files });
  addToDraft(id, text);
  addDraftFiles(id, files);
}
unsent.set(() => ({}));
