//! The text of DOCX, PPTX, ODT and ODP: XML in an archive. Nothing recurses, and entities that the document defines are not
//! expanded.

use std::borrow::Cow;
use std::collections::HashMap;

use quick_xml::Reader;
use quick_xml::escape::unescape;
use quick_xml::events::{BytesRef, BytesStart, Event};

use super::archive::DocumentArchive;
use super::text_sink::TextSink;

/// The separator between the cells of a table.
const CELL: &str = " | ";
/// The maximum heading level of Markdown.
const MAX_HEADING: usize = 6;

/// The formats, which differ in the names of the relevant elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OfficeFormat {
    /// DOCX and PPTX (ECMA-376): text is in `t`.
    Office,
    /// ODT and ODP (ISO 26300): text is in paragraphs.
    OpenDocument,
}

/// Extracts the text of a DOCX whose main part has this name. Returns a description of it.
pub(super) fn extract_docx(
    archive: &mut DocumentArchive<'_>,
    main: &str,
    sink: &mut TextSink,
) -> Result<String, String> {
    TextWalker::new(OfficeFormat::Office).walk(&archive.read_text(main)?, sink)?;
    for notes in ["word/footnotes.xml", "word/endnotes.xml"] {
        if archive.has(notes) {
            sink.end_line();
            TextWalker::new(OfficeFormat::Office).walk(&archive.read_text(notes)?, sink)?;
        }
    }
    Ok("DOCX".to_owned())
}

/// Extracts the text of a PPTX, slide by slide. Returns a description of it.
pub(super) fn extract_pptx(archive: &mut DocumentArchive<'_>, sink: &mut TextSink) -> Result<String, String> {
    let order = attributes_of(&archive.read_text("ppt/presentation.xml")?, "sldId", ["id"])?;
    let relations =
        attributes_of(&archive.read_text("ppt/_rels/presentation.xml.rels")?, "Relationship", ["Id", "Target"])?;
    let targets: HashMap<_, _> = relations.into_iter().map(|[id, target]| (id, target)).collect();
    let mut slides = 0_usize;
    for [id] in &order {
        if sink.is_full() {
            break;
        }
        let Some(target) = targets.get(id) else { continue };
        let name = target.strip_prefix('/').map_or_else(|| format!("ppt/{target}"), str::to_owned);
        slides += 1;
        sink.end_line();
        sink.push(&format!("\n[slide {slides}]\n"));
        TextWalker::new(OfficeFormat::Office).walk(&archive.read_text(&name)?, sink)?;
    }
    Ok(format!("PPTX, {slides} slides"))
}

/// Extracts the text of an ODT or ODP. Returns a description of it.
pub(super) fn extract_open_document(archive: &mut DocumentArchive<'_>, sink: &mut TextSink) -> Result<String, String> {
    TextWalker::new(OfficeFormat::OpenDocument).walk(&archive.read_text("content.xml")?, sink)?;
    Ok("OpenDocument".to_owned())
}

/// Returns the attributes `names` of each element `element` that has all of them. Names are compared without prefix. An attribute
/// with a prefix takes precedence over one without.
pub(super) fn attributes_of<const N: usize>(
    xml: &str,
    element: &str,
    names: [&str; N],
) -> Result<Vec<[String; N]>, String> {
    let mut reader = Reader::from_str(xml);
    let mut found = Vec::new();
    loop {
        match reader.read_event().map_err(broken)? {
            Event::Start(start) | Event::Empty(start) if start.local_name().as_ref() == element => {
                let values: Vec<String> = names.iter().filter_map(|name| attribute(&start, name)).collect();
                found.extend(<[String; N]>::try_from(values));
            }
            Event::Eof => return Ok(found),
            _ => {}
        }
    }
}

fn attribute(element: &BytesStart<'_>, name: &str) -> Option<String> {
    let mut plain = None;
    for attribute in element.attributes().flatten() {
        if attribute.key.local_name().as_ref() == name {
            let raw = &*attribute.value;
            let value = unescape(raw).map_or_else(|_| raw.to_owned(), Cow::into_owned);
            if attribute.key.prefix().is_some() {
                return Some(value);
            }
            plain = Some(value);
        }
    }
    plain
}

fn broken(error: impl std::fmt::Display) -> String {
    format!("its XML is broken: {error}")
}

/// A walker through the XML of a text.
struct TextWalker {
    dialect: OfficeFormat,
    /// The number of open elements that hold text.
    texts: usize,
    /// The number of open elements whose content is not text, such as the alternative form of a drawing.
    skipped: usize,
    /// The number of open cells of tables.
    cells: usize,
    /// The text that precedes the text of the paragraph.
    prefix: String,
}

impl TextWalker {
    fn new(dialect: OfficeFormat) -> Self {
        Self { dialect, texts: 0, skipped: 0, cells: 0, prefix: String::new() }
    }

    fn walk(mut self, xml: &str, sink: &mut TextSink) -> Result<(), String> {
        let mut reader = Reader::from_str(xml);
        while !sink.is_full() {
            match reader.read_event().map_err(broken)? {
                Event::Start(element) => self.start(&element, sink),
                Event::Empty(element) => {
                    self.start(&element, sink);
                    self.end(element.local_name().as_ref(), sink);
                }
                Event::End(element) => self.end(element.local_name().as_ref(), sink),
                Event::Text(text) => self.text(&text.xml10_content(), sink),
                Event::CData(text) => self.text(&text.xml10_content(), sink),
                Event::GeneralRef(reference) => self.text(&character(&reference), sink),
                Event::Eof => return Ok(()),
                _ => {}
            }
        }
        Ok(())
    }

    fn start(&mut self, element: &BytesStart<'_>, sink: &mut TextSink) {
        let name = element.local_name();
        let name = name.as_ref();
        if self.is_skipped(name) {
            self.skipped += 1;
        }
        if self.skipped > 0 {
            if name == "pStyle" {
                self.set_heading(&attribute(element, "val").unwrap_or_default());
            } else if name == "numPr" && self.prefix.is_empty() {
                self.prefix.push_str("- ");
            }
            return;
        }
        if self.is_text(name) {
            self.texts += 1;
        }
        match (self.dialect, name) {
            (_, "tc" | "table-cell") => self.cells += 1,
            (_, "tab") => sink.push("\t"),
            (OfficeFormat::Office, "br" | "cr") | (OfficeFormat::OpenDocument, "line-break") => self.break_line(sink),
            (OfficeFormat::OpenDocument, "s") => sink.push(" "),
            (OfficeFormat::OpenDocument, "h") => {
                let level = attribute(element, "outline-level").and_then(|level| level.parse().ok()).unwrap_or(1);
                self.prefix = heading(level);
            }
            (OfficeFormat::OpenDocument, "list-item") => self.prefix = "- ".to_owned(),
            _ => {}
        }
    }

    fn end(&mut self, name: &str, sink: &mut TextSink) {
        if self.is_skipped(name) {
            self.skipped = self.skipped.saturating_sub(1);
            return;
        }
        if self.skipped > 0 {
            return;
        }
        if self.is_text(name) {
            self.texts = self.texts.saturating_sub(1);
        }
        match name {
            "p" | "h" => {
                self.prefix.clear();
                self.break_line(sink);
            }
            "tc" | "table-cell" => {
                self.cells = self.cells.saturating_sub(1);
                sink.trim_end();
                sink.push(CELL);
            }
            "tr" | "table-row" => {
                sink.trim_ending(CELL);
                self.break_line(sink);
            }
            _ => {}
        }
    }

    fn text(&mut self, text: &str, sink: &mut TextSink) {
        if self.texts == 0 || self.skipped > 0 {
            return;
        }
        sink.push(&std::mem::take(&mut self.prefix));
        sink.push(text);
    }

    /// Breaks the line. Within a cell, a space replaces the line break.
    fn break_line(&self, sink: &mut TextSink) {
        if self.cells > 0 { sink.push(" ") } else { sink.break_line() }
    }

    fn is_text(&self, name: &str) -> bool {
        match self.dialect {
            OfficeFormat::Office => name == "t",
            OfficeFormat::OpenDocument => matches!(name, "p" | "h"),
        }
    }

    /// Returns true for elements without text for the reader: properties of paragraphs (where `tab` is a position), the old form
    /// of a drawing, and deleted text.
    fn is_skipped(&self, name: &str) -> bool {
        match self.dialect {
            OfficeFormat::Office => matches!(name, "pPr" | "Fallback"),
            OfficeFormat::OpenDocument => matches!(name, "tracked-changes" | "annotation"),
        }
    }

    fn set_heading(&mut self, style: &str) {
        let style = style.to_ascii_lowercase();
        let level = style.strip_prefix("heading").map(str::trim).and_then(|level| level.parse().ok());
        if let Some(level) = level.or((style == "title").then_some(1)) {
            self.prefix = heading(level);
        }
    }
}

fn heading(level: usize) -> String {
    format!("{} ", "#".repeat(level.clamp(1, MAX_HEADING)))
}

/// Returns the character that a reference denotes. An entity that the document defines gives nothing.
fn character(reference: &BytesRef<'_>) -> String {
    if let Ok(Some(character)) = reference.resolve_char_ref() {
        return character.to_string();
    }
    let name: &str = reference.as_ref();
    quick_xml::escape::resolve_predefined_entity(name).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(dialect: OfficeFormat, xml: &str) -> Result<String, String> {
        let mut sink = TextSink::new();
        TextWalker::new(dialect).walk(xml, &mut sink)?;
        Ok(sink.finish().0)
    }

    #[test]
    fn attributes_are_unescaped() {
        for (value, expected) in [("x&amp;y.xhtml", "x&y.xhtml"), ("&#x4e8c;", "二"), ("a&b", "a&b")] {
            let found = attributes_of(&format!("<p><item href='{value}'/></p>"), "item", ["href"]).unwrap();
            assert_eq!(found, [[expected]]);
        }
    }

    #[test]
    fn paragraphs_headings_lists_and_tables_keep_their_form() {
        let docx = "<w:document xmlns:w='w'><w:body>\
            <w:p><w:pPr><w:pStyle w:val='Heading2'/><w:tabs><w:tab w:pos='9'/></w:tabs></w:pPr><w:r><w:t>Title</w:t></w:r></w:p>\
            <w:p><w:r><w:t>one &amp; &#x4e8c;</w:t><w:tab/><w:t>two</w:t><w:br/><w:t>three</w:t></w:r><w:del><w:delText>gone</w:delText></w:del></w:p>\
            <w:p><w:pPr><w:numPr/></w:pPr><w:r><w:t>item</w:t></w:r></w:p>\
            <w:tbl><w:tr><w:tc><w:p><w:r><w:t>a</w:t></w:r></w:p></w:tc><w:tc><w:p><w:r><w:t>b</w:t></w:r></w:p></w:tc></w:tr></w:tbl>\
            <mc:AlternateContent><mc:Choice><w:t>shape</w:t></mc:Choice><mc:Fallback><w:t>shape</w:t></mc:Fallback></mc:AlternateContent>\
            </w:body></w:document>";
        assert_eq!(text(OfficeFormat::Office, docx).unwrap(), "## Title\none & 二\ttwo\nthree\n- item\na | b\nshape");
        let odt = "<o:text><text:tracked-changes><text:p>gone</text:p></text:tracked-changes><text:h text:outline-level='1'>Top</text:h>\
            <text:p>a<text:s/>b <text:span>c</text:span><text:line-break/>d</text:p>\
            <text:list><text:list-item><text:p>item</text:p></text:list-item></text:list>\
            <table:table-row><table:table-cell><text:p>x</text:p></table:table-cell><table:table-cell><text:p>y</text:p></table:table-cell></table:table-row></o:text>";
        assert_eq!(text(OfficeFormat::OpenDocument, odt).unwrap(), "# Top\na b c\nd\n- item\nx | y");
    }

    #[test]
    fn hostile_xml_is_read_or_refused_but_not_expanded() {
        let laughs = "<!DOCTYPE x [<!ENTITY a 'ha'><!ENTITY b '&a;&a;&a;'>]><x><t>[&b;]</t></x>";
        assert_eq!(text(OfficeFormat::Office, laughs).unwrap(), "[]");
        let deep = format!("{}<t>deep</t>{}", "<a>".repeat(100_000), "</a>".repeat(100_000));
        assert_eq!(text(OfficeFormat::Office, &deep).unwrap(), "deep");
        for broken in ["<a></b>", "<a", "<t>x</t></t>"] {
            assert!(text(OfficeFormat::Office, broken).unwrap_err().contains("XML is broken"), "{broken}");
        }
    }
}
