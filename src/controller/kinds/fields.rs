//! Whose each field of a child is, as data: the tables that stand in the module of each kind of child.
//!
//! Mirrors nothing in client-go; server-side apply keeps the like in `managedFields`, for each object anew.
//!
//! # How it works
//! A kind's `FIELDS` says of each field whose it is, by which key the items of a list are found, and what the server
//! stores where nothing is written. The kind's `differences` and `apply` are that table in code, typed, so that a
//! comparison builds nothing; tests walk the table and hold the code to every row of it.
//!
//! What no row names is others': it is neither compared nor written, but for the reference to the owner, which is the
//! same for all kinds (see [`owner`](crate::controller::children::owner)).
//!
//! # Guarantees
//! - What the code writes is named by a row. (test: `everything_that_is_written_is_in_its_table`)
//! - Each row is what the code does: what is ours is noticed and put back, what is others' stays, what the server fills in is no difference. (test: `the_code_does_what_its_table_says`)

use serde_json::Value;

/// A row: one field, by its path from the object, or from the item of a list.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// Its path, with dots.
    pub path: &'static str,
    /// Whose it is.
    pub whose: Whose,
    /// Only if something is wanted at this path, which is the field's own or one above it; else it is others'.
    pub if_wanted: Option<&'static str>,
    /// What differs is not written: the child has to be replaced. What is there beyond what is wanted is no difference
    /// then, as admission puts it there.
    pub replaces: bool,
    /// What the server stores where nothing is written.
    pub filled_in: FilledIn,
    /// A list that the server merges by a key of its own, unless a patch says that it replaces it.
    pub is_merged: bool,
    /// Of a list: the fields of its items that are to be said something of.
    pub items: &'static [Field],
}

/// Whose a field is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
    /// Ours: a value.
    Value,
    /// Ours by key, in a map: keys that nobody wants stay.
    Keys,
    /// Ours by item, in a list whose items are the same when this field of them is: items that nobody wants stay.
    Items(&'static str),
    /// Ours whole, a map or a list whose order counts: what nobody wants goes.
    Whole,
    /// Ours whole, a list whose order does not count. An item that is the same by these fields keeps what we do not know
    /// of it when the list is written.
    Set(&'static [&'static str]),
    /// Ours whole, a map of amounts, which are compared by value.
    Amounts,
    /// Others', or the server's.
    Others,
}

/// What the server stores where nothing is written.
#[derive(Clone, Copy)]
pub enum FilledIn {
    /// Nothing.
    Nothing,
    /// This, as JSON.
    With(&'static str),
    /// What hangs on something else, in words, and as a function of the object and of what the field stands in.
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

    /// A value of ours; if none is wanted, it goes back to what the server fills in.
    #[must_use]
    pub const fn value(path: &'static str) -> Self {
        Self::new(path, Whose::Value)
    }

    /// A map of which some keys are ours.
    #[must_use]
    pub const fn keys(path: &'static str) -> Self {
        Self::new(path, Whose::Keys)
    }

    /// A list of which some items are ours, found by this field of them.
    #[must_use]
    pub const fn items(path: &'static str, key: &'static str, items: &'static [Self]) -> Self {
        Self { items, ..Self::new(path, Whose::Items(key)) }
    }

    /// A map or list that is ours whole.
    #[must_use]
    pub const fn whole(path: &'static str) -> Self {
        Self::new(path, Whose::Whole)
    }

    /// A list that is ours whole, in whatever order, its items found by these fields of them, if by any.
    #[must_use]
    pub const fn set(path: &'static str, key: &'static [&'static str]) -> Self {
        Self::new(path, Whose::Set(key))
    }

    /// A map of amounts that is ours whole.
    #[must_use]
    pub const fn amounts(path: &'static str) -> Self {
        Self::new(path, Whose::Amounts)
    }

    /// A field of others, or of the server, that is named so that nobody looks for it.
    #[must_use]
    pub const fn others(path: &'static str) -> Self {
        Self::new(path, Whose::Others)
    }

    /// The same, ours only if something is wanted at this path.
    #[must_use]
    pub const fn if_wanted(self, path: &'static str) -> Self {
        Self { if_wanted: Some(path), ..self }
    }

    /// The same, where a difference is not written: the child has to be replaced.
    #[must_use]
    pub const fn replaces(self) -> Self {
        Self { replaces: true, ..self }
    }

    /// The same, filled in by the server with this, which is JSON.
    #[must_use]
    pub const fn or(self, default: &'static str) -> Self {
        Self { filled_in: FilledIn::With(default), ..self }
    }

    /// The same, filled in by the server with what hangs on something else.
    #[must_use]
    pub const fn or_by(self, words: &'static str, by: fn(&Value, &Value) -> Option<Value>) -> Self {
        Self { filled_in: FilledIn::By(words, by), ..self }
    }

    /// The same, for a list that the server merges by a key of its own.
    #[must_use]
    pub const fn merged(self) -> Self {
        Self { is_merged: true, ..self }
    }

    /// The same, with fields of its items.
    #[must_use]
    pub const fn of(self, items: &'static [Self]) -> Self {
        Self { items, ..self }
    }
}

#[cfg(test)]
mod tests;
