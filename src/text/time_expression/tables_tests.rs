//! Phrases and their meaning on a Saturday. A third of the phrases is held out: the tests print only their counts, so that
//! nobody fits the grammar to them.

use jiff::civil::{DateTime, date};

use super::{DueTime, parse};

const TABLES: [(&str, &str); 2] = [("en", include_str!("tables/en.tsv")), ("zh", include_str!("tables/zh.tsv"))];

/// The minimum share of phrases with the expected meaning, in percent.
const LEAST: usize = 85;

fn now() -> DateTime {
    date(2026, 11, 21).at(14, 5, 0, 0)
}

/// Returns the meaning of a phrase in the notation of the tables.
fn shown(phrase: &str) -> String {
    let Ok(when) = parse(phrase) else { return "refused".to_owned() };
    let clock = |at: DateTime| at.strftime("%Y-%m-%d %H:%M").to_string();
    match when.due(Some(now())) {
        Some(DueTime::In(seconds)) => format!("in {seconds}"),
        Some(DueTime::At(at)) if at > now() => format!("at {}", clock(at)),
        Some(DueTime::Every { seconds, first: None }) => format!("every {seconds}"),
        Some(DueTime::Every { seconds, first: Some(first) }) => format!("every {seconds} from {}", clock(first)),
        Some(DueTime::Cron(expression)) => format!("cron {expression}"),
        Some(DueTime::At(_)) | None => "refused".to_owned(),
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

/// Phrases that an earlier version misread, or nearly did.
#[test]
fn phrases_that_were_misread_once_are_read_right() {
    for (phrase, expected) in [
        ("every first Monday of the month", "cron 0 9 * * 1#1"),
        ("every days first", "refused"),
        ("second night", "refused"),
        ("nine to five", "refused"),
        ("quarter to 12 pm", "refused"),
        ("quarter to one pm", "at 2026-11-22 12:45"),
        ("at 2 at night", "at 2026-11-22 02:00"),
        ("tomorrow at 2 at night", "refused"),
        ("every day at 9 and 10 in the evening", "refused"),
        ("every hour from 22:00 to 6:00", "cron 0 0-6,22,23 * * *"),
        ("every 45 minutes on mondays", "refused"),
        ("Thursday, December 24 at 9", "at 2026-12-24 09:00"),
        ("Friday, December 24 at 9", "refused"),
        ("9 in the evening", "at 2026-11-21 21:00"),
        ("tomorrow at 12 noon", "at 2026-11-22 12:00"),
        ("at seven thirty in the evening", "at 2026-11-21 19:30"),
        ("三点五", "refused"),
        ("三点零五", "at 2026-11-22 03:05"),
        ("工作日三", "refused"),
        ("周一一一", "refused"),
        ("每周一次", "refused"),
        ("每周三十点", "cron 0 10 * * 3"),
        ("每2小时一次", "every 7200"),
        ("隔小时", "refused"),
        ("今晚午夜", "at 2026-11-22 00:00"),
        ("上午12点", "refused"),
        ("上午9点和3点", "refused"),
        ("周日晚上1点", "at 2026-11-23 01:00"),
        ("12月24日周五", "refused"),
        ("9点前", "refused"),
    ] {
        assert_eq!(shown(phrase), expected, "{phrase}");
    }
}
