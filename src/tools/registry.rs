//! The tools there are, by name.

use std::collections::HashMap;
use std::sync::Arc;

use indexmap::IndexMap;
use thiserror::Error;

use super::Tool;
use super::schema::schema_faults;
use crate::chat::ToolSpec;

/// The longest name that services take.
const NAME_CHARS: usize = 64;

/// Why a tool is not taken.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum RegistryError {
    #[error("tool name {0:?}: 1 to 64 of letters, digits, _ and - are allowed")]
    Name(String),
    #[error("there is a tool {0:?} already")]
    Duplicate(String),
    #[error("tool {name:?}: its schema: {faults}")]
    Schema { name: String, faults: String },
}

/// The tools in the order of their registration, which is the order that models see: same bytes from turn to turn.
#[derive(Default)]
pub struct Registry {
    tools: IndexMap<String, Arc<dyn Tool>>,
    /// Lower case, to the name.
    aliases: HashMap<String, String>,
    disabled: Vec<String>,
    /// Known, and switched off.
    off: Vec<Arc<dyn Tool>>,
    /// Known, and not for this turn.
    withheld: Vec<Arc<dyn Tool>>,
    specs: Arc<[ToolSpec]>,
}

impl Registry {
    /// `disabled` tools are not registered; an alias disables too.
    pub fn new(disabled: &[String]) -> Self {
        Self { disabled: disabled.iter().map(|name| name.to_lowercase()).collect(), ..Self::default() }
    }

    /// Adds a tool, unless it is disabled.
    ///
    /// # Errors
    /// When a model's service would refuse it, or its name is taken.
    pub fn register(&mut self, tool: Arc<dyn Tool>) -> Result<(), RegistryError> {
        let spec = tool.spec();
        let name = spec.name.clone();
        let safe = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        if name.is_empty() || name.len() > NAME_CHARS || !name.chars().all(safe) {
            return Err(RegistryError::Name(name));
        }
        if self.tools.contains_key(&name) {
            return Err(RegistryError::Duplicate(name));
        }
        let faults = schema_faults(&spec.parameters);
        if !faults.is_empty() {
            return Err(RegistryError::Schema { name, faults: faults.join("; ") });
        }
        let off = |word: &str| self.disabled.iter().any(|disabled| disabled.eq_ignore_ascii_case(word));
        if off(&name) || tool.aliases().iter().any(|alias| off(alias)) {
            self.off.push(tool);
            return Ok(());
        }
        for alias in std::iter::once(name.as_str()).chain(tool.aliases().iter().copied()) {
            self.aliases.entry(alias.to_lowercase()).or_insert_with(|| name.clone());
        }
        self.tools.insert(name, tool);
        self.specs = self.tools.values().map(|tool| tool.spec().clone()).collect();
        Ok(())
    }

    /// The same tools, but for those that `keeps` says no to: they are withheld.
    pub fn keeping(&self, keeps: impl Fn(&str) -> bool) -> Self {
        let (kept, gone): (Vec<_>, Vec<_>) = self.tools.iter().partition(|(name, _)| keeps(name));
        let tools: IndexMap<_, _> = kept.into_iter().map(|(name, tool)| (name.clone(), Arc::clone(tool))).collect();
        let aliases = self.aliases.iter().filter(|(_, name)| tools.contains_key(*name));
        let gone = gone.into_iter().map(|(_, tool)| tool);
        Self {
            aliases: aliases.map(|(alias, name)| (alias.clone(), name.clone())).collect(),
            disabled: self.disabled.clone(),
            off: self.off.clone(),
            withheld: self.withheld.iter().chain(gone).cloned().collect(),
            specs: tools.values().map(|tool| tool.spec().clone()).collect(),
            tools,
        }
    }

    /// Whether this is the name of a tool that there is, and not here.
    pub fn withholds(&self, name: &str) -> bool {
        let name = name.trim();
        let is_meant = |word: &str| word.eq_ignore_ascii_case(name);
        self.get(name).is_none()
            && self
                .withheld
                .iter()
                .any(|tool| is_meant(&tool.spec().name) || tool.aliases().iter().any(|a| is_meant(a)))
    }

    /// What models are told; shared, not copied.
    pub fn specs(&self) -> Arc<[ToolSpec]> {
        Arc::clone(&self.specs)
    }

    /// By name, else by alias, whatever the case.
    pub fn get(&self, name: &str) -> Option<&Arc<dyn Tool>> {
        let name = name.trim();
        self.tools.get(name).or_else(|| self.tools.get(self.aliases.get(&name.to_lowercase())?))
    }

    /// Every tool there is, those that are switched off last, and whether models are told of it.
    pub fn all(&self) -> impl Iterator<Item = (&Arc<dyn Tool>, bool)> {
        let off = self.off.iter().map(|tool| (tool, false));
        self.tools.values().map(|tool| (tool, true)).chain(off)
    }

    /// In order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.tools.keys().map(String::as_str)
    }
}
