//! The fixed texts that the channel itself writes into mails and into notices to the owner.

use crate::text::texts;

texts! {
    /// The notices to senders and to the owner. `{}` marks the place of a value.
    pub struct NoticeTexts {
        /// To an unknown sender whose address is proven.
        refused:
            "Thank you for your mail. This address is answered by an assistant that only listens to people its \
             owner has named, and you are not among them, so nobody has read your mail. If you think that you should \
             be, please ask the owner in another way.",
            "感谢来信。这个地址由助手回复，助手只答复主人指定的发件人。你不在名单中，因此邮件未被阅读。如需加入名单，请通过其他方式联系主人。";
        /// To a sender: the limit.
        too_large:
            "Your mail is larger than the {} that I can take, so I have not read it. Please send it in smaller \
             parts, or without attachments.",
            "你的邮件超过 {} 的大小上限，未被阅读。请分成几封较小的邮件，或者去掉附件再发。";
        /// To a sender: number of mails an hour.
        too_many:
            "You have sent me more mails than the {} that I answer within an hour, so I have not read this one and \
             will be silent for a while. Please write again in an hour.",
            "你在一小时内发来的邮件超过了我会回复的 {} 封，这一封我没有读，接下来一段时间也不会回复。请一小时后再来信。";
        /// To a sender who unsubscribed.
        unsubscribed:
            "You will get no more answers from this address. To be answered again, send a mail with the subject \
             \"subscribe\" and nothing else.",
            "这个地址不会再回复你。想恢复回复，请发一封主题为“订阅”、没有正文的邮件。";
        /// To a sender who subscribed again.
        subscribed: "Your mails are answered again.", "你的邮件会重新得到回复。";
        /// To the owner: sender, number of mails an hour.
        too_many_notice:
            "More than {1} mails within an hour came from {0}, or into one thread with them. Those beyond \
             that are not answered; they stay unread in the mailbox. The limit is \
             `channels.email.hourly_limit`.",
            "{0} 或同一会话在一小时内来信超过 {1} 封。超出的邮件不会回复，仍以未读状态留在邮箱里。上限是 \
             `channels.email.hourly_limit`。";
        /// To the owner: sender, size, limit.
        too_large_notice:
            "A mail from {} was skipped: it is {} large, and the limit is {} (`channels.email.max_size`). \
             It stays unread in the mailbox. The sender was not notified, because only the complete mail could \
             prove who sent it.",
            "来自 {} 的一封邮件被跳过：大小为 {}，上限是 {}（`channels.email.max_size`）。它仍以未读状态留在邮箱里。\
             没有通知发件人，因为只有完整的邮件才能证明发件人是谁。";
        /// To the owner: sender, subject, reason.
        failed_notice:
            "A mail from {} with the subject {} was skipped after it failed three times. It stays unread \
             in the mailbox. The last failure: {}",
            "来自 {}、主题为 {} 的一封邮件失败三次后被跳过，仍以未读状态留在邮箱里。最后一次失败：{}";
        /// To the owner: sender, reason.
        unchecked_notice:
            "A mail that says it is from {} was skipped, because the sender could not be verified: \
             {}. It stays unread in the mailbox.",
            "一封自称来自 {} 的邮件被跳过，因为无法验证发件人：{}。它仍以未读状态留在邮箱里。";
        /// To the owner: recipient, reason, id of the message.
        bounced_notice:
            "A mail to {} was sent and came back, as a report in the mailbox says: {}. It is not sent again \
             (message {}).",
            "发给 {} 的一封邮件已被退回，退信原因：{}。不会再次发送（消息 {}）。";
        /// To the owner: id of the message, recipients with reasons.
        partly_notice:
            "Message {} was sent by mail, but not to all of its recipients. Rejected by the server: \
             {}. It is not sent to them again.",
            "消息 {} 已用邮件发出，但没有送到所有收件人。被服务器拒收的是：{}。不会再向他们发送。";
        /// To the owner, about a mail that cannot be fetched: mailbox, UID, reason.
        unfetched_notice:
            "A mail in {} (UID {}) was skipped because it cannot be fetched from the server ({}). It stays \
             there unread.",
            "{} 中的一封邮件（UID {}）被跳过：无法从服务器取得（{}）。它仍以未读状态留在邮箱里。";
        /// To the owner, about the first start with another account: mailbox, login.
        account_notice:
            "{} now belongs to another account ({}): mails that were there before are not answered.",
            "{} 现在属于另一个账户（{}）：此前已在其中的邮件不会得到回答。";
    }
}

texts! {
    /// The texts inside sent mails. `{}` marks the place of a value.
    pub struct MailTexts {
        /// The subject of a reply to a mail without a subject.
        no_subject: "(no subject)", "（无主题）";
        /// The subject of a mail without a subject and without text.
        default_subject: "A message", "一条消息";
        /// Above a quotation: date, author.
        quotation: "On {}, {} wrote:", "{}，{} 写道：";
        /// Instead of a missing attachment: its name.
        missing_file: "[{} is not attached: the file is gone.]", "[附件 {} 未能附上：文件已不存在。]";
        /// Instead of an attachment that is too large: its name, its size.
        large_file:
            "[{} is not attached: with {} it is too large for a mail.]",
            "[附件 {} 未能附上：大小为 {}，超出邮件限制。]";
        /// Instead of an unreadable attachment: its name.
        unreadable_file: "[{} is not attached: the file could not be read.]", "[附件 {} 未能附上：文件无法读取。]";
        /// The number of attachments left out.
        more_files:
            "[{} more files are not attached: a mail can hold no more attachments.]",
            "[另有 {} 个文件未能附上：超出一封邮件的附件数量。]";
        /// Below a text that was cut.
        cut_text: "[The text was too long for a mail and ends here.]", "[正文过长，邮件到此为止。]";
        /// Instead of an image without a description.
        image: "image", "图片";
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::Language;

    #[test]
    fn the_form_of_address_is_that_of_all_other_texts() {
        assert!(!format!("{:?}", NoticeTexts::of(Language::Zh)).contains('您'));
    }
}
