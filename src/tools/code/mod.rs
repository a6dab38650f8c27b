//! The tools that know the syntax of source code: a map of a code base, its outline, and search and replacement by code patterns.

mod ast_grep;
mod ast_replace;
#[cfg(test)]
mod ast_replace_tests;
mod ast_search;
mod cache;
mod graph;
#[cfg(test)]
mod hostile_tests;
mod language;
mod parser;
mod queries;
mod repo_map;
#[cfg(test)]
mod repo_map_tests;
mod repo_structure;
mod scan;
mod symbols;
mod tags;
#[cfg(test)]
mod tags_tests;

pub use ast_replace::AstGrepReplace;
pub use ast_search::ast_grep_search;
pub use cache::CodeCache;
pub use repo_map::repo_map;
pub use repo_structure::repo_structure;
pub use symbols::symbols;
