//! Mails that ask for silence, as List-Unsubscribe offers it (RFC 2369, section 3.2), and those that take it back.

use crate::email::letter::Letter;

/// What a mail asks for that says nothing else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    Silence,
    Answers,
}

impl Wish {
    /// By the subject alone; a reply with that subject, or a mail that says more than the word, is a mail as any other.
    pub fn of(letter: &Letter) -> Option<Self> {
        let wish = Self::named(&letter.subject)?;
        let text = letter.text.trim();
        (text.is_empty() || Self::named(text) == Some(wish)).then_some(wish)
    }

    fn named(text: &str) -> Option<Self> {
        match text.trim().to_lowercase().as_str() {
            "unsubscribe" | "退订" => Some(Self::Silence),
            "subscribe" | "订阅" => Some(Self::Answers),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_mail_that_says_nothing_else_is_a_wish() {
        for (subject, text, expected) in [
            ("unsubscribe", "", Some(Wish::Silence)),
            ("Unsubscribe", " unsubscribe\n", Some(Wish::Silence)),
            ("退订", "", Some(Wish::Silence)),
            ("subscribe", "", Some(Wish::Answers)),
            ("Re: unsubscribe", "", None),
            ("unsubscribe", "How do I unsubscribe from that newsletter?", None),
            ("unsubscribe me", "", None),
        ] {
            let letter = Letter { subject: subject.to_owned(), text: text.to_owned(), ..Letter::default() };
            assert_eq!(Wish::of(&letter), expected, "{subject}: {text}");
        }
    }
}
