//! The changes of `daoyou init` to config.toml: made in memory, shown, and then written as a whole.

use std::fs;
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use daoyou_channels::settings::Secret;
use similar::{ChangeTag, TextDiff};
use tempfile::NamedTempFile;
use toml_edit::{DocumentMut, Item, Table, TableLike, Value};

use crate::commands::output::{Colour, Stdout, tr};

/// The number of unchanged lines around a change that are shown.
const CONTEXT_LINES: usize = 2;

/// The source of a secret's value.
#[derive(Clone)]
pub enum SecretValue {
    /// The name of an environment variable.
    Variable(String),
    /// A secret that is written to a file of this name beside config.toml.
    File { name: String, value: Secret },
}

impl SecretValue {
    /// Creates a secret for a file of this name.
    pub fn file(name: impl Into<String>, value: Secret) -> Self {
        Self::File { name: name.into(), value }
    }

    /// Returns the secret that a person entered: a value for a file of this name, or `env:NAME`.
    pub fn typed(name: impl Into<String>, value: Secret) -> Self {
        match value.expose().strip_prefix("env:") {
            Some(variable) => Self::Variable(variable.to_owned()),
            None => Self::file(name, value),
        }
    }
}

/// A configuration file with pending changes.
#[derive(Clone)]
pub struct ConfigEdit {
    /// The file, with links resolved.
    path: PathBuf,
    /// The text of the file; `None` if the file does not exist.
    before: Option<String>,
    /// The text of a file without tables.
    header: String,
    document: DocumentMut,
    /// The secret files to write: the key path, the file's name, and the secret.
    files: Vec<(Vec<String>, String, Secret)>,
    /// New references to environment variables: the key path, and the variable's name.
    pub variables: Vec<(Vec<String>, String)>,
}

impl ConfigEdit {
    /// Opens the file at `path`, which need not exist.
    ///
    /// # Errors
    /// The file cannot be read, or is not TOML.
    pub fn open(path: &Path) -> anyhow::Result<Self> {
        let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let before = read(&path).with_context(|| path.display().to_string())?;
        let document: Result<DocumentMut, _> = before.as_deref().unwrap_or_default().parse();
        let mut document = document.with_context(|| format!("{} is not TOML", path.display()))?;
        let header = match &before {
            // A file without tables is one comment, which would otherwise follow the new tables.
            Some(text) if document.is_empty() => {
                document = DocumentMut::new();
                text.clone()
            }
            Some(_) | None => String::new(),
        };
        Ok(Self { path, before, header, document, files: Vec::new(), variables: Vec::new() })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Sets a value. The comment explains a new key; an existing key keeps its own comments, including one after the value.
    pub fn set(&mut self, path: &[&str], value: impl Into<Value>, comment: &str) {
        let Some((key, tables)) = path.split_last() else { return };
        let mut table: &mut dyn TableLike = self.document.as_table_mut();
        // Only tables with a header have separate lines for comments.
        let (mut has_lines, mut is_inline) = (true, false);
        for name in tables {
            let entry = table.entry(name).or_insert_with(|| {
                let mut table = Table::new();
                table.set_implicit(true);
                // An inline table contains no other kind.
                if is_inline { Item::Value(Value::InlineTable(table.into_inline_table())) } else { Item::Table(table) }
            });
            if entry.as_table_like().is_none() {
                *entry = Item::Table(Table::new());
            }
            is_inline = entry.is_inline_table();
            has_lines = entry.as_table().is_some_and(|table| !table.is_dotted());
            let Some(inner) = entry.as_table_like_mut() else { return };
            table = inner;
        }
        let mut value = value.into();
        if let Some(old) = table.get_mut(key).and_then(Item::as_value_mut) {
            *value.decor_mut() = old.decor().clone();
            *old = value;
            return;
        }
        table.insert(key, Item::Value(value));
        if let Some(mut key) = table.key_mut(key).filter(|_| has_lines && !comment.is_empty()) {
            let lines: String = comment.lines().map(|line| format!("# {line}\n")).collect();
            key.leaf_decor_mut().set_prefix(lines);
        }
    }

    /// Sets a secret.
    pub fn set_secret(&mut self, path: &[&str], secret: SecretValue, comment: &str) {
        let path_of_key: Vec<String> = path.iter().map(|name| (*name).to_owned()).collect();
        self.files.retain(|(known, _, _)| *known != path_of_key);
        self.variables.retain(|(known, _)| *known != path_of_key);
        match secret {
            SecretValue::Variable(name) => {
                self.set(path, format!("env:{name}"), comment);
                self.variables.push((path_of_key, name));
            }
            SecretValue::File { name, value } => {
                self.set(path, format!("file:{name}"), comment);
                self.files.push((path_of_key, name, value));
            }
        }
    }

    /// Adds an entry to a list, unless the list contains it.
    pub fn add_to_list(&mut self, path: &[&str], entry: &str, comment: &str) {
        let list = path.iter().try_fold(self.document.as_item(), |item, name| item.get(name));
        let mut list = list.and_then(Item::as_array).cloned().unwrap_or_default();
        if !list.iter().any(|known| known.as_str() == Some(entry)) {
            list.push(entry);
            self.set(path, list, comment);
        }
    }

    /// Returns the whole text of the file.
    fn text(&self) -> String {
        // The language of a new header may have changed since the start.
        let header = if self.before.is_none() { header() } else { &self.header };
        let is_glued = !header.is_empty() && !header.ends_with('\n') && !self.document.is_empty();
        let text = format!("{header}{}{}", if is_glued { "\n" } else { "" }, self.document);
        // The document has lost the line ends of the file.
        let first = self.before.iter().flat_map(|before| before.split_inclusive('\n')).next();
        if first.is_some_and(|line| line.ends_with("\r\n")) {
            return text.replace("\r\n", "\n").replace('\n', "\r\n");
        }
        text
    }

    /// Returns the text for a test, with the values of secrets whose files are not written yet.
    pub fn trial_text(&self) -> String {
        let mut trial = self.clone();
        for (path, _, secret) in &self.files {
            let path: Vec<&str> = path.iter().map(String::as_str).collect();
            trial.set(&path, secret.expose(), "");
        }
        trial.text()
    }

    /// Returns true if there are no changes.
    pub fn is_unchanged(&self) -> bool {
        self.files.is_empty() && self.before.as_ref().is_some_and(|before| *before == self.text())
    }

    /// Writes the changed lines, with `secrets` hidden.
    pub fn show(&self, secrets: &[Secret], out: &mut Stdout) -> io::Result<()> {
        let hide = |text: &str| secrets.iter().fold(text.to_owned(), |text, secret| hide(&text, secret.expose()));
        let (before, after) = (hide(self.before.as_deref().unwrap_or_default()), hide(&self.text()));
        let diff = TextDiff::from_lines(&before, &after);
        writeln!(out, "\n{}:", self.path.display())?;
        for (number, group) in diff.grouped_ops(CONTEXT_LINES).iter().enumerate() {
            if number > 0 {
                writeln!(out, "  …")?;
            }
            for change in group.iter().flat_map(|op| diff.iter_changes(op)) {
                let line = change.value().trim_end_matches(['\r', '\n']);
                match change.tag() {
                    ChangeTag::Equal => writeln!(out, "  {line}")?,
                    ChangeTag::Delete => paint(out, Colour::Red, &format!("- {line}"))?,
                    ChangeTag::Insert => paint(out, Colour::Green, &format!("+ {line}"))?,
                }
            }
        }
        for (_, name, _) in &self.files {
            let shown = self.beside(name);
            writeln!(out, "{}: {}", tr("a secret, readable by you alone", "密钥文件（仅自己可读）"), shown.display())?;
        }
        writeln!(out)
    }

    /// Writes the files of the secrets, then config.toml; each as a whole.
    ///
    /// # Errors
    /// A file cannot be written, or config.toml was changed since it was read.
    pub fn save(&self) -> anyhow::Result<()> {
        let unwritable = |path: &Path| format!("{} cannot be written", path.display());
        if read(&self.path)? != self.before {
            let path = self.path.display();
            bail!(tr(
                format!("{path} was changed in the meantime; nothing was written: run init again"),
                format!("{path} 在此期间被修改，未写入任何内容：请重新运行 init")
            ));
        }
        let drafts = self.files.iter().map(|(_, name, secret)| {
            let path = self.beside(name);
            let draft = draft(&path, secret.expose()).with_context(|| unwritable(&path))?;
            Ok((path, draft))
        });
        let mut drafts = drafts.collect::<anyhow::Result<Vec<_>>>()?;
        let config = draft(&self.path, &self.text()).with_context(|| unwritable(&self.path))?;
        if let Ok(before) = fs::metadata(&self.path) {
            config.as_file().set_permissions(before.permissions()).with_context(|| unwritable(&self.path))?;
        }
        // The configuration comes last: until then, nothing refers to the secrets.
        drafts.push((self.path.clone(), config));
        for (path, draft) in drafts {
            draft.persist(&path).map_err(|error| error.error).with_context(|| unwritable(&path))?;
        }
        let folder = self.path.parent().unwrap_or(Path::new("."));
        fs::File::open(folder).and_then(|folder| folder.sync_all()).with_context(|| unwritable(folder))
    }

    fn beside(&self, name: &str) -> PathBuf {
        self.path.with_file_name(name)
    }
}

/// Returns the first lines of a new file.
fn header() -> &'static str {
    tr(
        "# The configuration of daoyou. `daoyou config show` lists every setting, and config.example.toml explains them.\n\
         # After a change: `daoyou config check`, then restart the gateway.\n\n",
        "# 道友的配置。`daoyou config show` 列出所有设置，config.example.toml 有逐项说明。\n\
         # 修改之后：先运行 `daoyou config check`，再重启网关。\n\n",
    )
}

fn read(path: &Path) -> io::Result<Option<String>> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Writes a file beside `path` that only the owner of the folder can read.
fn draft(path: &Path, text: &str) -> io::Result<NamedTempFile> {
    let folder = path.parent().unwrap_or(Path::new("."));
    let mut draft = tempfile::Builder::new().permissions(fs::Permissions::from_mode(0o600)).tempfile_in(folder)?;
    let owner = fs::metadata(folder)?;
    // Root sets up a home for the service's user.
    if rustix::process::geteuid().is_root() {
        chown(draft.path(), Some(owner.uid()), Some(owner.gid()))?;
    }
    draft.write_all(text.as_bytes())?;
    draft.as_file().sync_all()?;
    Ok(draft)
}

/// Hides a secret, both as it is and as TOML writes it.
fn hide(text: &str, secret: &str) -> String {
    const HIDDEN: &str = "(hidden)";
    if secret.is_empty() {
        return text.to_owned();
    }
    let written = secret.replace('\\', "\\\\").replace('"', "\\\"");
    text.replace(&written, HIDDEN).replace(secret, HIDDEN)
}

fn paint(out: &mut Stdout, colour: Colour, line: &str) -> io::Result<()> {
    out.paint(colour, line)?;
    writeln!(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edit(text: &str) -> (tempfile::TempDir, ConfigEdit) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.toml");
        if !text.is_empty() {
            fs::write(&path, text).unwrap();
        }
        let edit = ConfigEdit::open(&path).unwrap();
        (folder, edit)
    }

    #[test]
    fn a_change_keeps_comments_and_order() {
        let before = "# mine\n[gateway]\nlisten = \"127.0.0.1:1\" # why\n\n[agent]\n# the model\nmodel = \"a/b\" # good\n\n[providers.a]\nbase_url = \"http://x\"\n";
        let (_folder, mut edit) = edit(before);
        edit.set(&["agent", "model"], "c/d", "another comment");
        edit.set(&["agent", "locale"], "zh", "the language");
        edit.set(&["providers", "c", "base_url"], "http://y", "its address");
        edit.add_to_list(&["owner", "identities"], "email:me@example.org", "");
        edit.add_to_list(&["owner", "identities"], "email:me@example.org", "");
        let expected = "# mine\n[gateway]\nlisten = \"127.0.0.1:1\" # why\n\n[agent]\n# the model\nmodel = \"c/d\" # good\n# the language\nlocale = \"zh\"\n\n[providers.a]\nbase_url = \"http://x\"\n\n[providers.c]\n# its address\nbase_url = \"http://y\"\n\n[owner]\nidentities = [\"email:me@example.org\"]\n";
        assert_eq!(edit.document.to_string(), expected);
    }

    #[test]
    fn the_comment_of_a_file_without_tables_stays_first() {
        for before in ["# mine\n\n", "# mine"] {
            let (_folder, mut edit) = edit(before);
            assert!(edit.is_unchanged());
            edit.set(&["agent", "model"], "a/b", "");
            let text = edit.text();
            assert!(text.starts_with("# mine\n") && text.ends_with("[agent]\nmodel = \"a/b\"\n"), "{text:?}");
        }
    }

    #[test]
    fn tables_in_any_form_are_changed() {
        for (before, expected) in [
            ("agent.model = \"a/b\"\n", "agent.model = \"c/d\"\n"),
            ("agent = { model = \"a/b\", locale = \"en\" }\n", "agent = { model = \"c/d\", locale = \"en\" }\n"),
            ("agent = {}\n", "agent = { model = \"c/d\" }\n"),
            ("[agent.budget]\nday_tokens = 1\n", "[agent]\nmodel = \"c/d\"\n[agent.budget]\nday_tokens = 1\n"),
        ] {
            let (_folder, mut edit) = edit(before);
            edit.set(&["agent", "model"], "c/d", "");
            let text = edit.document.to_string();
            let table: toml::Table = text.parse().unwrap();
            assert_eq!(table["agent"]["model"].as_str(), Some("c/d"), "{text}");
            assert_eq!(text.split_whitespace().collect::<String>(), expected.split_whitespace().collect::<String>());
        }
    }

    #[test]
    fn line_ends_and_inline_tables_stay() {
        for (before, expected) in [
            (
                "# mine\r\n[agent]\r\nlocale = \"en\"\r\n",
                "# mine\r\n[agent]\r\nlocale = \"en\"\r\n\r\n[providers.b]\r\n# why\r\nkind = \"k\"\r\n",
            ),
            ("providers = { a = { kind = \"k\" } }\n", "providers = { a = { kind = \"k\" } , b = { kind = \"k\" } }\n"),
        ] {
            let (_folder, mut edit) = edit(before);
            assert!(edit.is_unchanged(), "{before:?}");
            edit.set(&["providers", "b", "kind"], "k", "why");
            assert_eq!(edit.text(), expected);
        }
    }

    #[test]
    fn a_secret_is_in_its_file_alone() {
        let (folder, mut edit) = edit("");
        let file = |value: &str| SecretValue::file("a.key", Secret::new(value));
        edit.set_secret(&["providers", "a", "api_key"], file("wrong"), "");
        edit.set_secret(&["providers", "a", "api_key"], file("ca\"nary"), "");
        assert!(edit.trial_text().contains("nary") && !edit.document.to_string().contains("nary"));
        edit.save().unwrap();
        let path = folder.path().join("a.key");
        assert_eq!(fs::read_to_string(&path).unwrap(), "ca\"nary");
        for path in [&path, edit.path()] {
            assert_eq!(fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o600);
        }
        assert!(fs::read_to_string(edit.path()).unwrap().contains("api_key = \"file:a.key\""));
        // Another program has replaced the file.
        assert!(edit.save().unwrap_err().to_string().contains("changed in the meantime"));
        let names = fs::read_dir(folder.path()).unwrap().count();
        assert_eq!(names, 2, "no draft is left");
    }

    #[test]
    fn secrets_are_hidden_in_every_form() {
        for (text, secret) in
            [("a = \"canary\"", "canary"), ("a = 'ca\"nary'", "ca\"nary"), ("a = \"ca\\\\na\\\"ry\"", "ca\\na\"ry")]
        {
            let value = hide(text, secret);
            assert!(!value.contains("ary") && value.contains("(hidden)"), "{value}");
        }
    }
}
