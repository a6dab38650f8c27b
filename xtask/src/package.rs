//! Builds packages: the released program with manual pages, completions and units, as an archive and as a Debian package.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use super::{Command, cargo, report, run, succeeds, supply};

/// The shells that get completions, each with the name of its file.
const SHELLS: [(&str, &str); 3] = [("bash", "daoyou"), ("zsh", "_daoyou"), ("fish", "daoyou.fish")];

/// The files of the repository that are part of the packages.
const INCLUDED_FILES: [&str; 5] =
    ["README.md", "README.zh-CN.md", "LICENSE-MIT", "LICENSE-APACHE", "config.example.toml"];

/// Builds the packages into `target/package`. For another target, the file names contain its name.
pub fn package(target: Option<&str>) -> Result<()> {
    let root = super::root();
    let folder = root.join("target/package");
    if folder.exists() {
        fs::remove_dir_all(&folder).context("target/package")?;
    }
    fs::create_dir_all(&folder).context("target/package")?;
    let mut build = cargo(&["build", "--locked", "--package", "daoyou", "--profile", "dist"]);
    build.args(target.map(|target| ["--target", target]).into_iter().flatten());
    run(build)?;
    let built = target_folder()?.join(target.unwrap_or_default()).join("dist/daoyou");
    parts(&built, &folder)?;
    let name = archive(&built, &folder, target)?;
    let mut left_out = Vec::new();
    if target.is_some() {
        left_out.push("the Debian package, which is built without --target".to_owned());
    } else if succeeds("cargo-deb", &["--version"]) {
        let mut deb = cargo(&["deb", "--no-build", "--no-strip", "--profile", "dist", "--output"]);
        deb.arg(&folder);
        run(deb)?;
    } else {
        left_out.push("the Debian package: `cargo install cargo-deb --locked`".to_owned());
    }
    if succeeds("cargo-cyclonedx", &["cyclonedx", "--version"]) {
        supply::sbom()?;
        fs::copy(root.join("target/sbom/daoyou.cdx.json"), folder.join("daoyou.cdx.json"))
            .context("daoyou.cdx.json")?;
    } else {
        left_out.push("the bill of materials: `cargo install cargo-cyclonedx --locked`".to_owned());
    }
    checksums(&folder)?;
    report(&format!("xtask: target/package holds {name} and SHA256SUMS"));
    left_out.iter().for_each(|what| report(&format!("xtask: left out: {what}")));
    Ok(())
}

/// Returns the target folder of all builds, wherever the environment sets it.
fn target_folder() -> Result<PathBuf> {
    let metadata = super::output_of(cargo(&["metadata", "--format-version", "1", "--no-deps", "--offline"]))?;
    let metadata: serde_json::Value = serde_json::from_str(&metadata).context("cargo metadata")?;
    Ok(PathBuf::from(metadata["target_directory"].as_str().context("cargo metadata names no target folder")?))
}

/// Writes the manual pages, the completions and the unit for packages.
fn parts(program: &Path, folder: &Path) -> Result<()> {
    let mut man = Command::new(program);
    man.arg("man").arg(folder.join("man"));
    run(man)?;
    let completions = folder.join("completions");
    fs::create_dir_all(&completions).context("completions")?;
    for (shell, name) in SHELLS {
        let mut command = Command::new(program);
        command.args(["completions", shell]);
        fs::write(completions.join(name), super::output_of(command)?).with_context(|| name.to_owned())?;
    }
    let unit = fs::read_to_string(super::root().join("systemd/daoyou.service")).context("systemd/daoyou.service")?;
    let packaged = unit.replace("ExecStart=/usr/local/bin/daoyou ", "ExecStart=/usr/bin/daoyou ");
    if packaged == unit {
        bail!("systemd/daoyou.service starts another program than /usr/local/bin/daoyou");
    }
    fs::write(folder.join("daoyou.service"), packaged).context("daoyou.service")
}

/// Writes the archive and returns its name.
fn archive(program: &Path, folder: &Path, target: Option<&str>) -> Result<String> {
    let usual = format!("{}-linux", std::env::consts::ARCH);
    let name = format!("daoyou-{}-{}", env!("CARGO_PKG_VERSION"), target.unwrap_or(&usual));
    let staged = folder.join(&name);
    fs::create_dir_all(&staged).context("the archive's folder")?;
    fs::copy(program, staged.join("daoyou")).with_context(|| program.display().to_string())?;
    for file in INCLUDED_FILES {
        fs::copy(super::root().join(file), staged.join(file)).with_context(|| file.to_owned())?;
    }
    for part in ["man", "completions"] {
        let mut copy = Command::new("cp");
        copy.arg("-r").arg(folder.join(part)).arg(&staged);
        run(copy)?;
    }
    let mut copy = Command::new("cp");
    copy.arg("-r").arg(super::root().join("systemd")).arg(&staged);
    run(copy)?;
    let archive = format!("{name}.tar.gz");
    let mut tar = Command::new("tar");
    tar.args(["--create", "--gzip", "--owner=0", "--group=0", "--sort=name", "--file"]);
    tar.arg(folder.join(&archive)).arg("--directory").arg(folder).arg(&name);
    run(tar)?;
    fs::remove_dir_all(staged).context("the archive's folder")?;
    Ok(archive)
}

/// Writes SHA256SUMS for the files of the folder.
fn checksums(folder: &Path) -> Result<()> {
    let entries = fs::read_dir(folder).context("target/package")?.collect::<std::io::Result<Vec<_>>>()?;
    let files = entries.iter().filter(|entry| entry.path().is_file()).map(fs::DirEntry::file_name);
    let mut files: Vec<_> = files.filter(|name| name != "daoyou.service").collect();
    files.sort();
    let mut command = Command::new("sha256sum");
    command.args(files).current_dir(folder);
    let sums = super::output_of(command)?;
    fs::write(folder.join("SHA256SUMS"), sums).context("SHA256SUMS")
}
