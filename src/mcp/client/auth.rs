//! Bearer tokens for servers that are reached over HTTP: from a program of the owner, or by OAuth client credentials (RFC 6749,
//! section 4.4).

use std::process::Stdio;
use std::time::Duration;

use daoyou_channels::settings::Secret;
use reqwest::Client;
use serde_json::Value;
use tokio::process::Command;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};

use super::short_chain;
use crate::mcp::config::McpAuthConfig;
use crate::text::{one_line, truncate};

/// The time limit of a token command, and of a request to a token endpoint.
const LIMIT: Duration = Duration::from_secs(30);
/// How long a token without an expiry time is used.
const DEFAULT_LIFE: Duration = Duration::from_secs(300);
/// How long before its expiry a token is renewed.
const MARGIN: Duration = Duration::from_secs(30);
/// The maximum size of a token command's output, and of a token endpoint's response, in bytes.
const MAX_ANSWER: usize = 65_536;
const MAX_SHOWN: usize = 200;

/// The source of bearer tokens for a server.
pub(in crate::mcp) struct BearerTokens {
    config: McpAuthConfig,
    client: Client,
    current: Mutex<Option<CurrentToken>>,
}

struct CurrentToken {
    token: Secret,
    ends: Instant,
}

impl BearerTokens {
    pub(in crate::mcp) fn new(config: McpAuthConfig, client: Client) -> Self {
        Self { config, client, current: Mutex::default() }
    }

    /// Returns true if requests carry a token.
    pub(super) fn is_set(&self) -> bool {
        self.config.is_set()
    }

    /// Returns the token. Gets a new one if there is none, or if the server refuses the current one, `refused`. Returns `None` if
    /// requests need no token.
    ///
    /// # Errors
    /// States, without secrets, why no token is available.
    pub(super) async fn token(&self, refused: Option<&str>) -> Result<Option<String>, String> {
        let Self { config, client, current } = self;
        if !config.is_set() {
            return Ok(None);
        }
        let mut current = current.lock().await;
        let is_good = |now: &&CurrentToken| now.ends > Instant::now() && Some(now.token.expose()) != refused;
        if let Some(good) = current.as_ref().filter(is_good) {
            return Ok(Some(good.token.expose().to_owned()));
        }
        let fresh = if config.token_command.is_empty() {
            by_client_credentials(config, client).await?
        } else {
            by_command(&config.token_command).await?
        };
        let token = fresh.token.expose().to_owned();
        *current = Some(fresh);
        Ok(Some(token))
    }
}

async fn by_command(command: &[String]) -> Result<CurrentToken, String> {
    let failed = |what: String| format!("the token command {:?} {what}", command.first().map_or("", String::as_str));
    let (program, arguments) = command.split_first().ok_or_else(|| failed("is empty".to_owned()))?;
    let mut process = Command::new(program);
    process.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let ran = timeout(LIMIT, process.output()).await;
    let ran = ran.map_err(|_| failed(format!("did not end within {} s", LIMIT.as_secs())))?;
    let ran = ran.map_err(|error| failed(format!("could not be run: {error}")))?;
    if !ran.status.success() {
        let errors = String::from_utf8_lossy(&ran.stderr[..ran.stderr.len().min(MAX_ANSWER)]);
        let last = errors.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default();
        return Err(failed(format!("failed ({}): {}", ran.status, truncate(&one_line(last), MAX_SHOWN))));
    }
    if ran.stdout.len() > MAX_ANSWER {
        return Err(failed(format!("printed more than {MAX_ANSWER} bytes")));
    }
    let text = String::from_utf8(ran.stdout).map_err(|_| failed("printed no UTF-8".to_owned()))?;
    let text = text.trim();
    match serde_json::from_str::<Value>(text) {
        Ok(answer @ Value::Object(_)) => {
            read_token(&answer).map_err(|what| failed(format!("printed JSON, and {what}")))
        }
        _ if text.is_empty() || text.contains(char::is_whitespace) => {
            Err(failed("printed no token: one word, or JSON with access_token, is expected".to_owned()))
        }
        _ => Ok(CurrentToken { token: Secret::new(text), ends: Instant::now() + DEFAULT_LIFE }),
    }
}

async fn by_client_credentials(config: &McpAuthConfig, client: &Client) -> Result<CurrentToken, String> {
    let url = &config.token_url;
    let failed = |what: String| format!("the token endpoint {url} {what}");
    let secret = config.client_secret.as_ref().map_or("", Secret::expose);
    let scope = Some(("scope", config.scope.as_str())).filter(|(_, scope)| !scope.is_empty());
    let pairs = [("grant_type", "client_credentials")].into_iter().chain(scope);
    let form = url::form_urlencoded::Serializer::new(String::new()).extend_pairs(pairs).finish();
    // The standard requires form encoding of both (RFC 6749, section 2.3.1).
    let encode = |text: &str| url::form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>();
    let request = client
        .post(url)
        .basic_auth(encode(&config.client_id), Some(encode(secret)))
        .header(reqwest::header::CONTENT_TYPE, "application/x-www-form-urlencoded")
        .header(reqwest::header::ACCEPT, "application/json")
        .body(form);
    let asked = async {
        let mut response = request.send().await?;
        let (status, mut body) = (response.status(), Vec::new());
        while let Some(piece) = response.chunk().await? {
            body.extend_from_slice(&piece);
            if body.len() > MAX_ANSWER {
                break;
            }
        }
        Ok::<_, reqwest::Error>((status, body))
    };
    let (status, body) = match timeout(LIMIT, asked).await {
        Err(_) => return Err(failed(format!("did not answer within {} s", LIMIT.as_secs()))),
        Ok(Err(error)) => return Err(failed(format!("cannot be reached: {}", short_chain(&error.without_url())))),
        Ok(Ok(answered)) => answered,
    };
    let answer: Value = serde_json::from_slice(&body).unwrap_or_default();
    if !status.is_success() {
        let word = |key: &str| truncate(&one_line(answer[key].as_str().unwrap_or_default()), MAX_SHOWN);
        let why = [word("error"), word("error_description")].into_iter().filter(|word| !word.is_empty());
        return Err(failed(format!("refuses: {status} {}", why.collect::<Vec<_>>().join(": "))));
    }
    read_token(&answer).map_err(|what| failed(format!("answered, and {what}")))
}

/// Parses a token response (RFC 6749, section 5.1).
fn read_token(answer: &Value) -> Result<CurrentToken, String> {
    let token = answer["access_token"].as_str().filter(|token| !token.trim().is_empty());
    let token = token.ok_or("it holds no access_token")?;
    if answer["token_type"].as_str().is_some_and(|kind| !kind.eq_ignore_ascii_case("bearer")) {
        return Err("its token_type is not bearer".to_owned());
    }
    let seconds = match &answer["expires_in"] {
        Value::String(text) => text.parse().ok(),
        other => other.as_u64(),
    };
    let life = seconds.map_or(DEFAULT_LIFE, |seconds| Duration::from_secs(seconds.min(86_400)));
    let life = life.saturating_sub(MARGIN).max(MARGIN.min(life));
    Ok(CurrentToken { token: Secret::new(token), ends: Instant::now() + life })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn source(words: &[&str]) -> BearerTokens {
        let token_command = words.iter().map(|word| (*word).to_owned()).collect();
        let config = McpAuthConfig { token_command, ..McpAuthConfig::default() };
        crate::llm::install_crypto();
        BearerTokens::new(config, Client::new())
    }

    #[tokio::test]
    async fn a_token_command_gives_a_token_or_one_clear_error() {
        for (words, expected) in [
            (&["echo", "abc"][..], Ok("abc")),
            (&["echo", r#"{"access_token":"def","expires_in":60}"#], Ok("def")),
            (&["echo", r#"{"token":"def"}"#], Err("holds no access_token")),
            (&["echo", "two words"], Err("printed no token")),
            (&["true"], Err("printed no token")),
            (&["sh", "-c", "echo why >&2; exit 3"], Err("failed (exit status: 3): why")),
            (&["/no/such/program"], Err("could not be run")),
        ] {
            let got = source(words).token(None).await;
            match (got, expected) {
                (Ok(token), Ok(expected)) => assert_eq!(token.as_deref(), Some(expected), "{words:?}"),
                (Err(error), Err(part)) => assert!(error.contains(part), "{words:?}: {error}"),
                (got, _) => panic!("{words:?}: {got:?}"),
            }
        }
    }

    #[tokio::test]
    async fn a_refused_token_is_replaced_and_a_good_one_kept() {
        let tokens = source(&["sh", "-c", "cat /proc/sys/kernel/random/uuid"]);
        let first = tokens.token(None).await.unwrap();
        assert_eq!(tokens.token(None).await.unwrap(), first);
        let second = tokens.token(first.as_deref()).await.unwrap();
        assert_ne!(second, first);
        assert_eq!(tokens.token(first.as_deref()).await.unwrap(), second);
    }

    #[test]
    fn token_answers_are_read_as_the_standard_says() {
        assert!(read_token(&json!({"access_token": "a", "token_type": "Bearer", "expires_in": "3600"})).is_ok());
        assert!(read_token(&json!({"access_token": "a", "token_type": "mac"})).is_err());
        assert!(read_token(&json!({"access_token": ""})).is_err());
    }
}
