//! Tests of the path jail against the paths that models write and the links and files around the workspace.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use proptest::prelude::*;

use super::{Jail, JailError};
use crate::guard::access_rules::{AccessKind, AccessPermission, AccessRule, AccessRules, AccessSettings};

const CANARY: &str = "canary-7f3a";

/// Creates `outside/secret` next to the workspace `ws`, with entries in `ws` that could lead to it.
fn fixture() -> (tempfile::TempDir, PathBuf) {
    let temp = tempfile::tempdir().unwrap();
    let root = fs::canonicalize(temp.path()).unwrap();
    let ws = root.join("ws");
    fs::create_dir_all(ws.join("sub/deep")).unwrap();
    fs::create_dir_all(root.join("outside")).unwrap();
    fs::write(root.join("outside/secret"), CANARY).unwrap();
    fs::write(ws.join("a.txt"), "inside").unwrap();
    fs::write(ws.join("sub/b.txt"), "below").unwrap();
    symlink("a.txt", ws.join("good")).unwrap();
    symlink("../outside", ws.join("up")).unwrap();
    symlink(root.join("outside/secret"), ws.join("abs")).unwrap();
    symlink("/", ws.join("sub/slash")).unwrap();
    symlink("loop", ws.join("loop")).unwrap();
    symlink("nowhere", ws.join("dangling")).unwrap();
    fs::hard_link(root.join("outside/secret"), ws.join("hard")).unwrap();
    rustix::fs::mknodat(rustix::fs::CWD, ws.join("pipe"), rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    fs::write(ws.join("big"), vec![b'x'; 2_000]).unwrap();
    (temp, ws)
}

fn jail(ws: &Path, restricted: bool) -> Jail {
    let secret = ws.parent().unwrap().join("outside");
    Jail::open(ws, restricted, vec![secret], 1_000).unwrap()
}

#[test]
fn paths_are_served_or_refused_in_words() {
    let (_temp, ws) = fixture();
    let jail = jail(&ws, true);
    let absolute = ws.join("a.txt").display().to_string();
    let above = ws.join("../outside/secret").display().to_string();
    for (path, expected) in [
        ("a.txt", Ok("inside")),
        ("./sub/../a.txt", Ok("inside")),
        ("sub//b.txt", Ok("below")),
        (absolute.as_str(), Ok("inside")),
        ("good", Ok("inside")),
        ("../outside/secret", Err("outside the workspace")),
        ("sub/../../outside/secret", Err("outside the workspace")),
        (above.as_str(), Err("outside the workspace")),
        ("up/secret", Err("outside the workspace")),
        ("abs", Err("outside the workspace")),
        ("sub/slash/etc/passwd", Err("outside the workspace")),
        ("/etc/passwd", Err("outside the workspace")),
        ("/proc/self/environ", Err("outside the workspace")),
        ("/dev/zero", Err("outside the workspace")),
        ("~/.ssh/id_rsa", Err("~ is not expanded")),
        ("hard", Err("hard link")),
        ("pipe", Err("not a regular file")),
        ("sub", Err("is a folder")),
        ("a.txt/x", Err("not a folder")),
        ("big", Err("2000 bytes, more than the limit of 1000")),
        ("none", Err("no such file")),
        ("", Err("empty")),
        ("a\0b", Err("NUL")),
    ] {
        let got = jail.read(path).map(|opened| String::from_utf8(opened.bytes).unwrap()).map_err(|e| e.to_string());
        match (got, expected) {
            (Ok(text), Ok(wanted)) => assert_eq!(text, wanted, "{path}"),
            (Err(error), Err(wanted)) => assert!(error.contains(wanted), "{path}: {error}"),
            (got, _) => panic!("{path}: {got:?}"),
        }
    }
    assert!(jail.read("loop").is_err());
}

#[test]
fn writing_keeps_modes_makes_folders_and_stays_inside() {
    let (_temp, ws) = fixture();
    let jail = jail(&ws, true);
    fs::set_permissions(ws.join("a.txt"), fs::Permissions::from_mode(0o640)).unwrap();
    jail.write("good", b"through the link").unwrap();
    assert_eq!(fs::read_to_string(ws.join("a.txt")).unwrap(), "through the link");
    assert_eq!(fs::metadata(ws.join("a.txt")).unwrap().permissions().mode() & 0o777, 0o640);
    assert!(ws.join("good").is_symlink());
    jail.write("new/folder/c.txt", b"c").unwrap();
    assert_eq!(fs::read_to_string(ws.join("new/folder/c.txt")).unwrap(), "c");
    for path in ["up/secret", "up/new", "abs", "hard", "pipe", "sub", "dangling", "../x", "sub/", "a.txt/x"] {
        assert!(jail.write(path, b"overwritten").is_err(), "{path}");
    }
    assert!(jail.write("big2", &[0; 1_001]).is_err());
    let outside = ws.parent().unwrap().join("outside");
    assert_eq!(fs::read_to_string(outside.join("secret")).unwrap(), CANARY);
    assert_eq!(fs::read_dir(outside).unwrap().count(), 1);
    let left = fs::read_dir(&ws).unwrap().any(|entry| entry.unwrap().file_name().to_string_lossy().ends_with(".tmp"));
    assert!(!left, "no temp file stays behind");
}

#[test]
fn without_the_restriction_keys_and_kernel_files_stay_closed() {
    let (_temp, ws) = fixture();
    let root = ws.parent().unwrap();
    fs::write(root.join("free"), "free").unwrap();
    let jail = jail(&ws, false);
    assert_eq!(jail.read(root.join("free").to_str().unwrap()).unwrap().bytes, b"free");
    assert_eq!(jail.read("../free").unwrap().bytes, b"free");
    jail.write("../made", b"made").unwrap();
    assert_eq!(fs::read(root.join("made")).unwrap(), b"made");
    for path in ["../outside/secret", "up/secret", "abs", "/proc/self/environ", "/dev/zero", "/proc/self/fd/0"] {
        assert!(jail.read(path).is_err(), "{path}");
    }
    assert!(jail.write("../outside/new", b"x").is_err());
    assert!(jail.write("up/new", b"x").is_err());
}

#[test]
fn keys_inside_the_workspace_stay_closed_and_a_workspace_inside_a_closed_folder_is_open() {
    let (_temp, ws) = fixture();
    for restricted in [true, false] {
        let keys = vec![ws.join("sub"), ws.join("a.txt"), ws.parent().unwrap().to_owned()];
        let jail = Jail::open(&ws, restricted, keys, 1_000).unwrap();
        for path in ["a.txt", "good", "sub/b.txt", "sub/new"] {
            assert!(matches!(jail.write(path, b"x"), Err(JailError::Protected(_))), "{path}");
        }
        assert!(matches!(jail.read("sub/b.txt"), Err(JailError::Protected(_))));
        assert!(jail.folder("sub").is_err());
        jail.write("c.txt", b"c").unwrap();
        assert_eq!(jail.read("c.txt").unwrap().bytes, b"c");
    }
}

#[test]
fn a_refused_write_leaves_no_folders_behind() {
    let (_temp, ws) = fixture();
    let rule = AccessRule { pattern: "denied/**".to_owned(), permission: AccessPermission::Deny };
    let rules = AccessRules::new(&AccessSettings { write: vec![rule], ..AccessSettings::default() }).unwrap();
    let rules: Arc<[_]> = [Arc::new(rules)].into();
    let protected = vec![ws.join("protected/keys")];
    for is_strict in [false, true] {
        let jail = if is_strict {
            Jail::open_strict(&ws, protected.clone(), 1_000)
        } else {
            Jail::open(&ws, true, protected.clone(), 1_000)
        };
        let jail = jail.unwrap().with_rules(rules.clone(), AccessKind::Write);
        let hidden = ["sub/../denied/a/b", "sub/../protected/keys/a"];
        for path in ["protected/keys/a/b", "denied/a/b", "./denied/b"].into_iter().chain(hidden) {
            assert!(jail.write(path, b"x").is_err() && jail.create_folder(path).is_err(), "{path}");
        }
        assert!(!ws.join("protected").exists() && !ws.join("denied").exists(), "{is_strict}");
        jail.write("other/a", b"x").unwrap();
        if is_strict {
            jail.write("denied/../other/c", b"x").unwrap();
        }
    }
}

#[test]
fn a_link_that_is_swapped_during_the_calls_never_leads_out() {
    let (_temp, ws) = fixture();
    let jail = jail(&ws, true);
    let swapping = ws.clone();
    let (stop, stopped) = std::sync::mpsc::channel::<()>();
    let swapper = std::thread::spawn(move || {
        symlink("../outside", swapping.join("bad")).unwrap();
        fs::create_dir(swapping.join("fine")).unwrap();
        fs::write(swapping.join("fine/secret"), "inside").unwrap();
        while matches!(stopped.try_recv(), Err(std::sync::mpsc::TryRecvError::Empty)) {
            for from in ["bad", "fine"] {
                fs::rename(swapping.join(from), swapping.join("swap")).unwrap();
                fs::rename(swapping.join("swap"), swapping.join(from)).unwrap();
            }
        }
    });
    for _ in 0..2_000 {
        if let Ok(opened) = jail.read("swap/secret") {
            assert_eq!(opened.bytes, b"inside");
        }
    }
    drop(stop);
    swapper.join().unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn no_path_reads_or_changes_what_is_outside(
        parts in prop::collection::vec(prop::sample::select(vec![
            "..", ".", "", "~", "up", "abs", "sub", "slash", "hard", "good", "loop", "outside", "secret", "ws", "tmp",
            "proc", "self", "root", "cwd", "fd", "3", "a.txt", "\u{2024}\u{2024}", "..\\", "%2e%2e", " .. ",
        ]), 0..9),
        absolute: bool,
        rooted: bool,
    ) {
        let (_temp, ws) = fixture();
        let jail = jail(&ws, true);
        let mut path = parts.join("/");
        if rooted { path = format!("{}/{path}", ws.display()); } else if absolute { path.insert(0, '/'); }
        if let Ok(opened) = jail.read(&path) {
            prop_assert!(!String::from_utf8_lossy(&opened.bytes).contains(CANARY), "{path}");
        }
        drop(jail.write(&path, b"changed"));
        let outside = ws.parent().unwrap().join("outside");
        prop_assert_eq!(fs::read_to_string(outside.join("secret")).unwrap(), CANARY);
        prop_assert_eq!(fs::read_dir(&outside).unwrap().count(), 1);
        prop_assert_eq!(fs::read_dir(ws.parent().unwrap()).unwrap().count(), 2);
    }
}
