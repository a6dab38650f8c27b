//! Runs the fuzz targets over their seed corpora in ordinary tests, without cargo-fuzz.

use std::path::Path;

/// Runs `target` over each of its seeds in `fuzz/seeds/NAME`.
pub(crate) fn run(name: &str, target: impl Fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/seeds").join(name);
    let files: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|file| file.unwrap().path()).collect();
    assert!(files.len() >= 3, "{}: a target has at least three seeds", folder.display());
    for file in files {
        target(&std::fs::read(&file).unwrap());
    }
}
