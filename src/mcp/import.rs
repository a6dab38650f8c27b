//! Imports the MCP servers of other programs. Their files name a program with arguments and variables, or an address with
//! headers.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use daoyou_channels::json as strict_json;
use daoyou_channels::settings::Secret;
use serde_json::{Map, Value};

use super::config::{McpServerConfig, McpTransport, is_server_name};

/// The keys under which the programs list their servers.
const LISTS: [&str; 4] = ["mcpServers", "servers", "mcp", "context_servers"];
/// The keys that have no meaning here, and are ignored silently.
const IGNORED: [&str; 12] = [
    "type", "transport", "description", "name", "icon", "autoApprove", "alwaysAllow", "gallery", "version", "source",
    "dev", "timeout",
];

/// A server of another program's file, as a table of `config.toml`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImportedServer {
    pub name: String,
    /// The TOML table with its heading.
    pub table: String,
}

/// Reads the servers in a file such as `mcp.json`, `claude_desktop_config.json` or `.vscode/mcp.json`.
///
/// # Errors
/// Returns one line for each part that is not understood. No server is imported then.
pub fn import_servers(text: &str) -> Result<Vec<ImportedServer>, Vec<String>> {
    // Some editors write a byte order mark in front of the text.
    let plain = without_comments(text.strip_prefix('\u{feff}').unwrap_or(text));
    let root: Value = serde_json::from_str(&plain)
        .map_err(|error| vec![format!("not JSON: {error}; allowed is an object with mcpServers or servers")])?;
    strict_json::check_keys(&plain).map_err(|error| vec![error.to_string()])?;
    let found = LISTS.iter().find_map(|key| servers_of(&root[*key]).map(|servers| ((*key).to_owned(), servers)));
    let Some((list, servers)) = found else {
        return Err(vec![
            "no servers: allowed is an object with mcpServers or servers, each entry a server".to_owned(),
        ]);
    };
    let (mut imported, mut faults) = (Vec::<ImportedServer>::new(), Vec::new());
    for (own_name, entry) in servers {
        let name = server_name(own_name, &imported);
        match read_server(entry) {
            Ok(server) => imported.push(ImportedServer { table: table_of(&server, &name), name }),
            Err(wrong) => faults.extend(wrong.into_iter().map(|wrong| format!("{list}.{own_name}: {wrong}"))),
        }
    }
    match (faults.is_empty(), imported.is_empty()) {
        (false, _) => Err(faults),
        (true, true) => Err(vec![format!("{list}: there is no server in it")]),
        (true, false) => Ok(imported),
    }
}

/// Returns the servers in a list. The settings of VS Code have them one level deeper.
fn servers_of(list: &Value) -> Option<&Map<String, Value>> {
    list.get("servers").or(Some(list))?.as_object()
}

/// Returns a valid and unused name that resembles the original one.
fn server_name(own_name: &str, taken: &[ImportedServer]) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '-' };
    let slug: String = own_name.trim().chars().map(plain).take(28).collect();
    let slug = slug.trim_matches('-');
    let base = if is_server_name(own_name) {
        own_name
    } else if slug.is_empty() {
        "server"
    } else {
        slug
    };
    let is_free = |name: &str| taken.iter().all(|other| other.name != name);
    let numbered = (2..).map(|number| format!("{base}-{number}"));
    std::iter::once(base.to_owned()).chain(numbered).find(|name| is_free(name)).unwrap_or_default()
}

/// Reads the settings that are imported. The values of variables and headers are those of the file.
fn read_server(entry: &Value) -> Result<McpServerConfig, Vec<String>> {
    let Value::Object(fields) = entry else { return Err(vec!["it is not an object".to_owned()]) };
    let (mut server, mut faults) = (McpServerConfig::default(), Vec::new());
    for (key, value) in fields {
        let taken = match key.as_str() {
            "command" => text(value).map(|program| server.command.insert(0, program)),
            "args" => texts(value).map(|arguments| server.command.extend(arguments)),
            "env" => pairs(value).map(|env| server.env = env),
            "url" | "serverUrl" | "httpUrl" => text(value).map(|url| server.url = url),
            "headers" | "requestInit" => {
                pairs(value.get("headers").unwrap_or(value)).map(|headers| server.headers = headers)
            }
            "disabled" => value.as_bool().map(|is| server.enabled = !is).ok_or("true or false"),
            "enabled" => value.as_bool().map(|is| server.enabled = is).ok_or("true or false"),
            "includeTools" | "tools" => {
                texts(value).map(|tools| server.tools = tools.into_iter().filter(|tool| tool != "*").collect())
            }
            ignored if IGNORED.contains(&ignored) => Ok(()),
            other => {
                faults.push(format!(
                    "{other} is not known here; known are command, args, env, url, headers, disabled and tools"
                ));
                continue;
            }
        };
        if let Err(allowed) = taken {
            faults.push(format!("{key}: allowed is {allowed}"));
        }
    }
    if !fields.contains_key("command") && !server.command.is_empty() {
        faults.push("args: there is no command to which they belong".to_owned());
    }
    if let Some(kind) = fields.get("type").or_else(|| fields.get("transport")).and_then(Value::as_str) {
        match kind {
            "sse" => server.transport = McpTransport::Sse,
            "stdio" | "http" | "streamable-http" | "streamableHttp" | "streamable_http" => {}
            other => faults.push(format!("type: {other:?} is not known; known are stdio, http and sse")),
        }
    }
    let values = || server.env.values().chain(server.headers.values()).map(Secret::expose);
    let words = server.command.iter().chain([&server.url]).map(String::as_str);
    let variable = values().filter(|value| reference(value) == **value).chain(words).find(|text| text.contains("${"));
    if let Some(text) = variable {
        faults.push(format!("{text:?} holds a variable of that program: put the value in its place; only env and headers can be \"env:NAME\""));
    }
    let is_reference = |text: &&str| ["env:", "file:", "cred:"].iter().any(|begin| text.starts_with(begin));
    if let Some(text) = values().find(is_reference) {
        faults.push(format!(
            "{text:?} is a plain text there, and would be a secret of yours here: write the value by hand"
        ));
    }
    if faults.is_empty() {
        let wrong = server.faults("x").into_iter();
        faults.extend(wrong.map(|fault| format!("{}; allowed is {}", fault.wrong, fault.allowed)));
    }
    if faults.is_empty() { Ok(server) } else { Err(faults) }
}

/// Formats the table for `config.toml`.
fn table_of(server: &McpServerConfig, name: &str) -> String {
    let quoted = |text: &str| toml::Value::String(text.to_owned()).to_string();
    let list = |texts: &[String]| format!("[{}]", texts.iter().map(|text| quoted(text)).collect::<Vec<_>>().join(", "));
    let mut table = format!("[mcp.{name}]\n");
    let mut line = |key: &str, value: String| {
        let _ = writeln!(table, "{key} = {value}");
    };
    if !server.command.is_empty() {
        line("command", list(&server.command));
    }
    if !server.url.is_empty() {
        line("url", quoted(&server.url));
    }
    if server.transport == McpTransport::Sse {
        line("transport", quoted("sse"));
    }
    if !server.enabled {
        line("enabled", "false".to_owned());
    }
    if !server.tools.is_empty() {
        line("tools", list(&server.tools));
    }
    for (key, map) in [("env", &server.env), ("headers", &server.headers)] {
        if map.is_empty() {
            continue;
        }
        let _ = writeln!(table, "[mcp.{name}.{key}]");
        for (name, value) in map {
            let _ = writeln!(table, "{} = {}", quoted(name), quoted(&reference(value.expose())));
        }
    }
    table
}

/// Converts a reference to daoyou's form: `${NAME}` and `${env:NAME}` become `env:NAME`.
fn reference(value: &str) -> String {
    let inner = value.strip_prefix("${").and_then(|rest| rest.strip_suffix('}'));
    let name = inner.map(|inner| inner.strip_prefix("env:").unwrap_or(inner));
    let is_name = |name: &&str| !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    name.filter(is_name).map_or_else(|| value.to_owned(), |name| format!("env:{name}"))
}

fn text(value: &Value) -> Result<String, &'static str> {
    value.as_str().map(str::to_owned).ok_or("a text")
}

fn texts(value: &Value) -> Result<Vec<String>, &'static str> {
    let list = value.as_array().ok_or("a list of texts")?;
    list.iter().map(|entry| text(entry).map_err(|_| "a list of texts")).collect()
}

fn pairs(value: &Value) -> Result<BTreeMap<String, Secret>, &'static str> {
    let pair = |(name, value): (&String, &Value)| match value {
        Value::String(text) => Ok((name.clone(), Secret::new(text.clone()))),
        Value::Number(_) | Value::Bool(_) => Ok((name.clone(), Secret::new(value.to_string()))),
        _ => Err("names with texts"),
    };
    value.as_object().ok_or("names with texts")?.iter().map(pair).collect()
}

/// Returns JSON without the comments and trailing commas that VS Code allows.
fn without_comments(text: &str) -> String {
    let (mut plain, mut chars, mut in_text) = (String::with_capacity(text.len()), text.chars().peekable(), false);
    while let Some(c) = chars.next() {
        match (in_text, c, chars.peek().copied()) {
            (true, '\\', Some(next)) => {
                plain.extend([c, next]);
                chars.next();
            }
            (_, '"', _) => {
                in_text = !in_text;
                plain.push(c);
            }
            (false, '/', Some('/')) => while chars.next_if(|c| *c != '\n').is_some() {},
            (false, '/', Some('*')) => {
                let mut last = ' ';
                chars.next();
                for c in chars.by_ref() {
                    if last == '*' && c == '/' {
                        break;
                    }
                    last = c;
                }
            }
            (false, '}' | ']', _) => {
                let kept = plain.trim_end().trim_end_matches(',').len();
                plain.truncate(kept);
                plain.push(c);
            }
            _ => plain.push(c),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_of_other_programs_become_tables() {
        let text = r#"{
            // VS Code allows comments.
            "inputs": [],
            "servers": {
                "time": {"type": "stdio", "command": "uvx", "args": ["mcp-server-time", "--local-timezone=UTC"],},
                "My Files!": {"command": "npx", "args": ["-y", "x \"y\""], "env": {"KEY": "${env:MY_KEY}", "N": 3}},
                "web": {"type": "sse", "url": "https://example.org/sse", "headers": {"Authorization": "Bearer a//b"}, "disabled": true},
            },
        }"#;
        let imported = import_servers(text).unwrap();
        assert_eq!(import_servers(&format!("\u{feff}{text}")).as_ref(), Ok(&imported));
        let tables: Vec<_> = imported.iter().map(|server| server.table.as_str()).collect();
        assert_eq!(
            tables,
            [
                "[mcp.My-Files]\ncommand = [\"npx\", \"-y\", 'x \"y\"']\n[mcp.My-Files.env]\n\"KEY\" = \"env:MY_KEY\"\n\"N\" = \"3\"\n",
                "[mcp.time]\ncommand = [\"uvx\", \"mcp-server-time\", \"--local-timezone=UTC\"]\n",
                "[mcp.web]\nurl = \"https://example.org/sse\"\ntransport = \"sse\"\nenabled = false\n[mcp.web.headers]\n\"Authorization\" = \"Bearer a//b\"\n",
            ]
        );
        for table in tables {
            let read: BTreeMap<String, BTreeMap<String, McpServerConfig>> = toml::from_str(table).unwrap();
            assert_eq!(read["mcp"].len(), 1);
        }
    }

    #[test]
    fn each_unknown_part_is_one_clear_error() {
        for (text, expected) in [
            ("{", "not JSON"),
            ("{}", "no servers"),
            (r#"{"mcpServers": {}}"#, "there is no server"),
            (r#"{"mcpServers": {"a": 1}}"#, "mcpServers.a: it is not an object"),
            (r#"{"mcpServers": {"a": {"command": 1}}}"#, "mcpServers.a: command: allowed is a text"),
            (r#"{"mcpServers": {"a": {"command": "x", "cwd": "/"}}}"#, "mcpServers.a: cwd is not known here"),
            (r#"{"mcpServers": {"a": {"type": "ws", "url": "ws://x"}}}"#, "\"ws\" is not known"),
            (r#"{"mcpServers": {"a": {"command": "x"}, "a": {"command": "y"}}}"#, "the key \"a\" stands twice"),
            (r#"{"mcpServers": {"a": {}}}"#, "neither command nor url"),
            (r#"{"mcpServers": {"a": {"args": ["x"]}}}"#, "mcpServers.a: args: there is no command"),
            (r#"{"servers": {"a": {"command": "x", "env": {"K": "${input:key}"}}}}"#, "holds a variable"),
            (r#"{"servers": {"a": {"command": "x", "args": ["${workspaceFolder}"]}}}"#, "holds a variable"),
        ] {
            let faults = import_servers(text).unwrap_err();
            assert!(faults.len() == 1 && faults[0].contains(expected), "{text}: {faults:?}");
        }
    }
}
