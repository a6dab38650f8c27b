//! `[channels.webhook.NAME]`.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::allow::AllowList;
use crate::settings::{Secret, Span};

/// How a webhook proves who calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Verify {
    /// Standard Webhooks: a signature over `id.timestamp.body`.
    #[default]
    Standard,
    /// `Authorization: Bearer SECRET`.
    Bearer,
    /// Nothing; for callers on this machine only.
    None,
}

/// One webhook, reached at `POST /webhook/NAME`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct WebhookConfig {
    pub enabled: bool,
    pub verify: Verify,
    /// The shared secret that `verify` needs; for `standard` in the form `whsec_…`. Looking up a message has no body to
    /// sign: there `standard` too takes it as `Authorization: Bearer SECRET`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret: Option<Secret>,
    /// Where replies are posted; without it they are picked up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub callback_url: Option<String>,
    /// Signs the callbacks, in the form `whsec_…`; absent is `secret`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub callback_secret: Option<Secret>,
    /// The waits between tries of one callback; then it is a dead letter.
    pub retry: Vec<Span>,
    /// The senders listened to; absent is everybody who passes `verify`. With `verify = "none"` it must be set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_from: Option<AllowList>,
}

impl Default for WebhookConfig {
    fn default() -> Self {
        const RETRY_SECS: [u64; 7] = [5, 300, 1_800, 7_200, 18_000, 36_000, 36_000];
        Self {
            enabled: true,
            verify: Verify::Standard,
            secret: None,
            callback_url: None,
            callback_secret: None,
            retry: RETRY_SECS.iter().map(|secs| Span(Duration::from_secs(*secs))).collect(),
            allow_from: None,
        }
    }
}
