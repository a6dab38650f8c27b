// Texts and files that the gateway has not accepted yet, by session; kept until the tab is closed.

import { createLoginStore } from "../store.js";

/** What stands in the composer. */
export const drafts = createLoginStore("daoyou.drafts", {}, () => sessionStorage);

/** The uploaded files beside it. */
const draftFiles = createLoginStore("daoyou.draftFiles", {}, () => sessionStorage);

/** Messages that were not accepted, as [session, text, files] by the id of their turn. The turn shows them while the page is open. */
const unsent = createLoginStore("daoyou.unsent", {}, () => sessionStorage);

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
  setDraftFiles(id, [...files, ...draftFilesOf(id)]);
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

export function keepUnsent(id, turn, text, files) {
  unsent.set((all) => ({ ...all, [turn]: [id, text, files] }));
}

export function forgetUnsent(turn) {
  unsent.set((all) => {
    const { [turn]: _old, ...others } = all;
    return others;
  });
}

// The page was loaded again, and the turns that showed these messages are gone.
for (const [id, text, files = []] of Object.values(unsent.get()).reverse()) {
  addToDraft(id, text);
  addDraftFiles(id, files);
}
unsent.set(() => ({}));
