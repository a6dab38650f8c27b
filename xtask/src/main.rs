//! The project's tasks: `cargo xtask test | bench | ci | fuzz | audit | sbom | trust | soak | man | package`.

mod fuzz;
mod package;
mod supply;

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, Result, bail};

const HELP: &str = "\
usage: cargo xtask TASK

  test [ARGS…]                   runs everything that must pass; with CI=true the checks of `ci` first. ARGS go to the runner
  ci [--release]                 checks formatting, lints and dependencies, runs each fuzz target for DAOYOU_FUZZ_SECONDS (60 if
                                 not set), then the tests; with --release also the crash tests of a release build
  fuzz [--seconds N] [TARGET…]   runs the fuzz targets, two at a time, for N seconds each (default 60)
  audit                          checks the dependencies; writes docs/audit.md
  sbom                           writes a bill of materials for each package to target/sbom (CycloneDX)
  trust                          writes docs/trust.md: what each level of trust may do, as the program itself does it
  bench [--quick | --against PROGRAM|COMMIT]
                                 builds the release, measures it and the model side three times, alternating with another build
                                 or with the build of a commit; writes docs/benchmarks.md, unless --quick
  bench memory [--locomo FILE [--embeddings URL --embeddings-model NAME]] [--quick | --choose]
                                 measures how well and how fast memory finds, by words and with the vectors of a service;
                                 writes only that section, unless --quick. --choose tries other weights and writes nothing
  bench growth [--messages N]    measures the cost of a turn while the messages of one owner grow to N (default 1,000,000, which
                                 takes hours); writes only that section, if N is at least 36,000
  bench tools                    measures the tools: grep and glob beside rg, pages of a large file, a web page, the parts of a
                                 first request; writes only that section
  bench skills [--folder DIR]    measures skills and MCP servers: tokens in each request, starts, turns, calls; replaces their
                                 section of docs/benchmarks.md
  bench page                     measures the page and open event streams; replaces their section of docs/benchmarks.md
  bench results [--embeddings URL --embeddings-model NAME] [--chat URL --chat-model NAME] [--cases]
                                 measures what post-processing saves and loses over a labelled corpus, also with models of a
                                 service; writes only that section. --cases lists each case and writes nothing
  package [--target TRIPLE]      builds the release, and from it an archive with manual pages, completions and units, a Debian
                                 package, a bill of materials and checksums, in target/package
  man                            writes the manual pages to target/man, one for each command
  soak [--minutes N] [--kills N] [--seed S]
                                 sends random messages and kills the gateway for at least N minutes and N kills (default 200
                                 kills), from seed S
";

const TRUST_STORY: &str = "attack::trust_page::the_trust_page_matches_the_program";

/// A program that some tests need, its Debian package, and the tests that are skipped without it.
struct RequiredProgram {
    program: &'static str,
    package: &'static str,
    without: &'static str,
}

const APT_PROGRAMS: &[RequiredProgram] = &[
    RequiredProgram {
        program: "strace",
        package: "strace",
        without: "the test that a message is synced to disk before it is accepted, and the bench's count of fsyncs",
    },
    RequiredProgram {
        program: "bwrap",
        package: "bubblewrap",
        without: "every story of commands in namespaces, and those of commands of senders who are not the owner",
    },
    RequiredProgram { program: "systemd-analyze", package: "systemd", without: "the check of the systemd units" },
    RequiredProgram { program: "dovecot", package: "dovecot-imapd", without: "every story of e-mail" },
    RequiredProgram {
        program: "/usr/lib/dovecot/lmtp",
        package: "dovecot-lmtpd",
        without: "the stories in which mail takes the whole way through servers",
    },
    RequiredProgram {
        program: "postfix",
        package: "postfix",
        without: "the stories in which mail takes the whole way through servers",
    },
    RequiredProgram {
        program: "faketime",
        package: "faketime",
        without: "the story of jobs over changes of the clock",
    },
    RequiredProgram { program: "curl", package: "curl", without: "the commands of the documentation" },
    RequiredProgram { program: "openssl", package: "openssl", without: "the commands of the documentation" },
    RequiredProgram { program: "git", package: "git", without: "the stories of the git tools, and the page of trust" },
    RequiredProgram { program: "make", package: "make", without: "the stories of make, and the page of trust" },
    RequiredProgram { program: "pytest-3", package: "python3-pytest", without: "the stories of pytest" },
    RequiredProgram {
        program: "npm",
        package: "npm",
        without: "the story of tests in JavaScript, and those of the page",
    },
    RequiredProgram { program: "chromium", package: "chromium", without: "the stories of the page in a browser" },
    RequiredProgram {
        program: "python3",
        package: "python3",
        without: "system calls that would lead out of the sandbox, and the stories of the scripted language server",
    },
    RequiredProgram { program: "pylsp", package: "python3-pylsp", without: "the story of the language server pylsp" },
    RequiredProgram { program: "clangd", package: "clangd", without: "the story of the language server clangd" },
    RequiredProgram { program: "go", package: "golang-go", without: "the story of the language server gopls" },
    RequiredProgram { program: "gopls", package: "gopls", without: "the story of the language server gopls" },
];

/// The programs that npm installs, with their packages.
const NPM_PROGRAMS: &[RequiredProgram] = &[
    RequiredProgram {
        program: "pyright-langserver",
        package: "pyright",
        without: "the story of the language server pyright",
    },
    RequiredProgram {
        program: "typescript-language-server",
        package: "typescript-language-server typescript@5",
        without: "the story of the language server of TypeScript",
    },
    RequiredProgram {
        program: "mcp-server-everything",
        package: "@modelcontextprotocol/server-everything",
        without: "the stories of real MCP servers",
    },
    RequiredProgram {
        program: "mcp-server-filesystem",
        package: "@modelcontextprotocol/server-filesystem",
        without: "the story of the reference servers of MCP",
    },
    RequiredProgram {
        program: "playwright-core",
        package: "playwright-core axe-core",
        without: "the stories of the page in a browser",
    },
];

/// The folder for programs of pip and libraries of npm. Sandboxed commands can read it.
const PROGRAMS_FOLDER: &str = "/usr/local/lib/daoyou-test-programs";

/// The libraries that npm installs.
const NPM_LIBRARIES: &[RequiredProgram] = &[RequiredProgram {
    program: "/usr/local/lib/daoyou-test-programs/lib/node_modules/openai/index.mjs",
    package: "openai",
    without: "the story of OpenAI's client for Node",
}];

/// The programs that pip installs, with their packages.
const PIP_PROGRAMS: &[RequiredProgram] = &[
    RequiredProgram {
        program: "mcp-server-time",
        package: "mcp-server-time",
        without: "the story of the reference servers of MCP",
    },
    RequiredProgram {
        program: "mcp-server-git",
        package: "mcp-server-git",
        without: "the story of the reference servers of MCP",
    },
    RequiredProgram {
        program: "mcp-server-fetch",
        package: "mcp-server-fetch",
        without: "the story of the reference servers of MCP",
    },
    RequiredProgram {
        program: "llm",
        package: "llm",
        without: "the stories of the program llm and of OpenAI's client for Python, which comes with it",
    },
];

fn main() -> ExitCode {
    let args: Vec<String> = env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let outcome = match args.as_slice() {
        ["test", rest @ ..] => test(rest),
        ["ci"] => checks().and_then(|()| run_tests(&[])),
        ["ci", "--release"] => checks().and_then(|()| run_tests(&[])).and_then(|()| run_release_crash_tests()),
        ["fuzz", rest @ ..] => fuzz::fuzz(rest),
        ["audit"] => supply::audit(),
        ["sbom"] => supply::sbom(),
        ["trust"] => trust(),
        ["bench", "memory", rest @ ..] => bench_section(MEMORY, "memory", rest),
        ["bench", "growth", rest @ ..] => bench_growth(rest),
        ["bench", "tools"] => bench_section(TOOLS, "gateway", &["--tools"]),
        ["bench", "skills", rest @ ..] => bench_section(SKILLS, "gateway", &[&["--skills"][..], rest].concat()),
        ["bench", "page"] => bench_section(PAGE, "gateway", &["--page"]),
        ["bench", "results", rest @ ..] => bench_section(RESULTS, "results", rest),
        ["bench", rest @ ..] => bench(rest),
        ["man"] => run(cargo(&["run", "--locked", "--package", "daoyou", "--", "man", "target/man"])),
        ["package"] => package::package(None),
        ["package", "--target", target] => package::package(Some(target)),
        ["soak", rest @ ..] => soak(rest),
        _ => {
            report(HELP);
            return ExitCode::from(2);
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            report(&format!("xtask: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

#[expect(clippy::print_stderr, reason = "a task reports to its user; stdout belongs to the programs that it runs")]
fn report(text: &str) {
    eprintln!("{text}");
}

/// Returns the folder of the workspace.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().map_or_else(|| PathBuf::from("."), Path::to_path_buf)
}

/// Returns a command for the cargo that runs this task.
fn cargo(args: &[&str]) -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(args).current_dir(root());
    command
}

/// Runs `command` to its end; fails if `command` fails.
fn run(mut command: Command) -> Result<()> {
    let line = shown(&command);
    report(&format!("xtask: {line}"));
    let status = command.status().with_context(|| format!("cannot start {line}"))?;
    if !status.success() {
        bail!("{line}: {status}");
    }
    Ok(())
}

fn shown(command: &Command) -> String {
    let program = Path::new(command.get_program()).file_name().unwrap_or_default();
    let words: Vec<_> = [program].into_iter().chain(command.get_args()).map(OsStr::to_string_lossy).collect();
    words.join(" ")
}

/// Returns true if `program` can be started.
fn has(program: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    // Servers are in folders that only root has in PATH.
    env::split_paths(&path).chain(["/usr/sbin".into()]).any(|folder| folder.join(program).is_file())
}

fn succeeds(program: &str, args: &[&str]) -> bool {
    let quiet =
        Command::new(program).args(args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    quiet.is_ok_and(|status| status.success())
}

fn is_root() -> bool {
    let id = Command::new("id").arg("-u").output();
    id.is_ok_and(|output| output.stdout.trim_ascii() == b"0")
}

/// Installs the programs that the tests need where that is possible, and reports which tests are skipped otherwise.
fn install_programs() {
    type Installer = fn(&str) -> bool;
    let by_apt = APT_PROGRAMS.iter().map(|required| (required, "apt-get", install as Installer));
    let by_npm = NPM_PROGRAMS.iter().map(|required| (required, "npm", install_by_npm as Installer));
    let libraries = NPM_LIBRARIES.iter().map(|required| (required, "npm", install_npm_library as Installer));
    let by_pip = PIP_PROGRAMS.iter().map(|required| (required, "python3", install_by_pip as Installer));
    for (required, installer, install) in by_apt.chain(by_npm).chain(libraries).chain(by_pip) {
        if has(required.program) {
            continue;
        }
        if is_root() && has(installer) {
            report(&format!("xtask: installing {}", required.package));
            if install(required.package) {
                continue;
            }
        }
        report(&format!(
            "xtask: {} is not there (package {}); left out: {}",
            required.program, required.package, required.without
        ));
    }
}

/// Adds the language server of Rust to the toolchain; returns false if that fails. It comes from a separate server that not
/// every network reaches, so its test may be skipped everywhere.
fn install_rust_analyzer() -> bool {
    let starts = || succeeds("rust-analyzer", &["--version"]);
    if starts() || (succeeds("rustup", &["component", "add", "rust-analyzer"]) && starts()) {
        return true;
    }
    report(
        "xtask: rust-analyzer is not there (component of rustup); left out: the story of the language server rust-analyzer",
    );
    false
}

/// Installs packages of npm for all users.
fn install_by_npm(packages: &str) -> bool {
    let install = ["install", "--global", "--no-audit", "--no-fund"];
    succeeds("npm", &install.into_iter().chain(packages.split(' ')).collect::<Vec<_>>())
}

/// Installs an npm package that is a library without a program.
fn install_npm_library(package: &str) -> bool {
    succeeds("npm", &["install", "--global", "--prefix", PROGRAMS_FOLDER, "--no-audit", "--no-fund", package])
}

/// Installs a PyPI package for all users. Its program has the same name.
fn install_by_pip(package: &str) -> bool {
    let python = format!("{PROGRAMS_FOLDER}/bin/python3");
    let create = || succeeds("/usr/bin/python3", &["-m", "venv", PROGRAMS_FOLDER]);
    let has_folder = Path::new(&python).exists() || create() || (install("python3-venv") && create());
    has_folder
        && succeeds(&python, &["-m", "pip", "install", "--quiet", package])
        && succeeds("ln", &["-sf", &format!("{PROGRAMS_FOLDER}/bin/{package}"), &format!("/usr/local/bin/{package}")])
}

/// Installs a Debian package without questions and without starting its server: the tests start their own servers.
fn install(package: &str) -> bool {
    const POLICY: &str = "/usr/sbin/policy-rc.d";
    // invoke-rc.d calls this script before it starts anything; the exit code 101 forbids the start.
    let is_ours = !Path::new(POLICY).exists() && fs::write(POLICY, "#!/bin/sh\nexit 101\n").is_ok();
    if is_ours {
        succeeds("chmod", &["755", POLICY]);
    }
    if package == "postfix" {
        // Without a preset answer, the package would configure itself as this machine's mail server.
        let answer = "echo postfix postfix/main_mailer_type select No configuration | debconf-set-selections";
        succeeds("sh", &["-c", answer]);
    }
    let command = ["DEBIAN_FRONTEND=noninteractive", "apt-get"];
    let arguments = ["install", "--yes", "--no-install-recommends", package];
    let install = [&command[..], &arguments].concat();
    let update = [&command[..], &["update"]].concat();
    let installed = succeeds("env", &install) || (succeeds("env", &update) && succeeds("env", &install));
    if is_ours && let Err(error) = fs::remove_file(POLICY) {
        report(&format!("xtask: {POLICY} cannot be removed, and keeps services from starting: {error}"));
    }
    installed
}

fn test(args: &[&str]) -> Result<()> {
    if env::var_os("CI").is_some_and(|value| !value.is_empty() && value != "false" && value != "0") {
        checks()?;
    }
    run_tests(args)
}

/// Runs the tests, and lists at the end which tests were skipped on this machine.
fn run_tests(args: &[&str]) -> Result<()> {
    install_programs();
    let optional = if install_rust_analyzer() { "" } else { "rust-analyzer" };
    let left_out = root().join("target/left-out");
    if left_out.exists() {
        fs::remove_dir_all(&left_out).context("target/left-out")?;
    }
    fs::create_dir_all(&left_out).context("target/left-out")?;
    let mut command = if succeeds("cargo-nextest", &["nextest", "--version"]) {
        cargo(&["nextest", "run", "--workspace", "--locked"])
    } else {
        cargo(&["test", "--workspace", "--locked", "--tests"])
    };
    // A failing test must not hide the others.
    command.arg("--no-fail-fast").args(args).env("DAOYOU_LEFT_OUT", &left_out).env("DAOYOU_OPTIONAL", optional);
    let outcome = run(command);
    report_skipped(&left_out)?;
    outcome
}

/// Runs the crash tests again with release optimisations and fail points.
fn run_release_crash_tests() -> Result<()> {
    let profile = ["--config", "profile.release.debug-assertions=true", "--target-dir", "target/release-with-points"];
    let stories = ["test", "--release", "--locked", "--test", "stories", "--", "crash::"];
    run(cargo(&[&stories[..1], &profile, &stories[1..]].concat()))
}

/// Prints which tests were skipped, and why.
fn report_skipped(folder: &Path) -> Result<()> {
    let mut stories = Vec::new();
    for file in fs::read_dir(folder).context("target/left-out")? {
        let path = file.context("target/left-out")?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().replace('.', "::");
        stories.push(format!("  {name}: {}", fs::read_to_string(&path).context("target/left-out")?));
    }
    stories.sort();
    if !stories.is_empty() {
        report(&format!("xtask: left out, {} in all:\n{}", stories.len(), stories.join("\n")));
    }
    Ok(())
}

/// Makes the test of the trust page write the page instead of comparing it.
fn trust() -> Result<()> {
    let mut command = cargo(&["test", "--locked", "--test", "stories", "--", "--exact", TRUST_STORY]);
    command.env("DAOYOU_WRITE_TRUST", "1");
    run(command)
}

/// Runs the checks that precede the tests.
fn checks() -> Result<()> {
    run(cargo(&["fmt", "--all", "--check"]))?;
    run(cargo(&["clippy", "--workspace", "--all-targets", "--locked", "--", "-D", "warnings"]))?;
    one_tls_provider()?;
    supply::check()?;
    fuzz::in_ci()
}

/// Checks that there is only one TLS provider, because the TLS library panics at its first use if a program has two.
fn one_tls_provider() -> Result<()> {
    const SECOND: &str = "aws-lc-rs";
    let command = ["tree", "--workspace", "--locked", "--edges", "normal,build,dev", "--prefix", "none"];
    let output = cargo(&command).stderr(Stdio::inherit()).output().context("cannot start cargo tree")?;
    if !output.status.success() {
        bail!("cargo tree: {}", output.status);
    }
    let tree = String::from_utf8_lossy(&output.stdout);
    if tree.lines().any(|line| line.split_whitespace().next() == Some(SECOND)) {
        bail!("{SECOND} has come into the tree beside ring; `cargo tree -i {SECOND}` says by whom");
    }
    Ok(())
}

fn bench(args: &[&str]) -> Result<()> {
    let (is_quick, against) = match args {
        [] => (false, None),
        ["--quick"] => (true, None),
        ["--against", other] => (false, Some(*other)),
        _ => bail!("bench knows --quick, or --against PROGRAM|COMMIT"),
    };
    install_programs();
    let program = match against {
        Some(file) if Path::new(file).is_file() => Some(fs::canonicalize(file).context("the other program")?),
        Some(commit) => Some(build_of(commit)?),
        None => None,
    };
    // `cargo bench` also builds the program in release mode and tells the driver its path.
    let mut command = cargo(&["bench", "--locked", "--bench", "gateway", "--"]);
    if is_quick {
        command.arg("--quick");
    }
    if let (Some(name), Some(program)) = (against, &program) {
        command.arg("--against").arg(program).args(["--against-name", name]);
    }
    let kept = kept_sections()?;
    run(command)?;
    let table = micro_bench(is_quick)?;
    if is_quick {
        return Ok(());
    }
    let page = root().join("docs/benchmarks.md");
    let mut text = fs::read_to_string(&page).context("docs/benchmarks.md")?;
    text += &format!("\n## The model side, without a network\n\n```text\n{}\n```\n", table.trim_end());
    fs::write(&page, text + &kept).context("docs/benchmarks.md")
}

/// Returns the last sections of the page, which other tasks write.
fn kept_sections() -> Result<String> {
    let page = fs::read_to_string(root().join("docs/benchmarks.md")).context("docs/benchmarks.md")?;
    Ok([MEMORY, GROWTH, TOOLS, RESULTS, SKILLS, PAGE]
        .iter()
        .filter_map(|heading| page.find(heading))
        .min()
        .map_or_else(String::new, |at| format!("\n{}", &page[at..])))
}

/// Builds the program at a commit and returns the program's path.
fn build_of(commit: &str) -> Result<PathBuf> {
    let (source, target) = (root().join("target/against/source"), root().join("target/against/target"));
    let git = |args: &[&str]| {
        let mut command = Command::new("git");
        command.args(args).current_dir(root());
        command
    };
    if source.exists() {
        run(git(&["worktree", "remove", "--force", "target/against/source"]))?;
    }
    run(git(&["worktree", "add", "--force", "--detach", "target/against/source", commit]))?;
    let mut build = cargo(&["build", "--release", "--locked", "--bin", "daoyou", "--target-dir"]);
    build.arg(&target).current_dir(&source);
    run(build)?;
    run(git(&["worktree", "remove", "--force", "target/against/source"]))?;
    Ok(target.join("release/daoyou"))
}

/// The headings of the sections that [`bench_section`] writes. A section ends at the next heading.
const MEMORY: &str = "## Memory\n";
const GROWTH: &str = "## Growth\n";
const TOOLS: &str = "## Tools\n";
const RESULTS: &str = "## Results of tools\n";
const SKILLS: &str = "## Skills and MCP servers\n";
const PAGE: &str = "## The page\n";

/// The arguments of benches that are only for reading: the page does not change.
const READ_ONLY_FLAGS: [&str; 3] = ["--quick", "--choose", "--cases"];

/// The fewest messages whose growth is written to the page.
const GROWTH_MESSAGES: usize = 36_000;

/// Measures turns as messages accumulate. Replaces that section of the page if there were enough messages.
fn bench_growth(args: &[&str]) -> Result<()> {
    let messages = match args {
        [] => 1_000_000,
        ["--messages", number] => number.parse::<usize>().context("--messages takes a number")?,
        _ => bail!("bench growth knows --messages N"),
    };
    let count = messages.to_string();
    let section = run_bench("gateway", &["--growth", &count])?;
    if messages < GROWTH_MESSAGES { Ok(()) } else { replace_section(GROWTH, &section) }
}

/// Runs a bench, and replaces its section of the page.
fn bench_section(heading: &str, bench: &str, args: &[&str]) -> Result<()> {
    let section = run_bench(bench, args)?;
    if args.iter().any(|arg| READ_ONLY_FLAGS.contains(arg)) { Ok(()) } else { replace_section(heading, &section) }
}

/// Runs a bench, and returns its output.
fn run_bench(bench: &str, args: &[&str]) -> Result<String> {
    let mut command = cargo(&["bench", "--locked", "--bench", bench, "--"]);
    command.args(args);
    output_of(command)
}

/// Replaces the section with the same heading in the page, or appends the section.
fn replace_section(heading: &str, section: &str) -> Result<()> {
    let path = root().join("docs/benchmarks.md");
    let page = fs::read_to_string(&path).context("docs/benchmarks.md")?;
    let section = format!("{heading}\n{}\n", section.trim());
    let (before, after) = match page.find(heading) {
        None => (format!("{}\n\n", page.trim_end()), ""),
        Some(at) => {
            let rest = &page[at + heading.len()..];
            (page[..at].to_owned(), rest.find("\n## ").map_or("", |next| &rest[next..]))
        }
    };
    fs::write(&path, before + &section + after).context("docs/benchmarks.md")
}

/// Runs the micro-benchmarks of the model code; prints their table and returns it.
fn micro_bench(is_quick: bool) -> Result<String> {
    let samples: &[&str] = if is_quick { &["--sample-count", "10"] } else { &[] };
    run_bench("llm", &[&["--color", "never"][..], samples].concat())
}

/// Runs a command; prints its output and returns the output.
#[expect(clippy::print_stdout, reason = "the bench's output")]
fn output_of(mut command: Command) -> Result<String> {
    let line = shown(&command);
    report(&format!("xtask: {line}"));
    let output = command.stderr(Stdio::inherit()).output().with_context(|| format!("cannot start {line}"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    println!("{text}");
    if !output.status.success() {
        bail!("{line}: {}", output.status);
    }
    Ok(text)
}

fn soak(args: &[&str]) -> Result<()> {
    let mut command =
        cargo(&["test", "--locked", "--test", "stories", "--", "soak::soak", "--nocapture", "--test-threads=1"]);
    // Without limits, the test ends after this many kills.
    let limits = ["--minutes", "--kills"];
    if !args.iter().any(|arg| limits.contains(arg)) {
        command.env("DAOYOU_SOAK_KILLS", "200");
    }
    for pair in args.chunks(2) {
        let (variable, value) = match pair {
            ["--minutes", value] => ("DAOYOU_SOAK_MINUTES", value),
            ["--kills", value] => ("DAOYOU_SOAK_KILLS", value),
            ["--seed", value] => ("DAOYOU_SOAK_SEED", value),
            _ => bail!("soak knows --minutes N, --kills N and --seed S"),
        };
        if value.parse::<u64>().is_err() {
            bail!("soak takes whole numbers, not {value}");
        }
        command.env(variable, value);
    }
    run(command)
}
