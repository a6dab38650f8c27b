//! Dates in a question, as tables and logs write them.

use std::sync::LazyLock;

use regex::Regex;

const MONTHS: [&str; 12] = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const MONTH: &str = "(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)";

/// A date of a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuestionDate {
    /// The date as the question writes it.
    pub text: String,
    /// The forms of the date in tables and logs, in lower case. Without a day, the forms are the beginnings of such dates.
    pub forms: Vec<String>,
}

/// `7 April 2013`; `April 7th 2013`, `2013年4月7日` and `2013-04-07`, all three also without the day.
static DATES: LazyLock<[Regex; 4]> = LazyLock::new(|| {
    [
        format!(r"(?i)\b(?P<d>\d{{1,2}})(?:st|nd|rd|th)?\s+(?:of\s+)?(?P<m>{MONTH}),?\s+(?P<y>\d{{4}})\b"),
        format!(r"(?i)\b(?P<m>{MONTH})\s+(?:(?P<d>\d{{1,2}})(?:st|nd|rd|th)?,?\s+)?(?P<y>\d{{4}})\b"),
        r"(?P<y>\d{4})\s*年\s*(?P<m>\d{1,2})\s*月(?:份|\s*(?P<d>\d{1,2})\s*[日号])?".to_owned(),
        r"(?P<y>(?:1[5-9]|20)\d\d)[-/](?P<m>\d{1,2})(?:[-/](?P<d>\d{1,2}))?".to_owned(),
    ]
    .map(|pattern| Regex::new(&pattern).expect("a constant pattern is valid"))
});

/// Returns the dates of a question that name at least a year and a month.
pub fn dates_of(question: &str) -> Vec<QuestionDate> {
    let mut rest = question.to_owned();
    let mut dates = Vec::new();
    for pattern in DATES.iter() {
        let found = pattern
            .captures_iter(&rest)
            .filter(|found| is_whole(&rest, &found[0], found.get(0).map_or(0, |all| all.start())));
        dates.extend(found.filter_map(|found| date_of(&found)));
        rest = pattern.replace_all(&rest, " ").into_owned();
    }
    dates
}

/// Returns true if a date at an offset is not part of a longer number, name or path.
fn is_whole(text: &str, date: &str, at: usize) -> bool {
    let joins = |c: char| c.is_ascii_digit() || matches!(c, '/' | '-' | '_' | '.');
    let (before, after) = (&text[..at], &text[at + date.len()..]);
    let goes_on = after.starts_with(joins) && after[1..].starts_with(|c: char| c.is_ascii_alphanumeric());
    !before.ends_with(|c: char| joins(c) || c.is_ascii_alphabetic())
        && !goes_on
        && !after.starts_with(|c: char| c.is_ascii_digit())
}

fn date_of(found: &regex::Captures<'_>) -> Option<QuestionDate> {
    let number = |name: &str| found.name(name)?.as_str().parse::<u32>().ok();
    let (year, day) = (number("y")?, number("d").filter(|day| (1..=31).contains(day)));
    let named = || MONTHS.iter().zip(1..).find(|(name, _)| found["m"].to_lowercase().starts_with(*name));
    let month = number("m").or_else(|| Some(named()?.1)).filter(|month| (1..=12).contains(month))?;
    let name = MONTHS[month as usize - 1];
    let forms = match day {
        Some(day) => vec![
            format!("{year}-{month:02}-{day:02}"),
            format!("{year}/{month:02}/{day:02}"),
            format!("{year}/{month}/{day}"),
            format!("{day:02}/{name}/{year}"),
            format!("{name} {day} {year}"),
        ],
        None => vec![format!("{year}-{month:02}"), format!("{year}/{month:02}"), format!("{year}/{month}/")],
    };
    Some(QuestionDate { text: found[0].to_owned(), forms })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_found_in_words_and_become_those_of_tables() {
        for (question, expected) in [
            ("how much rain on April 7th 2013?", Some(("April 7th 2013", "2013-04-07"))),
            ("what happened on 7 Apr 2013", Some(("7 Apr 2013", "2013-04-07"))),
            ("in May 2009", Some(("May 2009", "2009-05"))),
            ("2009 年 6 月的就业人数", Some(("2009 年 6 月", "2009-06"))),
            ("2013年4月17日", Some(("2013年4月17日", "2013-04-17"))),
            ("rain of 2013-04-07", Some(("2013-04-07", "2013-04-07"))),
            ("2013/4/7 的雨", Some(("2013/4/7", "2013-04-07"))),
            ("in 2013-04?", Some(("2013-04", "2013-04"))),
            ("2013-04-07下了多少雨", Some(("2013-04-07", "2013-04-07"))),
            ("在2013-04-07下了", Some(("2013-04-07", "2013-04-07"))),
            ("2013-04-07T10:00:12Z", Some(("2013-04-07", "2013-04-07"))),
            ("it was 2013-04-07.", Some(("2013-04-07", "2013-04-07"))),
            ("reports/2024/05/summary.csv", None),
            ("2024-05-07_backup.sql", None),
            ("1024/8", None),
            ("2013-14", None),
            ("12013-04-07", None),
            ("2013年14月", None),
            ("in 1975", None),
            ("maybe 2013", None),
        ] {
            let found = dates_of(question);
            let first = found.first().map(|date| (date.text.as_str(), date.forms[0].as_str()));
            assert_eq!(first, expected, "{question}");
        }
    }
}
