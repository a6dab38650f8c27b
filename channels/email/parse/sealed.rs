//! What is encrypted or signed, in parts (RFC 1847, 8551, 3156) and in the text itself (RFC 9580).

use super::mime::Part;

/// Said of what nobody but its receiver can read.
pub const ENCRYPTED: &str = "A part of this mail is encrypted, unreadable.";
pub const OPAQUE: &str = "A part of this mail is signed in a way that wraps its text (S/MIME), unreadable.";
pub const TNEF: &str =
    "winmail.dat is in a format of Outlook's own (TNEF), unreadable; its sender can send HTML or plain text instead.";

/// What a part is apart from text and files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seal {
    /// Nobody reads it here; the remark says why.
    Unreadable(&'static str),
    /// A signature over what stands beside it.
    Signature,
}

/// Whether a part is sealed.
pub fn seal(part: &Part<'_>) -> Option<Seal> {
    let name = part.file_name().unwrap_or_default().to_ascii_lowercase();
    match part.content.value.as_str() {
        "multipart/encrypted" | "application/pgp-encrypted" => Some(Seal::Unreadable(ENCRYPTED)),
        "application/pkcs7-mime" | "application/x-pkcs7-mime" => match part.content.param("smime-type") {
            Some(kind) if kind.eq_ignore_ascii_case("signed-data") => Some(Seal::Unreadable(OPAQUE)),
            Some(kind) if kind.eq_ignore_ascii_case("certs-only") => Some(Seal::Signature),
            _ => Some(Seal::Unreadable(ENCRYPTED)),
        },
        "application/pkcs7-signature" | "application/x-pkcs7-signature" | "application/pgp-signature" => {
            Some(Seal::Signature)
        }
        "application/ms-tnef" | "application/vnd.ms-tnef" => Some(Seal::Unreadable(TNEF)),
        "application/octet-stream" if name == "winmail.dat" => Some(Seal::Unreadable(TNEF)),
        "application/octet-stream" if name == "smime.p7m" => Some(Seal::Unreadable(ENCRYPTED)),
        "application/octet-stream" if name == "smime.p7s" || name == "signature.asc" => Some(Seal::Signature),
        _ => None,
    }
}

/// Takes the armour off a text: of a signed one the text is left, of an encrypted one a word that it was there. The second
/// says whether some of it was encrypted.
pub fn without_armour(text: &str) -> (String, bool) {
    if !text.contains("-----BEGIN PGP ") {
        return (text.to_owned(), false);
    }
    let mut out = String::with_capacity(text.len());
    let mut is_encrypted = false;
    let mut is_signed = false;
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        match line.trim_end() {
            "-----BEGIN PGP MESSAGE-----" => {
                is_encrypted = true;
                out.push_str("[encrypted, unreadable]\n");
                lines.by_ref().find(|line| line.trim_end() == "-----END PGP MESSAGE-----");
            }
            // Its own header ends with an empty line (RFC 9580, section 7).
            "-----BEGIN PGP SIGNED MESSAGE-----" => {
                is_signed = true;
                lines.by_ref().find(|line| line.trim().is_empty());
            }
            "-----BEGIN PGP SIGNATURE-----" => {
                is_signed = false;
                lines.by_ref().find(|line| line.trim_end() == "-----END PGP SIGNATURE-----");
            }
            _ => {
                out.push_str(if is_signed { line.strip_prefix("- ").unwrap_or(line) } else { line });
                out.push('\n');
            }
        }
    }
    (out, is_encrypted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn armour() {
        let signed = "-----BEGIN PGP SIGNED MESSAGE-----\nHash: SHA256\n\nPay\n- - 100\n-----BEGIN PGP SIGNATURE-----\n\niQ\n-----END PGP SIGNATURE-----\nbye";
        let table = [
            ("plain", "plain", false),
            (signed, "Pay\n- 100\nbye\n", false),
            (
                "a\n-----BEGIN PGP MESSAGE-----\n\nhQE\n-----END PGP MESSAGE-----\nb",
                "a\n[encrypted, unreadable]\nb\n",
                true,
            ),
            ("-----BEGIN PGP MESSAGE-----\nnever ends", "[encrypted, unreadable]\n", true),
        ];
        for (text, expected, is_encrypted) in table {
            assert_eq!(without_armour(text), (expected.to_owned(), is_encrypted), "{text}");
        }
    }
}
