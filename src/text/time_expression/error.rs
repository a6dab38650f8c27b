//! The reasons why a text is not a time expression.

use std::fmt;

/// The fault of a text that is a time expression in part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeFault {
    TwoTimes,
    Clash,
    MinutesDiffer,
    Uneven,
    Range,
    WhichDay,
    SayEvery,
    WhichHour,
    WhichHalf,
    WhichMidnight,
    HalfHour,
    NotInPart,
    DayOrMonth,
    NoSuchDate,
    NoSuchTime,
    Months,
    Gap,
    TooLong,
}

/// The error of a text that is not a time expression, or more than one: the part that was understood, and the rest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimeParseError {
    /// The beginning of the text; may be empty.
    pub understood: String,
    pub rest: String,
    pub fault: Option<TimeFault>,
}

impl TimeFault {
    /// Returns the fault in English and in Chinese.
    fn texts(self) -> (&'static str, &'static str) {
        match self {
            Self::TwoTimes => ("two times are named; one job takes one", "说了两个时间；一个任务只能有一个"),
            Self::Clash => ("these do not go together", "这些时间条件互相矛盾"),
            Self::MinutesDiffer => {
                ("its times differ in their minutes; make two jobs", "各个时间的分钟数不同；请建两个任务")
            }
            Self::Uneven => (
                "its times do not fill each hour alike; end the stretch before a full hour, or make two jobs",
                "各小时里的时间不一样；请让时段在整点之前结束，或建两个任务",
            ),
            Self::Range => (
                "a stretch of time needs how often, such as \"every hour\", and hours from 0 to 23, or am and pm",
                "一段时间要说明多久一次，例如“每小时”，并用 0 到 23 点",
            ),
            Self::WhichDay => ("say on which day", "请说明是哪一天"),
            Self::SayEvery => {
                ("several days are named; say \"every\" if it repeats", "说了好几天；如果要重复，请说“每”")
            }
            Self::WhichHour => ("say at which hour", "请说明几点"),
            Self::WhichHalf => ("say with each hour in which half of the day it is", "请给每个钟点都说明上午还是下午"),
            Self::WhichMidnight => (
                "a night belongs to two days; name the day that begins with it, such as \"Saturday at 0:00\"",
                "半夜属于两天；请说后一天的凌晨，例如“周六凌晨0点”",
            ),
            Self::HalfHour => ("it means different hours in different places; say \"half past three\"", "请说“三点半”"),
            Self::NotInPart => ("that hour is not in that part of the day", "这个钟点不在这段时间里"),
            Self::DayOrMonth => (
                "day and month cannot be told apart; write 2026-12-24 or \"December 24\"",
                "分不清日和月；请写 2026-12-24 或 12月24日",
            ),
            Self::NoSuchDate => ("there is no such date", "没有这一天"),
            Self::NoSuchTime => (
                "the clock never shows that; hours go from 0 to 23, with am and pm from 1 to 12",
                "没有这个钟点；小时从 0 到 23",
            ),
            Self::Months => {
                ("months and years differ in length; name a date, or days", "月和年长短不一；请说日期，或多少天")
            }
            Self::Gap => (
                "it has two readings; say how often with \"每\", such as 每2天 or 每3天",
                "有两种理解；请说“每2天”或“每3天”",
            ),
            Self::TooLong => ("it is longer than 100 years", "超过 100 年"),
        }
    }

    /// Returns the fault in Chinese.
    pub fn chinese(self) -> &'static str {
        self.texts().1
    }
}

impl fmt::Display for TimeFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.texts().0)
    }
}

impl TimeParseError {
    /// Returns the error in Chinese.
    pub fn chinese(&self) -> String {
        let fault = self.fault.map(TimeFault::chinese);
        let (head, tail) = match fault {
            Some(fault) => (format!("：{fault}"), format!("（{fault}）")),
            None => Default::default(),
        };
        match (self.understood.as_str(), self.rest.as_str()) {
            ("", "") => "没有说时间".to_owned(),
            ("", rest) => format!("没有听懂“{rest}”{tail}"),
            (understood, "") => format!("听懂了“{understood}”{head}"),
            (understood, rest) => format!("听懂了“{understood}”，没有听懂“{rest}”{tail}"),
        }
    }
}

impl fmt::Display for TimeParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { understood, rest, fault } = self;
        if understood.is_empty() && rest.is_empty() {
            return f.write_str("no time is named");
        }
        if !understood.is_empty() {
            write!(f, "understood {understood:?}{}", if rest.is_empty() { "" } else { "; " })?;
        }
        if !rest.is_empty() {
            write!(f, "not understood: {rest:?}")?;
        }
        match fault {
            Some(fault) if rest.is_empty() => write!(f, ", but {fault}"),
            Some(fault) => write!(f, " ({fault})"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_names_the_part_that_was_understood() {
        let parse_error = |understood: &str, rest: &str, fault| TimeParseError {
            understood: understood.into(),
            rest: rest.into(),
            fault,
        };
        let half = parse_error("every Monday", "and the day before Easter", None);
        assert_eq!(half.to_string(), r#"understood "every Monday"; not understood: "and the day before Easter""#);
        let two = parse_error("in 10 minutes and in 20 minutes", "", Some(TimeFault::TwoTimes));
        assert_eq!(
            two.to_string(),
            r#"understood "in 10 minutes and in 20 minutes", but two times are named; one job takes one"#
        );
        let none = parse_error("", "12/24", Some(TimeFault::DayOrMonth));
        assert!(none.to_string().starts_with(r#"not understood: "12/24" (day and month"#), "{none}");
        assert_eq!(two.chinese(), "听懂了“in 10 minutes and in 20 minutes”：说了两个时间；一个任务只能有一个");
        assert_eq!(parse_error("每天", "和复活节", None).chinese(), "听懂了“每天”，没有听懂“和复活节”");
    }
}
