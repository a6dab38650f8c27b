//! The whole of a mail.

use jiff::Timestamp;
use mail_parser::DateTime;

use super::address;
use super::body::Reader;
use super::clean::{clean_line, cut_to};
use super::fields::{Fields, message_ids, unstructured};
use super::limits::ReadLimits;
use super::quote::is_answering_subject;
use crate::email::letter::{Letter, Mailbox};

/// A longer subject is cut.
const MAX_SUBJECT: usize = 1_000;

/// Reads a mail, or a header alone. Whatever the bytes are, there is a letter, within the limits; what it leaves out is in its
/// remarks. The files' bytes are in memory twice meanwhile: as they came and decoded.
pub fn read(raw: &[u8], limits: &ReadLimits) -> Letter {
    let mut reader = Reader::new(limits);
    let mut tree = reader.tree(raw);
    let fields = tree.parts.first_mut().map(|part| part.fields.clone()).unwrap_or_default();
    let mut letter = header(fields, limits);
    let answers =
        !(letter.in_reply_to.is_empty() && letter.references.is_empty()) || is_answering_subject(&letter.subject);
    let found = reader.text(&tree, &letter.subject, answers);
    letter.is_forward = found.is_forward;
    (letter.text, letter.cut) = (found.text, found.cut);
    let whole = letter.text.len();
    if cut_to(&mut letter.text, limits.text) {
        let remark = format!("The text of this mail is {whole} bytes long; here are the first {}.", letter.text.len());
        reader.enclosures.remark(remark);
    }
    if cut_to(&mut letter.cut, limits.text) {
        reader.enclosures.remark("The end of the quoted history was left out: it is very long.");
    }
    (letter.enclosed, letter.remarks) = reader.enclosures.finish();
    letter
}

fn header(fields: Fields, limits: &ReadLimits) -> Letter {
    let ids = |name: &str| fields.all(name).flat_map(message_ids).collect::<Vec<_>>();
    let mailboxes = |name: &str| -> Vec<Mailbox> {
        let mut found: Vec<_> = fields.all(name).flat_map(|value| address::list(value, limits.addresses)).collect();
        found.truncate(limits.addresses);
        found
    };
    let mut in_reply_to = ids("in-reply-to");
    in_reply_to.truncate(limits.references);
    let mut subject = fields.first("subject").map(unstructured).unwrap_or_default();
    cut_to(&mut subject, MAX_SUBJECT);
    Letter {
        message_id: message_id(&fields),
        in_reply_to,
        references: ends(ids("references"), limits.references),
        from: mailboxes("from"),
        reply_to: mailboxes("reply-to"),
        to: mailboxes("to"),
        cc: mailboxes("cc"),
        subject,
        date: fields.first("date").and_then(date),
        headers: fields.0,
        ..Letter::default()
    }
}

/// The mail's own id; some programs forget the brackets.
fn message_id(fields: &Fields) -> Option<String> {
    let value = fields.first("message-id")?;
    message_ids(value)
        .into_iter()
        .next()
        .or_else(|| message_ids(&format!("<{}>", clean_line(value))).into_iter().next())
}

/// The first and the last half of a list that is too long: the thread's root, and what was answered last.
fn ends(mut ids: Vec<String>, max: usize) -> Vec<String> {
    if ids.len() > max {
        let half = max / 2;
        ids.drain(half..ids.len() - (max - half));
    }
    ids
}

fn date(value: &str) -> Option<Timestamp> {
    let date = DateTime::parse_rfc822(&value[..value.floor_char_boundary(200)])?;
    Timestamp::from_second(date.is_valid().then(|| date.to_timestamp())?).ok()
}
