//! Converts the HTML of mails to Markdown: `tree` builds a bounded tree, and `render` writes it.

mod render;
mod table;
mod tree;
mod visibility;
mod writer;

pub use render::markdown;

#[cfg(test)]
mod tests;
