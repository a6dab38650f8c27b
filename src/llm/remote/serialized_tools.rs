//! Tool definitions in serialized form. They are most of a short request, and are the same from turn to turn, so each set is
//! serialized once.

use std::sync::Arc;

use parking_lot::Mutex;
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;

use crate::chat::ToolSpec;

/// The maximum number of sets in the cache: those of turns and of sub-agents, and those from before a reload.
const SETS_LIMIT: usize = 8;

/// Serialized definitions, ready for a request.
#[derive(Clone, Debug)]
pub struct SerializedTools(Arc<RawValue>);

impl SerializedTools {
    /// Serializes `definitions`.
    ///
    /// # Errors
    /// The definitions cannot be serialized.
    pub fn new(definitions: &impl Serialize) -> serde_json::Result<Self> {
        serde_json::value::to_raw_value(definitions).map(|text| Self(text.into()))
    }
}

impl Serialize for SerializedTools {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

/// The sets of tools that one dialect has serialized. The text depends on the tools and on `Form`.
#[derive(Debug)]
pub struct ToolSerializer<Form> {
    kept: Mutex<Vec<CachedSerialization<Form>>>,
}

#[derive(Debug)]
struct CachedSerialization<Form> {
    /// The set is kept alive, so that no other set gets the same address.
    tools: Arc<[ToolSpec]>,
    form: Form,
    written: SerializedTools,
}

impl<Form> Default for ToolSerializer<Form> {
    fn default() -> Self {
        Self { kept: Mutex::default() }
    }
}

impl<Form: PartialEq> ToolSerializer<Form> {
    /// Returns `tools` in serialized form. `definitions` is called only if they are not in the cache. `None` if there are no
    /// tools.
    ///
    /// # Errors
    /// The definitions cannot be serialized.
    pub fn get<T: Serialize>(
        &self,
        tools: &Arc<[ToolSpec]>,
        form: Form,
        definitions: impl FnOnce() -> T,
    ) -> serde_json::Result<Option<SerializedTools>> {
        if tools.is_empty() {
            return Ok(None);
        }
        let mut kept = self.kept.lock();
        if let Some(known) = kept.iter().find(|known| Arc::ptr_eq(&known.tools, tools) && known.form == form) {
            return Ok(Some(known.written.clone()));
        }
        let written = SerializedTools::new(&definitions())?;
        if kept.len() >= SETS_LIMIT {
            kept.remove(0);
        }
        kept.push(CachedSerialization { tools: Arc::clone(tools), form, written: written.clone() });
        Ok(Some(written))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn tools() -> Arc<[ToolSpec]> {
        [ToolSpec { name: "x".to_owned(), description: "\"Does\" it.".to_owned(), parameters: json!({}) }].into()
    }

    #[test]
    fn a_set_is_serialized_once_for_each_form() {
        let (written, first, second) = (ToolSerializer::default(), tools(), tools());
        let mut times = 0;
        for (tools, form) in [(&first, 1), (&first, 1), (&first, 2), (&second, 1), (&first, 2)] {
            let got = written.get(tools, form, || {
                times += 1;
                tools.to_vec()
            });
            let body = serde_json::to_string(&json!({ "tools": got.unwrap() })).unwrap();
            assert_eq!(body, json!({ "tools": tools.to_vec() }).to_string());
        }
        assert_eq!(times, 3);
        assert!(written.get(&Arc::default(), 1, || "never").unwrap().is_none());
    }

    #[test]
    fn the_number_of_cached_sets_is_bounded() {
        let written = ToolSerializer::default();
        let sets: Vec<_> = (0..20).map(|_| tools()).collect();
        for set in &sets {
            written.get(set, (), || set.to_vec()).unwrap();
        }
        assert_eq!(written.kept.lock().len(), SETS_LIMIT);
        assert_eq!(Arc::strong_count(&sets[0]), 1);
    }
}
