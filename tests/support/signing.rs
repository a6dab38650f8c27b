//! Standard Webhooks signatures, written from the specification. The gateway does not share this code, so that both cannot
//! be wrong in the same way.
//! <https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md>

use sha2::{Digest, Sha256};

/// Computes HMAC-SHA256 (RFC 2104).
pub fn hmac_sha256(key: &[u8], message: &[u8]) -> [u8; 32] {
    const BLOCK: usize = 64;
    let mut padded = [0_u8; BLOCK];
    if key.len() > BLOCK {
        padded[..32].copy_from_slice(&Sha256::digest(key));
    } else {
        padded[..key.len()].copy_from_slice(key);
    }
    let pad = |byte: u8| padded.map(|b| b ^ byte);
    let inner = Sha256::new().chain_update(pad(0x36)).chain_update(message).finalize();
    Sha256::new().chain_update(pad(0x5c)).chain_update(inner).finalize().into()
}

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Encodes base64 with padding (RFC 4648, section 4).
pub fn base64(bytes: &[u8]) -> String {
    let mut out = String::new();
    for chunk in bytes.chunks(3) {
        let word = chunk.iter().fold(0_u32, |word, byte| word << 8 | u32::from(*byte)) << (8 * (3 - chunk.len()));
        for i in 0..4 {
            let six = (word >> (18 - 6 * i)) & 63;
            out.push(if i <= chunk.len() { char::from(ALPHABET[six as usize]) } else { '=' });
        }
    }
    out
}

/// Decodes the output of [`base64`]; returns `None` for any other text.
pub fn unbase64(text: &str) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    let (mut word, mut bits) = (0_u32, 0);
    for byte in text.trim_end_matches('=').bytes() {
        let six = ALPHABET.iter().position(|letter| *letter == byte)?;
        word = word << 6 | u32::try_from(six).ok()?;
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            out.push(u8::try_from(word >> bits & 0xff).ok()?);
        }
    }
    (base64(&out) == text).then_some(out)
}

/// Encodes lower-case hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns a secret in the format of the configuration: `whsec_` and the base64 of `key`.
pub fn secret(key: &[u8]) -> String {
    format!("whsec_{}", base64(key))
}

/// Returns the value of `webhook-signature`: `v1,` and the base64 of the HMAC over `id.timestamp.body`.
pub fn sign(secret: &str, id: &str, timestamp: i64, body: &[u8]) -> String {
    let key = unbase64(secret.strip_prefix("whsec_").unwrap_or(secret)).expect("a secret of these tests is base64");
    let signed = [format!("{id}.{timestamp}.").as_bytes(), body].concat();
    format!("v1,{}", base64(&hmac_sha256(&key, &signed)))
}

/// Returns true if one of the signatures in `header` (space-separated) is valid.
pub fn verify(secret: &str, id: &str, timestamp: i64, body: &[u8], header: &str) -> bool {
    let right = sign(secret, id, timestamp, body);
    header.split(' ').any(|signature| signature == right)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agrees_with_published_vectors() {
        // RFC 4231, test case 2.
        assert_eq!(
            hex(&hmac_sha256(b"Jefe", b"what do ya want for nothing?")),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
        );
        for (plain, text) in [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")] {
            assert_eq!((base64(plain.as_bytes()).as_str(), unbase64(text)), (text, Some(plain.as_bytes().to_vec())));
        }
        assert_eq!(unbase64("Zg"), None);
        let secret = secret(b"0123456789abcdef01234567");
        let signature = sign(&secret, "msg_1", 1_731_705_121, b"{}");
        assert!(verify(&secret, "msg_1", 1_731_705_121, b"{}", &format!("v1,AAAA {signature}")));
        assert!(!verify(&secret, "msg_1", 1_731_705_122, b"{}", &signature));
    }
}
