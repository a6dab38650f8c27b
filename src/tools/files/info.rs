//! The tool `file_info`.

use std::sync::Arc;
use std::time::Duration;

use chardetng::{EncodingDetector, Iso2022JpDetection, Utf8Detection};
use encoding_rs::Encoding;
use jiff::Timestamp;
use rustix::fs::FileType;
use schemars::JsonSchema;
use serde::Deserialize;

use super::file_tool::{ReadTool, ShownFiles};
use super::scope::ReadScope;
use crate::guard::{EntryFacts, Jail, JailError};
use crate::text::plural;
use crate::tools::{Tool, ToolDefinition};

/// The maximum number of entries of a folder that are counted.
const MAX_COUNTED: usize = 50_000;
/// The number of leading bytes in which a NUL marks a binary file.
const BINARY_CHECK_BYTES: usize = 8_192;

#[derive(Deserialize, JsonSchema)]
struct FileInfoArgs {
    path: String,
}

/// Returns the tool `file_info`, which describes what a path names.
pub fn file_info(scope: ReadScope, timeout: Duration) -> Arc<dyn Tool> {
    let definition = ToolDefinition::reading::<FileInfoArgs>("file_info", "Kind, size, time and encoding of a file.");
    Arc::new(ReadTool::new(definition, scope, timeout, ShownFiles::Nowhere, |jail, args: &FileInfoArgs, _| {
        info(jail, &args.path)
    }))
}

fn info(jail: &Jail, path: &str) -> Result<String, JailError> {
    let facts = jail.facts(path)?;
    let mut parts = Vec::new();
    match facts.kind {
        FileType::RegularFile => {
            parts.push(format!("file, {} bytes", facts.size));
            parts.push(content(jail, path, &facts));
        }
        FileType::Directory => parts.push(folder(jail, path)),
        FileType::Symlink => {
            parts.push(format!("link to {}, not followed", facts.target.as_deref().unwrap_or("?")));
        }
        FileType::Fifo => parts.push("pipe".to_owned()),
        FileType::Socket => parts.push("socket".to_owned()),
        FileType::CharacterDevice => parts.push("character device".to_owned()),
        FileType::BlockDevice => parts.push("block device".to_owned()),
        FileType::Unknown => parts.push("of an unknown kind".to_owned()),
    }
    let modified = facts.modified.and_then(|at| Timestamp::try_from(at).ok());
    parts.extend(modified.map(|at| format!("modified {}", at.strftime("%Y-%m-%dT%H:%M:%SZ"))));
    parts.push(format!("mode {:04o}", facts.mode));
    Ok(format!("{}: {}", facts.shown, parts.join(", ")))
}

fn folder(jail: &Jail, path: &str) -> String {
    let counted = jail.folder(path).ok().and_then(|(folder, _)| folder.entries().ok());
    match counted.map(|entries| entries.take(MAX_COUNTED).count()) {
        None => "folder that cannot be listed".to_owned(),
        Some(MAX_COUNTED) => format!("folder, {MAX_COUNTED} entries or more"),
        Some(1) => "folder, 1 entry".to_owned(),
        Some(count) => format!("folder, {count} entries"),
    }
}

/// Describes the content of a file, if the jail serves it.
fn content(jail: &Jail, path: &str, facts: &EntryFacts) -> String {
    match jail.read(path) {
        Ok(file) => describe(&file.bytes),
        Err(JailError::TooLarge { limit, .. }) => format!("content not read, more than {limit} bytes"),
        Err(JailError::HardLink(_)) => format!("content not read, {} hard links", facts.hard_links),
        Err(_) => "content not readable".to_owned(),
    }
}

/// Returns the media type of a file's content. For a text, also returns the encoding, guessed if necessary, and the number of
/// lines.
fn describe(bytes: &[u8]) -> String {
    if bytes.is_empty() {
        return "empty".to_owned();
    }
    let media_type = infer::get(bytes).map(|kind| kind.mime_type());
    let (text, encoding) = match (Encoding::for_bom(bytes), std::str::from_utf8(bytes)) {
        (Some((encoding, _)), _) => (encoding.decode(bytes).0, format!("{} with BOM", encoding.name())),
        (None, _) if bytes.iter().take(BINARY_CHECK_BYTES).any(|byte| *byte == 0) => {
            return format!("{}, binary", media_type.unwrap_or("application/octet-stream"));
        }
        (None, Ok(text)) => (text.into(), if bytes.is_ascii() { "ASCII" } else { "UTF-8" }.to_owned()),
        (None, Err(_)) => {
            if let Some(media_type) = media_type.filter(|media_type| !media_type.starts_with("text/")) {
                return format!("{media_type}, binary");
            }
            let mut detector = EncodingDetector::new(Iso2022JpDetection::Allow);
            detector.feed(bytes, true);
            let guess = detector.guess(None, Utf8Detection::Deny);
            (guess.decode_without_bom_handling(bytes).0, format!("probably {}", guess.name()))
        }
    };
    let media_type = media_type.filter(|media_type| media_type.starts_with("text/")).unwrap_or("text/plain");
    format!("{media_type}, {encoding}, {}", plural(text.lines().count(), "line"))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::os::unix::net::UnixListener;

    use rustix::fs::{CWD, mknodat};
    use serde_json::json;

    use super::*;
    use crate::tools::testing::ToolFixture;
    use crate::tools::{PrivateFolders, ToolsConfig};

    #[test]
    fn contents_are_described() {
        let utf16: Vec<u8> =
            [0xfeff_u16].into_iter().chain("a\nb\n".encode_utf16()).flat_map(u16::to_le_bytes).collect();
        for (bytes, expected) in [
            (&b""[..], "empty"),
            (b"one\ntwo\n", "text/plain, ASCII, 2 lines"),
            (b"one", "text/plain, ASCII, 1 line"),
            ("zwölf\n".as_bytes(), "text/plain, UTF-8, 1 line"),
            (b"\xef\xbb\xbfx\n", "text/plain, UTF-8 with BOM, 1 line"),
            (&utf16, "text/plain, UTF-16LE with BOM, 2 lines"),
            (b"M\xfcller und S\xf6hne\n", "text/plain, probably windows-1252, 1 line"),
            (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "image/png, binary"),
            (b"\0\x01\x02", "application/octet-stream, binary"),
            (b"<!DOCTYPE html>\n<p>x", "text/html, ASCII, 2 lines"),
            (b"\xff\xd8\xff\xe0\x10", "image/jpeg, binary"),
        ] {
            assert_eq!(describe(bytes), expected, "{bytes:?}");
        }
    }

    #[tokio::test]
    async fn every_kind_of_entry_is_described_without_opening_it() {
        let config = ToolsConfig { max_file_size: daoyou_channels::settings::ByteSize(100), ..ToolsConfig::default() };
        let fixture = ToolFixture::with_private(&config, PrivateFolders::new(&["memory"]));
        fs::create_dir_all(fixture.path("folder/inner")).unwrap();
        fs::write(fixture.path("file"), "one\n").unwrap();
        fs::set_permissions(fixture.path("file"), fs::Permissions::from_mode(0o640)).unwrap();
        fs::write(fixture.path("large"), "x".repeat(101)).unwrap();
        fs::write(fixture.path("two"), "x").unwrap();
        fs::hard_link(fixture.path("two"), fixture.path("names")).unwrap();
        symlink("../token", fixture.path("link")).unwrap();
        mknodat(CWD, fixture.path("pipe"), FileType::Fifo, 0o600.into(), 0).unwrap();
        let _socket = UnixListener::bind(fixture.path("socket")).unwrap();
        for (path, expected) in [
            ("file", "file: file, 4 bytes, text/plain, ASCII, 1 line, modified 2"),
            ("./folder/../file", "folder/../file: file, 4 bytes"),
            ("folder", "folder: folder, 1 entry, modified"),
            ("folder/", "folder: folder, 1 entry"),
            (".", ".: folder, 8 entries"),
            ("large", "large: file, 101 bytes, content not read, more than 100 bytes"),
            ("names", "names: file, 1 bytes, content not read, 2 hard links"),
            ("link", "link: link to ../token, not followed"),
            ("pipe", "pipe: pipe, modified"),
            ("socket", "socket: socket, modified"),
            ("none", "Error: none: no such file or folder"),
            ("file/x", "Error: file: is not a folder"),
            ("../token", "Error: ../token: outside the workspace; only paths inside it can be used"),
            ("link/x", "Error: link/x: outside the workspace"),
            ("/etc/passwd", "Error: /etc/passwd: outside the workspace"),
            (".daoyou", "Error: .daoyou: off limits"),
            ("a\0b", "Error: the path is not valid: it holds a NUL"),
        ] {
            let rendered = fixture.rendered("file_info", json!({ "path": path })).await;
            assert!(rendered.starts_with(expected), "{path}: {rendered}");
        }
        assert!(fixture.rendered("stat", json!({ "path": "file" })).await.ends_with("mode 0640"));
    }
}
