//! Skills: the model sees their names and descriptions, loads a skill when it needs it, and runs its scripts.

use serde_json::{Value, json};
use tokio::task::block_in_place;

use crate::support::model::{last_text, system_of};
use crate::support::pty::Terminal;
use crate::support::requirements::bubblewrap_is_missing;
use crate::support::{Gateway, Hook, Model, Reply, Setup, write_file};

const WEATHER: &str = "---\nname: weather\ndescription: >\n  Tells the weather\n  of a town.\n---\n# Weather\n\nRun `sh scripts/now.sh TOWN` in the \
skill's folder. canary-instructions\n";
const SCRIPT: &str = "# canary-source\necho \"sunny in $1\"\n";

fn write(gateway: &Gateway, path: &str, text: &str) {
    write_file(gateway.workspace().join(path), text);
}

fn offers(request: &Value, tool: &str) -> bool {
    request["tools"].as_array().unwrap().iter().any(|one| one["function"]["name"] == tool)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_loads_a_skill_and_runs_its_script_without_seeing_the_source() {
    let model = Model::start().await;
    let gateway = Gateway::start(Setup::new().model(&model).set("skills.built_in", false)).await;
    if bubblewrap_is_missing() {
        return;
    }
    assert_eq!(gateway.run(&["agent", "-m", "hello"]).await.code, Some(0));
    assert!(!system_of(&model.requests()[0]).contains("Skills") && !offers(&model.requests()[0], "load_skill"));
    write(&gateway, "skills/weather/SKILL.md", WEATHER);
    write(&gateway, "skills/weather/scripts/now.sh", SCRIPT);
    write(&gateway, "skills/broken/SKILL.md", "---\nname: [\n---\n");
    let script = gateway.workspace().join("skills/weather/scripts/now.sh");
    let command = format!("sh {} Lisbon", script.display());
    let steps = [
        Reply::tool("load_skill", &json!({"name": "weather"})),
        Reply::tool("exec", &json!({ "command": command })),
        Reply::text("It is sunny."),
    ];
    model.on("weather of Lisbon", steps);
    assert_eq!(gateway.run(&["agent", "-m", "the weather of Lisbon?"]).await.stdout, "It is sunny.\n");
    let requests = model.requests();
    let first = &requests[1];
    assert!(system_of(first).contains("\n- **weather**: Tells the weather of a town."), "{}", system_of(first));
    assert!(offers(first, "load_skill") && !offers(first, "find_skills"));
    assert!(!first.to_string().contains("canary-instructions") && !first.to_string().contains("broken"));
    let loaded = last_text(&requests[2]);
    assert!(loaded.contains("# Skill: weather") && loaded.contains("canary-instructions"), "{loaded}");
    assert!(loaded.contains(&script.display().to_string()), "{loaded}");
    let ran = last_text(&requests[3]);
    assert!(ran.contains("sunny in Lisbon"), "{ran}");
    assert!(requests.iter().all(|request| !request.to_string().contains("canary-source")));
    // The next turn sees changes on disk.
    write(&gateway, "skills/weather/SKILL.md", &WEATHER.replace("of a town", "of a village"));
    assert_eq!(gateway.run(&["agent", "-m", "hello again"]).await.code, Some(0));
    assert!(system_of(model.requests().last().unwrap()).contains("of a village"));
    assert_eq!(model.refused(), Vec::<String>::new());
}

/// Commands can read the skill folders in the user's home. A folder below the workspace that became a link is not followed.
#[tokio::test(flavor = "multi_thread")]
async fn scripts_of_the_users_skills_run_and_links_lead_nowhere() {
    let model = Model::start().await;
    let mut gateway = Gateway::start(
        Setup::new().model(&model).set("skills.built_in", false).set("skills.paths", vec!["own", "../../shared"]),
    )
    .await;
    if bubblewrap_is_missing() {
        return;
    }
    let user = gateway.home().parent().unwrap().to_owned();
    let shared = user.join("shared");
    for folder in [user.join(".claude/skills/sky"), shared.join("sea"), user.join("private/diary")] {
        std::fs::create_dir_all(folder.join("scripts")).unwrap();
        let name = folder.file_name().unwrap().to_str().unwrap();
        std::fs::write(
            folder.join("SKILL.md"),
            format!("\n---\nname: {name}\ndescription: About {name}.\n---\nRun.\n"),
        )
        .unwrap();
        std::fs::write(folder.join("scripts/run.sh"), "echo ran in $1\n").unwrap();
    }
    std::os::unix::fs::symlink(user.join("private"), gateway.workspace().join("own")).unwrap();
    gateway.restart().await;
    for folder in [user.join(".claude/skills/sky"), shared.join("sea")] {
        let script = folder.join("scripts/run.sh").display().to_string();
        let arguments = json!({"command": format!("sh {script} Lisbon")}).to_string();
        let ran = gateway.run(&["tools", "run", "exec", &arguments]).await;
        assert!(ran.stdout.contains("ran in Lisbon"), "{script}: {ran:?}");
    }
    let list = gateway.json(&["skills", "list"]).await;
    let names: Vec<_> = list.as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["sky", "sea"], "{list}");
    let output = gateway.run(&["skills", "check"]).await;
    assert!(output.stdout.contains("own: is a link"), "{output:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn strangers_neither_see_nor_load_skills() {
    let model = Model::start().await;
    model.on("load it", [Reply::tool("load_skill", &json!({"name": "weather"})), Reply::text("done")]);
    let gateway =
        Gateway::start(Setup::new().model(&model).set("skills.built_in", false).hook(Hook::bearer("in").trusting(&[])))
            .await;
    write(&gateway, "skills/weather/SKILL.md", WEATHER);
    assert_eq!(gateway.run(&["agent", "-m", "hello"]).await.code, Some(0));
    assert!(system_of(&model.requests()[0]).contains("weather"));
    gateway.ask("in", "c", "load it").await;
    assert!(model.count() > 1);
    for request in &model.requests()[1..] {
        assert!(!request.to_string().contains("canary-instructions") && !system_of(request).contains("weather"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn many_skills_stay_within_their_tokens_and_the_rest_is_found() {
    let model = Model::start().await;
    model.on("tea", [Reply::tool("find_skills", &json!({"query": "brew tea"})), Reply::text("found")]);
    let gateway =
        Gateway::start(Setup::new().model(&model).set("skills.built_in", false).set("skills.prompt_tokens", 500)).await;
    for at in 0..60 {
        let about = if at == 57 { "Brews tea." } else { "Does something of its own with care and patience." };
        let text = format!("---\nname: skill-{at:02}\ndescription: {about}\n---\nDo it.\n");
        write(&gateway, &format!("skills/skill-{at:02}/SKILL.md"), &text);
    }
    assert_eq!(gateway.run(&["agent", "-m", "make tea"]).await.code, Some(0));
    let requests = model.requests();
    let first = system_of(&requests[0]);
    assert!(first.contains("- **skill-00**: ") && !first.contains("skill-57"), "{first}");
    assert!(first.contains(" more: find_skills(query)") && offers(&requests[0], "find_skills"));
    let found = last_text(&requests[1]);
    assert!(found.contains("skill-57") && !found.contains("skill-58"), "{found}");
}

#[tokio::test(flavor = "multi_thread")]
async fn skills_are_listed_shown_and_checked_with_and_without_a_gateway() {
    let mut gateway =
        Gateway::start(Setup::new().set("skills.built_in", false).set("skills.disabled", vec!["off"])).await;
    write(&gateway, "skills/weather/SKILL.md", WEATHER);
    write(&gateway, "skills/off/SKILL.md", "---\nname: off\ndescription: Is disabled.\n---\n");
    write(
        &gateway,
        "skills/needs/SKILL.md",
        "---\nname: needs\ndescription: x\nrequires:\n  bins: [no-such-program]\n---\n",
    );
    write(&gateway, "skills/broken/SKILL.md", "---\nname: '!'\ndescription: x\n---\n");
    write(&gateway, "skills/twice/SKILL.md", "---\nname: twice\ndescription: x\nname: other\n---\n");
    write(&gateway, ".claude/skills/weather/SKILL.md", WEATHER);
    let home_skill = gateway.home().parent().unwrap().join(".claude/skills/own/SKILL.md");
    write_file(&home_skill, "---\nname: own\ndescription: Of the user.\n---\n");
    for is_running in [true, false] {
        if !is_running {
            gateway.stop().await;
        }
        let list = gateway.json(&["skills", "list"]).await;
        let names: Vec<_> = list
            .as_array()
            .unwrap()
            .iter()
            .map(|one| (one["name"].as_str().unwrap(), one["available"] == true))
            .collect();
        assert_eq!(names, [("needs", false), ("off", false), ("weather", true), ("own", true)], "{is_running}");
        assert!(list[0]["reason"].as_str().unwrap().contains("no-such-program"), "{list}");
        assert_eq!(list[3]["path"], home_skill.display().to_string());
        let output = gateway.run(&["skills", "list"]).await;
        assert!(
            output.stderr.contains("broken/SKILL.md:2") && output.stderr.contains("only the first is used"),
            "{output:?}"
        );
        let shown = gateway.run(&["skills", "show", "weather"]).await;
        assert!(shown.stdout.contains("canary-instructions"), "{shown:?}");
        let unknown = gateway.run(&["skills", "show", "wether"]).await;
        assert!(unknown.code != Some(0) && unknown.stderr.contains("weather"), "{unknown:?}");
        let folder = gateway.workspace().join("skills").display().to_string();
        for arguments in [&["skills", "check", "--json"][..], &["skills", "check", &folder, "--json"]] {
            let checked = gateway.run(arguments).await;
            let problems: Value = serde_json::from_str(&checked.stdout).unwrap();
            assert_eq!(checked.code, Some(1), "{checked:?}");
            let problems = problems.as_array().unwrap();
            for (path, line, expected) in [("broken", 2, "the name \"!\""), ("twice", 4, "has a second `name`")] {
                let found = problems.iter().find(|one| one["path"].as_str().unwrap().contains(path)).unwrap();
                assert!(found["line"] == line && found["problem"].as_str().unwrap().contains(expected), "{found}");
            }
        }
    }
}

/// The built-in skills take few tokens of the prompt, load, and can be switched off.
#[tokio::test(flavor = "multi_thread")]
async fn built_in_skills_take_few_tokens_of_the_prompt() {
    let model = Model::start().await;
    let gateway = Gateway::start(Setup::new().model(&model)).await;
    model.on("every Monday", [Reply::tool("load_skill", &json!({"name": "scheduling"})), Reply::text("Done.")]);
    assert_eq!(gateway.run(&["agent", "-m", "watch this every Monday"]).await.stdout, "Done.\n");
    let requests = model.requests();
    let names = ["scheduling", "memory-care", "research", "email-manners", "home-server", "skill-writing"];
    assert!(
        system_of(&requests[0]).contains(&format!("before a task that fits: {}", names.join(", "))),
        "{}",
        system_of(&requests[0])
    );
    let loaded = last_text(&requests[1]);
    assert!(loaded.contains("# Skill: scheduling") && loaded.contains("NO_REPLY"), "{loaded}");
    let prompt: Value = serde_json::from_str(&gateway.run(&["prompt", "--json"]).await.stdout).unwrap();
    let skills = prompt["parts"].as_array().unwrap().iter().find(|part| part["name"] == "skills").unwrap();
    assert!(skills["tokens"].as_u64().unwrap() < 60, "{skills}");
    assert_eq!(model.refused(), Vec::<String>::new());
}

/// A skill with `allowed-tools` limits the turn that loaded it, including plans, and no other turn.
#[tokio::test(flavor = "multi_thread")]
async fn allowed_tools_limit_the_turn_that_has_loaded_the_skill() {
    let model = Model::start().await;
    let gateway = Gateway::start(Setup::new().model(&model).set("approval.default", "always")).await;
    let text = "---\nname: audit\ndescription: Audits notes.\nallowed-tools: Read, Bash(git:*)\n---\nRead only.\n";
    write(&gateway, "skills/audit/SKILL.md", text);
    write(&gateway, "note.txt", "canary-note");
    let writes = json!({"path": "other.txt", "content": "x"});
    let plan = json!({"calls": [{"tool": "write_file", "arguments": writes}, {"tool": "read_file", "arguments": {"path": "note.txt"}}]});
    let steps = [
        Reply::tool("load_skill", &json!({"name": "audit"})),
        Reply::tool("write_file", &writes),
        Reply::tool("parallel", &plan),
        Reply::tool("exec", &json!({"command": "git status; touch other.txt"})),
        Reply::tool("spawn", &json!({"task": "write other.txt"})),
        Reply::text("Audited."),
    ];
    model.on("audit it", steps);
    // There is no approval for calls that the skill forbids.
    assert_eq!(gateway.run(&["agent", "-m", "audit it"]).await.stdout, "Audited.\n");
    let requests = model.requests();
    let result = |at: usize| last_text(&requests[at]);
    let refused = "the skill \"audit\", which this turn has loaded, allows only Read, Bash(git:*)";
    assert!(result(2).contains(refused) && result(4).contains(refused), "{} {}", result(2), result(4));
    assert!(result(3).contains(refused) && result(3).contains("canary-note"), "{}", result(3));
    assert!(
        result(4).contains("one plain command") && result(5).contains("would be unlimited"),
        "{} {}",
        result(4),
        result(5)
    );
    assert!(!gateway.workspace().join("other.txt").exists());
    let checked = gateway.run(&["skills", "check"]).await;
    assert_eq!(checked.code, Some(0), "{}", checked.stdout);
}

/// A skill is shown before its installation, and is used until it changes on disk.
#[tokio::test(flavor = "multi_thread")]
async fn installed_skills_are_reviewed_pinned_accepted_and_removed() {
    let model = Model::start().await;
    let gateway = Gateway::start(Setup::new().model(&model).set("skills.built_in", false)).await;
    let folder = gateway.home().parent().unwrap().join("downloads");
    let source = folder.display().to_string();
    for (path, text) in
        [("weather/SKILL.md", WEATHER), ("weather/scripts/now.sh", SCRIPT), ("tea/SKILL.md", "# Tea\n\nMakes tea.\n")]
    {
        write_file(folder.join(path), text);
    }
    write(&gateway, "skills/own/SKILL.md", "# Own\n\nIs the agent's own.\n");
    // Without a terminal, nobody can confirm.
    let output = gateway.run(&["skills", "install", &source]).await;
    assert!(
        output.code == Some(1)
            && output.stderr.contains("there are 2 skills")
            && output.stderr.contains("tea, weather"),
        "{output:?}"
    );
    let output = gateway.run(&["skills", "install", &source, "weather"]).await;
    assert!(
        output.code == Some(1)
            && output.stderr.contains("scripts/now.sh  script")
            && output.stderr.contains("not installed"),
        "{output:?}"
    );
    assert!(!gateway.workspace().join("skills/weather").exists());
    // At a terminal, the command asks.
    block_in_place(|| {
        let mut terminal = Terminal::start(&gateway, &["skills", "install", &source, "weather"]);
        terminal.expect("Install weather? [y/N] ");
        terminal.line("y");
        terminal.expect("installed: weather");
        assert_eq!(terminal.wait_exit(), Some(0));
    });
    let output = gateway.run(&["skills", "install", &source, "weather", "--yes"]).await;
    assert!(output.code == Some(1) && output.stderr.contains("--replace"), "{output:?}");

    let system_now = async || {
        assert_eq!(gateway.run(&["agent", "-m", "hello"]).await.code, Some(0));
        system_of(model.requests().last().unwrap()).to_owned()
    };
    assert!(system_now().await.contains("- **weather**: "));
    write(&gateway, "skills/weather/scripts/now.sh", "echo changed");
    let prompt = system_now().await;
    assert!(
        !prompt.contains("- **weather**") && prompt.contains("Unavailable now, load_skill tells why: weather"),
        "{prompt}"
    );
    model.on("load it", [Reply::tool("load_skill", &json!({"name": "weather"})), Reply::text("No.")]);
    assert_eq!(gateway.run(&["agent", "-m", "load it"]).await.code, Some(0));
    let refused = last_text(model.requests().last().unwrap()).to_owned();
    assert!(refused.contains("differs from what was installed (changed: scripts/now.sh)"), "{refused}");
    let output = gateway.run(&["skills", "accept", "weather"]).await;
    assert!(output.code == Some(1) && output.stderr.contains("changed: scripts/now.sh"), "{output:?}");
    assert_eq!(gateway.run(&["skills", "accept", "weather", "--yes"]).await.code, Some(0));
    assert!(system_now().await.contains("- **weather**: "));

    let replaced = gateway.json(&["skills", "install", &source, "--all", "--replace", "--yes"]).await;
    let rows: Vec<_> = replaced
        .as_array()
        .unwrap()
        .iter()
        .map(|row| (row["name"].as_str().unwrap(), row["changes"].as_str(), row["installed"] == true))
        .collect();
    assert_eq!(rows, [("tea", None, true), ("weather", Some("changed: scripts/now.sh"), true)]);
    assert_eq!(std::fs::read_to_string(gateway.workspace().join("skills/weather/scripts/now.sh")).unwrap(), SCRIPT);
    let removed = gateway.json(&["skills", "remove", "weather"]).await;
    assert!(!system_now().await.contains("weather"));
    let restored = gateway.run(&["trash", "restore", removed["trash"].as_str().unwrap()]).await;
    assert!(restored.code == Some(0) && system_now().await.contains("- **weather**: "), "{restored:?}");
    for (name, expected) in
        [("no-such", "there is no skill"), ("../memory", "there is no skill"), ("", "there is no skill")]
    {
        let output = gateway.run(&["skills", "remove", name]).await;
        assert!(output.code == Some(1) && output.stderr.contains(expected), "{output:?}");
    }
}

/// The installed skill is used in place of a built-in one of its name. Of two different skills of a package with one
/// name none is installed.
#[tokio::test(flavor = "multi_thread")]
async fn a_skill_whose_name_is_taken_is_reported_or_refused() {
    let gateway = Gateway::new(Setup::new());
    let folder = gateway.home().parent().unwrap().join("downloads");
    let source = folder.display().to_string();
    let github = WEATHER.replace("name: weather", "name: github");
    let other = format!("{WEATHER}More.\n");
    for (path, text) in [("github/SKILL.md", github.as_str()), ("a/SKILL.md", WEATHER), ("b/SKILL.md", &other)] {
        write_file(folder.join(path), text);
    }
    let output = gateway.run(&["skills", "install", &source, "weather", "--yes"]).await;
    let twice = "a: another skill of the package, which differs, is also named weather";
    assert!(output.code == Some(1) && output.stderr.contains(twice), "{output:?}");
    let output = gateway.run(&["skills", "install", &source, "github", "github", "--yes"]).await;
    let replaced = "built-in:github has the same name, and is not used once this one is installed";
    assert!(output.code == Some(0) && output.stderr.contains(replaced), "{output:?}");
    assert_eq!(output.stdout, "installed: github\n");
    let output = gateway.run(&["skills", "install", &source, "--all", "--replace", "--yes"]).await;
    assert_eq!((output.code, output.stdout.as_str()), (Some(1), "installed: github\n"), "{output:?}");
    assert!(!output.stderr.contains(replaced), "{output:?}");
}
