//! Everything the responder says, in both languages. Words in braces are filled in by [`fill`].

use crate::text::Language;

/// One thing it can do.
pub(super) struct Ability {
    /// It takes any one of these tools; none listed, it takes no tool.
    pub tools: &'static [&'static str],
    /// In a list of abilities.
    pub short: &'static str,
    /// For the help: ways to ask for it.
    pub examples: &'static str,
}

/// All the texts of one language.
pub(super) struct Phrases {
    pub abilities: &'static [Ability],
    pub comma: &'static str,
    /// One line of the help.
    pub example: &'static str,
    pub greeting: &'static str,
    pub who: &'static str,
    pub help: &'static str,
    pub connect: &'static str,
    pub unknown: &'static str,
    pub thanks: &'static str,
    pub goodbye: &'static str,
    pub never_mind: &'static str,
    pub time: &'static str,
    pub date: &'static str,
    pub weekdays: [&'static str; 7],
    pub no_clock: &'static str,
    pub sum: &'static str,
    pub no_value: &'static str,
    pub no_tool: &'static str,
    /// What a reminder says when its time has come.
    pub due: &'static str,
    pub nothing_named: &'static str,
    pub when: &'static str,
    pub past: &'static str,
    /// A reminder whose time is not understood whole.
    pub unclear: &'static str,
    pub write_what: &'static str,
    pub forget_which: &'static str,
    pub failed: &'static str,
    pub interrupted: &'static str,
    pub more: &'static str,
    pub workspace: &'static str,
    pub list_dir: &'static str,
    pub read_file: &'static str,
    pub empty_file: &'static str,
    pub write_file: &'static str,
    pub exec: &'static str,
    pub exec_silent: &'static str,
    pub found: &'static str,
    pub found_none: &'static str,
    pub message: &'static str,
    pub remember: &'static str,
    pub remember_new: &'static str,
    pub remember_known: &'static str,
    pub remember_replaced: &'static str,
    pub recall: &'static str,
    pub recall_none: &'static str,
    pub forget: &'static str,
    pub cron_add: &'static str,
    pub cron_repeats: &'static str,
    pub cron_done: &'static str,
    pub cron_list: &'static str,
    pub cron_none: &'static str,
    pub cron_remove: &'static str,
    pub other: &'static str,
    pub other_silent: &'static str,
}

impl Language {
    pub(super) fn phrases(self) -> &'static Phrases {
        match self {
            Self::En => &EN,
            Self::Zh => &ZH,
        }
    }
}

/// Puts the values in place of their `{name}`s, in one pass: braces inside a value stay as they are.
pub(super) fn fill(template: &str, values: &[(&str, &str)]) -> String {
    let mut text = String::new();
    let mut rest = template;
    while let Some((before, after)) = rest.split_once('{') {
        text.push_str(before);
        let value = after.split_once('}').and_then(|(name, tail)| {
            let (_, value) = values.iter().find(|(known, _)| *known == name)?;
            Some((*value, tail))
        });
        let (value, tail) = value.unwrap_or(("{", after));
        text.push_str(value);
        rest = tail;
    }
    text + rest
}

static EN: Phrases = Phrases {
    abilities: &[
        Ability { tools: &[], short: "tell the time and date", examples: "what time is it? · what day is it?" },
        Ability { tools: &[], short: "do sums", examples: "12 * (3 + 4)" },
        Ability { tools: &["list_dir"], short: "list files", examples: "list files · list files in notes/" },
        Ability { tools: &["read_file"], short: "read files", examples: "read notes.md" },
        Ability { tools: &["write_file"], short: "write files", examples: "write buy milk to todo.txt" },
        Ability {
            tools: &["grep", "exec"],
            short: "search in files",
            examples: "search for milk · search for milk in notes/",
        },
        Ability { tools: &["glob", "exec"], short: "find files", examples: "find *.md" },
        Ability { tools: &["exec"], short: "run commands", examples: "$ df -h · run uname -a" },
        Ability {
            tools: &["remember", "recall"],
            short: "remember and recall",
            examples: "remember that I like tea · what do you remember about tea? · forget 12",
        },
        Ability {
            tools: &["cron"],
            short: "remind you",
            examples: "remind me in 10 minutes to stretch · remind me every day at 9:00 to plan · list reminders · cancel reminder 7",
        },
        Ability { tools: &["message"], short: "send you a message", examples: "send me a message: done" },
        Ability { tools: &["web_search"], short: "search the web", examples: "search the web for rust" },
        Ability { tools: &["web_fetch"], short: "fetch pages", examples: "fetch https://example.org" },
    ],
    comma: ", ",
    example: "- {short}: {examples}",
    greeting: "Hello! I am daoyou's offline responder: a set of rules, not a language model. I can {can}. Say \"help\" for \
               examples.\n\n{connect}",
    who: "I am the offline responder built into daoyou: a set of rules, not a language model. I take plain requests and do \
          them with the gateway's real tools. I can {can}.\n\n{connect}",
    help: "I am the offline responder, not a language model. This is what I understand:\n\n{examples}\n\nSeveral \
           requests, each on its own line, are done together.\n\n{connect}",
    connect: "To connect a model, set OPENAI_API_KEY (or another provider's key, such as DEEPSEEK_API_KEY) and restart, \
              or add [providers.NAME] to config.toml. A local Ollama is found by itself.",
    unknown: "I did not understand that: I am the offline responder, not a language model. I can {can}. Say \"help\" for \
              examples. {connect}",
    thanks: "You're welcome.",
    goodbye: "Goodbye!",
    never_mind: "All right.",
    time: "It is {time} ({zone}), {weekday} {date}.",
    date: "It is {weekday}, {date} ({time} {zone}).",
    weekdays: ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"],
    no_clock: "I cannot see a clock here: the message came without the time.",
    sum: "{sum} = {value}",
    no_value: "{sum} has no value that I can write down.",
    no_tool: "I would need the tool `{tool}` for that, and it is not there: this build has no such tool yet, or it is \
              switched off.",
    due: "Reminder: {text}",
    nothing_named: "the time you asked for has come",
    when: "When? For example: remind me in 10 minutes to {text}; remind me at 15:00 to {text}.",
    past: "That time has already passed. When should I remind you?",
    unclear: "I have set no reminder, for I cannot read the whole time: {wrong}. Say one time, for example: remind me every \
              Monday and Thursday at 9:00 to plan.",
    write_what: "What should {path} hold? For example: write some text to {path}",
    forget_which: "This is what I found. To forget one, say \"forget\" and its id:\n\n{result}",
    failed: "That did not work. `{tool}` says: {error}",
    interrupted: "The gateway stopped while `{tool}` was running, so I do not know whether it took effect. Please check \
                  before asking again.",
    more: "\n… ({count} more characters)",
    workspace: "the workspace",
    list_dir: "Files in {path}:\n\n{result}",
    read_file: "{path}:\n\n{result}",
    empty_file: "{path} is empty.",
    write_file: "Done: {path} is written. {result}",
    exec: "`{command}` gave:\n\n{result}",
    exec_silent: "`{command}` ran and printed nothing.",
    found: "Found:\n\n{result}",
    found_none: "Nothing found.",
    message: "The message is on its way.",
    remember: "I will remember that. {result}",
    remember_new: "I will remember that ({id}): {text}",
    remember_known: "I knew that already ({id}): {text}",
    remember_replaced: "I will remember that ({id}): {new}. Before, it was: {old}",
    recall: "This is what I remember:\n\n{result}",
    recall_none: "I remember nothing of that.",
    forget: "It is forgotten for good.",
    cron_add: "I will remind you at {time}: {text}. To call it off, say \"cancel reminder {id}\".",
    cron_repeats: "I will remind you again and again, the next time at {time}: {text}. To end it, say \"cancel reminder {id}\".",
    cron_done: "I will remind you. {result}",
    cron_list: "Your reminders:\n\n{result}",
    cron_none: "You have no reminders.",
    cron_remove: "The reminder {id} is cancelled.",
    other: "`{tool}` gave:\n\n{result}",
    other_silent: "`{tool}` is done.",
};

static ZH: Phrases = Phrases {
    abilities: &[
        Ability { tools: &[], short: "报时间和日期", examples: "现在几点？ · 今天星期几？" },
        Ability { tools: &[], short: "算算术", examples: "计算 12 * (3 + 4)" },
        Ability { tools: &["list_dir"], short: "列出文件", examples: "列出文件 · 列出 notes 里的文件" },
        Ability { tools: &["read_file"], short: "读文件", examples: "读 notes.md" },
        Ability { tools: &["write_file"], short: "写文件", examples: "把 买牛奶 写到 todo.txt" },
        Ability {
            tools: &["grep", "exec"], short: "在文件里搜索", examples: "搜索 牛奶 · 在 notes 里搜索 牛奶"
        },
        Ability { tools: &["glob", "exec"], short: "查找文件", examples: "查找 *.md" },
        Ability { tools: &["exec"], short: "运行命令", examples: "$ df -h · 运行 uname -a" },
        Ability {
            tools: &["remember", "recall"],
            short: "记住和回忆",
            examples: "记住我喜欢茶 · 你还记得茶吗？ · 忘记 12",
        },
        Ability {
            tools: &["cron"],
            short: "设提醒",
            examples: "10分钟后提醒我喝水 · 每天9点提醒我写计划 · 查看提醒 · 取消提醒 7",
        },
        Ability { tools: &["message"], short: "给你发消息", examples: "发消息：完成了" },
        Ability { tools: &["web_search"], short: "上网搜索", examples: "上网搜索 rust" },
        Ability { tools: &["web_fetch"], short: "抓取网页", examples: "打开 https://example.org" },
    ],
    comma: "、",
    example: "- {short}：{examples}",
    greeting: "你好！我是 daoyou 的离线应答器：一套规则，不是语言模型。我能{can}。说“帮助”看例子。\n\n{connect}",
    who: "我是 daoyou 内置的离线应答器：一套规则，不是语言模型。我听懂简单的请求，用网关的真实工具去做。我能{can}。\n\n{connect}",
    help: "我是离线应答器，不是语言模型。我听得懂这些：\n\n{examples}\n\n几个请求各占一行，就会一起做。\n\n{connect}",
    connect: "要接入模型，请设置 OPENAI_API_KEY（或其他服务商的密钥，如 DEEPSEEK_API_KEY）后重启，或在 config.toml 里加上 \
              [providers.名称]。本机的 Ollama 会自动找到。",
    unknown: "我没听懂：我是离线应答器，不是语言模型。我能{can}。说“帮助”看例子。{connect}",
    thanks: "不客气。",
    goodbye: "再见！",
    never_mind: "好的。",
    time: "现在是 {time}（{zone}），{date}，{weekday}。",
    date: "今天是 {date}，{weekday}（{time}，{zone}）。",
    weekdays: ["星期一", "星期二", "星期三", "星期四", "星期五", "星期六", "星期日"],
    no_clock: "我这里看不到时间：这条消息没有带上时间。",
    sum: "{sum} = {value}",
    no_value: "{sum} 没有我写得出的结果。",
    no_tool: "这件事要用工具 `{tool}`，但现在没有：这个版本还没有它，或者它被关掉了。",
    due: "提醒：{text}",
    nothing_named: "时间到了",
    when: "什么时候？例如：10分钟后提醒我{text}；下午3点提醒我{text}。",
    past: "这个时间已经过去了。要什么时候提醒你？",
    unclear: "没有设提醒，因为时间没有全听懂：{wrong}。请说一个时间，例如：每周一和周四9点提醒我写计划。",
    write_what: "{path} 里写什么？例如：把 一些文字 写到 {path}",
    forget_which: "找到了这些。要忘记哪一条，请说“忘记”加上它的编号：\n\n{result}",
    failed: "没有成功。`{tool}` 报错：{error}",
    interrupted: "网关在 `{tool}` 运行时停止了，不知道它是否生效。请先检查，再重新要求。",
    more: "\n……（还有 {count} 个字符）",
    workspace: "工作区",
    list_dir: "{path} 里的文件：\n\n{result}",
    read_file: "{path}：\n\n{result}",
    empty_file: "{path} 是空的。",
    write_file: "好了，{path} 已写入。{result}",
    exec: "`{command}` 的输出：\n\n{result}",
    exec_silent: "`{command}` 已运行，没有输出。",
    found: "找到：\n\n{result}",
    found_none: "什么也没找到。",
    message: "消息已发出。",
    remember: "我记住了。{result}",
    remember_new: "我记住了（{id}）：{text}",
    remember_known: "这个我已经记得（{id}）：{text}",
    remember_replaced: "我记住了（{id}）：{new}。原来是：{old}",
    recall: "我记得这些：\n\n{result}",
    recall_none: "关于这个，我什么也不记得。",
    forget: "已彻底忘记。",
    cron_add: "好的，我会在 {time} 提醒你：{text}。要取消，请说“取消提醒 {id}”。",
    cron_repeats: "好的，我会反复提醒你：{text}。下一次是 {time}。要取消，请说“取消提醒 {id}”。",
    cron_done: "好的，我会提醒你。{result}",
    cron_list: "你的提醒：\n\n{result}",
    cron_none: "没有提醒。",
    cron_remove: "提醒 {id} 已取消。",
    other: "`{tool}` 的结果：\n\n{result}",
    other_silent: "`{tool}` 已完成。",
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::offline::rules::Intent;
    use crate::offline::understand::understand;

    #[test]
    fn every_example_is_understood() {
        for language in [Language::En, Language::Zh] {
            for example in language.phrases().abilities.iter().flat_map(|ability| ability.examples.split(" · ")) {
                for wish in understand(example) {
                    assert_ne!(wish.intent, Intent::Unknown, "{example}");
                }
            }
        }
    }

    #[test]
    fn values_are_filled_in_once() {
        let values = [("a", "{b}"), ("b", "2")];
        assert_eq!(fill("{a} and {b} and {c} {", &values), "{b} and 2 and {c} {");
    }
}
