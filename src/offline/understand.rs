//! From the user's words to what is wanted of the responder.

use std::sync::LazyLock;

use super::pattern::Pattern;
use super::rules::{Intent, POLITE, POLITE_END, RULES};
use super::slots::Slots;
use crate::text::Language;

/// The most requests that are read out of one message, a line each.
const MAX_LINES: usize = 8;

/// One request of the user.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Wish {
    pub intent: Intent,
    pub language: Language,
    pub slots: Slots,
}

static PATTERNS: LazyLock<Vec<(Intent, Language, Pattern)>> = LazyLock::new(|| {
    let mut patterns = Vec::new();
    for rule in RULES {
        for (language, written) in [(Language::En, rule.en), (Language::Zh, rule.zh)] {
            patterns.extend(written.iter().map(|written| (rule.intent, language, Pattern::compile(written))));
        }
    }
    patterns
});

/// What the message asks for, at least one wish. Several lines are several wishes when each one is understood by
/// itself; otherwise the message is one.
pub(super) fn understand(text: &str) -> Vec<Wish> {
    let text = text.trim();
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).take(MAX_LINES + 1).collect();
    if (2..=MAX_LINES).contains(&lines.len()) {
        let wishes: Option<Vec<Wish>> = lines.iter().map(|line| read(line.trim())).collect();
        if let Some(wishes) = wishes {
            return wishes;
        }
    }
    let unknown = || Wish { intent: Intent::Unknown, language: Language::of(text), slots: Slots::default() };
    vec![read(text).unwrap_or_else(unknown)]
}

/// Reads one request, as it stands or without the polite words around it.
fn read(text: &str) -> Option<Wish> {
    let plain = text.trim_end_matches(['.', '!', '。', '！', '～']);
    let polite_end = POLITE_END.iter().find_map(|word| plain.strip_suffix(word));
    read_after_politeness(text).or_else(|| read_after_politeness(polite_end?.trim_end_matches([' ', ',', '，'])))
}

fn read_after_politeness(text: &str) -> Option<Wish> {
    let mut text = text;
    loop {
        if let Some(wish) = read_plain(text) {
            return Some(wish);
        }
        let polite = POLITE.iter().find(|word| {
            let head = text.get(..word.len());
            head.is_some_and(|head| head.eq_ignore_ascii_case(word))
        })?;
        text = text[polite.len()..].trim_start_matches([' ', ',', '，', '!', '！', '.', '。', '\n']);
    }
}

fn read_plain(text: &str) -> Option<Wish> {
    PATTERNS.iter().find_map(|(intent, language, pattern)| {
        let slots = pattern.fit(text, *language)?;
        // Without an argument every word is the user's own; with one, the words around it tell the language.
        let slots = if *intent == Intent::Unknown { Slots::default() } else { slots };
        let language = if slots == Slots::default() { Language::of(text) } else { *language };
        Some(Wish { intent: *intent, language, slots })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A message; what is wanted; the path and the words found in it.
    const CASES: &[(&str, Intent, &str, &str)] = &[
        ("hi", Intent::Greeting, "", ""),
        ("你好！", Intent::Greeting, "", ""),
        ("Can you help me?", Intent::Help, "", ""),
        ("what can you do", Intent::Help, "", ""),
        ("请问你能做什么？", Intent::Help, "", ""),
        ("hello, what time is it?", Intent::Time, "", ""),
        ("现在几点了", Intent::Time, "", ""),
        ("what day is it today", Intent::Date, "", ""),
        ("今天星期几", Intent::Date, "", ""),
        ("what is 12 * (3 + 4)?", Intent::Calculate, "", "12 * (3 + 4)?"),
        ("2*3", Intent::Calculate, "", "2*3"),
        ("计算 3+4", Intent::Calculate, "", "3+4"),
        ("2026-11-21", Intent::Unknown, "", ""),
        ("list files", Intent::ListFiles, "", ""),
        ("List the files in src/llm.", Intent::ListFiles, "src/llm", ""),
        ("show me all the files in the docs folder", Intent::ListFiles, "docs", ""),
        ("列出文件", Intent::ListFiles, "", ""),
        ("列出 src 目录下的所有文件", Intent::ListFiles, "src", ""),
        ("当前目录有哪些文件？", Intent::ListFiles, ".", ""),
        ("please read notes.md", Intent::ReadFile, "notes.md", ""),
        ("show me the contents of a/b.txt", Intent::ReadFile, "a/b.txt", ""),
        ("what's in README.md?", Intent::ReadFile, "README.md", ""),
        ("read me a story", Intent::Unknown, "", ""),
        ("读 notes.md", Intent::ReadFile, "notes.md", ""),
        ("查看 notes.md 的内容", Intent::ReadFile, "notes.md", ""),
        ("write hello world to a.txt", Intent::WriteFile, "a.txt", "hello world"),
        ("create a file called a.txt with the content: hi, you", Intent::WriteFile, "a.txt", "hi, you"),
        ("write to a.txt:\n# One\n\n- two", Intent::WriteFile, "a.txt", "# One\n\n- two"),
        ("create a file a.txt", Intent::WriteWhat, "a.txt", ""),
        ("write me a summary to notes.md", Intent::Unknown, "", ""),
        ("read notes.md please", Intent::ReadFile, "notes.md", ""),
        ("find files containing tea", Intent::Search, "", "tea"),
        ("ls -la", Intent::Run, "", "ls -la"),
        ("what's my favourite tea?", Intent::Recall, "", "favourite tea"),
        ("告诉我现在几点", Intent::Time, "", ""),
        ("write a letter to Mom", Intent::Unknown, "", ""),
        ("把“你好”写到 a.txt", Intent::WriteFile, "a.txt", "你好"),
        ("创建文件 a.txt，内容为：你好", Intent::WriteFile, "a.txt", "你好"),
        ("search for TODO in src", Intent::Search, "src", "TODO"),
        ("grep main", Intent::Search, "", "main"),
        ("搜索 预算", Intent::Search, "", "预算"),
        ("在 docs 里搜索 预算", Intent::Search, "docs", "预算"),
        ("find files named *.rs", Intent::FindFiles, "*.rs", ""),
        ("search the web for rust", Intent::WebSearch, "", "rust"),
        ("fetch https://example.org/a?", Intent::Fetch, "https://example.org/a", ""),
        ("$ ls -la | head", Intent::Run, "", "ls -la | head"),
        ("run `cargo test`", Intent::Run, "", "cargo test"),
        ("run me through it", Intent::Unknown, "", ""),
        ("运行 df -h", Intent::Run, "", "df -h"),
        ("运行情况怎么样", Intent::Unknown, "", ""),
        ("remember that I like tea.", Intent::Remember, "", "I like tea."),
        ("记住：我喜欢茶", Intent::Remember, "", "我喜欢茶"),
        ("what do you remember about tea?", Intent::Recall, "", "tea"),
        ("你还记得我的生日吗？", Intent::Recall, "", "我的生日"),
        ("forget #12", Intent::Forget, "", "12"),
        ("forget that I like tea", Intent::ForgetWhich, "", "I like tea"),
        ("忘记 12", Intent::Forget, "", "12"),
        ("remind me in 10 minutes to go to town", Intent::Remind, "", "go to town"),
        ("remind me to call Ann at 3pm tomorrow", Intent::Remind, "", "call Ann"),
        ("in 2 hours, remind me to rest", Intent::Remind, "", "rest"),
        ("remind me at 15:00", Intent::Remind, "", ""),
        ("remind me to rest", Intent::RemindWhen, "", "rest"),
        ("10分钟后提醒我喝水", Intent::Remind, "", "喝水"),
        ("提醒我明天下午三点半开会", Intent::Remind, "", "开会"),
        ("提醒我开会", Intent::RemindWhen, "", "开会"),
        ("remind me every Monday and Thursday at 9 to water the plants", Intent::Remind, "", "water the plants"),
        ("remind me tomorrow about Friday's party", Intent::Remind, "", "Friday's party"),
        ("remind me tomorrow: at 9 the train leaves", Intent::Remind, "", "at 9 the train leaves"),
        ("remind me to read the Sunday paper", Intent::RemindWhen, "", "read the Sunday paper"),
        ("remind me in 10 minutes and in 20 minutes to stretch", Intent::RemindUnclear, "", ""),
        ("in 10 minutes and in 20 minutes remind me to stretch", Intent::RemindUnclear, "", "stretch"),
        ("remind me to call Ann at 3pm tomorrow and on Friday", Intent::RemindUnclear, "", ""),
        ("remind me to call Ann at 25:00 tomorrow", Intent::RemindUnclear, "", ""),
        ("remind me at 9 to 17 to stretch", Intent::RemindUnclear, "", ""),
        ("remind me every day at 9 except Sunday to stretch", Intent::RemindUnclear, "", ""),
        ("remind me twice a day to stretch", Intent::RemindUnclear, "", ""),
        ("set a reminder for Monday and Thursday to rest", Intent::RemindUnclear, "", ""),
        ("提醒我每周一和周四9点浇花", Intent::Remind, "", "浇花"),
        ("提醒我明天9点和小王开会", Intent::Remind, "", "和小王开会"),
        ("提醒我明天9点到公司", Intent::Remind, "", "到公司"),
        ("提醒我浇花，每周一9点", Intent::Remind, "", "浇花"),
        ("提醒我明天7点起床", Intent::Remind, "", "起床"),
        ("提醒我明天9点到10点开会", Intent::RemindUnclear, "", ""),
        ("提醒我10分钟后和20分钟后喝水", Intent::RemindUnclear, "", ""),
        ("10分钟后和20分钟后提醒我喝水", Intent::RemindUnclear, "", "喝水"),
        ("提醒我9点前交作业", Intent::RemindUnclear, "", ""),
        ("每天9点到17点提醒我喝水", Intent::RemindUnclear, "", "喝水"),
        ("list my reminders", Intent::ListReminders, "", ""),
        ("查看提醒", Intent::ListReminders, "", ""),
        ("cancel reminder 3f2a", Intent::CancelReminder, "", "3f2a"),
        ("取消提醒 3", Intent::CancelReminder, "", "3"),
        ("send me a message: done", Intent::Message, "", "done"),
        ("发消息：完成了", Intent::Message, "", "完成了"),
        ("how do I connect a model?", Intent::Connect, "", ""),
        ("怎么接入大模型", Intent::Connect, "", ""),
        ("why is the sky blue", Intent::Unknown, "", ""),
        ("天为什么是蓝的", Intent::Unknown, "", ""),
        ("", Intent::Unknown, "", ""),
    ];

    #[test]
    fn what_is_understood() {
        for (text, intent, path, words) in CASES {
            let wishes = understand(text);
            let wish = &wishes[0];
            let found = (wish.intent, wish.slots.path.as_deref(), wish.slots.text.as_deref());
            let found = (found.0, found.1.unwrap_or_default(), found.2.unwrap_or_default());
            assert_eq!((wishes.len(), found), (1, (*intent, *path, *words)), "{text}");
            assert_eq!(wish.language, Language::of(text), "{text}");
        }
    }

    #[test]
    fn each_line_is_a_wish_if_all_are_understood() {
        let intents = |text| understand(text).iter().map(|wish| wish.intent).collect::<Vec<_>>();
        assert_eq!(intents("what time is it?\n\nlist files"), [Intent::Time, Intent::ListFiles]);
        assert_eq!(intents("list files\nand sing"), [Intent::Unknown]);
        assert_eq!(intents(&"list files\n".repeat(50)), [Intent::Unknown]);
    }
}
