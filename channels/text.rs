//! Text helpers that all channels share.

/// Groups the digits of a number: `1234567` becomes `1,234,567`.
pub fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// Returns `bytes` in hexadecimal, in lower case.
pub fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digits = |byte: &u8| [DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]].map(char::from);
    bytes.iter().flat_map(digits).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped() {
        for (number, words) in [(0, "0"), (999, "999"), (1_000, "1,000"), (3_400, "3,400"), (1_234_567, "1,234,567")] {
            assert_eq!(thousands(number), words);
        }
    }

    #[test]
    fn bytes_are_two_lower_case_digits_each() {
        assert_eq!(hex(&[0, 0x0a, 0xf0, 0xff]), "000af0ff");
    }
}
