//! The entry point of the fuzz target `http_head`.

use super::head::{BodyFraming, find_end, validate_head};

/// Parses any bytes as a head and its body. Asserts that the result does not depend on how the bytes are split, and that an accepted
/// head is not ambiguous.
pub fn head(data: &[u8]) {
    let found = find_end(data, &mut 0);
    let mut scanned = 0;
    let in_pieces = (0..=data.len()).find_map(|length| find_end(&data[..length], &mut scanned));
    assert_eq!(in_pieces, found);
    let Some(end) = found else { return };
    let (head, rest) = data.split_at(end);
    match validate_head(head) {
        Ok(framing) => {
            check_fields(head);
            check_body(&framing, rest);
        }
        Err(error) => assert!(error.status.is_client_error(), "{error:?}"),
    }
    check_body(&BodyFraming::chunked(), rest);
}

/// Parses the fields of an accepted head as a lenient proxy might.
fn check_fields(head: &[u8]) {
    assert!(!head.contains(&0), "a NUL in an accepted head");
    let lines = head.split(|byte| *byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    let names: Vec<_> = lines
        .skip_while(|line| line.is_empty())
        .skip(1)
        .filter(|line| !line.is_empty())
        .map(|line| {
            assert!(!line.starts_with(b" ") && !line.starts_with(b"\t") && !line.contains(&b'\r'), "a folded line");
            let colon = line.iter().position(|byte| *byte == b':').expect("a field has a colon");
            line[..colon].to_ascii_lowercase()
        })
        .collect();
    let count = |name: &str| names.iter().filter(|found| found.as_slice() == name.as_bytes()).count();
    assert_eq!(count("host"), 1);
    assert!(count("content-length") + count("transfer-encoding") <= 1);
    assert!(names.iter().all(|name| !name.is_empty() && !name.iter().any(u8::is_ascii_whitespace)));
}

fn check_body(framing: &BodyFraming, bytes: &[u8]) {
    let (mut whole, mut split) = (framing.clone(), framing.clone());
    let taken = whole.consume(bytes).ok();
    let mut used = 0;
    let in_pieces = bytes.iter().try_for_each(|byte| split.consume(&[*byte]).map(|one| used += one));
    assert_eq!(in_pieces.ok().map(|()| used), taken);
    if let Some(taken) = taken {
        assert!(taken <= bytes.len() && (whole.is_done() || taken == bytes.len()));
        assert_eq!(whole, split);
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_seeds_of_http_head_pass() {
        crate::seeds::run("http_head", super::head);
    }
}
