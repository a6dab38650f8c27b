//! The programming languages that the code tools know: their names, file extensions and grammars.

use std::borrow::Cow;
use std::path::Path;

use ast_grep_core::Language as PatternLanguage;
use ast_grep_core::matcher::{Pattern, PatternBuilder, PatternError};
use ast_grep_core::tree_sitter::{LanguageExt, StrDoc};
use strum::VariantArray;
use tree_sitter::Language;

/// A programming language with a grammar.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, strum::VariantArray)]
pub(super) enum CodeLanguage {
    C,
    Cpp,
    Go,
    Java,
    JavaScript,
    Python,
    Rust,
    Tsx,
    TypeScript,
}

impl CodeLanguage {
    /// Returns the names by which models call the language, the canonical one first; the extensions of its files; and its grammar.
    /// A header file counts as C++, whose grammar parses nearly all C headers as well.
    fn facts(self) -> (&'static [&'static str], &'static [&'static str], Language) {
        use {tree_sitter_javascript as js, tree_sitter_typescript as ts};
        match self {
            Self::C => (&["c"], &["c"], tree_sitter_c::LANGUAGE.into()),
            Self::Cpp => (
                &["cpp", "c++", "cc", "cxx"],
                &["cpp", "cc", "cxx", "hpp", "hh", "hxx", "h"],
                tree_sitter_cpp::LANGUAGE.into(),
            ),
            Self::Go => (&["go", "golang"], &["go"], tree_sitter_go::LANGUAGE.into()),
            Self::Java => (&["java"], &["java"], tree_sitter_java::LANGUAGE.into()),
            Self::JavaScript => (&["javascript", "js", "jsx"], &["js", "jsx", "mjs", "cjs"], js::LANGUAGE.into()),
            Self::Python => (&["python", "py"], &["py", "pyi"], tree_sitter_python::LANGUAGE.into()),
            Self::Rust => (&["rust", "rs"], &["rs"], tree_sitter_rust::LANGUAGE.into()),
            Self::Tsx => (&["tsx"], &["tsx"], ts::LANGUAGE_TSX.into()),
            Self::TypeScript => (&["typescript", "ts"], &["ts", "mts", "cts"], ts::LANGUAGE_TYPESCRIPT.into()),
        }
    }

    fn names(self) -> &'static [&'static str] {
        let (names, ..) = self.facts();
        names
    }

    /// Returns the canonical name.
    pub(super) fn name(self) -> &'static str {
        self.names()[0]
    }

    /// Returns the language that a model calls `name`, ignoring case.
    ///
    /// # Errors
    /// No such language; the error lists all.
    pub(super) fn named(name: &str) -> Result<Self, String> {
        let is_named = |language: &Self| language.names().iter().any(|known| known.eq_ignore_ascii_case(name.trim()));
        Self::VARIANTS.iter().copied().find(is_named).ok_or_else(|| {
            let known: Vec<_> = Self::VARIANTS.iter().map(|language| language.name()).collect();
            format!("lang {:?} is not known; known are {}", crate::text::truncate(name, 40), known.join(", "))
        })
    }

    /// Returns the language of a file by its extension.
    pub(super) fn of_path(path: &Path) -> Option<Self> {
        let ending = path.extension()?.to_str()?;
        let has_ending = |language: &Self| {
            let (_, endings, _) = language.facts();
            endings.iter().any(|known| known.eq_ignore_ascii_case(ending))
        };
        Self::VARIANTS.iter().copied().find(has_ending)
    }

    /// Returns the representative of the family: the languages whose files use names of each other.
    pub(super) fn family(self) -> Self {
        match self {
            Self::C => Self::Cpp,
            Self::JavaScript | Self::Tsx => Self::TypeScript,
            other => other,
        }
    }

    /// Returns true if a search in this language includes a file of the language `of`: headers belong to C as well.
    pub(super) fn searches(self, of: Self, path: &Path) -> bool {
        let is_header = || path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("h"));
        self == of || self == Self::C && is_header()
    }

    pub(super) fn grammar(self) -> Language {
        let (.., grammar) = self.facts();
        grammar
    }
}

// The crate `ast-grep-language` offers the same for its languages, but links every grammar and panics for those left out.
impl PatternLanguage for CodeLanguage {
    fn kind_to_id(&self, kind: &str) -> u16 {
        self.grammar().id_for_node_kind(kind, true)
    }

    fn field_to_id(&self, field: &str) -> Option<u16> {
        self.grammar().field_id_for_name(field).map(std::num::NonZero::get)
    }

    fn build_pattern(&self, builder: &PatternBuilder<'_>) -> Result<Pattern, PatternError> {
        builder.build(|source| StrDoc::try_new(source, *self))
    }

    /// Returns the letter that replaces `$` in a pattern, for a grammar that does not accept `$` in names.
    fn expando_char(&self) -> char {
        match self {
            Self::C | Self::Cpp => '𐀀',
            Self::Go | Self::Python | Self::Rust => 'µ',
            Self::Java | Self::JavaScript | Self::Tsx | Self::TypeScript => '$',
        }
    }

    /// Replaces each `$` that begins a variable with that letter: `$A`, `$_`, `$$$A`, `$$$`.
    fn pre_process_pattern<'q>(&self, query: &'q str) -> Cow<'q, str> {
        let expando = self.expando_char();
        if expando == '$' {
            return Cow::Borrowed(query);
        }
        let mut processed = String::with_capacity(query.len());
        let mut dollars = 0;
        for char in query.chars().map(Some).chain([None]) {
            if char == Some('$') {
                dollars += 1;
                continue;
            }
            let is_variable = dollars == 3 || matches!(char, Some('A'..='Z' | '_'));
            processed.extend(std::iter::repeat_n(if is_variable { expando } else { '$' }, dollars));
            dollars = 0;
            processed.extend(char);
        }
        Cow::Owned(processed)
    }
}

impl LanguageExt for CodeLanguage {
    fn get_ts_language(&self) -> Language {
        self.grammar()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn languages_are_known_by_name_and_by_ending() {
        for (name, expected) in [
            ("rust", Some(CodeLanguage::Rust)),
            (" RS ", Some(CodeLanguage::Rust)),
            ("c++", Some(CodeLanguage::Cpp)),
            ("jsx", Some(CodeLanguage::JavaScript)),
            ("golang", Some(CodeLanguage::Go)),
            ("cobol", None),
            ("", None),
        ] {
            assert_eq!(CodeLanguage::named(name).ok(), expected, "{name}");
        }
        let error = CodeLanguage::named("cobol").unwrap_err();
        assert_eq!(
            error,
            "lang \"cobol\" is not known; known are c, cpp, go, java, javascript, python, rust, tsx, typescript"
        );
        for (path, expected) in [
            ("a/b.rs", Some(CodeLanguage::Rust)),
            ("b.H", Some(CodeLanguage::Cpp)),
            ("b.d.ts", Some(CodeLanguage::TypeScript)),
            ("b.TSX", Some(CodeLanguage::Tsx)),
            ("rs", None),
            (".rs", None),
            ("b.rs.orig", None),
        ] {
            assert_eq!(CodeLanguage::of_path(Path::new(path)), expected, "{path}");
        }
        assert!(CodeLanguage::C.searches(CodeLanguage::Cpp, Path::new("a.h")));
        assert!(!CodeLanguage::C.searches(CodeLanguage::Cpp, Path::new("a.cc")));
    }

    #[test]
    fn variables_of_a_pattern_become_names() {
        for (language, pattern, expected) in [
            (CodeLanguage::Rust, "f($A, $$$B, $_)", "f(µA, µµµB, µ_)"),
            (CodeLanguage::Rust, "m!($a, $$$)", "m!($a, µµµ)"),
            (CodeLanguage::Java, "f($A)", "f($A)"),
            (CodeLanguage::C, "$A$", "𐀀A$"),
        ] {
            assert_eq!(language.pre_process_pattern(pattern), expected, "{pattern}");
        }
    }
}
