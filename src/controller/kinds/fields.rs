//! Field ownership as data: the type of the tables that each kind of child has for its fields.
//!
//! Mirrors nothing in client-go; server-side apply records ownership in `managedFields`, per object.
//!
//! # How it works
//! A kind's `FIELDS` says who owns each field, which key identifies the items of a list, and what the server stores
//! by default. The kind's `differences` and `write_into` are that table in typed code, so that a comparison builds
//! no JSON; tests check the code against every row of the table.
//!
//! Fields that no row names belong to others: they are neither compared nor written. The exceptions are the
//! owner reference, which is the same for all kinds (see [`Owner`](crate::controller::Owner)), and the token of the
//! service account, which a new Pod is told not to mount.
//!
//! # Guarantees
//! - Everything the code writes is named by a row. (test: `every_written_field_is_in_the_table`)
//! - The code does what each row says: changes to our fields are detected and repaired, other fields are kept, and
//!   defaults of the server are not differences.
//!   (test: `code_matches_every_table_row`)

use serde_json::Value;

/// One row: a field, by its path from the object or from an item of a list.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// The path, separated by dots.
    pub path: &'static str,
    /// The owner of the field.
    pub whose: Whose,
    /// The field is ours only if something is wanted at this path, which is its own or that of a parent.
    pub if_wanted: Option<&'static str>,
    /// Differences are not written, because the child has to be replaced. Additions to the wanted value are then not
    /// differences, as admission makes them.
    pub replaces: bool,
    /// The server's default.
    pub filled_in: FilledIn,
    /// Whether the field is a list that the server merges by its own key, unless a patch replaces it.
    pub is_merged: bool,
    /// For a list: the fields of its items that need a row.
    pub items: &'static [Field],
}

/// The owner of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
    /// A value of ours.
    Value,
    /// A map with some keys of ours; other keys are kept.
    Keys,
    /// A list with some items of ours, which are identified by this field; other items are kept.
    Items(&'static str),
    /// A map, or a list whose order matters, that is entirely ours: anything else in it is removed.
    Whole,
    /// A list that is entirely ours and whose order does not matter. When the list is written, an item that these
    /// fields identify keeps its unknown fields.
    Set(&'static [&'static str]),
    /// A map of amounts that is entirely ours; amounts are compared by value.
    Amounts,
    /// A field of others, or of the server.
    Others,
}

/// The server's default for a field.
#[derive(Clone, Copy)]
pub enum FilledIn {
    /// Nothing.
    Nothing,
    /// This value, as JSON.
    With(&'static str),
    /// A value that depends on others, in words and as a function of the object and of the field's parent.
    By(&'static str, fn(&Value, &Value) -> Option<Value>),
}

impl std::fmt::Debug for FilledIn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Nothing => "nothing",
            Self::With(value) => value,
            Self::By(words, _) => words,
        })
    }
}

// === impl Field ===

impl Field {
    const fn new(path: &'static str, whose: Whose) -> Self {
        let filled_in = FilledIn::Nothing;
        Self { path, whose, if_wanted: None, replaces: false, filled_in, is_merged: false, items: &[] }
    }

    /// A value of ours; if none is wanted, the field returns to the server's default.
    #[must_use]
    pub const fn value(path: &'static str) -> Self {
        Self::new(path, Whose::Value)
    }

    /// A map with some keys of ours.
    #[must_use]
    pub const fn keys(path: &'static str) -> Self {
        Self::new(path, Whose::Keys)
    }

    /// A list with some items of ours, which are identified by this field.
    #[must_use]
    pub const fn items(path: &'static str, key: &'static str, items: &'static [Self]) -> Self {
        Self { items, ..Self::new(path, Whose::Items(key)) }
    }

    /// A map or list that is entirely ours.
    #[must_use]
    pub const fn whole(path: &'static str) -> Self {
        Self::new(path, Whose::Whole)
    }

    /// A list that is entirely ours, in any order; its items are identified by these fields, if any.
    #[must_use]
    pub const fn set(path: &'static str, key: &'static [&'static str]) -> Self {
        Self::new(path, Whose::Set(key))
    }

    /// A map of amounts that is entirely ours.
    #[must_use]
    pub const fn amounts(path: &'static str) -> Self {
        Self::new(path, Whose::Amounts)
    }

    /// A field of others, or of the server, which the table names to be explicit.
    #[must_use]
    pub const fn others(path: &'static str) -> Self {
        Self::new(path, Whose::Others)
    }

    /// Makes the field ours only if something is wanted at this path.
    #[must_use]
    pub const fn if_wanted(self, path: &'static str) -> Self {
        Self { if_wanted: Some(path), ..self }
    }

    /// Marks the field as immutable: a difference means that the child has to be replaced.
    #[must_use]
    pub const fn replaces(self) -> Self {
        Self { replaces: true, ..self }
    }

    /// Sets the server's default, as JSON.
    #[must_use]
    pub const fn or(self, default: &'static str) -> Self {
        Self { filled_in: FilledIn::With(default), ..self }
    }

    /// Sets a default of the server that depends on other values.
    #[must_use]
    pub const fn or_by(self, words: &'static str, by: fn(&Value, &Value) -> Option<Value>) -> Self {
        Self { filled_in: FilledIn::By(words, by), ..self }
    }

    /// Marks the field as a list that the server merges by its own key.
    #[must_use]
    pub const fn merged(self) -> Self {
        Self { is_merged: true, ..self }
    }

    /// Adds rows for the fields of the list's items.
    #[must_use]
    pub const fn of(self, items: &'static [Self]) -> Self {
        Self { items, ..self }
    }
}

#[cfg(test)]
mod tests;
