//! Headers that a request may have only once.

use axum::http::{HeaderMap, HeaderValue};

/// Returns the value of the header `name`, if there is one. Several values are rejected, even equal ones, since a proxy and
/// this program could use different ones.
///
/// # Errors
/// A sentence that names the header.
pub(crate) fn single_header<'a>(headers: &'a HeaderMap, name: &str) -> Result<Option<&'a HeaderValue>, String> {
    let mut values = headers.get_all(name).iter();
    let value = values.next();
    match values.next() {
        None => Ok(value),
        Some(_) => Err(format!("the header {name} occurs more than once")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_has_one_value_or_none() {
        for (values, expected) in
            [(&[][..], Ok(None)), (&["a"], Ok(Some("a"))), (&["a", "a"], Err(())), (&["a", ""], Err(()))]
        {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append("x-one", HeaderValue::from_static(value));
            }
            let found = single_header(&headers, "x-one").map(|value| value.map(|value| value.to_str().unwrap()));
            assert_eq!(found.map_err(|reason| assert!(reason.contains("x-one"))), expected, "{values:?}");
        }
    }
}
