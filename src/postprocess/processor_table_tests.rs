//! Tests of tables, and of the counts of results.

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
fn a_table_stays_whole_for_a_range_or_a_comparison() {
    let days = |year: usize| (1..=9).map(move |day| format!("{year}-04-{day:02},{}.5,{day}", year % 100));
    let rows: Vec<String> = (1960..1990).flat_map(days).collect();
    let table = numbered(&format!("day,rain,number\n{}", rows.join("\n")));
    let process = |question: &str| process("read_file", &json!({"path": "rain.csv"}), &table, question);
    for question in [
        "days between April 1975 and June 1975",
        "which days of 1975 had more than 75.5?",
        "1975: days with less than 75",
        "days with at least 75.5 in 1975",
        "days with at most 75.5 in 1975",
        "fewer days than in 1975",
        "greater than 75.5 in 1975",
        "days since April 1975",
        "days before April 1975",
        "the days after 1975-04-03",
        "rain over 75 in 1975",
        "rain under 75 in 1975",
        "rain above 75 in 1975",
        "rain below 75 in 1975",
        "days until 1975",
        "from April 1975 to June 1976",
        "rain of 1970-1975",
        "rain in 1975 > 75",
        "rain in 1975 or later",
        "1975年以来的降水量",
        "1975年之后",
        "1975年之前",
        "1975年4月超过 75",
        "1975年4月大于 75",
        "1975年4月小于 75",
        "1975年4月多于 75",
        "1975年4月少于 75",
        "1975年4月至少 75",
        "1975年4月到1976年4月",
        "从1975年到1976年",
        "1975年和1976年之间",
        "1975年以后",
        "1975年4月不低于 75",
        "rain 1975 to 1980",
        "1975-04-01 - 1975-06-01",
        "1975-04-01 to 1975-06-01",
        "1975-04-01 – 1975-06-01",
        "April to June 1975",
        "April-June 1975",
        "1 to 7 April 1975",
        "April 1975 through May",
        "in 1975, cheaper than 500",
        "in 1975, older than 5",
        "in 1975, longer than 5",
        "in 1975, worse than 5",
        "the first 5 days of 1975",
        "1975年比 75 便宜的",
        "1975-04-01/1975-06-01",
    ] {
        assert_eq!(process(question), None, "{question}");
    }
    for question in [
        "how much rain on 7 April 1975?",
        "overtime of 7 April 1975",
        "whatever fell beforehand, 7 April 1975",
        "找到 1975年4月7日 的降水量",
        "rain of 1975-04-07",
        "1975/04/07 的降水量",
        "what fell on 1975-4-7?",
        "在1975-04-07下了多少雨",
        "1975-04-07T00:00:00Z 的比例是多少",
        "order 1234-5678 of 1975-04-07",
        "1975-04-07 rather than others",
    ] {
        assert_eq!(process(question).unwrap_or_else(|| panic!("{question}")).output.kept, 1, "{question}");
    }
}

#[test]
fn the_header_of_a_table_stays_also_with_digits_and_below_comments() {
    let dates = |at: usize| format!("2024-{:02}-{:02},{at}.5,{at}", at % 12 + 1, at % 28 + 1);
    let name = |at: usize| if at == 77 { "porto".to_owned() } else { format!("north{at}") };
    let names = |at: usize| format!("{},south{at}", name(at));
    let counts = |at: usize| format!("{},{at},{}", name(at), at * 2);
    let rows = |row: &dyn Fn(usize) -> String| (0..120).map(row).collect::<Vec<_>>().join("\n");
    for (table, question, header) in [
        (format!("# air\nday,pm2.5,no2\n{}", rows(&dates)), "the air on 7 July 2024", "day,pm2.5,no2"),
        (format!("# answers\nq1,q2\n{}", rows(&names)), "what is beside porto?", "q1,q2"),
        (format!("# people\nland,2010,2011\n{}", rows(&counts)), "people of porto", "land,2010,2011"),
        (format!("day,pm2.5,no2\n{}", rows(&dates)), "the air on 7 July 2024", "day,pm2.5,no2"),
    ] {
        let done = process("read_file", &json!({"path": "a.csv"}), &numbered(&table), question);
        let shown = done.unwrap_or_else(|| panic!("{question}")).render(None);
        assert!(shown.contains(&format!("\t{header}\n")), "{question}: {shown}");
        assert!(shown.lines().count() < 12, "{question}: {shown}");
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
        assert_eq!(done.output.kept, kept, "{question}: {}", done.render(None));
    }
}

#[test]
fn what_is_left_out_is_counted_over_the_whole_result() {
    let row = |at: usize| format!("{at},{}", if at.is_multiple_of(2) { "Lisbon" } else { "Oslo" });
    let rows = |range: std::ops::Range<usize>| range.map(row).collect::<Vec<_>>().join("\n");
    let done = process("read_file", &json!({"path": "a.csv"}), &format!("id,city\n{}", rows(0..900)), "id of Lisbon");
    let shown = done.unwrap().render(None);
    assert!(shown.ends_with("[filtered for the question: 200 of 900 rows; 450 rows fit]"), "{shown}");
    for (marker, note) in [
        ("[... 700000 bytes, 9000 lines are not searched ...]", "700000 bytes, 9000 lines are not searched"),
        ("[... 7000 characters, 9000 lines cut; the whole output: a/b.txt ...]", "7000 characters, 9000 lines cut"),
    ] {
        let text = format!("{}\n{marker}\n{}", log(), log());
        let done = process("exec", &json!({"command": "x"}), &text, "database timeout in worker 7").unwrap();
        assert_eq!(done.output.original, 9_600);
        assert!(done.render(Some("x")).contains(note), "{}", done.render(Some("x")));
        let text = format!("id,city\n{}\n{marker}\n{}", rows(0..300), rows(300..600));
        let done = process("exec", &json!({"path": "a.csv"}), &text, "id of Oslo, 77").unwrap();
        assert_eq!((done.output.original, done.output.unit), (9_600, "rows"));
        assert!(done.render(None).contains(note), "{}", done.render(None));
    }
}

#[test]
fn an_absurd_count_of_what_is_missing_is_no_count() {
    for (count, original) in [("18446744073709551615", 300), ("9000000000000000000", 300), ("1000000", 1_000_300)] {
        let marker = format!("[... 1 bytes, {count} lines cut ...]");
        let text = format!("{}\n{marker}\n{marker}\n{marker}\n{}", &log()[..4_000], &log()[4_000..]);
        let done = process("exec", &json!({"command": "x"}), &text, "database timeout in worker 7").unwrap();
        assert!(
            done.output.original >= original && done.output.original < 10_000_000,
            "{count}: {}",
            done.output.original
        );
    }
}
