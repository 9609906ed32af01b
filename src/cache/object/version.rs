//! Compares resource versions of one type.
//!
//! Mirrors apimachinery `pkg/util/resourceversion`.

use std::cmp::Ordering;

/// Orders two resource versions of one type as numbers. Returns `None` if either is not a decimal number
/// without a leading zero; callers then treat neither version as older.
///
/// ```
/// use std::cmp::Ordering;
/// use windlass::cache::compare_versions;
/// assert_eq!(compare_versions("99", "100"), Some(Ordering::Less));
/// assert_eq!(compare_versions("99", ""), None);
/// ```
#[must_use]
pub fn compare(a: &str, b: &str) -> Option<Ordering> {
    let is_version =
        |v: &str| !v.is_empty() && !v.starts_with('0') && v.bytes().all(|byte| byte.is_ascii_digit());
    (is_version(a) && is_version(b)).then(|| a.len().cmp(&b.len()).then_with(|| a.cmp(b)))
}

/// Returns whether `a` is known to be older than `b`.
pub(crate) fn is_older(a: &str, b: &str) -> bool {
    compare(a, b) == Some(Ordering::Less)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_compare_as_numbers_of_any_length() {
        assert_eq!(compare("9", "10"), Some(Ordering::Less));
        assert_eq!(compare("100", "99"), Some(Ordering::Greater));
        assert_eq!(compare("7", "7"), Some(Ordering::Equal));
        assert!(is_older("18446744073709551615", "18446744073709551616"));
    }

    #[test]
    fn non_numeric_versions_are_not_compared() {
        for odd in ["", "0", "01", "a1", "1 "] {
            assert_eq!(compare(odd, "5"), None, "{odd:?}");
            assert!(!is_older(odd, "5"));
        }
    }
}
