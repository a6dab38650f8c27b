//! Parses a whole mail.

use jiff::Timestamp;
use mail_parser::DateTime;

use super::address_list::parse_address_list;
use super::body::BodyReader;
use super::header_fields::{HeaderFields, decode_unstructured, parse_message_ids};
use super::limits::ParseLimits;
use crate::email::mail::{NamedAddress, ParsedMail};
use crate::email::subject::is_reply_subject;
use crate::sanitize::{sanitize_line, truncate};

/// Longest subject in bytes; the rest is cut.
const MAX_SUBJECT: usize = 1_000;

/// Parses a mail or only a header. Any input gives a mail within the limits, whose remarks report the parts left out.
/// During parsing, the attachments are in memory twice: raw and decoded.
pub fn parse_mail(raw: &[u8], limits: &ParseLimits) -> ParsedMail {
    let mut reader = BodyReader::new(limits);
    let mut tree = reader.tree(raw);
    let mut mail = tree.parts.first().map(|part| parse_header(&part.fields, limits)).unwrap_or_default();
    let is_reply = !(mail.in_reply_to.is_empty() && mail.references.is_empty()) || is_reply_subject(&mail.subject);
    let found = reader.text(&tree, &mail.subject, is_reply);
    mail.fits_its_type = tree.fits_its_type(limits.text_parts);
    mail.headers = tree.parts.first_mut().map(|part| std::mem::take(&mut part.fields.0)).unwrap_or_default();
    mail.is_forward = found.is_forward;
    (mail.text, mail.cut) = (found.text, found.removed);
    let whole = mail.text.len();
    if truncate(&mut mail.text, limits.text) {
        let remark = format!("The text of this mail is {whole} bytes long; here are the first {}.", mail.text.len());
        reader.attachments.remark(remark);
    }
    if truncate(&mut mail.cut, limits.text) {
        reader.attachments.remark("The end of the quoted history was left out: it is very long.");
    }
    (mail.attachments, mail.remarks) = reader.attachments.finish();
    mail
}

/// Parses the header fields that have a place of their own in [`ParsedMail`].
fn parse_header(fields: &HeaderFields, limits: &ParseLimits) -> ParsedMail {
    let ids = |name: &str| fields.all(name).flat_map(parse_message_ids).collect::<Vec<_>>();
    let mailboxes = |name: &str| -> Vec<NamedAddress> {
        let mut found: Vec<_> =
            fields.all(name).flat_map(|value| parse_address_list(value, limits.addresses)).collect();
        found.truncate(limits.addresses);
        found
    };
    let mut in_reply_to = ids("in-reply-to");
    in_reply_to.truncate(limits.references);
    let mut subject = fields.first("subject").map(decode_unstructured).unwrap_or_default();
    truncate(&mut subject, MAX_SUBJECT);
    ParsedMail {
        message_id: message_id(fields),
        in_reply_to,
        references: keep_ends(ids("references"), limits.references),
        from: mailboxes("from"),
        reply_to: mailboxes("reply-to"),
        to: mailboxes("to"),
        cc: mailboxes("cc"),
        subject,
        date: fields.first("date").and_then(parse_date),
        ..ParsedMail::default()
    }
}

/// Returns the mail's own Message-ID. Some programs omit the angle brackets.
fn message_id(fields: &HeaderFields) -> Option<String> {
    let value = fields.first("message-id")?;
    parse_message_ids(value)
        .into_iter()
        .next()
        .or_else(|| parse_message_ids(&format!("<{}>", sanitize_line(value))).into_iter().next())
}

/// Keeps the first and the last half of a list that is too long, i.e. the root of the thread and the newest mails.
fn keep_ends(mut ids: Vec<String>, max: usize) -> Vec<String> {
    if ids.len() > max {
        let half = max / 2;
        ids.drain(half..ids.len() - (max - half));
    }
    ids
}

fn parse_date(value: &str) -> Option<Timestamp> {
    let date = DateTime::parse_rfc822(&value[..value.floor_char_boundary(200)])?;
    Timestamp::from_second(date.is_valid().then(|| date.to_timestamp())?).ok()
}
