//! Checks of a configuration that need the modules themselves.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use daoyou_channels::settings::join_key;

use super::agents::load_agents;
use crate::agent::AgentConfig;
use crate::config::{ConfigFault, ConfigFaults, LoadedConfig};
use crate::guard::resolve_links;
use crate::home::{Home, is_system_folder};
use crate::http::{ReloadingTls, TlsFile};
use crate::llm::Models;
use crate::tools::{TOOL_NAMES, is_tool, nearest_tool};

/// Returns all faults that these checks find. It starts nothing.
pub fn check(loaded: &LoadedConfig, home: &Home, env: &BTreeMap<String, String>) -> Vec<ConfigFault> {
    let mut faults = check_tools(loaded).err().map_or_else(Vec::new, |faults| faults.0);
    faults.extend(check_workspace(loaded, home));
    faults.extend(open_tls(loaded).err().into_iter().flat_map(|faults| faults.0));
    faults.extend(load_agents(loaded, home).1);
    let build = |loaded: &LoadedConfig| build_models(loaded, |name| env.get(name).cloned());
    let built = build(loaded);
    let found = built.as_ref().err().map_or_else(Vec::new, |faults| faults.0.clone());
    // Reports a fault of a provider once, not for each of its models.
    let is_faulty = |name: &String| {
        let table = format!("{}.", join_key("providers", name));
        found.iter().chain(&loaded.missing).any(|fault| fault.key.starts_with(&table))
    };
    let faulty: BTreeSet<String> = loaded.config.providers.keys().filter(|name| is_faulty(name)).cloned().collect();
    let models = built.or_else(|_| {
        let mut rest = loaded.clone();
        rest.config.providers.retain(|name, _| !faulty.contains(name));
        build(&rest)
    });
    faults.extend(found);
    if let Ok(models) = models {
        let named = named_models(loaded, &models).into_iter().filter(|(_, model, _)| {
            let provider = model.split('/').next().unwrap_or_default();
            !faulty.contains(provider)
        });
        faults.extend(named.filter_map(|(key, _, result)| Some(loaded.fault(&key, result.err()?, ""))));
    }
    faults
}

/// Checks that the workspace is a usable path, is not a folder of the system, where the agent would write, and does not
/// hold the home: the agent could read and change the gateway's own files there.
fn check_workspace(loaded: &LoadedConfig, home: &Home) -> Option<ConfigFault> {
    let real = |path: &Path| resolve_links(path).ok();
    let fault = |wrong: String, allowed| Some(loaded.fault("agent.workspace", wrong, allowed));
    let written = &loaded.config.agent.workspace;
    if written.contains('\0') {
        return fault(format!("{written:?} is not a path"), "the path of a folder");
    }
    let workspace = home.workspace(written);
    let found = real(&workspace)?;
    let is_chosen = *written != AgentConfig::default().workspace;
    if is_chosen && found.exists() && !found.is_dir() {
        return fault(
            format!("{} is not a folder", workspace.display()),
            "a folder, or a path that does not exist yet",
        );
    }
    if is_system_folder(&found) {
        return fault(format!("{} is a folder of the system", workspace.display()), "a folder of its own");
    }
    if real(home.dir())?.starts_with(found) {
        let wrong = format!("{} holds daoyou's own folder {}", workspace.display(), home.dir().display());
        return fault(wrong, "a folder inside of that one, or elsewhere");
    }
    None
}

/// Checks that each tool named in the tool settings exists, by name or alias.
pub(super) fn check_tools(loaded: &LoadedConfig) -> Result<(), ConfigFaults> {
    let tools = &loaded.config.tools;
    let disabled = tools.disabled.iter().map(|name| ("tools.disabled".to_owned(), name));
    let limited = tools.output.keys().map(|name| (format!("tools.output.{name}"), name));
    let filtered = tools.postprocess.tools.keys().map(|name| (format!("tools.postprocess.tools.{name}"), name));
    let summarised = tools.postprocess.llm.tools.iter().map(|name| ("tools.postprocess.llm.tools".to_owned(), name));
    let approved = loaded.config.approval.tools.keys().map(|name| (join_key("approval.tools", name), name));
    // The tools of MCP servers are known only to the servers.
    let is_of_server =
        |name: &str| name.split_once("__").is_some_and(|(server, _)| loaded.config.mcp.contains_key(server));
    // Only `approval.tools` knows beginnings of names.
    let is_beginning = |key: &str, name: &str| {
        let is_of_tool = |start: &str| {
            let is_of_server = |server: &String| {
                let of_server = format!("{}__", server.to_lowercase());
                start.starts_with(&of_server) || of_server.starts_with(start)
            };
            TOOL_NAMES.iter().any(|(tool, ..)| tool.starts_with(start)) || loaded.config.mcp.keys().any(is_of_server)
        };
        key.starts_with("approval.tools.") && name.to_lowercase().strip_suffix('*').is_some_and(is_of_tool)
    };
    let named = disabled.chain(limited).chain(filtered).chain(summarised).chain(approved);
    let unknown = named.filter(|(key, name)| !is_tool(name) && !is_of_server(name) && !is_beginning(key, name));
    all(unknown.map(|(key, name)| {
        let near = nearest_tool(name).map_or_else(String::new, |near| format!("; the nearest is {near:?}"));
        let wrong = match name.strip_suffix('*').filter(|_| key.starts_with("approval.")) {
            Some(start) => format!("no tool's name begins with {start:?}, and no server in [mcp] has such tools"),
            None => format!("{name:?} is not a tool{near}"),
        };
        let names = TOOL_NAMES.iter().map(|(name, ..)| *name).collect::<Vec<_>>().join(", ");
        loaded.fault(&key, wrong, names)
    }))
}

/// Builds the providers of the configuration.
pub(super) fn build_models(
    loaded: &LoadedConfig,
    env: impl Fn(&str) -> Option<String>,
) -> Result<Models, ConfigFaults> {
    let price = loaded.config.agent.fallback_price.clone();
    if price.as_ref().is_some_and(|price| !price.is_sound()) {
        return Err(ConfigFaults(vec![loaded.fault("agent.fallback_price", "a price is a number, zero or more", "")]));
    }
    Models::build(&loaded.config.providers, env)
        .map(|models| models.with_fallback_price(price))
        .map_err(|faults| ConfigFaults(faults.into_iter().map(|fault| loaded.fault_of(fault)).collect()))
}

/// Checks that each model in the configuration has a provider. The models of webhooks are used only when a message arrives, and
/// nobody may watch the gateway then.
pub(super) fn check_models(loaded: &LoadedConfig, models: &Models) -> Result<(), ConfigFaults> {
    let named = named_models(loaded, models).into_iter();
    all(named.filter_map(|(key, _, result)| Some(loaded.fault(&key, result.err()?, ""))))
}

/// Returns each model in the configuration: its key, the model, and whether it has a provider.
fn named_models(loaded: &LoadedConfig, models: &Models) -> Vec<(String, String, Result<(), String>)> {
    let config = &loaded.config;
    let check =
        |key: String, model: &str| (key, model.to_owned(), models.check(model).map_err(|error| error.to_string()));
    let check_embedder = |key: &str, model: &str, dimensions| {
        let result = models.embedder(model, dimensions).map(drop).map_err(|error| error.to_string());
        (key.to_owned(), model.to_owned(), result)
    };
    let mut named = vec![check("agent.model".to_owned(), &config.agent.model)];
    named.extend(config.agent.fallback.iter().map(|model| check("agent.fallback".to_owned(), model)));
    let hooks = config.channels.webhook.iter().filter(|(_, hook)| hook.enabled);
    named.extend(
        hooks.filter_map(|(name, hook)| Some(check(format!("channels.webhook.{name}.model"), hook.model.as_deref()?))),
    );
    let agents = config.agents.iter().filter(|(_, agent)| !agent.model.is_empty());
    named.extend(agents.map(|(name, agent)| check(join_key(&join_key("agents", name), "model"), &agent.model)));
    named.push(check("memory.model".to_owned(), &config.memory.model));
    if !config.heartbeat.model.is_empty() {
        named.push(check("heartbeat.model".to_owned(), &config.heartbeat.model));
    }
    let (embeddings, postprocess) = (&config.memory.embeddings, &config.tools.postprocess);
    if !embeddings.model.is_empty() {
        named.push(check_embedder("memory.embeddings.model", &embeddings.model, embeddings.dimensions));
    }
    if !postprocess.semantic.model.is_empty() {
        named.push(check_embedder("tools.postprocess.semantic.model", &postprocess.semantic.model, 0));
    }
    if !postprocess.llm.model.is_empty() {
        named.push(check("tools.postprocess.llm.model".to_owned(), &postprocess.llm.model));
    }
    named
}

/// Opens the certificate of the configuration, if it names one.
pub(super) fn open_tls(loaded: &LoadedConfig) -> Result<Option<ReloadingTls>, ConfigFaults> {
    ReloadingTls::open(&loaded.config.gateway.tls, std::env::home_dir().as_deref()).map_err(|(file, wrong)| {
        let (key, allowed) = match file {
            TlsFile::Cert => ("gateway.tls.cert", "the path of a PEM file with the certificate and its chain"),
            TlsFile::Key => ("gateway.tls.key", "the path of a PEM file with the certificate's private key"),
        };
        ConfigFaults(vec![loaded.fault(key, wrong, allowed)])
    })
}

fn all(faults: impl Iterator<Item = ConfigFault>) -> Result<(), ConfigFaults> {
    let faults: Vec<_> = faults.collect();
    if faults.is_empty() { Ok(()) } else { Err(ConfigFaults(faults)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{self, ConfigSource};

    #[test]
    fn a_workspace_that_holds_the_home_or_is_the_systems_is_a_fault() {
        let folder = tempfile::tempdir().unwrap();
        let home = Home::open(Some(folder.path().join("home"))).unwrap();
        std::os::unix::fs::symlink(folder.path(), home.dir().join("link")).unwrap();
        std::os::unix::fs::symlink("nowhere", home.dir().join("dangling")).unwrap();
        for (workspace, is_fault) in [
            ("", false),
            ("desk", false),
            ("../desk", false),
            ("dangling", false),
            (".", true),
            ("..", true),
            ("/", true),
            ("link", true),
            ("/etc", true),
            ("/etc/daoyou", true),
            ("/usr", true),
            ("/usr/local/share/desk", false),
            ("/var/lib/desk", false),
            ("\\u0000", true),
        ] {
            let text = format!("[agent]\nworkspace = \"{workspace}\"\n");
            let source = ConfigSource::Draft { path: &home.config(), text: &text };
            let loaded = config::load(source, &BTreeMap::new()).unwrap();
            let fault = check_workspace(&loaded, &home);
            assert_eq!(fault.is_some_and(|fault| fault.key == "agent.workspace"), is_fault, "{workspace:?}");
        }
    }
}
