//! Chinese times: “10分钟后”, “明天下午三点半”, “每周一早上8点”.

use jiff::civil::{Date, Time, Weekday};

use super::when::{DAY, Day, HOUR, MINUTE, WEEK, When, morning, seconds};

/// Longer words stand before those that they begin with.
const UNITS: &[(&str, u64)] = &[
    ("秒钟", 1),
    ("秒", 1),
    ("分钟", MINUTE),
    ("分", MINUTE),
    ("个小时", HOUR),
    ("小时", HOUR),
    ("个钟头", HOUR),
    ("个钟", HOUR),
    ("天", DAY),
    ("日", DAY),
    ("个星期", WEEK),
    ("星期", WEEK),
    ("周", WEEK),
];

const DAYS: &[(&str, i32)] = &[("大后天", 3), ("今天", 0), ("今日", 0), ("明天", 1), ("明日", 1), ("后天", 2)];

const WEEKDAYS: &[(char, Weekday)] = &[
    ('一', Weekday::Monday),
    ('二', Weekday::Tuesday),
    ('三', Weekday::Wednesday),
    ('四', Weekday::Thursday),
    ('五', Weekday::Friday),
    ('六', Weekday::Saturday),
    ('日', Weekday::Sunday),
    ('天', Weekday::Sunday),
];

/// A part of the day, the hour that it means when none is said, and whether its hours are past noon.
const PARTS: &[(&str, i8, bool)] = &[
    ("凌晨", 5, false),
    ("早上", 8, false),
    ("早晨", 8, false),
    ("上午", 9, false),
    ("中午", 12, true),
    ("下午", 15, true),
    ("傍晚", 18, true),
    ("晚上", 20, true),
    ("早", 8, false),
    ("晚", 20, true),
];

const DIGITS: &[(char, u64)] = &[
    ('零', 0),
    ('〇', 0),
    ('一', 1),
    ('二', 2),
    ('两', 2),
    ('三', 3),
    ('四', 4),
    ('五', 5),
    ('六', 6),
    ('七', 7),
    ('八', 8),
    ('九', 9),
];

/// Reads a text that is a time and nothing else.
pub(super) fn read(text: &str) -> Option<When> {
    let text: String = text.chars().filter(|c| !c.is_whitespace() && !matches!(c, '，' | ',')).collect();
    let mut reader = Reader { rest: &text };
    reader.take(&["在", "于"]);
    let when = reader.repeated().or_else(|| reader.wait()).or_else(|| reader.moment())?;
    reader.rest.is_empty().then_some(when)
}

struct Reader<'a> {
    rest: &'a str,
}

impl Reader<'_> {
    /// Takes the first of the words that the rest begins with.
    fn take(&mut self, words: &[&str]) -> bool {
        self.look(words.iter().map(|word| (*word, ()))).is_some()
    }

    fn look<'w, T>(&mut self, words: impl IntoIterator<Item = (&'w str, T)>) -> Option<T> {
        let (word, value) = words.into_iter().find(|(word, _)| self.rest.starts_with(word))?;
        self.rest = &self.rest[word.len()..];
        Some(value)
    }

    /// Runs `read`, and takes nothing when it finds nothing.
    fn attempt<T>(&mut self, read: impl FnOnce(&mut Self) -> Option<T>) -> Option<T> {
        let before = self.rest;
        let found = read(self);
        if found.is_none() {
            self.rest = before;
        }
        found
    }

    /// Digits, or Chinese numerals up to 九十九.
    fn number(&mut self) -> Option<u64> {
        let end = self.rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(self.rest.len());
        if end > 0 {
            let value = self.rest[..end].parse().ok()?;
            self.rest = &self.rest[end..];
            return Some(value);
        }
        let tens = self.digit();
        if !self.take(&["十"]) {
            return tens;
        }
        Some(tens.unwrap_or(1) * 10 + self.digit().unwrap_or(0))
    }

    fn digit(&mut self) -> Option<u64> {
        let first = self.rest.chars().next()?;
        let (_, value) = DIGITS.iter().find(|(digit, _)| *digit == first)?;
        self.rest = &self.rest[first.len_utf8()..];
        Some(*value)
    }

    fn unit(&mut self) -> Option<u64> {
        self.look(UNITS.iter().copied())
    }

    /// “10分钟”, “一个半小时”, “1小时30分钟”, in seconds.
    fn length(&mut self) -> Option<u64> {
        if self.take(&["半小时", "半个小时", "半个钟头"]) {
            return Some(HOUR / 2);
        }
        let mut total: u64 = 0;
        while let Some(part) = self.attempt(Self::part) {
            total = total.checked_add(part)?;
        }
        seconds(total, 1)
    }

    fn part(&mut self) -> Option<u64> {
        let count = self.number()?;
        if self.take(&["个半小时", "个半钟头"]) {
            return seconds(count, HOUR)?.checked_add(HOUR / 2);
        }
        let unit = self.unit()?;
        seconds(count, unit)
    }

    /// “10分钟后”, “过半小时”.
    fn wait(&mut self) -> Option<When> {
        self.attempt(|reader| {
            let led = reader.take(&["再过", "过"]);
            let length = reader.length()?;
            let tailed = reader.take(&["之后", "以后", "过后", "后"]);
            (led || tailed).then_some(When::In(length))
        })
    }

    /// “每天9点”, “每周一早上8点”, “每隔2小时”, “每小时”.
    fn repeated(&mut self) -> Option<When> {
        self.attempt(|reader| {
            if !reader.take(&["每隔", "每"]) {
                return None;
            }
            if let Some(weekday) =
                reader.attempt(|reader| reader.take(&["周", "星期", "个星期"]).then(|| reader.weekday())?)
            {
                return Some(When::Weekly { weekday: Some(weekday), clock: reader.clock().unwrap_or_else(morning) });
            }
            if reader.take(&["个工作日", "工作日"]) {
                return Some(When::Working { clock: reader.clock().unwrap_or_else(morning) });
            }
            if reader.take(&["天", "日"]) {
                return Some(When::Weekly { weekday: None, clock: reader.clock().unwrap_or_else(morning) });
            }
            if let Some(length) = reader.length() {
                return Some(When::Every(length));
            }
            if let Some(unit) = reader.unit() {
                return Some(When::Every(unit));
            }
            Some(When::Weekly { weekday: None, clock: reader.clock()? })
        })
    }

    fn weekday(&mut self) -> Option<Weekday> {
        let first = self.rest.chars().next()?;
        let (_, weekday) = WEEKDAYS.iter().find(|(name, _)| *name == first)?;
        self.rest = &self.rest[first.len_utf8()..];
        Some(*weekday)
    }

    /// A day, a clock time, or both.
    fn moment(&mut self) -> Option<When> {
        let day = self.day();
        match (day, self.clock()) {
            (day, Some(clock)) => Some(When::At { day: day.unwrap_or(Day::Next), clock }),
            (Some(day), None) => Some(When::At { day, clock: morning() }),
            (None, None) => None,
        }
    }

    fn day(&mut self) -> Option<Day> {
        if let Some(days) = self.look(DAYS.iter().copied()) {
            return Some(Day::Ahead(days));
        }
        // “今晚”, “明早”: the part of the day is left for the clock.
        for (word, days) in [("今", 0), ("明", 1)] {
            if let Some(rest) = self.rest.strip_prefix(word)
                && rest.starts_with(['早', '晚'])
            {
                self.rest = rest;
                return Some(Day::Ahead(days));
            }
        }
        if let Some(weekday) = self.attempt(|reader| {
            reader.take(&["下周", "下个周", "下星期", "下个星期", "下礼拜"]).then(|| reader.weekday())?
        }) {
            return Some(Day::NextWeek(weekday));
        }
        if let Some(weekday) =
            self.attempt(|reader| reader.take(&["这周", "本周", "周", "星期", "礼拜"]).then(|| reader.weekday())?)
        {
            return Some(Day::Weekday(weekday));
        }
        let date: Date = self.rest.get(..10)?.parse().ok()?;
        self.rest = &self.rest[10..];
        Some(Day::On(date))
    }

    /// “15:00”, “下午3点”, “晚上八点半”, “中午”.
    fn clock(&mut self) -> Option<Time> {
        let part = self.look(PARTS.iter().map(|(word, hour, past_noon)| (*word, (*hour, *past_noon))));
        let Some((hour, minute)) = self.attempt(Self::hour_and_minute) else {
            return Time::new(part?.0, 0, 0, 0).ok();
        };
        let past_noon = part.is_some_and(|(_, past_noon)| past_noon);
        let hour = if past_noon && (1..=11).contains(&hour) { hour + 12 } else { hour };
        Time::new(i8::try_from(hour).ok()?, i8::try_from(minute).ok()?, 0, 0).ok()
    }

    fn hour_and_minute(&mut self) -> Option<(u64, u64)> {
        let hour = self.number()?;
        if self.take(&[":", "："]) {
            return Some((hour, self.number()?));
        }
        if !self.take(&["点钟", "点", "时"]) {
            return None;
        }
        if self.take(&["半"]) {
            return Some((hour, 30));
        }
        if self.take(&["一刻"]) {
            return Some((hour, 15));
        }
        if self.take(&["三刻"]) {
            return Some((hour, 45));
        }
        let minute = self.number().unwrap_or(0);
        self.take(&["分", "整"]);
        Some((hour, minute))
    }
}

#[cfg(test)]
mod tests {
    use jiff::civil::{date, time};

    use super::*;

    #[test]
    fn chinese_times() {
        let at = |day, hour, minute| Some(When::At { day, clock: time(hour, minute, 0, 0) });
        let weekly = |weekday, hour, minute| Some(When::Weekly { weekday, clock: time(hour, minute, 0, 0) });
        let cases = [
            ("10分钟后", Some(When::In(600))),
            ("三十五分钟以后", Some(When::In(2_100))),
            ("半小时后", Some(When::In(1_800))),
            ("过一个半小时", Some(When::In(5_400))),
            ("1小时30分钟后", Some(When::In(5_400))),
            ("两天后", Some(When::In(172_800))),
            ("15:00", at(Day::Next, 15, 0)),
            ("在 15：30", at(Day::Next, 15, 30)),
            ("下午3点", at(Day::Next, 15, 0)),
            ("晚上八点半", at(Day::Next, 20, 30)),
            ("十二点", at(Day::Next, 12, 0)),
            ("明天", at(Day::Ahead(1), 9, 0)),
            ("明天早上九点一刻", at(Day::Ahead(1), 9, 15)),
            ("今晚8点", at(Day::Ahead(0), 20, 0)),
            ("后天中午", at(Day::Ahead(2), 12, 0)),
            ("周五下午5点", at(Day::Weekday(Weekday::Friday), 17, 0)),
            ("下周五下午5点", at(Day::NextWeek(Weekday::Friday), 17, 0)),
            ("2026-12-24 18:00", at(Day::On(date(2026, 12, 24)), 18, 0)),
            ("每天9点", weekly(None, 9, 0)),
            ("每周一早上8点", weekly(Some(Weekday::Monday), 8, 0)),
            ("每个工作日8点", Some(When::Working { clock: time(8, 0, 0, 0) })),
            ("每晚十点", weekly(None, 22, 0)),
            ("每隔2小时", Some(When::Every(7_200))),
            ("每小时", Some(When::Every(3_600))),
            ("10分钟", None),
            ("25点", None),
            ("每", None),
            ("99999999999999999999分钟后", None),
            ("待会儿", None),
            ("", None),
        ];
        for (text, expected) in cases {
            assert_eq!(read(text), expected, "{text}");
        }
    }
}
