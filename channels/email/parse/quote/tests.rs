use super::*;
use crate::email::parse::html;

/// Strips the quotes of a reply.
fn strip_reply(text: &str, is_forward_subject: bool) -> StrippedText {
    strip_quotes(text, is_forward_subject, true)
}

/// A mail's text, the expected remaining text, and a word of the removed part.
type Row<'a> = (&'a str, &'a str, &'a str);

fn check(table: &[Row<'_>]) {
    for (text, expected, gone) in table {
        let found = strip_reply(text, false);
        assert_eq!(found.text, *expected, "{text}");
        assert!(
            found.removed.contains(gone) && found.removed.is_empty() == gone.is_empty(),
            "{text}\ncut: {}",
            found.removed
        );
        // A quotation at the end, which the author asks about or sends alone, counts as forwarded.
        let ends_in_quote = found.text.lines().last().is_some_and(|line| line.starts_with('>'));
        assert_eq!(found.is_forward, ends_in_quote, "{text}");
    }
}

#[test]
fn quotes_of_english_replies_are_removed() {
    check(&[
        (
            "Yes, at noon.\n\nOn Tue, Mar 3, 2026 at 10:00 AM Ann Lee <ann@x.org> wrote:\n\n> Lunch?\n> Ann\n",
            "Yes, at noon.",
            "Lunch?",
        ),
        (
            "Fine.\n\nOn Tue, Mar 3, 2026 at 10:00 AM Ann Lee-Longname\n<ann.lee.longname@example.org>\nwrote:\n> Lunch?\n>\n> > Older\n\n",
            "Fine.",
            "Older",
        ),
        ("See you!\n-- \nBob\nACME Ltd.\n", "See you!", "ACME"),
        ("See you!\n\nBest,\nBob\n\n--\nBob | ACME", "See you!\n\nBest,\nBob", "ACME"),
        ("ok\n\nSent from my iPhone\n\n> On 3 Mar 2026, at 10:00, Ann <a@x.org> wrote:\n>\n> Lunch?", "ok", "Lunch?"),
        (
            "ok\n\nGet Outlook for iOS\n________________________________\nFrom: Ann <a@x.org>\nSent: Tuesday, March 3, 2026 10:00\nTo: Bob <b@x.org>\nSubject: Lunch\n\nLunch?",
            "ok",
            "Lunch?",
        ),
        (
            "Done.\r\n\r\n-----Original Message-----\nFrom: Ann\nSent: today\nTo: Bob\nSubject: x\n\nplease do",
            "Done.",
            "please do",
        ),
        (
            "Done.\n\n**From:** Ann <a@x.org>\n**Date:** today\n**To:** Bob\n**Subject:** x\n\nplease do",
            "Done.",
            "please do",
        ),
        ("Sure.\n\nAnn Lee <ann@x.org> wrote:\n\nplease do", "Sure.", "please do"),
        ("Ja.\n\nAm 3. März 2026 um 10:00 schrieb Ann:\n> Mittag?", "Ja.", "Mittag"),
    ]);
}

#[test]
fn quotes_of_replies_in_other_languages_are_removed() {
    let block = |[from, sent, to, subject]: [&str; 4]| {
        format!("Ok.\n\n{from}: Eve <e@x.org>\n{sent}: 23.11.2026 10:00\n{to}: Ann\n{subject}: x\n\nplease do")
    };
    for names in [
        ["De", "Enviado el", "Para", "Asunto"],
        ["De", "Enviada em", "Para", "Assunto"],
        ["Da", "Inviato", "A", "Oggetto"],
        ["De", "Envoyé", "À", "Objet"],
        ["Van", "Verzonden", "Aan", "Onderwerp"],
        ["От", "Отправлено", "Кому", "Тема"],
        ["差出人", "送信日時", "宛先", "件名"],
        // A language without a list.
        ["Lähettäjä", "Lähetetty", "Vastaanottaja", "Aihe"],
    ] {
        check(&[(&block(names), "Ok.", "please do")]);
    }
    check(&[
        ("Ok.\n\nGesendet: Montag um 10:00\nVon: Eve\nAn: Ann\nBetreff: x\n\nplease do", "Ok.", "please do"),
        ("Ok.\n\nEl lun, 23 nov 2026 a las 10:00, Eve (<e@x.org>) escribió:\n\nplease do", "Ok.", "please do"),
        ("Ok.\n\nLe 23 nov. 2026 à 10:00, Eve <e@x.org> a écrit\u{a0}:\n\nplease do", "Ok.", "please do"),
        ("Ok.\n\n-------- Ursprüngliche Nachricht --------\nplease do", "Ok.", "please do"),
        (
            "Please save:\nName: Bob\nMail: bob@x.org\nTel: 030 123",
            "Please save:\nName: Bob\nMail: bob@x.org\nTel: 030 123",
            "",
        ),
        (
            "Write:\nTo: Bob <b@x.org>\nSubject: Lunch at 12\n\nHi",
            "Write:\nTo: Bob <b@x.org>\nSubject: Lunch at 12\n\nHi",
            "",
        ),
    ]);
}

#[test]
fn quotes_of_chinese_replies_are_removed() {
    check(&[
        (
            "好的，三点见。\n\n张三 <zhang@163.com> 于2026年3月3日周二 10:00写道：\n\n> 三点开会？\n",
            "好的，三点见。",
            "三点开会",
        ),
        ("收到\n\n在 2026-03-03 10:00:00，\"张三\" <zhang@163.com> 写道：\n\n三点开会？", "收到", "三点开会"),
        ("收到\n\n在 2026年3月3日，10:00，张三\n<zhang@163.com> 写道：\n\n> 三点开会？", "收到", "三点开会"),
        (
            "好\n\n\n------------------ 原始邮件 ------------------\n发件人: \"张三\"<zhang@qq.com>;\n发送时间: 2026年3月3日(星期二) 上午10:00\n收件人: \"李四\"<li@qq.com>;\n主题: 开会\n\n三点开会？",
            "好",
            "三点开会",
        ),
        ("同意。\n\n发件人： 张三\n发送时间： 2026-03-03 10:00\n收件人： 李四\n主题： 开会\n三点？", "同意。", "三点"),
        ("| 好的 |\n\n---- 回复的原邮件 ----\n| 发件人 | 张三 |\n| 日期 | 今天 |", "| 好的 |", "张三"),
        ("知道了\n\n发自我的iPhone", "知道了", "iPhone"),
        ("知道了\n\n发自我的华为手机\n\n-------- 原始邮件 --------\n三点？", "知道了", "三点"),
        ("知道了\n\n| |\n李四\n|\n|\nli@163.com\n|\n签名由网易邮箱大师定制", "知道了", "li@163.com"),
        ("好\n\nAt 2026-03-03 10:00:00, \"张三\" <zhang@163.com> wrote:\n\n三点？\n", "好", "三点"),
    ]);
}

#[test]
fn quotes_above_and_between_answers_are_removed() {
    let long = "> line\n".repeat(40);
    check(&[
        ("> Can you come?\nYes.\n\n> And Bob?\n\n> Or Eve?\nNo.\n\n-- \nAnn", "Yes.\n\n[…]\n\nNo.", "And Bob"),
        ("On 3 Mar 2026, Ann <a@x.org> wrote:\n> Can you come?\n\nYes.", "Yes.", "Can you come"),
        ("> Pay at once\n\nI agree, see above.", "I agree, see above.", "Pay at once"),
        ("> Eve says:\n> > pay\n\n/status", "/status", "pay"),
        (&format!("On 3 Mar 2026, Ann <a@x.org> wrote:\n{long}\nI agree."), "I agree.", "> line"),
    ]);
}

#[test]
fn text_similar_to_quotes_stays() {
    check(&[
        ("> only\n> quoted", "> only\n> quoted", ""),
        ("Sent from my iPhone", "Sent from my iPhone", ""),
        (
            "Two things:\n\n- one\n- two\n\nFrom: here it goes on.",
            "Two things:\n\n- one\n- two\n\nFrom: here it goes on.",
            "",
        ),
        ("He wrote:\n\nnothing.", "He wrote:\n\nnothing.", ""),
        ("At 10:00 we begin:\nfirst this", "At 10:00 we begin:\nfirst this", ""),
        ("Please book:\nFrom: Paris\nTo: Rome\nDate: 3 May", "Please book:\nFrom: Paris\nTo: Rome\nDate: 3 May", ""),
        ("Hello,\nbob@x.org wrote:\nplease pay.\nWhat now?", "Hello,\nbob@x.org wrote:\nplease pay.\nWhat now?", ""),
        ("It was sent.\nSent via DHL on Monday", "It was sent.\nSent via DHL on Monday", ""),
        ("好的\n从我的 iPhone 发送", "好的", "iPhone"),
        ("a\n--\n1\n2", "a", "1"),
        (
            "First this.\n--\nThen please look at the second part.",
            "First this.\n--\nThen please look at the second part.",
            "",
        ),
        ("Improve this text:\n\n> me like tea", "Improve this text:\n\n> me like tea", ""),
        ("Please translate what follows\n> 你好", "Please translate what follows\n> 你好", ""),
        (
            "Ok, see you.\n\nBest regards,\nBob Lee\nACME Ltd.\n+49 30 1234567\nbob@acme.example",
            "Ok, see you.\n\nBest regards,\nBob Lee",
            "ACME",
        ),
        ("好的\n\n祝好\n李四\n某某公司\n手机：13800001234", "好的\n\n祝好\n李四", "13800001234"),
        (
            "Thanks,\nBob\nand call 555 12 34 567 please when you have the time.",
            "Thanks,\nBob\nand call 555 12 34 567 please when you have the time.",
            "",
        ),
        ("", "", ""),
    ]);
    let text = format!("intro\n--\n{}", "text\n".repeat(40));
    assert_eq!(strip_reply(&text, false).removed, "", "two dashes with a whole text below");
}

#[test]
fn forwarded_mail_stays() {
    let table = [
        (
            "FYI\n\n---------- Forwarded message ---------\nFrom: Ann <a@x.org>\nDate: x\nSubject: y\nTo: z\n\nHello\n-- \nAnn",
            false,
        ),
        ("请看\n\n-------- 转发邮件信息 --------\n发件人：张三\n主题：x\n\nHello", false),
        ("Begin forwarded message:\n\n> From: Ann\n> Subject: x\n>\n> Hello", false),
        ("> Begin forwarded message:\n>\n> From: Ann\n>\n> Hello", false),
        ("FYI\n\n________________________________\nFrom: Ann\nSent: x\nTo: y\nSubject: z\n\nHello", true),
        ("请处理\n\n------------------ 原始邮件 ------------------\n发件人: a\n主题: b\n收件人: c\n\nHello", true),
        ("s. u.\n\n-------- Weitergeleitete Nachricht --------\nBetreff: x\nDatum: y\nVon: Eve\n\nHello", false),
        (
            "-------- Message transféré --------\nSujet\u{a0}: x\nDate\u{a0}: y\nDe\u{a0}: Eve\nPour\u{a0}: Ann\n\nHello",
            false,
        ),
        ("-------- 転送メッセージ --------\n件名: x\n差出人: Eve\n\nHello", false),
        ("-------- Перенаправленное сообщение --------\nТема: x\nОт: Eve\n\nHello", false),
        ("> Anfang der weitergeleiteten Nachricht:\n>\n> Von: Eve\n>\n> Hello", false),
        ("Da: Eve\nInviato: oggi\nA: Ann\nOggetto: x\n\nHello", true),
        ("FYI\n\nBetreff: x\nDatum: y\nVon: Eve\nAn: Ann\n\nHello", true),
    ];
    for (text, is_forward_subject) in table {
        let found = strip_reply(text, is_forward_subject);
        assert!(found.is_forward && found.text.contains("Hello") && found.removed.is_empty(), "{found:?}");
    }
    // A reply to a forwarded mail is a reply.
    let found = strip_reply(
        "ok\n\nOn 3 Mar 2026 Bob <b@x.org> wrote:\n> ---------- Forwarded message ---------\n> Hello",
        false,
    );
    assert_eq!((found.text.as_str(), found.is_forward), ("ok", false));
}

#[test]
fn quotes_in_html_of_real_programs_are_removed() {
    let table = [
        (
            "gmail",
            "<div dir=ltr>Yes.</div><br><div class=\"gmail_quote gmail_quote_container\"><div class=gmail_attr>Le mar. 3 mars 2026 Ann a écrit\u{a0}:<br></div><blockquote class=gmail_quote>Lunch?</blockquote></div>",
            "Yes.",
        ),
        (
            "gmail, signature",
            "<div dir=ltr>Yes.<div><br></div>-- <br><div class=gmail_signature>Bob<br>ACME</div></div><div class=gmail_quote>On 3 Mar 2026, Ann &lt;a@x.org&gt; wrote:<blockquote>Lunch?</blockquote></div>",
            "Yes.",
        ),
        (
            "apple",
            "<div>Yes.</div><br><div>Sent from my iPhone</div><div><br><blockquote type=cite>On 3 Mar 2026, at 10:00, Ann &lt;a@x.org&gt; wrote:<br><br></blockquote></div><blockquote type=cite><div>Lunch?</div></blockquote>",
            "Yes.",
        ),
        (
            "thunderbird",
            "<p>Yes.</p><div class=moz-cite-prefix>On 03.03.26 10:00, Ann wrote:<br></div><blockquote type=cite><p>Lunch?</p></blockquote><pre class=moz-signature>-- \nBob</pre>",
            "Yes.",
        ),
        (
            "outlook on the web",
            "<div>Yes.</div><div id=appendonsend></div><hr><div id=divRplyFwdMsg><font><b>From:</b> Ann<br><b>Sent:</b> x<br><b>To:</b> y<br><b>Subject:</b> z</font></div><div>Lunch?</div>",
            "Yes.",
        ),
        (
            "outlook",
            "<p class=MsoNormal>Yes.<o:p></o:p></p><div style='border:none;border-top:solid #E1E1E1 1.0pt'><p class=MsoNormal><b>发件人:</b> Ann<br><b>发送时间:</b> x<br><b>收件人:</b> y<br><b>主题:</b> z</p></div><p>Lunch?</p>",
            "Yes.",
        ),
        (
            "qq",
            "<div>Yes.</div><div><includetail><div>&nbsp;</div><div style=\"font:Verdana\">------------------&nbsp;原始邮件&nbsp;------------------</div><div>发件人: a</div></includetail></div>",
            "Yes.",
        ),
        (
            "netease",
            "<div>Yes.</div><p>At 2026-03-03 10:00:00, \"Ann\" &lt;a@163.com&gt; wrote:</p><blockquote id=isReplyContent>Lunch?</blockquote>",
            "Yes.",
        ),
        (
            "interleaved",
            "<blockquote type=cite>One?</blockquote><p>Yes.</p><blockquote type=cite>Two?</blockquote><p>No.</p>",
            "Yes.\n\n[…]\n\nNo.",
        ),
        (
            "gmail, forwarded",
            "<div>FYI</div><div class=gmail_quote><div class=gmail_attr>---------- Forwarded message ---------<br>From: Ann<br></div>Lunch?</div>",
            "FYI\n---------- Forwarded message ---------\nFrom: Ann\nLunch?",
        ),
    ];
    for (program, page, expected) in table {
        let (text, _) = html::markdown(page, 10_000);
        let found = strip_reply(&text, false);
        assert_eq!(found.text, expected, "{program}:\n{text}\ncut: {}", found.removed);
        assert_eq!(found.is_forward, program.ends_with("forwarded"));
    }
}

#[test]
fn a_mail_that_consists_of_a_quotation_is_another_persons_text() {
    for text in [
        "On 3 Mar 2026, Eve <e@x.org> wrote:\n> Pay me",
        "-----Original Message-----\nFrom: Eve\nSent: today\nTo: Bob\nSubject: x\n\nPay me",
    ] {
        for is_reply in [true, false] {
            let found = strip_quotes(text, false, is_reply);
            assert!(found.is_forward && found.text == text && found.removed.is_empty(), "{found:?}");
        }
    }
    assert!(!strip_reply("Sent from my iPhone", false).is_forward);
}

/// A mail that is not a reply has no history: the author wants to discuss a pasted mail.
#[test]
fn the_first_mail_of_a_thread_stays_whole() {
    for text in [
        "What shall I answer?\n\nFrom: Ann <a@x.org>\nSent: today\nTo: Bob\nSubject: Lunch\n\nLunch?",
        "Is this spam?\n\nOn 3 Mar 2026, Eve <e@x.org> wrote:\n> Buy now",
        "请看看\n\n> 三点开会？",
    ] {
        let whole = StrippedText { text: text.to_owned(), is_forward: true, ..StrippedText::default() };
        assert_eq!(strip_quotes(text, false, false), whole);
        assert_ne!(strip_reply(text, false).removed, "");
    }
}

/// Whether or not the mail answers another one: nobody reads what is below a command.
#[test]
fn a_command_above_a_quotation_stands_alone() {
    let signature = "\n\n-- \nAnn";
    for (below, is_alone) in [
        ("\n\nOn 3 Mar 2026, Bob <b@x.org> wrote:\n> Pay me", true),
        ("\n\n> Pay me\n> /approve cafe", true),
        ("\n\n在 2026-03-03 10:00:00，\"张三\" <zhang@163.com> 写道：\n\n三点开会？", true),
        ("\n\nOn 3 Mar 2026, Bob <b@x.org> wrote:\n> Pay me\n\nWhat is this?", false),
        ("\nplease\n\n> Pay me", false),
        ("\n\n---------- Forwarded message ---------\nFrom: Eve\n\nPay me", false),
    ] {
        for is_reply in [true, false] {
            let found = strip_quotes(&format!("/deny cafe check it first:{below}{signature}"), false, is_reply);
            assert_eq!(found.text == "/deny cafe check it first:" && !found.is_forward, is_alone, "{below}: {found:?}");
        }
    }
    let path = "/etc/hosts is wrong:\n\n> 127.0.0.1";
    assert_eq!(strip_quotes(path, false, false).text, path, "a path is not a command");
}
