//! Builds the context of a reply from the answered mail.

use crate::email::address::EmailAddress;
use crate::email::mail::{NamedAddress, ParsedMail, ReplyContext, ReplyQuote};
use crate::email::smtp::mailbox;
use crate::text::{one_line, truncate};

/// The maximum number of recipients of a reply. A mail must not make the gateway write to many people.
const MAX_TO: usize = 5;
const MAX_CC: usize = 50;
/// The maximum number of ids of References: the oldest, and the newest ones.
const MAX_REFERENCES: usize = 100;
const MAX_SUBJECT: usize = 500;
/// The longest quotation, in characters.
const MAX_QUOTE: usize = 600;
const MAX_QUOTE_LINES: usize = 8;

/// Returns the reply context of `mail`. `own` is the account's address, which gets no copy. The reply goes to the addresses
/// in Reply-To that `may_get` permits, or else to From.
pub fn reply_context(
    mail: &ParsedMail,
    own: Option<&EmailAddress>,
    may_get: impl Fn(&EmailAddress) -> bool,
    quotes: bool,
) -> ReplyContext {
    let is_other = |mailbox: &&NamedAddress| {
        EmailAddress::parse(&mailbox.address).is_some_and(|a| own.is_none_or(|own| own.untagged() != a.untagged()))
    };
    let is_wanted =
        |mailbox: &&NamedAddress| EmailAddress::parse(&mailbox.address).is_some_and(|address| may_get(&address));
    let mut to: Vec<&NamedAddress> = mail.reply_to.iter().filter(is_other).filter(is_wanted).take(MAX_TO).collect();
    if to.is_empty() {
        to = mail.from.iter().filter(is_other).take(MAX_TO).collect();
    }
    let mut cc: Vec<&NamedAddress> = Vec::new();
    for mailbox in mail.to.iter().chain(&mail.cc).filter(is_other) {
        let is_same =
            |other: &&NamedAddress| EmailAddress::parse(&other.address) == EmailAddress::parse(&mailbox.address);
        if cc.len() < MAX_CC && !to.iter().chain(&cc).any(is_same) {
            cc.push(mailbox);
        }
    }
    ReplyContext {
        message_id: mail.message_id.clone().unwrap_or_default(),
        references: references(mail),
        subject: truncate(&one_line(&mail.subject), MAX_SUBJECT),
        to: to.into_iter().map(format_mailbox).collect(),
        cc: cc.into_iter().map(format_mailbox).collect(),
        quote: quotes.then(|| quote(mail)).flatten(),
    }
}

/// Returns the addresses that get a reply with this context, in the form in which they are compared.
pub fn readers(context: &ReplyContext, replies_to_all: bool) -> Vec<String> {
    let copies = if replies_to_all { &context.cc[..] } else { &[] };
    let address = |written: &String| {
        let address = EmailAddress::parse(mailbox(written).ok()?.email.as_ref())?;
        Some(address.as_str().to_owned())
    };
    context.to.iter().chain(copies).filter_map(address).collect()
}

/// Returns true if a mail requests its reply at an address other than its sender's.
pub fn replies_elsewhere(mail: &ParsedMail, sender: &str) -> bool {
    mail.reply_to
        .iter()
        .any(|mailbox| EmailAddress::parse(&mailbox.address).is_none_or(|address| address.as_str() != sender))
}

/// Returns the whole chain of references (RFC 5322, section 3.6.4). Without References, a single In-Reply-To replaces it.
fn references(mail: &ParsedMail) -> Vec<String> {
    let chain = match (&mail.references[..], &mail.in_reply_to[..]) {
        ([], [one]) => std::slice::from_ref(one),
        (references, _) => references,
    };
    let newest = chain.len().saturating_sub(MAX_REFERENCES - 1).max(1);
    chain.iter().take(1).chain(chain.iter().skip(newest)).cloned().collect()
}

/// Formats a mailbox for a header. A name with special characters is quoted (RFC 5322, section 3.4).
fn format_mailbox(mailbox: &NamedAddress) -> String {
    let name = truncate(&one_line(&mailbox.name), 100);
    if name.is_empty() {
        return mailbox.address.clone();
    }
    let is_plain = |c: char| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_' | '\'');
    if name.chars().all(is_plain) {
        return format!("{name} <{}>", mailbox.address);
    }
    format!("\"{}\" <{}>", name.replace('\\', "\\\\").replace('"', "\\\""), mailbox.address)
}

fn quote(mail: &ParsedMail) -> Option<ReplyQuote> {
    let mut text = String::new();
    for line in mail.text.trim().lines().take(MAX_QUOTE_LINES) {
        let room = MAX_QUOTE.saturating_sub(text.chars().count());
        if line.chars().count() > room {
            text.extend(line.chars().take(room));
            text.push('…');
            break;
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    let from = mail.from.first()?;
    let date = mail.date.map(|date| date.to_string()).unwrap_or_default();
    let text = text.trim_end().to_owned();
    (!text.is_empty()).then(|| ReplyQuote { from: format_mailbox(from), date, text })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn people(written: &[(&str, &str)]) -> Vec<NamedAddress> {
        written
            .iter()
            .map(|(name, address)| NamedAddress { name: (*name).into(), address: (*address).into() })
            .collect()
    }

    #[test]
    fn a_reply_goes_to_permitted_addresses() {
        let own = EmailAddress::parse("dao@example.net");
        let anybody = |_: &EmailAddress| true;
        let mut mail = ParsedMail {
            message_id: Some("<2@a>".to_owned()),
            in_reply_to: vec!["<1@a>".to_owned()],
            from: people(&[("Ann", "ann@example.org")]),
            to: people(&[("", "dao+x@example.net"), ("Doe, \"J\"", "doe@example.org"), ("", "ann@example.org")]),
            cc: people(&[("", "DOE@example.org"), ("张三", "zhang@example.org")]),
            subject: "Lunch\r\nBcc: x".to_owned(),
            text: "Hello,\n\nlunch?".to_owned(),
            ..ParsedMail::default()
        };
        let answer = reply_context(&mail, own.as_ref(), anybody, true);
        assert_eq!(answer.to, ["Ann <ann@example.org>"]);
        assert_eq!(answer.cc, ["\"Doe, \\\"J\\\"\" <doe@example.org>", "张三 <zhang@example.org>"]);
        assert_eq!(readers(&answer, false), ["ann@example.org"]);
        assert_eq!(readers(&answer, true), ["ann@example.org", "doe@example.org", "zhang@example.org"]);
        assert_eq!((answer.subject.as_str(), &answer.references[..]), ("Lunch Bcc: x", &["<1@a>".to_owned()][..]));
        assert_eq!(answer.quote.unwrap().text, "Hello,\n\nlunch?");

        mail.reply_to = people(&[("", "list@example.org"), ("", "dao@example.net")]);
        mail.references = (0..300).map(|n| format!("<{n}@a>")).collect();
        let answer = reply_context(&mail, own.as_ref(), anybody, false);
        assert_eq!((answer.to, answer.quote), (vec!["list@example.org".to_owned()], None));
        assert_eq!(answer.references.len(), MAX_REFERENCES);
        assert_eq!(
            [&answer.references[0], &answer.references[1], &answer.references[99]],
            ["<0@a>", "<201@a>", "<299@a>"]
        );

        mail.reply_to = people(&[("", "dao@example.net")]);
        assert_eq!(
            reply_context(&mail, own.as_ref(), anybody, false).to,
            ["Ann <ann@example.org>"],
            "not to ourselves"
        );

        let one = |address: &EmailAddress| address.as_str() == "list@example.org";
        for (reply_to, expected) in [
            (&["eve@evil.test"] as &[&str], "Ann <ann@example.org>"),
            (&["eve@evil.test", "list@example.org"], "list@example.org"),
            (&[], "Ann <ann@example.org>"),
        ] {
            mail.reply_to = people(&reply_to.iter().map(|address| ("", *address)).collect::<Vec<_>>());
            assert_eq!(reply_context(&mail, own.as_ref(), one, false).to, [expected], "{reply_to:?}");
        }
    }
}
