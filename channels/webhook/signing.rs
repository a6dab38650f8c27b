//! Computes HMAC-SHA256 signatures and compares them in constant time.

use base64::Engine;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig, STANDARD};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::settings::Secret;

const SECRET_PREFIX: &str = "whsec_";
const SIGNATURE_PREFIX: &str = "v1,";

/// Accepts base64 with and without padding.
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// The shortest key that is not weak, in bytes. Standard Webhooks recommends 24.
const MIN_KEY: usize = 16;

/// Returns why a secret of the form [`SigningKey::standard`] is weak: its key is so short that it can be guessed.
pub fn weakness_of_standard(secret: &Secret) -> Option<String> {
    let length = standard_key(secret).ok()?.len();
    (1..MIN_KEY).contains(&length).then(|| format!("the key has {length} bytes, which can be guessed"))
}

fn standard_key(secret: &Secret) -> Result<Vec<u8>, String> {
    let text = secret.expose().trim();
    let encoded = text.strip_prefix(SECRET_PREFIX).unwrap_or(text);
    LENIENT.decode(encoded).map_err(|_| "the secret is not `whsec_` and base64".to_owned())
}

/// A key for signatures.
#[derive(Clone)]
pub struct SigningKey(Hmac<Sha256>);

impl SigningKey {
    /// Reads a key written as `whsec_` and base64, or as base64 alone.
    pub fn standard(secret: &Secret) -> Result<Self, String> {
        Self::of_bytes(&standard_key(secret)?)
    }

    /// Reads a key written as `whsec_` and base64. For any other text, its bytes are the key.
    pub fn of_any(secret: &Secret) -> Result<Self, String> {
        if secret.expose().trim().starts_with(SECRET_PREFIX) {
            return Self::standard(secret);
        }
        Self::of_text(secret)
    }

    /// Uses the bytes of the text as the key, whatever its prefix, as GitHub, Stripe and Slack do.
    pub fn of_text(secret: &Secret) -> Result<Self, String> {
        Self::of_bytes(secret.expose().as_bytes())
    }

    fn of_bytes(key: &[u8]) -> Result<Self, String> {
        if key.is_empty() {
            return Err("the secret is empty".into());
        }
        Hmac::new_from_slice(key).map(Self).map_err(|error| error.to_string())
    }

    /// Returns the value of the `webhook-signature` header. `timestamp` is in Unix seconds.
    pub fn sign(&self, id: &str, timestamp: &str, body: &[u8]) -> String {
        let mac = self.over(&[id.as_bytes(), b".", timestamp.as_bytes(), b".", body]).finalize().into_bytes();
        format!("{SIGNATURE_PREFIX}{}", STANDARD.encode(mac))
    }

    /// Starts a check of `head` followed by a body that arrives in pieces. One of `signatures` must match.
    pub fn check(&self, head: &[&[u8]], signatures: Vec<[u8; 32]>, header: &'static str) -> SignatureCheck {
        SignatureCheck { mac: self.over(head), signatures, header }
    }

    fn over(&self, parts: &[&[u8]]) -> Hmac<Sha256> {
        let mut mac = self.0.clone();
        for part in parts {
            mac.update(part);
        }
        mac
    }
}

/// A signature check that runs while the body arrives.
pub struct SignatureCheck {
    mac: Hmac<Sha256>,
    signatures: Vec<[u8; 32]>,
    /// The name of the header with the signatures.
    header: &'static str,
}

impl SignatureCheck {
    /// Adds the next piece of the body.
    pub fn update(&mut self, chunk: &[u8]) {
        self.mac.update(chunk);
    }

    /// Ends the body and compares the signatures.
    ///
    /// # Errors
    /// No signature matches; the message names the header.
    pub fn finish(self) -> Result<(), String> {
        let is_right = self.signatures.iter().any(|signature| self.mac.clone().verify_slice(signature).is_ok());
        if is_right { Ok(()) } else { Err(format!("{} is wrong", self.header)) }
    }
}

/// Parses the space-separated signatures of a Standard Webhooks header; skips malformed ones.
pub fn standard_signatures(header: &str) -> Vec<[u8; 32]> {
    let decoded = header
        .split_ascii_whitespace()
        .filter_map(|one| STANDARD.decode(one.strip_prefix(SIGNATURE_PREFIX)?).ok()?.try_into().ok());
    decoded.collect()
}

/// Decodes 64 hexadecimal digits.
pub fn unhex(text: &str) -> Option<[u8; 32]> {
    let digits = text.as_bytes();
    let mut bytes = [0_u8; 32];
    if digits.len() != 2 * bytes.len() {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        let digit = |at: usize| char::from(pair[at]).to_digit(16).map(|digit| digit as u8);
        *byte = digit(0)? << 4 | digit(1)?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_read_as_each_scheme_writes_them() {
        let signed = |key: Result<SigningKey, String>| key.map(|key| key.sign("i", "1", b"{}"));
        let secret = |text: &str| Secret::new(text);
        let standard = signed(SigningKey::standard(&secret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")));
        assert_eq!(standard, signed(SigningKey::standard(&secret("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"))));
        assert_eq!(standard, signed(SigningKey::of_any(&secret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"))));
        assert_ne!(standard, signed(SigningKey::of_text(&secret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"))));
        assert!(SigningKey::standard(&secret("whsec_not base64!")).is_err());
        assert!(SigningKey::of_any(&secret("")).is_err());
    }

    #[test]
    fn a_key_that_can_be_guessed_is_weak() {
        for (text, expected) in [
            ("abc", Some(2)),
            ("whsec_c2VjcmV0", Some(6)),
            ("whsec_MTIzNDU2Nzg5MDEyMzQ1", Some(15)),
            ("whsec_MTIzNDU2Nzg5MDEyMzQ1Ng==", None),
            ("MTIzNDU2Nzg5MDEyMzQ1Ng", None),
            // These have errors of their own.
            ("", None),
            ("whsec_?", None),
        ] {
            let wrong = weakness_of_standard(&Secret::new(text));
            let begins = expected.map(|length| format!("the key has {length} bytes"));
            assert_eq!(wrong.map(|wrong| wrong.split(',').next().unwrap().to_owned()), begins, "{text}");
        }
    }

    #[test]
    fn hexadecimal_is_64_digits() {
        let good = "00ff".repeat(16);
        assert_eq!(unhex(&good), Some([0, 255].repeat(16).try_into().unwrap()));
        assert_eq!(unhex(&good.to_uppercase()), unhex(&good));
        for wrong in ["", "00", &good[1..], &"zz".repeat(32), &format!("{good}0"), &"é".repeat(32)] {
            assert_eq!(unhex(wrong), None, "{wrong}");
        }
    }
}
