//! The text of documents: PDF, DOCX, PPTX, ODT, ODP, EPUB, XLSX, XLSB, XLS and ODS.
//!
//! The libraries that parse them panic, recurse and allocate as the file says, and files come from strangers. So a document is
//! read in a process of its own, with bounds on memory and time: a hostile file ends that process, not the gateway.

mod archive;
mod epub;
mod extract;
pub(super) mod html;
mod office;
mod pdf;
mod reader;
mod sheets;
mod text_sink;

pub(super) use extract::is_document;
pub use extract::{EXTRACT_COMMAND, extract_main};
pub(super) use reader::{DocumentReader, DocumentText};
