//! Runs programs at another time, by libfaketime.

use std::path::{Path, PathBuf};

use super::Gateway;
use super::requirements::skip_story;

/// Returns the path of libfaketime; if it is missing, skips the story and returns `None`.
pub fn faketime() -> Option<PathBuf> {
    let library_in = |folder: std::fs::DirEntry| {
        let library = folder.path().join("faketime/libfaketimeMT.so.1");
        library.exists().then_some(library)
    };
    let found = std::fs::read_dir("/usr/lib").ok().and_then(|folders| folders.flatten().find_map(library_in));
    if found.is_none() {
        skip_story("there is no libfaketime (package faketime)");
    }
    found
}

/// Makes the gateway, and every command, start at `time` (UTC).
pub fn start_at_time(gateway: &mut Gateway, library: &Path, time: &str) {
    preload(gateway, library, "FAKETIME", &format!("@{time}"));
}

/// Makes the clock of the gateway, and of every command, follow the time that [`set_clock`] writes into `file`, even while they run.
pub fn follow_clock_file(gateway: &mut Gateway, library: &Path, file: &Path) {
    preload(gateway, library, "FAKETIME_TIMESTAMP_FILE", file.to_str().expect("a plain path"));
}

/// Sets the environment of libfaketime; the variable `name` sets the time.
fn preload(gateway: &mut Gateway, library: &Path, name: &str, value: &str) {
    let variables = [
        ("LD_PRELOAD", library.to_str().expect("a plain path")),
        (name, value),
        // Time passes as usual; only the wall clock differs.
        ("FAKETIME_DONT_FAKE_MONOTONIC", "1"),
        ("DONT_FAKE_MONOTONIC", "1"),
        ("FAKETIME_NO_CACHE", "1"),
    ];
    let variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned()));
    gateway.setup().env.extend(variables);
}

/// Sets the clock `ahead` seconds before the true time, or behind it if `ahead` is negative.
pub fn set_clock(file: &Path, ahead: i64) {
    // The library reads the file at every query, so the file must never be half written.
    let new = file.with_extension("new");
    std::fs::write(&new, format!("{ahead:+}")).expect("the story's own folder");
    std::fs::rename(new, file).expect("the story's own folder");
}
