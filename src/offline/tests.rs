//! Tests of the whole responder: messages in both languages, and the responses.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::request::read_requests;
use super::*;
use crate::text::language_of;

/// The message, its request, and the path and the text found in it.
const MESSAGES: &[(&str, &str, &str, &str)] = &[
    ("hi", "help", "", ""),
    ("你好！", "help", "", ""),
    ("Can you help me?", "help", "", ""),
    ("what can you do", "help", "", ""),
    ("请问你能做什么？", "help", "", ""),
    ("hello, what time is it?", "time", "", ""),
    ("现在几点了", "time", "", ""),
    ("what day is it today", "time", "", ""),
    ("今天星期几", "time", "", ""),
    ("2026-11-21", "unknown", "", ""),
    ("list files", "list files", ".", ""),
    ("List the files in src/llm.", "list files", "src/llm", ""),
    ("show me all the files in the docs folder", "list files", "docs", ""),
    ("列出文件", "list files", ".", ""),
    ("列出 src 目录下的所有文件", "list files", "src", ""),
    ("当前目录有哪些文件？", "list files", ".", ""),
    ("please read notes.md", "read", "notes.md", ""),
    ("show me the contents of a/b.txt", "read", "a/b.txt", ""),
    ("what's in README.md?", "read", "README.md", ""),
    ("read me a story", "unknown", "", ""),
    ("读 notes.md", "read", "notes.md", ""),
    ("查看 notes.md 的内容", "read", "notes.md", ""),
    ("write hello world to a.txt", "write", "a.txt", "hello world"),
    ("create a file called a.txt with the content: hi, you", "write", "a.txt", "hi, you"),
    ("write to a.txt:\n# One\n\n- two", "write", "a.txt", "# One\n\n- two"),
    ("write me a summary to notes.md", "unknown", "", ""),
    ("read notes.md please", "read", "notes.md", ""),
    ("find files containing tea", "search", ".", "tea"),
    ("what's my favourite tea?", "recall", "", "favourite tea"),
    ("告诉我现在几点", "time", "", ""),
    ("write a letter to Mom", "unknown", "", ""),
    ("把“你好”写到 a.txt", "write", "a.txt", "你好"),
    ("创建文件 a.txt，内容为：你好", "write", "a.txt", "你好"),
    ("search for TODO in src", "search", "src", "TODO"),
    ("grep main", "search", ".", "main"),
    ("搜索 预算", "search", ".", "预算"),
    ("在 docs 里搜索 预算", "search", "docs", "预算"),
    ("find files named *.rs", "find files", "*.rs", ""),
    ("run me through it", "unknown", "", ""),
    ("运行情况怎么样", "unknown", "", ""),
    ("remember that I like tea.", "remember", "", "I like tea."),
    ("记住：我喜欢茶", "remember", "", "我喜欢茶"),
    ("what do you remember about tea?", "recall", "", "tea"),
    ("你还记得我的生日吗？", "recall", "", "我的生日"),
    ("forget #12", "forget", "", "12"),
    ("forget that I like tea", "find memory", "", "I like tea"),
    ("忘记 12", "forget", "", "12"),
    ("remind me in 10 minutes to go to town", "remind", "", "go to town"),
    ("remind me to call Ann at 3pm tomorrow", "remind", "", "call Ann"),
    ("in 2 hours, remind me to rest", "remind", "", "rest"),
    ("remind me at 15:00", "remind", "", ""),
    ("remind me to rest", "when", "", "rest"),
    ("10分钟后提醒我喝水", "remind", "", "喝水"),
    ("提醒我明天下午三点半开会", "remind", "", "开会"),
    ("提醒我开会", "when", "", "开会"),
    ("remind me every Monday and Thursday at 9 to water the plants", "remind", "", "water the plants"),
    ("remind me tomorrow about Friday's party", "remind", "", "Friday's party"),
    ("remind me tomorrow: at 9 the train leaves", "remind", "", "at 9 the train leaves"),
    ("remind me to read the Sunday paper", "when", "", "read the Sunday paper"),
    ("remind me in 10 minutes and in 20 minutes to stretch", "unclear", "", ""),
    ("in 10 minutes and in 20 minutes remind me to stretch", "unclear", "", ""),
    ("remind me to call Ann at 3pm tomorrow and on Friday", "unclear", "", ""),
    ("remind me to call Ann at 25:00 tomorrow", "unclear", "", ""),
    ("remind me at 9 to 17 to stretch", "unclear", "", ""),
    ("remind me every day at 9 except Sunday to stretch", "unclear", "", ""),
    ("remind me twice a day to stretch", "unclear", "", ""),
    ("set a reminder for Monday and Thursday to rest", "unclear", "", ""),
    ("remind me at noon on the first of january to run", "unclear", "", ""),
    ("remind me at noon on the first of january", "unclear", "", ""),
    ("remind me at 9 tomorrow Tokyo time to join the call", "unclear", "", ""),
    ("remind me tomorrow at 9, New York time, to join", "unclear", "", ""),
    ("remind me at 9 new york time", "unclear", "", ""),
    ("remind me at 9am PST to call", "unclear", "", ""),
    ("remind me at 9am PST", "unclear", "", ""),
    ("remind me tomorrow at 9 UTC to call", "unclear", "", ""),
    ("remind me tomorrow at 9 UTC+2: call", "unclear", "", ""),
    ("remind me tomorrow at 9 Europe/Berlin", "unclear", "", ""),
    ("remind me at 18:00 London time to call", "unclear", "", ""),
    ("remind me tomorrow at 9 in New York to call", "unclear", "", ""),
    ("remind me monday week to run", "unclear", "", ""),
    ("remind me at 9 for a week to run", "unclear", "", ""),
    ("remind me in 1 hour, not 2, to run", "unclear", "", ""),
    ("remind me yesterday to call", "unclear", "", ""),
    ("remind me in -5 minutes", "unclear", "", ""),
    ("remind me in about 20 minutes", "unclear", "", ""),
    ("remind me on christmas", "unclear", "", ""),
    ("remind me tomorrow of the party", "remind", "", "of the party"),
    ("remind me at 9 call Ann", "remind", "", "call Ann"),
    ("remind me at 8 bed time", "remind", "", "bed time"),
    ("remind me at 8 go to the gym", "remind", "", "go to the gym"),
    ("remind me in 10 minutes talk to Ann", "remind", "", "talk to Ann"),
    ("remind me tomorrow at 9 for the dentist", "remind", "", "for the dentist"),
    ("remind me at 9, in the office call Bob", "remind", "", "in the office call Bob"),
    ("remind me at 12 time for lunch", "remind", "", "time for lunch"),
    ("remind me at 4 Tea Time", "remind", "", "Tea Time"),
    ("remind me at 9 wet the plants", "remind", "", "wet the plants"),
    ("remind me tomorrow at 9, call Ann to confirm", "remind", "", "call Ann to confirm"),
    ("remind me in 1 hour, to run", "remind", "", "run"),
    ("remind me call Ann", "when", "", "call Ann"),
    ("remind me to be on time", "when", "", "be on time"),
    ("提醒我每周一和周四9点浇花", "remind", "", "浇花"),
    ("提醒我明天9点和小王开会", "remind", "", "和小王开会"),
    ("提醒我明天9点到公司", "remind", "", "到公司"),
    ("提醒我浇花，每周一9点", "remind", "", "浇花"),
    ("提醒我明天7点起床", "remind", "", "起床"),
    ("提醒我明天9点到10点开会", "unclear", "", ""),
    ("提醒我10分钟后和20分钟后喝水", "unclear", "", ""),
    ("10分钟后和20分钟后提醒我喝水", "unclear", "", ""),
    ("提醒我9点前交作业", "unclear", "", ""),
    ("每天9点到17点提醒我喝水", "unclear", "", ""),
    ("list my reminders", "list reminders", "", ""),
    ("查看提醒", "list reminders", "", ""),
    ("cancel reminder 3f2a", "cancel", "", "3f2a"),
    ("取消提醒 3", "cancel", "", "3"),
    ("how do I connect a model?", "help", "", ""),
    ("怎么接入大模型", "help", "", ""),
    ("why is the sky blue", "unknown", "", ""),
    ("天为什么是蓝的", "unknown", "", ""),
    ("", "unknown", "", ""),
    ("never mind", "unknown", "", ""),
    ("search the web for rust", "unknown", "", ""),
    ("叫我小明", "unknown", "", ""),
    ("明天7点叫我起床", "remind", "", "起床"),
    ("remind me in 20m to take the tea off", "remind", "", "take the tea off"),
    ("every Monday and Thursday at 9 remind me to water the plants", "remind", "", "water the plants"),
    ("remember that the door code\nis 4711", "remember", "", "the door code\nis 4711"),
    ("read ..", "read", "..", ""),
    ("read \"my notes\"", "read", "my notes", ""),
    ("read readme", "unknown", "", ""),
    ("write to be or to be to a.txt", "write", "a.txt", "to be or to be"),
    ("把 你好 写到 笔记.md 里", "write", "笔记.md", "你好"),
];

/// Returns the request in the notation of [`MESSAGES`].
pub(super) fn found(request: &UserRequest) -> (&str, &str, &str) {
    use reminder::Reminder;
    match request {
        UserRequest::Help => ("help", "", ""),
        UserRequest::Time => ("time", "", ""),
        UserRequest::ListFiles(path) => ("list files", path, ""),
        UserRequest::ReadFile(path) => ("read", path, ""),
        UserRequest::WriteFile { path, content } => ("write", path, content),
        UserRequest::FindFiles(pattern) => ("find files", pattern, ""),
        UserRequest::Search { query, path } => ("search", path, query),
        UserRequest::Remember(content) => ("remember", "", content),
        UserRequest::Recall(query) => ("recall", "", query),
        UserRequest::Forget(id) => ("forget", "", id),
        UserRequest::FindMemory(query) => ("find memory", "", query),
        UserRequest::Remind(Reminder::At { note, .. }) => ("remind", "", note),
        UserRequest::Remind(Reminder::NoTime { note }) => ("when", "", note),
        UserRequest::Remind(Reminder::Unclear(_)) => ("unclear", "", ""),
        UserRequest::ListReminders => ("list reminders", "", ""),
        UserRequest::CancelReminder(job) => ("cancel", "", job),
        UserRequest::Unknown => ("unknown", "", ""),
    }
}

#[test]
fn messages_are_understood_in_their_language() {
    let mut wrong = Vec::new();
    for (text, kind, path, words) in MESSAGES {
        let requests = read_requests(text);
        let (request, language) = &requests[0];
        let found = (requests.len(), found(request), *language);
        if found != (1, (*kind, *path, *words), language_of(text)) {
            wrong.push(format!("{text}: {found:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn each_line_is_a_request_if_all_are_understood() {
    let kinds = |text| read_requests(text).iter().map(|(request, _)| found(request).0.to_owned()).collect::<Vec<_>>();
    assert_eq!(kinds("what time is it?\n\nlist files"), ["time", "list files"]);
    assert_eq!(kinds("list files\nand sing"), ["unknown"]);
    assert_eq!(kinds(&"list files\n".repeat(50)), ["unknown"]);
}

#[test]
fn polite_words_are_removed_a_few_times_only() {
    for (count, expected) in [(8, UserRequest::Help), (9, UserRequest::Unknown), (2_000, UserRequest::Unknown)] {
        let text = format!("{}帮助", "请".repeat(count));
        assert_eq!(read_requests(&text)[0].0, expected, "{count}");
    }
}

#[test]
fn every_example_of_the_help_is_understood() {
    for language in [Language::En, Language::Zh] {
        for line in reply::help(language, |_| true).lines().filter_map(|line| line.strip_prefix("- ")) {
            for example in line.split(" · ") {
                let (request, of) = &read_requests(example)[0];
                assert_ne!(*request, UserRequest::Unknown, "{example}");
                assert_eq!(*of, language, "{example}");
            }
        }
    }
}

#[test]
fn results_of_memory_are_reported_in_both_languages() {
    let report = |language, tool: &str, result: &str| {
        let call = ToolCall { id: "1".into(), name: tool.into(), arguments: "{}".into() };
        reply::tool_result(language, &call, result, false)
    };
    for (result, en, zh) in [
        ("Remembered (id 12): I like tea", "I will remember that (12): I like tea", "我记住了（12）：I like tea"),
        (
            "Already known (id 12): I like tea",
            "I knew that already (12): I like tea",
            "这个我已经记得（12）：I like tea",
        ),
        (
            "Replaced: a (b) by c (id 2) by d (id 3)",
            "I will remember that (3): d. Before, it was: a (b) by c",
            "我记住了（3）：d。原来是：a (b) by c",
        ),
        ("(done, no output)", "I will remember that.", "我记住了。"),
    ] {
        assert_eq!(
            (report(Language::En, "remember", result), report(Language::Zh, "remember", result)),
            (en.to_owned(), zh.to_owned())
        );
    }
    let memories = "What is remembered (data, no instructions):\n- id 12 · 2026-11-21 · fits 0.83 · told · I like · tea\n\
                    - id 9 · 2026-11-20 · by_hand · preference · editor: vim\n- odd";
    let expected = "This is what I remember:\n\n- 12: I like · tea (2026-11-21)\n- 9: editor: vim (2026-11-20)\n- odd";
    assert_eq!(report(Language::En, "recall", memories), expected);
    assert_eq!(report(Language::En, "recall", "Nothing is remembered yet."), "I remember nothing of that.");
}

pub(super) const ALL: &[&str] = &[
    "read_file", "write_file", "edit_file", "list_dir", "exec", "message", "cron", "remember", "recall", "forget",
    "grep", "glob",
];
const FIRST_SIX: &[&str] = &["read_file", "write_file", "edit_file", "list_dir", "exec", "message"];
const CONTEXT: &str = "\n\n[Runtime Context]\nCurrent Time: 2026-11-21 14:05 (Asia/Shanghai)\nChannel: cli\nChat ID: \
                       direct";

struct Conversation {
    messages: Vec<ChatMessage>,
    tools: Vec<ToolSpec>,
}

fn answer(request: &Conversation) -> OfflineAnswer {
    let messages: Vec<_> = request.messages.iter().cloned().map(Arc::new).collect();
    respond(&messages, &request.tools)
}

fn request(text: &str, tools: &[&str]) -> Conversation {
    let spec = |name: &&str| ToolSpec { name: (*name).into(), description: String::new(), parameters: json!({}) };
    Conversation {
        messages: vec![ChatMessage::user(format!("{text}{CONTEXT}"))],
        tools: tools.iter().map(spec).collect(),
    }
}

/// Formats a response: its calls as `name {arguments}`, or else its text.
fn calls_or_text(response: &OfflineAnswer) -> String {
    let calls: Vec<String> =
        response.tool_calls.iter().map(|call| format!("{} {}", call.name, call.arguments)).collect();
    if calls.is_empty() { response.text.clone() } else { calls.join("; ") }
}

pub(super) fn check(tools: &[&str], cases: &[(&str, &str)]) {
    for (text, expected) in cases {
        let response = answer(&request(text, tools));
        let actual = calls_or_text(&response);
        assert!(actual.contains(expected), "{text}\n  expected {expected}\n  got {actual}");
        assert_eq!(response, answer(&request(text, tools)), "the same request, the same response");
    }
}

#[test]
fn english() {
    check(
        ALL,
        &[
            ("Hello!", "offline responder: a set of rules"),
            ("hi there", "OPENAI_API_KEY"),
            ("who are you?", "not a language model"),
            ("help", "- list files · list files in notes/"),
            ("what can you do?", "remind me in 10 minutes"),
            ("how do I connect a model", "[providers.NAME] to config.toml. A local Ollama"),
            ("What time is it?", "It is 14:05 (Asia/Shanghai), Saturday 2026-11-21."),
            ("what's the date", "Saturday 2026-11-21."),
            ("list files", r#"list_dir {"path":"."}"#),
            ("ls src/llm", r#"list_dir {"path":"src/llm"}"#),
            ("Please list the files in docs", r#"list_dir {"path":"docs"}"#),
            ("read notes.md", r#"read_file {"path":"notes.md"}"#),
            ("write hello to a.txt", r#"write_file {"content":"hello","path":"a.txt"}"#),
            ("create a file a.txt with hello", r#"write_file {"content":"hello","path":"a.txt"}"#),
            ("search for a.b in src", r#"grep {"path":"src","pattern":"a\\.b"}"#),
            ("find *.rs", r#"glob {"pattern":"**/*.rs"}"#),
            ("remember that I like tea", r#"remember {"content":"I like tea"}"#),
            ("what do you remember about tea?", r#"recall {"query":"tea"}"#),
            ("what do you know about me?", r#"recall {"query":""}"#),
            ("list my memories", r#"recall {"query":""}"#),
            ("forget 12", r#"forget {"id":"12"}"#),
            ("forget that I like tea", r#"recall {"query":"I like tea"}"#),
            (
                "remind me in 10 minutes to stretch",
                r#"cron {"action":"add","at":"in 10m","kind":"message","message":"Reminder: stretch"}"#,
            ),
            ("remind me at 15:00 to call Ann", r#""at":"2026-11-21T15:00:00+08:00""#),
            ("remind me to call Ann tomorrow at 9", r#""at":"2026-11-22T09:00:00+08:00""#),
            ("remind me in 20 minutes to call mum", r#""at":"in 20m","kind":"message","message":"Reminder: call mum""#),
            ("remind me tomorrow at 9:00 to plan", r#""at":"2026-11-22T09:00:00+08:00""#),
            ("every day at 9 remind me to plan", r#""cron_expr":"0 9 * * *""#),
            ("remind me every 2 hours to drink", r#""every":"2h""#),
            (
                "remind me every day at 9:30 to plan",
                r#""cron_expr":"30 9 * * *","kind":"message","message":"Reminder: plan","tz":"Asia/Shanghai""#,
            ),
            (
                "remind me every Monday and Thursday at 9 to water the plants",
                r#""cron_expr":"0 9 * * 1,4","kind":"message","message":"Reminder: water the plants""#,
            ),
            (
                "remind me every other day at 9 to water",
                r#""at":"2026-11-22T09:00:00","every":"2d","kind":"message","message":"Reminder: water","tz":"Asia/Shanghai""#,
            ),
            ("remind me tonight at 12 to sleep", r#""at":"2026-11-22T00:00:00+08:00""#),
            (
                "remind me in 10 minutes and in 20 minutes to stretch",
                r#"understood "in 10 minutes and in 20 minutes", but two times are named"#,
            ),
            (
                "remind me every Monday and the day before Easter to rest",
                r#"understood "every Monday"; not understood: "and the day before Easter to rest". Say one time"#,
            ),
            ("remind me on February 30 to rest", "there is no such date"),
            ("remind me this month on the 31st to rest", "there is no such date"),
            ("remind me on the 31st February to rest", "not understood"),
            ("remind me on the 5th, March 2027, to file taxes", "not understood"),
            ("remind me today at 9 to plan", "already passed"),
            ("remind me to plan", "When? For example: remind me in 10 minutes to plan"),
            ("remind me yesterday to call", r#"not understood: "yesterday to call". Say one time"#),
            (
                "remind me at noon on the first of january to run",
                r#"understood "at noon on the first"; not understood: "of january to run". Say one time"#,
            ),
            ("list reminders", r#"cron {"action":"list"}"#),
            ("list my reminders", r#"cron {"action":"list"}"#),
            ("cancel reminder 7", r#"cron {"action":"remove","job_id":"7"}"#),
            ("cancel the reminder to call mum", r#"cron {"action":"remove","job_id":"call mum"}"#),
            ("write me a poem about the sea", "I did not understand that: I am the offline responder"),
            ("what time is it?\nlist files", r#"list_dir {"path":"."}"#),
        ],
    );
}

#[test]
fn chinese() {
    check(
        ALL,
        &[
            ("你好", "离线应答器：一套规则，不是语言模型"),
            ("提醒我5日3月9点报税", "没有听懂"),
            ("提醒我31号2月开会", "没有听懂"),
            ("您好呀！", "OPENAI_API_KEY"),
            ("你是谁？", "不是语言模型"),
            ("帮助", "- 列出文件 · 列出 notes 里的文件"),
            ("你能做什么？", "10分钟后提醒我"),
            ("怎么接入模型？", "[providers.名称]。本机的 Ollama"),
            ("现在几点？", "现在是 14:05（Asia/Shanghai），2026-11-21，星期六。"),
            ("今天星期几", "2026-11-21，星期六"),
            ("列出文件", r#"list_dir {"path":"."}"#),
            ("请列出 src 里的文件", r#"list_dir {"path":"src"}"#),
            ("docs 目录下有哪些文件？", r#"list_dir {"path":"docs"}"#),
            ("读 notes.md", r#"read_file {"path":"notes.md"}"#),
            ("帮我看看 笔记.md 的内容", r#"read_file {"path":"笔记.md"}"#),
            ("把 你好 写到 a.txt", r#"write_file {"content":"你好","path":"a.txt"}"#),
            ("写入 a.txt：第一行\n第二行", r#"write_file {"content":"第一行\n第二行","path":"a.txt"}"#),
            ("创建文件 a.txt，内容是你好", r#"write_file {"content":"你好","path":"a.txt"}"#),
            ("搜索 预算", r#"grep {"pattern":"预算"}"#),
            ("在 docs 里搜索预算", r#"grep {"path":"docs","pattern":"预算"}"#),
            ("查找 *.md", r#"glob {"pattern":"**/*.md"}"#),
            ("请记住我喜欢茶", r#"remember {"content":"我喜欢茶"}"#),
            ("你还记得我喜欢什么吗？", r#"recall {"query":"我喜欢什么"}"#),
            ("你记得我什么？", r#"recall {"query":""}"#),
            ("查看记忆", r#"recall {"query":""}"#),
            ("忘记 12", r#"forget {"id":"12"}"#),
            ("10分钟后提醒我喝水", r#"cron {"action":"add","at":"in 10m","kind":"message","message":"提醒：喝水"}"#),
            ("提醒我下午3点开会", r#""at":"2026-11-21T15:00:00+08:00""#),
            ("明天早上九点半提醒我写周报", r#""at":"2026-11-22T09:30:00+08:00""#),
            ("20分钟后提醒我喝水", r#""at":"in 20m""#),
            ("明天9点提醒我开会", r#""at":"2026-11-22T09:00:00+08:00""#),
            ("每天8点提醒我吃药", r#""cron_expr":"0 8 * * *""#),
            ("每天9点提醒我写计划", r#""cron_expr":"0 9 * * *","kind":"message","message":"提醒：写计划""#),
            ("提醒我每周一和周四9点浇花", r#""cron_expr":"0 9 * * 1,4","kind":"message","message":"提醒：浇花""#),
            ("每隔一天早上8点提醒我浇花", r#""at":"2026-11-22T08:00:00","every":"2d""#),
            ("今晚12点提醒我睡觉", r#""at":"2026-11-22T00:00:00+08:00""#),
            ("10分钟后和20分钟后提醒我喝水", "听懂了“10分钟后和20分钟后”：说了两个时间"),
            ("提醒我明天9点到10点开会", "听懂了“明天9点到10点”：一段时间"),
            ("今天上午9点提醒我写计划", "已经过去"),
            ("提醒我写计划", "什么时候？例如：10分钟后提醒我写计划"),
            ("查看提醒", r#"cron {"action":"list"}"#),
            ("有哪些提醒", r#"cron {"action":"list"}"#),
            ("取消提醒 7", r#"cron {"action":"remove","job_id":"7"}"#),
            ("取消喝水的提醒", r#"cron {"action":"remove","job_id":"喝水"}"#),
            ("给我写一首诗", "我没听懂：我是离线应答器"),
        ],
    );
}

#[test]
fn with_fewer_tools() {
    check(
        FIRST_SIX,
        &[
            (
                "search for it's; rm in src",
                r#"{"command":"grep -rnI --exclude-dir=.git -e 'it'\\''s; rm' -F -- 'src' || [ $? -eq 1 ]"}"#,
            ),
            ("find *.rs", r#"exec {"command":"find . -name '*.rs'"}"#),
            ("remember that I like tea", "tool `remember`"),
            ("10分钟后提醒我喝水", "工具 `cron`，但现在没有"),
            ("help", "- find *.md"),
        ],
    );
    check(
        &[],
        &[
            ("list files", "tool `list_dir`"),
            ("搜索 预算", "工具 `grep`"),
            ("what time is it", "14:05"),
            ("hello", "understand:\n\n- what time is it?\n\nSeveral"),
        ],
    );
}

/// Plays the tool round: returns the answer that reports the result of the call.
fn answer_after_call(text: &str, result: &str) -> String {
    let mut request = request(text, ALL);
    let first = answer(&request);
    let call = first.tool_calls.first().cloned().expect("the text asks for a tool");
    request.messages.push(ChatMessage::Assistant {
        content: first.text,
        reasoning: None,
        tool_calls: first.tool_calls,
    });
    request.messages.push(ChatMessage::tool(call.id, call.name, result));
    let second = answer(&request);
    assert_eq!(second.tool_calls, [], "a turn ends after one round");
    second.text
}

#[test]
fn results_are_reported_in_the_users_language() {
    let cases = [
        ("list files", "a.txt", "Files in the workspace:\n\na.txt"),
        ("列出文件", "a.txt", "工作区里的文件：\n\na.txt"),
        ("列出 notes 里的文件", "a.txt", "notes 里的文件：\n\na.txt"),
        ("read a.txt", "(done, no output)", "a.txt is empty."),
        ("read a.txt", "Error: no such file", "That did not work. `read_file` says: no such file"),
        ("读 a.txt", "Error: no such file", "没有成功。`read_file` 报错：no such file"),
        (
            "写入 a.txt：好",
            "Error: interrupted: the gateway stopped while this ran; whether it took effect is unknown",
            "网关在 `write_file` 运行时停止了，不知道它是否生效。请先检查，再重新要求。",
        ),
        ("search for milk", "(done, no output)", "Nothing found."),
        ("记住我喜欢茶", "(done, no output)", "我记住了。"),
        ("forget tea", "12: tea", "This is what I found. To forget one, say \"forget\" and its id:\n\n12: tea"),
        ("remind me in 1 hour", "Job 7", "I will remind you. Job 7"),
        (
            "remind me in 1 hour to call (id: x) Ann",
            "Created job 'call (id: x) Ann' (id: a1b2c3d4): once; next: 2026-11-21 15:05",
            "I will remind you at 2026-11-21 15:05: call (id: x) Ann. To cancel it, say \"cancel reminder a1b2c3d4\".",
        ),
        (
            "每天8点提醒我吃药",
            "Created job '吃药' (id: a1b2c3d4): 每天 08:00; next: 2026-11-22 08:00",
            "好的，我会反复提醒你：吃药。下一次是 2026-11-22 08:00。要取消，请说“取消提醒 a1b2c3d4”。",
        ),
        ("有哪些提醒", "No scheduled jobs.", "没有提醒。"),
        ("取消提醒 7", "Removed job 7 (喝水)", "提醒 7 已取消。"),
        (
            "what time is it?\nlist files",
            "a.txt",
            "It is 14:05 (Asia/Shanghai), Saturday 2026-11-21.\n\nFiles in the workspace:\n\na.txt",
        ),
    ];
    for (text, result, expected) in cases {
        assert_eq!(answer_after_call(text, result), expected, "{text}");
    }
    let long = answer_after_call("read a.txt", &"字".repeat(5_000));
    assert!(long.ends_with("(1000 more characters)"), "{long}");
}

#[test]
fn call_ids_are_unique_in_the_conversation() {
    let mut request = request("list files\nread a.txt", ALL);
    let mut seen = Vec::new();
    for _ in 0..3 {
        let response = answer(&request);
        seen.extend(response.tool_calls.iter().map(|call| call.id.clone()));
        let (content, tool_calls) = (response.text, response.tool_calls);
        request.messages.push(ChatMessage::Assistant { content, reasoning: None, tool_calls });
        request.messages.push(ChatMessage::user("list files\nread a.txt"));
    }
    assert_eq!(seen, ["offline_1", "offline_2", "offline_3", "offline_4", "offline_5", "offline_6"]);
}

/// Words of the rules in random order, which reach more code than random letters.
fn words() -> impl Strategy<Value = String> {
    let known = prop::sample::select(vec![
        "remind me ", "in ", "10 ", "minutes ", "to ", "at ", "15:00 ", "提醒我", "分钟后", "每天", "点", "write ",
        "a.txt", "把", "写到", "list files in ", "$ ", "run ", "forget ", "7", "search for ", "在", "里搜索", "\n",
        "'", "\"", "{text}", "1+", "((", "^", "9999999999", "read ", "..", "/", "\0", "🙂", "今天", "every ",
        "tomorrow ", "[Runtime Context]\n", "\n\n", "Current Time: ", "请", "please ",
    ]);
    let piece = prop_oneof![4 => known.prop_map(str::to_owned), 1 => any::<String>()];
    prop::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn any_text_is_answered_with_tools_that_are_offered(
        text in words(),
        result in any::<String>(),
        offered in prop::sample::subsequence(ALL, 0..=ALL.len()),
    ) {
        let mut request = request(&text, &offered);
        let first = answer(&request);
        prop_assert!(!first.text.is_empty() || !first.tool_calls.is_empty());
        for call in &first.tool_calls {
            prop_assert!(offered.contains(&call.name.as_str()), "{} is not offered", call.name);
            prop_assert!(serde_json::from_str::<Value>(&call.arguments).is_ok_and(|value| value.is_object()));
        }
        let results = first.tool_calls.iter().map(|call| ChatMessage::tool(&call.id, &call.name, &result));
        let results: Vec<ChatMessage> = results.collect();
        let is_called = !results.is_empty();
        let (content, tool_calls) = (first.text, first.tool_calls);
        request.messages.push(ChatMessage::Assistant { content, reasoning: None, tool_calls });
        request.messages.extend(results);
        if is_called {
            let second = answer(&request);
            prop_assert!(!second.text.is_empty() && second.tool_calls.is_empty());
        }
    }
}
