//! Documents: the text that `read_file` extracts from each kind, and the errors for broken, locked or hostile ones.

use std::io::Write;

use serde_json::json;
use zip::ZipWriter;
use zip::write::SimpleFileOptions;

use crate::support::processes::peak_bytes;
use crate::support::{Gateway, Model, Setup};

/// Starts a gateway whose model reads the files that a message names.
async fn start() -> (Model, Gateway) {
    let model = Model::start().await;
    model.call_named_tools();
    let gateway = Gateway::start(Setup::scripted(&model)).await;
    (model, gateway)
}

async fn read(gateway: &Gateway, file: &str) -> String {
    gateway.call_tool("read_file", &json!({ "path": file })).await
}

/// Returns an archive of these files.
fn archive(files: &[(&str, &str)]) -> Vec<u8> {
    let mut archive = ZipWriter::new(std::io::Cursor::new(Vec::new()));
    for (name, text) in files {
        archive.start_file(*name, SimpleFileOptions::default()).unwrap();
        archive.write_all(text.as_bytes()).unwrap();
    }
    archive.finish().unwrap().into_inner()
}

#[tokio::test(flavor = "multi_thread")]
async fn each_kind_of_document_is_read_as_text() {
    let (_model, gateway) = start().await;
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/documents");
    for entry in std::fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), gateway.workspace().join(entry.file_name())).unwrap();
    }
    for (file, parts) in [
        (
            "report.docx",
            &["1\t# Report\n", "six & leaves at noon.", "潮水六点来", "port | depth\n", "North | 12 m", "[DOCX]"][..],
        ),
        ("slides.pptx", &["[slide 1]\n2\tPrices\n3\tSalt and wool\n", "[slide 2]\n", "Harbour", "[PPTX, 2 slides]"]),
        (
            "ships.xlsx",
            &[
                "[sheet Ships]\n", "name\tbuilt\ttons\n", "Nina\t1990-03-15\t52.5\n", "1991-05-01 12:30:00", "near\n",
                "[row 1048576]\n", "\tfar away", "[XLSX, 2 sheets]",
            ],
        ),
        ("old.xls", &["[sheet Old]\n", "salt\t7.5\n", "\t\twool", "[XLS, 1 sheets]"]),
        ("log.odt", &["1\t## Log\n", "Fog in the morning.", "[OpenDocument]"]),
        ("crew.ods", &["[sheet Crew]\n", "cook\tAnn\n", "mate\tBo", "[ODS, 1 sheets]"]),
        ("book.epub", &["# Departure\n", "They **sailed** west.", "# Landfall\n", "An island.", "[EPUB, 2 chapters]"]),
        (
            "directions.pdf",
            &["1\t[page 1]\n", "Keep the tower to port.", "[page 2]\n", "ten metres.", "[PDF, 2 pages]"],
        ),
        ("owner-locked.pdf", &["Keep the tower to port.", "[PDF, 2 pages]"]),
        ("locked.pdf", &["Error: locked.pdf: the PDF is encrypted; it needs a password"]),
        ("scan.pdf", &["Error: scan.pdf: the PDF holds no text: its 1 pages are probably scanned images"]),
    ] {
        let result = read(&gateway, file).await;
        for part in parts {
            assert!(result.contains(part), "{file}, {part:?}: {result}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broken_or_hostile_document_is_one_clear_error() {
    let (_model, gateway) = start().await;
    assert!(read(&gateway, "AGENTS.md").await.starts_with("1\t"));
    let relation = |n: usize| format!("<Relationship Id='r{n}' Target='slides/slide.xml'/>");
    let order: String = (0..80).map(|n| format!("<p:sldId r:id='r{n}'/>")).collect();
    let relations: String = (0..80).map(relation).collect();
    let slide = format!("<a>{}</a>", " ".repeat(2_000_000));
    let bomb = archive(&[
        ("ppt/presentation.xml", &format!("<p>{order}</p>")),
        ("ppt/_rels/presentation.xml.rels", &format!("<r>{relations}</r>")),
        ("ppt/slides/slide.xml", &slide),
    ]);
    let laughs: String = (1..30).map(|n| format!("<!ENTITY e{n} '&e{0};&e{0};&e{0};&e{0};'>", n - 1)).collect();
    let laughs = format!("<!DOCTYPE d [<!ENTITY e0 'ha'>{laughs}]><d><t>so &e29; it ends</t></d>");
    let deep = format!("<d>{}<t>deep down</t>{}</d>", "<p>".repeat(300_000), "</p>".repeat(300_000));
    let directions = include_bytes!("data/documents/directions.pdf");
    let report = include_bytes!("data/documents/report.docx");
    // A form object that includes itself.
    let endless = "%PDF-1.4\n1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj\n2 0 obj<</Type/Pages/Kids[3 0 R]/Count 1>>endobj\n\
        3 0 obj<</Type/Page/Parent 2 0 R/MediaBox[0 0 9 9]/Resources<</XObject<</F 4 0 R>>>>/Contents 5 0 R>>endobj\n\
        4 0 obj<</Type/XObject/Subtype/Form/BBox[0 0 9 9]/Resources<</XObject<</F 4 0 R>>>>/Length 5>>stream\n/F Do\nendstream endobj\n\
        5 0 obj<</Length 5>>stream\n/F Do\nendstream endobj\ntrailer<</Root 1 0 R>>\n";
    for (file, bytes, expected) in [
        ("bomb.pptx", bomb, "unpacks to more than 100 MB"),
        ("laughs.docx", archive(&[("word/document.xml", &laughs)]), "so  it ends"),
        ("deep.docx", archive(&[("word/document.xml", &deep)]), "deep down"),
        ("cut.docx", report[..report.len() / 2].to_vec(), "the ZIP archive is broken"),
        ("cut.pdf", directions[..300].to_vec(), "broken"),
        ("endless.pdf", endless.as_bytes().to_vec(), "Error: endless.pdf: "),
        ("plain.zip", archive(&[("a.txt", "a"), ("b.txt", "b")]), "a ZIP archive of 2 files, not a document"),
        ("image.png", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR".to_vec(), "a binary file of 16 bytes (image/png), not text"),
    ] {
        std::fs::write(gateway.workspace().join(file), bytes).unwrap();
        let result = read(&gateway, file).await;
        assert!(result.contains(expected), "{file}: {result}");
    }
    assert!(peak_bytes(gateway.pid()) < 400_000_000, "documents are read elsewhere");
    assert!(read(&gateway, "AGENTS.md").await.starts_with("1\t"), "the gateway is as before");
}
