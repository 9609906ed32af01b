//! Finds duplicate members of JSON objects, of which a parser silently keeps the last.

use std::collections::BTreeSet;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};

use super::field::Field;

/// Returns the paths of all duplicate members, in Go's notation.
pub(super) fn find(json: &[u8]) -> Vec<String> {
    let mut found = Vec::new();
    let mut parser = serde_json::Deserializer::from_slice(json);
    // Malformed JSON is refused elsewhere.
    drop(Walk { field: &Field::Root, found: &mut found }.deserialize(&mut parser));
    found
}

struct Walk<'a> {
    field: &'a Field<'a>,
    found: &'a mut Vec<String>,
}

impl<'de> DeserializeSeed<'de> for Walk<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Walk<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut seen = BTreeSet::new();
        while let Some(key) = map.next_key::<String>()? {
            let field = &Field::Member(self.field, &key);
            if seen.contains(&key) {
                self.found.push(field.to_string());
            }
            map.next_value_seed(Walk { field, found: &mut *self.found })?;
            seen.insert(key);
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let mut at = 0;
        loop {
            let field = &Field::Item(self.field, at);
            if items.next_element_seed(Walk { field, found: &mut *self.found })?.is_none() {
                return Ok(());
            }
            at += 1;
        }
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn duplicate_members_are_found_at_any_depth() {
        let json = br#"{"a": 1, "b": {"c": 1, "c": 2}, "d": [{}, {"e": 1, "e": null}], "a": 2.5}"#;
        assert_eq!(find(json), ["b.c", "d[1].e", "a"]);
        assert_eq!(find(br#"{"a": {"b": 1}, "b": 1}"#), [""; 0]);
    }
}
