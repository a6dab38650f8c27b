//! The terminal's own texts in the configured language.

use crate::text::texts;

texts! {
    /// The terminal's texts. `{}` is a placeholder.
    pub(super) struct TerminalTexts {
        leave_hint: "(Ctrl-C again, or Ctrl-D, leaves)", "（再按一次 Ctrl-C 或按 Ctrl-D 离开）";
        stays_hint:
            "(your message stays, and is answered when the service is back; /stop takes it back, /model asks another model; Ctrl-C again, or Ctrl-D, leaves)",
            "（消息已保留，服务恢复后会回答；/stop 撤回，/model 改用其他模型；再按一次 Ctrl-C 或按 Ctrl-D 离开）";
        stopping: "(stopping; Ctrl-C again leaves)", "（正在停止；再按一次 Ctrl-C 离开）";
        not_taken: "Not taken: {}", "未接收：{}";
        sent_again: "{} (sent again after {} s)", "{}（{} 秒后重新发送）";
        not_stopped: "Not stopped: {}", "未能停止：{}";
        reply_lost: "This terminal will not receive the reply: {}", "此终端收不到回复：{}";
        stopped_early:
            "Stopped before the reply came: it is kept for the next terminal of this conversation, and the lines after it were not sent",
            "回复到达之前已停止：回复会保留给本会话的下一个终端，其后的各行没有发送";
        line_too_long: "a message longer than {} bytes was left out", "超过 {} 字节的消息已被略去";
        line_not_utf8: "a line that is not UTF-8 was left out", "非 UTF-8 的一行已被略去";
        starts_anew: "(the answer starts again)", "（回答重新开始）";
        thinking: "thinking: ", "思考：";
        /// The text beside the spinner.
        is_thinking: "thinking", "正在思考";
        thought_for: "thought for {}", "思考用时 {}";
        no_thoughts: "The model shared no thoughts in the last turn.", "上一回合模型没有给出思考过程。";
        thinking_folded:
            "Thoughts are folded from now on; /thinking prints those of the last turn.",
            "此后思考过程折叠为一行；输入 /thinking 查看上一回合的思考。";
        thinking_shown: "Thoughts are shown from now on.", "此后完整显示思考过程。";
        thinking_hidden: "Thoughts are hidden from now on.", "此后不显示思考过程。";
        which_thinking:
            "/thinking prints the thoughts of the last turn; /thinking show, fold or hide sets what is shown from now on.",
            "/thinking 查看上一回合的思考；/thinking show、fold、hide 分别表示此后完整显示、折叠、不显示。";
        one_more_line: "… {} more line", "… 还有 {} 行";
        more_lines: "… {} more lines", "… 还有 {} 行";
        no_output: "(no output)", "（无输出）";
        no_result: "(no result)", "（无结果）";
        usage: "{} · {} tokens in · {} out", "{} · 输入 {} token · 输出 {}";
        cached: "{} from the cache", "其中缓存 {}";
        which_file: "Which file? For example: {} notes.txt", "哪个文件？例如：{} notes.txt";
        added: "Added {} ({}); it goes with your next message.", "已添加 {}（{}），将随下一条消息发送。";
        dropped: "Removed {}.", "已移除 {}。";
        not_added: "{} is not among the files; /files lists them.", "文件列表中没有 {}；用 /files 查看。";
        no_files: "No files. /add FILE brings one into the conversation.", "没有文件。用 /add 文件 把文件带入对话。";
        files: "Files:", "文件：";
        file_missing: "there is no file {}", "没有文件 {}";
        file_unreadable: "{} cannot be read: {}", "无法读取 {}：{}";
        file_irregular: "{} is not a regular file; name a text file", "{} 不是普通文件；请指定一个文本文件";
        file_too_large: "{} has {}; at most {} can be added", "{} 有 {}，上限是 {}";
        file_binary: "{} is not UTF-8 text and cannot be added", "{} 不是 UTF-8 文本，无法添加";
        too_many_files:
            "there are {} files already; take some out with /drop",
            "已有 {} 个文件；先用 /drop 移除一些";
        files_too_large:
            "with {} the files of one message would exceed {}; send the others first",
            "加上 {} 后，一条消息的文件超过 {}；请先发送已添加的";
        is_waiting: "goes with the next message", "随下一条消息发送";
        is_sent: "sent", "已发送";
        moved: "Switched to {}. /history shows the last messages.", "已切换到 {}。用 /history 查看最近的消息。";
        not_moved: "{} cannot be opened: {}", "无法打开 {}：{}";
        wrong_key:
            "{} is not a session key; a key is one line of 1 to 1200 characters, such as cli:work.",
            "{} 不是会话名；会话名为一行文字，1 到 1200 个字符，例如 cli:work。";
        gateway_gone:
            "(the gateway has stopped; waiting for it to come back, nothing that was sent or typed is lost)",
            "（网关已停止，正在等它恢复；已发送和正在输入的内容都不会丢失）";
        gateway_back: "(connected again)", "（已重新连接）";
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::Language;

    #[test]
    fn both_languages_have_the_same_placeholders() {
        let gaps = |language| {
            let texts = format!("{:#?}", TerminalTexts::of(language));
            texts.lines().map(|line| line.matches("{}").count()).collect::<Vec<_>>()
        };
        assert_eq!(gaps(Language::En), gaps(Language::Zh));
    }
}
