//! All agents of a gateway, and the routes to them.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use daoyou_channels::settings::SettingFault;

use super::built_in::{BUILT_IN, built_in_profiles};
use super::definition::AgentDefinition;
use super::manifest::{PROFILE_FILE, is_name};
use super::profile::{AgentProfile, DEFAULT_AGENT};
use super::resolve::{FoundProfile, ProfileFiles, agent_of, override_by, profiles_of, replacement_of};
use super::routes::{AgentRoute, RouteConfig};
use super::team::{called_agents, complete};
use crate::home::is_system_folder;
use crate::phrases::{Phrases, fill};
use crate::skills::{SkillProblem, SkillSource};
use crate::text::Language;
use crate::text::nearest::{BY_EDITS, nearest};

/// The source of an agent that the configuration defines, with or without a profile.
const CONFIGURED: &str = "configuration";
/// The folders of the workspace that belong to daoyou itself.
const PRIVATE_FOLDERS: [&str; 2] = ["memory", ".daoyou"];
/// The maximum number of characters of an unknown name that an error repeats.
const MAX_SHOWN: usize = 80;

/// The sources that agents are loaded from.
pub struct AgentSources<'a> {
    pub definitions: &'a BTreeMap<String, AgentDefinition>,
    pub routes: &'a [RouteConfig],
    pub skills: Vec<SkillSource>,
    /// The folder of the configuration file. Paths of prompts are relative to it.
    pub base: PathBuf,
    pub workspace: PathBuf,
    /// The home of the gateway. No agent may work in it.
    pub home: PathBuf,
}

/// The agents by name, and the routes to them.
#[derive(Debug)]
pub struct AgentDirectory {
    agents: BTreeMap<String, Arc<AgentProfile>>,
    routes: Vec<AgentRoute>,
    /// The rejected profiles, and the ignored parts of others.
    pub problems: Vec<SkillProblem>,
}

impl AgentDirectory {
    /// Reads and checks all agents. If there are faults, the directory contains the valid agents. The keys of the faults are such
    /// as `agents.NAME.prompt` or `routes[0].agent`.
    pub fn load(sources: &AgentSources<'_>) -> (Self, Vec<SettingFault>) {
        let (mut found, mut problems) = profiles_of(&sources.skills);
        let built_in = built_in_profiles().into_iter().map(|(manifest, folder)| FoundProfile {
            manifest,
            source: BUILT_IN.to_owned(),
            files: ProfileFiles::BuiltIn(folder),
        });
        found.extend(built_in);
        let mut profiles = BTreeMap::<String, FoundProfile>::new();
        for profile in found {
            if let Some(first) = profiles.get(&profile.manifest.name) {
                tracing::info!(
                    name = profile.manifest.name,
                    by = first.source,
                    "a built-in profile is not used: another has its name"
                );
                continue;
            }
            profiles.insert(profile.manifest.name.clone(), profile);
        }
        let mut agents = BTreeMap::new();
        for (name, profile) in &profiles {
            match agent_of(profile, &profiles) {
                Ok(agent) => drop(agents.insert(name.clone(), Arc::new(agent))),
                Err((line, problem)) => problems.push(SkillProblem { path: profile.source.clone(), line, problem }),
            }
        }
        let mut directory = Self { agents, routes: Vec::new(), problems };
        let mut faults = Vec::new();
        for (name, definition) in sources.definitions {
            let fault_of = |key: &str, wrong: String| SettingFault::new(&[&key_of(name, key)], wrong, "");
            match directory.define(name, definition, &profiles, sources) {
                Ok(agent) => drop(directory.agents.insert(name.clone(), Arc::new(agent))),
                Err(found) => faults.extend(found.into_iter().map(|(key, wrong)| fault_of(&key, wrong))),
            }
        }
        directory.complete(sources, &mut faults);
        // A default agent with a fault was removed.
        directory.agents.entry(DEFAULT_AGENT.to_owned()).or_insert_with(built_in_default);
        directory.add_routes(sources, &mut faults);
        (directory, faults)
    }

    /// Creates an agent that the configuration defines.
    fn define(
        &self,
        name: &str,
        definition: &AgentDefinition,
        profiles: &BTreeMap<String, FoundProfile>,
        sources: &AgentSources<'_>,
    ) -> Result<AgentProfile, Vec<(String, String)>> {
        if !is_name(name) {
            return Err(vec![(String::new(), "the name of an agent has letters, digits, - and _".to_owned())]);
        }
        let wanted = if definition.profile.is_empty() { name } else { definition.profile.as_str() };
        let base = match profiles.get(wanted).or_else(|| profiles.get(replacement_of(wanted)?)) {
            Some(profile) => agent_of(profile, profiles).map_err(|(_, wrong)| {
                vec![(
                    "profile".to_owned(),
                    format!("the profile {wanted:?} ({}) is rejected: {wrong}", profile.source),
                )]
            })?,
            // If the file is broken, the agent must not be created without its limits.
            None if let Some(problem) = self.rejected(wanted) => {
                return Err(vec![(
                    "profile".to_owned(),
                    format!("the profile {} is rejected: {}", problem.path, problem.problem),
                )]);
            }
            None if definition.profile.is_empty() => AgentProfile::default(),
            None => {
                let names: Vec<&str> = profiles.keys().map(String::as_str).collect();
                let wrong = format!("Skill '{wanted}' not found; there are the profiles {}", names.join(", "));
                return Err(vec![("profile".to_owned(), wrong)]);
            }
        };
        let (mut agent, mut faults) = override_by(definition, base, &sources.base);
        name.clone_into(&mut agent.name);
        CONFIGURED.clone_into(&mut agent.source);
        if !definition.workspace.is_empty() {
            let path = workspace_of(&definition.workspace, &sources.workspace, &sources.home);
            agent.workspace = path.map_err(|wrong| faults.push(("workspace".to_owned(), wrong))).ok();
        }
        if faults.is_empty() { Ok(agent) } else { Err(faults) }
    }

    /// Completes the agents that lead or choose other agents. A profile with a fault is rejected.
    fn complete(&mut self, sources: &AgentSources<'_>, faults: &mut Vec<SettingFault>) {
        let is_alone = |agent: &AgentProfile| {
            let has_none = agent.team.is_empty() && agent.branches.is_empty() && agent.workflow.is_none();
            has_none && agent.orchestrator.of_model().is_some()
        };
        let names: Vec<String> = self.agents.keys().cloned().collect();
        for name in names {
            let Some(agent) = self.agents.remove(&name) else { continue };
            if is_alone(&agent) {
                self.agents.insert(name, agent);
                continue;
            }
            let source = agent.source.clone();
            // No other reference to the agent exists yet.
            let Some(agent) = Arc::into_inner(agent) else { continue };
            let is_rejected = |other: &str| {
                other != name && sources.definitions.contains_key(other) && !self.agents.contains_key(other)
            };
            let needs_rejected = called_agents(&agent).any(is_rejected) || agent.team.iter().any(|it| is_rejected(it));
            match complete(agent, &self.agents) {
                Ok(agent) => drop(self.agents.insert(name, Arc::new(agent))),
                // The fault of the other agent is reported already.
                Err(_) if needs_rejected => {}
                Err((key, wrong)) if sources.definitions.contains_key(&name) => {
                    faults.push(SettingFault::new(&[&key_of(&name, key)], wrong, ""));
                }
                Err((key, wrong)) => {
                    self.problems.push(SkillProblem { path: source, line: None, problem: format!("{key}: {wrong}") });
                }
            }
        }
    }

    /// Returns the problem of the profile in the folder with this name.
    fn rejected(&self, name: &str) -> Option<&SkillProblem> {
        let file = Path::new(name).join(PROFILE_FILE);
        self.problems.iter().find(|problem| Path::new(&problem.path).ends_with(&file))
    }

    fn add_routes(&mut self, sources: &AgentSources<'_>, faults: &mut Vec<SettingFault>) {
        for (at, route) in sources.routes.iter().enumerate() {
            let mut fault = |key: &str, wrong: String, allowed: String| {
                faults.push(SettingFault::new(&[&format!("routes[{at}].{key}")], wrong, allowed));
            };
            let Some(agent) = self.find(&route.agent).cloned() else {
                // The faults of a defined agent are reported already.
                if !sources.definitions.contains_key(&route.agent) {
                    let wrong = match route.agent.as_str() {
                        "" => "it is not set".to_owned(),
                        name => format!("Agent '{}' not found", shown(name)),
                    };
                    fault("agent", wrong, self.names().join(", "));
                }
                continue;
            };
            match AgentRoute::new(route, agent) {
                Ok(route) => self.routes.push(route),
                Err((key, wrong)) => fault(key, wrong, "a pattern such as \"webhook:*\", or \"*\" for all".to_owned()),
            }
        }
    }

    /// Returns the agent with this name, ignoring case, or the agent that replaces this agent of another system.
    pub fn find(&self, name: &str) -> Option<&Arc<AgentProfile>> {
        let name = name.trim();
        let any_case =
            || self.agents.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, agent)| agent);
        self.agents.get(name).or_else(any_case).or_else(|| self.agents.get(replacement_of(name)?))
    }

    /// Returns the agent for a message's chat: that of the first matching route, otherwise the default agent.
    pub fn route(&self, channel: &str, chat: &str, sender: &str) -> &Arc<AgentProfile> {
        self.routed(channel, chat, sender).unwrap_or_else(|| self.default_agent())
    }

    /// Returns the agent of the first matching route.
    pub fn routed(&self, channel: &str, chat: &str, sender: &str) -> Option<&Arc<AgentProfile>> {
        self.routes.iter().find(|route| route.fits(channel, chat, sender)).map(|route| &route.agent)
    }

    pub fn default_agent(&self) -> &Arc<AgentProfile> {
        &self.agents[DEFAULT_AGENT]
    }

    /// Returns true if there are routes.
    pub fn has_routes(&self) -> bool {
        !self.routes.is_empty()
    }

    /// Adds a problem for each agent whose model `check` refuses. `check` returns the reason.
    pub fn check_models(&mut self, check: impl Fn(&str) -> Option<String>) {
        let fault = |agent: &Arc<AgentProfile>| {
            let model = agent.model.as_deref()?;
            let problem = format!("the model {model} of the agent {} cannot be asked: {}", agent.name, check(model)?);
            Some(SkillProblem { path: agent.source.clone(), line: None, problem })
        };
        let faults: Vec<_> = self.agents.values().filter_map(fault).collect();
        self.problems.extend(faults);
    }

    /// Returns the agents by name.
    pub fn all(&self) -> impl Iterator<Item = &Arc<AgentProfile>> {
        self.agents.values()
    }

    pub fn names(&self) -> Vec<&str> {
        self.agents.keys().map(String::as_str).collect()
    }

    /// Returns the error for an unknown agent name, in English.
    pub fn unknown(&self, name: &str) -> String {
        self.unknown_in(name, Phrases::of(Language::En))
    }

    /// Returns the error for an unknown agent name, in the language of `phrases`.
    pub fn unknown_in(&self, name: &str, phrases: &Phrases) -> String {
        let near = nearest(&name.to_lowercase(), self.names().into_iter().map(|name| (name, name)), BY_EDITS, 0.6);
        let (name, names) = (shown(name), self.names().join(", "));
        match near {
            Some(near) => fill(phrases.unknown_agent_near, &[&name, near, &names]),
            None => fill(phrases.unknown_agent, &[&name, &names]),
        }
    }
}

fn shown(name: &str) -> String {
    crate::text::truncate(&crate::text::one_line(name), MAX_SHOWN)
}

fn key_of(name: &str, key: &str) -> String {
    let name = if is_name(name) && name.is_ascii() { name.to_owned() } else { format!("{name:?}") };
    if key.is_empty() { format!("agents.{name}") } else { format!("agents.{name}.{key}") }
}

/// Returns the real path of an agent's own folder. A missing folder below the workspace is created at the start.
fn workspace_of(written: &str, workspace: &Path, home: &Path) -> Result<PathBuf, String> {
    let path = Path::new(written);
    // If the folder is missing, the nearest existing folder above it determines the real path.
    let real = |path: &Path| {
        let above = path.ancestors().find_map(|above| Some((above, above.canonicalize().ok()?)));
        above.map_or_else(
            || path.to_owned(),
            |(above, real)| match path.strip_prefix(above) {
                Ok(rest) if !rest.as_os_str().is_empty() => real.join(rest),
                _ => real,
            },
        )
    };
    if path.is_relative() {
        if !path.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir)) {
            return Err(format!("{written:?} leaves the workspace; write a path below it, or an absolute one"));
        }
        let plain: PathBuf = path.components().filter(|part| *part != Component::CurDir).collect();
        if PRIVATE_FOLDERS.iter().any(|private| plain.starts_with(private)) {
            return Err(format!("{written:?} is a folder of daoyou itself; choose another one"));
        }
        let inside = real(&workspace.join(plain));
        return match inside.starts_with(real(workspace)) {
            true => Ok(inside),
            false => Err(format!("{written:?} is a link that leaves the workspace; write where it leads")),
        };
    }
    let found = path.canonicalize().map_err(|error| format!("{written}: {error}"))?;
    if !found.is_dir() {
        return Err(format!("{written}: is not a folder"));
    }
    if is_system_folder(&found) {
        return Err(format!("{written}: is a folder of the system; choose another folder"));
    }
    let (home, workspace) = (real(home), real(workspace));
    let is_private = PRIVATE_FOLDERS.iter().any(|private| found.starts_with(workspace.join(private)));
    if home.starts_with(&found)
        || workspace.starts_with(&found)
        || is_private
        || found.starts_with(&home) && !found.starts_with(&workspace)
    {
        return Err(format!("{written}: holds daoyou's own data, or lies in it; choose another folder"));
    }
    Ok(found)
}

fn built_in_default() -> Arc<AgentProfile> {
    let (name, source) = (DEFAULT_AGENT.to_owned(), BUILT_IN.to_owned());
    Arc::new(AgentProfile { name, source, ..AgentProfile::default() })
}

impl Default for AgentDirectory {
    fn default() -> Self {
        let agents = BTreeMap::from([(DEFAULT_AGENT.to_owned(), built_in_default())]);
        Self { agents, routes: Vec::new(), problems: Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::skills::SkillsConfig;

    struct World {
        folder: tempfile::TempDir,
    }

    impl World {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            std::fs::create_dir_all(folder.path().join("home/workspace/skills")).unwrap();
            Self { folder }
        }

        fn write(&self, path: &str, text: &str) {
            let path = self.folder.path().join("home").join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }

        fn load(&self, agents: &Value, routes: &Value) -> (AgentDirectory, Vec<String>) {
            let home = self.folder.path().join("home");
            let workspace = home.join("workspace");
            let definitions = serde_json::from_value(agents.clone()).unwrap();
            let routes: Vec<RouteConfig> = serde_json::from_value(routes.clone()).unwrap();
            let (directory, faults) = AgentDirectory::load(&AgentSources {
                definitions: &definitions,
                routes: &routes,
                skills: SkillSource::all(&SkillsConfig::default(), &workspace, None, &[]),
                base: home.clone(),
                workspace,
                home,
            });
            (directory, faults.into_iter().map(|fault| format!("{}: {}", fault.key(), fault.wrong)).collect())
        }
    }

    #[test]
    fn the_built_in_agents_are_there_and_the_explorer_only_reads() {
        let (directory, faults) = World::new().load(&json!({}), &json!([]));
        assert_eq!((faults, directory.problems.len()), (Vec::new(), 0));
        assert_eq!(
            directory.names(),
            ["assistant", "coder", "explorer", "researcher", "reviewer", "tester", "translator"]
        );
        let assistant = directory.default_agent();
        assert!(assistant.prompt.is_none() && !assistant.is_restricted());
        for name in ["explorer", "reviewer"] {
            let tools = directory.find(name).unwrap().tools.clone().unwrap();
            for changing in
                ["write_file", "edit_file", "apply_patch", "exec", "git_commit", "message", "spawn", "cron", "remember"]
            {
                assert!(!tools.iter().any(|tool| tool == changing), "{name}: {changing}");
            }
        }
        assert_eq!(directory.find("translator").unwrap().tools, Some(Vec::new()));
        for (other, own) in
            [("MainAgent", "assistant"), ("test_expert", "tester"), ("Coder", "coder"), ("programmer", "coder")]
        {
            assert_eq!(directory.find(other).unwrap().name, own);
        }
        assert!(directory.find("nobody").is_none());
        assert!(
            directory.unknown("codr").contains("Agent 'codr' not found. Did you mean coder? Agents: assistant, coder,")
        );
        let unknown = directory.unknown_in("codr", Phrases::of(Language::Zh));
        assert!(unknown.starts_with("没有名为“codr”的智能体，是不是想用 coder？现有：assistant, coder,"), "{unknown}");
    }

    #[test]
    fn profiles_of_folders_are_loaded_alone_and_the_first_of_a_name_counts() {
        let world = World::new();
        let head = |name: &str| format!("name: {name}\nversion: 1\ndescription: d\n");
        world.write(
            "workspace/skills/poet/skill.yaml",
            &format!("{}prompt:\n  file: p/poet.md\ntools: [list_files]\n", head("poet")),
        );
        world.write("workspace/skills/poet/p/poet.md", "You rhyme.");
        world.write("workspace/.claude/skills/poet/skill.yaml", &head("poet"));
        world.write("workspace/skills/_draft/skill.yaml", &head("draft"));
        world.write("workspace/skills/broken/skill.yaml", "name: broken\nversion: 1\n");
        world.write("workspace/skills/lost/skill.yaml", &format!("{}prompt:\n  file: no.md\n", head("lost")));
        world.write("workspace/skills/odd/skill.yaml", &format!("{}tools: [read_fil]\n", head("odd")));
        world.write("workspace/skills/out/skill.yaml", &format!("{}prompt:\n  file: ../poet/p/poet.md\n", head("out")));
        world.write("workspace/skills/same/skill.yaml", &head("assistant"));
        world.write("workspace/skills/main/skill.yaml", &format!("{}agent: nobody\n", head("main")));
        world.write("workspace/skills/own/skill.yaml", &format!("{}agent: test_expert\n", head("own")));
        let (directory, faults) = world.load(&json!({}), &json!([]));
        assert_eq!(faults, Vec::<String>::new());
        let poet = directory.find("poet").unwrap();
        assert_eq!(poet.prompt.as_ref().unwrap().fixed(), Some("You rhyme."));
        assert_eq!(poet.tools.as_deref(), Some(&["list_dir".to_owned()][..]));
        let own = directory.find("own").unwrap().prompt.as_ref().unwrap().fixed().unwrap();
        assert!(own.starts_with("You are a test engineer."), "{own}");
        let mut problems: Vec<_> = directory.problems.iter().map(|problem| problem.problem.as_str()).collect();
        problems.sort_unstable();
        for (problem, expected) in problems.iter().zip([
            "agent: Agent 'nobody' not found",
            "has no description",
            "has the name poet, as ",
            "prompt.file: \"../poet/p/poet.md\" is not a file of the profile's folder",
            "prompt.file: skills/lost/no.md: no such file",
            "the name assistant is that of the default agent",
            "tools: \"read_fil\" is not a tool; the nearest is \"read_file\"",
        ]) {
            assert!(problem.starts_with(expected), "{problem}");
        }
        assert_eq!(problems.len(), 7, "{problems:?}");
        assert!(directory.find("draft").is_none() && directory.find("lost").is_none());
    }

    #[test]
    fn a_lead_is_told_of_its_team_and_can_hand_out_tasks() {
        let (directory, faults) = World::new().load(
            &json!({
                "scout": {"orchestrator": "parallel_explore", "tools": []},
                "lead": {"orchestrator": "multi_agent", "agents": ["scout", "coder"]},
            }),
            &json!([]),
        );
        assert_eq!(faults, Vec::<String>::new());
        let scout = directory.find("scout").unwrap();
        assert_eq!((&scout.team, &scout.tools), (&vec!["explorer".to_owned()], &Some(vec!["spawn".to_owned()])));
        let guidance = scout.guidance.as_ref().unwrap();
        assert!(guidance.starts_with("You answer a question by exploring its parts side by side."), "{guidance}");
        let lead = directory.find("lead").unwrap();
        assert!(lead.tools.is_none() && lead.guidance.as_ref().unwrap().contains("\n- coder: Writes and changes code"));
        assert_eq!(directory.names().len(), 9, "nobody gets lost");
    }

    #[test]
    fn the_configuration_overrides_profiles_and_faults_have_keys() {
        let world = World::new();
        world.write("prompts/own.md", "Own prompt.");
        std::fs::create_dir(world.folder.path().join("project")).unwrap();
        let project = world.folder.path().join("project").canonicalize().unwrap();
        let (directory, faults) = world.load(
            &json!({
                "poet": {"prompt": "file:prompts/own.md", "tools": [], "memory": "none", "workspace": "poems"},
                "reader": {"profile": "explorer", "description": "Reads.", "workspace": project, "rounds": 3},
                "coder": {"model": "a/b"},
            }),
            &json!([{"channel": "webhook:*", "agent": "poet"}, {"sender": "ann", "agent": "Reader"}]),
        );
        assert_eq!(faults, Vec::<String>::new());
        let poet = directory.find("poet").unwrap();
        assert_eq!(
            (poet.prompt.as_ref().unwrap().fixed(), poet.source.as_str()),
            (Some("Own prompt."), "configuration")
        );
        assert!(poet.workspace.as_ref().unwrap().ends_with("workspace/poems"));
        let reader = directory.find("reader").unwrap();
        assert_eq!(
            (reader.name.as_str(), reader.rounds, reader.workspace.as_ref()),
            ("reader", Some(3), Some(&project))
        );
        assert!(reader.tools.as_ref().unwrap().contains(&"grep".to_owned()));
        assert_eq!(directory.find("coder").unwrap().model.as_deref(), Some("a/b"));
        for (channel, sender, expected) in
            [("webhook:in", "ann", "poet"), ("email", "ann", "reader"), ("email", "bob", "assistant")]
        {
            assert_eq!(directory.route(channel, "c", sender).name, expected);
        }
        let (directory, faults) = world.load(
            &json!({
                "a": {"profile": "nobody"},
                "b": {"prompt": "file:no.md"},
                "c": {"prompt": "{{ weather }}"},
                "d": {"tools": ["fly"]},
                "e": {"workspace": "../x"},
                "f": {"workspace": "/no/such/folder"},
                "g": {"workspace": world.folder.path().join("home")},
                "h": {"permissions": {"read": [{"pattern": "a["}]}},
                "i j": {},
                "k": {"orchestrator": "multi_agent", "agents": ["coder", "nobody"]},
                "l": {"orchestrator": "conditional", "branches": [{"when": "x in user_input", "agent": "coder"}]},
                "m": {"orchestrator": "conditional", "branches": [{"agent": "coder"}], "tools": []},
                "n": {"agents": ["coder"]},
                "o": {"orchestrator": "conditional", "branches": [{"when": "user_input ==", "agent": "coder"}]},
                // The faults of p and q would follow from that of n.
                "p": {"orchestrator": "conditional", "branches": [{"agent": "n"}]},
                "q": {"orchestrator": "multi_agent", "agents": ["coder", "n"]},
            }),
            &json!([{"agent": "nobody"}, {"channel": "a[", "agent": "coder"}]),
        );
        let expected = [
            "agents.a.profile: Skill 'nobody' not found",
            "agents.b.prompt: ",
            "agents.c.prompt: the prompt has no name \"weather\"",
            "agents.d.tools: \"fly\" is not a tool",
            "agents.e.workspace: \"../x\" leaves the workspace",
            "agents.f.workspace: /no/such/folder: No such file",
            "agents.g.workspace: ",
            "agents.h.permissions.read: \"a[\" is not a pattern",
            "agents.\"i j\": the name of an agent",
            "agents.k.agents: Agent 'nobody' not found",
            "agents.l.branches: when = \"x in user_input\": the condition has no name \"x\"",
            "agents.m.orchestrator: is conditional, which only chooses",
            "agents.n.agents: is for orchestrator",
            "agents.o.branches: when = \"user_input ==\": the condition is wrong: syntax error: ",
            "routes[0].agent: Agent 'nobody' not found",
            "routes[1].channel: \"a[\" is not a pattern",
        ];
        assert_eq!(faults.len(), expected.len(), "{faults:?}");
        for (fault, expected) in faults.iter().zip(expected) {
            assert!(fault.starts_with(expected), "{fault}");
        }
        assert!(directory.find("a").is_none());
    }

    #[test]
    fn a_faulty_default_agent_is_replaced_by_the_built_in_one() {
        let definition = json!({"assistant": {"orchestrator": "multi_agent", "agents": ["nobody"]}});
        let (directory, faults) = World::new().load(&definition, &json!([]));
        assert!(faults.len() == 1 && faults[0].starts_with("agents.assistant.agents: Agent 'nobody'"), "{faults:?}");
        assert!(directory.default_agent().team.is_empty());
        assert_eq!(directory.route("cli", "direct", "owner").name, "assistant");
    }
}
