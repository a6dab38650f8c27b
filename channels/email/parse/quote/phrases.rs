//! Phrases that mail programs write around quotations, forwarded mail and signatures.

/// Texts between dashes above a quoted mail.
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
    "ursprüngliche nachricht",
    "originalnachricht",
    "message d'origine",
    "mensaje original",
    "messaggio originale",
    "mensagem original",
    "oorspronkelijk bericht",
    "исходное сообщение",
    "元のメッセージ",
];
/// Beginnings of texts between dashes above a forwarded mail.
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
    "weitergeleitete nachricht",
    "message transféré",
    "mensaje reenviado",
    "messaggio inoltrato",
    "mensagem encaminhada",
    "mensagem reencaminhada",
    "doorgestuurd bericht",
    "перенаправленное сообщение",
    "пересылаемое сообщение",
    "転送メッセージ",
];
/// Lines above a forwarded mail.
const FORWARD_LINES: &[&str] = &[
    "begin forwarded message",
    "下面是被转发的邮件",
    "以下是转发的邮件",
    "以下是轉寄的郵件",
    "开始转发邮件",
    "anfang der weitergeleiteten nachricht",
    "début du message transféré",
    "début du message réexpédié",
    "inicio del mensaje reenviado",
    "inizio messaggio inoltrato",
    "início da mensagem encaminhada",
    "início da mensagem reencaminhada",
    "begin doorgestuurd bericht",
    "начало переадресованного сообщения",
    "転送されたメッセージ",
];
/// Header fields that programs repeat above a quoted mail.
const FROM: &[&str] =
    &["from", "发件人", "寄件人", "寄件者", "von", "de", "da", "van", "от", "отправитель", "差出人", "送信者"];
const SUBJECT: &[&str] = &[
    "subject", "主题", "主旨", "标题", "betreff", "objet", "sujet", "asunto", "oggetto", "assunto", "onderwerp",
    "тема", "件名",
];
const OTHERS: &[&str] = &[
    "sent", "date", "to", "cc", "发送时间", "发送日期", "发件时间", "日期", "时间", "收件人", "抄送", "抄送人",
    "寄件日期", "收件者", "副本", "gesendet", "datum", "an", "envoyé", "à", "pour", "enviado", "enviadoel",
    "enviadoem", "enviadaem", "fecha", "data", "para", "inviato", "a", "verzonden", "aan", "отправлено", "дата",
    "кому", "送信日時", "日時", "宛先",
];
const WROTE: &[&str] = &[
    "wrote:", "wrote：", "writes:", "写道：", "写道:", "寫道：", "寫道:", "写到：", "写到:", "a écrit:", "a écrit :",
    "a écrit\u{a0}:", "escribió:", "ha scritto:", "escreveu:", "schreef:", "написал:", "написал(а):", "пишет:",
];
/// Beginnings of footers of mobile mail programs.
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
/// Longest footer in characters.
const MAX_FOOTER: usize = 120;

/// Returns true if a line asks for an action on the text below it.
pub fn is_request_about_text(line: &str) -> bool {
    const VERBS: [&str; 20] = [
        "improve", "translate", "summari", "rewrite", "rephrase", "proofread", "correct", "shorten", "polish", "check",
        "explain", "翻译", "总结", "润色", "校对", "修改", "改写", "改进", "解释", "缩短",
    ];
    let line = undecorated(line);
    line.ends_with([':', '：']) && !WROTE.iter().any(|word| line.ends_with(word))
        || VERBS.iter().any(|verb| line.contains(verb))
}

/// Returns true for a closing formula. The lines below the following name are a signature.
pub fn is_closing(line: &str) -> bool {
    const CLOSINGS: [&str; 22] = [
        "best regards", "kind regards", "warm regards", "regards", "best wishes", "best", "cheers", "sincerely",
        "yours sincerely", "yours truly", "many thanks", "with best regards", "mit freundlichen grüßen", "viele grüße",
        "cordialement", "祝好", "顺祝商祺", "此致敬礼", "此致", "敬礼", "谢谢", "致礼",
    ];
    let plain = undecorated(line);
    CLOSINGS.contains(&plain.trim_end_matches([',', '，', '!', '！', '.', '。']).trim())
}

/// Returns true for contact details: a mail address, web page or telephone number.
pub fn is_contact(line: &str) -> bool {
    let digits = line.chars().filter(char::is_ascii_digit).count();
    let is_number = line.chars().all(|c| !c.is_alphabetic())
        || ["tel", "phone", "mobile", "fax", "电话", "手机", "t:", "m:", "+"]
            .iter()
            .any(|word| undecorated(line).contains(word));
    line.contains('@')
        || undecorated(line).contains("www.")
        || undecorated(line).starts_with("http")
        || (digits >= 7 && is_number)
}

/// Returns true for a sentence, as opposed to a line of an address.
pub fn is_sentence(line: &str) -> bool {
    let line = line.trim();
    let is_long = line.split_whitespace().count() >= 5 || line.chars().filter(|c| !c.is_ascii()).count() >= 10;
    is_long && line.ends_with(['.', '?', '!', '。', '？', '！', ';', '；'])
}

/// Returns true for a line that announces a forwarded mail.
pub fn is_forward_line(line: &str) -> bool {
    let plain = undecorated(line);
    if FORWARD_LINES.iter().any(|known| plain.trim_end_matches([':', '：']) == *known) {
        return true;
    }
    between_dashes(line).is_some_and(|inner| FORWARDS.iter().any(|known| inner.starts_with(known)))
}

/// Returns true for a line that announces the original mail of a reply.
pub fn is_original_line(line: &str) -> bool {
    between_dashes(line).is_some_and(|inner| ORIGINALS.contains(&inner.as_str()))
}

/// Returns true for a horizontal rule.
pub fn is_rule(line: &str) -> bool {
    let line = line.trim();
    line.len() >= 3 && line.chars().all(|c| "-_=*—".contains(c))
}

/// Returns true if the lines begin with the header fields of a quoted mail: From, Subject and one more, or fields of another
/// language. Other texts with From and To, such as an itinerary, have no Subject.
pub fn is_field_block(lines: &[&str]) -> bool {
    const MAX_LINES: usize = 15;
    let lines = &lines[..lines.len().min(MAX_LINES)];
    let names: Vec<Option<String>> = lines.iter().map(|line| field_name(line)).collect();
    let block = names.iter().take_while(|name| name.is_some()).count();
    let has = |count: usize, known: &[&str]| names[..count].iter().flatten().any(|name| known.contains(&name.as_str()));
    // Outlook writes From first, and may wrap the fields; other programs begin with another field.
    let count = if has(block.min(1), FROM) { names.len() } else { block };
    (has(count, FROM) && has(count, SUBJECT) && has(count, OTHERS)) || is_unknown_block(&lines[..block])
}

/// Returns true if these fields look like a quoted mail's in any language: four or more, the first a person with an address,
/// and another one with a number, as each date has.
fn is_unknown_block(fields: &[&str]) -> bool {
    let is_person = |line: &str| {
        let inner = line.split_once('<').and_then(|(_, rest)| rest.split_once('>'));
        inner.is_some_and(|(address, _)| address.contains('@') && !address.contains(char::is_whitespace))
    };
    let is_dated = |line: &str| !line.contains('@') && line.contains(|c: char| c.is_ascii_digit());
    fields.len() >= 4 && is_person(fields[0]) && fields.iter().any(|line| is_dated(line))
}

/// Parses the introduction of a quotation, such as "On …, … wrote:". Returns the number of its lines, and whether the match is certain.
pub fn parse_introduction(lines: &[&str]) -> Option<(usize, bool)> {
    const MAX_LENGTH: usize = 400;
    let mut text = String::new();
    for (index, line) in lines.iter().take(4).enumerate() {
        let line = undecorated(line);
        if line.is_empty() || line.starts_with('>') || text.len() > MAX_LENGTH {
            return None;
        }
        text.push(' ');
        text.push_str(&line);
        let text = text.trim();
        let begins = ["on ", "at ", "在", "于", "於", "le ", "am ", "el "].iter().any(|word| text.starts_with(word));
        if WROTE.iter().any(|word| text.ends_with(word)) {
            let dated = text.contains(|c: char| c.is_ascii_digit());
            let is_certain =
                (begins && dated && text.contains(['@', '<', ':'])) || (text.contains('@') && text.contains('<'));
            return (begins || index == 0).then_some((index + 1, is_certain));
        }
        // In other languages, any line that ends with a colon and contains an address or a digit may match, if a quotation follows.
        let names = text.contains('@') || text.contains(|c: char| c.is_ascii_digit());
        if index == 0 && text.ends_with([':', '：']) && names && text.len() < 200 {
            return Some((1, false));
        }
        if !begins {
            return None;
        }
    }
    None
}

/// Returns true for a footer that a program adds to each mail.
pub fn is_footer(line: &str) -> bool {
    let plain = undecorated(line);
    let is_sent_from = plain.starts_with(['从', '從']) && plain.ends_with(['送']);
    plain.chars().count() <= MAX_FOOTER && (is_sent_from || FOOTERS.iter().any(|known| plain.starts_with(known)))
}

/// Returns a line in lower case without decoration.
fn undecorated(line: &str) -> String {
    line.trim().trim_matches(['*', '_', '|', ' ', '\u{a0}', '•']).trim().to_lowercase()
}

/// Returns the text between the dashes of a line such as `-----Original Message-----`, in lower case.
fn between_dashes(line: &str) -> Option<String> {
    const DASHES: [char; 5] = ['-', '—', '_', '=', '－'];
    let line = line.trim().trim_matches(['*', ' ']);
    let dashes = line.chars().take_while(|c| DASHES.contains(c)).count();
    let inner = line.trim_matches(|c: char| DASHES.contains(&c) || c.is_whitespace()).trim_matches('*').to_lowercase();
    (dashes >= 2 && !inner.is_empty() && inner.len() <= 200).then_some(inner)
}

/// Returns the name of the header field that a line begins with, such as `**From:** a@x.org` or `| 发件人 | a@x.org |`.
fn field_name(line: &str) -> Option<String> {
    const MAX_NAME: usize = 40;
    let line = line.trim_start_matches(|c: char| "*_|".contains(c) || c.is_whitespace());
    let end = line.find([':', '：', '|'])?;
    let name: String = line[..end].chars().filter(|c| !c.is_whitespace() && !"*_".contains(*c)).collect();
    let is_name = !name.is_empty() && name.len() <= MAX_NAME && name.chars().all(|c| c.is_alphabetic() || c == '-');
    is_name.then(|| name.to_lowercase())
}
