//! The supported language servers: their languages, the files that mark a project, and their programs.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

/// File extensions, with the protocol's identifier of their language.
type LanguageIds = &'static [(&'static [&'static str], &'static str)];

/// A kind of language server.
#[derive(Debug)]
pub(super) struct ServerKind {
    /// The name in `[tools.lsp.servers]`.
    pub name: &'static str,
    /// The name of the language, as shown in texts.
    pub language: &'static str,
    pub ids: LanguageIds,
    /// The names of files that mark the root folder of a project.
    pub markers: &'static [&'static str],
    /// The programs with their arguments. The first installed one is used.
    pub commands: &'static [&'static [&'static str]],
    /// Instructions for installing one of the programs.
    pub install: &'static str,
    /// True if the server reports by `experimental/serverStatus` when it has read the project.
    pub reports_status: bool,
    /// The `initializationOptions` of the protocol.
    pub options: fn() -> Value,
}

/// All supported servers.
pub(super) const SERVERS: [ServerKind; 5] = [
    ServerKind {
        name: "rust",
        language: "Rust",
        ids: &[(&["rs"], "rust")],
        markers: &["Cargo.toml", "rust-project.json"],
        commands: &[&["rust-analyzer"]],
        install: "rust-analyzer (rustup component add rust-analyzer rust-src)",
        reports_status: true,
        options: || Value::Null,
    },
    ServerKind {
        name: "python",
        language: "Python",
        ids: &[(&["py", "pyi"], "python")],
        markers: &["pyproject.toml", "setup.py", "setup.cfg", "requirements.txt", "Pipfile", "pyrightconfig.json"],
        commands: &[&["pyright-langserver", "--stdio"], &["basedpyright-langserver", "--stdio"], &["pylsp"]],
        install: "pyright (npm) or python-lsp-server (pip, Debian: python3-pylsp)",
        reports_status: false,
        options: || Value::Null,
    },
    ServerKind {
        name: "typescript",
        language: "TypeScript and JavaScript",
        ids: &[
            (&["ts", "mts", "cts"], "typescript"),
            (&["tsx"], "typescriptreact"),
            (&["js", "mjs", "cjs"], "javascript"),
            (&["jsx"], "javascriptreact"),
        ],
        markers: &["tsconfig.json", "jsconfig.json", "package.json"],
        commands: &[&["typescript-language-server", "--stdio"]],
        install: "typescript-language-server and typescript (npm)",
        reports_status: false,
        // Automatic acquisition would fetch type declarations from the network. The syntax server would answer before the project
        // is read.
        options: || json!({"disableAutomaticTypingAcquisition": true, "tsserver": {"useSyntaxServer": "never"}}),
    },
    ServerKind {
        name: "go",
        language: "Go",
        ids: &[(&["go"], "go")],
        markers: &["go.work", "go.mod"],
        commands: &[&["gopls"]],
        install: "gopls (Debian: gopls)",
        reports_status: false,
        options: || Value::Null,
    },
    ServerKind {
        name: "c",
        language: "C and C++",
        ids: &[(&["c"], "c"), (&["h", "cc", "cpp", "cxx", "hh", "hpp", "hxx"], "cpp")],
        markers: &["compile_commands.json", "compile_flags.txt", ".clangd", "CMakeLists.txt", "meson.build"],
        commands: &[&["clangd"]],
        install: "clangd (Debian: clangd)",
        reports_status: false,
        options: || Value::Null,
    },
];

impl ServerKind {
    /// Returns the server kind for a file.
    ///
    /// # Errors
    /// No server supports the file; the error names the supported extensions.
    pub(super) fn of_file(path: &Path) -> Result<&'static Self, String> {
        SERVERS.iter().find(|kind| kind.language_id(path).is_some()).ok_or_else(|| {
            let known: Vec<_> =
                SERVERS.iter().flat_map(|kind| kind.ids).flat_map(|(endings, _)| *endings).copied().collect();
            format!("no language server is known for this kind of file; known are {}", known.join(", "))
        })
    }

    /// Returns the language identifier of a file, if the server supports it.
    pub(super) fn language_id(&self, path: &Path) -> Option<&'static str> {
        let extension = path.extension()?.to_str()?;
        let has = |endings: &[&str]| endings.iter().any(|known| known.eq_ignore_ascii_case(extension));
        self.ids.iter().find(|(endings, _)| has(endings)).map(|(_, id)| *id)
    }

    /// Returns the kind and the root of the project in this folder, or in the nearest folder above it.
    pub(super) fn of_folder(workspace: &Path, folder: &Path) -> Option<(&'static Self, PathBuf)> {
        folders_up(workspace, folder)
            .find_map(|above| Some((SERVERS.iter().find(|kind| kind.marks(above))?, above.to_owned())))
    }

    /// Returns the root of a file's project: the nearest folder with a marker, or the workspace.
    pub(super) fn root_of(&self, workspace: &Path, file: &Path) -> PathBuf {
        let folder = file.parent().unwrap_or(workspace);
        folders_up(workspace, folder).find(|above| self.marks(above)).unwrap_or(workspace).to_owned()
    }

    /// Returns the outermost folder with a marker at or above `root`, such as a Cargo workspace of several packages.
    pub(super) fn outermost_root(&self, workspace: &Path, root: &Path) -> PathBuf {
        folders_up(workspace, root).filter(|above| self.marks(above)).last().unwrap_or(root).to_owned()
    }

    fn marks(&self, folder: &Path) -> bool {
        self.markers.iter().any(|marker| folder.join(marker).is_file())
    }

    /// Returns true if the server must learn of changes of this file.
    pub(super) fn watches(&self, name: &str) -> bool {
        self.markers.contains(&name) || self.language_id(Path::new(name)).is_some()
    }

    /// Returns true if this file marks a project.
    pub(super) fn is_marker(&self, path: &Path) -> bool {
        path.file_name().and_then(|name| name.to_str()).is_some_and(|name| self.markers.contains(&name))
    }
}

fn folders_up<'a>(workspace: &'a Path, folder: &'a Path) -> impl Iterator<Item = &'a Path> {
    folder.ancestors().take_while(move |above| above.starts_with(workspace))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_server_of_a_file_follows_from_its_extension() {
        for (path, expected) in [
            ("a/b.rs", Some(("rust", "rust"))),
            ("a.PY", Some(("python", "python"))),
            ("a.tsx", Some(("typescript", "typescriptreact"))),
            ("a.mjs", Some(("typescript", "javascript"))),
            ("a.go", Some(("go", "go"))),
            ("a.hpp", Some(("c", "cpp"))),
            ("README.md", None),
            ("Makefile", None),
        ] {
            let path = Path::new(path);
            let found = ServerKind::of_file(path).ok().and_then(|kind| Some((kind.name, kind.language_id(path)?)));
            assert_eq!(found, expected, "{}", path.display());
        }
        let error = ServerKind::of_file(Path::new("a.txt")).unwrap_err();
        assert!(error.contains("known are rs, py"), "{error}");
    }

    #[test]
    fn the_root_is_the_nearest_folder_with_a_marker() {
        let temp = tempfile::tempdir().unwrap();
        let workspace = temp.path().join("ws");
        for file in ["../package.json", "app/package.json", "app/core/Cargo.toml", "app/core/src/a.rs", "lib/go.mod"] {
            let path = workspace.join(file);
            std::fs::create_dir_all(workspace.join("lib")).unwrap();
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "").unwrap();
        }
        for (file, expected) in [
            ("app/core/src/a.rs", "app/core"),
            ("app/core/src/a.ts", "app"),
            ("app/core/src/a.py", ""),
            ("app/core/x/y.rs", "app/core"),
            ("a.ts", ""),
            ("lib/x/a.go", "lib"),
        ] {
            let kind = ServerKind::of_file(Path::new(file)).unwrap();
            let root = kind.root_of(&workspace, &workspace.join(file));
            assert_eq!(root, workspace.join(expected).components().collect::<PathBuf>(), "{file}");
        }
        std::fs::create_dir_all(workspace.join("app/core/inner")).unwrap();
        std::fs::write(workspace.join("app/core/inner/Cargo.toml"), "").unwrap();
        for (root, expected) in [("app/core/inner", "app/core"), ("app/core", "app/core"), ("app", "app"), ("", "")] {
            let kind = ServerKind::of_file(Path::new("a.rs")).unwrap();
            assert_eq!(kind.outermost_root(&workspace, &workspace.join(root)), workspace.join(expected), "{root}");
        }
        for (folder, expected) in [("app", Some("typescript")), ("app/core/src", Some("rust")), ("lib", Some("go"))] {
            let found = ServerKind::of_folder(&workspace, &workspace.join(folder)).map(|(kind, _)| kind.name);
            assert_eq!(found, expected, "{folder}");
        }
        // The marker above the workspace is ignored.
        assert!(ServerKind::of_folder(&workspace, &workspace).is_none());
    }
}
