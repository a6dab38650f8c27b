//! The registry of tools, by name and alias.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use indexmap::{IndexMap, IndexSet};
use parking_lot::Mutex;
use thiserror::Error;

use super::argument_aliases::changes_arguments;
use super::arguments::parse_call;
use super::names::{EXEC, FIND_TOOLS, ToolOffer, offer_of};
use super::schema::{schema_faults, schema_for_models};
use super::tool::Tool;
use crate::chat::{ToolCall, ToolSpec};
use crate::guard::{means_tool, runs_project_code};

/// The longest name that model services accept.
const NAME_CHARS: usize = 64;
/// The longest part of an unknown tool's name that an error repeats, in characters.
const ECHO_CHARS: usize = 80;
/// The minimum number of tools with a common prefix for which a list names only the prefix.
const MIN_GROUP: usize = 3;

/// The maximum number of sets of found tools whose specifications are cached.
const MAX_COMPOSED: usize = 16;

/// The reason why a tool cannot be registered.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum ToolRegistryError {
    #[error("tool name {0:?}: 1 to 64 of letters, digits, _ and - are allowed")]
    Name(String),
    #[error("there is a tool {0:?} already")]
    Duplicate(String),
    #[error("tool {name:?}: its schema: {faults}")]
    Schema { name: String, faults: String },
}

/// The tools in the order of their registration. Models see this order, so requests have the same bytes in every turn.
#[derive(Default)]
pub struct ToolRegistry {
    tools: IndexMap<String, Arc<dyn Tool>>,
    /// Maps names and aliases in lower case to the tool's name.
    aliases: HashMap<String, String>,
    disabled: Vec<String>,
    /// Tools that the configuration disables.
    disabled_tools: Vec<Arc<dyn Tool>>,
    /// Tools that this turn may not use.
    withheld: Vec<Arc<dyn Tool>>,
    specs: ComposedSpecs,
    /// True if models are offered every tool, because the set of tools was chosen explicitly.
    offers_all: bool,
}

/// The specifications for models by the set of found tools, the most recently used first. Requests for the same set share one
/// allocation, so that callers can cache derived values, such as token counts, by its address.
#[derive(Default)]
struct ComposedSpecs(Mutex<VecDeque<SpecsOfFound>>);

/// A set of found tools, and the specifications that include them.
type SpecsOfFound = (BTreeSet<String>, Arc<[ToolSpec]>);

impl ComposedSpecs {
    fn get(&self, found: &BTreeSet<String>, compose: impl FnOnce() -> Arc<[ToolSpec]>) -> Arc<[ToolSpec]> {
        let mut kept = self.0.lock();
        let known = kept.iter().position(|(of, _)| of == found).and_then(|at| kept.remove(at));
        let entry = known.unwrap_or_else(|| (found.clone(), compose()));
        let specs = Arc::clone(&entry.1);
        kept.push_front(entry);
        kept.truncate(MAX_COMPOSED);
        specs
    }
}

impl ToolRegistry {
    /// Returns an empty registry. `disabled` names tools that models cannot call: by name, alias, or a prefix and `*`.
    pub fn new(disabled: &[String]) -> Self {
        Self { disabled: disabled.iter().map(|name| name.to_lowercase()).collect(), ..Self::default() }
    }

    /// Adds a tool unless it is disabled.
    ///
    /// # Errors
    /// A model service would reject the tool, or its name is taken.
    pub fn register(&mut self, tool: Arc<dyn Tool>) -> Result<(), ToolRegistryError> {
        let spec = tool.spec();
        let name = spec.name.clone();
        let safe = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        if name.is_empty() || name.len() > NAME_CHARS || !name.chars().all(safe) {
            return Err(ToolRegistryError::Name(name));
        }
        if self.tools.contains_key(&name) {
            return Err(ToolRegistryError::Duplicate(name));
        }
        let faults = schema_faults(&spec.parameters);
        if !faults.is_empty() {
            return Err(ToolRegistryError::Schema { name, faults: faults.join("; ") });
        }
        let is_disabled = |word: &str| self.disabled.iter().any(|disabled| means_tool(disabled, word));
        let runs_commands = runs_project_code(&name) && is_disabled(EXEC);
        if runs_commands || is_disabled(&name) || tool.definition().aliases.iter().any(|alias| is_disabled(alias)) {
            self.disabled_tools.push(tool);
            return Ok(());
        }
        for alias in std::iter::once(name.as_str()).chain(tool.definition().aliases.iter().copied()) {
            self.aliases.entry(alias.to_lowercase()).or_insert_with(|| name.clone());
        }
        self.tools.insert(name, tool);
        self.specs = ComposedSpecs::default();
        Ok(())
    }

    /// Returns the same registry, with the tools withheld for which `keeps` returns false.
    pub fn filtered(&self, keeps: impl Fn(&str) -> bool) -> Self {
        let (kept, gone): (Vec<_>, Vec<_>) = self.tools.iter().partition(|(name, _)| keeps(name));
        let tools: IndexMap<_, _> = kept.into_iter().map(|(name, tool)| (name.clone(), Arc::clone(tool))).collect();
        let aliases = self.aliases.iter().filter(|(_, name)| tools.contains_key(*name));
        let gone = gone.into_iter().map(|(_, tool)| tool);
        Self {
            aliases: aliases.map(|(alias, name)| (alias.clone(), name.clone())).collect(),
            disabled: self.disabled.clone(),
            disabled_tools: self.disabled_tools.clone(),
            withheld: self.withheld.iter().chain(gone).cloned().collect(),
            specs: ComposedSpecs::default(),
            offers_all: self.offers_all,
            tools,
        }
    }

    /// Returns the same registry, with every tool offered to models.
    pub fn offering_all(self) -> Self {
        Self { offers_all: true, specs: ComposedSpecs::default(), ..self }
    }

    /// Composes the specifications for models. Tools that are not offered are left out unless they were found; the description of
    /// `find_tools` names those that are left out.
    fn compose_specs(&self, found: &BTreeSet<String>) -> Arc<[ToolSpec]> {
        let is_shown =
            |tool: &dyn Tool| self.offers_all || tool.definition().is_offered || found.contains(&tool.spec().name);
        let hidden = self.tools.values().filter(|tool| !is_shown(&***tool));
        let hidden: Vec<_> = hidden.map(|tool| tool.spec().name.as_str()).collect();
        let mut specs = Vec::new();
        for tool in self.tools.values().filter(|tool| is_shown(&***tool)) {
            let mut spec = tool.spec().clone();
            spec.parameters = schema_for_models(&spec.parameters);
            if spec.name == FIND_TOOLS {
                if hidden.is_empty() {
                    continue;
                }
                spec.description = format!("{}: {}.", spec.description, name_list(&hidden));
            }
            specs.push(spec);
        }
        specs.into()
    }

    /// Returns true if the named tool exists but is withheld.
    pub fn is_withheld(&self, name: &str) -> bool {
        let name = name.trim();
        let is_meant = |word: &str| word.eq_ignore_ascii_case(name);
        self.get(name).is_none()
            && self
                .withheld
                .iter()
                .any(|tool| is_meant(&tool.spec().name) || tool.definition().aliases.iter().any(|a| is_meant(a)))
    }

    /// Returns the specifications for models, including those of the found tools.
    pub fn specs(&self, found: &BTreeSet<String>) -> Arc<[ToolSpec]> {
        self.specs.get(found, || self.compose_specs(found))
    }

    /// Returns a tool by name or alias, ignoring case.
    pub fn get(&self, name: &str) -> Option<&Arc<dyn Tool>> {
        let name = name.trim();
        self.tools.get(name).or_else(|| self.tools.get(self.aliases.get(&name.to_lowercase())?))
    }

    /// Gives a call the tool's canonical name. If the alias gives the arguments another meaning, they become those that mean the same
    /// by the tool's canonical name. The call of an unknown tool stays, as do faulty arguments.
    pub fn canonicalize(&self, call: &mut ToolCall) {
        let Some(tool) = self.get(&call.name) else { return };
        let spec = tool.spec();
        if changes_arguments(spec, &call.name)
            && let Ok(arguments) = parse_call(spec, &call.name, &call.arguments)
        {
            call.arguments = arguments.to_string();
        }
        call.name.clone_from(&spec.name);
    }

    /// Returns every tool, the disabled ones last, and whether models see it.
    pub fn all(&self) -> impl Iterator<Item = (&Arc<dyn Tool>, bool)> {
        let disabled = self.disabled_tools.iter().map(|tool| (tool, false));
        self.tools.values().map(|tool| (tool, true)).chain(disabled)
    }

    /// Returns the error for a call of a tool that this registry lacks.
    pub fn unknown_tool_error(&self, name: &str) -> String {
        let name: String = name.chars().take(ECHO_CHARS).collect();
        let known: Vec<_> = self.names().collect();
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        let what = if self.is_withheld(&name) { "is not available in this turn" } else { "not found" };
        format!("Tool {name:?} {what}. Available tools: {known}")
    }

    /// Returns the names in the order of registration.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.tools.keys().map(String::as_str)
    }
}

/// Lists the names of tools. A group of tools is listed by its common prefix, such as `git_*`.
fn name_list(names: &[&str]) -> String {
    let group_of = |name: &str| name.split_once('_').map(|(start, _)| format!("{start}_"));
    let mut sizes: HashMap<String, usize> = HashMap::new();
    for group in names.iter().filter_map(|name| group_of(name)) {
        *sizes.entry(group).or_default() += 1;
    }
    let mut list: IndexSet<String> = IndexSet::new();
    for name in names {
        let group = group_of(name).filter(|group| sizes.get(group).is_some_and(|size| *size >= MIN_GROUP));
        list.insert(group.map_or_else(|| name_with_hint(name), |group| format!("{group}*")));
    }
    list.into_iter().collect::<Vec<_>>().join(", ")
}

/// Returns the name of a tool, with its purpose in parentheses.
fn name_with_hint(name: &str) -> String {
    match offer_of(name) {
        ToolOffer::SearchWithHint(hint) => format!("{name} ({hint})"),
        ToolOffer::Always | ToolOffer::Search => name.to_owned(),
    }
}
