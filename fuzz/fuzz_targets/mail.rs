//! A mail as anybody may send it: any bytes are a letter, within its limits, and nothing in a field leaves it.
#![no_main]

use daoyou_channels::email::parse::{ParseLimits, parse_mail};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let limits = ParseLimits {
        text: 2_000,
        files: 4,
        file_size: 1_000,
        files_size: 2_000,
        addresses: 5,
        ..ParseLimits::default()
    };
    let letter = parse_mail(data, &limits);
    let is_plain = |text: &str| !text.contains(char::is_control);
    let is_text = |text: &str| !text.contains(|c: char| c.is_control() && c != '\n' && c != '\t');
    assert!(letter.text.len() <= limits.text && letter.cut.len() <= limits.text);
    assert!(is_text(&letter.text) && is_text(&letter.cut) && is_plain(&letter.subject));
    assert!(letter.enclosed.len() <= limits.files && letter.from.len() <= limits.addresses);
    assert!(letter.enclosed.iter().all(|file| file.bytes.len() <= limits.file_size && is_plain(&file.name)));
    assert!(
        letter.from.iter().all(|from| is_plain(&from.name) && is_plain(&from.address) && from.address.contains('@'))
    );
    assert!(letter.headers.iter().all(|(name, value)| is_plain(name) && is_plain(value)));
    assert!(letter.references.len() <= limits.references && letter.remarks.len() <= 40);
});
