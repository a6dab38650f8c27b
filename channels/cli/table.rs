//! Draws tables in columns, or with one line for each cell on a narrow screen.

use super::layout::{ScreenRow, TextStyle, wrap};

const BAR: &str = " │ ";
/// The narrowest readable column.
const MIN_COLUMN: usize = 5;

/// A table while it is parsed. The first row is the header.
pub(super) struct TableLayout {
    is_right: Vec<bool>,
    rows: Vec<Vec<ScreenRow>>,
    row: Vec<ScreenRow>,
}

impl TableLayout {
    /// Creates an empty table. `is_right` tells for each column whether its cells are right-aligned.
    pub(super) fn new(is_right: Vec<bool>) -> Self {
        Self { is_right, rows: Vec::new(), row: Vec::new() }
    }

    pub(super) fn cell(&mut self, text: ScreenRow) {
        self.row.push(text);
    }

    pub(super) fn end_row(&mut self) {
        self.rows.push(std::mem::take(&mut self.row));
    }

    /// Returns the rows for the screen, at most `room` columns wide if possible.
    pub(super) fn draw(&self, room: usize) -> Vec<ScreenRow> {
        let columns = self.is_right.len();
        let bars = BAR.chars().count() * columns.saturating_sub(1);
        let widest = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.map(ScreenRow::width).max().unwrap_or(0).max(1)
        };
        let wanted: Vec<usize> = (0..columns).map(widest).collect();
        match fit(&wanted, room.saturating_sub(bars)) {
            Some(widths) => self.in_columns(&widths),
            None => self.in_lines(room),
        }
    }

    fn in_columns(&self, widths: &[usize]) -> Vec<ScreenRow> {
        let mut drawn = Vec::new();
        for (number, row) in self.rows.iter().enumerate() {
            let empty = ScreenRow::default();
            let cells: Vec<Vec<ScreenRow>> = widths
                .iter()
                .enumerate()
                .map(|(column, width)| wrap(row.get(column).unwrap_or(&empty), &empty, &empty, *width))
                .collect();
            let height = cells.iter().map(Vec::len).max().unwrap_or(1);
            drawn.extend((0..height).map(|line| self.line(&cells, widths, line)));
            if number == 0 {
                let rules: Vec<_> = widths.iter().map(|width| "─".repeat(*width)).collect();
                drawn.push(ScreenRow::of(TextStyle::DIM, &rules.join("─┼─")));
            }
        }
        drawn
    }

    fn line(&self, cells: &[Vec<ScreenRow>], widths: &[usize], line: usize) -> ScreenRow {
        let mut drawn = ScreenRow::default();
        for (column, width) in widths.iter().enumerate() {
            if column > 0 {
                drawn.push(TextStyle::DIM, BAR);
            }
            let cell = cells[column].get(line).cloned().unwrap_or_default();
            let space = " ".repeat(width.saturating_sub(cell.width()));
            if self.is_right[column] {
                drawn.push(TextStyle::PLAIN, &space);
                drawn.extend(&cell);
            } else {
                drawn.extend(&cell);
                drawn.push(TextStyle::PLAIN, &space);
            }
        }
        drawn
    }

    /// Draws each cell as a line `header: cell`.
    fn in_lines(&self, room: usize) -> Vec<ScreenRow> {
        let Some((head, body)) = self.rows.split_first() else { return Vec::new() };
        let mut drawn = Vec::new();
        for (number, row) in body.iter().enumerate() {
            if number > 0 {
                drawn.push(ScreenRow::of(TextStyle::DIM, "─"));
            }
            for (column, cell) in row.iter().enumerate() {
                let mut line = head.get(column).cloned().unwrap_or_default();
                line.push(TextStyle::DIM, ": ");
                line.extend(cell);
                drawn.extend(wrap(&line, &ScreenRow::default(), &ScreenRow::of(TextStyle::PLAIN, "  "), room));
            }
        }
        if body.is_empty() {
            drawn.extend(head.iter().cloned());
        }
        drawn
    }
}

/// Distributes `room` among columns that need the widths `wanted`: narrow columns get their full width, and wide ones share
/// the rest. Returns `None` if there is too little room.
fn fit(wanted: &[usize], room: usize) -> Option<Vec<usize>> {
    let mut widths = wanted.to_vec();
    while widths.iter().sum::<usize>() > room {
        let widest = widths.iter().copied().max().filter(|width| *width > MIN_COLUMN)?;
        let column = widths.iter().position(|width| *width == widest)?;
        widths[column] -= 1;
    }
    Some(widths)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wide_columns_give_way() {
        type Case<'a> = (&'a [usize], usize, Option<&'a [usize]>);
        let table: &[Case<'_>] = &[
            (&[3, 4], 10, Some(&[3, 4])),
            (&[3, 40], 20, Some(&[3, 17])),
            (&[30, 30], 20, Some(&[10, 10])),
            (&[30, 30], 9, None),
            (&[], 0, Some(&[])),
        ];
        for (wanted, room, expected) in table {
            assert_eq!(fit(wanted, *room).as_deref(), *expected, "{wanted:?} in {room}");
        }
    }

    #[test]
    fn a_narrow_screen_shows_one_cell_a_line() {
        let mut table = TableLayout::new(vec![false; 3]);
        for row in [["Name", "Size", "Kind"], ["a.txt", "12", "text"], ["b.png", "9", "image"]] {
            row.iter().for_each(|cell| table.cell(ScreenRow::of(TextStyle::PLAIN, cell)));
            table.end_row();
        }
        let drawn: Vec<_> = table.draw(12).iter().map(ScreenRow::plain).collect();
        assert_eq!(drawn, ["Name: a.txt", "Size: 12", "Kind: text", "─", "Name: b.png", "Size: 9", "Kind: image"]);
    }
}
