//! Encrypted and signed parts (RFC 1847, 8551, 3156).

use super::mime::MimePart;

/// Remark about content that only the recipient's key can decrypt.
pub const ENCRYPTED: &str = "A part of this mail is encrypted, unreadable.";
const OPAQUE: &str = "A part of this mail is signed in a way that wraps its text (S/MIME), unreadable.";
const TNEF: &str =
    "winmail.dat is in Outlook's own format (TNEF), unreadable; its sender can send HTML or plain text instead.";

/// The role of an encrypted or signed part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartProtection {
    /// The part cannot be read; the remark says why.
    Unreadable(&'static str),
    /// A signature of other parts.
    Signature,
}

/// Returns the role of an encrypted or signed part; `None` for other parts.
pub fn protection(part: &MimePart<'_>) -> Option<PartProtection> {
    let name = part.file_name().unwrap_or_default().to_ascii_lowercase();
    match part.content.value.as_str() {
        "multipart/encrypted" | "application/pgp-encrypted" => Some(PartProtection::Unreadable(ENCRYPTED)),
        "application/pkcs7-mime" | "application/x-pkcs7-mime" => match part.content.param("smime-type") {
            Some(kind) if kind.eq_ignore_ascii_case("signed-data") => Some(PartProtection::Unreadable(OPAQUE)),
            Some(kind) if kind.eq_ignore_ascii_case("certs-only") => Some(PartProtection::Signature),
            _ => Some(PartProtection::Unreadable(ENCRYPTED)),
        },
        "application/pkcs7-signature" | "application/x-pkcs7-signature" | "application/pgp-signature" => {
            Some(PartProtection::Signature)
        }
        "application/ms-tnef" | "application/vnd.ms-tnef" => Some(PartProtection::Unreadable(TNEF)),
        "application/octet-stream" if name == "winmail.dat" => Some(PartProtection::Unreadable(TNEF)),
        "application/octet-stream" if name == "smime.p7m" => Some(PartProtection::Unreadable(ENCRYPTED)),
        "application/octet-stream" if name == "smime.p7s" || name == "signature.asc" => Some(PartProtection::Signature),
        _ => None,
    }
}
