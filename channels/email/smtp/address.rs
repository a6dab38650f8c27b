//! Converts addresses between the forms of mail headers and SMTP.

use lettre::Address;
use lettre::message::Mailbox;

use crate::email::address::ascii_domain;
use crate::email::message_id::{is_message_id, is_thread};
use crate::text::{one_line, truncate};

/// The longest display name, in characters.
const MAX_NAME: usize = 100;

/// Parses one address in header form: `Name <local@domain>`, `"Name" <local@domain>` or `local@domain`. A domain beyond
/// ASCII gets its ASCII form (RFC 5891), so that only the local part can require SMTPUTF8. Own code because lettre's parser
/// does neither.
///
/// # Errors
///
/// One line that describes the problem.
pub fn mailbox(text: &str) -> Result<Mailbox, String> {
    let text = one_line(text);
    let (name, address) = match text.rsplit_once('<') {
        Some((name, address)) => (name.trim(), address.split('>').next().unwrap_or_default().trim()),
        None => ("", text.as_str()),
    };
    let name: String = unquote(name).chars().take(MAX_NAME).collect();
    Ok(Mailbox::new((!name.is_empty()).then_some(name), self::parse_address(address)?))
}

/// Checks that a chat is an address, or a thread, which the Message-ID of its first mail names.
///
/// # Errors
///
/// One line that describes the problem.
pub fn check_chat(chat: &str) -> Result<(), String> {
    if !is_thread(chat) {
        return mailbox(chat).map(drop);
    }
    let shown = || truncate(&one_line(chat), 80);
    is_message_id(chat).then_some(()).ok_or_else(|| format!("{:?} is not the Message-ID of a mail", shown()))
}

/// Returns true if two addresses are the same, ignoring case. RFC 5321, section 2.4, lets a local part depend on case,
/// but no server in use does.
pub fn is_same_address(one: &Address, other: &Address) -> bool {
    let (one, other): (&str, &str) = (one.as_ref(), other.as_ref());
    one.to_lowercase() == other.to_lowercase()
}

fn parse_address(text: &str) -> Result<Address, String> {
    let wrong = || format!("{:?} is not an e-mail address such as \"name@example.org\"", truncate(text, 80));
    let (local, domain) = text.rsplit_once('@').ok_or_else(wrong)?;
    let domain = match domain.is_ascii() {
        true => domain.to_ascii_lowercase(),
        false => ascii_domain(domain).ok_or_else(wrong)?,
    };
    Address::new(local, domain).map_err(|_| wrong())
}

/// Returns the content of a quoted string (RFC 5322, section 3.2.4).
fn unquote(name: &str) -> String {
    let Some(inner) = name.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) else {
        return name.to_owned();
    };
    let mut plain = String::new();
    let mut chars = inner.chars();
    while let Some(c) = chars.next() {
        if c == '\\' { plain.extend(chars.next()) } else { plain.push(c) }
    }
    plain.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_parsed_in_the_form_of_headers() {
        for (text, name, address) in [
            ("ann@example.org", None, "ann@example.org"),
            ("<ann@Example.ORG>", None, "ann@example.org"),
            ("Ann <ann@example.org>", Some("Ann"), "ann@example.org"),
            ("\"Doe, \\\"Ann\\\"\" <ann@example.org>", Some("Doe, \"Ann\""), "ann@example.org"),
            ("Ann <3 B <ann@example.org>", Some("Ann <3 B"), "ann@example.org"),
            ("王 伟 <wei@例子.测试>", Some("王 伟"), "wei@xn--fsqu00a.xn--0zwm56d"),
            ("Ann\r\nBcc: eve@example.org <ann@example.org>", Some("Ann Bcc: eve@example.org"), "ann@example.org"),
            ("用户@example.org", None, "用户@example.org"),
        ] {
            let mailbox = mailbox(text).unwrap();
            assert_eq!((mailbox.name.as_deref(), mailbox.email.as_ref()), (name, address), "{text}");
        }
        for wrong in ["", "ann", "@example.org", "ann@", "a b@example.org", "ann@exa mple.org", "ann@例/子.测试"] {
            assert!(mailbox(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_chat_is_an_address_or_a_thread() {
        for (chat, fault) in [
            ("ann@example.org", None),
            ("Ann <ann@example.org>", None),
            ("<1@example.org>", None),
            ("not an address", Some("\"not an address\" is not an e-mail address such as \"name@example.org\"")),
            (
                "a@b.test, c@d.test",
                Some("\"a@b.test, c@d.test\" is not an e-mail address such as \"name@example.org\""),
            ),
            ("<1 @example.org>", Some("\"<1 @example.org>\" is not the Message-ID of a mail")),
        ] {
            assert_eq!(check_chat(chat).err().as_deref(), fault, "{chat}");
        }
    }
}
