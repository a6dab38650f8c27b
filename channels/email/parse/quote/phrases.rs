//! The words that mail programs put around quotations, forwarded mails and signatures, in English and Chinese.

/// Between dashes, before a quoted mail.
const ORIGINALS: &[&str] = &[
    "original message",
    "original mail",
    "original email",
    "original appointment",
    "原始邮件",
    "原邮件",
    "邮件原件",
    "原始信件",
    "回复的原邮件",
    "回复邮件信息",
    "原始郵件",
    "原始訊息",
];
/// Between dashes, before a forwarded mail; more may follow.
const FORWARDS: &[&str] = &[
    "forwarded message",
    "forwarded mail",
    "forwarded by",
    "forwarded email",
    "转发邮件",
    "转发的邮件",
    "已转发邮件",
    "转发信息",
    "轉寄郵件",
    "轉寄的郵件",
    "转发信件",
];
/// On a line of their own, before a forwarded mail.
const FORWARD_LINES: &[&str] =
    &["begin forwarded message", "下面是被转发的邮件", "以下是转发的邮件", "以下是轉寄的郵件", "开始转发邮件"];
const FORWARD_SUBJECTS: &[&str] = &["fwd", "fw", "转发", "轉寄", "wg", "tr", "rv"];
/// Fields that programs repeat above a quoted mail.
const FROM: &[&str] = &["from", "发件人", "寄件人", "寄件者", "von", "de"];
const SUBJECT: &[&str] = &["subject", "主题", "主旨", "标题", "betreff", "objet"];
const OTHERS: &[&str] = &[
    "sent",
    "date",
    "to",
    "cc",
    "发送时间",
    "发送日期",
    "发件时间",
    "日期",
    "时间",
    "收件人",
    "抄送",
    "抄送人",
    "寄件日期",
    "收件者",
    "副本",
    "gesendet",
    "an",
    "envoyé",
    "à",
];
const WROTE: &[&str] = &["wrote:", "wrote：", "writes:", "写道：", "写道:", "寫道：", "寫道:", "写到：", "写到:"];
/// Lines that programs on telephones put at the end.
const FOOTERS: &[&str] = &[
    "sent from my ",
    "sent from mail for ",
    "sent from outlook",
    "sent from yahoo mail",
    "sent from proton",
    "get outlook for ",
    "发自我的",
    "发自 ",
    "发自网易",
    "发自新浪",
    "发自qq",
    "发自移动",
    "发自华为",
    "发自小米",
    "发送自",
    "来自我的",
    "来自qq邮箱",
    "来自网易",
    "从 windows 版邮件发送",
    "寄自我的",
    "从qq邮箱发来的超大附件",
    "签名由",
    "由网易邮箱",
    "[sent from ",
    "获取 outlook for",
    "获取outlook for",
    "从 outlook for ",
];
/// A footer is one short line.
const MAX_FOOTER: usize = 120;

/// Whether a subject says that the mail hands another on.
pub fn is_forwarding_subject(subject: &str) -> bool {
    let Some((prefix, _)) = subject.split_once([':', '：']) else { return false };
    let prefix = prefix.trim().trim_start_matches('[').to_lowercase();
    FORWARD_SUBJECTS.contains(&prefix.as_str())
}

/// Whether a subject says that the mail answers another.
pub fn is_answering_subject(subject: &str) -> bool {
    const ANSWERS: [&str; 12] = ["re", "aw", "antw", "sv", "vs", "odp", "rif", "回复", "答复", "回覆", "答覆", "回信"];
    let Some((prefix, _)) = subject.split_once([':', '：']) else { return false };
    let prefix: String = prefix.trim().to_lowercase();
    let prefix = prefix.split(['[', '(', '（']).next().unwrap_or_default().trim();
    ANSWERS.contains(&prefix)
}

/// Whether a line asks for something to be done with a text that follows it.
pub fn asks_for_text(line: &str) -> bool {
    const ACTS: [&str; 20] = [
        "improve",
        "translate",
        "summari",
        "rewrite",
        "rephrase",
        "proofread",
        "correct",
        "shorten",
        "polish",
        "check",
        "explain",
        "翻译",
        "总结",
        "润色",
        "校对",
        "修改",
        "改写",
        "改进",
        "解释",
        "缩短",
    ];
    let line = bare(line);
    line.ends_with([':', '：']) && !WROTE.iter().any(|word| line.ends_with(word))
        || ACTS.iter().any(|act| line.contains(act))
}

/// Whether a line is a closing formula: what stands below its name is a signature.
pub fn is_closing(line: &str) -> bool {
    const CLOSINGS: [&str; 22] = [
        "best regards",
        "kind regards",
        "warm regards",
        "regards",
        "best wishes",
        "best",
        "cheers",
        "sincerely",
        "yours sincerely",
        "yours truly",
        "many thanks",
        "with best regards",
        "mit freundlichen grüßen",
        "viele grüße",
        "cordialement",
        "祝好",
        "顺祝商祺",
        "此致敬礼",
        "此致",
        "敬礼",
        "谢谢",
        "致礼",
    ];
    let plain = bare(line);
    CLOSINGS.contains(&plain.trim_end_matches([',', '，', '!', '！', '.', '。']).trim())
}

/// Whether a line tells how somebody is reached: an address, a page, a telephone number.
pub fn is_contact(line: &str) -> bool {
    let digits = line.chars().filter(char::is_ascii_digit).count();
    let is_number = line.chars().all(|c| !c.is_alphabetic())
        || ["tel", "phone", "mobile", "fax", "电话", "手机", "t:", "m:", "+"]
            .iter()
            .any(|word| bare(line).contains(word));
    line.contains('@') || bare(line).contains("www.") || bare(line).starts_with("http") || (digits >= 7 && is_number)
}

/// Whether a line is a sentence, and no line of an address.
pub fn is_sentence(line: &str) -> bool {
    let line = line.trim();
    let is_long = line.split_whitespace().count() >= 5 || line.chars().filter(|c| !c.is_ascii()).count() >= 10;
    is_long && line.ends_with(['.', '?', '!', '。', '？', '！', ';', '；'])
}

/// Whether a line announces a forwarded mail.
pub fn is_forward(line: &str) -> bool {
    let plain = bare(line);
    if FORWARD_LINES.iter().any(|known| plain.trim_end_matches([':', '：']) == *known) {
        return true;
    }
    between_dashes(line).is_some_and(|inner| FORWARDS.iter().any(|known| inner.starts_with(known)))
}

/// Whether a line announces the mail that is answered.
pub fn is_original(line: &str) -> bool {
    between_dashes(line).is_some_and(|inner| ORIGINALS.contains(&inner.as_str()))
}

/// Whether a line is nothing but a rule.
pub fn is_rule(line: &str) -> bool {
    let line = line.trim();
    line.len() >= 3 && line.chars().all(|c| "-_=*—".contains(c))
}

/// Whether the lines begin with the fields of a quoted mail, as Outlook writes them: From, Subject and one more. What else has
/// a From and a To, such as a journey, has no Subject.
pub fn is_field_block(lines: &[&str]) -> bool {
    const MAX_LINES: usize = 14;
    let is_one = |line: &&str, names: &[&str]| field_name(line).is_some_and(|name| names.contains(&name.as_str()));
    let Some((first, others)) = lines.split_first() else { return false };
    let others = &others[..others.len().min(MAX_LINES)];
    is_one(first, FROM)
        && others.iter().any(|line| is_one(line, SUBJECT))
        && others.iter().any(|line| is_one(line, OTHERS))
}

/// How many of the lines say who wrote what is quoted after them, and whether that is certain: "On …, … wrote:".
pub fn introduction(lines: &[&str]) -> Option<(usize, bool)> {
    const MAX_LENGTH: usize = 400;
    let mut said = String::new();
    for (index, line) in lines.iter().take(4).enumerate() {
        let line = bare(line);
        if line.is_empty() || line.starts_with('>') || said.len() > MAX_LENGTH {
            return None;
        }
        said.push(' ');
        said.push_str(&line);
        let said = said.trim();
        let begins = ["on ", "at ", "在", "于", "於", "le ", "am ", "el "].iter().any(|word| said.starts_with(word));
        if WROTE.iter().any(|word| said.ends_with(word)) {
            let dated = said.contains(|c: char| c.is_ascii_digit());
            let is_certain =
                (begins && dated && said.contains(['@', '<', ':'])) || (said.contains('@') && said.contains('<'));
            return (begins || index == 0).then_some((index + 1, is_certain));
        }
        // In other languages: whatever ends with a colon, names somebody or a time, and is followed by a quotation.
        let names = said.contains('@') || said.contains(|c: char| c.is_ascii_digit());
        if index == 0 && said.ends_with([':', '：']) && names && said.len() < 200 {
            return Some((1, false));
        }
        if !begins {
            return None;
        }
    }
    None
}

/// Whether a line is what a program adds to each mail.
pub fn is_footer(line: &str) -> bool {
    let plain = bare(line);
    let is_sent_from = plain.starts_with(['从', '從']) && plain.ends_with(['送']);
    plain.chars().count() <= MAX_FOOTER && (is_sent_from || FOOTERS.iter().any(|known| plain.starts_with(known)))
}

/// A line without what only decorates it, in lower case.
fn bare(line: &str) -> String {
    line.trim().trim_matches(['*', '_', '|', ' ', '\u{a0}', '•']).trim().to_lowercase()
}

/// What stands between the dashes of a line such as `-----Original Message-----`.
fn between_dashes(line: &str) -> Option<String> {
    const DASHES: [char; 5] = ['-', '—', '_', '=', '－'];
    let line = line.trim().trim_matches(['*', ' ']);
    let dashes = line.chars().take_while(|c| DASHES.contains(c)).count();
    let inner = line.trim_matches(|c: char| DASHES.contains(&c) || c.is_whitespace()).trim_matches('*').to_lowercase();
    (dashes >= 2 && !inner.is_empty() && inner.len() <= 200).then_some(inner)
}

/// The name of the field that a line begins with, such as `**From:** a@x.org` or `| 发件人 | a@x.org |`.
fn field_name(line: &str) -> Option<String> {
    const MAX_NAME: usize = 40;
    let line = line.trim_start_matches(|c: char| "*_|".contains(c) || c.is_whitespace());
    let end = line.find([':', '：', '|'])?;
    let name: String = line[..end].chars().filter(|c| !c.is_whitespace() && !"*_".contains(*c)).collect();
    (name.len() <= MAX_NAME).then(|| name.to_lowercase())
}
