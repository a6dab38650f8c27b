//! Who calls: signatures as in Standard Webhooks, bearer secrets, or this machine alone.
//!
//! <https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md>

use std::net::IpAddr;

use axum::http::{HeaderMap, header};
use base64::Engine;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig, STANDARD};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use subtle::ConstantTimeEq;

use crate::settings::Secret;

/// How far the sender's clock may be off, in seconds.
pub const TOLERANCE_SECS: u64 = 300;

pub const HEADER_ID: &str = "webhook-id";
pub const HEADER_TIMESTAMP: &str = "webhook-timestamp";
pub const HEADER_SIGNATURE: &str = "webhook-signature";

const SECRET_PREFIX: &str = "whsec_";
const SIGNATURE_PREFIX: &str = "v1,";

/// Takes base64 with and without its padding.
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// The key of a Standard Webhooks signature.
#[derive(Clone)]
pub struct SigningKey(Hmac<Sha256>);

impl SigningKey {
    /// Reads `whsec_` and base64, or base64 alone.
    pub fn standard(secret: &Secret) -> Result<Self, String> {
        let text = secret.expose().trim();
        let encoded = text.strip_prefix(SECRET_PREFIX).unwrap_or(text);
        let key = LENIENT.decode(encoded).map_err(|_| "the secret is not `whsec_` and base64".to_owned())?;
        Self::of_bytes(&key)
    }

    /// Reads `whsec_` and base64; any other text is taken as the bytes of the key.
    pub fn of_any(secret: &Secret) -> Result<Self, String> {
        if secret.expose().trim().starts_with(SECRET_PREFIX) {
            return Self::standard(secret);
        }
        Self::of_bytes(secret.expose().as_bytes())
    }

    fn of_bytes(key: &[u8]) -> Result<Self, String> {
        if key.is_empty() {
            return Err("the secret is empty".into());
        }
        Hmac::new_from_slice(key).map(Self).map_err(|error| error.to_string())
    }

    /// The value of the `webhook-signature` header; `timestamp` in Unix seconds.
    pub fn sign(&self, id: &str, timestamp: &str, body: &[u8]) -> String {
        let mac = self.over(id, timestamp, body).finalize().into_bytes();
        format!("{SIGNATURE_PREFIX}{}", STANDARD.encode(mac))
    }

    /// Whether one of the space-separated `signatures` is right. Compares in constant time.
    fn verify(&self, id: &str, timestamp: &str, body: &[u8], signatures: &str) -> bool {
        let mac = self.over(id, timestamp, body);
        signatures
            .split_ascii_whitespace()
            .filter_map(|one| STANDARD.decode(one.strip_prefix(SIGNATURE_PREFIX)?).ok())
            .any(|tag| mac.clone().verify_slice(&tag).is_ok())
    }

    fn over(&self, id: &str, timestamp: &str, body: &[u8]) -> Hmac<Sha256> {
        let mut mac = self.0.clone();
        for part in [id.as_bytes(), b".", timestamp.as_bytes(), b".", body] {
            mac.update(part);
        }
        mac
    }
}

/// How the callers of one webhook prove who they are.
pub enum Verifier {
    /// The secret stands beside its key for requests that have no body to sign.
    Standard {
        key: SigningKey,
        secret: Secret,
    },
    Bearer(Secret),
    Loopback,
}

/// What is left to check once the body is there.
#[derive(Debug, PartialEq, Eq)]
pub enum Pending {
    Nothing,
    Signature,
}

impl Verifier {
    /// All that can be said before the body is read. `peer` is the address of the connection, where it is known; `now`
    /// in Unix seconds.
    pub fn before_body(&self, headers: &HeaderMap, peer: Option<IpAddr>, now: i64) -> Result<Pending, String> {
        let Self::Standard { .. } = self else { return self.without_body(headers, peer).map(|()| Pending::Nothing) };
        for name in [HEADER_ID, HEADER_SIGNATURE] {
            text(headers, name)?;
        }
        let timestamp = text(headers, HEADER_TIMESTAMP)?;
        let sent: i64 = timestamp.parse().map_err(|_| format!("{HEADER_TIMESTAMP} is not a Unix time in seconds"))?;
        if now.abs_diff(sent) > TOLERANCE_SECS {
            return Err(format!("{HEADER_TIMESTAMP} is more than {TOLERANCE_SECS} seconds off"));
        }
        Ok(Pending::Signature)
    }

    /// The rest of [`before_body`](Self::before_body).
    pub fn with_body(&self, headers: &HeaderMap, body: &[u8]) -> Result<(), String> {
        let Self::Standard { key, .. } = self else { return Ok(()) };
        let (id, timestamp) = (text(headers, HEADER_ID)?, text(headers, HEADER_TIMESTAMP)?);
        if key.verify(id, timestamp, body, text(headers, HEADER_SIGNATURE)?) {
            Ok(())
        } else {
            Err(format!("{HEADER_SIGNATURE} is wrong"))
        }
    }

    /// For a request that only asks. There is no body to sign, so `standard` takes its secret as a bearer token here.
    pub fn without_body(&self, headers: &HeaderMap, peer: Option<IpAddr>) -> Result<(), String> {
        match self {
            Self::Standard { secret, .. } | Self::Bearer(secret) => bearer(headers, secret),
            Self::Loopback if peer.is_none_or(|ip| ip.to_canonical().is_loopback()) => Ok(()),
            Self::Loopback => Err("this webhook takes calls from its own machine only".into()),
        }
    }
}

fn bearer(headers: &HeaderMap, secret: &Secret) -> Result<(), String> {
    let value = text(headers, header::AUTHORIZATION.as_str())?;
    let token = match value.split_once(' ') {
        Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") => token.trim(),
        _ => return Err("authorization is not `Bearer SECRET`".into()),
    };
    if bool::from(token.as_bytes().ct_eq(secret.expose().as_bytes())) {
        Ok(())
    } else {
        Err("the bearer secret is wrong".into())
    }
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Result<&'a str, String> {
    let value = headers.get(name).ok_or_else(|| format!("the header {name} is missing"))?;
    match value.to_str().map(str::trim) {
        Ok(text) if !text.is_empty() => Ok(text),
        _ => Err(format!("the header {name} is empty or not plain text")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // The published test vector of Standard Webhooks.
    const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    const ID: &str = "msg_p5jXN8AQM9LWM0D4loKWxJek";
    const TIME: i64 = 1_614_265_330;
    const BODY: &[u8] = br#"{"test": 2432232314}"#;
    const SIGNATURE: &str = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
    }

    fn standard() -> Verifier {
        let secret = Secret::new(SECRET);
        Verifier::Standard { key: SigningKey::standard(&secret).unwrap(), secret }
    }

    #[test]
    fn the_published_vector_is_signed_as_published() {
        for secret in [SECRET, "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"] {
            let key = SigningKey::standard(&Secret::new(secret)).unwrap();
            assert_eq!(key.sign(ID, &TIME.to_string(), BODY), SIGNATURE);
        }
        let any = SigningKey::of_any(&Secret::new(SECRET)).unwrap();
        assert_eq!(any.sign(ID, &TIME.to_string(), BODY), SIGNATURE);
        assert!(SigningKey::standard(&Secret::new("whsec_not base64!")).is_err());
        assert!(SigningKey::of_any(&Secret::new("")).is_err());
    }

    #[test]
    fn a_standard_signature_holds_for_its_body_and_time_alone() {
        let two = format!("v1a,xyz {SIGNATURE}");
        let other = "v1,AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";
        let table: &[(&str, i64, &[u8], bool)] = &[
            (SIGNATURE, 0, BODY, true),
            (&two, 0, BODY, true),
            (SIGNATURE, 299, BODY, true),
            (SIGNATURE, -299, BODY, true),
            (SIGNATURE, 301, BODY, false),
            (SIGNATURE, -301, BODY, false),
            (SIGNATURE, 0, b"{}", false),
            (other, 0, BODY, false),
            ("v1,", 0, BODY, false),
            ("v2,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=", 0, BODY, false),
        ];
        for (signature, later, body, expected) in table {
            let headers =
                headers(&[(HEADER_ID, ID), (HEADER_TIMESTAMP, &TIME.to_string()), (HEADER_SIGNATURE, signature)]);
            let outcome =
                standard().before_body(&headers, None, TIME + later).and_then(|_| standard().with_body(&headers, body));
            assert_eq!(outcome.is_ok(), *expected, "{signature} {later} {outcome:?}");
        }
        for missing in [HEADER_ID, HEADER_TIMESTAMP, HEADER_SIGNATURE] {
            let mut headers =
                headers(&[(HEADER_ID, ID), (HEADER_TIMESTAMP, "1614265330"), (HEADER_SIGNATURE, SIGNATURE)]);
            headers.remove(missing);
            let message = standard().before_body(&headers, None, TIME).unwrap_err();
            assert!(message.contains(missing), "{message}");
        }
    }

    #[test]
    fn bearer_and_loopback() {
        let bearer = Verifier::Bearer(Secret::new("s3cret"));
        for (value, expected) in [
            ("Bearer s3cret", true),
            ("bearer s3cret", true),
            ("Bearer s3cre", false),
            ("s3cret", false),
            ("Basic s3cret", false),
        ] {
            let headers = headers(&[("authorization", value)]);
            assert_eq!(bearer.without_body(&headers, None).is_ok(), expected, "{value}");
        }
        assert!(bearer.without_body(&HeaderMap::new(), None).is_err());
        let table =
            [(None, true), (Some("127.0.0.1"), true), (Some("::ffff:127.0.0.1"), true), (Some("192.0.2.1"), false)];
        for (peer, expected) in table {
            let peer = peer.map(|ip| ip.parse().unwrap());
            assert_eq!(Verifier::Loopback.without_body(&HeaderMap::new(), peer).is_ok(), expected, "{peer:?}");
        }
    }
}
