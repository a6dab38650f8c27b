//! The webhook channel: its routes, and the signed callbacks that carry replies.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use axum::Router;
use jiff::Timestamp;
use reqwest::header::{CONTENT_TYPE, HeaderMap};
use reqwest::{Client, Method, Response, StatusCode, Url, redirect};
use uuid::Uuid;

use super::config::WebhookConfig;
use super::request_parser::RequestParser;
use super::routes::{self, WebhookEndpoint};
use super::verify::{HEADER_ID, HEADER_SIGNATURE, HEADER_TIMESTAMP, SigningKey};
use super::wire::{CallbackBody, is_path_word};
use crate::backoff::RetryTable;
use crate::channel::{Channel, ChannelContext, Receipt, Resend, SendError};
use crate::client::retry_after;
use crate::finding::Finding;
use crate::message::OutboundMessage;
use crate::text::error_chain;
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
                let key = config.callback_key().map_err(|(key, reason)| fault(&format!("`{key}`: {reason}")))?;
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

    async fn send(&self, message: &OutboundMessage) -> Result<Receipt, SendError> {
        match &self.callback {
            Some(callback) => {
                let body = serde_json::to_vec(&CallbackBody::from(message))
                    .map_err(|error| SendError::Permanent { reason: format!("the reply is not JSON: {error}") })?;
                callback.post(message.id, body).await
            }
            // A reply, a notice or a question stays in the store until the caller fetches it.
            None if message.in_reply_to.is_some() && message.context.job.is_none()
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

const CALLBACK_CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const CALLBACK_TIMEOUT: Duration = Duration::from_secs(15);
/// The longest wait that a receiver may ask for.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(24 * 3_600);
/// The maximum number of bytes of a response that are read so that its connection can be reused.
const MAX_ANSWER: usize = 64 << 10;

/// The receiver of replies. All replies share one client and connection pool.
pub struct Callback {
    client: Client,
    url: Url,
    key: Option<SigningKey>,
}

impl Callback {
    /// Creates the sender of callbacks to `url`, signed with `key` if there is one.
    ///
    /// # Errors
    /// The URL is not one of http or https, or the client cannot be built, e.g. without certificate authorities.
    pub fn new(url: &str, key: Option<SigningKey>) -> Result<Self, String> {
        Self::with_timeout(url, key, CALLBACK_TIMEOUT)
    }

    fn with_timeout(url: &str, key: Option<SigningKey>, timeout: Duration) -> Result<Self, String> {
        let url = Url::parse(url).map_err(|error| format!("it is not a URL: {error}"))?;
        if !matches!(url.scheme(), "http" | "https") {
            // The error does not repeat the URL, which may contain a key.
            return Err("it must begin with http:// or https://".to_owned());
        }
        let mut client = Client::builder()
            .user_agent(concat!("daoyou/", env!("CARGO_PKG_VERSION")))
            .tcp_nodelay(true)
            .redirect(redirect::Policy::none())
            .connect_timeout(CALLBACK_CONNECT_TIMEOUT)
            .timeout(timeout);
        if is_this_machine(&url) {
            client = client.no_proxy();
            // Loading certificate authorities takes time and memory, and no redirect can lead to TLS.
            if url.scheme() == "http" {
                client = client.tls_certs_only(std::iter::empty());
            }
        }
        Ok(Self { client: client.build().map_err(|error| error.to_string())?, url, key })
    }

    /// Posts `body` under `id`. The receiver recognizes a second copy by the id.
    ///
    /// # Errors
    /// [`SendError::Permanent`] if the receiver answers 410; for any other failure, an error that permits another
    /// attempt.
    pub async fn post(&self, id: Uuid, body: Vec<u8>) -> Result<Receipt, SendError> {
        let id = id.to_string();
        let timestamp = Timestamp::now().as_second().to_string();
        let mut request = self.client.post(self.url.clone()).header(CONTENT_TYPE, "application/json");
        if let Some(key) = &self.key {
            request = request.header(HEADER_SIGNATURE, key.sign(&id, &timestamp, &body));
        }
        request = request.header(HEADER_ID, id).header(HEADER_TIMESTAMP, timestamp).body(body);
        match request.send().await {
            Ok(mut response) => {
                let outcome = classify_response(response.status(), response.headers(), Timestamp::now());
                read_out(&mut response).await;
                outcome
            }
            Err(error) => Err(failure(error)),
        }
    }

    /// Sends OPTIONS, which no receiver takes for a reply, and returns the status.
    ///
    /// # Errors
    /// The receiver cannot be reached, or does not answer in time.
    pub async fn ask(&self) -> Result<StatusCode, String> {
        let request = self.client.request(Method::OPTIONS, self.url.clone());
        match request.send().await {
            Ok(response) => Ok(response.status()),
            Err(error) => Err(failure(error).to_string()),
        }
    }

    /// Returns the origin of the receiver's URL, without the parts that may be secret.
    pub fn origin(&self) -> String {
        self.url.origin().ascii_serialization()
    }
}

fn is_this_machine(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// Classifies a response by the rules of Standard Webhooks: 2xx is delivered, 410 fails for good, everything else is retried.
fn classify_response(status: StatusCode, headers: &HeaderMap, now: Timestamp) -> Result<Receipt, SendError> {
    let reason = || format!("the callback answered {status}");
    match status {
        _ if status.is_success() => Ok(Receipt::default()),
        StatusCode::GONE => Err(SendError::Permanent { reason: reason() }),
        _ => {
            let after = retry_after(headers, now).map(|wait| wait.min(MAX_RETRY_AFTER));
            Err(SendError::Retry { after, reason: reason() })
        }
    }
}

/// Classifies an error. Only an error before the request was written proves that the message did not arrive.
fn failure(error: reqwest::Error) -> SendError {
    // The URL may contain a token of the receiver, and the reason is stored and shown.
    let error = error.without_url();
    let reason = format!("the callback failed: {}", error_chain(&error));
    if error.is_connect() {
        SendError::Retry { after: None, reason }
    } else if error.is_builder() {
        SendError::Permanent { reason }
    } else {
        SendError::Unknown { reason }
    }
}

/// Reads the rest of a response, so that the connection can be reused.
async fn read_out(response: &mut Response) {
    let mut read = 0;
    while let Ok(Some(chunk)) = response.chunk().await {
        read += chunk.len();
        if read > MAX_ANSWER {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::net::TcpListener;

    use reqwest::header::RETRY_AFTER;

    use super::super::config::Verify;
    use super::*;
    use crate::settings::Secret;
    use crate::trust::AllowList;

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

    /// Starts a receiver that reads a request, answers it with `answer`, and keeps the connection. Returns its URL.
    fn receiver(answer: &'static str) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let head = BufReader::new(&stream).lines().map_while(Result::ok).take_while(|line| !line.is_empty());
            assert!(head.count() > 1);
            stream.write_all(answer.as_bytes()).unwrap();
            std::thread::park();
        });
        format!("http://{address}/?token=hush")
    }

    #[tokio::test]
    async fn a_receiver_that_hangs_gives_unknown_and_an_unreachable_one_a_retry() {
        rustls::crypto::ring::default_provider().install_default().ok();
        let away = TcpListener::bind("127.0.0.1:0").map(|gone| gone.local_addr().unwrap()).unwrap();
        // The first two do not answer in time. The last one has answered; what follows its status does not matter.
        let stalled = "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n";
        for (url, millis, expected) in [
            (receiver(""), 100, "unknown"),
            (receiver("HTTP/1.1 2"), 100, "unknown"),
            (format!("http://{away}/?token=hush"), 3_000, "retry"),
            (receiver(stalled), 3_000, "sent"),
        ] {
            let callback = Callback::with_timeout(&url, None, Duration::from_millis(millis)).unwrap();
            let outcome = callback.post(Uuid::nil(), b"{}".to_vec()).await;
            let seen = match &outcome {
                Ok(_) => "sent",
                Err(SendError::Unknown { .. }) => "unknown",
                Err(SendError::Retry { .. }) => "retry",
                Err(_) => "other",
            };
            assert_eq!(seen, expected, "{outcome:?}");
            assert!(!format!("{outcome:?}").contains("hush"), "{outcome:?}");
        }
    }

    #[test]
    fn responses_are_classified_by_their_status() {
        let now: Timestamp = "2026-11-20T10:00:00Z".parse().unwrap();
        let hour = Some(Duration::from_secs(3_600));
        let table: &[(u16, Option<&str>, &str, Option<Duration>)] = &[
            (200, None, "sent", None),
            (204, None, "sent", None),
            (302, None, "retry", None),
            (400, None, "retry", None),
            (404, None, "retry", None),
            (408, None, "retry", None),
            (410, None, "permanent", None),
            (429, Some("3600"), "retry", hour),
            (503, Some("Fri, 20 Nov 2026 11:00:00 GMT"), "retry", hour),
            (503, Some("Fri, 20 Nov 2026 09:00:00 GMT"), "retry", Some(Duration::ZERO)),
            (503, Some("99999999999"), "retry", Some(MAX_RETRY_AFTER)),
            (503, Some("soon"), "retry", None),
            (500, None, "retry", None),
        ];
        for (status, header, expected, wait) in table {
            let headers = header.map(|value| (RETRY_AFTER, value.parse().unwrap())).into_iter().collect();
            let outcome = classify_response(StatusCode::from_u16(*status).unwrap(), &headers, now);
            let seen = match &outcome {
                Ok(_) => ("sent", None),
                Err(SendError::Retry { after, .. }) => ("retry", *after),
                Err(SendError::Permanent { .. }) => ("permanent", None),
                Err(_) => ("other", None),
            };
            assert_eq!(seen, (*expected, *wait), "{status} {header:?}");
        }
    }
}
