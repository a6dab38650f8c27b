//! Resolves `env:NAME`, `file:PATH` and `cred:NAME`, so that `config.toml` need not contain secrets.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use daoyou_channels::settings::Secret;

use crate::home::expand;

/// The largest secret file, in bytes: a secret is a key or a password, so a larger file is a wrong path.
const MAX_BYTES: u64 = 65_536;

/// The error of a credential in a process that has none.
pub const NO_CREDENTIALS: &str =
    "a systemd credential can be read only in the service: CREDENTIALS_DIRECTORY is not set here";

/// The beginnings of references to secrets.
const REFERENCES: [&str; 3] = ["env:", "file:", "cred:"];

/// Resolves the secrets of a configuration.
pub(super) struct SecretResolver<'a> {
    pub env: &'a BTreeMap<String, String>,
    /// The folder of the configuration file, where a relative `file:PATH` starts.
    pub base: &'a Path,
}

/// A secret of a configuration.
#[derive(Clone, Debug)]
pub struct FoundSecret {
    pub value: Secret,
    /// The configuration contains the secret itself, not a reference to it.
    pub is_literal: bool,
}

impl SecretResolver<'_> {
    /// Returns true if `text` is a reference to a secret, false if it is a secret itself.
    pub fn is_elsewhere(text: &str) -> bool {
        REFERENCES.iter().any(|kind| text.strip_prefix(kind).is_some_and(|name| !name.trim().is_empty()))
    }

    /// Returns the secret that `text` refers to, and a warning if it is not protected well enough. The error never contains a
    /// secret.
    ///
    /// # Errors
    /// The variable, file or credential is missing, unreadable or empty, or the reference is misspelled.
    pub fn resolve(&self, text: &str) -> Result<(FoundSecret, Option<String>), String> {
        let mut is_literal = false;
        let (value, warning) = if let Some(name) = text.strip_prefix("env:") {
            if name.trim().is_empty() {
                return Err("\"env:\" names no variable".to_owned());
            }
            let wrong = |what| {
                let hint = format!("set it where the gateway starts, such as with `export {name}='the secret'`");
                format!("the environment variable {name} is {what}; {hint}")
            };
            let value = self.env.get(name).cloned().ok_or_else(|| wrong("not set"))?;
            if value.trim().is_empty() {
                return Err(wrong("empty"));
            }
            (value, None)
        } else if let Some(path) = text.strip_prefix("file:") {
            read(&expand(path, self.base, self.env.get("HOME").map(Path::new)))?
        } else if let Some(name) = text.strip_prefix("cred:") {
            let folder = self.env.get("CREDENTIALS_DIRECTORY").ok_or(NO_CREDENTIALS)?;
            if name.is_empty() || name.contains('/') || name.starts_with('.') {
                return Err(format!("{name:?} is not the name of a credential"));
            }
            (read(&Path::new(folder).join(name))?.0, None)
        } else if let Some(kind) = misspelled_reference(text) {
            return Err(format!(
                "a reference to a secret begins with {kind:?} in small letters, without spaces before it"
            ));
        } else {
            is_literal = true;
            (text.to_owned(), None)
        };
        if value.trim().is_empty() {
            return Err("the secret is empty".to_owned());
        }
        Ok((FoundSecret { value: Secret::new(value), is_literal }, warning))
    }
}

/// Returns the right beginning of a reference that is written with capital letters or after spaces.
fn misspelled_reference(text: &str) -> Option<&'static str> {
    let text = text.trim_start();
    let is_start = |kind: &&str| text.get(..kind.len()).is_some_and(|start| start.eq_ignore_ascii_case(kind));
    REFERENCES.into_iter().find(is_start)
}

/// Returns the content of a file, and a warning if every user can read it.
fn read(path: &Path) -> Result<(String, Option<String>), String> {
    let wrong = |error: std::io::Error| format!("cannot read the file {}: {error}", path.display());
    let mut value = String::new();
    // Checked before the file is opened, because opening a pipe would wait for its other end.
    let meta = path.metadata().map_err(wrong)?;
    if !meta.is_file() {
        return Err(format!("{} is not a file", path.display()));
    }
    File::open(path).map_err(wrong)?.take(MAX_BYTES + 1).read_to_string(&mut value).map_err(wrong)?;
    if value.len() as u64 > MAX_BYTES {
        return Err(format!("the file {} is larger than {MAX_BYTES} bytes", path.display()));
    }
    value.truncate(value.trim_end_matches(['\r', '\n']).len());
    let warning = (meta.permissions().mode() & 0o007 != 0)
        .then(|| format!("every user of this machine can read {0}: chmod 600 {0}", path.display()));
    Ok((value, warning))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_secret_is_read_from_its_source() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &[u8], mode| {
            fs::write(dir.path().join(name), text).unwrap();
            fs::set_permissions(dir.path().join(name), fs::Permissions::from_mode(mode)).unwrap();
        };
        write("key", b"from file\n", 0o600);
        write("open", b"seen", 0o644);
        write("empty", b"\n", 0o600);
        write("binary", b"\xff\xfe", 0o600);
        let folder = dir.path().to_str().unwrap();
        let env = [("KEY", "from env"), ("BLANK", " "), ("CREDENTIALS_DIRECTORY", folder), ("HOME", folder)];
        let env = env.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let secrets = SecretResolver { env: &env, base: dir.path() };
        let table = [
            ("sk-literal", Ok(("sk-literal", true, false))),
            ("env:KEY", Ok(("from env", false, false))),
            ("file:key", Ok(("from file", false, false))),
            ("file:~/key", Ok(("from file", false, false))),
            ("file:open", Ok(("seen", false, true))),
            ("cred:open", Ok(("seen", false, false))),
            ("env:NONE", Err("NONE is not set")),
            ("env:", Err("names no variable")),
            ("env:BLANK", Err("empty")),
            ("file:none", Err("No such file")),
            ("file:empty", Err("empty")),
            ("file:binary", Err("UTF-8")),
            ("file:.", Err("is not a file")),
            ("cred:../key", Err("not the name")),
            ("", Err("empty")),
            ("ENV:KEY", Err("begins with \"env:\" in small letters")),
            (" env:KEY", Err("begins with \"env:\"")),
            ("File:key", Err("begins with \"file:\"")),
            ("\tCRED:open", Err("begins with \"cred:\"")),
            ("environment", Ok(("environment", true, false))),
            ("密env:", Ok(("密env:", true, false))),
        ];
        for (text, expected) in table {
            match (secrets.resolve(text), expected) {
                (Ok((got, warning)), Ok(expected)) => {
                    assert_eq!((got.value.expose(), got.is_literal, warning.is_some()), expected, "{text}");
                }
                (Err(got), Err(part)) => assert!(got.contains(part), "{text}: {got}"),
                (got, expected) => {
                    panic!("{text}: {:?}, expected {expected:?}", got.map(|(found, _)| found.value.expose().to_owned()))
                }
            }
        }
        let secrets = SecretResolver { env: &BTreeMap::new(), base: dir.path() };
        assert!(secrets.resolve("cred:key").is_err());
    }
}
