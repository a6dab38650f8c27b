//! OAuth 2 access tokens that a command of the owner prints.

use std::io;
use std::process::Stdio;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::Timestamp;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::Command;
use tokio::sync::Mutex;

use crate::settings::Secret;

/// The time limit of the command, which may have to ask the provider.
const PATIENCE: Duration = Duration::from_secs(30);
/// The maximum size of the output that is read, in bytes.
const MAX_OUTPUT: u64 = 64 * 1_024;
const MAX_TOKEN: usize = 16 * 1_024;
/// The maximum length of an error message, in characters.
const MAX_ERROR: usize = 200;
/// How long a token without a stated expiry is used. Tokens usually last an hour, part of which may have passed when the
/// command prints one.
const DEFAULT_LIFETIME: Duration = Duration::from_secs(30 * 60);
/// A token is not used if it expires within this time.
const MARGIN: Duration = Duration::from_secs(120);

/// Runs a command to get tokens, and caches the last token while it is probably valid.
pub struct TokenCommand {
    program: String,
    arguments: Vec<String>,
    cached: Mutex<Option<CachedToken>>,
}

struct CachedToken {
    token: Secret,
    until: Instant,
}

impl TokenCommand {
    /// Creates the command.
    ///
    /// # Errors
    /// The command is empty.
    pub fn new(command: Vec<String>) -> Result<Self, String> {
        let mut parts = command.into_iter();
        match parts.next() {
            Some(program) if !program.trim().is_empty() => {
                Ok(Self { program, arguments: parts.collect(), cached: Mutex::new(None) })
            }
            _ => Err("token_command is empty: set it to a program and its arguments, as a list".to_owned()),
        }
    }

    /// Returns a token that is probably valid. The command runs without a shell; the first line of its standard output
    /// is the token.
    ///
    /// # Errors
    /// One sentence: the command could not run, failed, took too long, or printed no token.
    pub async fn token(&self) -> Result<Secret, String> {
        let mut cached = self.cached.lock().await;
        if let Some(CachedToken { token, until }) = &*cached
            && Instant::now() < *until
        {
            return Ok(token.clone());
        }
        *cached = None;
        let token = tokio::time::timeout(PATIENCE, self.run())
            .await
            .unwrap_or_else(|_| Err(format!("did not end within {} s", PATIENCE.as_secs())))
            .map_err(|wrong| format!("token_command ({}) {wrong}", self.program))?;
        let until = Instant::now() + lifetime(&token, Timestamp::now());
        *cached = Some(CachedToken { token: token.clone(), until });
        Ok(token)
    }

    /// Drops the cached token after a server refused it.
    pub async fn forget(&self) {
        *self.cached.lock().await = None;
    }

    async fn run(&self) -> Result<Secret, String> {
        let mut child = Command::new(&self.program)
            .args(&self.arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| format!("cannot be run: {error}"))?;
        let (Some(stdout), Some(stderr)) = (child.stdout.take(), child.stderr.take()) else {
            return Err("cannot be read".to_owned());
        };
        // Both pipes are read at once, so that neither fills up and blocks the command.
        let (printed, errors) = tokio::try_join!(read_output(stdout), read_output(stderr))
            .map_err(|error| format!("cannot be read: {error}"))?;
        let status = child.wait().await.map_err(|error| format!("cannot be waited for: {error}"))?;
        if !status.success() {
            return Err(format!("failed ({status}){}", error_line(&errors)));
        }
        parse_token(&printed)
    }
}

/// Reads at most [`MAX_OUTPUT`] bytes, then closes the pipe, so that a command that prints more ends instead of waiting for
/// a reader.
async fn read_output(pipe: impl AsyncRead + Unpin) -> io::Result<Vec<u8>> {
    let mut output = Vec::new();
    pipe.take(MAX_OUTPUT).read_to_end(&mut output).await?;
    Ok(output)
}

fn parse_token(printed: &[u8]) -> Result<Secret, String> {
    let line = printed.split(|byte| *byte == b'\n').next().unwrap_or_default().trim_ascii();
    match line {
        [] => Err("printed no token on its first line".to_owned()),
        // Any other character would end the token within the login (RFC 6750, section 2.1).
        token if token.len() > MAX_TOKEN || !token.iter().all(u8::is_ascii_graphic) => {
            Err("printed something on its first line that is not an access token".to_owned())
        }
        token => Ok(Secret::new(String::from_utf8_lossy(token))),
    }
}

fn error_line(stderr: &[u8]) -> String {
    let text = String::from_utf8_lossy(stderr);
    let line = text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    let line: String = line.chars().filter(|c| !c.is_control()).take(MAX_ERROR).collect();
    if line.is_empty() { line } else { format!(": {line}") }
}

/// Returns how long a token may be cached. A JSON Web Token states its expiry (`exp`, RFC 7519, section 4.1.4).
fn lifetime(token: &Secret, now: Timestamp) -> Duration {
    let remaining = || {
        let payload = token.expose().split('.').nth(1)?;
        let claims: serde_json::Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(payload).ok()?).ok()?;
        let left = claims.get("exp")?.as_i64()?.checked_sub(now.as_second())?;
        Some(Duration::from_secs(u64::try_from(left).unwrap_or(0)).saturating_sub(MARGIN))
    };
    remaining().map_or(DEFAULT_LIFETIME, |life| life.min(24 * DEFAULT_LIFETIME))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> TokenCommand {
        TokenCommand::new(["sh", "-c", script].map(str::to_owned).to_vec()).unwrap()
    }

    #[tokio::test]
    async fn the_first_line_is_the_token() {
        for (script, token) in [("echo tok-1; echo more", "tok-1"), ("printf ' tok+/=.~_-2 \\r\\n'", "tok+/=.~_-2")] {
            assert_eq!(shell(script).token().await.unwrap().expose(), token);
        }
    }

    #[tokio::test]
    async fn a_failure_is_reported_without_the_token() {
        for (script, wanted) in [
            ("echo canary; echo 'invalid_grant' >&2; exit 3", "invalid_grant"),
            ("true", "no token"),
            ("echo two words", "not an access token"),
            // The command prints without end.
            ("exec yes", "failed"),
        ] {
            let command = shell(script);
            let error = tokio::time::timeout(PATIENCE / 2, command.token()).await.unwrap().unwrap_err();
            assert!(error.contains(wanted) && !error.contains("canary"), "{script}: {error}");
        }
        let missing = TokenCommand::new(vec!["/does/not/exist".to_owned()]).unwrap();
        assert!(missing.token().await.unwrap_err().contains("/does/not/exist"));
        assert!(TokenCommand::new(Vec::new()).is_err());
    }

    #[tokio::test]
    async fn a_token_is_cached_until_it_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let count = folder.path().join("count");
        let command = shell(&format!("echo x >> {0}; wc -l < {0}", count.display()));
        let mut seen = Vec::new();
        for _ in 0..2 {
            seen.push(command.token().await.unwrap().expose().to_owned());
        }
        command.forget().await;
        seen.push(command.token().await.unwrap().expose().to_owned());
        assert_eq!(seen, ["1", "1", "2"]);
    }

    #[test]
    fn a_web_token_states_its_lifetime() {
        let now = Timestamp::from_second(1_000_000).unwrap();
        let token = |claims: &str| Secret::new(format!("e30.{}.sig", URL_SAFE_NO_PAD.encode(claims)));
        for (token, seconds) in [
            (token(r#"{"exp":1003600}"#), 3_480),
            (token(r#"{"exp":999000}"#), 0),
            (token("{}"), 1_800),
            (Secret::new("opaque"), 1_800),
        ] {
            assert_eq!(lifetime(&token, now).as_secs(), seconds);
        }
    }
}
