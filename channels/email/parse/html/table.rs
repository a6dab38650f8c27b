//! Tables: those that hold data stay tables, those that lay a page out are its blocks.

use std::collections::BTreeMap;

use super::page::Page;
use super::style::is_hidden;
use super::tree::Tree;

/// A cell with more text, or more of them in a row, is no data.
const MAX_CELL: usize = 300;
const MAX_COLUMNS: usize = 20;
/// Rows of a table; more of them are left out.
const MAX_ROWS: usize = 1_000;

/// Writes a table.
pub fn write(page: &mut Page<'_>, table: usize) {
    match Data::read(page.tree, table) {
        Some(data) => data.write(page),
        None => page.block(table, 1),
    }
}

/// The cells' texts, by row.
struct Data(Vec<Vec<String>>);

impl Data {
    /// Reads the cells, if this is a table of data: of at least two rows and columns, all of a line each, none inside of
    /// another.
    fn read(tree: &Tree, table: usize) -> Option<Self> {
        if matches!(tree.nodes[table].attribute("role"), "presentation" | "none") {
            return None;
        }
        let rows = rows(tree, table);
        let mut count = 0;
        let mut texts: Vec<Vec<String>> = Vec::new();
        // Cells that reach down from rows above, by their column: their text, and for how many rows more.
        let mut above: BTreeMap<usize, (String, usize)> = BTreeMap::new();
        for row in rows {
            let (mut cells, mut below) = (Vec::new(), Vec::new());
            for (cell, node) in tree.children(row).filter(|(_, node)| matches!(node.name.as_str(), "td" | "th")) {
                if is_hidden(node) {
                    continue;
                }
                reach_down(&mut above, &mut cells);
                if !is_line(tree, cell, &mut count) || cells.len() >= MAX_COLUMNS {
                    return None;
                }
                let text = Page::apart(tree, cell, MAX_CELL * 4);
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
            reach_down(&mut above, &mut cells);
            above.extend(below);
            if cells.iter().any(|cell| !cell.is_empty()) {
                texts.push(cells);
            }
        }
        let wide = texts.iter().filter(|cells| cells.iter().filter(|cell| !cell.is_empty()).count() >= 2).count();
        (texts.len() >= 2 && wide * 2 >= texts.len()).then_some(Self(texts))
    }

    fn write(&self, page: &mut Page<'_>) {
        let columns = self.0.iter().map(Vec::len).max().unwrap_or(0);
        page.out.line(2);
        for (index, cells) in self.0.iter().enumerate() {
            let cells = (0..columns).map(|column| cells.get(column).map_or("", String::as_str));
            page.out.raw_line(&format!("| {} |", cells.collect::<Vec<_>>().join(" | ")));
            if index == 0 {
                page.out.raw_line(&format!("|{}", " --- |".repeat(columns)));
            }
        }
        page.out.line(2);
    }
}

/// Adds the cells from above that stand at the next places.
fn reach_down(above: &mut BTreeMap<usize, (String, usize)>, cells: &mut Vec<String>) {
    while cells.len() < MAX_COLUMNS
        && let Some((text, rows)) = above.get_mut(&cells.len())
    {
        let place = cells.len();
        cells.push(text.clone());
        *rows -= 1;
        if *rows == 0 {
            above.remove(&place);
        }
    }
}

/// The rows of a table itself.
fn rows(tree: &Tree, table: usize) -> Vec<usize> {
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

/// Whether a cell holds no more than a line or a few; `count` is how many nodes all cells have.
fn is_line(tree: &Tree, cell: usize, count: &mut usize) -> bool {
    const MAX_NODES: usize = 50_000;
    tree.children(cell).all(|(child, node)| {
        *count += 1;
        let is_large = matches!(node.name.as_str(), "table" | "ul" | "ol" | "pre" | "blockquote" | "h1" | "h2" | "h3");
        *count <= MAX_NODES && !is_large && is_line(tree, child, count)
    })
}
