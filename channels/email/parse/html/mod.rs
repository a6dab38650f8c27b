//! HTML to Markdown, for mails: what any sender writes, in one pass and bounded.
//!
//! The rules by which browsers build a tree let a small page become a huge one (open formatting elements are built again in
//! each paragraph) and look through all open elements at each tag. A mail needs a tree that is right for its text: `lexer`
//! and `tree` make one in linear time, of bounded depth; `page` writes it as Markdown.

mod entities;
mod lexer;
mod page;
mod style;
mod table;
mod tree;
mod writer;

pub use page::markdown;

#[cfg(test)]
mod tests;
