//! Finds the thread that a mail belongs to.
//!
//! The root of a thread, a Message-ID, names the thread. A mail names the mails that it answers in References and
//! In-Reply-To (RFC 5322, section 3.6.4), and anybody may write any id there. Therefore a mail joins a known thread only if
//! its sender is a participant, i.e. got all earlier replies of the thread. A mail that references the thread of other people
//! begins a new thread. Thus no turn sees an answer that its sender did not get.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::config::NAME;
use super::mail::ParsedMail;
use super::message_id::is_message_id;
use crate::message::SessionKey;
use crate::text::hex;

/// The maximum number of ids of one mail that are looked up: the newest ones and the oldest.
const MAX_CANDIDATES: usize = 20;
/// The maximum number of participants stored for one thread.
const MAX_PEOPLE: usize = 50;

/// The stored state of a thread.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ThreadState {
    /// The addresses of the participants, in the form in which they are compared. The first one began the thread, or got the
    /// gateway's mail that began it.
    pub people: Vec<String>,
    /// [`BaseSubject::core`] of the newest mail.
    pub subject: String,
    /// The sender of the newest mail.
    pub last: String,
    /// The chat to which the gateway sent the mail that began the thread; empty if a person began the thread.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub chat: String,
}

/// The sender of a mail and the addresses that get the reply to it, in the form in which they are compared.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Correspondents {
    pub sender: String,
    pub readers: Vec<String>,
}

impl Correspondents {
    fn includes(&self, address: &str) -> bool {
        self.sender == address || self.readers.iter().any(|reader| reader == address)
    }
}

impl ThreadState {
    /// Returns the state of a thread that the gateway began with a mail to `address`, in the chat `chat`.
    pub fn begun_by_gateway(address: &str, chat: String) -> Self {
        Self { people: vec![address.to_owned()], chat, ..Self::default() }
    }

    /// Returns true if a mail may join the thread: its sender is a participant, and its reply also goes to the person who began
    /// the thread. Otherwise a participant could end that person's conversation.
    pub fn admits(&self, mail: &Correspondents) -> bool {
        self.people.contains(&mail.sender) && self.people.first().is_some_and(|first| mail.includes(first))
    }

    /// Records a mail of the thread. Participants who do not get its reply leave the thread; new ones come only with its first mail.
    pub fn join(&mut self, mail: &Correspondents, subject: &str) {
        if self.people.is_empty() {
            for address in std::iter::once(&mail.sender).chain(&mail.readers) {
                if self.people.len() < MAX_PEOPLE && !self.people.contains(address) {
                    self.people.push(address.clone());
                }
            }
        }
        self.people.retain(|known| mail.includes(known));
        subject.clone_into(&mut self.subject);
        self.last.clone_from(&mail.sender);
    }
}

/// An id that a mail references, with the known thread of that id.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReferencedId {
    pub id: String,
    pub thread: Option<MailThread>,
}

/// A thread, known or new.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MailThread {
    pub root: String,
    /// The state of the thread; empty for a new thread.
    pub state: ThreadState,
}

impl MailThread {
    fn new(root: String) -> Self {
        Self { root, state: ThreadState::default() }
    }

    /// Returns true if a thread that [`match_thread`] returned begins with this mail. A mail joins only threads with participants.
    pub fn is_new(&self) -> bool {
        self.state.people.is_empty()
    }

    /// Returns the session of the thread. A thread that the gateway began belongs to the session of the chat.
    pub fn session(&self) -> SessionKey {
        SessionKey::of_chat(NAME, if self.state.chat.is_empty() { &self.root } else { &self.state.chat })
    }
}

/// Finds the thread of a mail. `own` is the mail's own id; `named` are the ids that it references, newest first.
/// `by_subject` is the thread with the same subject, which counts only if the mail references no id.
pub fn match_thread(
    mail: &Correspondents,
    own: &ReferencedId,
    named: &[ReferencedId],
    by_subject: Option<&MailThread>,
) -> MailThread {
    let known = || named.iter().filter_map(|named| named.thread.as_ref());
    if let Some(thread) = known().find(|thread| thread.state.admits(mail)) {
        return thread.clone();
    }
    // A reply may arrive before the mail that it answers. It has then already named the thread.
    if let Some(thread) = &own.thread {
        if thread.state.admits(mail) {
            return thread.clone();
        }
        return MailThread::new(made_id(&[&own.id, &mail.sender]));
    }
    if known().next().is_some() {
        return MailThread::new(own.id.clone());
    }
    if let Some(oldest) = named.last() {
        return MailThread::new(oldest.id.clone());
    }
    match by_subject {
        Some(thread) if thread.state.admits(mail) => thread.clone(),
        _ => MailThread::new(own.id.clone()),
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
        let thread = thread.map(|(root, people)| MailThread { root: root.to_owned(), state: state(people) });
        ReferencedId { id: id.to_owned(), thread }
    }

    #[test]
    fn a_mail_joins_only_threads_of_its_sender() {
        const ANN: &str = "ann@a.test";
        let ours: &[&str] = &[ANN, "bob@a.test"];
        let theirs: &[&str] = &["eve@a.test"];
        let own = named("<own>", None);
        let by_subject = MailThread { root: "<s>".to_owned(), state: state(ours) };
        let strange = MailThread { root: "<s>".to_owned(), state: state(theirs) };
        type Row<'a> = (&'a str, &'a ReferencedId, &'a [ReferencedId], Option<&'a MailThread>, &'a str, bool);
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
            let mail = Correspondents { sender: ANN.to_owned(), readers: vec![ANN.to_owned()] };
            let place = match_thread(&mail, own, ids, *subject);
            let made = made_id(&["<own>", ANN]);
            let root = if root.is_empty() { made.as_str() } else { root };
            assert_eq!((place.root.as_str(), place.is_new()), (root, *is_new), "{what}");
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
    fn participants_are_bounded_and_get_every_reply() {
        let mail = |sender: &str, readers: &[&str]| Correspondents {
            sender: sender.to_owned(),
            readers: readers.iter().map(|reader| (*reader).to_owned()).collect(),
        };
        let crowd: Vec<String> = (0..500).map(|n| format!("p{n}")).collect();
        let mut state = ThreadState::default();
        state.join(&Correspondents { sender: "ann".to_owned(), readers: crowd }, "subject");
        assert_eq!((state.people.len(), state.people[0].as_str()), (MAX_PEOPLE, "ann"));
        state.join(&mail("p3", &["ann", "p3", "p4", "new"]), "other");
        assert_eq!(
            (state.people.join(" "), state.subject.as_str(), state.last.as_str()),
            ("ann p3 p4".into(), "other", "p3")
        );
        for (from, readers, is_admitted) in [
            ("ann", &["ann"] as &[&str], true),
            ("p4", &["p4", "ann"], true),
            ("p4", &["p4"], false),
            ("new", &["new", "ann"], false),
            ("p5", &["p5", "ann"], false),
        ] {
            assert_eq!(state.admits(&mail(from, readers)), is_admitted, "{from} {readers:?}");
        }
        state.join(&mail("ann", &["desk"]), "other");
        assert_eq!(state.people, ["ann"], "a sender whose replies go elsewhere stays");
    }
}
