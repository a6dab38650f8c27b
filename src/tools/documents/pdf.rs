//! The text of a PDF, page by page. The library panics on unexpected files, so panics are caught for each page.

use std::panic::{AssertUnwindSafe, catch_unwind};

use pdf_extract::{Document, Error, PlainTextOutput, output_doc_page};

use super::text_sink::TextSink;

/// The maximum number of pages that are read.
const MAX_PAGES: usize = 2_000;

/// Extracts the text of each page. Returns a description of the document.
///
/// # Errors
/// The file is broken or encrypted, or has no text.
pub(super) fn extract(bytes: &[u8], sink: &mut TextSink) -> Result<String, String> {
    let loaded = catch_unwind(AssertUnwindSafe(|| open(bytes)));
    let document = loaded.unwrap_or_else(|_| Err("the PDF is broken".to_owned()))?;
    let pages: Vec<u32> = document.get_pages().into_keys().collect();
    if pages.is_empty() {
        return Err("the PDF is broken: it has no pages".to_owned());
    }
    let mut has_text = false;
    for number in pages.iter().take(MAX_PAGES) {
        if sink.is_full() {
            break;
        }
        let text = page_text(&document, *number);
        has_text |= text.as_ref().is_none_or(|text| !text.trim().is_empty());
        sink.end_line();
        sink.push(&format!("\n[page {number}]\n"));
        sink.push(text.as_deref().unwrap_or("(this page cannot be read)").trim());
    }
    if !has_text {
        return Err(format!("the PDF holds no text: its {} pages are probably scanned images", pages.len()));
    }
    let rest = if pages.len() > MAX_PAGES { format!(", the first {MAX_PAGES} read") } else { String::new() };
    Ok(format!("PDF, {} pages{rest}", pages.len()))
}

fn open(bytes: &[u8]) -> Result<Document, String> {
    let locked = || "the PDF is encrypted; it needs a password".to_owned();
    let mut document = Document::load_mem(bytes).map_err(|error| match error {
        Error::Decryption(_) | Error::InvalidPassword => locked(),
        error => format!("the PDF is broken: {error}"),
    })?;
    // Many files are encrypted with an empty password.
    if document.is_encrypted() && document.decrypt("").is_err() {
        return Err(locked());
    }
    Ok(document)
}

/// Returns the text of a page; `None` if it cannot be read.
fn page_text(document: &Document, number: u32) -> Option<String> {
    let placed = catch_unwind(AssertUnwindSafe(|| {
        let mut text = String::new();
        output_doc_page(document, &mut PlainTextOutput::new(&mut text), number).ok().map(|()| text)
    }));
    let plain = || catch_unwind(AssertUnwindSafe(|| document.extract_text(&[number]).ok())).ok().flatten();
    placed.ok().flatten().or_else(plain)
}
