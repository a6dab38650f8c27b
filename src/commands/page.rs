//! `daoyou open` and `daoyou tokens`.

use std::io::Write;
use std::process::{Command, Stdio};

use anyhow::bail;
use serde_json::Value;

use super::access::{answer_request, find_gateway, list_tokens};
use super::environment::CommandEnvironment;
use super::output::{print, print_note, tr};
use super::{CommandExit, render};
use crate::cli::{OpenArgs, TokensCommand};
use crate::control::ControlClient;
use crate::query::TokenChange;

/// The programs that open a link in the system's browser.
const OPENERS: [&str; 2] = ["xdg-open", "open"];

const TOKENS: render::TableColumns =
    &[("NAME", "name"), ("SCOPE", "scope"), ("CREATED", "created_at"), ("LAST USED", "used_at")];

/// Runs `daoyou open`.
///
/// # Errors
/// No gateway is running.
pub async fn open(args: OpenArgs, environment: &CommandEnvironment) -> anyhow::Result<CommandExit> {
    let Some(client) = find_gateway(&environment.home).await? else {
        bail!("no gateway runs, which would serve the page: start it with `daoyou gateway`");
    };
    let link = client.post("/api/page/code").await?;
    let url = render::text(&link["url"]);
    let printed = print(&link, args.output, |out| writeln!(out, "{url}"))?;
    if !args.output.json {
        print_note(tr("It logs in once, within a minute.", "一分钟内有效，只能使用一次。"));
    }
    if !args.no_browser && has_display() && !open_in_browser(&url) {
        print_note(tr("No browser could be opened; open the link yourself.", "无法打开浏览器，请自行打开此链接。"));
    }
    Ok(printed)
}

/// Returns a link to the page that logs in once, for `daoyou status` of a running gateway; null if it gives none. It is the previous
/// one while that is unused and valid for a while.
pub async fn login_link(environment: &CommandEnvironment) -> Value {
    let Ok(client) = ControlClient::new(&environment.home.socket()) else { return Value::Null };
    let link = client.post("/api/page/code?again=true").await;
    link.unwrap_or_else(|error| {
        tracing::debug!(%error, "the gateway gives no link to its page");
        Value::Null
    })
}

fn has_display() -> bool {
    let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    cfg!(target_os = "macos") || is_set("DISPLAY") || is_set("WAYLAND_DISPLAY")
}

/// Opens a link; returns false if no program does that.
fn open_in_browser(url: &str) -> bool {
    let open = |program: &&str| {
        let mut command = Command::new(program);
        command.arg(url).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    };
    OPENERS.iter().any(open)
}

/// Runs `daoyou tokens`.
///
/// # Errors
/// The change is invalid, or the store cannot be read or written.
pub async fn tokens(command: &TokensCommand, environment: &CommandEnvironment) -> anyhow::Result<CommandExit> {
    match command {
        TokensCommand::List(output) => {
            let list = list_tokens(&environment.home).await?;
            print(&list, *output, |out| render::table(&list, TOKENS, "no tokens", out))
        }
        TokensCommand::Add { name, scope, reuse, output } => {
            let change = TokenChange::Add { name: name.clone(), scope: scope.as_str().to_owned(), reuse: *reuse };
            let added = answer_request(change, environment).await?;
            let printed = print(&added, *output, |out| writeln!(out, "{}", render::text(&added["token"])))?;
            if !output.json {
                print_note(tr("Keep it: it is not shown again.", "请保存好，之后不再显示。"));
            }
            Ok(printed)
        }
        TokensCommand::Revoke { name, output } => {
            let revoked = answer_request(TokenChange::Revoke(name.clone()), environment).await?;
            print(&revoked, *output, |out| writeln!(out, "{}: {name}", tr("revoked", "已撤销")))
        }
    }
}
