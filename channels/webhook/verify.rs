//! Authenticates callers by a signature over the body, a bearer secret, or a loopback address. Secrets are compared in constant time.

use axum::http::{HeaderMap, header};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use subtle::ConstantTimeEq;

use super::services::EventService;
use crate::client::{ClientAddr, single_header};
use crate::settings::Secret;
use crate::text::BASE64_ANY_PADDING;

/// The accepted difference between this clock and the sender's, in seconds.
const TOLERANCE_SECS: u64 = 300;

pub const HEADER_ID: &str = "webhook-id";
pub const HEADER_TIMESTAMP: &str = "webhook-timestamp";
pub const HEADER_SIGNATURE: &str = "webhook-signature";

const GITHUB_SIGNATURE: &str = "x-hub-signature-256";
const STRIPE_SIGNATURE: &str = "stripe-signature";
const SLACK_SIGNATURE: &str = "x-slack-signature";
const SLACK_TIMESTAMP: &str = "x-slack-request-timestamp";

const BEARER: &[u8] = b"Bearer ";

/// The maximum number of signatures of one request that are compared. Key rotation needs two.
const MAX_SIGNATURES: usize = 16;

/// Authenticates the callers of one webhook.
pub enum Verifier {
    /// A signature: the service's own kind, or else one of [Standard
    /// Webhooks](https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md). The secret
    /// authenticates requests without a body.
    Signed {
        service: Option<EventService>,
        key: SigningKey,
        secret: Secret,
    },
    Bearer(Secret),
    Loopback,
}

impl Verifier {
    /// Performs all checks that do not need the body. `now` is in Unix seconds. Returns the check that needs the body, if
    /// the scheme has one.
    ///
    /// # Errors
    /// A header is missing, malformed or repeated, the signed time is too far from `now`, or the bearer token is wrong.
    pub fn before_body(
        &self,
        headers: &HeaderMap,
        client: Option<ClientAddr>,
        now: i64,
    ) -> Result<Option<SignatureCheck>, String> {
        let Self::Signed { service, key, .. } = self else {
            return self.without_body(headers, client).map(|()| None);
        };
        let check = match service {
            None => {
                let (id, signatures) = (single_value(headers, HEADER_ID)?, single_value(headers, HEADER_SIGNATURE)?);
                let timestamp = single_value(headers, HEADER_TIMESTAMP)?;
                check_time(HEADER_TIMESTAMP, timestamp, now)?;
                let mut signatures = standard_signatures(signatures);
                signatures.truncate(MAX_SIGNATURES);
                if signatures.is_empty() {
                    return Err(format!("{HEADER_SIGNATURE} is not \"v1,\" and a signature in base64"));
                }
                key.check(&[id.as_bytes(), b".", timestamp.as_bytes(), b"."], signatures, HEADER_SIGNATURE)
            }
            Some(EventService::Github) => {
                key.check(&[], vec![read_hex_signature(headers, GITHUB_SIGNATURE, "sha256=")?], GITHUB_SIGNATURE)
            }
            Some(EventService::Stripe) => {
                let StripeHeader { timestamp, signatures } = StripeHeader::read(headers)?;
                check_time(STRIPE_SIGNATURE, timestamp, now)?;
                key.check(&[timestamp.as_bytes(), b"."], signatures, STRIPE_SIGNATURE)
            }
            Some(EventService::Slack) => {
                let signature = read_hex_signature(headers, SLACK_SIGNATURE, "v0=")?;
                let timestamp = single_value(headers, SLACK_TIMESTAMP)?;
                check_time(SLACK_TIMESTAMP, timestamp, now)?;
                key.check(&[b"v0:", timestamp.as_bytes(), b":"], vec![signature], SLACK_SIGNATURE)
            }
        };
        Ok(Some(check))
    }

    /// Authenticates a request without a body by the secret as the bearer token.
    ///
    /// # Errors
    /// The bearer token is missing or wrong, or the webhook has no secret and the client is on another machine.
    pub fn without_body(&self, headers: &HeaderMap, client: Option<ClientAddr>) -> Result<(), String> {
        match self {
            Self::Signed { secret, .. } | Self::Bearer(secret) => check_bearer(headers, secret),
            Self::Loopback if client.is_some_and(ClientAddr::is_local) => Ok(()),
            Self::Loopback => Err("this webhook takes calls from its own machine only".into()),
        }
    }

    /// Returns true if the head of a request alone authenticates it.
    pub fn proves_by_head(&self) -> bool {
        matches!(self, Self::Bearer(_))
    }

    /// Returns the service that signs the requests; `None` if no service does.
    pub fn service(&self) -> Option<EventService> {
        match self {
            Self::Signed { service, .. } => *service,
            Self::Bearer(_) | Self::Loopback => None,
        }
    }

    /// Returns the signed time as written in the request; empty if the scheme signs none.
    pub fn signed_time<'a>(&self, headers: &'a HeaderMap) -> &'a str {
        let Self::Signed { service, .. } = self else { return "" };
        match service {
            None => single_value(headers, HEADER_TIMESTAMP).unwrap_or_default(),
            Some(EventService::Github) => "",
            Some(EventService::Stripe) => StripeHeader::read(headers).map_or("", |header| header.timestamp),
            Some(EventService::Slack) => single_value(headers, SLACK_TIMESTAMP).unwrap_or_default(),
        }
    }
}

/// The parsed `Stripe-Signature`: `t=TIME,v1=SIGNATURE,v1=SIGNATURE,v0=…`, in any order; other names are ignored.
struct StripeHeader<'a> {
    timestamp: &'a str,
    signatures: Vec<[u8; 32]>,
}

impl<'a> StripeHeader<'a> {
    fn read(headers: &'a HeaderMap) -> Result<Self, String> {
        let mut timestamp = None;
        let mut signatures = Vec::new();
        for pair in single_value(headers, STRIPE_SIGNATURE)?.split(',') {
            match pair.trim().split_once('=') {
                Some(("t", time)) if timestamp.is_some_and(|known| known != time) => {
                    return Err(format!("{STRIPE_SIGNATURE} has more than one time"));
                }
                Some(("t", time)) => timestamp = Some(time),
                Some(("v1", signature)) if signatures.len() < MAX_SIGNATURES => signatures.extend(unhex(signature)),
                _ => {}
            }
        }
        match timestamp {
            Some(timestamp) if !signatures.is_empty() => Ok(Self { timestamp, signatures }),
            _ => Err(format!("{STRIPE_SIGNATURE} is not \"t=TIME,v1=SIGNATURE\"")),
        }
    }
}

/// Checks that the Unix time in `text` is close enough to `now`; both are in seconds.
fn check_time(name: &str, text: &str, now: i64) -> Result<(), String> {
    let sent: i64 = text.parse().map_err(|_| format!("{name} has no Unix time in seconds"))?;
    if now.abs_diff(sent) > TOLERANCE_SECS {
        return Err(format!("the time in {name} is more than {TOLERANCE_SECS} seconds off"));
    }
    Ok(())
}

fn check_bearer(headers: &HeaderMap, secret: &Secret) -> Result<(), String> {
    let name = header::AUTHORIZATION.as_str();
    let value = single_header(headers, name)?.ok_or_else(|| format!("the header {name} is missing"))?;
    // The secret may have characters outside ASCII, so the bytes are compared.
    let token = match value.as_bytes().split_at_checked(BEARER.len()) {
        Some((scheme, token)) if scheme.eq_ignore_ascii_case(BEARER) => token.trim_ascii(),
        _ => return Err("authorization is not `Bearer SECRET`".into()),
    };
    if bool::from(token.ct_eq(secret.expose().trim().as_bytes())) {
        Ok(())
    } else {
        Err("the bearer secret is wrong".into())
    }
}

/// Reads a signature in hexadecimal after `prefix`.
fn read_hex_signature(headers: &HeaderMap, name: &str, prefix: &str) -> Result<[u8; 32], String> {
    let value = single_value(headers, name)?.strip_prefix(prefix).and_then(unhex);
    value.ok_or_else(|| format!("{name} is not \"{prefix}\" and 64 hexadecimal digits"))
}

/// Returns the text of a header that must occur once.
fn single_value<'a>(headers: &'a HeaderMap, name: &str) -> Result<&'a str, String> {
    let value = single_header(headers, name)?.ok_or_else(|| format!("the header {name} is missing"))?;
    match value.to_str().map(str::trim) {
        Ok(text) if !text.is_empty() => Ok(text),
        _ => Err(format!("the header {name} is empty or not plain text")),
    }
}

const SECRET_PREFIX: &str = "whsec_";
const SIGNATURE_PREFIX: &str = "v1,";

/// The shortest key that is not weak, in bytes, as Standard Webhooks recommends.
const MIN_KEY: usize = 24;

/// Returns true if a secret of the form [`SigningKey::standard`] is weak: its key is so short that it can be guessed.
pub fn is_weak_standard(secret: &Secret) -> bool {
    standard_key(secret).is_ok_and(|key| key.len() < MIN_KEY)
}

fn standard_key(secret: &Secret) -> Result<Vec<u8>, String> {
    let text = secret.expose().trim();
    let encoded = text.strip_prefix(SECRET_PREFIX).unwrap_or(text);
    BASE64_ANY_PADDING.decode(encoded).map_err(|_| "the secret is not `whsec_` and base64".to_owned())
}

/// A key for signatures.
#[derive(Clone)]
pub struct SigningKey(Hmac<Sha256>);

impl SigningKey {
    /// Reads a key written as `whsec_` and base64, or as base64 alone.
    ///
    /// # Errors
    /// The text is not base64, or the key is empty.
    pub fn standard(secret: &Secret) -> Result<Self, String> {
        Self::of_bytes(&standard_key(secret)?)
    }

    /// Reads a key written as `whsec_` and base64. For any other text, its bytes are the key.
    ///
    /// # Errors
    /// The secret is empty, or begins with `whsec_` and is not base64.
    pub fn of_any(secret: &Secret) -> Result<Self, String> {
        if secret.expose().trim().starts_with(SECRET_PREFIX) {
            return Self::standard(secret);
        }
        Self::of_text(secret)
    }

    /// Uses the bytes of the text as the key, whatever its prefix, as GitHub, Stripe and Slack do.
    ///
    /// # Errors
    /// The secret is empty.
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
#[path = "verify_tests.rs"]
mod tests;
