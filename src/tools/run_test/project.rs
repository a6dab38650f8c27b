//! Finds the project of a call, and composes the command that runs the project's tests.

use std::path::{Path, PathBuf};

use strum::VariantArray;

use crate::guard::{Jail, quote_controls};
use crate::text::shell_quote;

/// The maximum number of entries of a folder that are searched for Python tests.
const MAX_ENTRIES: usize = 1_000;
const MAKEFILES: [&str; 3] = ["GNUmakefile", "makefile", "Makefile"];
/// The text that the script prints before it exits with 127, if the runner is missing.
pub(super) const MISSING: &str = "daoyou: missing program";

/// A test runner, with the names that calls may use. The order is that of preference, for a folder that has several: a Makefile
/// often calls one of the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::Display, strum::EnumString, strum::VariantArray)]
pub(super) enum TestFramework {
    #[strum(to_string = "cargo", serialize = "cargo test", serialize = "rust", serialize = "nextest")]
    Cargo,
    #[strum(to_string = "go", serialize = "go test", serialize = "golang")]
    Go,
    #[strum(to_string = "maven", serialize = "mvn", serialize = "junit", serialize = "java")]
    Maven,
    #[strum(to_string = "npm", serialize = "npm test", serialize = "node", serialize = "jest", serialize = "vitest")]
    #[strum(serialize = "mocha", serialize = "javascript", serialize = "typescript")]
    Npm,
    #[strum(to_string = "pytest", serialize = "python", serialize = "py.test", serialize = "unittest")]
    Pytest,
    #[strum(to_string = "make")]
    Make,
}

use TestFramework::{Cargo, Go, Make, Maven, Npm, Pytest};

impl TestFramework {
    /// Returns the runner with this name.
    ///
    /// # Errors
    /// There is no such runner.
    pub(super) fn named(name: &str) -> Result<Self, String> {
        let found = name.trim().to_lowercase().parse();
        found.map_err(|_| format!("framework {name:?} is not one of cargo, pytest, npm, go, maven, make"))
    }

    /// Returns the files that mark a project, and the texts that must be in them.
    const fn marks(self) -> &'static str {
        match self {
            Cargo => "Cargo.toml",
            Go => "go.mod",
            Maven => "pom.xml",
            Npm => "package.json with a script \"test\"",
            Pytest => "pyproject.toml, pytest.ini, setup.cfg, tox.ini, setup.py, or test_*.py",
            Make => "Makefile with a target test or check",
        }
    }

    /// Returns the program, and the Debian package or other source that provides it.
    pub(super) const fn program(self) -> (&'static str, &'static str) {
        match self {
            Cargo => ("cargo", "rustup.rs"),
            Go => ("go", "package golang"),
            Maven => ("mvn", "package maven"),
            Npm => ("npm", "package npm"),
            Pytest => ("pytest for python3", "package python3-pytest"),
            Make => ("make", "package make"),
        }
    }

    /// Returns the runner that a file most likely belongs to.
    fn of_file(path: &Path) -> Option<Self> {
        match path.extension()?.to_str()? {
            "rs" => Some(Cargo),
            "go" => Some(Go),
            "java" | "kt" | "scala" => Some(Maven),
            "js" | "cjs" | "mjs" | "jsx" | "ts" | "cts" | "mts" | "tsx" => Some(Npm),
            "py" => Some(Pytest),
            _ => None,
        }
    }

    fn is_in(self, jail: &Jail, folder: &Path) -> bool {
        let has = |name: &str| folder.join(name).is_file();
        match self {
            Cargo => has("Cargo.toml"),
            Go => has("go.mod"),
            Maven => has("pom.xml"),
            Npm => read(jail, &folder.join("package.json")).is_some_and(|text| has_test_script(&text)),
            Pytest => ["pyproject.toml", "pytest.ini", "setup.cfg", "tox.ini", "setup.py"].into_iter().any(has),
            Make => make_target(jail, folder).is_some(),
        }
    }
}

/// A project and its test runner.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TestProject {
    pub framework: TestFramework,
    /// The real path of the folder in which the runner starts.
    pub root: PathBuf,
    /// The file or folder to test, relative to `root`.
    target: Option<PathBuf>,
    /// The target in the Makefile.
    make_target: &'static str,
    /// The module name in go.mod.
    pub module: String,
}

impl TestProject {
    /// Finds the project of `path`, or of the workspace: in its folder, or in the nearest folder above it.
    ///
    /// # Errors
    /// There is no project, or the path is refused.
    pub(super) fn find(jail: &Jail, path: Option<&str>, wanted: Option<TestFramework>) -> Result<Self, String> {
        let at = jail.locate(path.unwrap_or(".")).map_err(|error| error.to_string())?;
        let start = if at.is_dir() { at.as_path() } else { at.parent().unwrap_or(&at) };
        let folders: Vec<&Path> = start.ancestors().take_while(|above| above.starts_with(jail.root())).collect();
        let nearest = |framework: TestFramework| {
            let folder = folders.iter().copied().find(|folder| framework.is_in(jail, folder))?;
            Some((framework, folder.to_owned()))
        };
        let any = || {
            let all = TestFramework::VARIANTS;
            let each = folders.iter().flat_map(|folder| all.iter().map(|framework| (*framework, *folder)));
            let mut each = each.filter(|(framework, folder)| framework.is_in(jail, folder));
            each.next().map(|(framework, folder)| (framework, folder.to_owned()))
        };
        let python = || Some((Pytest, python_root(&folders)?));
        let found = match wanted {
            Some(Pytest) => nearest(Pytest).or_else(python).or_else(|| Some((Pytest, start.to_owned()))),
            Some(framework) => nearest(framework),
            None => match TestFramework::of_file(&at) {
                Some(Pytest) => nearest(Pytest).or_else(python).or_else(any),
                Some(framework) => nearest(framework).or_else(any),
                None => any().or_else(python),
            },
        };
        let Some((framework, root)) = found else { return Err(not_found(path, wanted)) };
        let target = path.and_then(|_| at.strip_prefix(&root).ok()).filter(|target| !target.as_os_str().is_empty());
        Ok(Self {
            framework,
            target: target.map(Path::to_owned),
            make_target: make_target(jail, &root).unwrap_or("test"),
            module: read(jail, &root.join("go.mod")).and_then(|text| go_module(&text)).unwrap_or_default(),
            root,
        })
    }

    /// Composes the script that runs the tests.
    pub(super) fn script(&self, network: bool) -> String {
        let offline = |flag: &str| if network { String::new() } else { format!(" {flag}") };
        let target = |before: &str| {
            self.target.as_ref().map(|target| format!("{before}{}", shell_quote(&target.display().to_string())))
        };
        let run = match self.framework {
            Cargo => {
                let (offline, arguments) = (offline("--offline"), self.cargo_arguments());
                format!("env RUST_BACKTRACE=0 cargo test{offline} --no-fail-fast --color never{arguments}")
            }
            Go => {
                let proxy = if network { "" } else { "GOPROXY=off " };
                format!("env {proxy}GOTOOLCHAIN=local go test -json {}", shell_quote(&self.go_packages()))
            }
            Maven => {
                let class = self.target.as_ref().filter(|target| TestFramework::of_file(target) == Some(Maven));
                let class = class.and_then(|target| target.file_stem()?.to_str());
                let class =
                    class.map(|class| format!(" {}", shell_quote(&format!("-Dtest={class}")))).unwrap_or_default();
                format!("mvn --batch-mode{} -Dstyle.color=never{class} test", offline("--offline"))
            }
            Npm => {
                let quiet = "CI=1 NO_COLOR=1 npm_config_cache=\"$TMPDIR/npm\" npm_config_update_notifier=false";
                format!("env {quiet} npm test --silent{}", target(" -- ./").unwrap_or_default())
            }
            Pytest => {
                let target = target(" ./").unwrap_or_default();
                format!("$py -m pytest --color=no --tb=short -rfE -p no:cacheprovider{target}")
            }
            Make => format!("make --no-print-directory {}", self.make_target),
        };
        let check = match self.framework {
            // The project's virtual environment contains its dependencies.
            Pytest => "py=python3; [ ! -x .venv/bin/python ] || py=.venv/bin/python\n$py -c 'import pytest'".to_owned(),
            framework => format!("command -v {}", framework.program().0),
        };
        let root = shell_quote(&self.root.display().to_string());
        format!("cd {root} || exit\n{check} > /dev/null 2>&1 || {{ echo '{MISSING}'; exit 127; }}\nexec {run}")
    }

    /// Returns the arguments that select the tests of a file: a test program, or the module of a source file.
    fn cargo_arguments(&self) -> String {
        let Some(target) = &self.target else { return String::new() };
        let parts: Vec<&str> = target.iter().filter_map(|part| part.to_str()).collect();
        let is_file = TestFramework::of_file(target) == Some(Cargo);
        match parts.as_slice() {
            ["tests"] => " --test '*'".to_owned(),
            ["tests", name, ..] => format!(" --test {}", shell_quote(name.strip_suffix(".rs").unwrap_or(name))),
            ["src", modules @ .., last] => {
                let stem = if is_file { last.strip_suffix(".rs").unwrap_or(last) } else { last };
                let is_named = !matches!(stem, "lib" | "main" | "mod");
                let path: Vec<&str> = modules.iter().copied().chain(is_named.then_some(stem)).collect();
                if path.is_empty() {
                    String::new()
                } else {
                    format!(" -- {}", shell_quote(&format!("{}::", path.join("::"))))
                }
            }
            _ => String::new(),
        }
    }

    fn go_packages(&self) -> String {
        match &self.target {
            None => "./...".to_owned(),
            Some(target) if TestFramework::of_file(target) == Some(Go) => {
                let folder = target.parent().unwrap_or(Path::new(""));
                format!("./{}", folder.display())
            }
            Some(target) => format!("./{}/...", target.display()),
        }
    }
}

fn not_found(path: Option<&str>, wanted: Option<TestFramework>) -> String {
    let at = path.map_or_else(|| "the workspace".to_owned(), quote_controls);
    match wanted {
        Some(framework) => {
            format!("no {framework} project in {at} or above it: there is no {}", framework.marks())
        }
        None => {
            let marks: Vec<_> = TestFramework::VARIANTS.iter().map(|framework| framework.marks()).collect();
            format!("no tests found in {at} or above it; looked for {}", marks.join("; "))
        }
    }
}

/// Reads a file of a project.
fn read(jail: &Jail, path: &Path) -> Option<String> {
    let content = jail.read(path.to_str()?).ok()?;
    Some(String::from_utf8_lossy(&content.bytes).into_owned())
}

fn has_test_script(package: &str) -> bool {
    let package: serde_json::Value = serde_json::from_str(package).unwrap_or_default();
    package["scripts"]["test"].as_str().is_some_and(|script| !script.trim().is_empty())
}

fn make_target(jail: &Jail, folder: &Path) -> Option<&'static str> {
    let text = MAKEFILES.iter().find_map(|name| read(jail, &folder.join(name)))?;
    let targets: Vec<&str> = text
        .lines()
        .filter(|line| !line.starts_with(['\t', ' ', '#', '.']))
        .filter_map(|line| line.split_once(':').filter(|(_, rest)| !rest.starts_with('=')))
        .flat_map(|(names, _)| names.split_whitespace())
        .collect();
    ["test", "check"].into_iter().find(|wanted| targets.contains(wanted))
}

fn go_module(text: &str) -> Option<String> {
    text.lines().find_map(|line| line.trim().strip_prefix("module ")).map(|module| module.trim().to_owned())
}

/// Returns the root folder of Python tests that no project file marks. For a folder named `tests`, returns the folder above it.
fn python_root(folders: &[&Path]) -> Option<PathBuf> {
    let has_tests = |folder: &Path| {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten().take(MAX_ENTRIES);
        let mut names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        names.any(|name| {
            name == "conftest.py" || name.ends_with("_test.py") || name.starts_with("test_") && name.ends_with(".py")
        })
    };
    let is_tests = |folder: &Path| folder.file_name().is_some_and(|name| name == "tests" || name == "test");
    let at = folders
        .iter()
        .position(|folder| has_tests(folder) || ["tests", "test"].iter().any(|below| has_tests(&folder.join(below))))?;
    let above = folders.get(at + 1).filter(|_| is_tests(folders[at]));
    Some(above.unwrap_or(&folders[at]).to_path_buf())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Creates files in a workspace. A path that ends with `/` is a folder.
    fn workspace(files: &[(&str, &str)]) -> (tempfile::TempDir, Jail) {
        let folder = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let jail = Jail::open(folder.path(), true, Vec::new(), 1_000_000).unwrap();
        (folder, jail)
    }

    #[test]
    fn the_nearest_project_is_found() {
        let package = r#"{"scripts": {"test": "node --test"}}"#;
        let files = [
            ("Makefile", "all: x\ncheck: x\n\ttest: y\nX := test: z\n"),
            ("rust/Cargo.toml", ""),
            ("rust/src/a/b.rs", ""),
            ("rust/web/package.json", package),
            ("rust/web/a.test.js", ""),
            ("rust/plain/package.json", "{}"),
            ("rust/tool.py", ""),
            ("py/tests/test_a.py", ""),
            ("go/go.mod", "module example.org/x\n"),
            ("go/p/p_test.go", ""),
            ("java/pom.xml", ""),
            ("java/src/test/java/ATest.java", ""),
        ];
        let (_folder, jail) = workspace(&files);
        for (path, wanted, expected) in [
            (None, None, (Make, "")),
            (Some("rust"), None, (Cargo, "rust")),
            (Some("rust/src/a/b.rs"), None, (Cargo, "rust")),
            (Some("rust/web"), None, (Npm, "rust/web")),
            (Some("rust/web"), Some(Cargo), (Cargo, "rust")),
            (Some("rust/web/a.test.js"), None, (Npm, "rust/web")),
            (Some("rust/plain"), None, (Cargo, "rust")),
            (Some("rust/tool.py"), None, (Cargo, "rust")),
            (Some("py/tests/test_a.py"), None, (Pytest, "py")),
            (Some("py"), Some(Pytest), (Pytest, "py")),
            (Some("go/p"), None, (Go, "go")),
            (Some("java/src/test/java/ATest.java"), None, (Maven, "java")),
        ] {
            let found = TestProject::find(&jail, path, wanted).unwrap();
            let root = found.root.strip_prefix(jail.root()).unwrap();
            assert_eq!((found.framework, root), (expected.0, Path::new(expected.1)), "{path:?}");
        }
        let (_folder, jail) = workspace(&[("notes.txt", "")]);
        for (path, wanted, expected) in [
            (None, None, "no tests found in the workspace or above it; looked for Cargo.toml; go.mod; pom.xml"),
            (Some("notes.txt"), Some(Cargo), "no cargo project in notes.txt or above it: there is no Cargo.toml"),
            (Some("../x"), None, "outside the workspace"),
            (Some("gone"), None, "no such file"),
        ] {
            let error = TestProject::find(&jail, path, wanted).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
        assert!(TestFramework::named("PyTest").is_ok_and(|framework| framework == Pytest));
        assert!(TestFramework::named("rspec").unwrap_err().contains("cargo, pytest, npm, go, maven, make"));
    }

    #[test]
    fn a_path_chooses_the_tests_that_run() {
        for (framework, target, network, expected) in [
            (Cargo, None, false, "cargo test --offline --no-fail-fast --color never"),
            (Cargo, Some("tests/it's.rs"), true, "cargo test --no-fail-fast --color never --test 'it'\\''s'"),
            (Cargo, Some("tests/big/part.rs"), true, "--color never --test 'big'"),
            (Cargo, Some("tests"), true, "--color never --test '*'"),
            (Cargo, Some("src/lib.rs"), true, "--color never"),
            (Cargo, Some("src/a/mod.rs"), true, "--color never -- 'a::'"),
            (Cargo, Some("src/a/b.rs"), true, "--color never -- 'a::b::'"),
            (Cargo, Some("src/a"), true, "--color never -- 'a::'"),
            (Pytest, Some("-x.py"), false, "-p no:cacheprovider ./'-x.py'"),
            (Npm, Some("a.test.js"), false, "npm test --silent -- ./'a.test.js'"),
            (Go, None, false, "env GOPROXY=off GOTOOLCHAIN=local go test -json './...'"),
            (Go, Some("p/p_test.go"), true, "go test -json './p'"),
            (Go, Some("p"), true, "go test -json './p/...'"),
            (
                Maven,
                Some("src/test/ATest.java"),
                false,
                "mvn --batch-mode --offline -Dstyle.color=never '-Dtest=ATest' test",
            ),
            (Make, Some("x"), false, "make --no-print-directory check"),
        ] {
            let project = TestProject {
                framework,
                root: PathBuf::from("/w"),
                target: target.map(PathBuf::from),
                make_target: "check",
                module: String::new(),
            };
            let script = project.script(network);
            assert!(script.starts_with("cd '/w' || exit\n") && script.ends_with(expected), "{script}");
        }
    }
}
