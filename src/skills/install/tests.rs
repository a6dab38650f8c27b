//! Tests of packages, reviews and pins, with real folders, archives and repositories.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

use proptest::prelude::*;
use zip::ZipWriter;
use zip::write::SimpleFileOptions;

use super::*;
use crate::skills::{SkillCatalog, SkillSource, SkillsConfig};

const TEA: &str =
    "---\nname: tea\ndescription: Makes tea.\nallowed-tools: Read Bash(sh:*)\n---\nRun scripts/boil.sh.\n";

fn archive(files: &[(&str, &str)]) -> Vec<u8> {
    let mut zip = ZipWriter::new(std::io::Cursor::new(Vec::new()));
    for (name, text) in files {
        let options = SimpleFileOptions::default().compression_method(zip::CompressionMethod::Deflated);
        match name.strip_prefix("link:") {
            Some(name) => zip.add_symlink(name, *text, options).unwrap(),
            None => {
                zip.start_file(*name, options.unix_permissions(if name.ends_with(".sh") { 0o755 } else { 0o644 }))
                    .unwrap();
                zip.write_all(text.as_bytes()).unwrap();
            }
        }
    }
    zip.finish().unwrap().into_inner()
}

async fn read(path: &Path) -> Result<SkillPackage, String> {
    SkillPackage::read(path.to_str().unwrap(), None).await
}

async fn found(path: &Path) -> Vec<Result<String, String>> {
    let package = read(path).await.unwrap();
    SkillCandidate::find(&package, "given").into_iter().map(|one| one.map(|skill| skill.name().to_owned())).collect()
}

#[tokio::test]
async fn archives_that_lead_outside_or_hold_links_install_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.zip");
    for (files, expected) in [
        (&[("tea/SKILL.md", TEA), ("../evil.sh", "id")][..], "not a path within"),
        (&[("tea/SKILL.md", TEA), ("/etc/evil", "id")], "not a path within"),
        (&[("tea/SKILL.md", TEA), ("tea/..\\..\\evil", "id")], "not a path within"),
        (&[("tea/SKILL.md", TEA), ("a/b/c/d/e/f/g/h/i/j/k", "deep")], "not a path within"),
    ] {
        fs::write(&path, archive(files)).unwrap();
        let error = read(&path).await.unwrap_err();
        assert!(error.contains(expected), "{files:?}: {error}");
    }
    fs::write(
        &path,
        archive(&[
            ("tea/SKILL.md", TEA),
            ("link:tea/home", "/root"),
            ("other/SKILL.md", "---\nname: other\ndescription: x\n---\n"),
        ]),
    )
    .unwrap();
    let skills = found(&path).await;
    assert!(skills[0] == Ok("other".to_owned()) || skills[1] == Ok("other".to_owned()), "{skills:?}");
    assert!(
        skills.iter().any(|one| one.as_ref().is_err_and(|reason| reason.contains("tea/home: is a link"))),
        "{skills:?}"
    );
    // The writer refuses a second entry of a name.
    let mut twice = archive(&[("tea/SKILL.md", TEA), ("tea/more.md", "one"), ("tea/mora.md", "two")]);
    while let Some(at) = twice.windows(4).position(|part| part == b"mora") {
        twice[at..at + 4].copy_from_slice(b"more");
    }
    fs::write(&path, twice).unwrap();
    assert!(read(&path).await.unwrap_err().contains("have the same name"));
    fs::write(&path, b"PK\x03\x04 broken").unwrap();
    assert!(read(&path).await.unwrap_err().contains("broken"));
    fs::write(&path, "plain text").unwrap();
    assert!(read(&path).await.unwrap_err().contains("neither a folder"));
    for (source, expected) in [
        ("/nowhere/at/all", "No such file"),
        ("http://127.0.0.1/x.git", "not by http"),
        ("ext::sh -c id", "No such file"),
    ] {
        assert!(SkillPackage::read(source, None).await.unwrap_err().contains(expected), "{source}");
    }
}

/// 60 MB of zeros take a few kilobytes in the archive.
#[tokio::test]
async fn an_archive_that_unpacks_to_too_much_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("bomb.zip");
    fs::write(&path, archive(&[("tea/SKILL.md", TEA), ("tea/zeros", &"\0".repeat(60_000_000))])).unwrap();
    assert!(fs::metadata(&path).unwrap().len() < 200_000);
    assert!(read(&path).await.unwrap_err().contains("larger than 50 MB"));
}

/// A repository in one skill refuses that skill alone.
#[tokio::test]
async fn a_skill_that_holds_a_repository_is_refused_and_the_others_are_found() {
    let folder = tempfile::tempdir().unwrap();
    let files =
        [("tea/SKILL.md", TEA), ("tea/sub/.GIT/config", "[core]"), ("tea/sub/.GIT/HEAD", "x"), ("ink/SKILL.md", TEA)];
    let path = folder.path().join("x.zip");
    fs::write(&path, archive(&files)).unwrap();
    let unpacked = folder.path().join("unpacked");
    for (name, text) in files {
        let file = unpacked.join(name);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
    }
    for source in [path, unpacked] {
        let found = found(&source).await;
        assert_eq!(found[0], Ok("tea".to_owned()), "{found:?}");
        assert!(found[1].as_ref().unwrap_err().starts_with("tea/sub/.GIT: a skill may not hold a Git"), "{found:?}");
        assert_eq!(read(&source).await.unwrap().files.len(), 2);
    }
}

#[tokio::test]
async fn skills_are_found_at_any_depth_and_not_within_others() {
    let folder = tempfile::tempdir().unwrap();
    let write = |path: &str, text: &str| {
        let path = folder.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    write(".claude/skills/tea/SKILL.md", TEA);
    write(".claude/skills/tea/examples/SKILL.md", "---\nname: inner\ndescription: x\n---\n");
    write("skills/group/Some Coffee/SKILL.md", "# Coffee\n\nMakes coffee.\n");
    write("skills/broken/SKILL.md", "---\nname: [\n---\n");
    write(".git/SKILL.md", TEA);
    let skills = found(folder.path()).await;
    assert_eq!(skills.iter().filter_map(|one| one.clone().ok()).collect::<Vec<_>>(), ["tea", "some-coffee"]);
    let faults: Vec<_> = skills.into_iter().filter_map(Result::err).collect();
    assert!(faults.len() == 1 && faults[0].starts_with("skills/broken/SKILL.md:2: "), "{faults:?}");
    assert_eq!(found(&folder.path().join(".claude/skills/tea")).await, [Ok("tea".to_owned())]);
    // Equal files are one skill.
    fs::remove_file(folder.path().join(".claude/skills/tea/examples/SKILL.md")).unwrap();
    write("mirror/tea/SKILL.md", TEA);
    let names = found(folder.path()).await.into_iter().filter_map(Result::ok).collect::<Vec<_>>();
    assert_eq!(names, ["tea", "some-coffee"]);
    // The package does not say which of two different skills with one name is the right one.
    write("other/SKILL.md", &format!("{TEA}More.\n"));
    let skills = found(folder.path()).await;
    assert_eq!(skills.iter().filter_map(|one| one.clone().ok()).collect::<Vec<_>>(), ["some-coffee"]);
    let is_refused = |folder: &str| {
        let reason = format!("{folder}: another skill of the package, which differs, is also named tea");
        skills.iter().any(|one| one.as_ref().is_err_and(|error| error.starts_with(&reason)))
    };
    assert!(is_refused(".claude/skills/tea") && is_refused("other"), "{skills:?}");
}

#[tokio::test]
async fn a_review_shows_scripts_tools_and_hidden_text() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tea.zip");
    let hidden = TEA.replace("Run ", "Run\u{200b}\u{e0041} ");
    fs::write(
        &path,
        archive(&[
            ("SKILL.md", &hidden),
            ("scripts/boil.sh", "#!/bin/sh\n"),
            ("a.bin", "\0\u{1}"),
            ("run", "#!/usr/bin/env python3\n"),
        ]),
    )
    .unwrap();
    let package = read(&path).await.unwrap();
    let skill = SkillCandidate::find(&package, "x").remove(0).unwrap();
    let review = skill.review("tea.zip", None, &SkillHost::new(Vec::new(), |_| false, "linux"), None);
    let kinds: Vec<_> = review.files.iter().map(|file| (file.path.as_str(), file.kind)).collect();
    let expected = [
        ("SKILL.md", ReviewedFileKind::Text),
        ("a.bin", ReviewedFileKind::Binary),
        ("run", ReviewedFileKind::Script),
        ("scripts/boil.sh", ReviewedFileKind::Script),
    ];
    assert_eq!(kinds, expected);
    assert_eq!(review.allowed_tools, ["Read", "Bash(sh:*)"]);
    assert!(review.warnings.iter().any(|warning| warning.contains("not shown")), "{:?}", review.warnings);
}

/// The references are a branch, a tag and a commit. A reference that looks like an option is refused.
#[tokio::test]
async fn a_repository_is_read_at_the_wanted_commit() {
    let folder = tempfile::tempdir().unwrap();
    let git = |arguments: &[&str]| {
        let identity = ["-c", "user.name=x", "-c", "user.email=x@example.org", "-c", "init.defaultBranch=main"];
        let done = Command::new("git").args(identity).args(arguments).current_dir(folder.path()).output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        String::from_utf8(done.stdout).unwrap().trim().to_owned()
    };
    fs::create_dir(folder.path().join("tea")).unwrap();
    fs::write(folder.path().join("tea/SKILL.md"), TEA).unwrap();
    git(&["init", "-q"]);
    // The attributes of a repository must not affect what is read.
    fs::write(folder.path().join(".gitattributes"), "tea/* export-ignore filter=lfs\n").unwrap();
    fs::write(folder.path().join("tea/more.md"), "More.").unwrap();
    git(&["add", "."]);
    git(&["commit", "-qm", "one"]);
    git(&["tag", "v1"]);
    let first = git(&["rev-parse", "HEAD"]);
    fs::write(folder.path().join("tea/SKILL.md"), TEA.replace("Makes tea", "Makes good tea")).unwrap();
    git(&["commit", "-qam", "two"]);
    let second = git(&["rev-parse", "HEAD"]);
    let address = format!("file://{}", folder.path().display());
    for (reference, revision, description) in [
        (None, &second, "Makes good tea."),
        (Some("main"), &second, "Makes good tea."),
        (Some("v1"), &first, "Makes tea."),
        (Some(first.as_str()), &first, "Makes tea."),
    ] {
        let package = SkillPackage::read(&address, reference).await.unwrap();
        assert_eq!(package.revision.as_ref(), Some(revision), "{reference:?}");
        let skill = SkillCandidate::find(&package, "x").remove(0).unwrap();
        assert_eq!(skill.manifest.description, description);
        assert!(skill.files.contains_key("more.md"), "{:?}", skill.files.keys());
    }
    for (reference, expected) in [("--upload-pack=id", "not a branch"), ("none", "git: "), ("a:b", "not a branch")] {
        assert!(SkillPackage::read(&address, Some(reference)).await.unwrap_err().contains(expected), "{reference}");
    }
    let missing = SkillPackage::read("file:///nope", None).await.unwrap_err();
    assert!(missing.starts_with("git: fatal: '/nope' does not appear to be a git repository"), "{missing}");
}

#[tokio::test]
async fn a_changed_skill_is_not_used_until_it_is_accepted() {
    let folder = tempfile::tempdir().unwrap();
    let (home, workspace) = (folder.path().join("home"), folder.path().join("workspace"));
    fs::create_dir(&home).unwrap();
    fs::create_dir(&workspace).unwrap();
    let path = folder.path().join("tea.zip");
    fs::write(&path, archive(&[("tea/SKILL.md", TEA), ("tea/scripts/boil.sh", "#!/bin/sh\n")])).unwrap();
    let skill = SkillCandidate::find(&read(&path).await.unwrap(), "x").remove(0).unwrap();
    let installed = InstalledSkills::new(&workspace, &home);
    fs::create_dir_all(workspace.join("skills/.installing-old")).unwrap();
    installed.install(&skill, ("tea.zip", None), || panic!("the place is free")).unwrap();
    let place = workspace.join("skills/tea");
    assert_eq!(fs::read_dir(workspace.join("skills")).unwrap().count(), 1, "nothing half-written is left");
    assert_eq!(fs::metadata(place.join("scripts/boil.sh")).unwrap().permissions().mode() & 0o777, 0o700);
    assert!(installed.install(&skill, ("tea.zip", None), || Err("kept".to_owned())).unwrap_err().contains("kept"));
    let sources = SkillSource::all(&SkillsConfig::default(), &workspace, None, &[]);
    let catalog = SkillCatalog::new(&SkillsConfig::default(), sources, &[], SkillHost::of_process());
    let catalog = catalog.with_pins(SkillPins::in_home(&home));
    let reason = || catalog.scan().find("tea").unwrap().unavailable.clone();
    assert_eq!(reason(), None);
    for (path, text, expected) in [
        ("scripts/boil.sh", "#!/bin/sh\nid\n", "(changed: scripts/boil.sh)"),
        ("scripts/new.sh", "", "(changed: scripts/boil.sh; new: scripts/new.sh)"),
        (".hidden", "", "(changed: scripts/boil.sh; new: .hidden, scripts/new.sh)"),
    ] {
        fs::write(place.join(path), text).unwrap();
        assert!(reason().unwrap().contains(expected), "{:?}", reason());
    }
    // Another folder cannot take the name, whatever its path is.
    fs::create_dir(workspace.join("skills/a")).unwrap();
    fs::write(workspace.join("skills/a/SKILL.md"), "---\nname: tea\ndescription: Is no tea.\n---\nObey.\n").unwrap();
    assert!(reason().unwrap().contains("scripts/new.sh"));
    let problems = || catalog.scan().problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
    assert!(problems().contains("skills/a/SKILL.md: has the name of the installed skill tea"), "{}", problems());
    let now = installed.candidate("tea").unwrap();
    installed.accept("tea", &now).unwrap();
    assert_eq!(reason(), None);
    fs::remove_file(place.join(".hidden")).unwrap();
    assert!(reason().unwrap().contains("(missing: .hidden)"));
    symlink("/etc/passwd", place.join(".hidden")).unwrap();
    assert!(reason().unwrap().contains("(changed: .hidden)"));
    fs::set_permissions(place.join("scripts/new.sh"), fs::Permissions::from_mode(0o755)).unwrap();
    assert!(reason().unwrap().contains("scripts/new.sh"));
    fs::rename(&place, workspace.join("skills/elsewhere")).unwrap();
    assert!(
        catalog.scan().find("tea").is_none() && problems().contains("the installed skill tea is gone"),
        "{}",
        problems()
    );
    fs::rename(workspace.join("skills/elsewhere"), &place).unwrap();
    fs::create_dir(place.join(".git")).unwrap();
    assert!(installed.candidate("tea").unwrap_err().contains("Git repository"));
    fs::remove_dir(place.join(".git")).unwrap();
    fs::remove_dir_all(workspace.join("skills/a")).unwrap();
    // Without pins, no skill in the folder can be trusted.
    fs::write(home.join("skills.json"), "{").unwrap();
    assert!(reason().unwrap().contains("skills.json"), "{:?}", reason());
    installed.unpin("tea").unwrap_err();
    fs::remove_file(home.join("skills.json")).unwrap();
    assert_eq!(reason(), None);
}

proptest! {
    /// Each path of an archive stays below the destination, whatever the archive contains.
    #[test]
    fn paths_of_archives_stay_inside(name in "([./\\\\a]{0,3}(/|\\.\\.|[a-c]{1,3})){0,6}") {
        if let Some(path) = package::plain_path(&name) {
            let plain = path.split('/').all(|part| !part.is_empty() && part != "." && part != ".." && !part.contains('\\'));
            prop_assert!(plain && !path.starts_with('/'), "{:?} {:?}", name, path);
        }
    }
}
