//! Everyday sentences that the responder must not guess at: it reads them right, asks, or refuses them.

use super::request::read_requests;
use super::tests::{ALL, check, found};

/// The message, its request, and the path and the text found in it, as in the table of `tests`.
const SENTENCES: &[(&str, &str, &str, &str)] = &[
    // The 时 of 小时 belongs to the time.
    ("每小时提醒我喝水", "remind", "", "喝水"),
    ("每2小时提醒我喝水", "remind", "", "喝水"),
    ("每隔两小时提醒我喝水", "remind", "", "喝水"),
    ("每半小时提醒我喝水", "remind", "", "喝水"),
    ("每一个半小时提醒我喝水", "remind", "", "喝水"),
    ("每两个小时提醒我喝水", "remind", "", "喝水"),
    ("每小时叫我喝水", "remind", "", "喝水"),
    ("工作日9点到17点每小时提醒我喝水", "remind", "", "喝水"),
    ("下午3时提醒我喝水", "remind", "", "喝水"),
    ("下午3点的时候提醒我喝水", "remind", "", "喝水"),
    // Words that begin like a time.
    ("提醒我早点睡", "when", "", "早点睡"),
    ("提醒我早起", "when", "", "早起"),
    ("提醒我早些睡", "when", "", "早些睡"),
    ("提醒我早饭后吃药", "when", "", "早饭后吃药"),
    ("提醒我晚饭前洗手", "when", "", "晚饭前洗手"),
    ("提醒我晚点打电话", "unclear", "", ""),
    ("提醒我晚上早点睡", "remind", "", "早点睡"),
    ("提醒我周五晚开会", "remind", "", "开会"),
    ("提醒我晚8点开会", "remind", "", "开会"),
    ("提醒我周一三五健身", "unclear", "", ""),
    ("提醒我周二四健身", "unclear", "", ""),
    ("周二四提醒我健身", "unclear", "", ""),
    ("每天提醒我三次喝水", "unclear", "", ""),
    ("每周提醒我三次健身", "unclear", "", ""),
    ("提醒我每周三次健身", "unclear", "", ""),
    ("提醒我每周健身三次", "unclear", "", ""),
    ("提醒我1号楼开会", "when", "", "1号楼开会"),
    ("提醒我3号线换乘", "when", "", "3号线换乘"),
    ("提醒我两点之间直线最短", "unclear", "", ""),
    ("今天提醒我下午5点锁门", "remind", "", "锁门"),
    // Two tasks with two times.
    ("remind me to buy milk tomorrow and call Ann on Friday", "unclear", "", ""),
    ("remind me tomorrow to buy milk and on Friday to call Ann", "unclear", "", ""),
    ("提醒我明天买牛奶，周五给安打电话", "unclear", "", ""),
    (
        "remind me tomorrow to buy eggs, 2 cartons of milk and bread",
        "remind",
        "",
        "buy eggs, 2 cartons of milk and bread",
    ),
    ("every day remind me at 9 to plan", "remind", "", "plan"),
    // "X is at TIME" does not say when the reminder is due.
    ("remind me that the meeting is at 3pm", "unclear", "", ""),
    ("remind me mom's birthday is May 3", "unclear", "", ""),
    ("remind me tomorrow is Ann's birthday", "unclear", "", ""),
    ("提醒我会议是下午3点", "unclear", "", ""),
    ("提醒我妈妈生日是5月3日", "unclear", "", ""),
    ("提醒我明天9点的会议", "unclear", "", ""),
    // Questions and idioms are not facts.
    ("记住我们常去的酒吧", "remember", "", "我们常去的酒吧"),
    ("remind me about Friday dinner tomorrow at 9", "remind", "", "Friday dinner"),
    ("remember me?", "recall", "", "me"),
    ("remember what I told you yesterday?", "recall", "", "what I told you yesterday"),
    ("Can you remember what I said?", "recall", "", "what I said"),
    ("remember when we went to Rome", "unknown", "", ""),
    ("remember me", "unknown", "", ""),
    ("记住了吗？", "unknown", "", ""),
    ("记着呢", "unknown", "", ""),
    ("note to self: buy milk", "remember", "", "buy milk"),
    ("note the difference between a and b", "unknown", "", ""),
    ("note that I like tea", "remember", "", "I like tea"),
    ("don't forget I like tea", "remember", "", "I like tea"),
    ("Remember to call mom tomorrow", "remind", "", "call mom"),
    ("don't forget to buy milk", "when", "", "buy milk"),
    ("别忘了明天9点开会", "remind", "", "开会"),
    ("不要忘记买牛奶", "when", "", "买牛奶"),
    ("别忘了我喜欢茶", "remember", "", "我喜欢茶"),
    // No tool for files.
    ("你有什么？", "unknown", "", ""),
    ("冰箱里有什么", "unknown", "", ""),
    ("今天有什么", "unknown", "", ""),
    ("附近有哪些", "unknown", "", ""),
    ("what's in Berlin?", "unknown", "", ""),
    ("What's in the news?", "unknown", "", ""),
    ("save money in U.S.", "unknown", "", ""),
    ("save 10 to 12.5", "unknown", "", ""),
    ("工作区里有什么？", "list files", ".", ""),
    ("这里有什么", "list files", ".", ""),
    ("What is in the workspace?", "list files", ".", ""),
    ("notes/ 里有什么", "list files", "notes/", ""),
    ("docs 文件夹里有什么", "list files", "docs", ""),
    ("a.txt 里有什么", "read", "a.txt", ""),
    ("what's in the docs folder?", "list files", "docs", ""),
    ("what's in here?", "list files", ".", ""),
    ("what's in notes/", "list files", "notes/", ""),
    ("forget everything", "find memory", "", ""),
    ("忘记所有事情", "find memory", "", ""),
    ("取消所有提醒", "unknown", "", ""),
];

#[test]
fn everyday_sentences_are_not_guessed_at() {
    let mut wrong = Vec::new();
    for (text, kind, path, words) in SENTENCES {
        let requests = read_requests(text);
        let found = found(&requests[0].0);
        if found != (*kind, *path, *words) {
            wrong.push(format!("{text}: {found:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn an_unclear_time_is_explained_by_the_part_that_is_wrong() {
    check(
        ALL,
        &[
            ("remind me 5 minutes before 3pm to leave", r#"understood "3pm"; not understood: "5 minutes before""#),
            ("remind me before friday to pay", r#"understood "friday"; not understood: "before""#),
            ("remind me on 12/24 at 6pm to go", r#"not understood: "on 12/24" (day and month"#),
            ("remind me that the meeting is at 3pm", r#"understood "at 3pm"; not understood: "the meeting is""#),
            ("remind me later to lock up", r#"not understood: "later to lock up""#),
            ("remind me today to lock up", r#"understood "today", but say at which hour"#),
            ("今天提醒我锁门", "听懂了“今天”：请说明几点"),
            ("提醒我稍后锁门", "没有听懂“稍后锁门”"),
            ("提醒我周一三五健身", "听懂了“周一三五”：说了好几天"),
            ("提醒我每周健身三次", "听懂了“每周”，没有听懂“健身三次”"),
            ("今天提醒我下午5点锁门", r#""at":"2026-11-21T17:00:00+08:00""#),
            ("every day remind me at 9 to plan", r#""cron_expr":"0 9 * * *""#),
            ("每两个小时提醒我喝水", r#""every":"2h""#),
            ("下午3时提醒我喝水", r#""at":"2026-11-21T15:00:00+08:00""#),
            ("forget everything", r#"recall {"query":""}"#),
        ],
    );
}
