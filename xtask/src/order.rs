//! Which functions a gateway runs through all day, and a script that makes the linker lay them together.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, Result, bail};

use super::{cargo, has, root, run, say, shown};

const PAGE: &str = "link/order.ld";

/// Tells `build.rs` to leave the page out.
const UNORDERED: (&str, &str) = ("DAOYOU_UNORDERED", "1");

/// With fewer functions something is wrong with the list.
const LEAST: usize = 1_000;

/// Leads a gateway through its day under callgrind and writes [`PAGE`].
pub fn order() -> Result<()> {
    if !has("valgrind") {
        bail!("valgrind is not there (package valgrind)");
    }
    let program = program()?;
    let folder = program.with_file_name("order");
    if folder.exists() {
        fs::remove_dir_all(&folder).with_context(|| format!("{}", folder.display()))?;
    }
    fs::create_dir_all(&folder).with_context(|| format!("{}", folder.display()))?;
    let mut command = cargo(&["bench", "--locked", "--bench", "gateway", "--", "--walk"]);
    command.envs([UNORDERED]).env("DAOYOU_BIN", watched(&program, &folder)?);
    run(command)?;
    let mut days = Vec::new();
    for entry in fs::read_dir(&folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|end| end == "callgrind") {
            let text = fs::read(&path).with_context(|| format!("{}", path.display()))?;
            days.push(functions(&String::from_utf8_lossy(&text), &program));
        }
    }
    let page = page(&days);
    if page.lines().count() < LEAST {
        bail!("hardly a function was seen in {} recordings in {}", days.len(), folder.display());
    }
    fs::write(root().join(PAGE), page).context(PAGE)?;
    say(&format!("xtask: {PAGE} is written; the next build of the release is laid out by it"));
    Ok(())
}

/// Builds the release with the names of its functions; answers where it is.
fn program() -> Result<PathBuf> {
    let mut command = cargo(&["rustc", "--release", "--locked", "--bin", "daoyou", "--message-format=json"]);
    command.args(["--", "-Cstrip=none"]).envs([UNORDERED]);
    let line = shown(&command);
    say(&format!("xtask: {line}"));
    let output = command.stderr(Stdio::inherit()).output().with_context(|| format!("cannot start {line}"))?;
    if !output.status.success() {
        bail!("{line}: {}", output.status);
    }
    let told = String::from_utf8_lossy(&output.stdout);
    let path = told.rsplit_once(r#""executable":""#).and_then(|(_, rest)| rest.split('"').next());
    let path = Path::new(path.context("cargo does not say where the program is")?);
    // The build that the walk needs puts a program without names in its place.
    let kept = path.with_file_name("daoyou-with-names");
    fs::copy(path, &kept).with_context(|| format!("{}", kept.display()))?;
    Ok(kept)
}

/// A script that stands for `program` and records it into `folder`.
fn watched(program: &Path, folder: &Path) -> Result<PathBuf> {
    let script = folder.join("daoyou");
    let quoted = |path: &Path| format!("'{}'", path.to_string_lossy().replace('\'', r"'\''"));
    let record = quoted(&folder.join("%p.callgrind"));
    let text = format!(
        "#!/bin/sh\nexec valgrind --quiet --tool=callgrind --demangle=no --callgrind-out-file={record} {} \"$@\"\n",
        quoted(program)
    );
    fs::write(&script, text).with_context(|| format!("{}", script.display()))?;
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755))?;
    Ok(script)
}

/// What of `program` itself a recording has run through, each as a pattern of its name.
///
/// Callgrind writes `ob=(NUMBER) FILE` before the functions of a file, and `fn=(NUMBER) NAME` before the costs of one; a
/// file's or function's name stands only where its number comes first, which may be where it is called (`cob`, `cfn`).
fn functions(recording: &str, program: &Path) -> BTreeSet<String> {
    let (mut files, mut names) = (BTreeMap::new(), BTreeMap::new());
    let mut is_ours = false;
    let mut seen = BTreeSet::new();
    for line in recording.lines() {
        let Some((kind, rest)) = line.split_once("=(") else { continue };
        let Some((number, name)) = rest.split_once(')') else { continue };
        let table = match kind {
            "ob" | "cob" => &mut files,
            "fn" | "cfn" => &mut names,
            _ => continue,
        };
        if !name.trim().is_empty() {
            table.insert(number, name.trim());
        }
        match kind {
            "ob" => is_ours = files.get(number).is_some_and(|file| Path::new(file).file_name() == program.file_name()),
            "fn" if is_ours => {
                seen.insert(number);
            }
            _ => {}
        }
    }
    seen.iter().filter_map(|number| pattern(names.get(number)?)).collect()
}

/// A symbol without what changes from build to build: the hash at its end, and those of crates within it. `None` for what
/// is no symbol.
fn pattern(symbol: &str) -> Option<String> {
    // Callgrind numbers the depth of recursion.
    let symbol = symbol.split('\'').next()?;
    let is_plain = symbol.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'$'));
    if symbol.is_empty() || !is_plain {
        return None;
    }
    let is_hash = |rest: &str| rest.len() > 16 && rest.bytes().take(16).all(|byte| byte.is_ascii_hexdigit());
    if let Some((path, rest)) = symbol.rsplit_once("17h")
        && symbol.starts_with("_ZN")
        && is_hash(rest)
    {
        return Some(format!("{path}17h*"));
    }
    // A function that was private to one part of the build carries that part's number.
    if let Some((name, _)) = symbol.split_once(".llvm.") {
        return Some(without_crate_hashes(name) + "*");
    }
    Some(without_crate_hashes(symbol))
}

/// A symbol of the newer form names each crate with a hash, as in `Csjrhsegnq3l9_3std`.
fn without_crate_hashes(symbol: &str) -> String {
    if !symbol.starts_with("_R") {
        return symbol.to_owned();
    }
    let mut pieces = symbol.split("Cs");
    let mut pattern = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        match piece.split_once('_') {
            Some((hash, rest)) if hash.bytes().all(|byte| byte.is_ascii_alphanumeric()) => {
                pattern += "Cs*_";
                pattern += rest;
            }
            _ => {
                pattern += "Cs";
                pattern += piece;
            }
        }
    }
    pattern
}

/// The script: first what is part of every recording, which is the start, then the rest.
fn page(days: &[BTreeSet<String>]) -> String {
    let all: BTreeSet<&String> = days.iter().flatten().collect();
    let (always, rest): (Vec<&String>, Vec<&String>) =
        all.into_iter().partition(|name| days.iter().all(|day| day.contains(*name)));
    let mut page = String::from(
        "/* Which code lies together in the program; see build.rs. Written by `cargo xtask order`, not by hand. */\n\
         SECTIONS {\n  .text.first : {\n",
    );
    for (what, names) in [("Each start.", always), ("Turns.", rest)] {
        writeln!(page, "    /* {what} */").expect("a text takes everything");
        for name in names {
            writeln!(page, "    *(.text.{name})").expect("a text takes everything");
        }
    }
    page + "  }\n}\nINSERT BEFORE .text;\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lose_what_changes_from_build_to_build() {
        for (symbol, expected) in [
            ("_ZN6daoyou3run17h0123456789abcdefE", Some("_ZN6daoyou3run17h*")),
            ("_ZN6daoyou3run17h0123456789abcdefE.llvm.7884114705404758958'2", Some("_ZN6daoyou3run17h*")),
            ("_RNvMs_NtCsjrHSEGnQ3l9_3std2io5write", Some("_RNvMs_NtCs*_3std2io5write")),
            ("_RNvXsZ_NtCsl_5alloc6string5write.llvm.105", Some("_RNvXsZ_NtCs*_5alloc6string5write*")),
            ("sqlite3_step", Some("sqlite3_step")),
            ("yy_reduce.constprop.0'2", Some("yy_reduce.constprop.0")),
            ("(below main)", None),
            ("", None),
        ] {
            assert_eq!(pattern(symbol).as_deref(), expected, "{symbol}");
        }
    }

    #[test]
    fn only_what_the_program_ran_itself_is_listed_and_the_start_comes_first() {
        let start = "ob=(1) /lib/libc.so\nfn=(1) malloc\n16 2\n\nob=(2) /x/daoyou\nfn=(2) main\n16 4\ncfn=(3) open\n\
                     calls=1 0\n16 9\ncob=(1)\ncfn=(1)\ncalls=1 0\n16 2\n\nfn=(3)\n16 5\n";
        let turn = "ob=(1) /x/daoyou\nfn=(1) main\n16 4\nfn=(2) answer\n16 1\n";
        let days = [start, turn].map(|recording| functions(recording, Path::new("/x/daoyou")));
        assert_eq!(days[0], BTreeSet::from(["main".to_owned(), "open".to_owned()]));
        let page = page(&days);
        let lines: Vec<_> = page.lines().map(str::trim).filter(|line| line.starts_with('*')).collect();
        assert_eq!(lines, ["*(.text.main)", "*(.text.answer)", "*(.text.open)"]);
    }
}
