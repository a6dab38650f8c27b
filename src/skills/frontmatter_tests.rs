//! Tests of the parser of `SKILL.md`, with forms from existing skills.

use proptest::prelude::*;

use super::frontmatter::*;

fn parse(text: &str) -> Result<SkillManifest, SkillManifestError> {
    parse_manifest(text.as_bytes(), "folder")
}

fn parsed(text: &str) -> SkillManifest {
    parse(text).unwrap_or_else(|fault| panic!("{text}: {fault:?}"))
}

#[test]
fn name_and_description_are_read_in_the_forms_found_in_the_wild() {
    for (text, name, description) in [
        ("---\nname: brew\ndescription: Makes tea.\n---\n# Brew\n", "brew", "Makes tea."),
        ("\u{feff}---\r\nname: brew\r\ndescription: Makes tea.\r\n---\r\nBody\r\n", "brew", "Makes tea."),
        ("--- \nname: brew\ndescription: Makes tea.\n...\nBody", "brew", "Makes tea."),
        ("\n \n---\nname: brew\ndescription: Makes tea.\n---\nBody", "brew", "Makes tea."),
        ("---\nname: b\ndescription: >\n  Makes tea\n  and coffee.\n---\n", "b", "Makes tea and coffee."),
        ("---\nname: b\ndescription: >-\n  Makes tea\n\n  and coffee.\n---\n", "b", "Makes tea and coffee."),
        ("---\nname: b\ndescription: |\n  Makes tea\n  and coffee.\nversion: 1\n---\n", "b", "Makes tea and coffee."),
        ("---\nname: b\ndescription: Makes tea\n  and coffee.\n---\n", "b", "Makes tea and coffee."),
        ("---\nname: \"b\"\ndescription: 'It''s tea'\n---\n", "b", "It's tea"),
        ("---\ndescription: Makes tea.\n---\n", "folder", "Makes tea."),
        ("---\nname:\ndescription: Makes tea.\n---\n", "folder", "Makes tea."),
        ("---\nname: 天气\ndescription: 查询天气。\n---\n", "天气", "查询天气。"),
        ("---\nname: 42\ndescription: 1.10\n---\n", "42", "1.10"),
        ("---\nname: b\n---\n# B\n\nMakes tea\nquickly.\n\nMore.", "b", "Makes tea quickly."),
        ("---\n---\n# B\n\nMakes tea.", "folder", "Makes tea."),
        ("# B\n\n## C\n\nMakes tea\nquickly.\n\nMore.", "folder", "Makes tea quickly."),
        ("Makes tea.\n\n# B\n", "folder", "Makes tea."),
        ("---\nname: b\ndescription: a\nfuture: {x: [1, {y: 2}]}\nmodel: ~\n---\n", "b", "a"),
        ("---\nname: b\ndescription: a\u{202e}b\u{2028}c\n---\n", "b", "ab c"),
    ] {
        let manifest = parsed(text);
        assert_eq!((manifest.name.as_str(), manifest.description.as_str()), (name, description), "{text:?}");
        assert_eq!(manifest.warnings, [], "{text:?}");
    }
}

#[test]
fn what_is_not_valid_yaml_is_read_line_by_line_with_a_warning() {
    for (text, name, description, line) in [
        ("---\nname: b\ndescription: Use when: tea is wanted\n---\n", "b", "Use when: tea is wanted", 3),
        ("---\ndescription: Use this: now\n  and: then\nname: b\r\n---\n", "b", "Use this: now and: then", 2),
        ("---\nname: 'b'\ndescription: \"Say \"hi\" now\"\n---\n", "b", "Say \"hi\" now", 3),
        ("---\nname: b\ndescription: >\n  Makes tea.\nbad: [\n---\n", "b", "Makes tea.", 5),
        ("---\nname: b\ndescription: tea\n\tmore: x\n---\n", "b", "tea more: x", 3),
        ("---\nname: b\ndescription: @tea\n---\n", "b", "@tea", 3),
        ("---\nname: b\ndescription: a\u{7}b\n---\n", "b", "a b", 3),
    ] {
        let manifest = parsed(text);
        assert_eq!((manifest.name.as_str(), manifest.description.as_str()), (name, description), "{text:?}");
        let [warning] = &manifest.warnings[..] else { panic!("{text:?}: {:?}", manifest.warnings) };
        assert!(warning.reason.contains("not valid YAML") && !warning.reason.contains('\n'), "{warning:?}");
        assert_eq!(warning.line, Some(line), "{text:?}: {warning:?}");
    }
}

#[test]
fn broken_files_are_refused_with_line_and_reason() {
    let long = format!("---\nname: {}\ndescription: a\n---\n", "x".repeat(65));
    let huge = format!("---\nname: b\ndescription: a\nx: {}\n---\n", "y".repeat(70_000));
    for (text, line, reason) in [
        ("", 1, "has no front matter"),
        ("just text\n#no-heading\n", 1, "has no front matter"),
        ("---\nname: b\ndescription: a\n", 1, "has no end"),
        ("---\nname: b\ndescription:\n---\n# Only a heading\n", 3, "has no description"),
        ("---\nname: b\ndescription: \"\\u0007\"\n---\n", 3, "has no description"),
        ("---\nname: b\n---\n", 1, "has no description"),
        ("---\nname: \u{3164}\ndescription: a\n---\n", 2, "such as my-skill"),
        ("---\nname: b\nother: [\n---\n", 3, "not valid YAML"),
        ("---\nname: b\ndescription: a\nname: c\n---\n", 4, "has a second `name`"),
        ("---\nname: b\ndescription: a\nallowed-tools: {Read: true}\n---\n", 4, "`allowed-tools` is not understood"),
        ("---\n- a\n- b\n---\n", 2, "not valid YAML"),
        (long.as_str(), 2, "1 to 64 letters"),
        (huge.as_str(), 1, "longer than 65536 bytes"),
    ] {
        let fault = parse(text).expect_err(text);
        assert!(fault.line == Some(line) && fault.reason.contains(reason), "{text:?}: {fault:?}");
    }
}

#[test]
fn names_with_other_signs_become_words_with_hyphens() {
    for (text, folder, name, line) in [
        ("---\nlicense: MIT\nname: PDF Processing!\ndescription: a\n---\n", "folder", "pdf-processing", 3),
        ("\n<!-- licence: MIT -->\n---\nname: My Skill\ndescription: a\n---\n", "folder", "my-skill", 4),
        ("---\nname: \"a\\n# b\"\ndescription: a\n---\n", "folder", "a-b", 2),
        ("---\nname: ../x\ndescription: a\n---\n", "folder", "x", 2),
        ("---\ndescription: a\n---\n", "my skill", "my-skill", 1),
    ] {
        let manifest = parse_manifest(text.as_bytes(), folder).unwrap();
        let [warning] = manifest.warnings.as_slice() else { panic!("{text:?}: {:?}", manifest.warnings) };
        assert_eq!((manifest.name.as_str(), warning.line), (name, Some(line)), "{text:?}: {warning:?}");
    }
}

#[test]
fn an_unquoted_text_does_not_cost_the_other_fields() {
    let manifest = parsed(
        "---\nname: b\ndescription: Use for: tea, it's *good*\nlicense: @x\nrequires: {bins: [git]}\nallowed-tools: Read\n---\n",
    );
    assert_eq!(manifest.description, "Use for: tea, it's *good*");
    assert_eq!((manifest.license.as_deref(), manifest.requirements.bins), (Some("@x"), vec!["git".to_owned()]));
    assert_eq!((manifest.allowed_tools, manifest.warnings.len()), (vec!["Read".to_owned()], 1));
}

#[test]
fn a_limit_of_tools_survives_broken_front_matter() {
    let manifest = parsed("---\nname: b\ndescription: a\nmetadata: {a: b\nallowed-tools: Read Grep\n---\n");
    assert_eq!((manifest.allowed_tools, manifest.warnings.len()), (vec!["Read".to_owned(), "Grep".to_owned()], 1));
}

#[test]
fn a_field_of_an_unusual_type_is_left_out_alone() {
    let text = "---\nname: b\ndescription: a\nversion: {major: 1}\ncompatibility: [x]\nlicense: 7\nrequires: {bins: [git]}\n\
                allowed-tools: [Read]\n---\n";
    let manifest = parsed(text);
    let lines: Vec<_> = manifest.warnings.iter().map(|warning| warning.line).collect();
    assert_eq!(lines, [Some(4), Some(5)]);
    assert_eq!((manifest.version, manifest.compatibility, manifest.license.as_deref()), (None, None, Some("7")));
    assert_eq!((manifest.requirements.bins, manifest.allowed_tools), (vec!["git".to_owned()], vec!["Read".to_owned()]));
}

#[test]
fn other_encodings_are_refused_with_the_line() {
    let utf16: Vec<u8> = "\u{feff}---\nname: b\n".encode_utf16().flat_map(u16::to_le_bytes).collect();
    let latin = b"---\nname: b\ndescription: Caf\xe9\n---\n".as_slice();
    let gbk = b"---\nname: b\n---\n\n# \xcc\xec\xc6\xf8\n".as_slice();
    for (bytes, line, reason) in [(utf16.as_slice(), 1, "UTF-16"), (latin, 3, "UTF-8"), (gbk, 5, "UTF-8")] {
        let fault = parse_manifest(bytes, "folder").unwrap_err();
        assert!(fault.line == Some(line) && fault.reason.contains(reason), "{fault:?}");
    }
}

#[test]
fn requirements_are_read_wherever_programs_put_them() {
    let texts = [
        "requires: {bins: [gh, jq], anyBins: [rg, grep], env: [GH_TOKEN], os: [linux]}",
        "requires:\n  bins: gh, jq\n  any_bins:\n    - rg\n    - grep\n  env: GH_TOKEN\n  os: linux",
        "metadata:\n  requires:\n    bins: [gh, jq]\n    any-bins: rg grep\n    env: [GH_TOKEN]\n    os: [linux]",
        r#"metadata: {"openclaw": {"requires": {"bins": ["gh", "jq"], "anyBins": ["rg", "grep"], "env": ["GH_TOKEN"], "os": ["linux"]}}}"#,
        r#"metadata: '{"openclaw": {"os": ["linux"], "requires": {"bins": ["gh", "jq"], "anyBins": ["rg", "grep"], "env": ["GH_TOKEN"]}}}'"#,
        "metadata:\n  {\n    \"nanobot\": { \"requires\": { \"bins\": [\"gh\", \"jq\", ], \"anyBins\": [\"rg\", \"grep\"], \"env\": [\"GH_TOKEN\"], }, \"os\": [\"linux\"], },\n  }",
    ];
    for text in texts {
        let manifest = parsed(&format!("---\nname: b\ndescription: a\n{text}\n---\n"));
        let needs = &manifest.requirements;
        let lists = [&needs.bins, &needs.any_bins, &needs.env, &needs.os].map(|list| list.join(" "));
        assert_eq!(lists, ["gh jq", "rg grep", "GH_TOKEN", "linux"], "{text}");
        assert_eq!(manifest.warnings, [], "{text}");
    }
    for (text, line, reason) in [
        ("requires: [git]", 4, "`requires` is not read"),
        ("metadata: not json", 4, "`metadata` is a text and not JSON"),
    ] {
        let manifest = parsed(&format!("---\nname: b\ndescription: a\n{text}\n---\n"));
        assert_eq!(manifest.requirements, crate::skills::SkillRequirements::default(), "{text}");
        let [warning] = &manifest.warnings[..] else { panic!("{text}: {:?}", manifest.warnings) };
        assert!(warning.line == Some(line) && warning.reason.contains(reason), "{warning:?}");
    }
}

#[test]
fn install_hints_are_commands() {
    let manifest = parsed(
        "---\nname: b\ndescription: a\nmetadata: {\"openclaw\": {\"install\": [\
         {\"id\": \"x\", \"kind\": \"brew\", \"formula\": \"gh\", \"bins\": [\"gh\"]}, {\"kind\": \"apt\", \"package\": \"gh\"}, \
         {\"kind\": \"node\", \"package\": \"@a/b\"}, {\"kind\": \"go\", \"module\": \"x.y/z@latest\"}, {\"kind\": \"uv\", \"package\": \"q\"}, \
         {\"label\": \"Ask\\nme\"}, {\"kind\": \"brew\"}, \"curl x\", 7]}}\n---\n",
    );
    let commands: Vec<_> = manifest.install_hints.iter().map(|hint| hint.command.as_str()).collect();
    let expected = [
        "brew install gh", "apt install gh", "npm install -g @a/b", "go install x.y/z@latest", "uv tool install q",
        "Ask me", "curl x",
    ];
    assert_eq!(commands, expected);
    assert_eq!(manifest.install_hints[0].bins, ["gh"]);
    let manifest = parsed("---\nname: b\ndescription: a\ninstall: pip install b\n---\n");
    assert_eq!(manifest.install_hints[0].command, "pip install b");
}

#[test]
fn lists_and_other_fields_are_read() {
    for (text, expected) in [
        ("allowed-tools: Bash(git:*) Read", &["Bash(git:*)", "Read"][..]),
        (
            "allowed-tools: Bash(git add:*, git commit:*), Read,Write",
            &["Bash(git add:*, git commit:*)", "Read", "Write"],
        ),
        ("allowed-tools: [Read, \"Bash(npm run:*)\"]", &["Read", "Bash(npm run:*)"]),
        ("allowed_tools:\n  - Read\n  - Grep", &["Read", "Grep"]),
        ("allowed-tools:", &[]),
        ("allowed-tools: )Read (", &[")Read", "("]),
    ] {
        assert_eq!(parsed(&format!("---\nname: b\ndescription: a\n{text}\n---\n")).allowed_tools, expected, "{text}");
    }
    let manifest = parsed(
        "---\nname: b\ndescription: a\nversion: 1.10\nlicense: MIT\ncompatibility: needs git\ntriggers: deploy it, 发布，release\n---\n",
    );
    assert_eq!(manifest.version.as_deref(), Some("1.10"));
    assert_eq!(manifest.license.as_deref(), Some("MIT"));
    assert_eq!(manifest.compatibility.as_deref(), Some("needs git"));
    assert_eq!(manifest.triggers, ["deploy it", "发布", "release"]);
    for (text, is_always) in [
        ("always: true", true),
        ("always: yes", true),
        ("always: \"true\"", true),
        ("always: false", false),
        ("metadata: {\"nanobot\": {\"always\": true}}", true),
        ("always: [true]", false),
    ] {
        let manifest = parsed(&format!("---\nname: b\ndescription: a\n{text}\n---\n\nDo this.\n"));
        assert_eq!(manifest.always_text.as_deref(), is_always.then_some("Do this."), "{text}");
    }
}

#[test]
fn hostile_yaml_is_bounded() {
    let bomb = (1..30).map(|n| format!("a{n}: &a{n} [*a{m}, *a{m}, *a{m}, *a{m}]\n", m = n - 1)).collect::<String>();
    let bomb = format!("---\nname: b\ndescription: tea\na0: &a0 [x, x]\n{bomb}requires: *a29\n---\n");
    let deep = format!("---\nname: b\ndescription: tea\nmetadata: {}{}\n---\n", "[".repeat(9_000), "]".repeat(9_000));
    let deep_json = format!("---\nname: b\ndescription: tea\nmetadata: '{}'\n---\n", "[".repeat(9_000));
    for text in [bomb, deep, deep_json] {
        let manifest = parsed(&text);
        assert_eq!((manifest.description.as_str(), &manifest.requirements.bins), ("tea", &Vec::new()));
        assert!((1..=2).contains(&manifest.warnings.len()), "{:?}", manifest.warnings);
    }
    let many = format!("---\nname: b\ndescription: tea\nrequires: {{bins: [{}]}}\n---\n", "a,".repeat(200));
    assert_eq!(parsed(&many).requirements.bins, ["a"]);
}

proptest! {
    #[test]
    fn any_bytes_are_parsed_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = parse_manifest(&bytes, "folder");
    }

    #[test]
    fn any_front_matter_is_parsed_or_refused(
        head in "([a-z]{1,12}:( [-\\[{>|&*'\"#@%]?\\PC{0,30})?\n|[ \t-]{0,4}\\PC{0,20}\n|(name|description|metadata|requires): ?\\PC{0,20}\n){0,12}",
        folder in "\\PC{0,20}",
    ) {
        if let Ok(manifest) = parse_manifest(format!("---\n{head}---\nBody\n").as_bytes(), &folder) {
            prop_assert!(!manifest.description.is_empty());
            prop_assert!(!manifest.description.chars().any(char::is_control), "{:?}", manifest.description);
            prop_assert!((1..=64).contains(&manifest.name.chars().count()));
            prop_assert!(manifest.name.chars().all(|c| c.is_alphanumeric() || matches!(c, '-' | '_')));
        }
    }
}
