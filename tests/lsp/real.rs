//! Real language servers, where they are installed.

use std::process::Command;

use super::*;
use crate::support::requirements::find;

/// Returns a harness whose servers are those on PATH that start; if there is no sandbox or no server, skips the story.
fn harness(language: &str, command: &[&str], package: &str, files: &[(&str, &str)]) -> Option<Harness> {
    if is_missing(command[0], package) {
        return None;
    }
    // A program on PATH may be a proxy whose real program is not installed.
    if command[0] == "rust-analyzer"
        && !Command::new(command[0]).arg("--version").output().is_ok_and(|ran| ran.status.success())
    {
        skip_story("rust-analyzer does not start (rustup component add rust-analyzer)");
        return None;
    }
    let program = find(command[0]).unwrap().display().to_string();
    let command = [program].into_iter().chain(command[1..].iter().map(|word| (*word).to_owned())).collect();
    let lsp = LspConfig { servers: BTreeMap::from([(language.to_owned(), command)]), ..LspConfig::default() };
    let exec = ExecConfig { read_paths: vec!["~/.cargo".to_owned(), "~/.rustup".to_owned()], ..ExecConfig::default() };
    Harness::build(
        tempfile::tempdir().unwrap(),
        files.iter().copied(),
        &ToolsConfig { lsp, exec, ..ToolsConfig::default() },
    )
}

/// A project, and the results expected from its server.
struct Project {
    files: &'static [(&'static str, &'static str)],
    file: &'static str,
    /// The position of a use of the function.
    used: (u32, u32),
    definition: &'static str,
    references: &'static [&'static str],
    symbol: &'static str,
    diagnostic: &'static str,
    renamed: &'static str,
}

impl Project {
    async fn check(&self, harness: &Harness) {
        let (line, character) = self.used;
        let place = json!({"path": self.file, "line": line, "character": character});
        let result = harness.says("lsp_definition", place.clone()).await;
        assert!(result.starts_with(self.definition), "{result}");
        let result = harness.says("lsp_references", place.clone()).await;
        for reference in self.references {
            assert!(result.contains(reference), "{result}");
        }
        let result = harness.says("lsp_symbols", json!({"path": self.file})).await;
        assert!(result.contains(self.symbol), "{result}");
        let result = harness.says("lsp_diagnostics", json!({"path": self.file})).await;
        assert!(result.contains(self.diagnostic), "{result}");
        let result = harness.says("lsp_code_actions", place.clone()).await;
        assert!(!result.starts_with("Error") || result.contains("cannot do this"), "{result}");
        let mut rename = place;
        rename["new_name"] = json!("added");
        let result = harness.says("lsp_rename", rename).await;
        assert!(result.starts_with("Changed ") && harness.text(self.file).contains(self.renamed), "{result}");
    }
}

const PYTHON_PROJECT: Project = Project {
    files: &[
        ("pyproject.toml", "[project]\nname = \"x\"\n"),
        ("calc.py", "def add(a, b):\n    return a + b\n"),
        ("main.py", "from calc import add\n\nprint(\"😀道\", add(1, 2))\nprint(missing)\n\n\ndef run():\n    pass\n"),
    ],
    file: "main.py",
    used: (3, 13),
    definition: "calc.py:1:5: def add(a, b):",
    references: &["main.py:3:13: print(\"😀道\", add(1, 2))", "calc.py:1:5: def add(a, b):"],
    symbol: "7: function run",
    diagnostic: "main.py:4:7 ",
    renamed: "print(\"😀道\", added(1, 2))",
};

#[tokio::test(flavor = "multi_thread")]
async fn pylsp_serves_every_tool() {
    let Some(harness) = harness("python", &["pylsp"], "python3-pylsp", PYTHON_PROJECT.files) else { return };
    // Without the linters that it can use, the server reports only syntax errors.
    Project { diagnostic: "main.py", ..PYTHON_PROJECT }.check(&harness).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pyright_serves_every_tool() {
    let command = ["pyright-langserver", "--stdio"];
    let Some(harness) = harness("python", &command, "pyright of npm", PYTHON_PROJECT.files) else { return };
    PYTHON_PROJECT.check(&harness).await;
    let result = harness.says("lsp_diagnostics", json!({"path": "main.py"})).await;
    assert!(result.contains("error [reportUndefinedVariable] \"missing\" is not defined"), "{result}");
    harness.write("main.py", "x: int = 1\n");
    assert_eq!(harness.says("lsp_diagnostics", json!({"path": "main.py"})).await, "main.py: no diagnostics");
    let result = harness.says("lsp_symbols", json!({"path": ".", "query": "added"})).await;
    assert!(result.contains("calc.py:1:5: function added"), "{result}");
}

#[tokio::test(flavor = "multi_thread")]
async fn typescript_language_server_serves_every_tool() {
    let project = Project {
        files: &[
            ("tsconfig.json", "{\"compilerOptions\": {\"strict\": true, \"lib\": [\"es2020\"]}}"),
            ("calc.ts", "export function add(a: number, b: number) {\n  return a + b;\n}\n"),
            (
                "main.ts",
                "import { add } from \"./calc\";\n\nexport const sum = [\"😀道\", add(1, 2)];\nadd(\"x\", 2);\n",
            ),
        ],
        file: "main.ts",
        used: (3, 28),
        definition: "calc.ts:1:17: export function add",
        references: &["calc.ts:1:17: ", "main.ts:1:10: ", "main.ts:3:27: ", "main.ts:4:1: "],
        symbol: "3: constant sum",
        diagnostic: "main.ts:4:5 error [2345] Argument of type 'string'",
        renamed: "[\"😀道\", added(1, 2)]",
    };
    let command = ["typescript-language-server", "--stdio"];
    let package = "typescript-language-server and typescript of npm";
    let Some(harness) = harness("typescript", &command, package, project.files) else { return };
    project.check(&harness).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn clangd_serves_every_tool() {
    let project = Project {
        files: &[
            ("compile_flags.txt", "-xc\n-std=c11\n"),
            (
                "calc.c",
                "int add(int a, int b) { return a + b; }\nint main(void) { /*😀*/ return add(1, 2) + missing; }\n",
            ),
        ],
        file: "calc.c",
        used: (2, 32),
        definition: "calc.c:1:5: int add",
        references: &["calc.c:1:5: ", "calc.c:2:31: "],
        symbol: "2: function main",
        diagnostic: "calc.c:2:43 error [undeclared_var_use] Use of undeclared identifier 'missing'",
        renamed: "return added(1, 2)",
    };
    let Some(harness) = harness("c", &["clangd"], "clangd", project.files) else { return };
    project.check(&harness).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn gopls_serves_every_tool() {
    let project = Project {
        files: &[
            ("go.mod", "module example.org/x\n\ngo 1.19\n"),
            ("calc.go", "package main\n\nfunc add(a, b int) int { return a + b }\n"),
            ("main.go", "package main\n\nfunc main() { /*😀*/ println(add(1, 2), missing) }\n"),
        ],
        file: "main.go",
        used: (3, 31),
        definition: "calc.go:3:6: func add",
        references: &["calc.go:3:6: ", "main.go:3:29: "],
        symbol: "3: function main",
        diagnostic: "missing",
        renamed: "println(added(1, 2)",
    };
    let Some(harness) = harness("go", &["gopls"], "gopls", project.files) else { return };
    if is_missing("go", "golang-go") {
        return;
    }
    project.check(&harness).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rust_analyzer_serves_every_tool() {
    let project = Project {
        files: &[
            ("Cargo.toml", "[package]\nname = \"x\"\nversion = \"0.1.0\"\nedition = \"2021\"\n"),
            ("src/calc.rs", "pub fn add(a: i32, b: i32) -> i32 {\n    a + b\n}\n"),
            (
                "src/main.rs",
                "mod calc;\n\nfn main() {\n    let _ = (\"😀道 {}\", calc::add(1, 2));\n    let x: u8 = \"x\";\n}\n",
            ),
        ],
        file: "src/main.rs",
        used: (4, 31),
        definition: "src/calc.rs:1:8: pub fn add",
        references: &["src/calc.rs:1:8: ", "src/main.rs:4:"],
        symbol: "3: function main",
        diagnostic: "src/main.rs:5:17 error [E0308] ",
        renamed: "calc::added(1, 2)",
    };
    let Some(harness) = harness("rust", &["rust-analyzer"], "the component rust-analyzer of rustup", project.files)
    else {
        return;
    };
    project.check(&harness).await;
}
