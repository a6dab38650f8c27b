//! The parser of source files, with limits on time, size and depth, because a malicious file may be slow to parse.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use tree_sitter::{
    ParseOptions, ParseState, Parser, QueryCursor, QueryCursorOptions, QueryCursorState, StreamingIterator,
};
use tree_sitter::{Query, QueryMatch, Tree};

use super::language::CodeLanguage;
use crate::guard::StopSignal;

/// The maximum size of a parsed file, in bytes. Larger files are generated, and their trees take a hundred times the memory.
pub(super) const MAX_SOURCE: u64 = 512 << 10;
/// The time limit for one file.
const FILE_TIME: Duration = Duration::from_secs(2);
/// The maximum depth of a tree that code walks by recursion.
const MAX_DEPTH: usize = 500;
/// The maximum number of matches that a query tracks at the same time.
const MATCH_LIMIT: u32 = 4_096;

/// The reason why a file has no tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ParseFailure {
    /// The work as a whole was stopped.
    Stopped,
    /// The work on this file took too long.
    TooSlow,
    /// The code is nested too deeply.
    TooDeep,
}

/// The reason why a source file is left out. Results name the reasons in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum SkipReason {
    TooLarge,
    Binary,
    Unreadable,
    /// As [`ParseFailure::TooSlow`].
    TooSlow,
    /// As [`ParseFailure::TooDeep`].
    TooDeep,
    /// A change would lose bytes that are invalid in the file's encoding.
    InvalidBytes,
    /// The call as a whole was stopped.
    Stopped,
}

impl SkipReason {
    /// Returns the text for a number of files; `None` if they are not counted.
    pub(super) fn text(self) -> Option<&'static str> {
        match self {
            Self::TooLarge => Some("too large to parse"),
            Self::Binary => Some("binary"),
            Self::Unreadable => Some("unreadable"),
            Self::TooSlow => Some("too slow to parse"),
            Self::TooDeep => Some("nested too deeply"),
            Self::InvalidBytes => Some("with bytes that are invalid in their encoding"),
            Self::Stopped => None,
        }
    }
}

impl From<ParseFailure> for SkipReason {
    fn from(failure: ParseFailure) -> Self {
        match failure {
            ParseFailure::Stopped => Self::Stopped,
            ParseFailure::TooSlow => Self::TooSlow,
            ParseFailure::TooDeep => Self::TooDeep,
        }
    }
}

/// A parser that parses one file after the other on one thread.
pub(super) struct SourceParser {
    parser: Parser,
    cursor: QueryCursor,
}

/// Returns a check that ends the work on one file in time.
fn file_deadline(stop: &StopSignal) -> impl Fn() -> ControlFlow<()> {
    let until = Instant::now() + FILE_TIME;
    move || {
        if stop.is_stopped() || Instant::now() >= until {
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    }
}

/// Returns the reason why the work on a file ended early.
fn early_end(stop: &StopSignal) -> ParseFailure {
    if stop.is_stopped() { ParseFailure::Stopped } else { ParseFailure::TooSlow }
}

impl SourceParser {
    pub(super) fn new() -> Self {
        let mut cursor = QueryCursor::new();
        cursor.set_match_limit(MATCH_LIMIT);
        Self { parser: Parser::new(), cursor }
    }

    /// Parses a file. Code with syntax errors has a tree as well.
    ///
    /// # Errors
    /// The reason why there is no tree.
    pub(super) fn parse(
        &mut self,
        language: CodeLanguage,
        source: &[u8],
        stop: &StopSignal,
    ) -> Result<Tree, ParseFailure> {
        let check = file_deadline(stop);
        // An interrupted parse leaves state behind.
        self.parser.reset();
        if let Err(error) = self.parser.set_language(&language.grammar()) {
            tracing::error!(%error, language = language.name(), "a grammar does not fit the parser");
            return Err(ParseFailure::TooSlow);
        }
        let mut progress = |_: &ParseState| check();
        let mut input = |at: usize, _| source.get(at..).unwrap_or_default();
        let options = ParseOptions::new().progress_callback(&mut progress);
        self.parser.parse_with_options(&mut input, None, Some(options)).ok_or_else(|| early_end(stop))
    }

    /// Calls `found` for each match of `query`.
    ///
    /// # Errors
    /// The query took too long, or the work was stopped.
    pub(super) fn query(
        &mut self,
        query: &Query,
        tree: &Tree,
        source: &[u8],
        stop: &StopSignal,
        mut found: impl FnMut(&QueryMatch<'_, '_>),
    ) -> Result<(), ParseFailure> {
        let check = file_deadline(stop);
        let mut progress = |_: &QueryCursorState| check();
        let options = QueryCursorOptions::new().progress_callback(&mut progress);
        let mut matches = self.cursor.matches_with_options(query, tree.root_node(), source, options);
        while let Some(next) = matches.next() {
            found(next);
        }
        if check().is_break() { Err(early_end(stop)) } else { Ok(()) }
    }
}

/// Checks that a tree can be walked by recursion.
///
/// # Errors
/// The tree is too deep.
pub(super) fn check_depth(tree: &Tree) -> Result<(), ParseFailure> {
    let mut cursor = tree.walk();
    let mut depth = 0;
    loop {
        if cursor.goto_first_child() {
            depth += 1;
            if depth > MAX_DEPTH {
                return Err(ParseFailure::TooDeep);
            }
            continue;
        }
        while !cursor.goto_next_sibling() {
            if !cursor.goto_parent() {
                return Ok(());
            }
            depth -= 1;
        }
    }
}
