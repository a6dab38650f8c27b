//! Finds the thread that a mail belongs to.
//!
//! The root of a thread, a Message-ID, names the thread. A mail names the mails that it answers in References and
//! In-Reply-To (RFC 5322, section 3.6.4), and anybody may write any id there. Therefore a mail joins a known thread only if
//! its sender is a participant, i.e. wrote or received an earlier mail of the thread. A mail that references the thread of
//! other people begins a new thread.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::mail::ParsedMail;
use super::message_id::is_message_id;
use crate::text::hex;

/// The maximum number of ids of one mail that are looked up: the newest ones and the oldest.
const MAX_CANDIDATES: usize = 20;
/// The maximum number of participants stored for one thread.
const MAX_PEOPLE: usize = 50;

/// The stored state of a thread.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ThreadState {
    /// The addresses of the participants, in the form in which they are compared.
    pub people: Vec<String>,
    /// [`BaseSubject::core`] of the newest mail.
    pub subject: String,
    /// The sender of the newest mail.
    pub last: String,
}

impl ThreadState {
    /// Returns true if the address is a participant.
    pub fn includes(&self, address: &str) -> bool {
        self.people.iter().any(|known| known == address)
    }

    /// Adds the sender and the recipients of a mail to the participants.
    pub fn join(&mut self, sender: &str, others: impl IntoIterator<Item = String>, subject: &str) {
        for address in std::iter::once(sender.to_owned()).chain(others) {
            if self.people.len() < MAX_PEOPLE && !self.includes(&address) {
                self.people.push(address);
            }
        }
        subject.clone_into(&mut self.subject);
        sender.clone_into(&mut self.last);
    }
}

/// An id that a mail references, with the known thread of that id.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReferencedId {
    pub id: String,
    pub thread: Option<KnownThread>,
}

/// A known thread.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KnownThread {
    pub root: String,
    pub state: ThreadState,
}

/// The thread found for a mail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadMatch {
    pub root: String,
    /// The state of the thread; empty for a new thread.
    pub state: ThreadState,
    pub is_new: bool,
}

impl ThreadMatch {
    fn known(known: &KnownThread) -> Self {
        Self { root: known.root.clone(), state: known.state.clone(), is_new: false }
    }

    fn new_thread(root: String) -> Self {
        Self { root, state: ThreadState::default(), is_new: true }
    }
}

/// Finds the thread of a mail from `sender`. `own` is the mail's own id; `named` are the ids that it references, newest
/// first. `by_subject` is the thread with the same subject, which counts only if the mail references no id.
pub fn match_thread(
    sender: &str,
    own: &ReferencedId,
    named: &[ReferencedId],
    by_subject: Option<&KnownThread>,
) -> ThreadMatch {
    let known = || named.iter().filter_map(|named| named.thread.as_ref());
    if let Some(thread) = known().find(|thread| thread.state.includes(sender)) {
        return ThreadMatch::known(thread);
    }
    // A reply may arrive before the mail that it answers. It has then already named the thread.
    if let Some(thread) = &own.thread {
        if thread.state.includes(sender) {
            return ThreadMatch::known(thread);
        }
        return ThreadMatch::new_thread(made_id(&[&own.id, sender]));
    }
    if known().next().is_some() {
        return ThreadMatch::new_thread(own.id.clone());
    }
    if let Some(oldest) = named.last() {
        return ThreadMatch::new_thread(oldest.id.clone());
    }
    match by_subject {
        Some(thread) if thread.state.includes(sender) => ThreadMatch::known(thread),
        _ => ThreadMatch::new_thread(own.id.clone()),
    }
}

/// Returns the ids that a mail references, newest first, without duplicates. The last one is the oldest id of References.
pub fn referenced_ids(mail: &ParsedMail) -> Vec<String> {
    let mut ids: Vec<String> = Vec::new();
    let all = mail.in_reply_to.iter().chain(mail.references.iter().rev());
    for id in all.filter(|id| is_message_id(id)) {
        if !ids.contains(id) && ids.len() < MAX_CANDIDATES {
            ids.push(id.clone());
        }
    }
    // RFC 5322 puts the beginning of the thread first.
    if let Some(oldest) = mail.references.iter().find(|id| is_message_id(id)) {
        ids.retain(|id| id != oldest);
        ids.push(oldest.clone());
    }
    ids
}

/// Returns a mail's own Message-ID. A mail without a usable id gets an id derived from its `header`, which is the same in each mailbox.
pub fn own_id(mail: &ParsedMail, header: &str) -> String {
    let written = mail.message_id.as_ref().filter(|id| is_message_id(id));
    written.cloned().unwrap_or_else(|| made_id(&[header]))
}

fn made_id(parts: &[&str]) -> String {
    format!("<{}@daoyou.invalid>", hash(parts))
}

/// Returns a short hash of `parts`, in hex.
pub fn hash(parts: &[&str]) -> String {
    let mut hasher = Sha256::new();
    for part in parts {
        hasher.update(part.len().to_be_bytes());
        hasher.update(part.as_bytes());
    }
    hex(&hasher.finalize()[..16])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::email::message_id::MAX_ID;

    fn state(people: &[&str]) -> ThreadState {
        ThreadState { people: people.iter().map(|p| (*p).to_owned()).collect(), ..ThreadState::default() }
    }

    fn named(id: &str, thread: Option<(&str, &[&str])>) -> ReferencedId {
        let thread = thread.map(|(root, people)| KnownThread { root: root.to_owned(), state: state(people) });
        ReferencedId { id: id.to_owned(), thread }
    }

    #[test]
    fn a_mail_joins_only_threads_of_its_sender() {
        const ANN: &str = "ann@a.test";
        let ours: &[&str] = &[ANN, "bob@a.test"];
        let theirs: &[&str] = &["eve@a.test"];
        let own = named("<own>", None);
        let by_subject = KnownThread { root: "<s>".to_owned(), state: state(ours) };
        let strange = KnownThread { root: "<s>".to_owned(), state: state(theirs) };
        type Row<'a> = (&'a str, &'a ReferencedId, &'a [ReferencedId], Option<&'a KnownThread>, &'a str, bool);
        let table: &[Row<'_>] = &[
            ("nothing named", &own, &[], None, "<own>", true),
            (
                "known",
                &own,
                &[named("<2>", Some(("<1>", ours))), named("<1>", Some(("<1>", ours)))],
                None,
                "<1>",
                false,
            ),
            ("the oldest known", &own, &[named("<2>", None), named("<1>", Some(("<0>", ours)))], None, "<0>", false),
            ("unknown", &own, &[named("<2>", None), named("<1>", None)], None, "<1>", true),
            ("of others", &own, &[named("<2>", Some(("<1>", theirs)))], None, "<own>", true),
            ("one of others", &own, &[named("<2>", Some(("<1>", theirs))), named("<0>", None)], None, "<own>", true),
            (
                "one of ours",
                &own,
                &[named("<2>", Some(("<1>", theirs))), named("<0>", Some(("<0>", ours)))],
                None,
                "<0>",
                false,
            ),
            ("by subject", &own, &[], Some(&by_subject), "<s>", false),
            ("by the subject of others", &own, &[], Some(&strange), "<own>", true),
            ("ids before subject", &own, &[named("<2>", None)], Some(&by_subject), "<2>", true),
            ("answered before it came", &named("<own>", Some(("<own>", ours))), &[], None, "<own>", false),
            ("somebody else's id", &named("<own>", Some(("<own>", theirs))), &[], None, "", true),
        ];
        for (what, own, ids, subject, root, is_new) in table {
            let place = match_thread(ANN, own, ids, *subject);
            let made = made_id(&["<own>", ANN]);
            let root = if root.is_empty() { made.as_str() } else { root };
            assert_eq!((place.root.as_str(), place.is_new), (root, *is_new), "{what}");
        }
    }

    #[test]
    fn ids_are_looked_up_from_the_newest_back() {
        let ids = |ids: &[&str]| ids.iter().map(|id| (*id).to_owned()).collect::<Vec<_>>();
        let mail = |references: &[&str], in_reply_to: &[&str]| ParsedMail {
            references: ids(references),
            in_reply_to: ids(in_reply_to),
            ..ParsedMail::default()
        };
        for (references, in_reply_to, expected) in [
            (&["<1>", "<2>", "<3>"] as &[&str], &["<3>"] as &[&str], &["<3>", "<2>", "<1>"] as &[&str]),
            (&[], &["<3>"], &["<3>"]),
            (&["<1>"], &["<9>"], &["<9>", "<1>"]),
            (&["<1>"], &["<1>"], &["<1>"]),
            (&["no id", "<a b>", "<>", "<1>"], &["x"], &["<1>"]),
            (&[], &[], &[]),
        ] {
            assert_eq!(referenced_ids(&mail(references, in_reply_to)), ids(expected), "{references:?}");
        }
        let many: Vec<String> = (0..5_000).map(|n| format!("<{n}>")).collect();
        let found = referenced_ids(&ParsedMail { references: many, ..ParsedMail::default() });
        assert_eq!((found.len(), found[0].as_str(), found[20].as_str()), (21, "<4999>", "<0>"));
    }

    #[test]
    fn a_mail_without_an_id_always_gets_the_same_one() {
        let mail = |id: Option<&str>| ParsedMail { message_id: id.map(str::to_owned), ..ParsedMail::default() };
        assert_eq!(own_id(&mail(Some("<a@b>")), "header"), "<a@b>");
        let made = own_id(&mail(None), "header");
        assert!(made.ends_with("@daoyou.invalid>"), "{made}");
        assert_eq!(made, own_id(&mail(Some("<a b>")), "header"));
        assert_eq!(made, own_id(&mail(Some(&format!("<{}@b>", "x".repeat(MAX_ID)))), "header"));
        assert_ne!(made, own_id(&mail(None), "another"));
    }

    #[test]
    fn people_are_bounded() {
        let mut state = ThreadState::default();
        state.join("ann", (0..500).map(|n| format!("p{n}")), "subject");
        state.join("p3", ["p4".to_owned()], "other");
        assert_eq!((state.people.len(), state.subject.as_str(), state.last.as_str()), (MAX_PEOPLE, "other", "p3"));
        assert!(state.includes("ann") && state.includes("p3"));
    }
}
