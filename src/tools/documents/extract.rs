//! The process that extracts the text of one document or web page. It reads the file from its standard input and writes the text to its
//! standard output.

use std::io::{self, Read, Write};
use std::process::ExitCode;

use rustix::process::{Resource, Rlimit, setrlimit};

use super::archive::DocumentArchive;
use super::text_sink::TextSink;
use super::{article, epub, office, pdf, sheets};
use crate::guard::give_up_access;

/// The argument that starts this program as an extractor.
pub const EXTRACT_COMMAND: &str = "__extract";
/// The second argument if the input is a web page: a line with its address, followed by its HTML in UTF-8.
pub(super) const PAGE_INPUT: &str = "page";
/// The largest document, in bytes.
pub(super) const MAX_DOCUMENT: u64 = 100_000_000;
/// The memory limit of the process, in bytes.
pub(super) const MAX_MEMORY: u64 = 768_000_000;
/// The processor time limits of the process, in seconds.
const MAX_PROCESSOR_TIME: u64 = 60;
const MAX_PAGE_PROCESSOR_TIME: u64 = 20;
/// The exit code for a refusal; the reason is on the output.
pub(super) const REFUSED: u8 = 3;
/// The maximum offset of the marker of a PDF in a file, in bytes.
const PDF_MARK_WITHIN: usize = 1_024;
const ZIP_MARK: &[u8] = b"PK\x03\x04";
/// The marker of the compound files of older office programs.
const COMPOUND_MARK: &[u8] = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1";

/// Returns true if a file with this beginning may be a document.
pub(crate) fn is_document(start: &[u8]) -> bool {
    start.starts_with(ZIP_MARK) || start.starts_with(COMPOUND_MARK) || is_pdf(start)
}

fn is_pdf(start: &[u8]) -> bool {
    let start = &start[..start.len().min(PDF_MARK_WITHIN)];
    start.starts_with(b"%PDF-") || (start.contains(&0) && start.windows(5).any(|at| at == b"%PDF-"))
}

/// Runs the extractor to its end.
pub fn extract_main() -> ExitCode {
    // If the machine runs out of memory, this process is killed first.
    drop(std::fs::write("/proc/self/oom_score_adj", "1000"));
    let is_page = std::env::args_os().nth(2).is_some_and(|input| input == PAGE_INPUT);
    let time = if is_page { MAX_PAGE_PROCESSOR_TIME } else { MAX_PROCESSOR_TIME };
    // At the hard limit of time, the kernel sends SIGKILL instead of SIGXCPU, which names the reason.
    let limits = [
        (Resource::Core, 0, 0),
        (Resource::Data, MAX_MEMORY, MAX_MEMORY),
        (Resource::Cpu, time, time + 1),
        (Resource::Fsize, MAX_DOCUMENT, MAX_DOCUMENT),
    ];
    for (resource, current, maximum) in limits {
        let inherited = rustix::process::getrlimit(resource).maximum.unwrap_or(u64::MAX);
        let limit = Rlimit { current: Some(current.min(inherited)), maximum: Some(maximum.min(inherited)) };
        if setrlimit(resource, limit).is_err() {
            return ExitCode::FAILURE;
        }
    }
    give_up_access();
    let mut bytes = Vec::new();
    if io::stdin().lock().take(MAX_DOCUMENT + 1).read_to_end(&mut bytes).is_err() {
        return ExitCode::FAILURE;
    }
    let extracted = if is_page { extract_page(&bytes) } else { extract(&bytes) };
    let (code, output) = match extracted {
        Ok(output) => (ExitCode::SUCCESS, output),
        Err(reason) => (ExitCode::from(REFUSED), reason),
    };
    let written = io::stdout().lock().write_all(output.as_bytes());
    if written.is_ok() { code } else { ExitCode::FAILURE }
}

/// Returns a line with the title of a web page, followed by its text.
fn extract_page(bytes: &[u8]) -> Result<String, String> {
    let input = String::from_utf8_lossy(bytes);
    let (url, html) = input.split_once('\n').unwrap_or_default();
    let article = article::read(html, url)?;
    Ok(format!("{}\n{}", article.title, article.text))
}

/// Returns a line that describes the document, followed by its text.
fn extract(bytes: &[u8]) -> Result<String, String> {
    if bytes.len() as u64 > MAX_DOCUMENT {
        return Err(format!("the document has more than {} MB, which is not read", MAX_DOCUMENT / 1_000_000));
    }
    let mut sink = TextSink::new();
    let mut summary = if is_pdf(bytes) {
        pdf::extract(bytes, &mut sink)
    } else if bytes.starts_with(COMPOUND_MARK) {
        extract_compound(bytes, &mut sink)
    } else {
        extract_archive(bytes, &mut sink)
    }?;
    let (text, is_cut) = sink.finish();
    if is_cut {
        summary.push_str(", cut: the rest is not read");
    }
    Ok(format!("{summary}\n{text}"))
}

fn extract_archive(bytes: &[u8], sink: &mut TextSink) -> Result<String, String> {
    let mut archive = DocumentArchive::open(bytes)?;
    let names = archive.names();
    let is_word = |name: &&String| name.starts_with("word/document") && name.ends_with(".xml");
    if let Some(main) = names.iter().find(is_word) {
        return office::extract_docx(&mut archive, main, sink);
    }
    if archive.has("ppt/presentation.xml") {
        return office::extract_pptx(&mut archive, sink);
    }
    if archive.has("xl/workbook.xml") || archive.has("xl/workbook.bin") {
        return sheets::extract(bytes, sink);
    }
    if archive.has(epub::CONTAINER) {
        return epub::extract(&mut archive, sink);
    }
    let kind = if archive.has("mimetype") { archive.read_text("mimetype")? } else { String::new() };
    match kind.trim().strip_prefix("application/vnd.oasis.opendocument.").unwrap_or_default() {
        "spreadsheet" => sheets::extract(bytes, sink),
        "text" | "presentation" => office::extract_open_document(&mut archive, sink),
        _ => Err(format!("a ZIP archive of {} files, not a document; unpack it with exec", names.len())),
    }
}

/// Extracts a file of an older office program. The names of its streams, which are in UTF-16, identify the kind of file.
fn extract_compound(bytes: &[u8], sink: &mut TextSink) -> Result<String, String> {
    let has = |name: &str| {
        let name: Vec<u8> = name.encode_utf16().flat_map(u16::to_le_bytes).collect();
        bytes.windows(name.len()).any(|at| at == name)
    };
    if has("EncryptedPackage") {
        return Err("the document is encrypted; it needs a password".to_owned());
    }
    if has("Workbook") || has("Book") {
        return sheets::extract(bytes, sink);
    }
    let kind = match (has("WordDocument"), has("PowerPoint Document")) {
        (true, _) => "a document of Word 97 (.doc); convert it to .docx",
        (_, true) => "a presentation of PowerPoint 97 (.ppt); convert it to .pptx",
        _ => "a compound file of an office program, of an unknown kind",
    };
    Err(kind.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn broken_documents_are_refused_with_the_reason() {
        let compound = |name: &str| {
            let name: Vec<u8> = name.encode_utf16().flat_map(u16::to_le_bytes).collect();
            [COMPOUND_MARK, &name].concat()
        };
        for (bytes, expected) in [
            (b"%PDF-1.7\nnothing".to_vec(), "the PDF is broken"),
            (b"PK\x03\x04 cut".to_vec(), "the ZIP archive is broken"),
            (compound("WordDocument"), "Word 97"),
            (compound("EncryptedPackage"), "is encrypted"),
            (compound("Workbook"), "the workbook cannot be read"),
            (compound("else"), "unknown kind"),
        ] {
            assert!(is_document(&bytes));
            let error = extract(&bytes).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
        let page = extract_page(b"https://example.org/a/\n<title> T\n u </title><p>See <a href=b>b</a>.").unwrap();
        assert!(page.starts_with("T u\nSee [b]("), "{page}");
        for other in [&b"plain"[..], b"", b"see %PDF-1.7", b"\x89PNG\r\n\x1a\n\0"] {
            assert!(!is_document(other), "{other:?}");
        }
    }
}
