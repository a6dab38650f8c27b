use super::*;

#[test]
fn texts_are_split_into_terms() {
    for (text, expected) in [
        ("", ""),
        ("?! …", ""),
        ("The cats are running", "the cat ar run"),
        ("Caroline's dog won't bark", "carolin dog won bark"),
        ("l’été à l'école", "l et a l ecol"),
        ("node.js v1.2, a_b", "node js v1 2 a b"),
        ("ＡＢＣ ｶﾀ", "abc カ タ カタ"),
        ("ÀÉÎõü Ångström", "aeiou angstrom"),
        ("Ёлка СОБАКИ", "елка собаки"),
        ("Ἀθῆναι", "αθηναι"),
        ("狗", "狗"),
        ("我的狗", "我 的 狗 我的 的狗"),
        ("用Rust写的", "用 rust 写 的 写的"),
        ("猫が好き", "猫 が 好 き 猫が が好 好き"),
        ("서울 시", "서 울 서울 시"),
        ("กา", "ก า กา"),
        ("हिन्दी।", "हिन्दी"),
        ("كِتَابٌ", "كتاب"),
        ("שָׁלוֹם", "שלום"),
        ("\u{e000}abc", "abc"),
        ("👍 ok", "ok"),
    ] {
        assert_eq!(index_terms(text).join(" "), expected, "{text:?}");
    }
}

#[test]
fn a_prefix_of_a_word_tells_whether_its_stem_may_match() {
    let letters = || (b'a'..=b'z').map(char::from);
    let endings = [
        "", "s", "es", "ed", "ing", "y", "ys", "yed", "ies", "ied", "eed", "ating", "ational", "bbing", "iz", "ement",
        "e", "l",
    ];
    let words = letters().flat_map(|a| letters().map(move |b| format!("{a}{b}")));
    let words = words.chain(letters().map(String::from)).flat_map(|word| endings.map(|end| format!("{word}{end}")));
    for word in words.chain(["狗", "我的", "ёлка"].map(str::to_owned)) {
        let term = |text: String| [SearchTerm { text, weight: 1.0 }];
        let terms = term(stem(&word));
        assert!(TermPrefixes::of(&terms).may_match(&word), "{word} {}", terms[0].text);
        let is_other = word.is_ascii() && !word.starts_with("qq");
        assert!(!is_other || !TermPrefixes::of(&term("qq".to_owned())).may_match(&word), "{word}");
    }
}

#[test]
fn queries_lose_stop_words() {
    for (text, expected) in [
        ("What is the name of my dog?", "name:1 dog:1"),
        ("to be or not to be", "to:1 be:1 or:1 not:1"),
        ("dogs dog DOG", "dog:1"),
        ("狗", "狗:1"),
        ("我的", "我的:0.25 我:0.3 的:0.3"),
        ("我的狗", "的狗:0.25 狗:0.3"),
        ("名字", "名字:1 名:0.3 字:0.3"),
        ("", ""),
        ("!?", ""),
    ] {
        let terms = query_terms(text);
        let terms: Vec<_> = terms.iter().map(|term| format!("{}:{}", term.text, term.weight)).collect();
        assert_eq!(terms.join(" "), expected, "{text:?}");
    }
}

#[test]
fn long_texts_and_queries_are_cut() {
    let long = "狗a".repeat(1_000_000);
    assert_eq!(index_terms(&long).len(), TEXT_LIMIT / 4 * 2);
    let words: String = (0..10_000).map(|n| format!("w{n} ")).collect();
    let terms = query_terms(&words);
    assert_eq!((terms.len(), terms[0].text.as_str(), terms[63].text.as_str()), (64, "w0", "w9999"));
    assert_eq!(index_terms(&"x".repeat(100))[0].len(), WORD_LIMIT);
}

#[test]
fn the_first_match_is_located() {
    for (text, asked, expected) in [
        ("My dogs bark", "dog", Some(3)),
        ("我的狗叫旺财", "旺财", Some(12)),
        ("我的狗叫旺财", "狗", Some(6)),
        ("l’été", "ete", Some("l’".len())),
        ("nothing here", "dog", None),
    ] {
        assert_eq!(first_match(text, &query_terms(asked)), expected, "{asked} in {text}");
    }
}

proptest::proptest! {
    #[test]
    fn every_term_of_a_query_is_a_term_of_the_index(text in ".{0,200}") {
        let terms = index_terms(&text);
        proptest::prop_assert!(terms.iter().all(|term| !term.is_empty() && !term.contains([' ', '"'])));
        for term in query_terms(&text) {
            proptest::prop_assert!(terms.contains(&term.text), "{} is not in {:?}", term.text, terms);
        }
        first_match(&text, &query_terms("a 狗"));
    }
}
