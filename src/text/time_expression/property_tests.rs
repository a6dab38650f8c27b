//! Property tests that hold for every text.

use jiff::civil::date;
use proptest::prelude::*;

use super::{DueTime, MAX_SECONDS, explain_partial_time, parse, parse_duration, starts_with_time};
use crate::text::{Language, language_of};

/// Words of time expressions in any order.
fn phrase() -> impl Strategy<Value = String> {
    let english = "in|at|on|every|and|,|10|9|21|9:30|minutes|hours|an hour|a half|tomorrow|tonight|Monday|mondays|\
         next|month|1st|December 24|2027|pm|noon|midnight|half past|to|from|between|other|day|week|\
         weekdays|of|the|last|morning|in the evening|until|banana";
    let chinese = "每|隔|一|两|10|分钟|小时|后|个|半|和|、|到|明天|今晚|周|周一|三|五|下|月|日|号|点|9:30|早上|晚上|半夜|凌晨|最后|第|天|的|年|工作日|香蕉";
    let of = |words: &'static str, gap: &'static str| {
        let words: Vec<_> = words.split('|').collect();
        prop::collection::vec(prop::sample::select(words), 1..8).prop_map(move |words| words.join(gap))
    };
    prop_oneof![of(english, " "), of(chinese, ""), any::<String>()]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn an_expression_is_read_completely_or_refused(text in phrase()) {
        let found = parse(&text);
        for more in ["banana", "香蕉"] {
            let longer = format!("{text} {more}");
            prop_assert!(parse(&longer).is_err(), "{longer}");
            if let (Ok(_), Err(wrong)) = (&found, parse(&longer)) && language_of(&text) == language_of(&longer) {
                prop_assert_eq!(wrong.rest.as_str(), more, "{}", longer);
            }
        }
        if let Err(wrong) = found {
            prop_assert!(!wrong.to_string().is_empty() && !wrong.chinese().is_empty());
        }
    }

    #[test]
    fn every_expression_can_be_resolved(text in phrase()) {
        let now = date(2026, 11, 21).at(14, 5, 0, 0);
        if let Ok(when) = parse(&text) {
            match when.due(Some(now)) {
                Some(DueTime::In(seconds)) => prop_assert!((1..=MAX_SECONDS).contains(&seconds)),
                Some(DueTime::Every { seconds, first }) => {
                    prop_assert!((1..=MAX_SECONDS).contains(&seconds));
                    prop_assert!(first.is_none_or(|first| first > now));
                }
                Some(DueTime::Cron(expression)) => prop_assert_eq!(expression.split(' ').count(), 5, "{}", expression),
                Some(DueTime::At(_)) | None => {}
            }
        }
    }

    #[test]
    fn boundaries_of_any_text_are_examined(text in phrase()) {
        for language in [Language::En, Language::Zh] {
            if let Some(wrong) = explain_partial_time(&text, language) {
                // The error repeats parts of the text, apart from white space.
                let plain = |text: &str| text.split_whitespace().collect::<String>();
                for part in [&wrong.understood, &wrong.rest] {
                    prop_assert!(plain(&text).contains(&plain(part)), "{:?} is not of {:?}", part, text);
                }
                prop_assert!(!wrong.to_string().is_empty() && !wrong.chinese().is_empty());
            }
        }
        prop_assert!(parse_duration(&text).is_none_or(|seconds| (1..=MAX_SECONDS).contains(&seconds)));
        // A time after another time is always detected.
        if parse(&text).is_ok() {
            let and = if language_of(&text) == Language::Zh { "和" } else { "and " };
            prop_assert!(starts_with_time(&format!("{and}{text}"), language_of(&text)), "{}", text);
        }
    }
}
