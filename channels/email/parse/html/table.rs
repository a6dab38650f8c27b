//! Converts data tables to Markdown; all other tables only lay out a page.

use std::collections::BTreeMap;

use super::tree::HtmlTree;
use super::visibility::is_hidden;
use super::writer::MarkdownWriter;

/// The longest text of a data cell in characters, and the largest number of cells in a row.
const MAX_CELL: usize = 300;
const MAX_COLUMNS: usize = 20;
/// Largest number of rows; the rest is left out.
const MAX_ROWS: usize = 1_000;

/// A data table: the texts of its cells, by row.
pub struct DataTable(Vec<Vec<String>>);

impl DataTable {
    /// Parses a table if it contains data: at least two rows and columns of short cells without nested tables. `render`
    /// converts a cell to at most the given number of bytes.
    pub fn parse(tree: &HtmlTree, table: usize, render: impl Fn(usize, usize) -> String) -> Option<Self> {
        if matches!(tree.nodes[table].attribute("role"), "presentation" | "none") {
            return None;
        }
        let rows = rows(tree, table);
        let mut count = 0;
        let mut texts: Vec<Vec<String>> = Vec::new();
        // The cells of earlier rows that span this row: column to text and remaining rows.
        let mut spanning: BTreeMap<usize, (String, usize)> = BTreeMap::new();
        for row in rows {
            let (mut cells, mut below) = (Vec::new(), Vec::new());
            for (cell, node) in tree.children(row).filter(|(_, node)| matches!(node.name.as_str(), "td" | "th")) {
                if is_hidden(node) {
                    continue;
                }
                fill_spanned(&mut spanning, &mut cells);
                if !is_short(tree, cell, &mut count) || cells.len() >= MAX_COLUMNS {
                    return None;
                }
                let text = render(cell, MAX_CELL * 4);
                if text.chars().count() > MAX_CELL {
                    return None;
                }
                let text = text.replace('\n', " ").replace('|', "\\|");
                let rows: usize = node.attribute("rowspan").trim().parse().unwrap_or(1);
                if rows > 1 {
                    below.push((cells.len(), (text.trim().to_owned(), rows.min(MAX_ROWS) - 1)));
                }
                cells.push(text.trim().to_owned());
                let span: usize = node.attribute("colspan").trim().parse().unwrap_or(1);
                let span = span.clamp(1, MAX_COLUMNS - cells.len().min(MAX_COLUMNS - 1));
                cells.extend((1..span).map(|_| String::new()));
            }
            fill_spanned(&mut spanning, &mut cells);
            spanning.extend(below);
            if cells.iter().any(|cell| !cell.is_empty()) {
                texts.push(cells);
            }
        }
        let wide = texts.iter().filter(|cells| cells.iter().filter(|cell| !cell.is_empty()).count() >= 2).count();
        (texts.len() >= 2 && wide * 2 >= texts.len()).then_some(Self(texts))
    }

    pub fn write(&self, out: &mut MarkdownWriter) {
        let columns = self.0.iter().map(Vec::len).max().unwrap_or(0);
        out.line(2);
        for (index, cells) in self.0.iter().enumerate() {
            let cells = (0..columns).map(|column| cells.get(column).map_or("", String::as_str));
            out.raw_line(&format!("| {} |", cells.collect::<Vec<_>>().join(" | ")));
            if index == 0 {
                out.raw_line(&format!("|{}", " --- |".repeat(columns)));
            }
        }
        out.line(2);
    }
}

/// Adds the cells of earlier rows that span the next columns of this row.
fn fill_spanned(spanning: &mut BTreeMap<usize, (String, usize)>, cells: &mut Vec<String>) {
    while cells.len() < MAX_COLUMNS
        && let Some((text, rows)) = spanning.get_mut(&cells.len())
    {
        let column = cells.len();
        cells.push(text.clone());
        *rows -= 1;
        if *rows == 0 {
            spanning.remove(&column);
        }
    }
}

/// Returns the rows of a table, without those of nested tables.
fn rows(tree: &HtmlTree, table: usize) -> Vec<usize> {
    let mut rows = Vec::new();
    for (child, node) in tree.children(table).filter(|(_, node)| !is_hidden(node)) {
        match node.name.as_str() {
            "tr" => rows.push(child),
            "tbody" | "thead" | "tfoot" => {
                rows.extend(tree.children(child).filter(|(_, node)| node.name == "tr").map(|(row, _)| row));
            }
            _ => {}
        }
    }
    rows.truncate(MAX_ROWS);
    rows
}

/// Returns true if a cell contains no large element. `count` is the number of nodes of all cells so far.
fn is_short(tree: &HtmlTree, cell: usize, count: &mut usize) -> bool {
    const MAX_NODES: usize = 50_000;
    tree.children(cell).all(|(child, node)| {
        *count += 1;
        let is_large = matches!(node.name.as_str(), "table" | "ul" | "ol" | "pre" | "blockquote" | "h1" | "h2" | "h3");
        *count <= MAX_NODES && !is_large && is_short(tree, child, count)
    })
}
