//! `daoyou mcp`.

use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use anyhow::{Context, bail};
use serde_json::Value;

use super::access::inspect;
use super::environment::CommandEnvironment;
use super::output::{print, print_note, tr};
use super::translation::tr_fill;
use super::{CommandExit, mcp_bridge, output, render};
use crate::cli::McpCommand;
use crate::gateway::{ImportedServer, import_servers};
use crate::query::GatewayQuery;

/// The largest file that is imported, in bytes.
const MAX_IMPORT: u64 = 1_000_000;

/// Runs `daoyou mcp`.
///
/// # Errors
/// The configuration is invalid, the server does not exist or is unusable, or a file cannot be read or written.
pub async fn run(command: &McpCommand, environment: &CommandEnvironment) -> anyhow::Result<CommandExit> {
    match command {
        McpCommand::List(output) => {
            let found = inspect(GatewayQuery::McpServers, environment).await?;
            print(&found, *output, |out| {
                render::table(&found, render::MCP_SERVERS, "no MCP servers", &mut *out)?;
                for row in render::items(&found) {
                    for problem in render::items(&row["problems"]) {
                        writeln!(out, "{}: {}", render::text(&row["name"]), render::text(problem))?;
                    }
                }
                Ok(())
            })
        }
        McpCommand::Test { name, output } => {
            let found = inspect(GatewayQuery::TestMcp(name.clone()), environment).await?;
            print(&found, *output, |out| describe_test(&found, out))
        }
        McpCommand::Tools { name, output } => {
            let found = inspect(GatewayQuery::McpTools(name.clone()), environment).await?;
            print(&found, *output, |out| render::table(&found, render::MCP_TOOLS, "no tools", out))
        }
        McpCommand::Serve { session } => mcp_bridge::run(session.as_deref(), environment).await,
        McpCommand::Import { file, add } => import(file, *add, environment),
    }
}

fn describe_test(found: &Value, mut out: impl Write) -> std::io::Result<()> {
    let text = |key: &str| render::text(&found[key]);
    let took = found["took_ms"].as_u64().unwrap_or_default();
    let how = if found["was_running"] == true {
        tr("it was running", "已在运行")
    } else {
        tr("it was started", "已启动")
    };
    writeln!(out, "{} {} ({took} ms, {how})", text("name"), tr("answers", "有应答"))?;
    writeln!(out, "{}: {}", tr("server", "服务器"), text("title"))?;
    writeln!(out, "{}: {}, {}", tr("protocol", "协议"), text("protocol"), text("transport"))?;
    writeln!(
        out,
        "{}: {} ({} {}), {}: {}, {}: {}",
        tr("tools", "工具"),
        found["tools"],
        found["available"],
        tr("available", "可用"),
        tr("resources", "资源"),
        found["resources"],
        tr("prompts", "提示"),
        found["prompts"],
    )?;
    for problem in render::items(&found["problems"]) {
        writeln!(out, "{}", render::text(problem))?;
    }
    Ok(())
}

fn import(file: &Path, is_added: bool, environment: &CommandEnvironment) -> anyhow::Result<CommandExit> {
    let length = fs::metadata(file).with_context(|| file.display().to_string())?.len();
    if length > MAX_IMPORT {
        bail!("{}: it has {length} bytes, and {MAX_IMPORT} are allowed", file.display());
    }
    let text = fs::read_to_string(file).with_context(|| file.display().to_string())?;
    let imported = match import_servers(&text) {
        Ok(imported) => imported,
        Err(faults) => {
            for fault in faults {
                print_note(format!("{}: {fault}", file.display()));
            }
            return Ok(CommandExit::Failed);
        }
    };
    if !is_added {
        let mut out = output::stdout();
        let printed = imported.iter().try_for_each(|server| writeln!(out, "{}", server.table));
        return Ok(CommandExit::of_output(printed.map(|()| CommandExit::Ok))?);
    }
    let known = &environment.without_secrets()?.config.mcp;
    let default = environment.home.config();
    let config = environment.loaded.file.as_deref().unwrap_or(&default);
    if let Some(taken) = imported.iter().find(|server| known.contains_key(&server.name)) {
        let (config, file) = (config.display(), file.display());
        bail!("{config} has [mcp.{}] already: remove it, or rename the server in {file}", taken.name);
    }
    append(config, &imported).with_context(|| config.display().to_string())?;
    let names = imported.iter().map(|server| server.name.as_str()).collect::<Vec<_>>().join(", ");
    let en = "added to {}: {}; a running gateway uses them after its next reload";
    let zh = "已加入 {}：{}；正在运行的网关在下次重新加载后使用";
    print_note(tr_fill(en, zh, &[&config.display(), &names]));
    Ok(CommandExit::Ok)
}

/// Appends tables to the file, which is created if it does not exist. A file that defines `mcp` in another form, such as an inline
/// table, stays unchanged: with the tables it would not be TOML.
fn append(config: &Path, imported: &[ImportedServer]) -> anyhow::Result<()> {
    let before = match fs::read_to_string(config) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
        Err(error) => return Err(error.into()),
    };
    let gap = match before.is_empty() {
        true => "",
        false if before.ends_with('\n') => "\n",
        false => "\n\n",
    };
    let tables = imported.iter().map(|server| server.table.as_str()).collect::<Vec<_>>().join("\n");
    let added = format!("{gap}{tables}");
    format!("{before}{added}").parse::<toml::Table>().context(
        "nothing was written, because the tables cannot be added to it; add them by hand, as printed without --add",
    )?;
    // Values may be secrets.
    let mut file = OpenOptions::new().create(true).append(true).mode(0o600).open(config)?;
    Ok(file.write_all(added.as_bytes())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_import_never_breaks_the_configuration() {
        let folder = tempfile::tempdir().unwrap();
        let config = folder.path().join("config.toml");
        let server = ImportedServer { name: "x".to_owned(), table: "[mcp.x]\ncommand = [\"x\"]\n".to_owned() };
        for (before, is_added) in [
            ("", true),
            ("[agent]\nmodel = \"a/b\"", true),
            ("[mcp.a]\nurl = \"http://a\"\n", true),
            ("mcp = { a = { url = \"http://a\" } }\n", false),
        ] {
            fs::write(&config, before).unwrap();
            assert_eq!(append(&config, std::slice::from_ref(&server)).is_ok(), is_added, "{before}");
            let after = fs::read_to_string(&config).unwrap();
            assert!(after.parse::<toml::Table>().is_ok() && (after == before) != is_added, "{after}");
        }
    }
}
