//! Messages that follow from each other without a person: the report of a sub-agent, the end of a command in the background.
//! They are counted, so that what feeds itself comes to an end.

use serde_json::{Map, Value};

/// In a message's metadata: how many led to it.
const KEY: &str = "links";
/// How many may follow from each other.
const MOST: u32 = 10;

/// How many such messages led to a turn since a person wrote.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Links(u32);

impl Links {
    /// Reads them out of a message's metadata, written as JSON; a person's has none.
    pub fn of(metadata: &str) -> Self {
        // Nearly all messages have none, and some have large metadata.
        if !metadata.contains("\"links\"") {
            return Self::default();
        }
        let metadata: Value = serde_json::from_str(metadata).unwrap_or_default();
        Self(metadata[KEY].as_u64().map_or(0, |links| u32::try_from(links).unwrap_or(u32::MAX)))
    }

    /// Those of a message that the turn brings about.
    #[must_use]
    pub fn one_more(self) -> Self {
        Self(self.0.saturating_add(1))
    }

    /// Puts them into a message's metadata, if there are any.
    pub fn put(self, metadata: &mut Map<String, Value>) {
        if self.0 > 0 {
            metadata.insert(KEY.to_owned(), self.0.into());
        }
    }

    /// Whether the turn may begin what another message follows from.
    ///
    /// # Errors
    /// Why not, in words for the model.
    pub fn check(self) -> Result<(), String> {
        if self.0 < MOST {
            return Ok(());
        }
        Err(format!(
            "Nothing was started: {MOST} reports and ends of commands have followed from each other here without a message from a \
             person; tell the user how things stand, and go on when somebody writes"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_feeds_itself_comes_to_an_end() {
        let mut metadata = Map::new();
        for _ in 0..MOST {
            let links = Links::of(&Value::Object(metadata.clone()).to_string());
            assert_eq!(links.check(), Ok(()), "{links:?}");
            links.one_more().put(&mut metadata);
        }
        let links = Links::of(&Value::Object(metadata).to_string());
        assert!(
            links == Links(MOST) && links.check().is_err_and(|told| told.contains("without a message from a person"))
        );
        for (metadata, expected) in
            [("{}", 0), ("no JSON \"links\"", 0), (r#"{"links":-1}"#, 0), (r#"{"links":99999999999}"#, u32::MAX)]
        {
            assert_eq!(Links::of(metadata), Links(expected), "{metadata}");
        }
    }
}
