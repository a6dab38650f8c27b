//! Which conversation a mail belongs to.
//!
//! A thread is named by its root, a Message-ID. A mail says by its References and In-Reply-To what it answers (RFC 5322,
//! section 3.6.4), and anybody may write any id there. So a mail gets into a thread that is known only if its sender
//! takes part in it: wrote, or got, an earlier mail of it. Whoever names a thread of others begins one of his own.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::letter::Letter;

/// The longest Message-ID that is used; others are as none at all. With the longest address it still fits into an
/// external id.
const MAX_ID: usize = 400;
/// Ids of one mail that are looked up, from the newest back, and the oldest.
const MAX_CANDIDATES: usize = 20;
/// People of one thread that are remembered.
const MAX_PEOPLE: usize = 50;
/// How often an answer may have been answered before its subject.
const MAX_PREFIXES: usize = 20;

/// What begins the subject of an answer, in lower case.
const REPLY: &[&str] = &[
    "re", "aw", "antw", "sv", "vs", "odp", "ynt", "res", "rif", "回复", "回覆", "回復", "答复", "答覆", "返信", "답장",
];
/// What begins the subject of a mail that is handed on.
const FORWARD: &[&str] = &["fw", "fwd", "wg", "tr", "rv", "enc", "vb", "vl", "doorst", "转发", "轉發", "转寄", "轉寄"];

/// What is kept of a thread.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Talk {
    /// Plain addresses, in the form in which they are compared.
    pub people: Vec<String>,
    /// Of the newest mail, as [`Subject::core`].
    pub subject: String,
    /// Who wrote the newest mail.
    pub last: String,
}

impl Talk {
    /// Whether somebody takes part.
    pub fn has(&self, address: &str) -> bool {
        self.people.iter().any(|known| known == address)
    }

    /// Takes in a mail's sender and those who got it.
    pub fn join(&mut self, sender: &str, others: impl IntoIterator<Item = String>, subject: &str) {
        for address in std::iter::once(sender.to_owned()).chain(others) {
            if self.people.len() < MAX_PEOPLE && !self.has(&address) {
                self.people.push(address);
            }
        }
        subject.clone_into(&mut self.subject);
        sender.clone_into(&mut self.last);
    }
}

/// An id that a mail names, and the thread that it is known to be of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Named {
    pub id: String,
    pub thread: Option<Known>,
}

/// A thread that is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Known {
    pub root: String,
    pub talk: Talk,
}

/// Where a mail belongs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    pub root: String,
    /// Empty for a thread that begins.
    pub talk: Talk,
    pub is_new: bool,
}

impl Place {
    fn in_known(known: &Known) -> Self {
        Self { root: known.root.clone(), talk: known.talk.clone(), is_new: false }
    }

    fn of_its_own(root: String) -> Self {
        Self { root, talk: Talk::default(), is_new: true }
    }
}

/// Finds the thread of a mail of `sender`. `own` is its own id, `named` what it names, the newest first, `by_subject`
/// the thread that its subject would belong to, which counts only where no id is named.
pub fn place(sender: &str, own: &Named, named: &[Named], by_subject: Option<&Known>) -> Place {
    let known = || named.iter().filter_map(|named| named.thread.as_ref());
    if let Some(thread) = known().find(|thread| thread.talk.has(sender)) {
        return Place::in_known(thread);
    }
    // An answer may come before what it answers, and then has named the thread already.
    if let Some(thread) = &own.thread {
        if thread.talk.has(sender) {
            return Place::in_known(thread);
        }
        return Place::of_its_own(made_id(&[&own.id, sender]));
    }
    if known().next().is_some() {
        return Place::of_its_own(own.id.clone());
    }
    if let Some(oldest) = named.last() {
        return Place::of_its_own(oldest.id.clone());
    }
    match by_subject {
        Some(thread) if thread.talk.has(sender) => Place::in_known(thread),
        _ => Place::of_its_own(own.id.clone()),
    }
}

/// The ids that a mail names as what it answers, the newest first, each once; the last is the oldest of References.
pub fn named_ids(letter: &Letter) -> Vec<String> {
    let mut ids: Vec<String> = Vec::new();
    let all = letter.in_reply_to.iter().chain(letter.references.iter().rev());
    for id in all.filter(|id| is_usable(id)) {
        if !ids.contains(id) && ids.len() < MAX_CANDIDATES {
            ids.push(id.clone());
        }
    }
    // RFC 5322 has the thread's beginning first.
    if let Some(oldest) = letter.references.iter().find(|id| is_usable(id)) {
        ids.retain(|id| id != oldest);
        ids.push(oldest.clone());
    }
    ids
}

/// A mail's own Message-ID; one made of its `header`, which is the same wherever the mail lies, where it has none that
/// can be used.
pub fn own_id(letter: &Letter, header: &str) -> String {
    let written = letter.message_id.as_ref().filter(|id| is_usable(id));
    written.cloned().unwrap_or_else(|| made_id(&[header]))
}

/// `<left@right>` of reasonable length, without white space.
fn is_usable(id: &str) -> bool {
    let inner = id.strip_prefix('<').and_then(|id| id.strip_suffix('>')).unwrap_or_default();
    let is_odd = |c: char| c.is_whitespace() || c.is_control() || matches!(c, '<' | '>');
    !inner.is_empty() && id.len() <= MAX_ID && !inner.chars().any(is_odd)
}

fn made_id(parts: &[&str]) -> String {
    format!("<{}@daoyou.invalid>", hash(parts))
}

/// A short name for `parts`, in hex.
pub fn hash(parts: &[&str]) -> String {
    let mut hasher = Sha256::new();
    for part in parts {
        hasher.update(part.len().to_be_bytes());
        hasher.update(part.as_bytes());
    }
    hasher.finalize().iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}

/// A subject without what answering and handing on have put before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject {
    /// In lower case, with single spaces: to compare.
    pub core: String,
    pub is_reply: bool,
}

impl Subject {
    pub fn of(written: &str) -> Self {
        let mut rest = written.trim();
        let mut is_reply = false;
        for _ in 0..MAX_PREFIXES {
            let Some((word, behind)) = prefix(rest) else { break };
            is_reply |= REPLY.contains(&word.as_str());
            rest = behind;
        }
        let core = rest.split_whitespace().collect::<Vec<_>>().join(" ").to_lowercase();
        Self { core, is_reply }
    }
}

/// `Re:`, `Re[2]:`, `AW :`, `回复：`, and what stands behind.
fn prefix(subject: &str) -> Option<(String, &str)> {
    let (before, behind) = subject.split_once([':', '：'])?;
    let word = before.split(['[', '(', '^']).next().unwrap_or_default().trim().to_lowercase();
    let counter = before.trim_end().trim_start_matches(|c| !matches!(c, '[' | '(' | '^'));
    let is_counter = counter.chars().all(|c| c.is_ascii_digit() || matches!(c, '[' | ']' | '(' | ')' | '^'));
    let is_known = REPLY.contains(&word.as_str()) || FORWARD.contains(&word.as_str());
    (is_known && is_counter).then(|| (word, behind.trim_start()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn talk(people: &[&str]) -> Talk {
        Talk { people: people.iter().map(|p| (*p).to_owned()).collect(), ..Talk::default() }
    }

    fn named(id: &str, thread: Option<(&str, &[&str])>) -> Named {
        let thread = thread.map(|(root, people)| Known { root: root.to_owned(), talk: talk(people) });
        Named { id: id.to_owned(), thread }
    }

    #[test]
    fn a_mail_gets_into_threads_of_its_sender_alone() {
        const ANN: &str = "ann@a.test";
        let ours: &[&str] = &[ANN, "bob@a.test"];
        let theirs: &[&str] = &["eve@a.test"];
        let own = named("<own>", None);
        let by_subject = Known { root: "<s>".to_owned(), talk: talk(ours) };
        let strange = Known { root: "<s>".to_owned(), talk: talk(theirs) };
        let table: &[(&str, &Named, &[Named], Option<&Known>, &str, bool)] = &[
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
            let place = place(ANN, own, ids, *subject);
            let made = made_id(&["<own>", ANN]);
            let root = if root.is_empty() { made.as_str() } else { root };
            assert_eq!((place.root.as_str(), place.is_new), (root, *is_new), "{what}");
        }
    }

    #[test]
    fn ids_are_taken_from_the_newest_back() {
        let ids = |ids: &[&str]| ids.iter().map(|id| (*id).to_owned()).collect::<Vec<_>>();
        let letter = |references: &[&str], in_reply_to: &[&str]| Letter {
            references: ids(references),
            in_reply_to: ids(in_reply_to),
            ..Letter::default()
        };
        for (references, in_reply_to, expected) in [
            (&["<1>", "<2>", "<3>"] as &[&str], &["<3>"] as &[&str], &["<3>", "<2>", "<1>"] as &[&str]),
            (&[], &["<3>"], &["<3>"]),
            (&["<1>"], &["<9>"], &["<9>", "<1>"]),
            (&["<1>"], &["<1>"], &["<1>"]),
            (&["no id", "<a b>", "<>", "<1>"], &["x"], &["<1>"]),
            (&[], &[], &[]),
        ] {
            assert_eq!(named_ids(&letter(references, in_reply_to)), ids(expected), "{references:?}");
        }
        let many: Vec<String> = (0..5_000).map(|n| format!("<{n}>")).collect();
        let found = named_ids(&Letter { references: many, ..Letter::default() });
        assert_eq!((found.len(), found[0].as_str(), found[20].as_str()), (21, "<4999>", "<0>"));
    }

    #[test]
    fn a_mail_without_an_id_has_always_the_same_one() {
        let letter = |id: Option<&str>| Letter { message_id: id.map(str::to_owned), ..Letter::default() };
        assert_eq!(own_id(&letter(Some("<a@b>")), "header"), "<a@b>");
        let made = own_id(&letter(None), "header");
        assert!(made.ends_with("@daoyou.invalid>"), "{made}");
        assert_eq!(made, own_id(&letter(Some("<a b>")), "header"));
        assert_eq!(made, own_id(&letter(Some(&format!("<{}@b>", "x".repeat(MAX_ID)))), "header"));
        assert_ne!(made, own_id(&letter(None), "another"));
    }

    #[test]
    fn subjects_are_known_again() {
        for (written, core, is_reply) in [
            ("Lunch", "lunch", false),
            ("Re: Lunch", "lunch", true),
            ("RE: re : AW: Lunch  today", "lunch today", true),
            ("Re[2]: Lunch", "lunch", true),
            ("回复：午饭", "午饭", true),
            ("答复: 转发: 午饭", "午饭", true),
            ("Fwd: Lunch", "lunch", false),
            ("WG: Lunch", "lunch", false),
            ("SV: Lunch", "lunch", true),
            ("Regarding: Lunch", "regarding: lunch", false),
            ("Re: 12:30", "12:30", true),
            ("Re:", "", true),
            ("", "", false),
        ] {
            assert_eq!(Subject::of(written), Subject { core: core.to_owned(), is_reply }, "{written}");
        }
    }

    #[test]
    fn people_are_bounded() {
        let mut talk = Talk::default();
        talk.join("ann", (0..500).map(|n| format!("p{n}")), "subject");
        talk.join("p3", ["p4".to_owned()], "other");
        assert_eq!((talk.people.len(), talk.subject.as_str(), talk.last.as_str()), (MAX_PEOPLE, "other", "p3"));
        assert!(talk.has("ann") && talk.has("p3"));
    }
}
