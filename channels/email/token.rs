//! OAuth 2 access tokens, printed by a command of the owner's.

use std::process::Stdio;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::Timestamp;
use tokio::io::AsyncReadExt;
use tokio::process::Command;
use tokio::sync::Mutex;

use crate::settings::Secret;

/// How long the command may take; it may have to ask the provider.
const PATIENCE: Duration = Duration::from_secs(30);
/// The most that is read of what it prints.
const MOST_OUTPUT: u64 = 64 * 1_024;
const MOST_TOKEN: usize = 16 * 1_024;
/// The most that is shown of what it complains.
const MOST_COMPLAINT: usize = 200;
/// Tokens are commonly good for an hour, of which the command may have used some itself.
const USUAL_LIFE: Duration = Duration::from_secs(30 * 60);
/// A token is not used any more when it is good for less than this.
const MARGIN: Duration = Duration::from_secs(120);

/// Runs a command for tokens, and keeps the last one while it is likely to be good.
pub struct TokenCommand {
    program: String,
    arguments: Vec<String>,
    kept: Mutex<Option<Kept>>,
}

struct Kept {
    token: Secret,
    until: Instant,
}

impl TokenCommand {
    /// # Errors
    /// The command is empty.
    pub fn new(command: Vec<String>) -> Result<Self, String> {
        let mut words = command.into_iter();
        match words.next() {
            Some(program) if !program.trim().is_empty() => {
                Ok(Self { program, arguments: words.collect(), kept: Mutex::new(None) })
            }
            _ => Err("token_command is empty: it wants a program and its arguments, as a list".to_owned()),
        }
    }

    /// A token that is likely to be good. The command is run without a shell; its standard output's first line is the
    /// token.
    ///
    /// # Errors
    /// The command could not be run, failed, took too long, or printed no token; as a sentence.
    pub async fn token(&self) -> Result<Secret, String> {
        let mut kept = self.kept.lock().await;
        if let Some(Kept { token, until }) = &*kept
            && Instant::now() < *until
        {
            return Ok(token.clone());
        }
        *kept = None;
        let token = tokio::time::timeout(PATIENCE, self.run())
            .await
            .unwrap_or_else(|_| Err(format!("did not end within {} s", PATIENCE.as_secs())))
            .map_err(|wrong| format!("token_command ({}) {wrong}", self.program))?;
        let until = Instant::now() + life(&token, Timestamp::now());
        *kept = Some(Kept { token: token.clone(), until });
        Ok(token)
    }

    /// The kept token was refused: the next one is asked for anew.
    pub async fn forget(&self) {
        *self.kept.lock().await = None;
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
        let (mut printed, mut complained) = (Vec::new(), Vec::new());
        let (mut stdout, mut stderr) = (stdout.take(MOST_OUTPUT), stderr.take(MOST_OUTPUT));
        // Each is read to its end at once, so that neither pipe fills up and holds the command.
        tokio::try_join!(stdout.read_to_end(&mut printed), stderr.read_to_end(&mut complained))
            .map_err(|error| format!("cannot be read: {error}"))?;
        // More than is read would hold it for ever: it gets a closed pipe.
        drop((stdout, stderr));
        let status = child.wait().await.map_err(|error| format!("cannot be waited for: {error}"))?;
        if !status.success() {
            return Err(format!("failed ({status}){}", complaint(&complained)));
        }
        token_of(&printed)
    }
}

fn token_of(printed: &[u8]) -> Result<Secret, String> {
    let line = printed.split(|byte| *byte == b'\n').next().unwrap_or_default().trim_ascii();
    match line {
        [] => Err("printed no token on its first line".to_owned()),
        // Another character would end the token within the login (RFC 6750, section 2.1).
        token if token.len() > MOST_TOKEN || !token.iter().all(u8::is_ascii_graphic) => {
            Err("printed something on its first line that is not an access token".to_owned())
        }
        token => Ok(Secret::new(String::from_utf8_lossy(token))),
    }
}

fn complaint(stderr: &[u8]) -> String {
    let text = String::from_utf8_lossy(stderr);
    let line = text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    let line: String = line.chars().filter(|c| !c.is_control()).take(MOST_COMPLAINT).collect();
    if line.is_empty() { line } else { format!(": {line}") }
}

/// How long a token may be kept: a JSON Web Token says when it ends (`exp`, RFC 7519, section 4.1.4).
fn life(token: &Secret, now: Timestamp) -> Duration {
    let said = || {
        let payload = token.expose().split('.').nth(1)?;
        let claims: serde_json::Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(payload).ok()?).ok()?;
        let left = claims.get("exp")?.as_i64()?.checked_sub(now.as_second())?;
        Some(Duration::from_secs(u64::try_from(left).unwrap_or(0)).saturating_sub(MARGIN))
    };
    said().map_or(USUAL_LIFE, |life| life.min(24 * USUAL_LIFE))
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
    async fn what_fails_is_said() {
        for (script, wanted) in [
            ("echo canary; echo 'invalid_grant' >&2; exit 3", "invalid_grant"),
            ("true", "no token"),
            ("echo two words", "not an access token"),
        ] {
            let error = shell(script).token().await.unwrap_err();
            assert!(error.contains(wanted) && !error.contains("canary"), "{script}: {error}");
        }
        let missing = TokenCommand::new(vec!["/does/not/exist".to_owned()]).unwrap();
        assert!(missing.token().await.unwrap_err().contains("/does/not/exist"));
        assert!(TokenCommand::new(Vec::new()).is_err());
    }

    #[tokio::test]
    async fn a_token_is_kept_until_it_is_refused() {
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
    fn a_web_token_says_how_long_it_lives() {
        let now = Timestamp::from_second(1_000_000).unwrap();
        let token = |claims: &str| Secret::new(format!("e30.{}.sig", URL_SAFE_NO_PAD.encode(claims)));
        for (token, seconds) in [
            (token(r#"{"exp":1003600}"#), 3_480),
            (token(r#"{"exp":999000}"#), 0),
            (token("{}"), 1_800),
            (Secret::new("opaque"), 1_800),
        ] {
            assert_eq!(life(&token, now).as_secs(), seconds);
        }
    }
}
