//! The text of documents: PDF, DOCX, PPTX, ODT, ODP, EPUB, XLSX, XLSB, XLS, ODS, and web pages in HTML.
//!
//! A document can make the parsing libraries panic, recurse and allocate, and documents come from strangers. A separate process
//! therefore reads each document, with limits on memory and time: a malicious file ends that process, not the gateway.

mod archive;
mod article;
mod epub;
mod extract;
mod html;
mod office;
mod pdf;
mod reader;
mod sheets;
mod text_sink;

pub(super) use extract::is_document;
pub use extract::{EXTRACT_COMMAND, extract_main};
pub(super) use reader::{DocumentReader, DocumentText};
