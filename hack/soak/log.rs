//! What the operator has logged: panics, and the warnings and errors by message.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::Context;
use serde::Serialize;
use serde_json::Value;

use crate::text;

/// Sums over all logs of a run.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Log {
    pub(crate) panics: Vec<String>,
    pub(crate) errors: usize,
    pub(crate) warnings: usize,
    /// Level and message, with the number of lines.
    pub(crate) messages: BTreeMap<String, usize>,
}

impl Log {
    /// Reads all files of a directory.
    pub(crate) fn read(directory: &Path) -> anyhow::Result<Self> {
        let mut log = Self::default();
        for file in fs::read_dir(directory).context("read the operator's logs")? {
            let bytes = fs::read(file?.path())?;
            String::from_utf8_lossy(&bytes).lines().for_each(|line| log.add(line));
        }
        Ok(log)
    }

    fn add(&mut self, line: &str) {
        if line.contains("panicked") {
            self.panics.push(line.to_owned());
        }
        // A process that is killed may leave half a line.
        let Ok(entry) = serde_json::from_str::<Value>(line) else { return };
        let level = text(&entry, "/level");
        match level {
            "ERROR" => self.errors += 1,
            "WARN" => self.warnings += 1,
            _ => return,
        }
        *self.messages.entry(format!("{level} {}", text(&entry, "/message"))).or_default() += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::Log;

    #[test]
    fn warnings_are_counted_by_message() {
        let mut log = Log::default();
        for line in [
            r#"{"level":"INFO","message":"Became Ready"}"#,
            r#"{"level":"WARN","message":"Sync failed","error":"a"}"#,
            r#"{"level":"WARN","message":"Sync failed","error":"b"}"#,
            r#"{"level":"ERROR","message":"Lost"}"#,
            r#"{"level":"ERR"#,
            "thread 'main' panicked at src/main.rs:1",
        ] {
            log.add(line);
        }
        assert_eq!((log.panics.len(), log.errors, log.warnings), (1, 1, 2));
        assert_eq!(log.messages["WARN Sync failed"], 2);
    }
}
