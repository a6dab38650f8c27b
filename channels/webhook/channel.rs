//! The webhook channel.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use axum::Router;
use reqwest::StatusCode;

use super::config::{Verify, WebhookConfig};
use super::names::is_path_word;
use super::request_parser::RequestParser;
use super::routes::{self, WebhookEndpoint};
use super::send::Callback;
use super::signing::SigningKey;
use super::wire::CallbackBody;
use crate::backoff::RetryTable;
use crate::channel::{Channel, ChannelContext, Receipt, Resend, SendError, StartError};
use crate::finding::Finding;
use crate::message::OutboundMessage;
use crate::trust::TrustLists;

/// The name of the check that reaches the receiver of callbacks.
const CALLBACK_CHECK: &str = "callback";

/// The channel `webhook:NAME`. Messages arrive through `POST /webhook/NAME`. Replies go to the callback URL, or callers
/// fetch them from `GET /webhook/NAME/messages/ID`.
pub struct Webhook {
    channel: String,
    endpoint: Arc<WebhookEndpoint>,
    callback: Option<Callback>,
    retry: RetryTable,
}

impl Webhook {
    /// Creates the webhook from the settings of `[channels.webhook.NAME]`. `listens_on_loopback` is true if only this
    /// machine can reach the gateway's server; `lists` name the trusted senders. Callbacks need rustls' default provider,
    /// which the caller must install.
    ///
    /// # Errors
    ///
    /// One line that names the invalid key.
    pub fn new(
        name: &str,
        config: WebhookConfig,
        listens_on_loopback: bool,
        lists: TrustLists,
    ) -> Result<Self, String> {
        let fault = |reason: &str| format!("channels.webhook.{name}: {reason}");
        if !is_path_word(name) {
            return Err(fault("a webhook's name is 1 to 64 of the letters a-z, A-Z, 0-9, -, _ and ."));
        }
        let parser =
            RequestParser::new(name, &config, listens_on_loopback).map_err(|reason| fault(&reason))?.trusting(lists);
        let callback = match &config.callback_url {
            Some(url) => {
                let key = callback_key(&config).map_err(|reason| fault(&reason))?;
                Some(Callback::new(url, key).map_err(|reason| fault(&format!("callback_url: {reason}")))?)
            }
            None => None,
        };
        let channel = format!("webhook:{name}");
        Ok(Self {
            endpoint: Arc::new(WebhookEndpoint::new(parser, config.rate_limit, config.max_body)),
            channel,
            callback,
            retry: RetryTable::new(config.retry.into_iter().map(Duration::from).collect()),
        })
    }
}

#[async_trait]
impl Channel for Webhook {
    fn name(&self) -> &str {
        &self.channel
    }

    fn resend(&self) -> Resend {
        Resend::SameId
    }

    fn retry(&self) -> &RetryTable {
        &self.retry
    }

    async fn start(&self, context: ChannelContext) -> Result<(), StartError> {
        (context.started)();
        context.shutdown.cancelled().await;
        Ok(())
    }

    async fn send(&self, message: &OutboundMessage) -> Result<Receipt, SendError> {
        match &self.callback {
            Some(callback) => {
                let body = serde_json::to_vec(&CallbackBody::from(message))
                    .map_err(|error| SendError::Permanent { reason: format!("the reply is not JSON: {error}") })?;
                callback.post(message.id, body).await
            }
            // A reply, a notice or a question stays in the store until the caller fetches it.
            None if message.in_reply_to.is_some()
                || message.context.notice.is_some()
                || message.context.is_question =>
            {
                Ok(Receipt::default())
            }
            None => {
                let reason = "without callback_url only replies can be picked up, and this is none".to_owned();
                Err(SendError::Permanent { reason })
            }
        }
    }

    fn routes(&self, context: &ChannelContext) -> Option<Router> {
        Some(routes::routes(&self.endpoint, context))
    }

    async fn test(&self) -> Vec<Finding> {
        vec![check_callback(self.callback.as_ref()).await]
    }
}

/// Checks whether the receiver of replies can be reached, if one is configured.
async fn check_callback(callback: Option<&Callback>) -> Finding {
    let Some(callback) = callback else {
        return Finding::ok(CALLBACK_CHECK, "no callback_url: replies are picked up");
    };
    let origin = callback.origin();
    match callback.ask().await {
        Ok(StatusCode::GONE) => Finding::fail(
            CALLBACK_CHECK,
            format!("{origin} answers 410 Gone: it wants no more replies"),
            "set callback_url to the receiver's new address",
        ),
        Ok(status) if status.is_server_error() => Finding::warn(
            CALLBACK_CHECK,
            format!("{origin} can be reached, and answers OPTIONS with {status}"),
            "look at the receiver's own log",
        ),
        // A receiver need not support OPTIONS; any answer shows that it is reachable.
        Ok(status) => Finding::ok(CALLBACK_CHECK, format!("{origin} can be reached (OPTIONS: {status})")),
        Err(reason) => Finding::fail(
            CALLBACK_CHECK,
            format!("{origin}: {reason}"),
            "start the receiver, or set callback_url to where it is; replies wait meanwhile",
        ),
    }
}

/// Returns the key that signs callbacks: `callback_secret`, or else `secret`. Without either, callbacks are not signed.
fn callback_key(config: &WebhookConfig) -> Result<Option<SigningKey>, String> {
    let (key, name) = match (&config.callback_secret, &config.secret) {
        (Some(secret), _) => (SigningKey::of_any(secret), "callback_secret"),
        // The callers' own key, in the same encoding.
        (None, Some(secret)) if config.verify == Verify::Standard => (SigningKey::standard(secret), "secret"),
        // Stripe's secrets also begin with `whsec_` but are not base64.
        (None, Some(secret)) if config.verify == Verify::Stripe => (SigningKey::of_text(secret), "secret"),
        (None, Some(secret)) => (SigningKey::of_any(secret), "secret"),
        (None, None) => return Ok(None),
    };
    key.map(Some).map_err(|reason| format!("`{name}`: {reason}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::allow::AllowList;
    use crate::settings::Secret;

    #[test]
    fn settings_that_admit_anybody_are_refused() {
        let everybody = || Some(AllowList::new(["*"]));
        let secret = |text: &str| Some(Secret::new(text));
        let base = WebhookConfig::default;
        let table: &[(&str, WebhookConfig, bool, &str)] = &[
            ("n", base(), true, "`secret` is missing"),
            ("n", WebhookConfig { verify: Verify::Bearer, ..base() }, true, "`secret` is missing"),
            ("n", WebhookConfig { secret: secret(" "), ..base() }, true, "`secret` is empty"),
            ("n", WebhookConfig { secret: secret("whsec_?"), ..base() }, true, "base64"),
            ("n", WebhookConfig { verify: Verify::None, ..base() }, true, "needs `allow_from`"),
            (
                "n",
                WebhookConfig { verify: Verify::None, allow_from: Some(AllowList::default()), ..base() },
                true,
                "needs `allow_from`",
            ),
            ("n", WebhookConfig { verify: Verify::None, allow_from: everybody(), ..base() }, false, "loopback"),
            ("a/b", WebhookConfig { secret: secret("whsec_c2VjcmV0"), ..base() }, true, "name"),
            (
                "n",
                WebhookConfig { secret: secret("whsec_c2VjcmV0"), callback_url: Some("ftp://x".into()), ..base() },
                true,
                "callback_url",
            ),
        ];
        for (name, config, loopback, words) in table {
            let fault = Webhook::new(name, config.clone(), *loopback, TrustLists::default()).err().unwrap_or_default();
            assert!(fault.contains(words), "{fault:?} should say {words:?}");
        }
        let local = WebhookConfig { verify: Verify::None, allow_from: everybody(), ..base() };
        let webhook = Webhook::new("n", local, true, TrustLists::default());
        assert_eq!(webhook.map(|webhook| webhook.name().to_owned()), Ok("webhook:n".into()));
    }
}
