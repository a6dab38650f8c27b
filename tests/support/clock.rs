//! Programs that live at another time, by libfaketime.

use std::path::{Path, PathBuf};

use super::Gateway;

/// Where libfaketime lies, if it is there.
pub fn faketime() -> Option<PathBuf> {
    let lies = |folder: std::fs::DirEntry| {
        let library = folder.path().join("faketime/libfaketimeMT.so.1");
        library.exists().then_some(library)
    };
    std::fs::read_dir("/usr/lib").ok()?.flatten().find_map(lies)
}

/// The gateway, and every command, begins at `time` (UTC) when it is started.
pub fn live_at(gateway: &mut Gateway, library: &Path, time: &str) {
    let mut setup = gateway.setup().clone();
    for (name, value) in [
        ("LD_PRELOAD", library.to_str().expect("a plain path")),
        ("FAKETIME", &format!("@{time}")),
        // Time passes as usual; only the wall shows another one.
        ("FAKETIME_DONT_FAKE_MONOTONIC", "1"),
        ("DONT_FAKE_MONOTONIC", "1"),
        ("FAKETIME_NO_CACHE", "1"),
    ] {
        setup = setup.env(name, value);
    }
    *gateway.setup() = setup;
}
