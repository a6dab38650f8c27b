//! The terminal's own texts in the configured language.

use crate::text::Language;

/// The terminal's texts in one language. `{}` is a placeholder.
#[derive(Debug)]
pub(super) struct TerminalTexts {
    pub leave_hint: &'static str,
    pub stays_hint: &'static str,
    pub stopping: &'static str,
    pub not_taken: &'static str,
    pub sent_again: &'static str,
    pub not_stopped: &'static str,
    pub reply_lost: &'static str,
    pub line_too_long: &'static str,
    pub line_not_utf8: &'static str,
    pub starts_anew: &'static str,
    pub thinking: &'static str,
    /// The text beside the spinner.
    pub is_thinking: &'static str,
    pub thought_for: &'static str,
    pub no_thoughts: &'static str,
    pub thinking_is: [&'static str; 3],
    pub which_thinking: &'static str,
    /// The forms for one line and for other numbers.
    pub more_lines: [&'static str; 2],
    pub no_output: &'static str,
    pub no_result: &'static str,
    pub usage: &'static str,
    pub cached: &'static str,
    pub which_file: &'static str,
    pub added: &'static str,
    pub dropped: &'static str,
    pub not_added: &'static str,
    pub no_files: &'static str,
    pub files: &'static str,
    pub is_waiting: &'static str,
    pub is_sent: &'static str,
    pub moved: &'static str,
    pub not_moved: &'static str,
    pub wrong_key: &'static str,
    pub gateway_gone: &'static str,
    pub gateway_back: &'static str,
}

impl TerminalTexts {
    pub(super) fn of(language: Language) -> &'static Self {
        match language {
            Language::En => &EN,
            Language::Zh => &ZH,
        }
    }
}

static EN: TerminalTexts = TerminalTexts {
    leave_hint: "(Ctrl-C again, or Ctrl-D, leaves)",
    stays_hint: "(your message stays, and is answered when the service is back; /stop takes it back, /model asks another model; Ctrl-C again, or Ctrl-D, leaves)",
    stopping: "(stopping; Ctrl-C again leaves)",
    not_taken: "Not taken: {}",
    sent_again: "{} (sent again after {} s)",
    not_stopped: "Not stopped: {}",
    reply_lost: "The reply is lost to this terminal: {}",
    line_too_long: "a message longer than {} bytes was left out",
    line_not_utf8: "a line that is not UTF-8 was left out",
    starts_anew: "(the answer starts anew)",
    thinking: "thinking: ",
    is_thinking: "thinking",
    thought_for: "thought for {}",
    no_thoughts: "The model shared no thoughts in the last turn.",
    thinking_is: [
        "Thoughts are folded from now on; /thinking prints those of the last turn.",
        "Thoughts are shown from now on.",
        "Thoughts are hidden from now on.",
    ],
    which_thinking: "/thinking prints the thoughts of the last turn; /thinking show, fold or hide sets what is shown from now on.",
    more_lines: ["… {} more line", "… {} more lines"],
    no_output: "(no output)",
    no_result: "(no result)",
    usage: "{} · {} tokens in · {} out",
    cached: "{} from the cache",
    which_file: "Which file? For example: {} notes.txt",
    added: "Added {} ({}); it goes with your next message.",
    dropped: "Took out {}.",
    not_added: "{} is not among the files; /files lists them.",
    no_files: "No files. /add FILE brings one into the conversation.",
    files: "Files:",
    is_waiting: "goes with the next message",
    is_sent: "sent",
    moved: "This is {} now. /history shows what was said.",
    not_moved: "{} cannot be opened: {}",
    wrong_key: "{} is no session key; it is like cli:work, without spaces.",
    gateway_gone: "(the gateway has stopped; waiting for it to come back, nothing that was sent or typed is lost)",
    gateway_back: "(connected again)",
};

static ZH: TerminalTexts = TerminalTexts {
    leave_hint: "（再按一次 Ctrl-C 或按 Ctrl-D 离开）",
    stays_hint: "（消息已保留，服务恢复后会回答；/stop 撤回，/model 改用其他模型；再按一次 Ctrl-C 或按 Ctrl-D 离开）",
    stopping: "（正在停止；再按一次 Ctrl-C 离开）",
    not_taken: "未接收：{}",
    sent_again: "{}（{} 秒后重新发送）",
    not_stopped: "未能停止：{}",
    reply_lost: "此终端收不到回复：{}",
    line_too_long: "超过 {} 字节的消息已被略去",
    line_not_utf8: "非 UTF-8 的一行已被略去",
    starts_anew: "（回答重新开始）",
    thinking: "思考：",
    is_thinking: "正在思考",
    thought_for: "思考用时 {}",
    no_thoughts: "上一轮模型没有给出思考过程。",
    thinking_is: [
        "此后思考过程折叠为一行；输入 /thinking 查看上一轮的思考。",
        "此后完整显示思考过程。",
        "此后不显示思考过程。",
    ],
    which_thinking: "/thinking 查看上一轮的思考；/thinking show、fold、hide 分别表示此后完整显示、折叠、不显示。",
    more_lines: ["… 还有 {} 行"; 2],
    no_output: "（无输出）",
    no_result: "（无结果）",
    usage: "{} · 输入 {} token · 输出 {}",
    cached: "其中缓存 {}",
    which_file: "哪个文件？例如：{} notes.txt",
    added: "已添加 {}（{}），将随下一条消息发送。",
    dropped: "已移除 {}。",
    not_added: "文件列表中没有 {}；用 /files 查看。",
    no_files: "没有文件。用 /add 文件 把文件带入对话。",
    files: "文件：",
    is_waiting: "随下一条消息发送",
    is_sent: "已发送",
    moved: "已切换到 {}。用 /history 查看此前的内容。",
    not_moved: "无法打开 {}：{}",
    wrong_key: "{} 不是会话名；应类似 cli:work，不含空格。",
    gateway_gone: "（网关已停止，正在等它恢复；已发送和正在输入的内容都不会丢失）",
    gateway_back: "（已重新连接）",
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_languages_have_the_same_placeholders() {
        let gaps = |words: &TerminalTexts| {
            let text = format!("{words:?}");
            text.split(", ").map(|one| one.matches("{}").count()).collect::<Vec<_>>()
        };
        assert_eq!(gaps(&EN).iter().sum::<usize>(), gaps(&ZH).iter().sum::<usize>());
    }
}
