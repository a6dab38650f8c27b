//! Decides whether a mail whose sender is proven may have content of somebody else. Such a mail is data.

use mail_auth::dkim::Signature;

use crate::email::address::EmailAddress;
use crate::email::mail::ParsedMail;
use crate::email::parse::parse_address_list;
use crate::email::presets::preset_for_address;

/// The fields that a header may have once (RFC 5322, section 3.6; RFC 2045, section 3). DKIM covers the lowest of
/// several fields, so anybody can add another one above a signed field (RFC 6376, section 8.15).
pub const SINGLE_FIELDS: &[&str] = &[
    "from", "sender", "reply-to", "to", "cc", "bcc", "message-id", "in-reply-to", "references", "subject", "date",
    "mime-version", "content-type", "content-transfer-encoding", "content-disposition",
];

/// What proves the sender of a mail, and with it how much of the mail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProofMethod {
    /// A server of the sender's domain sent the mail (SPF), with this header.
    Server,
    /// A signature of the sender's domain (DKIM). Anybody may have sent the mail on, with changes in all fields that the
    /// signature does not name.
    Signature,
}

/// Returns the reason why the content of a proven mail may not be its sender's; `None` if it is.
pub fn unproven_content(mail: &ParsedMail, sender: &EmailAddress, proven_by: ProofMethod) -> Option<String> {
    if mail.is_forward {
        return Some("it forwards or quotes a text of others".to_owned());
    }
    if let Some(name) = SINGLE_FIELDS.iter().find(|name| mail.header(name).nth(1).is_some()) {
        return Some(format!("its header has more than one {name}"));
    }
    // RFC 5322, section 3.6.6.
    if mail.header("resent-from").any(|value| !is_from(value, sender)) {
        return Some("its Resent-From is not its sender".to_owned());
    }
    // The servers of a provider also send what its users receive and forward.
    let is_providers = preset_for_address(sender.as_str()).is_some();
    if proven_by == ProofMethod::Server && !is_providers {
        return None;
    }
    // Others may have added signatures, so all of them must cover a field. A mail without any was proven by the server
    // that sent it.
    let signed: Vec<Vec<String>> = mail.header("dkim-signature").map(signed_fields).collect();
    let is_signed = |wanted: &str| signed.iter().all(|names| names.iter().any(|name| name == wanted));
    if mail.header("subject").next().is_some() && !is_signed("subject") {
        return Some("no signature covers its Subject".to_owned());
    }
    // Many providers do not sign these two fields, although other values turn a quotation or an attachment into text.
    if !(mail.fits_its_type || is_signed("content-type") && is_signed("content-transfer-encoding")) {
        return Some("no signature covers its Content-Type, and its body does not fit it".to_owned());
    }
    None
}

fn is_from(addresses: &str, sender: &EmailAddress) -> bool {
    let found = parse_address_list(addresses, 10);
    !found.is_empty() && found.iter().all(|found| EmailAddress::parse(&found.address).as_ref() == Some(sender))
}

/// Returns the names that a DKIM-Signature covers, in lower case; none for a signature that cannot be read.
fn signed_fields(signature: &str) -> Vec<String> {
    let names = Signature::parse(signature.as_bytes()).map(|signature| signature.h).unwrap_or_default();
    names.iter().map(|name| name.trim().to_ascii_lowercase()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::email::parse::{ParseLimits, parse_mail};

    /// A signature of all fields that matter, and one of From alone.
    const FULL: &str = "DKIM-Signature: v=1; a=rsa-sha256; d=example.org; s=s; bh=eA==; b=eA==;\r\n \
                        h=From : Subject:Content-Type:content-transfer-encoding\r\n";
    const WEAK: &str =
        "DKIM-Signature: v=1; a=rsa-sha256; d=example.org; s=s; bh=eA==; b=eA==; h=from:content-type\r\n";

    #[test]
    fn fields_that_may_come_from_others_make_a_mail_data() {
        let sender = EmailAddress::parse("ann@example.org").unwrap();
        let retyped = format!("Subject: x\r\nContent-Type: text/html\r\n{FULL}");
        for (by, header, expected) in [
            (ProofMethod::Signature, FULL, None),
            (ProofMethod::Signature, "Subject: x\r\n", None),
            (ProofMethod::Signature, &format!("Subject: x\r\n{FULL}"), None),
            (ProofMethod::Signature, &format!("Subject: x\r\n{WEAK}"), Some("Subject")),
            (ProofMethod::Signature, &format!("Subject: x\r\n{FULL}{WEAK}"), Some("Subject")),
            (ProofMethod::Signature, "Subject: x\r\nDKIM-Signature: unreadable\r\n", Some("Subject")),
            (ProofMethod::Server, &format!("Subject: x\r\n{WEAK}"), None),
            (ProofMethod::Signature, &retyped, None),
            (ProofMethod::Signature, &retyped.replace("Content-Type:content", "content"), Some("Content-Type")),
            (ProofMethod::Server, &retyped.replace("Content-Type:content", "content"), None),
            (ProofMethod::Server, "Subject: x\r\nSUBJECT : y\r\n", Some("more than one subject")),
            (ProofMethod::Server, "Reply-To: a@b.c\r\nReply-To: a@b.c\r\n", Some("more than one reply-to")),
            (ProofMethod::Server, "Resent-From: Ann <Ann@example.org>\r\n", None),
            (ProofMethod::Server, "Resent-From: eve@evil.test\r\n", Some("Resent-From")),
            (ProofMethod::Server, "Resent-From:\r\n", Some("Resent-From")),
            (ProofMethod::Server, "Subject: Fwd: x\r\n", Some("forwards")),
        ] {
            let mail = parse_mail(format!("{header}\r\nHello").as_bytes(), &ParseLimits::default());
            let found = unproven_content(&mail, &sender, by);
            let is_expected = |reason: &String| expected.is_some_and(|part| reason.contains(part));
            assert!(found.as_ref().map_or(expected.is_none(), is_expected), "{header}: {found:?}");
        }
        let mail = parse_mail(format!("Subject: x\r\n{WEAK}\r\nHello").as_bytes(), &ParseLimits::default());
        let of_provider = EmailAddress::parse("ann@gmail.com").unwrap();
        assert!(
            unproven_content(&mail, &of_provider, ProofMethod::Server).is_some(),
            "a provider forwards for everybody"
        );
    }
}
