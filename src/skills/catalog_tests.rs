//! Tests of the sources, the catalog, the tools and the check, on real folders.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::fs::{CWD, FileType, mknodat};
use serde_json::json;

use super::prompt::skill_line;
use super::*;
use crate::llm::estimate_tokens;
use crate::tools::{ReplayPolicy, Tool, ToolAccess};

/// A workspace and a home with skills.
struct SkillWorld {
    folder: tempfile::TempDir,
    config: SkillsConfig,
}

impl SkillWorld {
    fn new() -> Self {
        let world = Self { folder: tempfile::tempdir().unwrap(), config: SkillsConfig::default() };
        fs::create_dir_all(world.path("ws/skills")).unwrap();
        fs::create_dir_all(world.path("home")).unwrap();
        world
    }

    fn path(&self, path: &str) -> PathBuf {
        self.folder.path().canonicalize().unwrap().join(path)
    }

    /// Writes a file, and creates its folders.
    fn write(&self, path: &str, text: impl AsRef<[u8]>) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// Writes a skill.
    fn skill(&self, folder: &str, name: &str, description: &str) {
        let text = format!("---\nname: {name}\ndescription: {description}\n---\n\nDo {description}.\n");
        self.write(&format!("{folder}/SKILL.md"), text);
    }

    fn catalog(&self) -> Arc<SkillCatalog> {
        self.catalog_with(&[])
    }

    fn catalog_with(&self, built_in: &[BuiltInSkill]) -> Arc<SkillCatalog> {
        let sources = SkillSource::all(&self.config, &self.path("ws"), Some(&self.path("home")), &["memory".into()]);
        let host = SkillHost::new(vec![self.path("bin")], |_| false, "linux");
        Arc::new(SkillCatalog::new(&self.config, sources, built_in, host))
    }
}

fn names(list: &SkillList) -> Vec<&str> {
    list.skills.iter().map(Skill::name).collect()
}

/// Returns the problems by path relative to `world`.
fn problems(list: &SkillList, world: &SkillWorld) -> Vec<(String, Option<usize>, String)> {
    let relative = |path: &str| Path::new(path).strip_prefix(world.path("")).unwrap().display().to_string();
    list.problems.iter().map(|fault| (relative(&fault.path), fault.line, fault.problem.clone())).collect()
}

/// Returns the text of a call's result that the model reads.
async fn says(tool: &dyn Tool, arguments: serde_json::Value) -> String {
    tool.call(arguments, &crate::tools::testing::context()).await.result.render()
}

#[test]
fn the_first_source_of_a_name_wins_and_the_others_are_reported() {
    let mut world = SkillWorld::new();
    world.config.paths = vec!["~/more".to_owned(), "own".to_owned()];
    let folders =
        ["ws/skills/a", "ws/.claude/skills/b", "ws/.agents/skills/c", "home/.claude/skills/d", "home/.agents/skills/e"];
    for (at, folder) in folders.into_iter().chain(["home/more/f", "ws/own/g"]).enumerate() {
        world.skill(folder, &format!("s{at}"), "x");
        world.skill(&format!("{folder}-same"), "same", folder);
    }
    let catalog = world.catalog_with(&[
        ("s7", "---\ndescription: built in\n---\nText"),
        ("same", "---\ndescription: built in\n---\n"),
    ]);
    let list = catalog.scan();
    assert_eq!(names(&list), ["s0", "same", "s1", "s2", "s3", "s4", "s5", "s6", "s7"]);
    let sources: Vec<_> = list.skills.iter().map(|skill| &*skill.source).collect();
    let expected = [
        "skills", "skills", ".claude/skills", ".agents/skills", "~/.claude/skills", "~/.agents/skills", "~/more",
        "own", "built-in",
    ];
    assert_eq!(sources, expected);
    let first = world.path("ws/skills/a-same/SKILL.md").display().to_string();
    assert_eq!(list.find("same").unwrap().path(), first);
    assert_eq!(list.find("S7").unwrap().path(), "built-in:s7");
    let shadowed: Vec<_> = list.shadowed.iter().map(|skill| skill.path.as_str()).collect();
    assert_eq!(shadowed.len(), 7, "{shadowed:?}");
    assert!(list.shadowed.iter().all(|skill| skill.name == "same" && skill.by == first));
    assert!(
        shadowed[0].ends_with("ws/.claude/skills/b-same/SKILL.md") && shadowed[6] == "built-in:same",
        "{shadowed:?}"
    );
    assert_eq!(list.problems, []);
}

#[test]
fn skills_are_found_in_their_folders_and_one_level_of_groups() {
    let mut world = SkillWorld::new();
    world.config.paths = vec!["lone".to_owned(), "missing".to_owned(), "skills".to_owned()];
    world.skill("ws/skills/b", "other-name", "x");
    world.skill("ws/skills/group/c", "c", "x");
    world.skill("ws/skills/group/deep/d", "d", "x");
    world.skill("ws/skills/.hidden", "hidden", "x");
    world.skill("ws/skills/b/inner", "inner", "x");
    world.write("ws/skills/a/skill.md", "# A\n\nAbout a.");
    world.write("ws/skills/README.md", "# No skill\n\nText");
    world.skill("ws/lone", "lone", "x");
    let list = world.catalog().scan();
    assert_eq!(names(&list), ["a", "other-name", "c", "lone"]);
    let problems = problems(&list, &world);
    assert_eq!(problems.len(), 2, "the source named twice is none: {problems:?}");
    assert!(problems[0].0 == "ws/skills/a/skill.md" && problems[0].2.contains("named SKILL.md"), "{problems:?}");
    assert!(problems[1].0 == "ws/missing" && problems[1].2.contains("no such file"), "{problems:?}");
    assert_eq!(list.shadowed, []);
}

#[test]
fn what_is_no_plain_file_in_the_folder_is_refused_and_never_blocks() {
    let world = SkillWorld::new();
    world.skill("ws/skills/good", "good", "x");
    world.skill("outside/evil", "evil", "x");
    symlink(world.path("outside/evil"), world.path("ws/skills/linked")).unwrap();
    symlink("loop", world.path("ws/skills/loop")).unwrap();
    fs::create_dir_all(world.path("ws/skills/group")).unwrap();
    symlink("..", world.path("ws/skills/group/up")).unwrap();
    fs::create_dir_all(world.path("ws/skills/file-link")).unwrap();
    symlink(world.path("outside/evil/SKILL.md"), world.path("ws/skills/file-link/SKILL.md")).unwrap();
    fs::create_dir_all(world.path("ws/skills/pipe")).unwrap();
    mknodat(CWD, world.path("ws/skills/pipe/SKILL.md"), FileType::Fifo, 0o600.into(), 0).unwrap();
    mknodat(CWD, world.path("ws/skills/top-pipe"), FileType::Fifo, 0o600.into(), 0).unwrap();
    fs::create_dir_all(world.path("ws/skills/folder/SKILL.md")).unwrap();
    fs::create_dir_all(world.path("ws/skills/hard")).unwrap();
    fs::hard_link(world.path("outside/evil/SKILL.md"), world.path("ws/skills/hard/SKILL.md")).unwrap();
    world.write("ws/skills/big/SKILL.md", format!("---\nname: big\ndescription: x\n---\n{}", "y".repeat(2_600_000)));
    world.write("ws/skills/latin/SKILL.md", b"---\nname: latin\ndescription: Caf\xe9\n---\n");
    world.write("ws/skills/open/SKILL.md", "---\nname: open\ndescription: x\n");
    let list = world.catalog().scan();
    assert_eq!(names(&list), ["good"]);
    let found = problems(&list, &world);
    for (path, line, reason) in [
        ("ws/skills/linked", None, "is a link"),
        ("ws/skills/loop", None, "is a link"),
        ("ws/skills/group/up", None, "is a link"),
        ("ws/skills/file-link/SKILL.md", None, "is a link"),
        ("ws/skills/pipe/SKILL.md", None, "pipe"),
        ("ws/skills/folder/SKILL.md", None, "is a folder"),
        ("ws/skills/hard/SKILL.md", None, "hard link"),
        ("ws/skills/big/SKILL.md", None, "more than the limit of 1000000"),
        ("ws/skills/latin/SKILL.md", Some(3), "UTF-8"),
        ("ws/skills/open/SKILL.md", Some(1), "has no end"),
    ] {
        let is_it = |(at, number, text): &&(String, Option<usize>, String)| {
            at == path && *number == line && text.contains(reason)
        };
        assert_eq!(found.iter().filter(is_it).count(), 1, "{path} {reason}: {found:#?}");
    }
    assert_eq!(found.len(), 10, "{found:#?}");
}

#[test]
fn a_folder_of_skills_in_the_workspace_that_is_a_link_is_refused_and_one_of_the_home_is_not() {
    let world = SkillWorld::new();
    world.skill("outside/evil", "evil", "x");
    fs::remove_dir(world.path("ws/skills")).unwrap();
    symlink(world.path("outside"), world.path("ws/skills")).unwrap();
    fs::create_dir(world.path("home/.claude")).unwrap();
    let list = world.catalog().scan();
    assert_eq!(names(&list), [""; 0]);
    assert!(list.problems[0].problem.contains("is a link"), "{:?}", list.problems);
    symlink(world.path("outside"), world.path("home/.claude/skills")).unwrap();
    assert_eq!(names(&world.catalog().scan()), ["evil"]);
}

#[test]
fn a_scan_is_not_shared_after_a_tool_may_have_written_a_skill() {
    let world = SkillWorld::new();
    let catalog = world.catalog();
    for name in ["a", "b", "c"] {
        catalog.recent_or_scan();
        world.skill(&format!("ws/skills/{name}"), name, "new");
        catalog.expire();
        assert!(catalog.recent().is_none());
        assert!(catalog.recent_or_scan().find(name).is_some(), "{name}");
    }
}

/// Scans until no scanned file changed shortly before the scan.
fn scan_until_comparable(catalog: &SkillCatalog) {
    let began = Instant::now();
    while !catalog.is_unchanged() {
        assert!(began.elapsed() < Duration::from_secs(20), "the versions stay uncertain");
        catalog.scan();
    }
}

#[test]
fn a_turn_examines_the_disk_after_ten_milliseconds_and_scans_it_after_a_change_or_a_second() {
    let world = SkillWorld::new();
    world.write("ws/skills/b/SKILL.md", "---\nname: b\ndescription: x\nrequires: {bins: [tool]}\n---\n");
    let catalog = world.catalog();
    let is_available = |list: &SkillList| list.find("b").unwrap().is_available();
    // The times lie in the future, so that no call before them counts.
    let mut scanned = Instant::now() + Duration::from_secs(3_600);
    let scan = |scanned: &mut Instant| {
        let began = Instant::now();
        loop {
            *scanned += Duration::from_secs(1);
            let list = catalog.recent_or_scan_at(*scanned);
            if catalog.is_unchanged() {
                return list;
            }
            assert!(began.elapsed() < Duration::from_secs(20), "the versions stay uncertain");
        }
    };
    scan(&mut scanned);
    world.write("bin/tool", "");
    fs::set_permissions(world.path("bin/tool"), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    assert!(!is_available(&catalog.recent_or_scan_at(scanned + Duration::from_millis(900))), "no path has changed");
    assert!(is_available(&scan(&mut scanned)), "a second has passed");
    world.skill("ws/skills/c", "c", "new");
    assert!(catalog.recent_or_scan_at(scanned + Duration::from_millis(9)).find("c").is_none(), "examined just now");
    assert!(catalog.recent_or_scan_at(scanned + Duration::from_millis(10)).find("c").is_some(), "a path has changed");
}

#[test]
fn each_change_is_seen_by_comparing_versions() {
    let world = SkillWorld::new();
    world.skill("ws/skills/a", "a", "one");
    world.skill("ws/skills/group/b", "b", "one");
    fs::create_dir(world.path("ws/skills/empty")).unwrap();
    fs::create_dir(world.path("ws/skills/group/empty")).unwrap();
    let catalog = world.catalog();
    let changes: [&dyn Fn(); 7] = [
        &|| world.skill("ws/skills/a", "a", "another text"),
        &|| world.skill("ws/skills/c", "c", "new"),
        &|| world.skill("ws/skills/group/d", "d", "new"),
        &|| world.skill("ws/skills/empty", "empty", "new"),
        &|| world.skill("ws/skills/group/empty", "empty-too", "new"),
        &|| world.skill("ws/.claude/skills/e", "e", "new"),
        &|| fs::remove_dir_all(world.path("ws/skills/group/b")).unwrap(),
    ];
    for change in changes {
        scan_until_comparable(&catalog);
        change();
        assert!(!catalog.is_unchanged());
    }
    world.write("ws/skills/broken/SKILL.md", "nothing");
    assert_eq!((catalog.scan().problems.len(), catalog.is_unchanged()), (1, false), "a problem may be temporary");
}

#[test]
fn changes_are_seen_and_unchanged_files_are_not_parsed_again() {
    let world = SkillWorld::new();
    world.skill("ws/skills/a", "a", "one");
    world.skill("ws/skills/b", "b", "one");
    world.write("ws/skills/broken/SKILL.md", "nothing");
    let catalog = world.catalog();
    assert_eq!(catalog.parses(), 0, "nothing is read before the first scan");
    let first = catalog.scan();
    assert_eq!((catalog.parses(), names(&first)), (3, vec!["a", "b"]));
    assert!(Arc::ptr_eq(&first, &catalog.scan()), "the same list");
    assert_eq!(catalog.parses(), 3);
    // The text is longer, because the time of the change may be too coarse to show it.
    world.skill("ws/skills/b", "b", "another text");
    let list = catalog.scan();
    assert_eq!((catalog.parses(), &*list.find("b").unwrap().manifest.description), (4, "another text"));
    world.skill("ws/skills/c", "c", "new");
    fs::remove_dir_all(world.path("ws/skills/a")).unwrap();
    world.skill("ws/skills/broken", "mended", "now");
    let list = catalog.scan();
    assert_eq!((catalog.parses(), names(&list), list.problems.len()), (6, vec!["b", "mended", "c"], 0));
    // A program that appears makes a skill available without another parse.
    world.write("ws/skills/b/SKILL.md", "---\nname: b\ndescription: x\nrequires: {bins: [tool]}\n---\n");
    assert_eq!(catalog.scan().find("b").unwrap().unavailable.as_deref(), Some("needs the program tool"));
    world.write("bin/tool", "");
    fs::set_permissions(world.path("bin/tool"), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    assert!(catalog.scan().find("b").unwrap().is_available());
    assert_eq!(catalog.parses(), 7);
}

#[test]
fn a_source_has_at_most_a_thousand_skills() {
    let world = SkillWorld::new();
    for number in 0..1_005 {
        world.skill(&format!("ws/skills/s{number:04}"), &format!("s{number:04}"), "x");
    }
    let list = world.catalog().scan();
    assert_eq!(list.skills.len(), 1_000);
    assert!(list.problems[0].problem.contains("more than 1000 skills"), "{:?}", list.problems);
}

#[tokio::test]
async fn load_skill_gives_instructions_and_files() {
    let world = SkillWorld::new();
    world.write(
        "ws/skills/tea/SKILL.md",
        "\u{feff}---\r\nname: tea\r\ndescription: x\r\n---\r\n\r\n# Tea\r\n\r\nBoil.\r\n",
    );
    for file in ["ref.md", "scripts/run.sh", "scripts/lib/a.py", "a/b/c/deep.txt", ".git/config"] {
        world.write(&format!("ws/skills/tea/{file}"), "");
    }
    world.write("secret", "");
    symlink(world.path("secret"), world.path("ws/skills/tea/link")).unwrap();
    mknodat(CWD, world.path("ws/skills/tea/pipe"), FileType::Fifo, 0o600.into(), 0).unwrap();
    let tool = SkillTool::load(world.catalog());
    let root = world.path("ws/skills/tea").display().to_string();
    let expected = format!(
        "# Skill: tea\n\n## Files\n\nFolder: {root}\n- {root}/ref.md\n- {root}/scripts/run.sh\n- {root}/scripts/lib/a.py\n\
         Folders below level 3 are not listed.\nLinks are not listed.\n\n## Instructions\n\n# Tea\r\n\r\nBoil."
    );
    assert_eq!(says(&tool, json!({"name": " tea "})).await, expected);
    for number in 0..150 {
        world.write(&format!("ws/skills/many/f{number:03}"), "");
    }
    // The next call finds it.
    world.skill("ws/skills/many", "many", "x");
    let text = says(&tool, json!({"name": "many"})).await;
    assert_eq!(text.lines().filter(|line| line.starts_with("- /")).count(), 100);
    assert!(text.contains("\nThere are more files; these are the first 100.\n"), "{text}");
    world.skill("ws/skills/plain", "plain", "x");
    assert!(says(&tool, json!({"name": "plain"})).await.contains("skills/plain\nIt has no other files.\n"));
    let built_in = SkillTool::load(world.catalog_with(&[("own", "---\ndescription: d\n---\nText")]));
    let text = says(&built_in, json!({"name": "own"})).await;
    assert_eq!(
        text,
        "# Skill: own\n\n## Files\n\nThe skill is part of daoyou and has no files.\n\n## Instructions\n\nText"
    );
}

#[tokio::test]
async fn a_skill_that_cannot_be_loaded_is_an_error_with_what_would_be_right() {
    let mut world = SkillWorld::new();
    world.config.disabled = vec!["off".to_owned()];
    let tool = SkillTool::load(world.catalog());
    let none = "Error: Skill 'x' not found. No skills currently available.";
    assert_eq!(says(&tool, json!({"name": "x"})).await, none);
    for name in ["alpha", "beta", "brew", "off"] {
        world.skill(&format!("ws/skills/{name}"), name, "x");
    }
    let text = "---\nname: gh\ndescription: x\nmetadata: {\"openclaw\": {\"requires\": {\"bins\": [\"gh\"]}, \"install\": \
                [{\"kind\": \"brew\", \"formula\": \"gh\"}]}}\n---\n";
    world.write("ws/skills/gh/SKILL.md", text);
    for (name, expected) in [
        ("berw", "Skill 'berw' not found. Available skills: brew, alpha, beta"),
        ("a\n# b<c>", "Skill 'a b‹c›' not found. Available skills: alpha, beta, brew"),
        ("gh", "Skill 'gh' is unavailable: needs the program gh: brew install gh"),
        ("off", "Skill 'off' is unavailable: disabled by skills.disabled in the configuration"),
    ] {
        assert_eq!(says(&tool, json!({ "name": name })).await, format!("Error: {expected}"), "{name:?}");
    }
}

#[tokio::test]
async fn find_skills_finds_by_words_in_english_and_chinese() {
    let world = SkillWorld::new();
    for (name, description) in [
        ("pdf-forms", "Fills in forms of PDF files"),
        ("weather", "Gets forecasts. 查询天气预报"),
        ("git_release", "Publishes releases with a changelog"),
        ("letters", "Writes letters and fills envelopes"),
    ] {
        world.skill(&format!("ws/skills/{name}"), name, description);
    }
    world.write(
        "ws/skills/gh/SKILL.md",
        "---\nname: gh\ndescription: Opens issues\ntriggers: [bug report]\nrequires: {bins: [gh]}\n---\n",
    );
    let tool = SkillTool::find(world.catalog());
    for (query, first) in [
        ("fill a pdf form", "- **pdf-forms**: Fills in forms of PDF files"),
        ("今天天气怎么样", "- **weather**: Gets forecasts. 查询天气预报"),
        ("publishing a release", "- **git_release**: Publishes releases with a changelog"),
        ("report bugs", "- **gh**: Opens issues (unavailable: needs the program gh)"),
        ("quantum", "None of the 4 skills fits."),
    ] {
        let text = says(&tool, json!({ "query": query })).await;
        assert_eq!(text.lines().next(), Some(first), "{query}: {text}");
    }
    for number in 0..20 {
        world.skill(&format!("ws/skills/n{number}"), &format!("n{number}"), "counts sheep");
    }
    assert_eq!(says(&tool, json!({"query": "count sheep"})).await.lines().count(), 10);
    let context = crate::tools::testing::context();
    for tool in [&tool as &dyn Tool, &SkillTool::load(world.catalog())] {
        let definition = tool.definition();
        assert_eq!((definition.access, definition.replay), (ToolAccess::Reads, ReplayPolicy::Idempotent));
        assert!(!tool.allows_untrusted(&json!({}), &context));
    }
}

#[test]
fn a_check_reports_path_line_and_problem() {
    let world = SkillWorld::new();
    assert!(check_skills(&world.path("none")).is_err());
    let empty = check_skills(&world.path("ws/skills")).unwrap();
    assert!(matches!(&empty[..], [only] if only.problem.contains("has no skill")), "{empty:?}");
    world.skill("ws/skills/good", "good", "x");
    assert_eq!(check_skills(&world.path("ws/skills")).unwrap(), []);
    assert_eq!(check_skills(&world.path("ws/skills/good")).unwrap(), []);
    world.skill("ws/skills/twice", "good", "x");
    world.skill("ws/skills/long", "long", &"x".repeat(1_025));
    world.skill("ws/skills/name", "Bad Name", "x");
    world.skill("ws/skills/colon", "colon", "use: when");
    world.write(
        "ws/skills/empty/SKILL.md",
        "---\nname: empty\ndescription: x\nrequires: {bins: [no-such-program]}\n---\n",
    );
    let problems = serde_json::to_value(check_skills(&world.path("ws/skills")).unwrap()).unwrap();
    let rows = problems.as_array().unwrap();
    let expected = [
        ("colon", Some(3), "not valid YAML"),
        ("empty", None, "has no instructions"),
        ("long", None, "1025 characters"),
        ("name", Some(2), "read as bad-name"),
        ("twice", None, "only the first is used"),
    ];
    assert_eq!(rows.len(), expected.len(), "{problems:#}");
    for (row, (folder, line, problem)) in rows.iter().zip(expected) {
        let path = world.path(&format!("ws/skills/{folder}/SKILL.md"));
        assert_eq!(row["path"], json!(path), "{row}");
        assert_eq!(row.get("line"), line.map(|line| json!(line)).as_ref(), "{row}");
        assert!(row["problem"].as_str().unwrap().contains(problem), "{row}");
    }
    world.skill("other/pipe", "pipe", "x");
    mknodat(CWD, world.path("other/pipe/fifo"), FileType::Fifo, 0o600.into(), 0).unwrap();
    world.skill("other/link", "link", "x");
    symlink("/etc/passwd", world.path("other/link/users")).unwrap();
    world.skill("other/repository", "repository", "x");
    world.write("other/repository/.git/config", "");
    let refused = check_skills(&world.path("other")).unwrap();
    let refused: Vec<_> = refused.iter().map(|fault| fault.problem.as_str()).collect();
    assert_eq!(refused.len(), 3, "{refused:?}");
    for (problem, expected) in
        refused.into_iter().zip(["users: is a link", "fifo: is a link or no file", ".git: a skill"])
    {
        assert!(problem.contains("cannot be installed: ") && problem.contains(expected), "{problem}");
    }
    assert_eq!(check_skills(&world.path("other/repository")).unwrap(), []);
    let one = check_skills(&world.path("ws/skills/name")).unwrap();
    assert_eq!((one.len(), one[0].line), (1, Some(2)), "{one:?}");
}

#[test]
fn the_built_in_skills_are_short_and_without_faults() {
    let host = SkillHost::new(vec!["/usr/bin".into()], |_| true, "linux");
    let list = SkillCatalog::new(&SkillsConfig::default(), Vec::new(), BUILT_IN_SKILLS, host).scan();
    assert_eq!(problems_of_all(&list), []);
    assert_eq!(list.skills.len(), BUILT_IN_SKILLS.len());
    for (skill, (name, text)) in list.skills.iter().zip(BUILT_IN_SKILLS) {
        assert_eq!(skill.name(), *name);
        assert!(text.lines().count() < 60, "{name}");
        let tokens = estimate_tokens(&skill_line(skill, &estimate_tokens).unwrap());
        assert!(tokens <= 25, "{name}: {tokens} tokens");
    }
}

#[test]
fn settings_have_defaults_and_refuse_unknown_keys() {
    let config: SkillsConfig = toml::from_str("paths = [\"~/x\"]").unwrap();
    assert_eq!(
        config,
        SkillsConfig { paths: vec!["~/x".to_owned()], built_in: true, disabled: Vec::new(), prompt_tokens: 2_000 }
    );
    assert!(toml::from_str::<SkillsConfig>("path = []").is_err());
}

#[test]
fn faults_are_bounded_by_source_and_by_file() {
    let world = SkillWorld::new();
    std::fs::create_dir_all(world.path("ws/skills")).unwrap();
    for at in 0..300 {
        symlink("/nowhere", world.path(&format!("ws/skills/link{at}"))).unwrap();
    }
    let parts: Vec<String> = (0..50).map(|at| format!("a{at}: {{requires: x}}")).collect();
    let head = format!("name: tea\ndescription: x\nmetadata: {{{}}}", parts.join(", "));
    world.write("ws/.agents/skills/tea/SKILL.md", format!("---\n{head}\n---\nBoil.\n"));
    let list = world.catalog().scan();
    let of_links = list.problems.iter().filter(|problem| problem.path.contains("ws/skills")).count();
    let of_tea = list.problems.iter().filter(|problem| problem.path.contains("tea")).count();
    assert_eq!((of_links, of_tea), (101, 10), "{:?}", &list.problems[..5]);
}
