//! Translates findings and configuration faults into Chinese. They arrive as complete English sentences, some over the control
//! socket, so the translation recognizes them by their words.

use std::fmt::Display;

use super::output::tr;
use crate::config::ConfigFault;

/// The sentences, one `English => Chinese` a line.
const SENTENCES: &str = include_str!("chinese.txt");
/// The separator between the parts of a finding.
const BETWEEN_PARTS: &str = "; ";
/// The deepest nesting of sentences within the values of other sentences.
const MAX_DEPTH: usize = 3;

/// Replaces each `{}` by the next of `values`, and `{0}` by the first.
fn fill_template(template: &str, values: &[&dyn Display]) -> String {
    let mut filled = String::new();
    let mut rest = template;
    let mut next = values.iter();
    while let Some((before, behind)) = rest.split_once('{') {
        filled.push_str(before);
        let Some((number, behind)) = behind.split_once('}') else { break };
        let value =
            if number.is_empty() { next.next() } else { number.parse().ok().and_then(|at: usize| values.get(at)) };
        filled.extend(value.map(ToString::to_string));
        rest = behind;
    }
    filled + rest
}

/// Fills the template of the output language: replaces each `{}` by the next of `values`, and `{0}` by the first.
pub fn tr_fill(en: &str, zh: &str, values: &[&dyn Display]) -> String {
    fill_template(tr(en, zh), values)
}

/// Returns a sentence in the output language; unchanged if there is no translation.
pub fn translate(english: &str) -> String {
    tr(None, Some(())).and_then(|()| translated(english, MAX_DEPTH)).unwrap_or_else(|| english.to_owned())
}

/// Formats a fault on one line, like its `Display`, in the language of the output.
pub fn translate_fault(fault: &ConfigFault) -> String {
    if tr(true, false) {
        return fault.to_string();
    }
    let key = if fault.key.is_empty() { String::new() } else { format!("{}: ", fault.key) };
    let allowed =
        if fault.allowed.is_empty() { String::new() } else { format!("；应为：{}", translate(&fault.allowed)) };
    let line = format!("{}: {key}{}{allowed}", fault.origin, translate(&fault.wrong));
    line.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// Translates a text of one or more parts with `; ` between them. A part without a translation stays English if another part
/// has one.
fn translated(english: &str, depth: usize) -> Option<String> {
    let parts: Vec<&str> = english.split(BETWEEN_PARTS).collect();
    let translated: Vec<_> = parts.iter().map(|part| translated_whole(part, depth)).collect();
    let joined = || {
        let parts = parts.iter().zip(&translated);
        parts.map(|(part, chinese)| chinese.as_deref().unwrap_or(part)).collect::<Vec<_>>().join("；")
    };
    match &translated[..] {
        all if all.iter().all(Option::is_some) => Some(joined()),
        [_] => None,
        // Some templates have several parts themselves.
        some => translated_whole(english, depth).or_else(|| some.iter().any(Option::is_some).then(joined)),
    }
}

/// Translates a text by the template with the most fixed text that matches all of it.
fn translated_whole(english: &str, depth: usize) -> Option<String> {
    let pairs = SENTENCES.lines().filter_map(|line| line.split_once(" => "));
    let matching = pairs.filter_map(|(template, chinese)| Some((template, chinese, values_of(template, english)?)));
    let best = matching.max_by_key(|(template, _, values)| template.len() - 2 * values.len());
    best.map(|(_, chinese, values)| {
        let value = |value: &str| {
            // A single word is a name and is not translated.
            let depth = depth.checked_sub(1).filter(|_| value.contains(' '));
            depth.and_then(|depth| translated(value, depth)).unwrap_or_else(|| value.to_owned())
        };
        let values: Vec<_> = values.into_iter().map(value).collect();
        let values: Vec<&dyn Display> = values.iter().map(|value| value as &dyn Display).collect();
        fill_template(chinese, &values)
    })
}

/// Returns the values for the `{}` of `template` in `text`, if `text` matches the template.
fn values_of<'a>(template: &str, text: &'a str) -> Option<Vec<&'a str>> {
    let mut pieces = template.split("{}");
    let mut rest = text.strip_prefix(pieces.next()?)?;
    let pieces: Vec<_> = pieces.collect();
    let mut values = Vec::new();
    for (number, piece) in pieces.iter().enumerate() {
        let at = if number + 1 == pieces.len() { rest.len().checked_sub(piece.len()) } else { rest.find(piece) };
        let (value, behind) = rest.split_at_checked(at?)?;
        rest = behind.strip_prefix(piece)?;
        values.push(value);
    }
    rest.is_empty().then_some(values)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::Path;

    use daoyou_channels::text::Language;

    use super::super::render;
    use super::*;
    use crate::config::{self, ConfigSource};
    use crate::llm::ModelError;
    use crate::phrases::Phrases;

    #[test]
    fn sentences_are_recognized_by_their_words() {
        for (english, chinese) in [
            ("1.2 GB are free", Some("剩余 1.2 GB")),
            ("within 3 s of openai's", Some("与 openai 相差不超过 3 秒")),
            ("unknown key; the nearest known key is agent.model", Some("未知的键；最接近的键是 agent.model")),
            ("the value is a text", Some("此处的值是文本")),
            ("there is no folder /a: make it with `mkdir -p /a`", Some("没有文件夹 /a：请先运行 `mkdir -p /a`")),
            ("it answers, but not now: it cannot be reached: x", Some("有响应，但暂时不可用：无法连接：x")),
            (
                "no gateway runs; /webhook/demo: not tried, as no gateway serves it; no callback_url: replies are picked up",
                Some("网关未运行；/webhook/demo：没有网关提供服务，未尝试；未设置 callback_url：回复由对方自行取回"),
            ),
            (
                "running; /webhook/demo answers at 127.0.0.1:1 (OPTIONS: 405 Method Not Allowed); no callback_url: replies \
                 are picked up",
                Some(
                    "运行中；/webhook/demo 在 127.0.0.1:1 响应（OPTIONS：405 Method Not Allowed）；未设置 callback_url：回复由对方自行取回",
                ),
            ),
            ("a can be reached (1); b can be reached (2)", Some("可以连接 a（1）；可以连接 b（2）")),
            ("running; \"x\" is odd", Some("运行中；\"x\" is odd")),
            (
                "namespaces; Landlock: ABI 7, system call filter: yes; not tried, as there is no workspace yet",
                Some("命名空间；Landlock：ABI 7，系统调用过滤：有；尚无工作区，未试运行"),
            ),
            (
                "the newest message is 2 h ahead of this machine's clock: it went back",
                Some("最新消息的时间比本机时钟快 2 h：时钟被回拨过"),
            ),
            ("p/x, which is none of the 3 models that p lists", Some("p/x，不在 p 列出的 3 个模型之中")),
            (
                "/h/config.toml: it holds a secret, and every user of this machine can read it: chmod 600 /h/config.toml",
                Some("/h/config.toml：其中有密钥，而本机所有用户都能读取它：chmod 600 /h/config.toml"),
            ),
            ("unknown provider \"foo\"; available: a, b", Some("没有名为 \"foo\" 的服务商；现有：a, b")),
            ("24 messages can be found", Some("可以搜索到 24 条消息")),
            (
                "set agent.model = \"p/x\"; `daoyou models p` lists them",
                Some("设置 agent.model = \"p/x\"；`daoyou models p` 列出可用的模型"),
            ),
            (
                "another gateway (pid 7) holds /h; stop it first, or choose another home with --home",
                Some("另一个网关（进程 7）正在使用 /h；请先停止它，或用 --home 另选主目录"),
            ),
            (
                "ollama has no models yet: get one with `ollama pull x`",
                Some("ollama 还没有模型：可用 `ollama pull x` 获取"),
            ),
            (
                "HEARTBEAT.md:3: the schedule \"every month\" is not understood: understood \"every month\", but say on which day",
                Some("HEARTBEAT.md:3：未能识别时间 \"every month\"：已识别 \"every month\"，问题是：请说明是哪一天"),
            ),
            (
                "/a/b.tar already exists: choose another name, or overwrite it with --force",
                Some("/a/b.tar 已存在：请换一个文件名，或用 --force 覆盖"),
            ),
            ("/a/b.tar cannot be written: its disk is full", Some("无法写入 /a/b.tar：磁盘已满")),
            (
                "w/a: the folder, with all that is in it: it cannot be read: denied",
                Some("w/a：文件夹及其全部内容：无法读取：denied"),
            ),
            (
                "w: 3 of its 6 entries, from 4 on: a backup takes at most 5 entries of w",
                Some("w：从 4 起的 3 项（共 6 项）未备份：w 最多备份 5 项"),
            ),
            (
                "/h/c.toml:5: providers.p.api_key: a systemd credential can be read only in the service: \
                 CREDENTIALS_DIRECTORY is not set here",
                Some(
                    "/h/c.toml:5：providers.p.api_key：systemd 凭据只有在服务中才能读取，这里未设置 CREDENTIALS_DIRECTORY",
                ),
            ),
            (
                "it answers at 127.0.0.1:1, but takes no messages: the home is on a read-only file system",
                Some("它在 127.0.0.1:1 响应，但不接收消息：主目录位于只读文件系统"),
            ),
            ("something else; and more", None),
            ("", None),
        ] {
            assert_eq!(translated(english, MAX_DEPTH).as_deref(), chinese, "{english}");
        }
    }

    #[test]
    fn names_of_findings_are_translated() {
        for name in ["agents", "route", "callback", "channel webhook:demo", "mailbox", "certificate"] {
            assert_ne!(translated(name, MAX_DEPTH).unwrap_or_else(|| name.to_owned()), name);
        }
    }

    /// Tables and fields have Chinese headings and keys; an empty table is a Chinese sentence.
    #[test]
    fn headings_keys_and_empty_tables_are_translated() {
        let tables = [render::SESSIONS, render::TURNS, render::QUEUE, render::TOOLS];
        let more = [render::PROMPT_PARTS, render::TRASH, render::SKILLS, render::AGENTS, render::CHANNELS];
        let headings = tables.into_iter().chain(more).flatten().map(|(heading, _)| *heading);
        let queue = ["id", "turn", "state", "session", "sender", "content", "received_at", "slot", "tries", "next_at"];
        let answers =
            ["deliveries", "dropped", "restored", "epoch", "tool", "arguments", "taint", "created", "expires"];
        let agents = ["name", "description", "orchestrator", "tools", "skills", "permissions", "workspace"];
        let service =
            ["manager", "unit", "installed", "enabled", "active", "pid", "restarts", "since", "result", "says"];
        let keys = [&queue[..], &answers, &agents, &service].concat();
        let empty = ["nothing waits for your approval", render::EMPTY_QUEUE, "no tokens"];
        for english in headings.chain(keys).chain(empty) {
            assert!(translated(english, MAX_DEPTH).is_some(), "{english}");
        }
    }

    /// Faults that a beginner makes are wholly Chinese, with what is allowed instead.
    #[test]
    fn common_faults_of_the_configuration_are_translated() {
        for (text, wrong, allowed) in [
            (
                "[memory]\nkeep = 50",
                "50 条消息中保留 50 条，没有剩下可总结的",
                "memory.keep 小于 memory.consolidate_at",
            ),
            ("[gateway]\ntrusted_proxies = [\"x\"]", "第 1 项是 \"x\"", "IP 地址或网段，例如 \"10.0.0.0/8\""),
            (
                "[gateway]\nhosts = [\"a\", \"http://b\"]",
                "第 2 项是 \"http://b\"",
                "主机名或 IP 地址，不含协议、端口和路径，例如 \"chat.example.org\"",
            ),
            ("[owner]\nidentities = [\"ann\"]", "第 1 项是 \"ann\"", "\"渠道:发送者\"，例如 \"webhook:phone:ann\""),
            (
                "[channels.webhook.in]\nverify = \"bearer\"",
                "未设置，但 verify = \"bearer\" 需要它",
                "\"env:名称\"、\"file:路径\"、\"cred:名称\"，或密钥本身",
            ),
            (
                "[channels.webhook.in]\nverify = \"bearer\"\nsecret = \"\"",
                "密钥为空",
                "\"env:名称\"、\"file:路径\"、\"cred:名称\"，或加引号的密钥本身",
            ),
        ] {
            let source = ConfigSource::Draft { path: Path::new("config.toml"), text };
            let faults = config::read(source, &BTreeMap::new()).complete().expect_err(text);
            let [fault] = &faults[..] else { panic!("{text}: {faults:?}") };
            assert_eq!(translated(&fault.wrong, MAX_DEPTH).as_deref(), Some(wrong), "{fault}");
            assert_eq!(translated(&fault.allowed, MAX_DEPTH).as_deref(), Some(allowed), "{fault}");
        }
    }

    /// Each fault of the configuration is wholly Chinese, except for names, quoted values and the errors of other libraries.
    #[test]
    fn no_fault_of_the_configuration_is_half_translated() {
        let english = regex::Regex::new("[a-z]+ [a-z]+ [a-z]+").unwrap();
        let quoted = regex::Regex::new("\"[^\"]*\"|`[^`]*`").unwrap();
        for example in include_str!("../config/faults.txt").split("\n\n") {
            let lines = || example.lines().filter(|line| !line.starts_with("=> "));
            let (variables, text): (Vec<_>, Vec<_>) = lines().partition(|line| line.starts_with("$ "));
            let pair = |line: &str| line[2..].split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()));
            let env = variables.into_iter().filter_map(pair).collect();
            let text = text.join("\n");
            let source = ConfigSource::Draft { path: Path::new("config.toml"), text: &text };
            for fault in config::read(source, &env).complete().err().unwrap_or_default() {
                let foreign = ["not TOML: ", "cannot read ", "syntax error: ", "unknown filter: "];
                for part in [&fault.wrong, &fault.allowed].into_iter().filter(|part| !part.is_empty()) {
                    let chinese = translated(part, MAX_DEPTH).unwrap_or_else(|| part.clone());
                    let is_foreign = foreign.iter().any(|start| part.starts_with(start));
                    assert!(is_foreign || !english.is_match(&quoted.replace_all(&chinese, "")), "{part}: {chinese}");
                }
            }
        }
    }

    /// The gateway writes these into answers, and the configuration check into faults.
    #[test]
    fn each_reason_without_a_model_is_translated_alike() {
        let (provider, name) = ("openai".to_owned(), "foo".to_owned());
        for error in [
            ModelError::UnknownProvider { name: name.clone(), nearest: Vec::new(), known: "a, b".to_owned() },
            ModelError::UnknownProvider { name: name.clone(), nearest: vec!["fop".to_owned()], known: "a".to_owned() },
            ModelError::NoKey { provider: provider.clone(), variable: "OPENAI_API_KEY" },
            ModelError::Ambiguous { name: name.clone(), choices: "a/foo, b/foo".to_owned() },
            ModelError::NoProvider { name },
            ModelError::NoVectors { provider },
        ] {
            let chinese = error.to_public(Phrases::of(Language::Zh));
            assert_eq!(translated(&error.to_string(), MAX_DEPTH), Some(chinese), "{error}");
        }
    }

    #[test]
    fn each_translation_has_the_placeholders_of_its_original() {
        for line in SENTENCES.lines().filter(|line| line.contains(" => ")) {
            let (english, chinese) = line.split_once(" => ").unwrap();
            let numbered = |number: &usize| chinese.contains(&format!("{{{number}}}"));
            let placeholders = chinese.matches("{}").count() + (0..10).filter(numbered).count();
            assert_eq!(english.matches("{}").count(), placeholders, "{line}");
        }
    }
}
