//! Tables, and what is counted of results.

use serde_json::json;

use super::tests::{log, numbered, process};

#[test]
fn rows_of_a_table_are_found_by_numbers_and_dates_and_comments_above_it_stay() {
    let days = |year: usize| (1..=9).map(move |day| format!("{year}-04-{day:02},{}.5,{day}", year % 100));
    let rows: Vec<String> = (1960..1990).flat_map(days).collect();
    let table = format!("# rain in mm\n# measured daily\n{}", rows.join("\n"));
    let named = format!("# rain in mm\nday,rain,number\n{}", rows.join("\n"));
    let done = process("read_file", &json!({"path": "rain.csv"}), &numbered(&named), "how much rain on 7 April 1975?");
    let shown = done.unwrap().render(None);
    assert!(shown.starts_with("1\t# rain in mm\n2\tday,rain,number\n...\n"), "{shown}");
    assert!(shown.contains("1975-04-07,75.5,7") && shown.contains("1 of 270 rows"), "{shown}");
    for (question, kept, rows) in [
        ("how much rain on April 7th 1975?", "1975-04-07,75.5,7", "1 of 270 rows"),
        ("1975 年 4 月 7 日的降水量是多少", "1975-04-07,75.5,7", "1 of 270 rows"),
        ("what was measured daily in 1975", "1975-04-09,75.5,9", "9 of 270 rows"),
    ] {
        let done = process("read_file", &json!({"path": "rain.csv"}), &numbered(&table), question);
        let shown = done.unwrap_or_else(|| panic!("{question}")).render(None);
        assert!(shown.starts_with("1\t# rain in mm\n2\t# measured daily\n"), "{question}: {shown}");
        assert!(shown.contains(kept) && shown.contains(rows), "{question}: {shown}");
    }
}

#[test]
fn a_date_is_not_the_start_of_another() {
    let row = |at: usize| format!("{}/{}/{},{at}", 2010 + at / 300, at / 28 % 12 + 1, at % 28 + 1);
    let table =
        numbered(&format!("day,number of the measurement\n{}", (0..900).map(row).collect::<Vec<_>>().join("\n")));
    for (question, kept) in
        [("the number on 1 April 2011", 1), ("2011 年 4 月 1 日的数值", 1), ("number on 2 Jan 2011", 1)]
    {
        let done = process("read_file", &json!({"path": "a.csv"}), &table, question).unwrap();
        assert_eq!(done.kept, kept, "{question}: {}", done.render(None));
    }
}
