//! The cells of a workbook as lines, with tabs between the cells: XLSX, XLSB, XLS and ODS.

use std::io::Cursor;

use calamine::{Data, DataRef, ExcelDateTime, Reader, Sheets, open_workbook_auto_from_rs};

use super::text_sink::TextSink;

/// The maximum number of consecutive empty rows that are written; the sink keeps no more empty lines. After a longer gap, the
/// number of the next row is written instead.
const MAX_EMPTY_ROWS: u32 = 1;
/// The maximum number of consecutive empty cells in a row that keep the alignment. Cells after a longer gap are not aligned.
const MAX_EMPTY_CELLS: u32 = 100;

/// Extracts the cells of each sheet. Returns a description of the workbook.
///
/// # Errors
/// The workbook is broken or encrypted.
pub(super) fn extract(bytes: &[u8], sink: &mut TextSink) -> Result<String, String> {
    let mut workbook = open_workbook_auto_from_rs(Cursor::new(bytes)).map_err(wrong)?;
    let names = workbook.sheet_names();
    for name in &names {
        if sink.is_full() {
            break;
        }
        sink.end_line();
        sink.push(&format!("\n[sheet {name}]\n"));
        let mut rows = RowWriter { sink, row: 0, column: 0, has_row: false };
        read_sheet(&mut workbook, name, &mut rows)?;
        sink.end_line();
    }
    let kind = match workbook {
        Sheets::Xls(_) => "XLS",
        Sheets::Xlsx(_) => "XLSX",
        Sheets::Xlsb(_) => "XLSB",
        Sheets::Ods(_) => "ODS",
    };
    Ok(format!("{kind}, {} sheets", names.len()))
}

fn wrong(error: impl std::fmt::Display) -> String {
    format!("the workbook cannot be read: {error}")
}

fn read_sheet(workbook: &mut Sheets<Cursor<&[u8]>>, name: &str, rows: &mut RowWriter<'_>) -> Result<(), String> {
    // The cells are read one by one: as a range, a single distant cell would make the whole sheet a huge table.
    if let Sheets::Xlsx(workbook) = workbook {
        let mut cells = workbook.worksheet_cells_reader(name).map_err(wrong)?;
        while let Some(cell) = cells.next_cell().map_err(wrong)? {
            let (row, column) = cell.get_position();
            let is_full = match cell.get_value() {
                // The time limit also holds for a sheet of empty cells.
                DataRef::Empty => rows.sink.is_full(),
                DataRef::SharedString(text) => rows.put(row, column, text),
                value => rows.put(row, column, &format_value(&Data::from(value.clone()))),
            };
            if is_full {
                break;
            }
        }
        return Ok(());
    }
    let range = workbook.worksheet_range(name).map_err(wrong)?;
    let (first_row, first_column) = range.start().unwrap_or_default();
    for (row, column, value) in range.used_cells() {
        let index = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        let (row, column) = (first_row.saturating_add(index(row)), first_column.saturating_add(index(column)));
        if rows.put(row, column, &format_value(value)) {
            break;
        }
    }
    Ok(())
}

/// A writer of cells, which come in the order of rows and columns.
struct RowWriter<'a> {
    sink: &'a mut TextSink,
    row: u32,
    column: u32,
    has_row: bool,
}

impl RowWriter<'_> {
    /// Writes a cell. Returns true if no more cells are needed.
    fn put(&mut self, row: u32, column: u32, text: &str) -> bool {
        if row != self.row || !self.has_row {
            if self.has_row {
                self.sink.push("\n");
            }
            let empty = row.saturating_sub(self.row).saturating_sub(u32::from(self.has_row));
            if empty > MAX_EMPTY_ROWS || row < self.row {
                self.sink.push(&format!("[row {}]\n", u64::from(row) + 1));
            } else {
                self.sink.push(&"\n".repeat(empty as usize));
            }
            (self.row, self.column, self.has_row) = (row, 0, true);
        }
        let empty = column.saturating_sub(self.column).min(MAX_EMPTY_CELLS);
        self.sink.push(&"\t".repeat(empty as usize));
        self.column = column;
        self.sink.push(&text.replace(['\t', '\n', '\r'], " "));
        self.sink.is_full()
    }
}

fn format_value(value: &Data) -> String {
    match value {
        Data::DateTime(time) => format_time(time),
        other => other.to_string(),
    }
}

/// Formats a date, a time, or both.
fn format_time(time: &ExcelDateTime) -> String {
    let serial = time.as_f64();
    if time.is_duration() {
        let seconds = (serial * 86_400.0).round();
        let (hours, minutes, seconds) = ((seconds / 3_600.0).trunc(), (seconds / 60.0) % 60.0, seconds % 60.0);
        return format!("{hours}:{:02}:{seconds:02}", minutes.trunc().abs());
    }
    let (year, month, day, hour, minute, second, _) = time.to_ymd_hms_milli();
    let date = format!("{year:04}-{month:02}-{day:02}");
    let clock = format!("{hour:02}:{minute:02}:{second:02}");
    match (serial < 1.0, serial.fract() == 0.0) {
        (true, _) => clock,
        (false, true) => date,
        (false, false) => format!("{date} {clock}"),
    }
}

#[cfg(test)]
mod tests {
    use calamine::ExcelDateTimeType;

    use super::*;

    #[test]
    fn cells_are_aligned_and_far_ones_named() {
        let mut sink = TextSink::new();
        let mut rows = RowWriter { sink: &mut sink, row: 0, column: 0, has_row: false };
        for (row, column, text) in [(0, 0, "a"), (0, 2, "b\tc"), (2, 1, "d"), (5, 0, "e"), (1_048_575, 16_383, "far")] {
            assert!(!rows.put(row, column, text));
        }
        let expected = format!("a\t\tb c\n\n\td\n[row 6]\ne\n[row 1048576]\n{}far", "\t".repeat(100));
        assert_eq!(sink.finish().0, expected);
    }

    #[test]
    fn dates_and_times_are_readable() {
        for (serial, is_duration, expected) in [
            (45_000.0, false, "2023-03-15"),
            (45_000.5, false, "2023-03-15 12:00:00"),
            (0.25, false, "06:00:00"),
            (1.5, true, "36:00:00"),
        ] {
            let kind = if is_duration { ExcelDateTimeType::TimeDelta } else { ExcelDateTimeType::DateTime };
            assert_eq!(format_time(&ExcelDateTime::new(serial, kind, false)), expected);
        }
    }
}
