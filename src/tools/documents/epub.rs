//! The text of an EPUB: the chapters in the order of its spine, as Markdown.

use std::collections::HashMap;

use percent_encoding::percent_decode_str;

use super::archive::DocumentArchive;
use super::html;
use super::office::attributes_of;
use super::text_sink::TextSink;

/// The file that names the package file of the book.
pub(super) const CONTAINER: &str = "META-INF/container.xml";

/// Extracts the text of the book. Returns a description of it.
///
/// # Errors
/// The book is broken.
pub(super) fn extract(archive: &mut DocumentArchive<'_>, sink: &mut TextSink) -> Result<String, String> {
    let roots = attributes_of(&archive.read_text(CONTAINER)?, "rootfile", ["full-path"])?;
    let [root] = roots.first().ok_or("the EPUB names no package")?;
    let package = archive.read_text(root)?;
    let folder = root.rsplit_once('/').map_or("", |(folder, _)| folder);
    let items = attributes_of(&package, "item", ["id", "href"])?;
    let files: HashMap<_, _> = items.into_iter().map(|[id, href]| (id, href)).collect();
    let spine = attributes_of(&package, "itemref", ["idref"])?;
    let mut chapters = 0_usize;
    for [id] in &spine {
        if sink.is_full() {
            break;
        }
        let Some(href) = files.get(id) else { continue };
        chapters += 1;
        let text = archive.read_text(&path_of(folder, href)).and_then(|chapter| html::markdown(&chapter));
        sink.end_line();
        match text {
            Ok(text) => sink.push(&format!("\n{text}\n")),
            Err(error) => sink.push(&format!("\n[chapter {chapters} is left out: {error}]\n")),
        }
    }
    Ok(format!("EPUB, {chapters} chapters"))
}

/// Returns the path in the archive of a file that the package refers to.
fn path_of(folder: &str, href: &str) -> String {
    let href = href.split('#').next().unwrap_or_default();
    let href = percent_decode_str(href).decode_utf8_lossy();
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in href.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_chapters_are_relative_to_the_package() {
        for (folder, href, expected) in [
            ("", "a.xhtml", "a.xhtml"),
            ("OEBPS", "text/one%20two.xhtml#top", "OEBPS/text/one two.xhtml"),
            ("OEBPS/pkg", "../text/./a.xhtml", "OEBPS/text/a.xhtml"),
            ("a", "../../../b", "b"),
        ] {
            assert_eq!(path_of(folder, href), expected);
        }
    }
}
