//! Mail as anyone may send it: any bytes are a message within its limits, and the content of a field stays in that
//! field.
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
    let mail = parse_mail(data, &limits);
    let is_plain = |text: &str| !text.contains(char::is_control);
    let is_text = |text: &str| !text.contains(|c: char| c.is_control() && c != '\n' && c != '\t');
    assert!(mail.text.len() <= limits.text && mail.cut.len() <= limits.text);
    assert!(is_text(&mail.text) && is_text(&mail.cut) && is_plain(&mail.subject));
    assert!(mail.attachments.len() <= limits.files && mail.from.len() <= limits.addresses);
    assert!(mail.attachments.iter().all(|file| file.bytes.len() <= limits.file_size && is_plain(&file.name)));
    assert!(mail.from.iter().all(|from| is_plain(&from.name) && is_plain(&from.address) && from.address.contains('@')));
    assert!(mail.headers.iter().all(|(name, value)| is_plain(name) && is_plain(value)));
    assert!(mail.references.len() <= limits.references && mail.remarks.len() <= 40);
});
