//! `/livez`, `/readyz`: a list of checks, each with a name and a verdict.
//!
//! Mirrors apiserver `server/healthz`.
//!
//! # Guarantees
//! - The process is ready when every check passes; the response names the failed checks. (test: `ready_when_every_check_passes`)
//! - `?verbose` lists all checks; `/readyz/<check>` runs one. (test: `verbose_lists_all_checks_and_path_selects_one`)
//! - A problem that does not stop the work is reported, and the process stays ready. (test: `later_failure_is_reported_but_stays_ready`)

use std::fmt;

/// The result of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The check passed.
    Passed,
    /// The check passed, but with this problem, which does not stop the work.
    PassedBut(String),
    /// The check failed, for this reason.
    Failed(String),
}

/// A named check, which runs on each request.
pub struct Check {
    name: String,
    look: Box<dyn Fn() -> Verdict + Send + Sync>,
}

/// The checks of a process.
#[derive(Debug, Default)]
pub struct Health {
    /// If one fails, the process should be restarted.
    alive: Vec<Check>,
    /// If one fails, the process is not ready yet.
    ready: Vec<Check>,
}

// === impl Check ===

impl Check {
    /// Creates a check with this name.
    pub fn new(name: impl Into<String>, look: impl Fn() -> Verdict + Send + Sync + 'static) -> Self {
        Self { name: name.into(), look: Box::new(look) }
    }
}

impl fmt::Debug for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Check").field(&self.name).finish()
    }
}

// === impl Health ===

impl Health {
    /// Creates the checks of a process that is alive as long as it responds.
    #[must_use]
    pub fn new() -> Self {
        let ping = || Check::new("ping", || Verdict::Passed);
        Self { alive: vec![ping()], ready: vec![ping()] }
    }

    /// Adds a check to `/livez`: when it fails, the process is to be restarted.
    pub fn alive_when(&mut self, check: Check) {
        self.alive.push(check);
    }

    /// Adds a check for `/readyz`.
    pub fn ready_when(&mut self, check: Check) {
        self.ready.push(check);
    }

    /// Answers `/livez`, `/readyz`, `/healthz` (an alias of `/livez`) or one of their checks with an HTTP status and
    /// plain text.
    #[must_use]
    pub fn answer(&self, path: &str, query: &str) -> Option<(u16, String)> {
        let path = path.strip_prefix('/')?;
        let (endpoint, only) = path.split_once('/').map_or((path, None), |(e, c)| (e, Some(c)));
        let checks = match endpoint {
            "livez" | "healthz" => &self.alive,
            "readyz" => &self.ready,
            _ => return None,
        };
        let chosen: Vec<&Check> = checks.iter().filter(|c| only.is_none_or(|only| only == c.name)).collect();
        if chosen.is_empty() {
            return None;
        }
        let is_verbose = query.split('&').any(|part| part == "verbose" || part.starts_with("verbose="));
        Some(report(endpoint, &chosen, is_verbose))
    }
}

fn report(endpoint: &str, checks: &[&Check], is_verbose: bool) -> (u16, String) {
    let mut text = String::new();
    let mut has_failed = false;
    for Check { name, look } in checks {
        let (mark, words) = match look() {
            Verdict::Passed => ('+', "ok".to_owned()),
            Verdict::PassedBut(reason) => ('+', format!("ok, but {reason}")),
            Verdict::Failed(reason) => {
                has_failed = true;
                ('-', format!("failed: {reason}"))
            }
        };
        text.push_str(&format!("[{mark}]{name} {words}\n"));
    }
    if has_failed {
        return (500, format!("{text}{endpoint} check failed\n"));
    }
    let text = if is_verbose { format!("{text}{endpoint} check passed\n") } else { "ok".to_owned() };
    (200, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn health(verdict: Verdict) -> Health {
        let mut health = Health::new();
        health.ready_when(Check::new("cache-foos", move || verdict.clone()));
        health
    }

    #[test]
    fn ready_when_every_check_passes() {
        let starting = health(Verdict::Failed("not listed yet: 403 Forbidden".to_owned()));
        let expected =
            "[+]ping ok\n[-]cache-foos failed: not listed yet: 403 Forbidden\nreadyz check failed\n";
        assert_eq!(starting.answer("/readyz", ""), Some((500, expected.to_owned())));
        assert_eq!(starting.answer("/livez", ""), Some((200, "ok".to_owned())));
        assert_eq!(health(Verdict::Passed).answer("/readyz", ""), Some((200, "ok".to_owned())));
    }

    #[test]
    fn verbose_lists_all_checks_and_path_selects_one() {
        let health = health(Verdict::Passed);
        let expected = "[+]ping ok\n[+]cache-foos ok\nreadyz check passed\n";
        assert_eq!(health.answer("/readyz", "verbose").unwrap().1, expected);
        assert_eq!(
            health.answer("/readyz/cache-foos", "verbose=1").unwrap().1,
            "[+]cache-foos ok\nreadyz check passed\n"
        );
        assert_eq!(health.answer("/readyz/unknown", ""), None);
        assert_eq!(health.answer("/metrics", ""), None);
    }

    #[test]
    fn later_failure_is_reported_but_stays_ready() {
        let health = health(Verdict::PassedBut("cannot be watched: 404 NotFound".to_owned()));
        assert_eq!(health.answer("/readyz", "").unwrap().0, 200);
        let text = health.answer("/readyz", "verbose").unwrap().1;
        assert!(text.contains("[+]cache-foos ok, but cannot be watched: 404 NotFound\n"), "{text}");
    }
}
