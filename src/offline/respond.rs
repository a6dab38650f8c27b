//! The responder itself: a pure function from a conversation to its answer.

use serde_json::json;

use super::context;
use super::outcome::tell;
use super::plan::{Step, Tools, plan};
use super::rules::Intent;
use super::understand::understand;
use crate::chat::{ChatMessage, ToolCall, ToolSpec};

const CALL_ID: &str = "offline_";

/// What the responder says and the tools that it calls.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Answer {
    pub text: String,
    pub tool_calls: Vec<ToolCall>,
}

/// Answers a conversation by rules. The same messages and tools give the same answer.
///
/// The user's last message becomes calls of tools that are offered, or is answered at once. When the results of the tools
/// follow it, the answer reports them; no call ever follows a result, so a turn ends after one round.
pub fn respond(messages: &[ChatMessage], tools: &[ToolSpec]) -> Answer {
    let asked = messages.iter().rposition(|message| matches!(message, ChatMessage::User { .. }));
    let (content, after) = match asked {
        Some(at) => match &messages[at] {
            ChatMessage::User { content, .. } => (content.as_str(), &messages[at + 1..]),
            _ => ("", &messages[at..]),
        },
        None => ("", messages),
    };
    if after.iter().any(|message| matches!(message, ChatMessage::Tool { .. })) {
        Answer { text: tell_results(content, after), tool_calls: Vec::new() }
    } else {
        begin(content, messages, tools)
    }
}

/// The first answer to a message: what can be said at once, and calls for the rest.
fn begin(content: &str, messages: &[ChatMessage], tools: &[ToolSpec]) -> Answer {
    let (text, now) = context::split(content);
    let mut said = Vec::new();
    let mut calls = Vec::new();
    let first = next_call(messages);
    for wish in understand(text) {
        match plan(&wish, Tools(tools), now.as_ref()) {
            Step::Say(text) => said.push(text),
            Step::Call { name, arguments } => calls.push(ToolCall {
                id: format!("{CALL_ID}{}", first.saturating_add(calls.len() as u64)),
                name,
                arguments: arguments.to_string(),
            }),
        }
    }
    Answer { text: said.join("\n\n"), tool_calls: calls }
}

/// The answer once the tools have run: what was said at first, then each result.
fn tell_results(content: &str, after: &[ChatMessage]) -> String {
    let (text, _) = context::split(content);
    let wishes = understand(text);
    let to_forget = wishes.iter().find(|wish| wish.intent == Intent::ForgetWhich);
    let Some(wish) = to_forget.or(wishes.first()) else { return String::new() };
    let mut parts: Vec<String> = Vec::new();
    for message in after {
        match message {
            ChatMessage::Assistant { content, .. } if !content.trim().is_empty() => parts.push(content.clone()),
            ChatMessage::Tool { call_id, name, content } => {
                let unknown = || ToolCall { id: call_id.clone(), name: name.clone(), arguments: json!({}).to_string() };
                let call = find_call(after, call_id).cloned().unwrap_or_else(unknown);
                parts.push(tell(&call, content, wish));
            }
            _ => {}
        }
    }
    parts.join("\n\n")
}

fn calls(messages: &[ChatMessage]) -> impl Iterator<Item = &ToolCall> {
    messages.iter().flat_map(|message| match message {
        ChatMessage::Assistant { tool_calls, .. } => tool_calls.as_slice(),
        _ => &[],
    })
}

fn find_call<'a>(messages: &'a [ChatMessage], id: &str) -> Option<&'a ToolCall> {
    calls(messages).find(|call| call.id == id)
}

/// The number of the next call: one more than any that the conversation holds.
fn next_call(messages: &[ChatMessage]) -> u64 {
    let numbers = calls(messages).filter_map(|call| call.id.strip_prefix(CALL_ID)?.parse::<u64>().ok());
    numbers.max().unwrap_or(0).saturating_add(1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    const ALL: &[&str] = &[
        "read_file",
        "write_file",
        "edit_file",
        "list_dir",
        "exec",
        "message",
        "cron",
        "remember",
        "recall",
        "forget",
        "grep",
        "glob",
    ];
    const FIRST_SIX: &[&str] = &["read_file", "write_file", "edit_file", "list_dir", "exec", "message"];
    const CONTEXT: &str = "\n\n[Runtime Context]\nCurrent Time: 2026-11-21 14:05 (Asia/Shanghai)\nChannel: cli\nChat ID: \
                           direct";

    struct Request {
        messages: Vec<ChatMessage>,
        tools: Vec<ToolSpec>,
    }

    fn answer(request: &Request) -> Answer {
        respond(&request.messages, &request.tools)
    }

    fn request(text: &str, tools: &[&str]) -> Request {
        let spec = |name: &&str| ToolSpec { name: (*name).into(), description: String::new(), parameters: json!({}) };
        Request {
            messages: vec![ChatMessage::user(format!("{text}{CONTEXT}"))],
            tools: tools.iter().map(spec).collect(),
        }
    }

    /// What the response does: its calls as `name {arguments}`, else its text.
    fn done(response: &Answer) -> String {
        let calls: Vec<String> =
            response.tool_calls.iter().map(|call| format!("{} {}", call.name, call.arguments)).collect();
        if calls.is_empty() { response.text.clone() } else { calls.join("; ") }
    }

    fn check(tools: &[&str], cases: &[(&str, &str)]) {
        for (text, expected) in cases {
            let response = answer(&request(text, tools));
            let done = done(&response);
            assert!(done.contains(expected), "{text}\n  expected {expected}\n  got {done}");
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
                ("help", "- list files: list files"),
                ("what can you do?", "remind me in 10 minutes"),
                ("how do I connect a model", "[providers.NAME] to config.toml. A local Ollama"),
                ("thanks", "welcome"),
                ("What time is it?", "It is 14:05 (Asia/Shanghai), Saturday 2026-11-21."),
                ("what's the date", "It is Saturday, 2026-11-21"),
                ("what is 2 + 3 * 4?", "2 + 3 * 4 = 14"),
                ("1/0 + 1", "no value"),
                ("list files", r#"list_dir {"path":"."}"#),
                ("ls src/llm", r#"list_dir {"path":"src/llm"}"#),
                ("Please list the files in docs", r#"list_dir {"path":"docs"}"#),
                ("read notes.md", r#"read_file {"path":"notes.md"}"#),
                ("write hello to a.txt", r#"write_file {"content":"hello","path":"a.txt"}"#),
                ("create a file a.txt with hello", r#"write_file {"content":"hello","path":"a.txt"}"#),
                ("create a file a.txt", "What should a.txt hold?"),
                ("search for a.b in src", r#"grep {"path":"src","pattern":"a\\.b"}"#),
                ("find *.rs", r#"glob {"pattern":"**/*.rs"}"#),
                ("$ echo 'a b' | wc -c", r#"exec {"command":"echo 'a b' | wc -c"}"#),
                ("run uname -a", r#"exec {"command":"uname -a"}"#),
                ("remember that I like tea", r#"remember {"content":"I like tea"}"#),
                ("what do you remember about tea?", r#"recall {"query":"tea"}"#),
                ("what do you know about me?", r#"recall {"query":""}"#),
                ("list my memories", r#"recall {"query":""}"#),
                ("forget 12", r#"forget {"id":"12"}"#),
                ("forget that I like tea", r#"recall {"query":"I like tea"}"#),
                (
                    "remind me in 10 minutes to stretch",
                    r#"cron {"action":"add","at":"in 10m","kind":"message","message":"Reminder: stretch","name":"stretch"}"#,
                ),
                ("remind me at 15:00 to call Ann", r#""at":"2026-11-21T15:00:00+08:00""#),
                ("remind me to call Ann tomorrow at 9", r#""at":"2026-11-22T09:00:00+08:00""#),
                (
                    "remind me in 20 minutes to call mum",
                    r#""at":"in 20m","kind":"message","message":"Reminder: call mum""#,
                ),
                ("remind me tomorrow at 9:00 to plan", r#""at":"2026-11-22T09:00:00+08:00""#),
                ("every day at 9 remind me to plan", r#""cron_expr":"0 9 * * *""#),
                ("remind me every 2 hours to drink", r#""every":"2h""#),
                (
                    "remind me every day at 9:30 to plan",
                    r#""cron_expr":"30 9 * * *","kind":"message","message":"Reminder: plan","name":"plan","tz":"Asia/Shanghai""#,
                ),
                (
                    "remind me every Monday and Thursday at 9 to water the plants",
                    r#""cron_expr":"0 9 * * 1,4","kind":"message","message":"Reminder: water the plants""#,
                ),
                ("remind me every other day at 9 to water", r#""at":"2026-11-22T09:00:00+08:00","every":"2d""#),
                ("remind me tonight at 12 to sleep", r#""at":"2026-11-22T00:00:00+08:00""#),
                (
                    "remind me in 10 minutes and in 20 minutes to stretch",
                    r#"understood "in 10 minutes and in 20 minutes"; not understood: "to stretch" (two times are named"#,
                ),
                (
                    "remind me every Monday and the day before Easter to rest",
                    r#"understood "every Monday"; not understood: "and the day before Easter to rest". Say one time"#,
                ),
                ("remind me on February 30 to rest", "there is no such date"),
                ("remind me this month on the 31st to rest", "there is no such date"),
                ("remind me today at 9 to plan", "already passed"),
                ("remind me to plan", "When? For example: remind me in 10 minutes to plan"),
                ("list reminders", r#"cron {"action":"list"}"#),
                ("list my reminders", r#"cron {"action":"list"}"#),
                ("cancel reminder 7", r#"cron {"action":"remove","job_id":"7"}"#),
                ("cancel the reminder to call mum", r#"cron {"action":"remove","job_id":"call mum"}"#),
                ("send me a message: done", r#"message {"content":"done"}"#),
                ("search the web for rust", "tool `web_search`"),
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
                ("您好呀！", "OPENAI_API_KEY"),
                ("你是谁？", "不是语言模型"),
                ("帮助", "- 列出文件：列出文件"),
                ("你能做什么？", "10分钟后提醒我"),
                ("怎么接入模型？", "[providers.名称]。本机的 Ollama"),
                ("谢谢你", "不客气"),
                ("现在几点？", "现在是 14:05（Asia/Shanghai），2026-11-21，星期六。"),
                ("今天星期几", "今天是 2026-11-21，星期六"),
                ("计算 2 + 3 × 4", "2 + 3 × 4 = 14"),
                ("列出文件", r#"list_dir {"path":"."}"#),
                ("请列出 src 里的文件", r#"list_dir {"path":"src"}"#),
                ("docs 目录下有哪些文件？", r#"list_dir {"path":"docs"}"#),
                ("读 notes.md", r#"read_file {"path":"notes.md"}"#),
                ("帮我看看 笔记.md 的内容", r#"read_file {"path":"笔记.md"}"#),
                ("把 你好 写到 a.txt", r#"write_file {"content":"你好","path":"a.txt"}"#),
                ("写入 a.txt：第一行\n第二行", r#"write_file {"content":"第一行\n第二行","path":"a.txt"}"#),
                ("创建文件 a.txt，内容是你好", r#"write_file {"content":"你好","path":"a.txt"}"#),
                ("新建一个文件 a.txt", "a.txt 里写什么"),
                ("搜索 预算", r#"grep {"pattern":"预算"}"#),
                ("在 docs 里搜索预算", r#"grep {"path":"docs","pattern":"预算"}"#),
                ("查找 *.md", r#"glob {"pattern":"**/*.md"}"#),
                ("运行 df -h", r#"exec {"command":"df -h"}"#),
                ("请记住我喜欢茶", r#"remember {"content":"我喜欢茶"}"#),
                ("你还记得我喜欢什么吗？", r#"recall {"query":"我喜欢什么"}"#),
                ("你记得我什么？", r#"recall {"query":""}"#),
                ("查看记忆", r#"recall {"query":""}"#),
                ("忘记 12", r#"forget {"id":"12"}"#),
                (
                    "10分钟后提醒我喝水",
                    r#"cron {"action":"add","at":"in 10m","kind":"message","message":"提醒：喝水","name":"喝水"}"#,
                ),
                ("提醒我下午3点开会", r#""at":"2026-11-21T15:00:00+08:00""#),
                ("明天早上九点半提醒我写周报", r#""at":"2026-11-22T09:30:00+08:00""#),
                ("20分钟后提醒我喝水", r#""at":"in 20m""#),
                ("明天9点提醒我开会", r#""at":"2026-11-22T09:00:00+08:00""#),
                ("每天8点提醒我吃药", r#""cron_expr":"0 8 * * *""#),
                ("每天9点提醒我写计划", r#""cron_expr":"0 9 * * *","kind":"message","message":"提醒：写计划""#),
                ("提醒我每周一和周四9点浇花", r#""cron_expr":"0 9 * * 1,4","kind":"message","message":"提醒：浇花""#),
                ("每隔一天早上8点提醒我浇花", r#""at":"2026-11-22T08:00:00+08:00","every":"2d""#),
                ("今晚12点提醒我睡觉", r#""at":"2026-11-22T00:00:00+08:00""#),
                ("10分钟后和20分钟后提醒我喝水", "听懂了“10分钟后和20分钟后”：说了两个时间"),
                ("提醒我明天9点到10点开会", "听懂了“明天9点到10点”，没有听懂“开会”"),
                ("今天上午9点提醒我写计划", "已经过去"),
                ("提醒我写计划", "什么时候？例如：10分钟后提醒我写计划"),
                ("查看提醒", r#"cron {"action":"list"}"#),
                ("有哪些提醒", r#"cron {"action":"list"}"#),
                ("取消提醒 7", r#"cron {"action":"remove","job_id":"7"}"#),
                ("取消喝水的提醒", r#"cron {"action":"remove","job_id":"喝水"}"#),
                ("发消息：完成了", r#"message {"content":"完成了"}"#),
                ("上网搜索 rust", "`web_search`，但现在没有"),
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
                ("help", "- find files"),
            ],
        );
        check(
            &[],
            &[
                ("list files", "tool `list_dir`"),
                ("搜索 预算", "工具 `grep`"),
                ("what time is it", "14:05"),
                ("hello", "I can tell the time and date, do sums. Say"),
            ],
        );
        check(&["current_time"], &[("what time is it", "current_time {}")]);
    }

    /// Plays the tool round: the call's result comes back, and is told.
    fn told(text: &str, result: &str) -> String {
        let mut request = request(text, ALL);
        let first = answer(&request);
        let call = first.tool_calls.first().cloned().expect("the text asks for a tool");
        request.messages.push(ChatMessage::Assistant {
            content: first.text,
            reasoning: None,
            tool_calls: first.tool_calls,
        });
        let content = result.to_owned();
        request.messages.push(ChatMessage::Tool { call_id: call.id, name: call.name, content });
        let second = answer(&request);
        assert_eq!(second.tool_calls, [], "a turn ends after one round");
        second.text
    }

    #[test]
    fn results_are_told_in_the_users_language() {
        let cases = [
            ("list files", "a.txt", "Files in the workspace:\n\na.txt"),
            ("列出文件", "a.txt", "工作区 里的文件：\n\na.txt"),
            ("read a.txt", "(done, no output)", "a.txt is empty."),
            ("read a.txt", "Error: no such file", "That did not work. `read_file` says: no such file"),
            ("读 a.txt", "Error: no such file", "没有成功。`read_file` 报错：no such file"),
            ("$ true", "(done, no output)", "`true` ran and printed nothing."),
            (
                "运行 sleep 9",
                "Error: interrupted: the gateway stopped while this ran; whether it took effect is unknown",
                "网关在 `exec` 运行时停止了，不知道它是否生效。请先检查，再重新要求。",
            ),
            ("search for milk", "(done, no output)", "Nothing found."),
            ("记住我喜欢茶", "(done, no output)", "我记住了。"),
            ("forget tea", "12: tea", "This is what I found. To forget one, say \"forget\" and its id:\n\n12: tea"),
            ("remind me in 1 hour", "Job 7", "I will remind you. Job 7"),
            (
                "remind me in 1 hour to call (id: x) Ann",
                "Created job 'call (id: x) Ann' (id: a1b2c3d4): once; next: 2026-11-21 15:05",
                "I will remind you at 2026-11-21 15:05: call (id: x) Ann. To call it off, say \"cancel reminder a1b2c3d4\".",
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
            assert_eq!(told(text, result), expected, "{text}");
        }
        let long = told("read a.txt", &"字".repeat(5_000));
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

    /// Pieces that rules are made of, put together at random, reach further than random letters.
    fn words() -> impl Strategy<Value = String> {
        let known = prop::sample::select(vec![
            "remind me ",
            "in ",
            "10 ",
            "minutes ",
            "to ",
            "at ",
            "15:00 ",
            "提醒我",
            "分钟后",
            "每天",
            "点",
            "write ",
            "a.txt",
            "把",
            "写到",
            "list files in ",
            "$ ",
            "run ",
            "forget ",
            "7",
            "search for ",
            "在",
            "里搜索",
            "\n",
            "'",
            "\"",
            "{text}",
            "1+",
            "((",
            "^",
            "9999999999",
            "read ",
            "..",
            "/",
            "\0",
            "🙂",
            "今天",
            "every ",
            "tomorrow ",
            "[Runtime Context]\n",
            "\n\n",
            "Current Time: ",
            "请",
            "please ",
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
            let results = first.tool_calls.iter().map(|call| ChatMessage::Tool {
                call_id: call.id.clone(),
                name: call.name.clone(),
                content: result.clone(),
            });
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
}
