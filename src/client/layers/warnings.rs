//! Logs what the server warns about: a deprecated API, an unknown field, an admission policy's advice.
//!
//! Mirrors client-go `rest/warnings.go`, whose default handler logs each warning each time.
//! Flow: `Warning` headers of an answer -> status -> **warnings** -> the log
//!
//! # Guarantees
//! - A message is logged once an hour, whatever answers repeat it. (test: `a_warning_is_logged_once_an_hour`)
//! - At most [`KEPT`] messages are remembered, and one is cut at [`LENGTH`] characters without control characters: a
//!   webhook may send anything. (test: `hostile_warnings_are_bounded`)

use std::collections::HashMap;
use std::time::Duration;

use http::{HeaderMap, header};
use parking_lot::Mutex;
use tokio::time::Instant;

/// How long a message is not repeated.
const QUIET: Duration = Duration::from_secs(3600);
/// The most messages that are remembered; while there are so many, new ones are not logged.
const KEPT: usize = 256;
/// How much of a message is logged.
const LENGTH: usize = 1024;

/// The messages of the last hour, by when they were logged.
#[derive(Debug, Default)]
pub(in crate::client) struct Warnings(Mutex<HashMap<String, Instant>>);

// === impl Warnings ===

impl Warnings {
    /// Logs what the answer to this request warns about.
    pub(super) fn log(&self, request: &str, headers: &HeaderMap) {
        for value in headers.get_all(header::WARNING) {
            if let Some(warning) = text_of(value.as_bytes()).filter(|text| self.is_news(text)) {
                tracing::warn!(request, warning, "API server warned");
            }
        }
    }

    fn is_news(&self, text: &str) -> bool {
        let (now, mut logged) = (Instant::now(), self.0.lock());
        logged.retain(|_, at| now - *at < QUIET);
        if logged.len() >= KEPT || logged.contains_key(text) {
            return false;
        }
        logged.insert(text.to_owned(), now);
        true
    }
}

/// Returns the text of a header such as `299 - "text"`; `None` if it is another kind of warning.
fn text_of(header: &[u8]) -> Option<String> {
    let header = String::from_utf8_lossy(header);
    let (_agent, quoted) = header.strip_prefix("299 ")?.split_once(' ')?;
    let mut text = String::new();
    let mut chars = quoted.strip_prefix('"')?.chars();
    while text.len() < LENGTH {
        match chars.next()? {
            '"' => break,
            '\\' => text.extend(chars.next()),
            next if next.is_control() => {}
            next => text.push(next),
        }
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(values: &[&str]) -> HeaderMap {
        values.iter().map(|value| (header::WARNING, value.parse().unwrap())).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn a_warning_is_logged_once_an_hour() {
        let (warnings, log) = (Warnings::default(), crate::testing::capture_log());
        let headers =
            with(&[r#"299 - "unknown field \"spec.other\"""#, r#"199 - "not from Kubernetes""#, "299"]);
        for _ in 0..3 {
            warnings.log("POST /api", &headers);
        }
        assert_eq!(log.lines().len(), 1);
        assert!(log.lines()[0].starts_with("WARN API server warned"), "{:?}", log.lines());
        assert!(log.lines()[0].contains(r#"unknown field "spec.other""#), "{:?}", log.lines());
        tokio::time::advance(QUIET).await;
        warnings.log("POST /api", &headers);
        assert_eq!(log.lines().len(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn hostile_warnings_are_bounded() {
        let warnings = Warnings::default();
        let news = (0..10 * KEPT).filter(|at| warnings.is_news(&at.to_string())).count();
        assert_eq!((news, warnings.0.lock().len()), (KEPT, KEPT));
        let long = format!("299 - \"\u{1b}[31m{}\"", "x".repeat(10 * LENGTH));
        let text = text_of(long.as_bytes()).unwrap();
        assert_eq!((text.len(), text.starts_with("[31mx")), (LENGTH, true));
        for broken in ["299 - \"open", "299 - plain", "299", "", "299 - \"\\"] {
            assert_eq!(text_of(broken.as_bytes()), None, "{broken}");
        }
    }
}
