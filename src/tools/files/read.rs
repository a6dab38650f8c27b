//! The tool `read_file`, which reads pages of a text of any size and in any common encoding, and the text of documents.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::num::NonZeroU32;
use std::path::Path;
use std::time::Duration;

use async_trait::async_trait;
use infer::MatcherType;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::page::{PageRequest, TextPage, read_page};
use super::scope::{ReadScope, work_on_jail};
use super::text_stream::TextStream;
use crate::chat::{ImageRef, MAX_IMAGE_BYTES, SEEN_IMAGES};
use crate::guard::{Jail, OpenFile, StopSignal};
use crate::tools::documents::{DocumentReader, DocumentText, is_document};
use crate::tools::encoding::TextEncoding;
use crate::tools::output_limits::{note_cut, note_left};
use crate::tools::{OutputLimit, Tool, ToolContext, ToolDefinition, ToolOutcome, ToolResult};

/// The size of a page by default.
const DEFAULT_PAGE: OutputLimit = OutputLimit { lines: 200, chars: 5_000 };
/// The maximum size of a page, for calls with a `limit`.
const LARGE_PAGE: OutputLimit = OutputLimit { lines: 1_000, chars: 11_600 };
/// The size limit of the notes around a page.
const NOTES: OutputLimit = OutputLimit { chars: 400, lines: 4 };
/// The number of leading bytes by which the kind and the encoding of a file are detected.
pub(super) const START_BYTES: u64 = 256 * 1_024;
/// The number of leading bytes in which a zero marks a binary file.
const BINARY_CHECK_BYTES: usize = 8_192;
/// The maximum size of a file whose lines are counted, in bytes.
const MAX_COUNTED: u64 = 10_000_000;
/// The time limit for finding a page.
const MAX_TIME: Duration = Duration::from_secs(30);

#[derive(Clone, Deserialize, JsonSchema)]
struct ReadFileArgs {
    path: String,
    /// First line.
    offset: Option<NonZeroU32>,
    /// Lines, at most 1000.
    limit: Option<NonZeroU32>,
    column: Option<NonZeroU32>,
}

/// The tool `read_file`, which reads a file in pages of numbered lines.
pub struct ReadFile {
    definition: ToolDefinition,
    scope: ReadScope,
    documents: DocumentReader,
}

/// The content of an opened file.
enum OpenedContent {
    /// The result about a text or an image.
    Shown(Box<ToolResult>),
    Document {
        file: File,
        shown: String,
    },
}

impl ReadFile {
    pub(in crate::tools) fn new(scope: ReadScope, documents: DocumentReader) -> Self {
        let description = "Read a text, PDF or office file by pages of lines.";
        let definition = ToolDefinition {
            output_limit: OutputLimit { chars: LARGE_PAGE.chars + NOTES.chars, lines: LARGE_PAGE.lines + NOTES.lines },
            ..ToolDefinition::reading::<ReadFileArgs>("read_file", description)
        };
        Self { definition, scope, documents }
    }

    async fn read(&self, arguments: Value, context: &ToolContext) -> Result<ToolResult, String> {
        let stop = StopSignal::new(MAX_TIME, context.cancel.clone());
        let work = move |jail: &Jail, args: ReadFileArgs| Ok((open(jail, &args, &stop)?, args));
        let (file, shown, args) = match work_on_jail(self.scope.for_turn(context), arguments, work).await? {
            (OpenedContent::Shown(result), _) => return Ok(*result),
            (OpenedContent::Document { file, shown }, args) => (file, shown, args),
        };
        let document = self.documents.read(file).await.map_err(|error| format!("{shown}: {error}"))?;
        let stop = StopSignal::new(MAX_TIME, context.cancel.clone());
        let page = tokio::task::spawn_blocking(move || document_page(&document, &args, &stop)).await;
        page.map_err(|error| error.to_string())?
    }
}

#[async_trait]
impl Tool for ReadFile {
    fn definition(&self) -> &ToolDefinition {
        &self.definition
    }

    /// Returns true if an untrusted sender may see the file: the sender's own files, and public ones.
    fn allows_untrusted(&self, arguments: &Value, context: &ToolContext) -> bool {
        self.scope.allows_untrusted(arguments, context)
    }

    async fn call(&self, arguments: Value, context: &ToolContext) -> ToolOutcome {
        let source = self.scope.sources(&arguments, context);
        let mut outcome = ToolOutcome::from(self.read(arguments, context).await);
        outcome.result.add_sources(source);
        outcome
    }

    fn may_taint(&self, arguments: &Value, context: &ToolContext) -> bool {
        !self.scope.sources(arguments, context).is_empty()
    }
}

/// Opens a file, and reads the requested page if it is a text.
fn open(jail: &Jail, args: &ReadFileArgs, stop: &StopSignal) -> Result<OpenedContent, String> {
    let OpenFile { mut file, size, shown, .. } = jail.open_file(&args.path).map_err(|error| error.to_string())?;
    let failed = |error: std::io::Error| format!("{shown}: {error}");
    let mut start = Vec::new();
    (&file).take(START_BYTES).read_to_end(&mut start).map_err(failed)?;
    file.seek(SeekFrom::Start(0)).map_err(failed)?;
    if is_document(&start) {
        return Ok(OpenedContent::Document { file, shown });
    }
    let Some(encoding) = text_encoding(&start, size) else {
        let image = image_result(&start, size, &shown).ok_or_else(|| binary_kind(&start, size, &shown))?;
        return Ok(OpenedContent::Shown(Box::new(image)));
    };
    let is_counted = size <= MAX_COUNTED;
    let stream = TextStream::new(&file, encoding, stop);
    // The size describes only a file whose lines are not counted.
    let size_note = if is_counted { String::new() } else { format!("{} MB", size / 1_000_000) };
    let page = read_page(stream, page_request(args, is_counted), &size_note);
    let page = page.map_err(|error| format!("{shown}: {error}"))?;
    let whole_length = if page.is_whole {
        None
    } else if is_counted {
        // The page is good also if the rest of the file cannot be read.
        let sought = file.seek(SeekFrom::Start(0)).is_ok();
        sought.then(|| TextStream::new(&file, encoding, stop).count_chars().ok()).flatten()
    } else {
        usize::try_from(size).ok()
    };
    Ok(OpenedContent::Shown(Box::new(page_result(with_encoding(page, encoding), whole_length))))
}

/// Returns a page as a result. `whole_length` is the length of the whole text if the page leaves a part of it out: in characters,
/// or in bytes if they are not counted.
fn page_result(page: String, whole_length: Option<usize>) -> ToolResult {
    let chars = page.chars().count();
    let mut result = ToolResult::ok(page);
    if let Some(length) = whole_length {
        note_cut(&mut result.metadata, length);
        note_left(&mut result.metadata, chars);
    }
    result
}

/// Returns the encoding of a text; `None` if the file is not a text.
pub(super) fn text_encoding(start: &[u8], size: u64) -> Option<TextEncoding> {
    // Later zeros are shown as they are, since a log may contain some.
    let has_early_zero = start.iter().take(BINARY_CHECK_BYTES).any(|byte| *byte == 0);
    let zero = start.iter().position(|byte| *byte == 0).filter(|_| !has_early_zero);
    let start = &start[..zero.unwrap_or(start.len())];
    let found = TextEncoding::detect(start, start.len() as u64 == size)?;
    let is_plain = found.name().is_none() || found.is_wide() || found.mark > 0;
    // Almost any bytes are text in some encoding, so the signature of another file kind takes precedence.
    (is_plain || known_kind(start).is_none()).then_some(found)
}

fn known_kind(start: &[u8]) -> Option<&'static str> {
    let kind = infer::get(start).filter(|kind| kind.matcher_type() != MatcherType::Text)?;
    Some(kind.mime_type())
}

/// Returns the note about an image, and the image itself if a model may see it; `None` for other files.
fn image_result(start: &[u8], size: u64, shown: &str) -> Option<ToolResult> {
    let image = infer::get(start).filter(|kind| kind.matcher_type() == MatcherType::Image)?;
    let dimensions = imagesize::blob_size(start).ok()?;
    let (kind, width, height) = (image.mime_type(), dimensions.width, dimensions.height);
    // Images are read again when the request is sent, but only inside the workspace. Others get only a note.
    let is_inside = Path::new(shown).is_relative();
    let (image, what) = match SEEN_IMAGES.contains(&kind) {
        true if size > MAX_IMAGE_BYTES => (None, "too large to be shown (at most 3.7 MB)"),
        true if is_inside => {
            let image = ImageRef { path: shown.to_owned(), media_type: kind.to_owned() };
            (Some(image), "a model that sees gets it with this result")
        }
        true | false => (None, "only text can be read"),
    };
    let note = format!("{shown}: an image ({kind}) of {width} x {height} pixels, {size} bytes; {what}");
    Some(ToolResult { images: image.into_iter().collect(), ..ToolResult::ok(note) })
}

fn binary_kind(start: &[u8], size: u64, shown: &str) -> String {
    let kind = known_kind(start).map(|kind| format!(" ({kind})")).unwrap_or_default();
    format!("{shown}: a binary file of {size} bytes{kind}, not text")
}

fn page_request(args: &ReadFileArgs, counts_lines: bool) -> PageRequest {
    let limit = match args.limit {
        None => DEFAULT_PAGE,
        Some(lines) => OutputLimit { lines: (lines.get() as usize).min(LARGE_PAGE.lines), ..LARGE_PAGE },
    };
    let number = |asked: Option<NonZeroU32>| asked.map_or(1, NonZeroU32::get) as usize;
    PageRequest { line: number(args.offset), column: number(args.column), limit, counts_lines }
}

fn document_page(document: &DocumentText, args: &ReadFileArgs, stop: &StopSignal) -> Result<ToolResult, String> {
    let bytes = document.text.as_bytes();
    let encoding = TextEncoding { encoding: encoding_rs::UTF_8, mark: 0 };
    let page = read_page(TextStream::new(bytes, encoding, stop), page_request(args, true), "")?;
    let whole_length = (!page.is_whole).then(|| document.text.chars().count());
    Ok(page_result(format!("{}\n[{}]", page.text, document.summary), whole_length))
}

fn with_encoding(page: TextPage, encoding: TextEncoding) -> String {
    let mut text = page.text;
    if let Some(name) = encoding.name() {
        text.push_str(&format!("\n[encoding: {name}]"));
    }
    if page.has_invalid {
        let name = encoding.name().unwrap_or("UTF-8");
        text.push_str(&format!("\n[not {name} throughout: what could not be read is shown as \u{fffd}]"));
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::tools::ToolsConfig;
    use crate::tools::testing::{ToolFixture, context};

    #[tokio::test]
    async fn a_page_that_leaves_text_out_reports_the_length_of_the_whole() {
        let fixture = ToolFixture::new(&ToolsConfig::default());
        let lines = "界界\n".repeat(300);
        let large = "x\n".repeat(5_000_001);
        fixture.write(&[("short.txt", "a\nb\n"), ("long.txt", lines.as_str()), ("large.txt", large.as_str())]);
        let wide: Vec<u8> = format!("\u{feff}{lines}").encode_utf16().flat_map(u16::to_le_bytes).collect();
        std::fs::write(fixture.path("wide.txt"), wide).unwrap();
        for (arguments, whole) in [
            (json!({"path": "short.txt"}), None),
            (json!({"path": "short.txt", "limit": 2}), None),
            (json!({"path": "short.txt", "limit": 1}), Some(4)),
            (json!({"path": "short.txt", "offset": 2}), Some(4)),
            (json!({"path": "long.txt"}), Some(900)),
            (json!({"path": "long.txt", "limit": 300}), None),
            (json!({"path": "wide.txt"}), Some(900)),
            (json!({"path": "large.txt"}), Some(10_000_002)),
        ] {
            let result = fixture.run("read_file", &arguments, &context()).await.result;
            let shown = result.content.chars().count();
            let expected = whole.map_or(
                json!({}),
                |whole| json!({"truncated": true, "original_length": whole, "truncated_length": shown}),
            );
            assert_eq!(Value::Object(result.metadata), expected, "{arguments}");
        }
    }

    #[tokio::test]
    async fn a_line_or_a_number_of_lines_that_does_not_exist_is_refused() {
        let fixture = ToolFixture::new(&ToolsConfig::default());
        fixture.write(&[("a.txt", "a\nb\n")]);
        for (arguments, expected) in [
            (json!({"path": "a.txt", "limit": 0}), "limit: must be at least 1"),
            (json!({"path": "a.txt", "offset": 0}), "offset: must be at least 1"),
            (json!({"path": "a.txt", "column": 0}), "column: must be at least 1"),
            (json!({"path": "a.txt", "offset": -1}), "offset: must be at least 1"),
        ] {
            let rendered = fixture.rendered("read_file", arguments.clone()).await;
            let expected = format!("Error: Invalid params for tool \"read_file\": {expected}");
            assert!(rendered.starts_with(&expected), "{arguments}: {rendered}");
        }
        let parameters = &fixture.executor.registry().get("read_file").unwrap().spec().parameters["properties"];
        assert!(["limit", "offset", "column"].iter().all(|name| parameters[name]["minimum"] == 1), "{parameters}");
    }

    #[test]
    fn images_are_described() {
        let png =
            [&b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"[..], &640_u32.to_be_bytes(), &480_u32.to_be_bytes(), &[8, 6, 0, 0, 0]];
        let gif = [&b"GIF89a"[..], &7_u16.to_le_bytes(), &9_u16.to_le_bytes(), &[0, 0, 0]];
        let (png, gif) = (png.concat(), gif.concat());
        let bitmap = [&b"BM"[..], &[0; 16], &4_u32.to_le_bytes(), &5_u32.to_le_bytes(), &[0; 28]].concat();
        for (bytes, shown, size, expected) in [
            (&png, "f", 29, Some(("(image/png) of 640 x 480 pixels, 29 bytes; a model that sees", true))),
            (&gif, "f", 13, Some(("(image/gif) of 7 x 9 pixels, 13 bytes; a model that sees", true))),
            (&png, "f", 4_000_000, Some(("too large to be shown", false))),
            (&png, "/outside/f", 29, Some(("only text can be read", false))),
            (&b"\x89PNG\r\n\x1a\n".to_vec(), "f", 8, None),
            (&b"\x7fELF\x02\x01".to_vec(), "f", 6, None),
            (&bitmap, "f", 54, None),
        ] {
            match (image_result(bytes, size, shown), expected) {
                (Some(ToolResult { content: note, images, .. }), Some((words, is_seen))) => {
                    assert!(note.starts_with(&format!("{shown}: an image (")) && note.contains(words), "{note}");
                    assert_eq!(!images.is_empty(), is_seen, "{note}");
                }
                (found, expected) => assert!(found.is_none() && expected.is_none(), "{shown} {size}"),
            }
        }
    }

    #[test]
    fn other_files_than_texts_are_named() {
        let png = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR";
        let program = [&b"\x7fELF\x02\x01\x01"[..], &[0; 64]].concat();
        let jpeg = b"\xff\xd8\xff\xe0\xf1\xe2 JFIF without zero";
        for (start, expected) in [
            (&png[..], Some("(image/png)")),
            (&jpeg[..], Some("(image/jpeg)")),
            (&program, Some("(application/x-executable)")),
            (b"a\0b", Some("3 bytes, not text")),
            (b"MZ is a start as good as any", None),
            (b"#!/bin/sh\n", None),
            ("caf\u{e9}".as_bytes(), None),
            (b"le caf\xe9 noir", None),
        ] {
            let found = text_encoding(start, start.len() as u64);
            assert_eq!(found.is_none(), expected.is_some(), "{start:?}");
            let kind = binary_kind(start, start.len() as u64, "f");
            assert!(kind.contains(expected.unwrap_or_default()), "{kind}");
        }
        let log = [vec![b'a'; BINARY_CHECK_BYTES], vec![0; 64]].concat();
        assert!(text_encoding(&log, log.len() as u64).is_some());
    }
}
