//! The requirements of some stories on the machine. A story that cannot run here reports that and returns; `cargo xtask
//! test` lists it by name. Under CI it fails, unless the requirement is one that the runner could not meet.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use daoyou::guard::{NamespaceSupport, SandboxMode, namespace_support};
use daoyou::tools::sandbox_of;

use super::gateway::binary;

/// A user that every machine has, for processes that must not run as root.
pub const NOBODY: u32 = 65_534;

/// Reports that this story, or a part of it, is skipped.
#[expect(clippy::print_stdout, reason = "whoever runs one story is to see it")]
pub fn skip_story(why: &str) {
    let story = story();
    let is_ci = std::env::var_os("CI").is_some_and(|value| !value.is_empty() && value != "false" && value != "0");
    // `cargo xtask test` sets this variable to the requirement that not every network offers.
    let is_optional = std::env::var("DAOYOU_OPTIONAL").is_ok_and(|name| !name.is_empty() && why.contains(&name));
    assert!(!is_ci || is_optional, "under CI no story is left out: {story}: {why}");
    println!("left out: {why}; see `cargo xtask test`");
    // `cargo xtask test` sets this variable and counts the files in the folder.
    if let Some(folder) = std::env::var_os("DAOYOU_LEFT_OUT") {
        let file = PathBuf::from(folder).join(story.replace("::", "."));
        fs::write(&file, why).expect("the runner's folder can be written");
    }
}

/// Returns true if a system program is missing; then it also skips the story.
pub fn is_missing(program: &str, package: &str) -> bool {
    let is_missing = find(program).is_none();
    if is_missing {
        skip_story(&format!("there is no {program} (package {package})"));
    }
    is_missing
}

/// Returns true if this machine permits namespaces for commands; otherwise it skips the story.
pub fn has_namespaces() -> bool {
    match namespace_support(&binary()) {
        NamespaceSupport::Available { .. } => true,
        NamespaceSupport::Unavailable(reason) => {
            skip_story(&reason);
            false
        }
    }
}

/// Returns true if bubblewrap is missing, so that there is no sandbox; then it also skips the story.
pub fn bubblewrap_is_missing() -> bool {
    is_missing("bwrap", "bubblewrap")
}

/// Returns true if commands cannot run in a sandbox here; then it also skips the story.
pub fn sandbox_is_missing() -> bool {
    sandbox_of(SandboxMode::Auto, &binary()).inspect_err(|reason| skip_story(reason)).is_err()
}

/// Returns the path of a system program, if it is installed.
pub fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let usual = ["/usr/sbin", "/usr/lib/postfix/sbin", "/usr/libexec/postfix"].map(Into::into);
    std::env::split_paths(&path).chain(usual).map(|folder| folder.join(name)).find(|file| file.is_file())
}

/// Returns true for the superuser.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Returns the name of the running story. nextest gives each story a process; the default runner gives it a thread of that name.
fn story() -> String {
    let named = std::env::var("NEXTEST_TEST_NAME").ok();
    named.or_else(|| std::thread::current().name().map(str::to_owned)).unwrap_or_else(|| "a story".to_owned())
}

/// Returns a program that every user can start: the original, or a copy.
pub fn executable_by_all(program: PathBuf) -> PathBuf {
    let starts = |program: &Path| {
        let nobody = NOBODY.to_string();
        let mut command = Command::new("setpriv");
        command.args(["--reuid", &nobody, "--regid", &nobody, "--clear-groups"]).arg(program).arg("--help");
        command.output().is_ok_and(|ran| ran.status.success())
    };
    if starts(&program) {
        return program;
    }
    let built = fs::metadata(&program).expect("it is there");
    // One folder serves all builds; the last build replaces earlier ones.
    let folder = std::env::temp_dir().join("daoyou-stories");
    let copy = folder.join(program.file_name().expect("a file"));
    let is_current = fs::metadata(&copy).is_ok_and(|copy| copy.len() == built.len() && copy.mtime() >= built.mtime());
    if !is_current {
        fs::create_dir_all(&folder).expect("the temporary folder is ours");
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).expect("the temporary folder is ours");
        let mine = folder.join(std::process::id().to_string());
        fs::copy(&program, &mine).expect("the temporary folder is ours");
        fs::set_permissions(&mine, fs::Permissions::from_mode(0o755)).expect("the temporary folder is ours");
        fs::rename(&mine, &copy).expect("the temporary folder is ours");
    }
    assert!(starts(&copy), "another user can start {}", copy.display());
    copy
}
