//! Sums: `+ - * / % ^`, brackets, decimals.

/// Longest sum that is read, in bytes.
pub(super) const MAX_LEN: usize = 200;
const MAX_DEPTH: u32 = 32;

/// The value of a sum with at least one operator; not finite where it was divided by zero or grew too large. `None` if
/// the text is no sum.
pub(super) fn evaluate(text: &str) -> Option<f64> {
    let text = text.trim().trim_end_matches(['=', '?', '？', '＝']).trim_end();
    if text.len() > MAX_LEN {
        return None;
    }
    let symbols = text.chars().filter(|c| !c.is_whitespace()).map(plain).collect();
    let mut reader = Reader { symbols, at: 0, operators: 0 };
    let value = reader.sum(0)?;
    (reader.at == reader.symbols.len() && reader.operators > 0).then_some(value)
}

/// Whether a message that is nothing but a sum is meant as one: `2026-11-21` and `11/21` are dates, `7 - 3` is a sum.
pub(super) fn is_plainly_a_sum(text: &str) -> bool {
    text.contains(['+', '*', '×', '÷', '^', '=', '＝', '＋'])
        || [" - ", " / ", " % "].iter().any(|op| text.contains(op))
}

/// A number as people write it: no more digits than are sure.
pub(super) fn write(value: f64) -> String {
    if value.abs() >= 1e15 || (value != 0.0 && value.abs() < 1e-6) {
        return format!("{value:e}");
    }
    let digits = format!("{value:.9}");
    let short = digits.trim_end_matches('0').trim_end_matches('.');
    if short == "-0" { "0".to_owned() } else { short.to_owned() }
}

fn plain(c: char) -> char {
    match c {
        '×' | '✕' => '*',
        '÷' => '/',
        '＋' => '+',
        '－' | '−' => '-',
        '（' => '(',
        '）' => ')',
        other => other,
    }
}

struct Reader {
    symbols: Vec<char>,
    at: usize,
    operators: u32,
}

impl Reader {
    fn peek(&self) -> Option<char> {
        self.symbols.get(self.at).copied()
    }

    fn operator(&mut self, among: &[char]) -> Option<char> {
        let found = self.peek().filter(|c| among.contains(c))?;
        self.at += 1;
        self.operators += 1;
        Some(found)
    }

    fn sum(&mut self, depth: u32) -> Option<f64> {
        let mut value = self.product(depth)?;
        while let Some(operator) = self.operator(&['+', '-']) {
            let right = self.product(depth)?;
            value = if operator == '+' { value + right } else { value - right };
        }
        Some(value)
    }

    fn product(&mut self, depth: u32) -> Option<f64> {
        let mut value = self.power(depth)?;
        while let Some(operator) = self.operator(&['*', '/', '%']) {
            let right = self.power(depth)?;
            value = match operator {
                '*' => value * right,
                '/' => value / right,
                _ => value % right,
            };
        }
        Some(value)
    }

    /// Binds to the right, and tighter than a sign: `-2^2` is -4.
    fn power(&mut self, depth: u32) -> Option<f64> {
        if depth > MAX_DEPTH {
            return None;
        }
        if self.peek() == Some('-') {
            self.at += 1;
            return Some(-self.power(depth + 1)?);
        }
        let base = self.atom(depth)?;
        match self.operator(&['^']) {
            Some(_) => Some(base.powf(self.power(depth + 1)?)),
            None => Some(base),
        }
    }

    fn atom(&mut self, depth: u32) -> Option<f64> {
        if self.peek() == Some('(') {
            self.at += 1;
            let value = self.sum(depth + 1)?;
            self.peek().filter(|c| *c == ')')?;
            self.at += 1;
            return Some(value);
        }
        let rest = &self.symbols[self.at..];
        let length = rest.iter().take_while(|c| c.is_ascii_digit() || **c == '.').count();
        let digits: String = rest[..length].iter().collect();
        self.at += length;
        digits.parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums() {
        let cases = [
            ("1+2*3", Some("7")),
            ("(1 + 2) × 3 =", Some("9")),
            ("-2^2", Some("-4")),
            ("2^3^2", Some("512")),
            ("0.1+0.2", Some("0.3")),
            ("10÷4", Some("2.5")),
            ("7 % 4", Some("3")),
            ("2--2", Some("4")),
            ("10^20 * 1", Some("1e20")),
            ("1/0", Some("inf")),
            ("42", None),
            ("", None),
            ("1+", None),
            ("(1+2", None),
            ("1.2.3+1", None),
            ("a+b", None),
            ("1 + 2 apples", None),
        ];
        for (text, expected) in cases {
            assert_eq!(evaluate(text).map(write).as_deref(), expected, "{text}");
        }
        assert_eq!(evaluate(&"(".repeat(150)), None);
        assert_eq!(evaluate(&("-".repeat(150) + "1+1")), None);
    }

    #[test]
    fn dates_are_no_sums() {
        for (text, expected) in [("2026-11-21", false), ("11/21", false), ("7 - 3", true), ("7*3", true)] {
            assert_eq!(is_plainly_a_sum(text), expected, "{text}");
        }
    }
}
