//! Types of configuration values that TOML lacks: durations, sizes and secrets. Also [`SettingFault`], an invalid setting, and the
//! paths of keys, such as `mcp.x.env."A=B"` ([`join_key`]).

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Serializes a type as the string of its `Display` and `FromStr`, and describes it as a string in the JSON schema.
macro_rules! string_setting {
    ($type:ident, $format:literal) => {
        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                <String as serde::Deserialize>::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
            }
        }

        $crate::settings::string_setting!(schema $type, $format);
    };
    // The schema alone.
    (schema $type:ident, $format:literal) => {
        impl schemars::JsonSchema for $type {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($type).into()
            }

            fn inline_schema() -> bool {
                true
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({ "type": "string", "format": $format })
            }
        }
    };
}
pub(crate) use string_setting;

/// A length of time, written `"90s"`, `"10m"`, `"1h 30m"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HumanDuration(pub Duration);

impl HumanDuration {
    pub const fn from_secs(secs: u64) -> Self {
        Self(Duration::from_secs(secs))
    }

    pub const fn from_millis(millis: u64) -> Self {
        Self(Duration::from_millis(millis))
    }
}

impl From<HumanDuration> for Duration {
    fn from(span: HumanDuration) -> Self {
        span.0
    }
}

/// The units with their milliseconds, the longest first.
const DURATION_UNITS: [(&str, u64); 5] = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

impl FromStr for HumanDuration {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is not a duration such as \"90s\", \"10m\" or \"1h 30m\"");
        let mut rest = text.trim();
        let mut total: u64 = 0;
        if rest.is_empty() {
            return Err(wrong());
        }
        while !rest.is_empty() {
            let digits = rest.find(|c: char| !c.is_ascii_digit()).ok_or_else(wrong)?;
            let count: u64 = rest[..digits].parse().map_err(|_| wrong())?;
            rest = rest[digits..].trim_start();
            let end = rest.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(rest.len());
            let (_, millis) = DURATION_UNITS.iter().find(|(name, _)| *name == &rest[..end]).ok_or_else(wrong)?;
            rest = rest[end..].trim_start();
            total = count.checked_mul(*millis).and_then(|part| total.checked_add(part)).ok_or_else(wrong)?;
        }
        Ok(Self(Duration::from_millis(total)))
    }
}

impl fmt::Display for HumanDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_zero() {
            return f.write_str("0s");
        }
        let mut rest = self.0.as_millis();
        let mut first = true;
        for (unit, millis) in DURATION_UNITS {
            let count = rest / u128::from(millis);
            rest %= u128::from(millis);
            if count > 0 {
                write!(f, "{}{count}{unit}", if first { "" } else { " " })?;
                first = false;
            }
        }
        Ok(())
    }
}

string_setting!(HumanDuration, "duration");

/// A number of bytes, written `"25MB"`, `"100MB"`, `"64KB"`, `"1GB"`, `"1TB"`: powers of 1,000; `KiB`, `MiB`, `GiB`, `TiB` are
/// powers of 1,024.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ByteSize(pub u64);

/// The units with their bytes. Within each kind the larger comes first, since `Display` of [`ByteSize`] picks the first
/// that divides the size.
const SIZE_UNITS: [(&str, u64); 9] = [
    ("TB", 1_000_000_000_000),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("KB", 1_000),
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("B", 1),
];

impl ByteSize {
    /// Describes how a size is written.
    pub const ALLOWED: &str = "a whole number with B, KB, MB, GB, TB, KiB, MiB, GiB or TiB, such as \"25MB\"";
}

impl FromStr for ByteSize {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is not {}", ByteSize::ALLOWED);
        let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
        let unit = text[digits.len()..].trim();
        let count: u64 = digits.trim().parse().map_err(|_| wrong())?;
        let (_, bytes) = SIZE_UNITS.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit)).ok_or_else(wrong)?;
        count.checked_mul(*bytes).map(Self).ok_or_else(wrong)
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, bytes) =
            SIZE_UNITS.iter().find(|(_, bytes)| self.0 >= *bytes && self.0.is_multiple_of(*bytes)).unwrap_or(&("B", 1));
        write!(f, "{}{name}", self.0 / bytes)
    }
}

string_setting!(ByteSize, "size");

/// An invalid setting, or settings that contradict each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingFault {
    /// The keys that take part, relative to the section of the module that finds the fault; the empty key is the section itself. The
    /// first one is reported. While another one is invalid, this fault may not be real.
    pub keys: Vec<String>,
    pub wrong: String,
    /// The allowed values; empty if `wrong` contains them already.
    pub allowed: String,
}

impl SettingFault {
    /// Creates the fault of these `keys`: what is `wrong`, and which values are `allowed`.
    pub fn new(keys: &[&str], wrong: impl Into<String>, allowed: impl Into<String>) -> Self {
        let keys = keys.iter().map(|key| (*key).to_owned()).collect();
        Self { keys, wrong: wrong.into(), allowed: allowed.into() }
    }

    /// Returns the key that is reported.
    pub fn key(&self) -> &str {
        self.keys.first().map_or("", String::as_str)
    }

    /// Returns the fault with its keys in the table at `path`. The names in the keys and in `path` are already quoted, as by [`join_key`].
    #[must_use]
    pub fn in_table(self, path: &str) -> Self {
        let whole = |key: String| if key.is_empty() { path.to_owned() } else { format!("{path}.{key}") };
        Self { keys: self.keys.into_iter().map(whole).collect(), ..self }
    }
}

/// The maximum number of characters of a user's text that a fault quotes.
const MAX_QUOTED: usize = 120;

/// Returns `text` in quotes, truncated to fit on a line.
pub fn quoted(text: &str) -> String {
    if text.chars().count() <= MAX_QUOTED {
        return format!("{text:?}");
    }
    let head: String = text.chars().take(MAX_QUOTED).collect();
    format!("{head:?}…")
}

/// Returns the path of the key `name` in the table at `path`. The name is quoted if TOML requires that.
pub fn join_key(path: &str, name: &str) -> String {
    let bare = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
    let name = if bare { name.to_owned() } else { quoted(name) };
    if path.is_empty() { name } else { format!("{path}.{name}") }
}

/// Returns a number of the configuration as a size in memory.
pub fn size(count: u32) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
}

/// A value that is never shown: not in logs, errors, `config show` or model requests. Configuration writes it as
/// `env:NAME`, `file:PATH`, `cred:NAME` or literally, and resolves it before it gets here.
#[derive(Clone, Debug)]
pub struct Secret(SecretString);

impl Secret {
    pub fn new(value: impl Into<String>) -> Self {
        Self(SecretString::from(value.into()))
    }

    /// Returns the value itself, for the code that needs it.
    pub fn expose(&self) -> &str {
        self.0.expose_secret()
    }
}

impl PartialEq for Secret {
    /// Compares settings only. Compare input of callers in constant time instead.
    fn eq(&self, other: &Self) -> bool {
        self.expose() == other.expose()
    }
}

impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str("(hidden)")
    }
}

impl<'de> Deserialize<'de> for Secret {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(Self::new)
    }
}

string_setting!(schema Secret, "secret");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_and_written_as_words() {
        for (text, millis, shown) in
            [("90s", 90_000, "1m 30s"), ("10m", 600_000, "10m"), ("250ms", 250, "250ms"), ("2d", 172_800_000, "2d")]
        {
            let span: HumanDuration = text.parse().unwrap();
            assert_eq!((span.0.as_millis(), span.to_string().as_str()), (millis, shown), "{text}");
            assert_eq!(shown.parse::<HumanDuration>().unwrap(), span);
        }
        assert!("soon".parse::<HumanDuration>().is_err());
        assert!("-5s".parse::<HumanDuration>().is_err());
    }

    #[test]
    fn a_path_is_quoted_as_toml_requires() {
        for (path, name, expected) in
            [("", "agent", "agent"), ("a.b", "c-d", "a.b.c-d"), ("h", "X Y", "h.\"X Y\""), ("h", "", "h.\"\"")]
        {
            assert_eq!(join_key(path, name), expected);
        }
        let fault = SettingFault::new(&[&join_key("env", "A=B"), ""], "wrong", "");
        assert_eq!(fault.in_table("mcp.x").keys, ["mcp.x.env.\"A=B\"", "mcp.x"]);
    }

    #[test]
    fn sizes_are_read_and_written_as_words() {
        for (text, bytes, shown) in
            [("25MB", 25_000_000, "25MB"), ("1TiB", 1 << 40, "1TiB"), ("1500 KB", 1_500_000, "1500KB"), ("7b", 7, "7B")]
        {
            let size: ByteSize = text.parse().unwrap();
            assert_eq!((size.0, size.to_string().as_str()), (bytes, shown), "{text}");
        }
        for wrong in ["", "MB", "1.5MB", "99999999999GB", "5 apples"] {
            assert!(wrong.parse::<ByteSize>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_secret_is_never_shown() {
        let secret = Secret::new("canary");
        assert!(!format!("{secret:?}").contains("canary"));
        assert!(!serde_json::to_string(&secret).unwrap().contains("canary"));
    }
}
