//! One field of a child that differs from its wanted state, for people and for the counts of repairs.
//!
//! # Guarantees
//! - Two differences are equal if the same value is wanted for the same field.
//!   (test: `fingerprint_depends_only_on_the_wanted_value`)

use std::fmt;
use std::hash::BuildHasher;

/// One field that differs from the wanted state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The path of the field.
    pub field: String,
    /// The live value; `None` if it may contain secrets, such as an environment.
    pub live: Option<String>,
    /// The wanted value; `None` if it may contain secrets, and for a missing item.
    pub wanted: Option<String>,
    /// The hash of the wanted value, which identifies it without showing it. The live value is left out, so that a
    /// client that reverts a field to a new value each time is noticed too.
    pub fingerprint: u64,
}

/// For people; shows values only where they are harmless.
impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.live, &self.wanted) {
            (Some(live), Some(wanted)) => write!(f, "{} was {live}, wanted {wanted}", self.field),
            (Some(live), None) => write!(f, "{} was {live}", self.field),
            (None, _) => write!(f, "{} was different", self.field),
        }
    }
}

/// Describes differences in one line, for people.
#[must_use]
pub fn describe(differences: &[Difference]) -> String {
    differences.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

// === impl Difference ===

impl Difference {
    /// Returns the difference of a field whose values may be shown; both are in text form.
    pub(in crate::controller) fn shown(field: String, live: String, wanted: String) -> Self {
        Self { field, fingerprint: fingerprint_of(&wanted), live: Some(live), wanted: Some(wanted) }
    }

    /// Returns the difference of a field whose values must not be shown.
    pub(in crate::controller) fn hidden(field: String, wanted: &str) -> Self {
        Self { field, live: None, wanted: None, fingerprint: fingerprint_of(wanted) }
    }

    /// Returns the difference of a wanted item that does not exist.
    pub(in crate::controller) fn missing(field: String) -> Self {
        Self { field, live: Some("missing".to_owned()), wanted: None, fingerprint: fingerprint_of("there") }
    }
}

fn fingerprint_of(wanted: &str) -> u64 {
    foldhash::fast::FixedState::default().hash_one(wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_difference_has_its_own_wording() {
        let [field, live, wanted] = ["a", "1", "2"].map(str::to_owned);
        let all = [
            Difference::shown(field.clone(), live, wanted),
            Difference::hidden(field.clone(), "canary"),
            Difference::missing(field),
        ];
        assert_eq!(describe(&all), "a was 1, wanted 2; a was different; a was missing");
        assert!(!format!("{all:?}").contains("canary"));
    }

    #[test]
    fn fingerprint_depends_only_on_the_wanted_value() {
        let one = |live: &str, wanted: &str| {
            Difference::shown("a".to_owned(), live.to_owned(), wanted.to_owned()).fingerprint
        };
        assert_eq!(one("1", "5"), one("2", "5"), "reverted to a new value each time");
        assert_ne!(one("1", "5"), one("1", "6"));
    }
}
