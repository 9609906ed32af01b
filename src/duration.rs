//! Durations as Go writes them: `5ms`, `2m`, `1h30m`.

use std::time::Duration;

/// The remedy for an invalid duration.
const FORM: &str = "write a number with a unit, such as 5ms, 20s, 2m or 1h30m";

/// Parses a duration; `0` needs no unit.
///
/// # Errors
/// A message that says what to write instead.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    if text.starts_with('-') {
        return Err(format!("must not be negative; {FORM}"));
    }
    let is_plain = text.bytes().all(|byte| byte.is_ascii_alphanumeric());
    let has_known_units = text
        .split(|c: char| c.is_ascii_digit())
        .all(|unit| matches!(unit, "" | "ns" | "us" | "ms" | "s" | "m" | "h"));
    match humantime::parse_duration(text) {
        Ok(duration) if is_plain && has_known_units => Ok(duration),
        _ => Err(FORM.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_parse_as_in_go() {
        let cases = [
            ("5ms", Duration::from_millis(5)),
            ("20s", Duration::from_secs(20)),
            ("2m", Duration::from_secs(120)),
            ("1h30m", Duration::from_secs(5400)),
            ("0", Duration::ZERO),
            ("0s", Duration::ZERO),
        ];
        for (text, expected) in cases {
            assert_eq!(parse(text), Ok(expected), "{text}");
        }
        for text in ["", "5", "abc", "-5s", "5 s", "1day", "2 weeks", "5x", "1.5"] {
            assert!(parse(text).is_err(), "{text:?}");
        }
    }
}
