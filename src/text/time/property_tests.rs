//! What holds for each text, however it is put together.

use jiff::civil::date;
use proptest::prelude::*;

use super::{Due, LONGEST, Language, begins, length, read, unclear};

/// Words of times, in an order that may make one.
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
    fn what_is_read_is_read_whole(text in phrase()) {
        let found = read(&text);
        for more in ["banana", "香蕉"] {
            let longer = format!("{text} {more}");
            prop_assert!(read(&longer).is_err(), "{longer}");
            if let (Ok(_), Err(wrong)) = (&found, read(&longer)) && Language::of(&text) == Language::of(&longer) {
                prop_assert_eq!(wrong.rest.as_str(), more, "{}", longer);
            }
        }
        if let Err(wrong) = found {
            prop_assert!(!wrong.to_string().is_empty() && !wrong.chinese().is_empty());
        }
    }

    #[test]
    fn what_is_read_comes_true(text in phrase()) {
        let now = date(2026, 11, 21).at(14, 5, 0, 0);
        if let Ok(when) = read(&text) {
            match when.due(Some(now)) {
                Some(Due::In(seconds)) => prop_assert!((1..=LONGEST).contains(&seconds)),
                Some(Due::Every { seconds, first }) => {
                    prop_assert!((1..=LONGEST).contains(&seconds));
                    prop_assert!(first.is_none_or(|first| first > now));
                }
                Some(Due::Cron(expression)) => prop_assert_eq!(expression.split(' ').count(), 5, "{}", expression),
                Some(Due::At(_)) | None => {}
            }
        }
    }

    #[test]
    fn edges_of_any_text(text in phrase()) {
        for language in [Language::En, Language::Zh] {
            if let Some(wrong) = unclear(&text, language) {
                // What it says stands in the text, but for white space.
                let plain = |text: &str| text.split_whitespace().collect::<String>();
                for part in [&wrong.understood, &wrong.rest] {
                    prop_assert!(plain(&text).contains(&plain(part)), "{:?} is not of {:?}", part, text);
                }
                prop_assert!(!wrong.to_string().is_empty() && !wrong.chinese().is_empty());
            }
        }
        prop_assert!(length(&text).is_none_or(|seconds| (1..=LONGEST).contains(&seconds)));
        // A time never follows another unseen.
        if read(&text).is_ok() {
            let and = if Language::of(&text) == Language::Zh { "和" } else { "and " };
            prop_assert!(begins(&format!("{and}{text}"), Language::of(&text)), "{}", text);
        }
    }
}
