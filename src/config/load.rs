//! Reads file and environment into a checked [`Config`].

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use daoyou_channels::settings::{SettingFault, join_key};
use rustix::fs::OFlags;
use serde_json::Value;

use super::check::check;
use super::check_modules;
use super::fault::{ConfigFault, SettingOrigin, inside, nearest_origin};
use super::reader::ConfigReader;
use super::secrets::{FoundSecret, NO_CREDENTIALS, SecretResolver};
use super::settings::Config;
use super::shape::SettingShape;
use crate::home::expand;

/// The largest configuration file, in bytes: a configuration has some hundred lines, so a larger file is a wrong path.
const MAX_BYTES: u64 = 1_000_000;

/// The mode with which a draft will be written.
const PRIVATE: u32 = 0o600;

/// The time within which a pipe must be written to its end. A program may ask for a passphrase before it writes.
const PIPE_LIMIT: Duration = Duration::from_secs(30);

/// The interval at which a pipe is read while it holds nothing.
const PIPE_PACE: Duration = Duration::from_millis(20);

/// The configuration file to read.
#[derive(Clone, Copy, Debug)]
pub enum ConfigSource<'a> {
    /// The default file; if it does not exist, the defaults apply.
    IfPresent(&'a Path),
    /// A file that the user named.
    Required(&'a Path),
    /// A draft of the file at this path, not written yet.
    Draft { path: &'a Path, text: &'a str },
}

impl<'a> ConfigSource<'a> {
    fn path(self) -> &'a Path {
        match self {
            Self::IfPresent(path) | Self::Required(path) | Self::Draft { path, .. } => path,
        }
    }
}

/// A configuration that was read and checked.
#[derive(Clone, Debug)]
pub struct LoadedConfig {
    pub config: Config,
    /// The file that was read, if it exists.
    pub file: Option<PathBuf>,
    /// Warnings, one line each.
    pub warnings: Vec<String>,
    /// The faults of missing secrets, without which the gateway cannot start.
    pub missing: Vec<ConfigFault>,
    /// The environment variables that secrets refer to, by key path.
    pub variables: BTreeMap<String, String>,
    origins: BTreeMap<String, SettingOrigin>,
    /// The secrets that were read, by key path.
    pub(super) secrets: BTreeMap<String, FoundSecret>,
}

impl LoadedConfig {
    /// Returns the origin of the value of `key`, such as `agent.model`.
    pub fn origin(&self, key: &str) -> SettingOrigin {
        self.origins.get(key).cloned().unwrap_or_default()
    }

    /// Returns the secrets that were read, with their key paths.
    pub fn secrets(&self) -> impl Iterator<Item = (&str, &FoundSecret)> {
        self.secrets.iter().map(|(key, secret)| (key.as_str(), secret))
    }

    /// Records that `option` of the command line set the value of `key`.
    pub fn overridden(&mut self, key: &str, option: &'static str) {
        self.origins.insert(key.to_owned(), SettingOrigin::Option(option));
    }

    /// Creates a fault of the value of `key` for a check in another module.
    pub fn fault(&self, key: &str, wrong: impl Into<String>, allowed: impl Into<String>) -> ConfigFault {
        ConfigFault::new(nearest_origin(&self.origins, key), key, wrong, allowed)
    }

    /// Creates the fault of a value from the result of another module's check.
    pub fn fault_of(&self, fault: SettingFault) -> ConfigFault {
        let key = fault.key().to_owned();
        self.fault(&key, fault.wrong, fault.allowed)
    }
}

/// A configuration that was read, with all its faults.
#[derive(Clone, Debug)]
pub struct ConfigDraft {
    /// The valid settings, with defaults for the others.
    pub loaded: LoadedConfig,
    faults: Vec<ConfigFault>,
    /// The syntax of the file is broken, so its meaning is unknown.
    is_broken: bool,
}

impl ConfigDraft {
    /// Adds the faults that `check` finds, except those that follow from known faults.
    #[must_use]
    pub fn checked(mut self, check: impl FnOnce(&LoadedConfig) -> Vec<ConfigFault>) -> Self {
        if !self.is_broken {
            let known: Vec<&ConfigFault> = self.faults.iter().chain(&self.loaded.missing).collect();
            let follows = |key: &str| known.iter().any(|known| inside(&known.key, key) || inside(key, &known.key));
            let more: Vec<_> = check(&self.loaded).into_iter().filter(|fault| !follows(&fault.key)).collect();
            self.faults.extend(more);
        }
        self
    }

    /// Returns the configuration.
    ///
    /// # Errors
    /// All faults, including missing secrets, in the order of their origins.
    pub fn complete(self) -> Result<LoadedConfig, Vec<ConfigFault>> {
        if self.faults.is_empty() && self.loaded.missing.is_empty() { Ok(self.loaded) } else { Err(self.all()) }
    }

    /// Returns the configuration for work that needs no secrets; those in [`LoadedConfig::missing`] are not set.
    ///
    /// # Errors
    /// All faults, if there are any besides missing secrets.
    pub fn without_secrets(self) -> Result<LoadedConfig, Vec<ConfigFault>> {
        if self.faults.is_empty() { Ok(self.loaded) } else { Err(self.all()) }
    }

    /// Returns the configuration as far as it can be checked outside of a systemd service, which alone can read its credentials.
    /// Those are in [`LoadedConfig::missing`].
    ///
    /// # Errors
    /// All other faults.
    pub fn outside_service(mut self) -> Result<LoadedConfig, Vec<ConfigFault>> {
        let missing = std::mem::take(&mut self.loaded.missing).into_iter();
        let (mut of_service, missing): (Vec<_>, _) = missing.partition(|fault| fault.wrong == NO_CREDENTIALS);
        of_service.sort();
        self.loaded.missing = missing;
        let mut loaded = self.complete()?;
        loaded.missing = of_service;
        Ok(loaded)
    }

    fn all(self) -> Vec<ConfigFault> {
        let mut all = self.faults;
        all.extend(self.loaded.missing);
        all.sort();
        // A list may have the same faulty entry twice.
        all.dedup();
        all
    }
}

/// Reads a complete configuration.
///
/// # Errors
/// The errors of [`ConfigDraft::complete`].
pub fn load(source: ConfigSource<'_>, env: &BTreeMap<String, String>) -> Result<LoadedConfig, Vec<ConfigFault>> {
    read(source, env).complete()
}

/// Reads the file, overrides it with the environment (`DAOYOU_AGENT__MODEL` is `agent.model`, `DAOYOU_LOG` is `log.level`), resolves
/// the secrets, and checks everything.
pub fn read(source: ConfigSource<'_>, env: &BTreeMap<String, String>) -> ConfigDraft {
    let path = source.path();
    let base = path.parent().unwrap_or(Path::new(""));
    let mut reader = ConfigReader::new(SecretResolver { env, base });
    let mut read = None;
    match read_file(source) {
        Ok((text, mode)) => {
            reader.file(path, &text);
            if reader.literal_secret && mode & 0o007 != 0 {
                let shown = path.display();
                reader.warnings.push(format!(
                    "{shown}: it holds a secret, and every user of this machine can read it: chmod 600 {shown}"
                ));
            }
            read = Some(path.to_owned());
        }
        Err(ReadFailure::Missing) if matches!(source, ConfigSource::IfPresent(_)) => {}
        Err(ReadFailure::Missing) => reader.faults.push(whole_file(path, None, "there is no such file".to_owned())),
        Err(ReadFailure::Wrong(line, wrong)) => {
            reader.broken = true;
            reader.faults.push(whole_file(path, line, wrong));
        }
    }
    for (name, value) in env {
        reader.variable(name, value);
    }
    let ConfigReader {
        values, origins, mut faults, missing, mut warnings, found: secrets, variables, mut broken, ..
    } = reader;
    let mut values = Value::Object(values);
    require(SettingShape::config(), "", &mut values, &origins, &mut faults);
    // All values have the right type, so this fails only if a type and its own schema disagree.
    let mut config: Config = serde_json::from_value(values).unwrap_or_else(|error| {
        broken = true;
        faults.push(whole_file(path, None, error.to_string()));
        Config::default()
    });
    let first_of = |tables: &str, name: &str| {
        let table = join_key(tables, name);
        origins.iter().filter(|(key, _)| inside(key, &table)).map(|(_, origin)| origin.clone()).min()
    };
    config.providers.sort_by_cached_key(|name, _| first_of("providers", name));
    config.mcp.sort_by_cached_key(|name, _| first_of("mcp", name));
    if let Some(file) = &mut config.channels.email.ca_file {
        *file = expand(&file.to_string_lossy(), base, env.get("HOME").map(Path::new));
    }
    if !broken {
        let known: Vec<ConfigFault> = faults.iter().chain(&missing).cloned().collect();
        faults.extend(check(&config, &origins, &known));
    }
    if faults.is_empty() {
        let hooks = config.channels.webhook.iter().filter(|(_, hook)| hook.enabled);
        let of_hooks = hooks.flat_map(|(name, hook)| {
            let table = join_key("channels.webhook", name);
            hook.warnings(name).into_iter().map(move |(key, words)| (join_key(&table, key), words))
        });
        let probable_mistakes = check_modules::warnings(&config).into_iter().chain(of_hooks);
        warnings.extend(
            probable_mistakes.map(|(key, words)| format!("{}: {key}: {words}", nearest_origin(&origins, &key))),
        );
    }
    let loaded = LoadedConfig { config, file: read, warnings, missing, variables, origins, secrets };
    ConfigDraft { loaded, faults, is_broken: broken }
}

/// Adds a fault for each missing required key. Returns false for a table with missing keys, which the caller then omits.
fn require(
    shape: &SettingShape,
    path: &str,
    value: &mut Value,
    origins: &BTreeMap<String, SettingOrigin>,
    faults: &mut Vec<ConfigFault>,
) -> bool {
    match (shape, value) {
        (SettingShape::Table(keys, required), Value::Object(table)) => {
            table.retain(|name, inner| {
                keys.get(name).is_none_or(|shape| require(shape, &join_key(path, name), inner, origins, faults))
            });
            let missing: Vec<_> = required.iter().filter(|name| !table.contains_key(*name)).collect();
            for name in &missing {
                let key = join_key(path, name);
                if !faults.iter().any(|known| inside(&known.key, &key)) {
                    let allowed = keys.get(*name).map(SettingShape::allowed).unwrap_or_default();
                    let wrong = format!("it is not set, and [{path}] needs it");
                    faults.push(ConfigFault::new(nearest_origin(origins, &key), key, wrong, allowed));
                }
            }
            missing.is_empty()
        }
        (SettingShape::Map(each), Value::Object(table)) => {
            table.retain(|name, inner| require(each, &join_key(path, name), inner, origins, faults));
            true
        }
        _ => true,
    }
}

/// Returns the environment of this process. Variables that are not UTF-8 are omitted; if such a variable is a setting, only its
/// invalid bytes are replaced, so that its fault shows the value.
pub fn environment() -> BTreeMap<String, String> {
    let readable = |(name, value): (OsString, OsString)| {
        let name = name.into_string().ok()?;
        match value.into_string() {
            Ok(value) => Some((name, value)),
            Err(value) if name.starts_with("DAOYOU_") => Some((name, value.to_string_lossy().into_owned())),
            Err(_) => None,
        }
    };
    std::env::vars_os().filter_map(readable).collect()
}

/// The reason why a file could not be read.
enum ReadFailure {
    Missing,
    /// The line, if known, and a description of the fault.
    Wrong(Option<usize>, String),
}

/// Returns the text of the file and its mode.
fn read_file(source: ConfigSource<'_>) -> Result<(String, u32), ReadFailure> {
    if let ConfigSource::Draft { text, .. } = source {
        return Ok((text.to_owned(), PRIVATE));
    }
    let path = source.path();
    let wrong = |error: std::io::Error| match error.kind() {
        ErrorKind::NotFound => ReadFailure::Missing,
        _ => ReadFailure::Wrong(None, format!("cannot be read: {error}")),
    };
    let meta = path.metadata().map_err(wrong)?;
    if meta.is_dir() {
        return Err(ReadFailure::Wrong(None, "is a folder".to_owned()));
    }
    // A file that the user named may be a pipe; any other pipe would only wait for a writer.
    if !meta.is_file() && matches!(source, ConfigSource::IfPresent(_)) {
        return Err(ReadFailure::Wrong(None, "is not a file".to_owned()));
    }
    let read = match meta.file_type().is_fifo() {
        true => read_pipe(path, PIPE_LIMIT),
        false => File::open(path).and_then(|file| {
            let mut bytes = Vec::new();
            file.take(MAX_BYTES + 1).read_to_end(&mut bytes).map(|_| bytes)
        }),
    };
    let bytes = read.map_err(wrong)?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(ReadFailure::Wrong(None, format!("is larger than {MAX_BYTES} bytes")));
    }
    let text = String::from_utf8(bytes).map_err(|error| {
        let before = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
        ReadFailure::Wrong(Some(line), "the text is not UTF-8".to_owned())
    })?;
    Ok((text, meta.permissions().mode()))
}

/// Reads a pipe until its writer has closed it, as far as a configuration may be long. The pipe is opened without a wait for a writer,
/// because there may never be one.
///
/// # Errors
/// The pipe cannot be read, or nobody has written it to its end within `timeout`.
pub(super) fn read_pipe(path: &Path, timeout: Duration) -> io::Result<Vec<u8>> {
    let mut pipe = OpenOptions::new().read(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed()).open(path)?;
    let (begun, mut had_writer, mut bytes) = (Instant::now(), false, Vec::new());
    while begun.elapsed() < timeout {
        match pipe.by_ref().take(MAX_BYTES + 1 - bytes.len() as u64).read_to_end(&mut bytes) {
            // There is a writer, which has not written all of it yet.
            Err(error) if error.kind() == ErrorKind::WouldBlock => had_writer = true,
            Err(error) => return Err(error),
            Ok(_) if had_writer || !bytes.is_empty() => return Ok(bytes),
            Ok(_) => {}
        }
        thread::sleep(PIPE_PACE);
    }
    let reason = if had_writer { "its writer does not close this pipe" } else { "nobody writes to this pipe" };
    Err(io::Error::new(ErrorKind::TimedOut, reason))
}

fn whole_file(path: &Path, line: Option<usize>, wrong: String) -> ConfigFault {
    ConfigFault::new(SettingOrigin::File { file: path.to_owned(), line }, "", wrong, "")
}
