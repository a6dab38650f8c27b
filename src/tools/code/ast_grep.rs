//! Finds code that matches a pattern, with the matcher of ast-grep.

use std::collections::BTreeSet;
use std::ops::Range;
use std::time::Duration;

use ast_grep_core::matcher::{MatcherExt, NodeMatch, PatternNode};
use ast_grep_core::meta_var::MetaVariable;
use ast_grep_core::replacer::TemplateFix;
use ast_grep_core::tree_sitter::StrDoc;
use ast_grep_core::{AstGrep, Language, Matcher, Pattern};
use tokio_util::sync::CancellationToken;
use tree_sitter::Tree;

use super::language::CodeLanguage;
use super::parser::{ParseFailure, SourceParser, check_depth};
use crate::guard::StopSignal;
use crate::text::{one_line, pattern, truncate};

/// The longest pattern, in bytes.
const MAX_PATTERN: usize = 4_096;
/// The time limit for parsing a pattern.
const FRAGMENT_TIME: Duration = Duration::from_secs(2);
/// The maximum number of `$$$` in a pattern. The library tries the rest of the pattern twice at each of them, so each nested one
/// doubles the time.
const MAX_MULTIPLE: usize = 8;
/// The maximum number of matches in one file.
pub(super) const MAX_MATCHES: usize = 10_000;
/// How many nodes are compared between two checks for a stop.
const STOP_STEP: usize = 256;

/// A pattern of code in one language, such as `foo($A, $$$REST)`.
pub(super) struct CodePattern {
    pattern: Pattern,
    pub language: CodeLanguage,
    variables: PatternVariables,
    /// A literal text that each match contains.
    fixed: String,
}

/// The variables of a pattern.
#[derive(Default)]
struct PatternVariables {
    /// The names of the variables for one node, and for several nodes.
    single: BTreeSet<String>,
    multiple: BTreeSet<String>,
    /// The number of variables for several nodes, with and without a name.
    multiple_count: usize,
}

pattern!(
    /// Matches a variable of a rewrite. The library parses variables in the same way, but does not expose their form.
    REWRITE_VARIABLE,
    r"(?<dollars>\$\$\$|\$\$?)(?<name>[A-Z_][A-Z0-9_]*)"
);

impl PatternVariables {
    fn add(&mut self, node: &PatternNode) {
        match node {
            PatternNode::MetaVar { meta_var: MetaVariable::Capture(name, _) } => {
                self.single.insert(name.clone());
            }
            PatternNode::MetaVar { meta_var: MetaVariable::MultiCapture(name) } => {
                self.multiple.insert(name.clone());
                self.multiple_count += 1;
            }
            PatternNode::MetaVar { meta_var: MetaVariable::Multiple } => self.multiple_count += 1,
            PatternNode::MetaVar { .. } | PatternNode::Terminal { .. } => {}
            PatternNode::Internal { children, .. } => children.iter().for_each(|child| self.add(child)),
        }
    }

    /// Checks the variables of a rewrite, since the library would replace an unknown variable with nothing.
    ///
    /// # Errors
    /// The pattern lacks one of the variables, or has it in the other form.
    fn check_rewrite(&self, text: &str) -> Result<(), String> {
        for found in REWRITE_VARIABLE.captures_iter(text) {
            let name = &found["name"];
            let (used, own, other, other_form) = match &found["dollars"] {
                "$$$" => ("$$$", &self.multiple, &self.single, "$"),
                _ => ("$", &self.single, &self.multiple, "$$$"),
            };
            if own.contains(name) {
                continue;
            }
            if other.contains(name) {
                return Err(format!(
                    "rewrite uses {used}{name}, but the pattern has {other_form}{name}: $ stands for one node and $$$ for several, \
                     so write {other_form}{name} in both"
                ));
            }
            return Err(format!("rewrite uses {used}{name}, which the pattern does not have"));
        }
        Ok(())
    }
}

/// A change of a text: the replacement of a range of bytes.
pub(super) struct CodeEdit {
    pub range: Range<usize>,
    pub text: String,
}

/// The edits that replace the matches in a text.
#[derive(Default)]
pub(super) struct MatchEdits {
    /// In the order of their positions; they do not overlap.
    pub edits: Vec<CodeEdit>,
    /// The number of matches inside the replaced ones, which have no edit of their own.
    pub nested: usize,
}

impl CodePattern {
    /// Parses a pattern.
    ///
    /// # Errors
    /// The language is unknown, or the pattern is not valid code in it.
    pub(super) fn new(pattern: &str, language: &str) -> Result<Self, String> {
        let language = CodeLanguage::named(language)?;
        let fault = |why: &str| {
            let shown = truncate(&one_line(pattern), 80);
            format!("the pattern {shown:?} is not {} code that can be searched: {why}", language.name())
        };
        if pattern.trim().is_empty() {
            return Err("the pattern is empty".to_owned());
        }
        if pattern.len() > MAX_PATTERN {
            return Err(format!("the pattern has {} bytes, more than the limit of {MAX_PATTERN}", pattern.len()));
        }
        if pattern.contains('\0') {
            return Err(fault("it holds a NUL"));
        }
        // The library walks the tree by recursion, so its depth must be limited.
        let tree = parse_fragment(language, pattern);
        tree.and_then(|tree| check_depth(&tree)).map_err(|_| fault("it is nested too deeply"))?;
        let parsed = match expression_in_context(language, pattern) {
            Some((context, kind)) => Pattern::contextual(&context, &kind, language),
            None => Pattern::try_new(pattern, language),
        };
        let parsed = parsed.map_err(|error| fault(&describe(&error)))?;
        if parsed.has_error() {
            return Err(fault(
                "it is not a whole expression, statement or declaration; $A stands for one node, $$$A for several",
            ));
        }
        let mut variables = PatternVariables::default();
        variables.add(&parsed.node);
        if variables.multiple_count > MAX_MULTIPLE {
            return Err(fault(&format!(
                "it has {} times $$$, more than the limit of {MAX_MULTIPLE}",
                variables.multiple_count
            )));
        }
        let fixed = parsed.fixed_string().into_owned();
        Ok(Self { pattern: parsed, language, variables, fixed })
    }

    /// Parses the text that replaces each match. Its line ends become LF, as in the searched texts.
    ///
    /// # Errors
    /// The text names a variable that the pattern lacks in this form.
    pub(super) fn rewrite(&self, text: &str) -> Result<TemplateFix, String> {
        self.variables.check_rewrite(text)?;
        TemplateFix::try_new(&text.replace("\r\n", "\n"), &self.language).map_err(|error| error.to_string())
    }

    /// Calls `found` for each match in a text, in the order of the matches, until `found` returns false.
    ///
    /// # Errors
    /// The text cannot be searched.
    fn each_match(
        &self,
        parser: &mut SourceParser,
        text: &str,
        stop: &StopSignal,
        mut found: impl FnMut(&NodeMatch<'_, StrDoc<CodeLanguage>>) -> bool,
    ) -> Result<(), ParseFailure> {
        if !text.contains(&self.fixed) {
            return Ok(());
        }
        let tree = parser.parse(self.language, text.as_bytes(), stop)?;
        check_depth(&tree)?;
        let root = AstGrep::doc(StrDoc { src: text.to_owned(), lang: self.language, tree });
        let kinds = self.pattern.potential_kinds();
        for (number, node) in root.root().dfs().enumerate() {
            if number % STOP_STEP == 0 && stop.is_stopped() {
                return Err(ParseFailure::Stopped);
            }
            if kinds.as_ref().is_some_and(|kinds| !kinds.contains(node.kind_id().into())) {
                continue;
            }
            if self.pattern.match_node(node).is_some_and(|node| !found(&node)) {
                break;
            }
        }
        Ok(())
    }

    /// Returns the byte ranges of the matches in a text.
    ///
    /// # Errors
    /// The text cannot be searched.
    pub(super) fn find(
        &self,
        parser: &mut SourceParser,
        text: &str,
        stop: &StopSignal,
    ) -> Result<Vec<Range<usize>>, ParseFailure> {
        let mut places: Vec<Range<usize>> = Vec::new();
        self.each_match(parser, text, stop, |node| {
            // A statement that consists of one expression has the same range as the expression.
            if places.last() != Some(&node.range()) {
                places.push(node.range());
            }
            places.len() < MAX_MATCHES
        })?;
        Ok(places)
    }

    /// Returns the edits that replace the matches in a text, at most one more than [`MAX_MATCHES`]. A match inside another match
    /// is counted, and not replaced.
    ///
    /// # Errors
    /// The text cannot be searched.
    pub(super) fn edits(
        &self,
        parser: &mut SourceParser,
        text: &str,
        rewrite: &TemplateFix,
        stop: &StopSignal,
    ) -> Result<MatchEdits, ParseFailure> {
        let mut found = MatchEdits::default();
        let mut last_match = None;
        self.each_match(parser, text, stop, |node| {
            let edit = node.make_edit(&self.pattern, rewrite);
            let range = edit.position..edit.position + edit.deleted_length;
            if found.edits.last().is_none_or(|last| last.range.end <= range.start) {
                let text = String::from_utf8_lossy(&edit.inserted_text).into_owned();
                found.edits.push(CodeEdit { range, text });
            } else if last_match != Some(node.range()) {
                found.nested += 1;
            }
            // A statement that consists of one expression has the same range as the expression.
            last_match = Some(node.range());
            found.edits.len() <= MAX_MATCHES
        })?;
        Ok(found)
    }
}

fn parse_fragment(language: CodeLanguage, text: &str) -> Result<Tree, ParseFailure> {
    let stop = StopSignal::new(FRAGMENT_TIME, CancellationToken::new());
    SourceParser::new().parse(language, text.as_bytes(), &stop)
}

/// Puts a C or C++ expression into a function, and returns the code and the kind of the expression's node. Outside of a function,
/// a call would parse as a declaration.
fn expression_in_context(language: CodeLanguage, pattern: &str) -> Option<(String, String)> {
    let is_whole = pattern.trim_end().ends_with([';', '}']);
    if is_whole || !matches!(language, CodeLanguage::C | CodeLanguage::Cpp) {
        return None;
    }
    let context = format!("void f() {{ {pattern}; }}");
    let tree = parse_fragment(language, &language.pre_process_pattern(&context)).ok()?;
    let root = tree.root_node();
    let body = root.named_child(0)?.child_by_field_name("body")?;
    let statement = body.named_child(0).filter(|statement| statement.kind() == "expression_statement")?;
    let is_alone = !root.has_error() && root.named_child_count() == 1 && body.named_child_count() == 1;
    // The first identifier is the name of the function.
    let kind = statement.named_child(0)?.kind();
    (is_alone && kind != "identifier").then(|| (context, kind.to_owned()))
}

/// Applies sorted edits to a text.
pub(super) fn apply(text: &str, edits: &[CodeEdit]) -> String {
    let mut changed = String::with_capacity(text.len());
    let mut at = 0;
    for CodeEdit { range, text: new } in edits {
        changed.push_str(text.get(at..range.start).unwrap_or_default());
        changed.push_str(new);
        at = range.end;
    }
    changed.push_str(text.get(at..).unwrap_or_default());
    changed
}

/// Formats the library's error without the pattern, which the surrounding error names.
fn describe(error: &ast_grep_core::PatternError) -> String {
    use ast_grep_core::PatternError as Fault;
    match error {
        Fault::MultipleNode(_) => "it is several pieces of code, not one".to_owned(),
        Fault::NoContent(_) => "it holds no code".to_owned(),
        Fault::RootMultiMetaVar(_) => "$$$ stands for several nodes, and needs code around it".to_owned(),
        Fault::Parse(_) | Fault::InvalidKind(_) | Fault::NoSelectorInContext { .. } => one_line(&error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stop() -> StopSignal {
        StopSignal::new(Duration::from_secs(60), CancellationToken::new())
    }

    #[test]
    fn code_is_found_and_replaced_by_its_shape() {
        for (language, text, pattern, rewrite, expected) in [
            ("rust", "fn f() { a.unwrap(); b(c).unwrap() }", "$A.unwrap()", "$A?", "fn f() { a?; b(c)? }"),
            (
                "rust",
                "fn f() { // x.unwrap()\n \"y.unwrap()\" }",
                "$A.unwrap()",
                "$A?",
                "fn f() { // x.unwrap()\n \"y.unwrap()\" }",
            ),
            ("python", "print('a', 'b')\nprint('道')\n", "print($$$A)", "log($$$A)", "log('a', 'b')\nlog('道')\n"),
            ("js", "var a = b || b; var c = d || e", "$A || $A", "$A", "var a = b; var c = d || e"),
            ("ts", "const x: Foo = f<Bar>(1)", "f<$T>($A)", "g<$T>($A)", "const x: Foo = g<Bar>(1)"),
            ("tsx", "const x = <A b={1} />", "<A b={$X} />", "<C b={$X} />", "const x = <C b={1} />"),
            (
                "go",
                "package a\nfunc f() { x := g(1) }",
                "g($A)",
                "h($A, nil)",
                "package a\nfunc f() { x := h(1, nil) }",
            ),
            (
                "java",
                "class A { void f() { g(1, 2); } }",
                "g($A, $B)",
                "g($B, $A)",
                "class A { void f() { g(2, 1); } }",
            ),
            ("c", "int f(void) { g(1); return g(a, 2); }", "g($A)", "h($A)", "int f(void) { h(1); return g(a, 2); }"),
            ("c", "int f(void) { return g(1); }", "return $A;", "return h($A);", "int f(void) { return h(g(1)); }"),
            ("cpp", "auto f() { return std::move(x); }", "std::move($A)", "$A", "auto f() { return x; }"),
            ("python", "f(1, 2)", "f($$$A)", "g(0,\r\n$$$A)", "g(0,\n1, 2)"),
            ("python", "f(1)", "f($A)", "g($$A, \"$5\", $a)", "g(1, \"$5\", $a)"),
        ] {
            let pattern = CodePattern::new(pattern, language).unwrap();
            let fix = pattern.rewrite(rewrite).unwrap();
            let found = pattern.edits(&mut SourceParser::new(), text, &fix, &stop()).unwrap();
            assert_eq!((apply(text, &found.edits).as_str(), found.nested), (expected, 0), "{language} {text}");
        }
    }

    #[test]
    fn matches_inside_a_replaced_match_are_counted() {
        for (language, text, expected, nested) in [
            ("rust", "fn f() { g(g(1)) }", "fn f() { h(g(1)) }", 1),
            ("python", "g(1)\ng(2)\n", "h(1)\nh(2)\n", 0),
            ("python", "g(lambda: g(g(1)))\ng(g(2))\n", "h(lambda: g(g(1)))\nh(g(2))\n", 3),
            ("js", "g(() => { g(1); g(2) }); g(3)", "h(() => { g(1); g(2) }); h(3)", 2),
        ] {
            let pattern = CodePattern::new("g($A)", language).unwrap();
            let fix = pattern.rewrite("h($A)").unwrap();
            let found = pattern.edits(&mut SourceParser::new(), text, &fix, &stop()).unwrap();
            assert_eq!((apply(text, &found.edits).as_str(), found.nested), (expected, nested), "{language} {text}");
        }
    }

    #[test]
    fn the_fault_of_a_pattern_is_one_clear_error() {
        for (language, pattern, expected) in [
            ("cobol", "x", "known are c, cpp, go"),
            ("rust", " ", "the pattern is empty"),
            ("rust", "let x = 1; let y = 2;", "it is several pieces of code"),
            ("rust", "$$$A", "needs code around it"),
            ("rust", "fn (", "not a whole expression"),
            ("python", "x\0", "holds a NUL"),
            ("python", &"(".repeat(3_000), "is not python code"),
            ("python", &"[".repeat(1_000), "is not python code"),
            ("python", &format!("{}1{}", "(".repeat(1_500), ")".repeat(1_500)), "nested too deeply"),
            ("python", &"x".repeat(5_000), "more than the limit"),
            ("python", &format!("{}1{}", "f($$$, ".repeat(20), ")".repeat(20)), "it has 20 times $$$"),
        ] {
            let error = CodePattern::new(pattern, language).err().unwrap_or_default();
            assert!(
                error.contains(expected) && error.lines().count() == 1 && error.len() < 400,
                "{pattern:.20}: {error}"
            );
        }
    }

    #[test]
    fn a_rewrite_names_variables_as_the_pattern_does() {
        let pattern = CodePattern::new("f($A, $$$B, $_)", "rust").unwrap();
        for (rewrite, expected) in [
            ("g($$$B, $A)", None),
            ("g($$A, $5, $a, $$$)", None),
            ("g($C)", Some("rewrite uses $C, which the pattern does not have")),
            ("g($_)", Some("rewrite uses $_, which the pattern does not have")),
            ("g($A, $B)", Some("rewrite uses $B, but the pattern has $$$B")),
            ("g($$$A)", Some("rewrite uses $$$A, but the pattern has $A")),
            ("g($$$$B)", None),
        ] {
            let error = pattern.rewrite(rewrite).err();
            assert_eq!(error.is_some(), expected.is_some(), "{rewrite}");
            assert!(error.unwrap_or_default().starts_with(expected.unwrap_or_default()), "{rewrite}");
        }
    }
}
