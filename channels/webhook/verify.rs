//! Authenticates callers by a signature over the body, a bearer secret, or a loopback address. Secrets are compared in constant time.

use axum::http::{HeaderMap, header};
use subtle::ConstantTimeEq;

use super::config::{Verify, WebhookConfig};
use super::services::EventService;
use super::signing::{SignatureCheck, SigningKey, standard_signatures, unhex, weakness_of_standard};
use crate::allow::AllowList;
use crate::client::ClientAddr;
use crate::headers::single_header;
use crate::settings::Secret;

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

/// Returns a warning if the secret of the webhook `name` can be guessed.
pub fn weak_secret_warning(name: &str, config: &WebhookConfig) -> Option<String> {
    let secret = config.secret.as_ref().filter(|_| config.verify == Verify::Standard)?;
    let weakness = weakness_of_standard(secret)?;
    Some(format!("channels.webhook.{name}.secret is weak: {weakness}; use whsec_ and 24 random bytes in base64"))
}

impl Verifier {
    /// Reads the settings. `listens_on_loopback` is true if only this machine can reach the server.
    pub fn new(config: &WebhookConfig, listens_on_loopback: bool) -> Result<Self, String> {
        let secret = || -> Result<Secret, String> {
            match &config.secret {
                Some(secret) if !secret.expose().trim().is_empty() => Ok(secret.clone()),
                Some(_) => Err("`secret` is empty".into()),
                None => Err("`secret` is missing; without one, set `verify = \"none\"` and `allow_from`".into()),
            }
        };
        let signed_by = |service| {
            let secret = secret()?;
            let key = SigningKey::of_text(&secret).map_err(|reason| format!("`secret`: {reason}"))?;
            Ok(Self::Signed { service: Some(service), key, secret })
        };
        match config.verify {
            Verify::Standard => {
                let secret = secret()?;
                let key = SigningKey::standard(&secret)
                    .map_err(|reason| format!("`secret`: {reason}; `verify = \"standard\"` needs one"))?;
                Ok(Self::Signed { service: None, key, secret })
            }
            Verify::Github => signed_by(EventService::Github),
            Verify::Stripe => signed_by(EventService::Stripe),
            Verify::Slack => signed_by(EventService::Slack),
            Verify::Bearer => Ok(Self::Bearer(secret()?)),
            Verify::None if !listens_on_loopback => {
                Err("`verify = \"none\"` is allowed only while gateway.listen is a loopback address".into())
            }
            Verify::None if config.allow_from.as_ref().is_none_or(AllowList::is_empty) => {
                Err("`verify = \"none\"` needs `allow_from`, the senders to listen to (\"*\" for all)".into())
            }
            Verify::None => Ok(Self::Loopback),
        }
    }

    /// Performs all checks that do not need the body. `now` is in Unix seconds. Returns the check that needs the body, if
    /// the scheme has one.
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

#[cfg(test)]
#[path = "verify_tests.rs"]
mod tests;
