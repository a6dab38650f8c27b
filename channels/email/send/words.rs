//! What daoyou itself says in a mail.

/// The words of one language; `{}` stands for what is filled in.
#[derive(Clone, Copy, Debug)]
pub struct MailWords {
    /// The subject of an answer to a mail without one.
    pub no_subject: &'static str,
    /// The subject of a mail that has none and no text.
    pub message: &'static str,
    /// Above a quotation: when, who.
    pub wrote: &'static str,
    /// A file that was to go along: its name.
    pub gone: &'static str,
    /// Its name, and its size.
    pub too_large: &'static str,
    pub unreadable: &'static str,
    /// More files than a mail takes: how many are left out.
    pub too_many: &'static str,
    /// The text is longer than a mail takes.
    pub cut: &'static str,
    pub image: &'static str,
}

impl MailWords {
    pub const ENGLISH: Self = Self {
        no_subject: "(no subject)",
        message: "A message",
        wrote: "On {}, {} wrote:",
        gone: "[{} is not attached: the file is gone.]",
        too_large: "[{} is not attached: with {} it is too large for a mail.]",
        unreadable: "[{} is not attached: the file could not be read.]",
        too_many: "[{} more files are not attached: a mail takes no more of them.]",
        cut: "[The text was too long for a mail and ends here.]",
        image: "image",
    };

    pub const CHINESE: Self = Self {
        no_subject: "（无主题）",
        message: "一条消息",
        wrote: "{}，{} 写道：",
        gone: "[附件 {} 未能附上：文件已不存在。]",
        too_large: "[附件 {} 未能附上：大小为 {}，超出邮件限制。]",
        unreadable: "[附件 {} 未能附上：文件无法读取。]",
        too_many: "[另有 {} 个文件未能附上：超出一封邮件的附件数量。]",
        cut: "[正文过长，邮件到此为止。]",
        image: "图片",
    };
}

/// Puts `values` where `{}` stands, in order.
pub fn fill(template: &str, values: &[&str]) -> String {
    let mut values = values.iter();
    let mut pieces = template.split("{}");
    let mut filled = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        filled.push_str(values.next().unwrap_or(&""));
        filled.push_str(piece);
    }
    filled
}
