use proptest::prelude::*;

use super::*;

/// Returns a short form of a parsed patch: hunks as `@start` with anchors and marked lines.
fn outline(text: &str) -> Result<Vec<String>, String> {
    let hunk = |hunk: &Hunk| {
        let start = hunk.start.map(|start| start.to_string()).unwrap_or_default();
        let lines = hunk.lines.iter().map(|line| {
            let mark = match line.kind {
                PatchLineKind::Context => ' ',
                PatchLineKind::Removed => '-',
                PatchLineKind::Added => '+',
            };
            format!("{mark}{}{}", line.text, if line.is_unended { "\\" } else { "" })
        });
        let end = if hunk.is_at_end { "$" } else { "" };
        format!("@{start}{:?}[{}]{end}", hunk.anchors, lines.collect::<Vec<_>>().join("|"))
    };
    let hunks = |hunks: &[Hunk]| hunks.iter().map(hunk).collect::<String>();
    Ok(parse_patch(text)?
        .iter()
        .map(|file| {
            let path = &file.path;
            let mode = file.executable.map(|on| if on { " +x" } else { " -x" }).unwrap_or_default();
            match &file.change {
                FileChange::Add { content } => format!("A {path} {content:?}{mode}"),
                FileChange::Delete { hunks: all } => format!("D {path}{}", hunks(all)),
                FileChange::Update { move_to: Some(to), hunks: all } => {
                    format!("R {path} {to}{}{mode}", hunks(all))
                }
                FileChange::Update { move_to: None, hunks: all } => format!("M {path}{}{mode}", hunks(all)),
            }
        })
        .collect())
}

#[test]
fn unified_diffs_are_read() {
    for (text, expected) in [
        ("--- a/x\n+++ b/x\n@@ -1,2 +1,2 @@ fn f()\n a\n-b\n+c\n", &["M x@1[][ a|-b|+c]"][..]),
        (
            "--- x\t2024-01-01\n+++ x\t2024-01-02\n@@ -3 +3 @@\n-b\n+c\n\\ No newline at end of file\n",
            &["M x@3[][-b|+c\\]"],
        ),
        ("```diff\n--- a/x\n+++ b/x\n@@ @@\n-b\n+c\n```\n", &["M x@[][-b|+c]"]),
        // The patch in the code block changes a code block.
        ("```diff\n--- a/x\n+++ b/x\n@@ @@\n ```sh\n-b\n+c\n ```\n```\n", &["M x@[][ ```sh|-b|+c| ```]"]),
        // The counts are wrong, and a second file follows.
        (
            "--- a/x\n+++ b/x\n@@ -1,9 +1,9 @@\n a\n\n-b\n+c\ndiff --git a/y b/y\n--- a/y\n+++ b/y\n@@ -1 +1 @@\n-d\n+e\n",
            &["M x@1[][ a| |-b|+c]", "M y@1[][-d|+e]"],
        ),
        (
            "--- a/x\n+++ b/x\n@@ -1 +1 @@\n-b\n+c\n--- a/y\n+++ b/y\n@@ -1 +1 @@\n-d\n+e\n",
            &["M x@1[][-b|+c]", "M y@1[][-d|+e]"],
        ),
        // Some lines look like file names.
        ("--- a/x\n+++ b/x\n@@ -1,2 +1,2 @@\n--- d\n+++ e\n f\n", &["M x@1[][--- d|+++ e| f]"]),
        ("--- /dev/null\n+++ b/n\n@@ -0,0 +1,2 @@\n+one\n+two\n", &["A n \"one\\ntwo\\n\""]),
        (
            "diff --git a/n b/n\nnew file mode 100755\nindex 0..1\n--- /dev/null\n+++ b/n\n@@ -0,0 +1 @@\n+#!\n\\ No newline at end of file\n",
            &["A n \"#!\" +x"],
        ),
        ("diff --git a/dir/e b/dir/e\nnew file mode 100644\n", &["A dir/e \"\""]),
        ("--- a/o\n+++ /dev/null\n@@ -1 +0,0 @@\n-gone\n", &["D o@1[][-gone]"]),
        ("diff --git a/o b/o\ndeleted file mode 100644\n", &["D o"]),
        (
            "diff --git a/o b/p\nsimilarity index 90%\nrename from o\nrename to p\n--- a/o\n+++ b/p\n@@ -1 +1 @@\n-a\n+b\n",
            &["R o p@1[][-a|+b]"],
        ),
        ("diff --git a/o b/pq\nrename from o\nrename to pq\n", &["R o pq"]),
        ("diff --git a/s b/s\nold mode 100644\nnew mode 100755\n", &["M s +x"]),
        (
            "diff --git \"a/\\351\\201\\223\" \"b/\\351\\201\\223\"\n--- \"a/\\351\\201\\223\"\n+++ \"b/\\351\\201\\223\"\n@@ -1 +1 @@\n-a\n+b\n",
            &["M 道@1[][-a|+b]"],
        ),
        (
            "From: me\nSubject: fix\n---\n x | 2 +-\n\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n-b\n+c\n-- \n2.1\n",
            &["M x@1[][-b|+c]"],
        ),
    ] {
        assert_eq!(outline(text).unwrap(), expected, "{text}");
    }
}

#[test]
fn the_begin_patch_form_is_read() {
    for (text, expected) in [
        ("*** Begin Patch\n*** Add File: n\n+one\n+\n+two\n*** End Patch", &["A n \"one\\n\\ntwo\\n\""][..]),
        ("*** Begin Patch\n*** Delete File: o\n*** End Patch\n", &["D o"]),
        (
            "*** Begin Patch\n*** Update File: x\n@@ class A\n@@   def f():\n a\n-b\n+c\n@@\n-d\n+e\n*** End of File\n*** End Patch\n",
            &["M x@[\"class A\", \"def f():\"][ a|-b|+c]@[][-d|+e]$"],
        ),
        ("*** Update File: x\n*** Move to: y\n-b\n+c\n\n*** Delete File: o\n", &["R x y@[][-b|+c]", "D o"]),
        ("*** Begin Patch\n*** Update File: x\n*** Move to: y\n*** End Patch", &["R x y"]),
        ("*** Begin Patch\n*** Update File: x\n@@ -3,1 +3,1 @@\n-b\n+c\n*** End Patch", &["M x@3[][-b|+c]"]),
    ] {
        assert_eq!(outline(text).unwrap(), expected, "{text}");
    }
}

#[test]
fn what_is_no_patch_is_refused_with_the_place() {
    for (text, expected) in [
        ("", "changes no file"),
        ("please change x", "changes no file"),
        ("*** Begin Patch\n*** End Patch", "changes no file"),
        ("@@ -1 +1 @@\n-a\n+b\n", "comes before any --- and +++ lines"),
        ("--- a/x\n+++ b/x\n@@ -1,3 +1,3 @@\n a\nb\n", "x, hunk 1: \"b\" begins with none of"),
        ("--- a/x\n+++ b/x\n@@ -1,2 +1,2 @@\n a\n b\n", "x, hunk 1: has no line with + or -"),
        ("--- a/x\n+++ b/x\n", "no hunk"),
        ("--- a/x\n+++ b/y\n@@ -1 +1 @@\n-a\n+b\n", "two names"),
        ("--- /dev/null\n+++ b/x\n@@ -1 +1 @@\n a\n+b\n", "lines with + alone"),
        ("diff --git a/x b/x\nBinary files a/x and b/x differ\n", "binary file"),
        ("diff --git a/x b/x\nnew file mode 120000\n--- /dev/null\n+++ b/x\n@@ -0,0 +1 @@\n+/etc\n", "mode \"120000\""),
        ("diff --git a/x b/y\ncopy from x\ncopy to y\n", "copies are not supported"),
        (
            "*** Begin Patch\n*** Add File: x\none\n*** End Patch",
            "x: each line of a new file begins with +, not \"one\"",
        ),
        ("*** Begin Patch\n*** Update File: x\n@@\none\n*** End Patch", "x, hunk 1: \"one\" begins with none of"),
        ("*** Begin Patch\n*** Rename File: x\n*** End Patch", "is none of"),
    ] {
        let error = outline(text).unwrap_err();
        assert!(error.contains(expected), "{text}: {error}");
    }
    let many = "*** Delete File: x\n".repeat(MAX_FILES + 1);
    assert!(outline(&many).unwrap_err().contains("at most 200"));
}

proptest! {
    #[test]
    fn no_text_makes_the_reader_fail_otherwise_than_with_an_error(
        text in "((\\*\\*\\* (Begin|End) Patch|\\*\\*\\* (Add|Update|Delete) File: a|\\*\\*\\* Move to: b|\\*\\*\\* End of File|diff --git (a/x b/x|\"a/\\\\3|é)|--- a/x|\\+\\+\\+ b/x|@@ -[0-9]{0,20},1 \\+1 @@|@@é|[-+ \\\\]?[a-cé\"]{0,3}|rename from \"\\\\|new mode 1)\n){0,12}"
    ) {
        let _ = parse_patch(&text);
    }
}
