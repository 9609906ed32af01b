//! Errors of JSON that does not decode, without the values: one may be a secret, or as long as an answer.
//!
//! # Guarantees
//! - A text says what was expected and where, and quotes no value. (test: `text_quotes_no_value`)

use serde::de::Error as _;
use serde_json::error::Category;

/// The text of an error of protobuf itself.
pub(super) const MALFORMED: &str = "malformed protobuf";

/// Returns the error without the values that serde's text may quote.
pub(crate) fn without_values(error: &serde_json::Error) -> serde_json::Error {
    let text = match error.classify() {
        Category::Data => kind_of(error),
        // These come from the parser, which quotes nothing.
        Category::Io | Category::Syntax | Category::Eof => return serde_json::Error::custom(error),
    };
    match error.line() {
        0 => serde_json::Error::custom(text),
        // serde_json reads the place back from the text.
        line => serde_json::Error::custom(format!("{text} at line {line} column {}", error.column())),
    }
}

/// Returns the part of serde's text that comes from the type, not from the value. A type's own text may quote anything.
pub(crate) fn kind_of(error: &serde_json::Error) -> String {
    let text = error.to_string();
    // An error without a place may end with a value that looks like one.
    let place = text.rsplit_once(" at line ").filter(|_| error.line() > 0);
    let text = place.map_or(text.as_str(), |(text, _)| text);
    let begins = |starts: &[&str]| starts.iter().any(|start| text.starts_with(start));
    if begins(&["missing field `", "duplicate field `"]) || text == MALFORMED {
        return text.to_owned();
    }
    let by_serde =
        ["invalid type: ", "invalid value: ", "invalid length ", "unknown variant `", "unknown field `"];
    match text.rsplit_once(", expected ").filter(|_| begins(&by_serde)) {
        Some((_, expected)) => format!("expected {expected}"),
        None => "invalid value".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::Secret;

    /// I17: a value may be a secret.
    #[test]
    fn text_quotes_no_value() {
        let text = |json: &str| {
            let error = serde_json::from_str::<Secret>(json).unwrap_err();
            without_values(&error).to_string()
        };
        let placed = serde_json::json!({"type": ["a, expected s3cret at line 1"]});
        let unplaced = without_values(&serde_json::from_value::<Secret>(placed).unwrap_err());
        assert_eq!(unplaced.to_string(), "expected a string");
        let secret = "s3cret, expected x";
        assert_eq!(text(&format!(r#"{{"type":["{secret}"]}}"#)), "expected a string at line 1 column 8");
        assert_eq!(text(&format!(r#"{{"metadata":"{secret}"}}"#)), "expected ObjectMeta at line 1 column 32");
        let time = format!(r#"{{"metadata":{{"creationTimestamp":"{secret}"}}}}"#);
        assert_eq!(text(&time), "invalid value at line 1 column 53");
        assert_eq!(text(&format!(r#"{{"type":"{secret}"#)), "EOF while parsing a string at line 1 column 27");
    }
}
