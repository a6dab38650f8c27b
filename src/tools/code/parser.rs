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

/// A parser that parses one file after the other on one thread.
pub(super) struct SourceParser {
    parser: Parser,
    cursor: QueryCursor,
}

/// A callback that ends the work on one file in time.
struct FileDeadline<'a> {
    stop: &'a StopSignal,
    until: Instant,
}

impl<'a> FileDeadline<'a> {
    fn new(stop: &'a StopSignal) -> Self {
        Self { stop, until: Instant::now() + FILE_TIME }
    }

    fn check(&self) -> ControlFlow<()> {
        if self.stop.is_stopped() || Instant::now() >= self.until {
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    }

    fn failure(&self) -> ParseFailure {
        if self.stop.is_stopped() { ParseFailure::Stopped } else { ParseFailure::TooSlow }
    }
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
        let deadline = FileDeadline::new(stop);
        // An interrupted parse leaves state behind.
        self.parser.reset();
        if let Err(error) = self.parser.set_language(&language.grammar()) {
            tracing::error!(%error, language = language.name(), "a grammar does not fit the parser");
            return Err(ParseFailure::TooSlow);
        }
        let mut progress = |_: &ParseState| deadline.check();
        let mut input = |at: usize, _| source.get(at..).unwrap_or_default();
        let options = ParseOptions::new().progress_callback(&mut progress);
        self.parser.parse_with_options(&mut input, None, Some(options)).ok_or_else(|| deadline.failure())
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
        let deadline = FileDeadline::new(stop);
        let mut progress = |_: &QueryCursorState| deadline.check();
        let options = QueryCursorOptions::new().progress_callback(&mut progress);
        let mut matches = self.cursor.matches_with_options(query, tree.root_node(), source, options);
        while let Some(next) = matches.next() {
            found(next);
        }
        if deadline.check().is_break() { Err(deadline.failure()) } else { Ok(()) }
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
