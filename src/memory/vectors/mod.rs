//! What memories mean, as vectors: made in the background by the model of `memory.embeddings`, so that also what is said
//! in other words is found.

mod asked;
mod keeper;
mod nearest;
mod texts;

pub use crate::store::vectors::remove;
pub(super) use asked::Vectors;
pub use keeper::VectorKeeper;
pub use nearest::nearest;

#[cfg(test)]
mod tests;
