//! Shard selectors: they select the objects whose uid or namespace has a hash in one of some ranges.
//!
//! Mirrors Kubernetes' sharded list and watch (KEP-5866), an alpha feature of 1.36 and 1.37. The hash is the 64-bit
//! FNV-1a of the field's text; objects without a namespace have the hash of the empty text. A real server parses a
//! selector as CEL and accepts nothing but `shardRange` and `||`. This parser accepts the same in plain notation,
//! without the parentheses, comments, escapes and raw strings of CEL.
//!
//! | answer | with a shard selector |
//! |---|---|
//! | list | the objects of the shards; no `remainingItemCount`; no check that all pages have the same selector |
//! | `metadata.shardInfo` | in lists of built-in kinds only, and neither in tables nor in lists of metadata |
//! | watch | no events of other objects; bookmarks as without a selector |
//! | deletecollection | deletes the objects of the shards |
//! | any of these, with an invalid selector | 500 without a reason |
//!
//! # Guarantees
//! - A list has only the objects of its shards. (test: `sharded_list_has_only_objects_of_its_shards`)
//! - A watch or streaming list sends only the events of its shards, and all bookmarks.
//!   (test: `sharded_watch_sends_only_events_of_its_shards`, `sharded_streaming_list_sends_only_objects_of_its_shards`)
//! - A filtered list of built-in objects names its selector. (test: `shard_info_names_the_selector_of_a_filtered_list`)
//! - An invalid selector is answered with 500. (test: `invalid_shard_selector_is_answered_with_500`)
//! - A server without the feature ignores the selector. (test: `server_without_sharding_ignores_the_selector`)

use std::fmt;
use std::ops::Range;

use serde_json::Value;

use super::failure::{Failure, Outcome};
use super::request::text;
use crate::api::shards::hash;

/// The fields that a selector may name.
const FIELDS: [Field; 2] = [
    Field { path: "object.metadata.uid", pointer: "/metadata/uid" },
    Field { path: "object.metadata.namespace", pointer: "/metadata/namespace" },
];

/// The number of digits of a bound.
const DIGITS: usize = 16;

/// The only bound with one more digit: 2^64, the end of the last range.
const LAST: &str = "10000000000000000";

/// A parsed shard selector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Shards {
    field: Field,
    ranges: Vec<Range<u128>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Field {
    path: &'static str,
    pointer: &'static str,
}

/// The part of a selector that is not parsed yet.
struct Rest<'a>(&'a str);

// === impl Shards ===

impl Shards {
    pub(super) fn parse(selector: &str) -> Outcome<Self> {
        // A real server gives no reason for this error.
        parse(selector).map_err(|why| Failure::new(500, "", format!("invalid shard selector: {why}")))
    }

    pub(super) fn matches(&self, object: &Value) -> bool {
        let hash = u128::from(hash(text(object, self.field.pointer)));
        self.ranges.iter().any(|range| range.contains(&hash))
    }
}

/// Prints the selector as a real server does in `shardInfo`, whatever its notation in the request.
impl fmt::Display for Shards {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, Range { start, end }) in self.ranges.iter().enumerate() {
            let or = if at == 0 { "" } else { " || " };
            write!(f, "{or}shardRange({}, '0x{start:016x}', '0x{end:016x}')", self.field.path)?;
        }
        Ok(())
    }
}

// === impl Rest ===

impl Rest<'_> {
    /// Parses a call of `shardRange`.
    fn range(&mut self) -> Result<(Field, Range<u128>), String> {
        self.expect("shardRange")?;
        self.expect("(")?;
        let field = self.field()?;
        self.expect(",")?;
        let start = self.bound()?;
        self.expect(",")?;
        let end = self.bound()?;
        self.expect(")")?;
        if start >= end {
            return Err(format!("the range from 0x{start:016x} to 0x{end:016x} is empty"));
        }
        Ok((field, start..end))
    }

    /// Parses the path up to the next comma.
    fn field(&mut self) -> Result<Field, String> {
        let (path, rest) = self.0.split_at(self.0.find(',').unwrap_or(self.0.len()));
        self.0 = rest;
        let is_named = |field: &Field| path.split('.').map(str::trim).eq(field.path.split('.'));
        FIELDS.into_iter().find(is_named).ok_or_else(|| {
            let known = FIELDS.map(|field| field.path).join(", ");
            format!("{:?} is not among the fields {known}", path.trim())
        })
    }

    /// Parses a quoted hexadecimal number.
    fn bound(&mut self) -> Result<u128, String> {
        let quote = if self.skips("\"") {
            '"'
        } else {
            self.expect("'")?;
            '\''
        };
        let Some((bound, rest)) = self.0.split_once(quote) else {
            return Err(format!("{:?} has no closing quote", self.0));
        };
        self.0 = rest;
        let digits = bound.strip_prefix("0x").unwrap_or_default();
        let is_number = digits.len() == DIGITS && digits.chars().all(|c| matches!(c, '0'..='9' | 'a'..='f'));
        let number = u128::from_str_radix(digits, 16).ok().filter(|_| is_number || digits == LAST);
        number.ok_or_else(|| {
            format!("{bound:?} is neither 0x with {DIGITS} lowercase hexadecimal digits nor 0x{LAST}")
        })
    }

    fn expect(&mut self, token: &str) -> Result<(), String> {
        if self.skips(token) { Ok(()) } else { Err(format!("found {:?}, expected {token}", self.0)) }
    }

    /// Skips blanks and a token; returns false if another token follows.
    fn skips(&mut self, token: &str) -> bool {
        let rest = self.0.trim_start().strip_prefix(token);
        self.0 = rest.unwrap_or(self.0);
        rest.is_some()
    }
}

fn parse(selector: &str) -> Result<Shards, String> {
    let mut rest = Rest(selector.trim_end());
    let (field, first) = rest.range()?;
    let mut ranges = vec![first];
    while rest.skips("||") {
        let (other, range) = rest.range()?;
        if other != field {
            return Err(format!("the ranges are of {} and of {}", field.path, other.path));
        }
        ranges.push(range);
    }
    if rest.0.is_empty() {
        Ok(Shards { field, ranges })
    } else {
        Err(format!("found {:?}, expected || or the end", rest.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// The hash of "a" is 0xaf63dc4c8601ec8c, that of the empty text 0xcbf29ce484222325.
    #[track_caller]
    fn check(start: &str, end: &str, expected: [bool; 2]) {
        for field in ["uid", "namespace"] {
            let selector = format!("shardRange(object.metadata.{field}, '0x{start}', '0x{end}')");
            let shards = Shards::parse(&selector).unwrap();
            let found = [json!({"metadata": {field: "a"}}), json!({"metadata": {}})];
            assert_eq!(found.map(|object| shards.matches(&object)), expected, "{selector}");
        }
    }

    #[test]
    fn shard_ranges_are_half_open() {
        check("af63dc4c8601ec8c", "af63dc4c8601ec8d", [true, false]);
        check("0000000000000000", "af63dc4c8601ec8c", [false, false]);
        check("af63dc4c8601ec8d", "10000000000000000", [false, true]);
        check("cbf29ce484222325", "cbf29ce484222326", [false, true]);
        check("0000000000000000", "10000000000000000", [true, true]);
    }

    #[test]
    fn shard_selector_is_printed_in_one_notation() {
        let printed = "shardRange(object.metadata.uid, '0x00000000000000aa', '0x10000000000000000') || \
             shardRange(object.metadata.uid, '0x0000000000000000', '0x0000000000000001')";
        let written = "  shardRange ( object.metadata . uid ,\"0x00000000000000aa\",\t'0x10000000000000000')\
             ||shardRange(object.metadata.uid,'0x0000000000000000','0x0000000000000001' )\n";
        for selector in [printed, written] {
            assert_eq!(Shards::parse(selector).unwrap().to_string(), printed);
        }
    }

    #[test]
    fn malformed_shard_selectors_are_refused() {
        let whole = "shardRange(object.metadata.uid, '0x0000000000000000', '0x8000000000000000')";
        let bounds = |bounds: &str| format!("shardRange(object.metadata.uid, {bounds})");
        let field = |field: &str| format!("shardRange({field}, '0x0000000000000000', '0x8000000000000000')");
        for selector in [
            String::new(),
            " ".to_owned(),
            "||".to_owned(),
            "shardRange".to_owned(),
            "shardRange(".to_owned(),
            "object.metadata.uid".to_owned(),
            whole.replace("shardRange", "range"),
            whole.replace(')', ""),
            format!("{whole} ||"),
            format!("{whole} || true"),
            format!("{whole} {whole}"),
            format!("{whole} && {whole}"),
            format!("{whole} || {}", whole.replace("uid", "namespace")),
            field("object.metadata.name"),
            field("metadata.uid"),
            field("object.metadata.u id"),
            field("'object.metadata.uid'"),
            bounds("'0x0000000000000000'"),
            bounds("'0x0000000000000000', '0x8000000000000000', '0x9000000000000000'"),
            bounds("0, 8"),
            bounds("'0x0', '0x8'"),
            bounds("'0000000000000000', '8000000000000000'"),
            bounds("'0x0000000000000000', '0x800000000000000A'"),
            bounds("'0x+000000000000000', '0x8000000000000000'"),
            bounds("'0x0000000000000000', '0x20000000000000000'"),
            bounds("'0x0000000000000000', '0x8000000000000000\""),
            bounds("'0x8000000000000000', '0x8000000000000000'"),
            bounds("'0x10000000000000000', '0x10000000000000000'"),
        ] {
            assert!(Shards::parse(&selector).is_err(), "{selector}");
        }
    }
}
