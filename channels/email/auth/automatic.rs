//! Detects automatic mail. The gateway never answers it, so that two machines never write to each other (RFC 3834, section 2).

use crate::email::address::EmailAddress;
use crate::email::mail::ParsedMail;
use crate::email::message_id::own_message_id;
use crate::text::{one_line, truncate};

/// The number of `Received` above which a mail loops. RFC 5321, section 6.3 asks for at least 100; real mails pass about ten servers.
const MAX_HOPS: usize = 50;
/// The number of fields above which a header may hide something: the parser reads at most a thousand fields.
const MAX_FIELDS: usize = 900;

/// Local parts of automatic senders, without separators.
const MACHINE_NAMES: &[&str] =
    &["postmaster", "bounce", "bounces", "autoreply", "autoresponder", "listserv", "majordomo"];
/// Prefixes of local parts of automatic senders, as in `noreply-7f3a`.
const MACHINE_PREFIXES: &[&str] = &["noreply", "donotreply", "mailerdaemon"];

/// Returns the reason why a mail is not answered, whoever wrote it; `None` for a mail that a person may have written. `own`
/// is the account's address; `sender` is the address in From, if there is one.
///
/// `Feedback-ID` is not a sign: some services put it into every mail that they forward, even into personal mail.
pub fn automatic_reason(
    mail: &ParsedMail,
    sender: Option<&EmailAddress>,
    own: Option<&EmailAddress>,
) -> Option<String> {
    by_sender(sender, own).or_else(|| by_id(mail)).or_else(|| by_kind(mail)).or_else(|| by_headers(mail))
}

fn by_sender(sender: Option<&EmailAddress>, own: Option<&EmailAddress>) -> Option<String> {
    let sender = sender?;
    if own.is_some_and(|own| own.untagged() == sender.untagged()) {
        return Some("it comes from our own address".to_owned());
    }
    let joined = |text: &str| text.chars().filter(|c| !matches!(c, '-' | '_' | '.')).collect::<String>();
    let name = joined(sender.local());
    let first = sender.local().split(['+', '-', '=', '.']).next().unwrap_or_default();
    let is_machine = MACHINE_NAMES.contains(&name.as_str())
        || MACHINE_NAMES.contains(&first)
        || MACHINE_PREFIXES.iter().any(|begin| name.starts_with(begin));
    is_machine.then(|| format!("{sender} is a machine's address"))
}

/// Detects mail of this or another daoyou gateway by its Message-ID, since a server on the way may have removed its other
/// marks. No mail program of a person makes such an id.
fn by_id(mail: &ParsedMail) -> Option<String> {
    let id = mail.message_id.as_deref()?;
    own_message_id(id).map(|_| format!("a daoyou wrote it: Message-ID {id}"))
}

/// Detects reports about other mail (RFC 6522), delivery status notifications (RFC 3464) and receipts (RFC 8098).
fn by_kind(mail: &ParsedMail) -> Option<String> {
    const REPORTS: [&str; 4] =
        ["multipart/report", "message/delivery-status", "message/disposition-notification", "message/feedback-report"];
    let kind = word(mail.header("content-type").next()?);
    REPORTS.contains(&kind.as_str()).then(|| format!("it is a report: Content-Type {kind}"))
}

fn by_headers(mail: &ParsedMail) -> Option<String> {
    let hops = mail.header("received").count();
    if hops > MAX_HOPS {
        return Some(format!("it went round in circles: {hops} Received fields"));
    }
    if mail.headers.len() > MAX_FIELDS {
        return Some(format!("its header has {} fields", mail.headers.len()));
    }
    // Exchange also marks its automatic mail with Auto-Submitted, and Outlook may set the suppress field in personal mail.
    let from_outlook = mail.header("thread-index").next().is_some();
    mail.headers.iter().find_map(|(name, value)| {
        is_mark(name, value, from_outlook)
            .then(|| format!("it is automatic mail: {name}: {}", truncate(&one_line(value), 60)))
    })
}

fn is_mark(name: &str, value: &str, from_outlook: bool) -> bool {
    let word = word(value);
    match name {
        // RFC 3834, section 5.
        "auto-submitted" => word != "no",
        "return-path" => value.chars().filter(|c| !c.is_whitespace()).eq("<>".chars()),
        "precedence" => matches!(word.as_str(), "bulk" | "list" | "junk" | "auto_reply"),
        "x-spam-flag" => word == "yes",
        // The field asks machines not to answer (MS-OXCMAIL, section 2.2.3.2.14).
        "x-auto-response-suppress" => {
            let asks = |word: &str| matches!(word.trim().to_ascii_lowercase().as_str(), "all" | "autoreply");
            !from_outlook && value.split(',').any(asks)
        }
        "x-loop"
        | "x-failed-recipients"
        | "mailing-list"
        | "x-mailing-list"
        | "x-autoreply-from"
        | "x-mail-autoreply" => true,
        "x-autoreply" | "x-autorespond" | "x-autoresponse" | "x-autoresponder" | "x-auto-reply" => word != "no",
        // RFC 2369, RFC 2919.
        _ => name.starts_with("list-"),
    }
}

/// Returns the first word of a field, in lower case, without comments and parameters.
fn word(value: &str) -> String {
    let mut depth = 0_usize;
    let mut word = String::new();
    for c in value.chars() {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ if depth > 0 => {}
            ';' => break,
            _ if c.is_whitespace() => {
                if !word.is_empty() {
                    break;
                }
            }
            _ => word.extend(c.to_lowercase()),
        }
    }
    word
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn automatic_mail_is_recognized_by_its_header() {
        for (name, value, expected) in [
            ("auto-submitted", "auto-replied", true),
            ("auto-submitted", "auto-generated; owner-email=\"a@b\"", true),
            ("auto-submitted", "(vacation) Auto-Notified", true),
            ("auto-submitted", "no", false),
            ("auto-submitted", " No (really); x=y", false),
            ("return-path", " < > ", true),
            ("return-path", "<ann@example.org>", false),
            ("precedence", "Bulk", true),
            ("precedence", "list", true),
            ("precedence", "junk", true),
            ("precedence", "auto_reply", true),
            ("precedence", "first-class", false),
            ("list-id", "<rust.example.org>", true),
            ("list-unsubscribe", "<mailto:x@y>", true),
            ("x-autoreply", "yes", true),
            ("x-autoreply", "no", false),
            ("x-autorespond", "", true),
            ("x-auto-response-suppress", "DR, OOF, AutoReply", true),
            ("x-auto-response-suppress", "All", true),
            ("x-auto-response-suppress", "DR, OOF", false),
            ("x-loop", "ann@example.org", true),
            ("x-spam-flag", "YES", true),
            ("x-spam-flag", "NO", false),
            ("x-failed-recipients", "bob@example.org", true),
            ("content-type", "multipart/report; report-type=delivery-status; boundary=x", true),
            ("content-type", "message/disposition-notification", true),
            ("content-type", "multipart/mixed; boundary=\"multipart/report\"", false),
            ("feedback-id", "1:2:3:service", false),
            ("subject", "list-id", false),
        ] {
            let mail = ParsedMail { headers: vec![(name.to_owned(), value.to_owned())], ..ParsedMail::default() };
            assert_eq!(automatic_reason(&mail, None, None).is_some(), expected, "{name}: {value}");
        }
        let outlook = [("thread-index", "AdxyZ"), ("x-auto-response-suppress", "DR, OOF, AutoReply")];
        let headers = outlook.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
        assert_eq!(automatic_reason(&ParsedMail { headers, ..ParsedMail::default() }, None, None), None);
        for (name, number, expected) in [
            ("received", MAX_HOPS, false),
            ("received", MAX_HOPS + 1, true),
            ("x-any", MAX_FIELDS, false),
            ("x-any", MAX_FIELDS + 1, true),
        ] {
            let headers = vec![(name.to_owned(), "by a".to_owned()); number];
            let mail = ParsedMail { headers, ..ParsedMail::default() };
            assert_eq!(automatic_reason(&mail, None, None).is_some(), expected, "{number} {name}");
        }
    }

    #[test]
    fn automatic_mail_is_recognized_by_its_sender() {
        let own = EmailAddress::parse("dao@example.net");
        for (sender, expected) in [
            ("ann@example.org", false),
            ("dao@example.net", true),
            ("DAO+notes@Example.net", true),
            ("dao@example.org", false),
            ("MAILER-DAEMON@example.org", true),
            ("postmaster@example.org", true),
            ("no-reply@example.org", true),
            ("no_reply.7f3a@example.org", true),
            ("do-not-reply@example.org", true),
            ("bounce+ann=example.org@example.org", true),
            ("bounces-77@example.org", true),
            ("bouncer@example.org", false),
            ("norbert.eply@example.org", false),
        ] {
            let sender = EmailAddress::parse(sender).unwrap();
            let mail = ParsedMail::default();
            assert_eq!(automatic_reason(&mail, Some(&sender), own.as_ref()).is_some(), expected, "{sender}");
        }
    }
}
