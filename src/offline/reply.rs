//! The replies of the responder, in English and Chinese.

use serde_json::Value;

use super::context::MessageTime;
use crate::chat::{NO_OUTPUT, ToolCall, without_notes};
use crate::text::{Language, without_line_numbers};

/// The longest part of a tool's result in a reply, in characters.
const MAX_CHARS: usize = 4_000;
/// The beginning of a failed tool's result, and the result of a tool without output; see `ToolResult::render`.
const ERROR: &str = "Error: ";

/// Formats the text in the language of the user.
macro_rules! say {
    ($language:expr, $english:literal, $chinese:literal) => {
        match $language {
            Language::En => format!($english),
            Language::Zh => format!($chinese),
        }
    };
}

/// Examples of requests, in English and Chinese, each with the tools that can handle it. One of the tools is enough.
const EXAMPLES: &[(&[&str], &str, &str)] = &[
    (&[], "what time is it?", "现在几点？"),
    (&["list_dir"], "list files · list files in notes/", "列出文件 · 列出 notes 里的文件"),
    (&["read_file"], "read notes.md", "读 notes.md"),
    (&["write_file"], "write buy milk to todo.txt", "把 买牛奶 写到 todo.txt"),
    (&["grep", "exec"], "search for milk · search for milk in notes/", "搜索 牛奶 · 在 notes 里搜索 牛奶"),
    (&["glob", "exec"], "find *.md", "查找 *.md"),
    (
        &["remember", "recall"],
        "remember that I like tea · what do you remember about tea? · forget 12",
        "记住我喜欢茶 · 你还记得茶吗？ · 忘记 12",
    ),
    (
        &["cron"],
        "remind me in 10 minutes to stretch · remind me every day at 9:00 to plan · list reminders · cancel reminder 7",
        "10分钟后提醒我喝水 · 每天9点提醒我写计划 · 查看提醒 · 取消提醒 7",
    ),
];

pub(super) fn help(language: Language, is_offered: impl Fn(&str) -> bool) -> String {
    let offered = EXAMPLES.iter().filter(|(tools, ..)| tools.is_empty() || tools.iter().any(|tool| is_offered(tool)));
    let line = |(_, english, chinese): &(_, &str, &str)| say!(language, "- {english}", "- {chinese}");
    let examples = offered.map(line).collect::<Vec<_>>().join("\n");
    let connect = connect(language);
    say!(
        language,
        "Hello! I am daoyou's offline responder: a set of rules, not a language model. This is what I understand:\n\n\
         {examples}\n\nSeveral requests, each on its own line, are done together.\n\n{connect}",
        "你好！我是 daoyou 的离线应答器：一套规则，不是语言模型。我听得懂这些：\n\n{examples}\n\n几个请求各占一行，就会一起做。\n\n{connect}"
    )
}

pub(super) fn unknown(language: Language) -> String {
    let connect = connect(language);
    say!(
        language,
        "I did not understand that: I am the offline responder, not a language model. Say \"help\" for what I can do. \
         {connect}",
        "我没听懂：我是离线应答器，不是语言模型。说“帮助”看我能做什么。{connect}"
    )
}

fn connect(language: Language) -> &'static str {
    match language {
        Language::En => {
            "To connect a model, set OPENAI_API_KEY (or another provider's key, such as DEEPSEEK_API_KEY) and restart, \
             or add [providers.NAME] to config.toml. A local Ollama is found automatically."
        }
        Language::Zh => {
            "要接入模型，请设置 OPENAI_API_KEY（或其他服务商的密钥，如 DEEPSEEK_API_KEY）后重启，或在 config.toml 里加上 \
             [providers.名称]。本机的 Ollama 会自动找到。"
        }
    }
}

pub(super) fn time(language: Language, now: &MessageTime) -> String {
    let (clock, date, zone) = (now.at.strftime("%H:%M"), now.at.strftime("%Y-%m-%d"), &now.zone);
    let day = now.at.weekday();
    let english = now.at.strftime("%A");
    let chinese =
        ["一", "二", "三", "四", "五", "六", "日"][usize::from(day.to_monday_zero_offset().unsigned_abs()) % 7];
    say!(language, "It is {clock} ({zone}), {english} {date}.", "现在是 {clock}（{zone}），{date}，星期{chinese}。")
}

pub(super) fn no_clock(language: Language) -> String {
    say!(
        language,
        "I cannot see a clock here: the message came without the time.",
        "我这里看不到时间：这条消息没有带上时间。"
    )
}

pub(super) fn no_tool(language: Language, tool: &str) -> String {
    say!(
        language,
        "I would need the tool `{tool}` for that, and it is not available: this build does not have it, or it is switched off.",
        "这件事要用工具 `{tool}`，但现在没有：这个版本还没有它，或者它被关掉了。"
    )
}

/// Returns the message of a reminder.
pub(super) fn reminder(language: Language, note: &str) -> String {
    say!(language, "Reminder: {note}", "提醒：{note}")
}

/// Returns the note for a reminder without one.
pub(super) fn time_has_come(language: Language) -> &'static str {
    match language {
        Language::En => "the time you asked for has come",
        Language::Zh => "时间到了",
    }
}

pub(super) fn ask_when(language: Language, note: &str) -> String {
    let note = match language {
        _ if !note.is_empty() => note,
        Language::En => "stretch",
        Language::Zh => "喝水",
    };
    say!(
        language,
        "When? For example: remind me in 10 minutes to {note}; remind me at 15:00 to {note}.",
        "什么时候？例如：10分钟后提醒我{note}；下午3点提醒我{note}。"
    )
}

pub(super) fn past_time(language: Language) -> String {
    say!(language, "That time has already passed. When should I remind you?", "这个时间已经过去了。要什么时候提醒你？")
}

pub(super) fn unclear_time(language: Language, wrong: &str) -> String {
    say!(
        language,
        "I have set no reminder, because I do not understand the whole time: {wrong}. Say one time, for example: remind me \
         every Monday and Thursday at 9:00 to plan.",
        "没有设提醒，因为时间没有全听懂：{wrong}。请说一个时间，例如：每周一和周四9点提醒我写计划。"
    )
}

/// Formats the result of a tool as a reply. `is_to_forget` means that the user wants to forget a memory that `recall` finds.
pub(super) fn tool_result(language: Language, call: &ToolCall, result: &str, is_to_forget: bool) -> String {
    let tool = &call.name;
    let result = without_notes(result);
    if let Some(error) = result.strip_prefix(ERROR) {
        if error.starts_with("interrupted") {
            return say!(
                language,
                "The gateway stopped while `{tool}` was running, so I do not know whether it took effect. Please check \
                 before asking again.",
                "网关在 `{tool}` 运行时停止了，不知道它是否生效。请先检查，再重新要求。"
            );
        }
        let error = shorten(language, error);
        return say!(language, "That did not work. `{tool}` says: {error}", "没有成功。`{tool}` 报错：{error}");
    }
    let result = if result == NO_OUTPUT { "" } else { result };
    let arguments: Value = serde_json::from_str(&call.arguments).unwrap_or_default();
    let path = arguments.get("path").and_then(Value::as_str).unwrap_or_default();
    let shown = shorten(language, result);
    let text = match tool.as_str() {
        "list_dir" if matches!(path, "." | "") => {
            say!(language, "Files in the workspace:\n\n{shown}", "工作区里的文件：\n\n{shown}")
        }
        "list_dir" => say!(language, "Files in {path}:\n\n{shown}", "{path} 里的文件：\n\n{shown}"),
        "read_file" if result.trim().is_empty() => say!(language, "{path} is empty.", "{path} 是空的。"),
        "read_file" => {
            let shown = shorten(language, &without_line_numbers(result));
            say!(language, "{path}:\n\n{shown}", "{path}：\n\n{shown}")
        }
        "write_file" => say!(language, "Done: {path} is written. {shown}", "好了，{path} 已写入。"),
        "grep" | "glob" | "exec" if is_nothing(result) => say!(language, "Nothing found.", "什么也没找到。"),
        "grep" if let (Language::Zh, Some((found, _))) = (language, result.rsplit_once("\n[searched ")) => {
            format!("找到：\n\n{}", shorten(language, found))
        }
        "grep" | "glob" | "exec" => say!(language, "Found:\n\n{shown}", "找到：\n\n{shown}"),
        "remember" => shorten(language, &remembered(language, result)),
        "recall" => recalled(language, result, is_to_forget),
        "forget" => say!(language, "It is forgotten for good.", "已彻底忘记。"),
        "cron" => reminder_result(language, &arguments, &shown),
        _ => say!(language, "`{tool}` gave:\n\n{shown}", "`{tool}` 的结果：\n\n{shown}"),
    };
    text.trim_end().to_owned()
}

/// Returns true if a search has found nothing.
fn is_nothing(result: &str) -> bool {
    let result = result.trim();
    result.is_empty() || result.starts_with("No match.\n") || result == "No file matches."
}

/// Formats the result of `remember` as a reply.
fn remembered(language: Language, result: &str) -> String {
    let entry = |start: &str| result.strip_prefix(start)?.split_once("): ");
    if let Some((id, text)) = entry("Remembered (id ") {
        return say!(language, "I will remember that ({id}): {text}", "我记住了（{id}）：{text}");
    }
    if let Some((id, text)) = entry("Already known (id ") {
        return say!(language, "I knew that already ({id}): {text}", "这个我已经记得（{id}）：{text}");
    }
    if let Some((old, new, id)) = result.strip_prefix("Replaced: ").and_then(replaced) {
        return say!(
            language,
            "I will remember that ({id}): {new}. Before, it was: {old}",
            "我记住了（{id}）：{new}。原来是：{old}"
        );
    }
    say!(language, "I will remember that. {result}", "我记住了。{result}")
}

/// Reads `OLD (id 1) by NEW (id 2)`: old text, new text, new id. Either text may contain ` by ` or ` (id ` itself; the
/// separator is the `) by ` that follows an id with a number.
fn replaced(result: &str) -> Option<(&str, &str, &str)> {
    result.match_indices(") by ").find_map(|(at, between)| {
        let (old, id) = result[..at].rsplit_once(" (id ")?;
        let (new, new_id) = result[at + between.len()..].rsplit_once(" (id ")?;
        id.bytes().all(|byte| byte.is_ascii_digit()).then(|| (old, new, new_id.trim_end_matches(')')))
    })
}

/// Formats the result of `recall` as a reply, with one line for each memory and its id.
fn recalled(language: Language, result: &str, is_to_forget: bool) -> String {
    if result.trim().is_empty() || result.starts_with("Nothing is remembered") {
        return say!(language, "I remember nothing of that.", "关于这个，我什么也不记得。");
    }
    let lines = result.lines().filter(|line| !line.starts_with("What is remembered (data"));
    let lines = lines.map(|line| memory_line(line).unwrap_or_else(|| line.to_owned())).collect::<Vec<_>>().join("\n");
    let lines = shorten(language, &lines);
    if is_to_forget {
        return say!(
            language,
            "This is what I found. To forget one, say \"forget\" and its id:\n\n{lines}",
            "找到了这些。要忘记哪一条，请说“忘记”加上它的编号：\n\n{lines}"
        );
    }
    say!(language, "This is what I remember:\n\n{lines}", "我记得这些：\n\n{lines}")
}

/// Shortens `- id 12 · 2026-11-21 · fits 0.83 · told · preference · text` to id, text and date.
fn memory_line(line: &str) -> Option<String> {
    const KINDS: [&str; 4] = ["preference", "case", "task", "summary"];
    let mut rest = line.strip_prefix("- id ")?;
    let mut next = || {
        let (part, behind) = rest.split_once(" · ")?;
        rest = behind;
        Some(part)
    };
    let (id, date, origin) = (next()?, next()?, next()?);
    if origin.starts_with("fits ") {
        next()?;
    }
    let text = rest.split_once(" · ").filter(|(kind, _)| KINDS.contains(kind)).map_or(rest, |(_, text)| text);
    Some(format!("- {id}: {text} ({date})"))
}

/// Formats the result of `cron` as a reply.
fn reminder_result(language: Language, arguments: &Value, result: &str) -> String {
    let argument = |key: &str| arguments.get(key).and_then(Value::as_str).unwrap_or_default();
    match argument("action") {
        "add" => {
            let prefix = reminder(language, "");
            let message = argument("message");
            let text = message.strip_prefix(&prefix).unwrap_or(message);
            let id = result.rsplit_once("(id: ").and_then(|(_, rest)| rest.split_once(')'));
            let (Some((id, _)), Some((_, time))) = (id, result.rsplit_once("next: ")) else {
                return say!(language, "I will remind you. {result}", "好的，我会提醒你。{result}");
            };
            let time = time.trim();
            if argument("every").is_empty() && argument("cron_expr").is_empty() {
                return say!(
                    language,
                    "I will remind you at {time}: {text}. To cancel it, say \"cancel reminder {id}\".",
                    "好的，我会在 {time} 提醒你：{text}。要取消，请说“取消提醒 {id}”。"
                );
            }
            say!(
                language,
                "I will remind you repeatedly, the next time at {time}: {text}. To cancel it, say \"cancel reminder {id}\".",
                "好的，我会反复提醒你：{text}。下一次是 {time}。要取消，请说“取消提醒 {id}”。"
            )
        }
        "list" if result.starts_with("No scheduled jobs") => {
            say!(language, "You have no reminders.", "没有提醒。")
        }
        "list" => say!(language, "Your reminders:\n\n{result}", "你的提醒：\n\n{result}"),
        _ => {
            let id = argument("job_id");
            say!(language, "The reminder {id} is cancelled.", "提醒 {id} 已取消。")
        }
    }
}

/// Shortens a long text, and notes how much is left out.
fn shorten(language: Language, text: &str) -> String {
    let Some((end, _)) = text.char_indices().nth(MAX_CHARS) else { return text.to_owned() };
    let (head, count) = (&text[..end], text[end..].chars().count());
    say!(language, "{head}\n… ({count} more characters)", "{head}\n……（还有 {count} 个字符）")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chinese_reply_has_no_english_remark_of_the_tool() {
        for (name, result, expected) in [
            ("write_file", "Created a.txt: 1 line, 6 bytes", "好了，a.txt 已写入。"),
            ("grep", "No match.\n[searched 9 files]", "什么也没找到。"),
            ("grep", "a.txt:1: milk\n[searched 9 files]", "找到：\n\na.txt:1: milk"),
        ] {
            let call = ToolCall { id: "1".into(), name: name.into(), arguments: "{\"path\": \"a.txt\"}".into() };
            assert_eq!(tool_result(Language::Zh, &call, result, false), expected);
        }
    }
}
