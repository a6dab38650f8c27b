// Texts that were written and are not with the gateway, by session; kept until the tab is closed.

import { createLoginStore } from "../store.js";

/** What stands in the composer. */
export const drafts = createLoginStore("daoyou.drafts", {}, () => sessionStorage);

/** Messages that were not accepted, as [session, text] by the id of their turn. The turn shows them while the page is open. */
const unsent = createLoginStore("daoyou.unsent", {}, () => sessionStorage);

export function setDraft(id, text) {
  drafts.set((all) => {
    const { [id ?? ""]: _old, ...others } = all;
    return text === "" ? others : { ...others, [id ?? ""]: text };
  });
}

/** Puts a text before what was written meanwhile. */
export function addToDraft(id, text) {
  setDraft(id, [text, drafts.get()[id ?? ""]].filter(Boolean).join("\n\n"));
}

/** What was written while a new chat got its key belongs to that chat. */
export function moveDraft(id, to) {
  addToDraft(to, drafts.get()[id ?? ""] ?? "");
  setDraft(id, "");
}

export function keepUnsent(id, turn, text) {
  unsent.set((all) => ({ ...all, [turn]: [id, text] }));
}

export function forgetUnsent(turn) {
  unsent.set((all) => {
    const { [turn]: _old, ...others } = all;
    return others;
  });
}

// The page was loaded again, and the turns that showed these messages are gone.
for (const [id, text] of Object.values(unsent.get()).reverse()) addToDraft(id, text);
unsent.set(() => ({}));
