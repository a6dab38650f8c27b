//! What a reply needs to know of the mail that it answers.

use crate::email::answering::{Answering, Quote};
use crate::email::judge::Address;
use crate::email::letter::{Letter, Mailbox};

/// Who a reply goes to, at most: a mail cannot make us write to crowds.
const MAX_TO: usize = 5;
const MAX_CC: usize = 50;
/// Ids of References that are kept: the oldest, and the newest.
const MAX_REFERENCES: usize = 100;
const MAX_SUBJECT: usize = 500;
/// How much is quoted.
const MAX_QUOTE: usize = 600;
const MAX_QUOTE_LINES: usize = 8;

/// What is kept of `letter`; `own` is the account's address, which gets no copies. Of Reply-To those count who `may_get`
/// the answer; without any it goes to From.
pub fn answering(
    letter: &Letter,
    own: Option<&Address>,
    may_get: impl Fn(&Address) -> bool,
    quotes: bool,
) -> Answering {
    let is_other = |mailbox: &&Mailbox| {
        Address::parse(&mailbox.address).is_some_and(|a| own.is_none_or(|own| own.untagged() != a.untagged()))
    };
    let is_wanted = |mailbox: &&Mailbox| Address::parse(&mailbox.address).is_some_and(|address| may_get(&address));
    let mut to: Vec<&Mailbox> = letter.reply_to.iter().filter(is_other).filter(is_wanted).take(MAX_TO).collect();
    if to.is_empty() {
        to = letter.from.iter().filter(is_other).take(MAX_TO).collect();
    }
    let mut cc: Vec<&Mailbox> = Vec::new();
    for mailbox in letter.to.iter().chain(&letter.cc).filter(is_other) {
        let is_same = |other: &&Mailbox| Address::parse(&other.address) == Address::parse(&mailbox.address);
        if cc.len() < MAX_CC && !to.iter().chain(&cc).any(is_same) {
            cc.push(mailbox);
        }
    }
    Answering {
        message_id: letter.message_id.clone().unwrap_or_default(),
        references: references(letter),
        subject: line(&letter.subject, MAX_SUBJECT),
        to: to.into_iter().map(written).collect(),
        cc: cc.into_iter().map(written).collect(),
        quote: quotes.then(|| quote(letter)).flatten(),
    }
}

/// Whether a mail wants its answer to go to somebody else than its sender.
pub fn leads_elsewhere(letter: &Letter, sender: &str) -> bool {
    letter
        .reply_to
        .iter()
        .any(|mailbox| Address::parse(&mailbox.address).is_none_or(|address| address.as_str() != sender))
}

/// `text` in one line of at most `limit` characters, without anything that a terminal or a header would act upon.
pub fn line(text: &str, limit: usize) -> String {
    let words = text.split(|c: char| c.is_whitespace() || c.is_control()).filter(|word| !word.is_empty());
    let joined = words.collect::<Vec<_>>().join(" ");
    match joined.char_indices().nth(limit) {
        Some((end, _)) => format!("{}…", &joined[..end]),
        None => joined,
    }
}

/// The whole chain (RFC 5322, section 3.6.4): without References a lone In-Reply-To stands for it.
fn references(letter: &Letter) -> Vec<String> {
    let chain = match (&letter.references[..], &letter.in_reply_to[..]) {
        ([], [one]) => std::slice::from_ref(one),
        (references, _) => references,
    };
    let newest = chain.len().saturating_sub(MAX_REFERENCES - 1).max(1);
    chain.iter().take(1).chain(chain.iter().skip(newest)).cloned().collect()
}

/// As a header writes it: the name quoted where it has more than words (RFC 5322, section 3.4).
fn written(mailbox: &Mailbox) -> String {
    let name = line(&mailbox.name, 100);
    if name.is_empty() {
        return mailbox.address.clone();
    }
    let is_plain = |c: char| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_' | '\'');
    if name.chars().all(is_plain) {
        return format!("{name} <{}>", mailbox.address);
    }
    format!("\"{}\" <{}>", name.replace('\\', "\\\\").replace('"', "\\\""), mailbox.address)
}

fn quote(letter: &Letter) -> Option<Quote> {
    let mut text = String::new();
    for line in letter.text.trim().lines().take(MAX_QUOTE_LINES) {
        let room = MAX_QUOTE.saturating_sub(text.chars().count());
        if line.chars().count() > room {
            text.extend(line.chars().take(room));
            text.push('…');
            break;
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    let from = letter.from.first()?;
    let date = letter.date.map(|date| date.to_string()).unwrap_or_default();
    let text = text.trim_end().to_owned();
    (!text.is_empty()).then(|| Quote { from: written(from), date, text })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn people(written: &[(&str, &str)]) -> Vec<Mailbox> {
        written.iter().map(|(name, address)| Mailbox { name: (*name).into(), address: (*address).into() }).collect()
    }

    #[test]
    fn a_reply_goes_where_it_is_wanted() {
        let own = Address::parse("dao@example.net");
        let anybody = |_: &Address| true;
        let mut letter = Letter {
            message_id: Some("<2@a>".to_owned()),
            in_reply_to: vec!["<1@a>".to_owned()],
            from: people(&[("Ann", "ann@example.org")]),
            to: people(&[("", "dao+x@example.net"), ("Doe, \"J\"", "doe@example.org"), ("", "ann@example.org")]),
            cc: people(&[("", "DOE@example.org"), ("张三", "zhang@example.org")]),
            subject: "Lunch\r\nBcc: x".to_owned(),
            text: "Hello,\n\nlunch?".to_owned(),
            ..Letter::default()
        };
        let answer = answering(&letter, own.as_ref(), anybody, true);
        assert_eq!(answer.to, ["Ann <ann@example.org>"]);
        assert_eq!(answer.cc, ["\"Doe, \\\"J\\\"\" <doe@example.org>", "张三 <zhang@example.org>"]);
        assert_eq!((answer.subject.as_str(), &answer.references[..]), ("Lunch Bcc: x", &["<1@a>".to_owned()][..]));
        assert_eq!(answer.quote.unwrap().text, "Hello,\n\nlunch?");

        letter.reply_to = people(&[("", "list@example.org"), ("", "dao@example.net")]);
        letter.references = (0..300).map(|n| format!("<{n}@a>")).collect();
        let answer = answering(&letter, own.as_ref(), anybody, false);
        assert_eq!((answer.to, answer.quote), (vec!["list@example.org".to_owned()], None));
        assert_eq!(answer.references.len(), MAX_REFERENCES);
        assert_eq!(
            [&answer.references[0], &answer.references[1], &answer.references[99]],
            ["<0@a>", "<201@a>", "<299@a>"]
        );

        letter.reply_to = people(&[("", "dao@example.net")]);
        assert_eq!(answering(&letter, own.as_ref(), anybody, false).to, ["Ann <ann@example.org>"], "not to ourselves");

        let one = |address: &Address| address.as_str() == "list@example.org";
        for (reply_to, expected) in [
            (&["eve@evil.test"] as &[&str], "Ann <ann@example.org>"),
            (&["eve@evil.test", "list@example.org"], "list@example.org"),
            (&[], "Ann <ann@example.org>"),
        ] {
            letter.reply_to = people(&reply_to.iter().map(|address| ("", *address)).collect::<Vec<_>>());
            assert_eq!(answering(&letter, own.as_ref(), one, false).to, [expected], "{reply_to:?}");
        }
    }
}
