//! Parses reports of bounced mails of the gateway (RFC 3464). Own code because neither mail-parser nor mail-auth reads these.

use uuid::Uuid;

use crate::email::mail::ParsedMail;
use crate::email::message_id::own_message_id;
use crate::text::beginning;

/// How much of a report is read, in bytes. The status precedes the returned mail, whose header precedes its text.
const MAX_READ: usize = 256 << 10;
/// The longest value of a field, in bytes.
const MAX_FIELD: usize = 1_000;

/// A report that a mail of the gateway did not reach a recipient.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bounce {
    /// The outbox message that the bounced mail carried.
    pub outbox: Uuid,
    /// The recipient; empty if the report does not name one.
    pub recipient: String,
    /// The reason that a server gave; may be empty.
    pub reason: String,
}

/// One block of fields, about a recipient or about the returned mail.
#[derive(Default)]
struct ReportBlock {
    has_failed: bool,
    recipient: String,
    status: String,
    diagnosis: String,
}

/// Parses a report of failed delivery that names one of the gateway's own Message-IDs. Returns `None` for every other mail
/// and for a report of a delay. Nothing proves such a report: anybody who received the mail can forge one.
pub fn classify_bounce(mail: &ParsedMail, raw: &[u8]) -> Option<Bounce> {
    let is_report = |kind: &str| kind.trim_start().to_ascii_lowercase().starts_with("multipart/report");
    if !mail.header("content-type").next().is_some_and(is_report) {
        return None;
    }
    let text = String::from_utf8_lossy(&raw[..raw.len().min(MAX_READ)]);
    let mut block = ReportBlock::default();
    let mut failed = None;
    let mut returned = None;
    for (name, value) in fields(&text) {
        match name.as_str() {
            // The end of a block.
            "" => failed = failed.or(std::mem::take(&mut block).failed()),
            "action" => block.has_failed = first_word(&value).eq_ignore_ascii_case("failed"),
            "final-recipient" => block.recipient = without_type(&value),
            "original-recipient" if block.recipient.is_empty() => block.recipient = without_type(&value),
            "status" => block.status = value,
            "diagnostic-code" => block.diagnosis = without_type(&value),
            "message-id" => returned = returned.or_else(|| own_message_id(&value)),
            _ => {}
        }
    }
    let ReportBlock { recipient, status, diagnosis, .. } = failed.or(block.failed())?;
    let named = || mail.in_reply_to.iter().find_map(|id| own_message_id(id));
    let outbox = returned.or_else(named)?.outbox;
    let reason = if diagnosis.is_empty() { status } else { diagnosis };
    Some(Bounce { outbox, recipient, reason })
}

impl ReportBlock {
    fn failed(self) -> Option<Self> {
        self.has_failed.then_some(self)
    }
}

/// Returns all lines that look like fields, with the name in lower case and the value unfolded. An empty line gives an empty name.
fn fields(text: &str) -> Vec<(String, String)> {
    let mut fields: Vec<(String, String)> = Vec::new();
    for line in text.lines() {
        if line.trim().is_empty() {
            fields.push(Default::default());
        } else if line.starts_with([' ', '\t']) {
            if let Some((_, value)) =
                fields.last_mut().filter(|(name, value)| !name.is_empty() && value.len() < MAX_FIELD)
            {
                value.push(' ');
                value.push_str(cut_field(line.trim()));
            }
        } else if let Some((name, value)) = line.split_once(':') {
            fields.push((cut_field(name.trim()).to_ascii_lowercase(), cut_field(value.trim()).trim_start().to_owned()));
        }
    }
    fields
}

fn cut_field(text: &str) -> &str {
    beginning(text, MAX_FIELD)
}

fn first_word(value: &str) -> &str {
    value.split([' ', '\t', '(', ';']).next().unwrap_or_default()
}

/// Returns `rfc822; bob@example.org` without its type.
fn without_type(value: &str) -> String {
    value.split_once(';').map_or(value, |(_, behind)| behind).trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::email::message_id::message_id;
    use crate::email::parse::{ParseLimits, parse_mail};

    const OUTBOX: Uuid = Uuid::from_u128(0x0192_f0c1_2345_7abc_8def_0123_4567_89ab);
    const FAILED: &str = "Final-Recipient: rfc822; bob@example.org\r\nAction: failed\r\nStatus: 5.1.1\r\n\
                          Diagnostic-Code: smtp; 550 5.1.1\r\n no such user\r\n";

    fn report(kind: &str, header: &str, status: &str, returned: &str) -> String {
        format!(
            "From: MAILER-DAEMON@mx.test\r\nMessage-ID: <1@mx.test>\r\n{header}Content-Type: {kind}; \
             report-type=delivery-status; boundary=b\r\n\r\n--b\r\n\r\nNote: it failed.\r\n\r\n--b\r\nContent-Type: \
             message/delivery-status\r\n\r\nReporting-MTA: dns; mx.test\r\n\r\n{status}\r\n--b\r\nContent-Type: \
             message/rfc822\r\n\r\nFrom: dao@here.test\r\n{returned}\r\nHello\r\n--b--\r\n"
        )
    }

    #[test]
    fn a_bounce_is_a_failure_report_with_an_own_id() {
        const REPORT: &str = "multipart/report";
        let ours = message_id(OUTBOX, Some("<root@x>"), "here.test");
        let returned = format!("MESSAGE-ID:\r\n {ours}\r\nReferences: <root@x>\r\n");
        let answered = format!("In-Reply-To: {ours}\r\n");
        let late = FAILED.replace("failed", "delayed");
        let two = format!("{}\r\n{FAILED}", late.replace("bob", "ann"));
        let bare = "Original-Recipient: rfc822;bob@example.org\r\nAction: Failed (unknown)\r\nStatus: 5.0.0\r\n";
        let bob_failed = Some(("bob@example.org", "550 5.1.1 no such user"));
        for (what, raw, expected) in [
            ("failed", report(REPORT, "", FAILED, &returned), bob_failed),
            ("named in the header alone", report(REPORT, &answered, FAILED, ""), bob_failed),
            ("late", report(REPORT, "", &late, &returned), None),
            ("one of two", report(REPORT, "", &two, &returned), bob_failed),
            ("no diagnosis", report(REPORT, "", bare, &returned), Some(("bob@example.org", "5.0.0"))),
            ("not ours", report(REPORT, "", FAILED, "Message-ID: <2@x>\r\n"), None),
            ("no report", report("multipart/mixed", "", FAILED, &returned), None),
            ("cut off", report(REPORT, "", &FAILED.repeat(9_000), &returned), None),
        ] {
            let raw = raw.into_bytes();
            let found = classify_bounce(&parse_mail(&raw, &ParseLimits::default()), &raw);
            let expected = expected.map(|(recipient, reason)| Bounce {
                outbox: OUTBOX,
                recipient: recipient.to_owned(),
                reason: reason.to_owned(),
            });
            assert_eq!(found, expected, "{what}");
        }
    }
}
