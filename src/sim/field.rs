//! Paths of fields, as in `spec.items[0].name`: they cost nothing until a message shows them.

use std::fmt;

/// A field of an object. The object itself has an empty path.
#[derive(Clone, Copy, Debug)]
pub(super) enum Field<'a> {
    Root,
    Member(&'a Field<'a>, &'a str),
    Item(&'a Field<'a>, usize),
}

// === impl Field ===

impl Field<'_> {
    pub(super) fn is_root(&self) -> bool {
        matches!(self, Self::Root)
    }
}

impl fmt::Display for Field<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root => Ok(()),
            Self::Member(Self::Root, name) => f.write_str(name),
            Self::Member(parent, name) => write!(f, "{parent}.{name}"),
            Self::Item(parent, at) => write!(f, "{parent}[{at}]"),
        }
    }
}

impl From<&Field<'_>> for String {
    fn from(field: &Field<'_>) -> Self {
        field.to_string()
    }
}
