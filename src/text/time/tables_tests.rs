//! Phrases and what they mean, seen from a Saturday. A third of them is held back: of those only counts are told, so that
//! nobody writes the grammar after them.

use jiff::civil::{DateTime, date};

use super::{Due, read};

const TABLES: [(&str, &str); 2] = [("en", include_str!("tables/en.tsv")), ("zh", include_str!("tables/zh.tsv"))];

/// The least share that has to be as expected, in percent.
const LEAST: usize = 85;

fn now() -> DateTime {
    date(2026, 11, 21).at(14, 5, 0, 0)
}

/// What is read, in the words of the tables.
fn shown(phrase: &str) -> String {
    let Ok(when) = read(phrase) else { return "refused".to_owned() };
    let clock = |at: DateTime| at.strftime("%Y-%m-%d %H:%M").to_string();
    match when.due(Some(now())) {
        Some(Due::In(seconds)) => format!("in {seconds}"),
        Some(Due::At(at)) if at > now() => format!("at {}", clock(at)),
        Some(Due::Every { seconds, first: None }) => format!("every {seconds}"),
        Some(Due::Every { seconds, first: Some(first) }) => format!("every {seconds} from {}", clock(first)),
        Some(Due::Cron(expression)) => format!("cron {expression}"),
        Some(Due::At(_)) | None => "refused".to_owned(),
    }
}

#[test]
fn phrases_mean_what_the_tables_say() {
    let mut faults = Vec::new();
    for (language, table) in TABLES {
        let rows: Vec<[&str; 3]> = table
            .lines()
            .map(|line| line.split('\t').collect::<Vec<_>>().try_into().unwrap_or_else(|_| panic!("{line}")))
            .collect();
        let refused = rows.iter().filter(|[_, expected, _]| *expected == "refused").count();
        assert!(rows.len() >= 200 && refused >= 30, "{language}: {} phrases, {refused} refused", rows.len());
        for part in ["a", "held"] {
            let mine: Vec<_> = rows.iter().filter(|[.., of]| *of == part).collect();
            let missed: Vec<_> = mine
                .iter()
                .map(|[phrase, expected, _]| (phrase, expected, shown(phrase)))
                .filter(|(_, expected, read)| *expected != read)
                .collect();
            let wrong = missed.iter().filter(|(.., read)| read != "refused").count();
            let (all, right) = (mine.len(), mine.len() - missed.len());
            println!("{language} {part}: {right} of {all} as expected, {wrong} read wrongly");
            if part == "a" {
                missed.iter().for_each(|(phrase, expected, read)| println!("  {phrase}: {read}, not {expected}"));
            }
            if wrong > 0 || right * 100 < LEAST * all {
                faults.push(format!("{language} {part}: {right} of {all}, {wrong} read wrongly"));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("; "));
}
