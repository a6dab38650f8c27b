//! Requests that people make to the memory, by the command line and the API.

use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::owner::parse_owner;
use super::service::MemorySettings;
use super::{Identities, InvalidEntry, MemoryKind, MemoryOrigin, MemoryOwner, NewMemoryEntry, validate_entry};
use crate::store::StoreError;
use daoyou_channels::settings::HumanDuration;

/// The reason why a request fails.
#[derive(Debug, thiserror::Error)]
pub enum MemoryError {
    /// An invalid request; the text names the fault and the valid values.
    #[error("{0}")]
    Wrong(String),
    #[error("there is no memory {0}; `daoyou memory show` lists those that there are")]
    NotFound(i64),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl MemoryError {
    /// Separates failures of the store, which roll back a read or write, from other errors.
    ///
    /// # Errors
    /// The failure of the store; other errors are the inner result.
    pub fn separate_store_errors<T>(result: Result<T, Self>) -> Result<Result<T, Self>, StoreError> {
        match result {
            Err(Self::Store(error)) => Err(error),
            settled => Ok(settled),
        }
    }
}

impl From<InvalidEntry> for MemoryError {
    fn from(error: InvalidEntry) -> Self {
        Self::Wrong(error.to_string())
    }
}

/// A memory to add.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EntryRequest {
    pub text: String,
    /// `fact` when absent, or `preference`.
    pub kind: Option<String>,
    /// The key of a preference.
    pub key: Option<String>,
    /// The owner; the gateway's when absent.
    pub owner: Option<String>,
}

/// A selection of memories.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MemorySelection {
    /// All owners when absent.
    pub owner: Option<String>,
    pub kind: Option<String>,
}

/// A memory in an export, one per line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExportedMemory {
    pub owner: String,
    pub kind: String,
    #[serde(default)]
    pub name: String,
    pub text: String,
    #[serde(default)]
    pub detail: Value,
    #[serde(default)]
    pub origin: String,
    #[serde(default = "full_confidence")]
    pub confidence: f64,
    /// The time when it was remembered.
    #[serde(default)]
    pub created_at: Option<Timestamp>,
}

fn full_confidence() -> f64 {
    1.0
}

impl EntryRequest {
    /// Returns the memory to store.
    ///
    /// # Errors
    /// The request is invalid.
    pub fn plan(&self, settings: &MemorySettings) -> Result<NewMemoryEntry, MemoryError> {
        let kind = parse_kind(self.kind.as_deref())?.unwrap_or(MemoryKind::Fact);
        let name = match (kind, self.key.as_deref().map(str::trim)) {
            (MemoryKind::Fact, None) => "",
            (MemoryKind::Preference, Some(key)) if !key.is_empty() => key,
            (MemoryKind::Preference, _) => return Err(invalid("a preference needs a key, such as \"language\"")),
            (MemoryKind::Fact, Some(_)) => {
                return Err(invalid("a key is a preference's: say kind \"preference\" too, or no key"));
            }
            (kind, _) => {
                let wrong = format!("{} is nothing that is added by hand; allowed: fact, preference", kind.as_str());
                return Err(MemoryError::Wrong(wrong));
            }
        };
        let owner = self.owner.as_deref().map(|owner| owner_of(owner, &settings.identities)).transpose()?;
        let owner = owner.unwrap_or_else(MemoryOwner::gateway);
        let new = NewMemoryEntry::new(owner, kind, self.text.as_str(), MemoryOrigin::Command);
        Ok(validate_entry(&NewMemoryEntry { name: name.to_owned(), ..new })?)
    }
}

impl MemorySelection {
    /// Returns the selected owner, if there is one.
    ///
    /// # Errors
    /// The text names no owner.
    pub fn owner(&self, identities: &Identities) -> Result<Option<MemoryOwner>, MemoryError> {
        self.owner.as_deref().map(|owner| owner_of(owner, identities)).transpose()
    }

    /// Returns the selected kind, if there is one.
    ///
    /// # Errors
    /// There is no such kind.
    pub fn kind(&self) -> Result<Option<MemoryKind>, MemoryError> {
        parse_kind(self.kind.as_deref())
    }
}

impl ExportedMemory {
    /// Returns the memory to store.
    ///
    /// # Errors
    /// The line is invalid.
    pub fn plan(&self, identities: &Identities) -> Result<NewMemoryEntry, MemoryError> {
        let Some(kind) = parse_kind(Some(&self.kind))? else { return Err(invalid("the kind is missing")) };
        if !(0.0..=1.0).contains(&self.confidence) {
            return Err(MemoryError::Wrong(format!("the confidence is {}; allowed: 0 to 1", self.confidence)));
        }
        let detail = match &self.detail {
            Value::Null => json!({}),
            object @ Value::Object(_) => object.clone(),
            _ => return Err(invalid("the detail is not an object")),
        };
        let owner = owner_of(&self.owner, identities)?;
        let new = NewMemoryEntry::new(owner, kind, self.text.as_str(), MemoryOrigin::Imported);
        let (name, confidence) = (self.name.clone(), self.confidence);
        Ok(validate_entry(&NewMemoryEntry { name, detail, confidence, ..new })?)
    }
}

/// Parses the start of a search: a time, a date, or a duration before `now`. Returns UTC milliseconds.
///
/// # Errors
/// The text is none of these.
pub fn parse_since(text: &str, now: Timestamp, zone: &TimeZone) -> Result<i64, MemoryError> {
    let text = text.trim();
    if let Ok(at) = text.parse::<Timestamp>() {
        return Ok(at.as_millisecond());
    }
    if let Ok(at) = text.parse::<Date>().and_then(|date| date.to_zoned(zone.clone())) {
        return Ok(at.timestamp().as_millisecond());
    }
    let ago = text.parse::<HumanDuration>().ok().and_then(|HumanDuration(ago)| SignedDuration::try_from(ago).ok());
    ago.and_then(|ago| now.checked_sub(ago).ok()).map(Timestamp::as_millisecond).ok_or_else(|| {
        let allowed =
            "how long ago, such as \"7d\", a date such as \"2026-03-08\", or a time such as \"2026-03-08T09:00:00Z\"";
        MemoryError::Wrong(format!("{text:?} is not a time; allowed: {allowed}"))
    })
}

fn owner_of(text: &str, identities: &Identities) -> Result<MemoryOwner, MemoryError> {
    parse_owner(text, identities).map_err(MemoryError::Wrong)
}

fn parse_kind(name: Option<&str>) -> Result<Option<MemoryKind>, MemoryError> {
    let Some(name) = name else { return Ok(None) };
    name.parse().map(Some).map_err(|_| {
        let all = MemoryKind::ALL.map(MemoryKind::as_str).join(", ");
        MemoryError::Wrong(format!("{name:?} is not a kind of memory; allowed: {all}"))
    })
}

fn invalid(text: &str) -> MemoryError {
    MemoryError::Wrong(text.to_owned())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::memory::testing::settings;

    #[test]
    fn entry_requests_are_validated() {
        for (kind, key, text, expected) in [
            (None, None, " The cat is grey. ", Ok("fact||The cat is grey.")),
            (Some("preference"), Some("language"), "German", Ok("preference|language|German")),
            (Some("preference"), None, "German", Err("needs a key")),
            (None, Some("language"), "German", Err("a key is a preference's")),
            (Some("task"), None, "x", Err("allowed: fact, preference")),
            (Some("fakt"), None, "x", Err("allowed: fact, preference, case, task, summary")),
            (None, None, " \n", Err("empty")),
            (None, None, &"x".repeat(1_001), Err("more than the 1000")),
        ] {
            let request = EntryRequest {
                text: text.to_owned(),
                kind: kind.map(str::to_owned),
                key: key.map(str::to_owned),
                owner: None,
            };
            match (request.plan(&settings(Path::new("w"))), expected) {
                (Ok(new), Ok(line)) => assert_eq!(format!("{}|{}|{}", new.kind.as_str(), new.name, new.text), line),
                (Err(error), Err(words)) => assert!(error.to_string().contains(words), "{error}"),
                (found, _) => panic!("{text}: {found:?}"),
            }
        }
    }

    #[test]
    fn start_times_are_parsed() {
        let now: Timestamp = "2026-03-08T12:00:00Z".parse().unwrap();
        let zone = TimeZone::get("Asia/Shanghai").unwrap();
        for (text, expected) in [
            ("1d", Some("2026-03-07T12:00:00Z")),
            ("2h 30m", Some("2026-03-08T09:30:00Z")),
            ("2026-03-01", Some("2026-02-28T16:00:00Z")),
            ("2026-03-08T09:00:00+01:00", Some("2026-03-08T08:00:00Z")),
            ("yesterday", None),
            ("", None),
            ("99999999999d", None),
        ] {
            let expected = expected.map(|at| at.parse::<Timestamp>().unwrap().as_millisecond());
            assert_eq!(parse_since(text, now, &zone).ok(), expected, "{text}");
        }
    }
}
