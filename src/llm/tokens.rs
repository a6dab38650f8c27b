//! Estimates the tokens of a text without a model's vocabulary, and learns how a model's own count differs.

/// One token, in hundredths of a token, so that sums are integers.
const TOKEN: u64 = 100;

/// The weight of a new count relative to all earlier ones.
const WEIGHT: f64 = 0.2;
/// The shortest request that a factor learns from, in estimated tokens. In the count of a shorter one, the tokens that the
/// service adds dominate.
const LEARNED_FROM: u64 = 200;
/// The bounds of a factor. A service with a factor beyond them counts something other than tokens.
const BOUNDS: (f64, f64) = (0.5, 2.0);

/// A class of characters that current vocabularies split alike.
#[derive(Clone, Copy, PartialEq, Eq)]
enum TokenClass {
    /// White space; a single space belongs to the word after it.
    Blank,
    Digit,
    /// Latin letters except capitals.
    Small,
    Capital,
    /// Chinese characters and Japanese syllables.
    Ideograph,
    Hangul,
    Cyrillic,
    /// Scripts with about three letters per token: Arabic, Indic scripts, Thai.
    Third,
    /// Scripts with fewer letters per token: Greek, Hebrew, and all others.
    Half,
    /// ASCII punctuation and symbols.
    Sign,
    /// Emoji and other symbols.
    Picture,
}

/// A run of characters of one class.
struct CharRun {
    class: TokenClass,
    length: u64,
    /// True if all characters so far are capitals.
    is_loud: bool,
    begins_with_break: bool,
}

/// The length, in bytes, above which a text is counted by samples: `SAMPLES` pieces of `SAMPLE` bytes, spread over the text.
const LONG: usize = 16 * 1024;
const SAMPLES: usize = 32;
const SAMPLE: usize = 256;

/// Estimates the tokens of a text by the vocabularies of current models. The estimate is close for prose in any script, code
/// and JSON, and less exact for texts such as digests. It takes microseconds, however long the text is.
pub fn estimate_tokens(text: &str) -> usize {
    let hundredths = if text.len() > LONG { count_samples(text) } else { count(text) };
    usize::try_from(hundredths.div_ceil(TOKEN)).unwrap_or(usize::MAX)
}

fn count_samples(text: &str) -> u64 {
    let (mut sum, mut bytes) = (0_u128, 0_u128);
    for number in 0..SAMPLES {
        let from = text.ceil_char_boundary(text.len() / SAMPLES * number);
        let sample = &text[from..text.floor_char_boundary(from + SAMPLE)];
        sum += u128::from(count(sample));
        bytes += sample.len() as u128;
    }
    u64::try_from(sum * text.len() as u128 / bytes.max(1)).unwrap_or(u64::MAX)
}

fn count(text: &str) -> u64 {
    let (mut sum, mut before, mut run): (u64, Option<TokenClass>, Option<CharRun>) = (0, None, None);
    let mut rest = text;
    while let Some(char) = rest.chars().next() {
        rest = &rest[char.len_utf8()..];
        let class = TokenClass::of(char);
        // Most text is runs of ASCII; the further characters of a run need no decoding.
        let same = |byte: &u8| ASCII.get(usize::from(*byte)) == Some(&class);
        let more = if class == TokenClass::Capital { 0 } else { rest.bytes().take_while(same).count() };
        rest = &rest[more..];
        let length = 1 + more as u64;
        if let Some(run) = &mut run
            && run.goes_on_with(class)
        {
            run.length += length;
            run.is_loud &= class == TokenClass::Capital;
            continue;
        }
        if let Some(run) = &run {
            sum += run.cost(before, Some(class));
            before = Some(run.class);
        }
        let begins_with_break = matches!(char, '\n' | '\r');
        run = Some(CharRun { class, length, is_loud: class == TokenClass::Capital, begins_with_break });
    }
    sum + run.map_or(0, |run| run.cost(before, None))
}

const ASCII: [TokenClass; 128] = {
    let mut classes = [TokenClass::Sign; 128];
    let mut byte = 0;
    while byte < 128 {
        classes[byte as usize] = TokenClass::of_ascii(byte);
        byte += 1;
    }
    classes
};

// The weights need finer classes than the table of scripts in `text`.
impl TokenClass {
    fn of(char: char) -> Self {
        // ASCII has a lookup table, because most text is ASCII, and all text for a model is counted.
        match ASCII.get(char as usize) {
            Some(class) => *class,
            None => Self::beyond_ascii(char),
        }
    }

    const fn of_ascii(byte: u8) -> Self {
        match byte {
            b' ' | b'\t' | b'\n' | b'\r' => Self::Blank,
            b'0'..=b'9' => Self::Digit,
            b'a'..=b'z' => Self::Small,
            b'A'..=b'Z' => Self::Capital,
            _ => Self::Sign,
        }
    }

    fn beyond_ascii(char: char) -> Self {
        match char {
            '\u{df}'..='\u{f6}' | '\u{f8}'..='\u{24f}' | '\u{1e00}'..='\u{1eff}' => Self::Small,
            '\u{c0}'..='\u{d6}' | '\u{d8}'..='\u{de}' => Self::Capital,
            '\u{400}'..='\u{52f}' => Self::Cyrillic,
            '\u{600}'..='\u{6ff}' | '\u{750}'..='\u{77f}' | '\u{900}'..='\u{e7f}' => Self::Third,
            '\u{1100}'..='\u{11ff}' | '\u{ac00}'..='\u{d7ff}' => Self::Hangul,
            // This class includes the full-width punctuation of these scripts.
            '\u{2e80}'..='\u{a4cf}' | '\u{f900}'..='\u{faff}' | '\u{fe30}'..='\u{fe4f}' | '\u{ff00}'..='\u{ffef}' => {
                Self::Ideograph
            }
            // “Quotes”, dashes and the like.
            '\u{a0}'..='\u{bf}' | '\u{2000}'..='\u{206f}' => Self::Ideograph,
            '\u{20000}'..='\u{3ffff}' => Self::Picture,
            '\u{2070}'..='\u{2e7f}' | '\u{fe00}'..='\u{fe0f}' | '\u{1f000}'..='\u{1ffff}' => Self::Picture,
            _ => Self::Half,
        }
    }

    fn is_letter(self) -> bool {
        !matches!(self, Self::Blank | Self::Digit | Self::Sign | Self::Picture)
    }
}

impl CharRun {
    fn goes_on_with(&self, class: TokenClass) -> bool {
        match (self.class, class) {
            // "Word" is one run; "wordWord" is two.
            (TokenClass::Capital, TokenClass::Small) => self.length == 1 || !self.is_loud,
            (TokenClass::Capital, TokenClass::Capital) => self.is_loud,
            (before, now) => before == now,
        }
    }

    fn cost(&self, before: Option<TokenClass>, next: Option<TokenClass>) -> u64 {
        let over = |free: u64| self.length.saturating_sub(free);
        match self.class {
            TokenClass::Capital if self.is_loud => TOKEN + over(3) * 22,
            TokenClass::Small | TokenClass::Capital => TOKEN + over(8) * 14,
            TokenClass::Digit => self.length.div_ceil(3) * TOKEN,
            TokenClass::Ideograph => self.length * 75,
            TokenClass::Hangul => self.length * 66,
            TokenClass::Cyrillic => TOKEN.max(self.length * 23),
            TokenClass::Third => TOKEN.max(self.length * 33),
            TokenClass::Half => TOKEN.max(self.length * 43),
            TokenClass::Picture => self.length * 150,
            // The last sign is often part of the same token as the word after it.
            TokenClass::Sign if next.is_some_and(TokenClass::is_letter) => 50 + over(1) * 30,
            TokenClass::Sign => 95 + over(1) * 20,
            // A line break is part of the same token as the sign before it.
            TokenClass::Blank if self.begins_with_break && before == Some(TokenClass::Sign) => {
                if self.length > 2 {
                    TOKEN
                } else {
                    0
                }
            }
            TokenClass::Blank if self.length > 1 || self.begins_with_break => TOKEN,
            TokenClass::Blank => match next {
                Some(TokenClass::Digit) => TOKEN,
                Some(TokenClass::Ideograph) => TOKEN / 4,
                Some(_) => 0,
                None => TOKEN,
            },
        }
    }
}

/// The ratio of a model's tokens to estimated tokens, learned from the counts of its service.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TokenFactor(f64);

impl Default for TokenFactor {
    fn default() -> Self {
        Self(1.0)
    }
}

impl TokenFactor {
    /// Creates a factor from a stored value, within the bounds; a value that is not finite means nothing is known.
    pub fn new(value: f64) -> Self {
        if value.is_finite() { Self(value.clamp(BOUNDS.0, BOUNDS.1)) } else { Self::default() }
    }

    pub fn get(self) -> f64 {
        self.0
    }

    /// Returns the factor after a request with this estimate and this count.
    #[must_use]
    pub fn learn(self, estimated: u64, counted: u64) -> Self {
        if estimated < LEARNED_FROM || counted == 0 {
            return self;
        }
        let seen = Self::new(counted as f64 / estimated as f64).0;
        Self::new(self.0 + WEIGHT * (seen - self.0))
    }

    /// Converts an estimate to the model's tokens.
    pub fn counted(self, estimated: usize) -> usize {
        (estimated as f64 * self.steady()).ceil() as usize
    }

    /// Converts the model's tokens to an estimate.
    pub fn estimated(self, counted: usize) -> usize {
        (counted as f64 / self.steady()).floor() as usize
    }

    /// Returns the factor rounded up in steps, so that small changes do not change where turns are cut.
    fn steady(self) -> f64 {
        (self.0 * 20.0).ceil() / 20.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Texts, and their numbers of tokens in the vocabulary o200k.
    const COUNTED: &[(&str, usize)] = &[
        (
            "The gateway writes each message to its store before it says that it was accepted. Only then does the sender \
             know that nothing can be lost, whatever happens to the machine in the next second. A restart is nothing \
             special: the new process looks at what is there and goes on.",
            56,
        ),
        (
            "I went to the market yesterday, and bought apples, bread and a small bottle of olive oil. My sister doesn't \
             like olives; she said so again.",
            31,
        ),
        ("THE QUICK BROWN FOX JUMPS OVER THE LAZY DOG. ERROR: CONNECTION REFUSED BY HOST.", 22),
        (
            "网关在告诉发送者“已接受”之前，会先把每条消息写入存储。只有这样，发送者才知道无论下一秒机器发生什么，都不会丢失任何东西。\
             重启没有什么特别之处：新的进程会看看那里有什么，然后继续。",
            62,
        ),
        ("明天下午三点提醒我给妈妈打电话，她的生日快到了。", 17),
        ("我喜欢吃辣的川菜，不喜欢太甜的东西。请记住这一点。", 20),
        ("The API 返回 200 OK，但是 body 里的 JSON 不完整 (missing \"data\").", 18),
        (
            "ゲートウェイは、メッセージを受け付けたと言う前に、それぞれのメッセージを保存します。再起動は特別なことではありません。",
            43,
        ),
        (
            "게이트웨이는 메시지가 수락되었다고 말하기 전에 각 메시지를 저장소에 기록합니다. 재시작은 특별한 일이 아닙니다.",
            34,
        ),
        (
            "Шлюз записывает каждое сообщение в хранилище, прежде чем сказать, что оно принято. Перезапуск не \
             представляет собой ничего особенного.",
            32,
        ),
        ("تكتب البوابة كل رسالة في مخزنها قبل أن تقول إنها قبلت. إعادة التشغيل ليست شيئًا خاصًا.", 26),
        ("Πύλη γράφει κάθε μήνυμα στον χώρο αποθήκευσης πριν πει ότι έγινε δεκτό.", 26),
        (
            "La passerelle écrit chaque message dans son magasin avant de dire qu'il a été accepté. Un redémarrage n'a \
             rien de spécial : le nouveau processus regarde ce qui est là.",
            37,
        ),
        (
            "fn below(base: &Url, path: &[&str]) -> Url {\n    let mut url = base.clone();\n    if let Ok(mut segments) = \
             url.path_segments_mut() {\n        segments.pop_if_empty().extend(path);\n    }\n    url\n}",
            53,
        ),
        (
            r#"{"role":"assistant","content":"I looked.","tool_calls":[{"id":"call_1","name":"list_dir","arguments":"{\"path\":\"memory\",\"limit\":20}"}]}"#,
            38,
        ),
        (
            r#"{"type":"object","properties":{"path":{"type":"string","description":"A path in the workspace."},"limit":{"type":"integer","minimum":1,"maximum":2000}},"required":["path"],"additionalProperties":false}"#,
            48,
        ),
        ("2026-11-21 18:20:33 1234567890 3.14159 0.001 42 100000 2048 8192 65536", 40),
        ("9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08", 43),
        ("https://example.org/docs/api-reference/embeddings?limit=100&after=batch_abc123#section-2", 24),
        ("😀🎉🚀👍🏽❤️🇨🇳👨‍👩‍👧", 21),
        ("long long long long long long long long long long long long long long long long long long long long", 20),
    ];

    #[test]
    fn estimates_are_close_to_real_counts() {
        assert_eq!(estimate_tokens(""), 0);
        for (text, counted) in COUNTED {
            let share = estimate_tokens(text) as f64 / *counted as f64;
            assert!((0.85..=1.15).contains(&share), "{share:.2} of {counted}: {text}");
            assert!(estimate_tokens(text) <= text.len(), "never more than a token a byte: {text}");
            let long = text.repeat(50_000 / text.len());
            let share = estimate_tokens(&long) as f64 * TOKEN as f64 / count(&long) as f64;
            assert!((0.93..=1.07).contains(&share), "samples: {share:.2}: {text}");
        }
    }

    /// A factor, the following requests as (estimated, counted), and the factor after them.
    #[test]
    fn the_factor_learns_from_counts_within_bounds() {
        type Row<'a> = (f64, &'a [(u64, u64)], f64);
        let table: &[Row<'_>] = &[
            (1.0, &[], 1.0),
            (1.0, &[(1_000, 1_500)], 1.1),
            (1.0, &[(1_000, 1_500); 30], 1.5),
            (1.0, &[(1_000, 9_000); 30], 2.0),
            (1.0, &[(1_000, 10); 30], 0.5),
            (1.0, &[(199, 400), (1_000, 0)], 1.0),
            (7.0, &[], 2.0),
            (f64::NAN, &[], 1.0),
        ];
        for (known, requests, expected) in table {
            let factor =
                requests.iter().fold(TokenFactor::new(*known), |factor, (ours, theirs)| factor.learn(*ours, *theirs));
            assert!((factor.get() - expected).abs() < 0.01, "{factor:?}, not {expected}: {requests:?}");
        }
        let factor = TokenFactor::new(1.21);
        assert_eq!((factor.counted(1_000), factor.estimated(1_250)), (1_250, 1_000), "in steps, never too low");
    }
}
