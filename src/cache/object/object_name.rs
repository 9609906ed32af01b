//! The key of an object: its namespace and name.
//!
//! Mirrors client-go `tools/cache/object-names.go` (`ObjectName`) and `MetaNamespaceKeyFunc`.
//!
//! # Guarantees
//! - `Display` and `FromStr` are inverses of each other. (test: `a_name_and_its_text_round_trip`)
//! - Text with more than two parts is rejected. (test: `malformed_name_is_rejected`)
//!
//! # Differences from client-go
//! Keys are a type, never strings to be split. The text is shared, so a copy in the queue, the store
//! or an index costs a reference count and no memory.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;
use std::sync::Arc;

/// Namespace and name of an object; cluster-scoped objects have no namespace. The default is empty.
///
/// ```
/// use windlass::cache::ObjectName;
/// let key: ObjectName = "default/web".parse()?;
/// assert_eq!((key.namespace(), key.name()), (Some("default"), "web"));
/// assert_eq!(ObjectName::new(None, "node-1").to_string(), "node-1");
/// # Ok::<(), windlass::cache::object_name::ParseError>(())
/// ```
#[derive(Clone, Default, Eq)]
pub struct ObjectName {
    /// `namespace/name`, or `name`; neither holds a slash.
    text: Arc<str>,
}

/// Text that is neither `name` nor `namespace/name`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not an object name; write `name` or `namespace/name`")]
pub struct ParseError(String);

// === impl ObjectName ===

impl ObjectName {
    /// Creates a key; an empty namespace counts as none.
    #[must_use]
    pub fn new(namespace: Option<&str>, name: &str) -> Self {
        let text = match namespace {
            Some(namespace) if !namespace.is_empty() => format!("{namespace}/{name}").into(),
            _ => name.into(),
        };
        Self { text }
    }

    /// Returns the namespace; `None` for cluster-scoped objects.
    #[must_use]
    pub fn namespace(&self) -> Option<&str> {
        self.text.split_once('/').map(|(namespace, _)| namespace)
    }

    /// Returns the name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.text.split_once('/').map_or(&self.text, |(_, name)| name)
    }
}

/// Compares the text; clones of one key are equal by pointer.
impl PartialEq for ObjectName {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.text, &other.text) || self.text == other.text
    }
}

impl Hash for ObjectName {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.text.hash(state);
    }
}

/// Orders by namespace, then name; cluster-scoped objects come first.
impl Ord for ObjectName {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.namespace(), self.name()).cmp(&(other.namespace(), other.name()))
    }
}

impl PartialOrd for ObjectName {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl FromStr for ObjectName {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        match text.split('/').collect::<Vec<_>>()[..] {
            [name] if !name.is_empty() => Ok(Self::new(None, name)),
            [namespace, name] if !namespace.is_empty() && !name.is_empty() => {
                Ok(Self::new(Some(namespace), name))
            }
            _ => Err(ParseError(text.to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// client-go: `TestObjectNames`
    #[test]
    fn a_name_and_its_text_round_trip() {
        for (namespace, name, text) in [(None, "a", "a"), (Some("ns"), "a", "ns/a"), (Some(""), "a", "a")] {
            let key = ObjectName::new(namespace, name);
            assert_eq!(key.to_string(), text);
            assert_eq!(text.parse::<ObjectName>().unwrap(), key);
            assert_eq!(key.name(), name);
            assert_eq!(key.namespace(), namespace.filter(|n| !n.is_empty()));
        }
    }

    #[test]
    fn malformed_name_is_rejected() {
        for text in ["a/b/c", "", "/a", "a/"] {
            assert_eq!(text.parse::<ObjectName>(), Err(ParseError(text.to_owned())));
        }
    }

    #[test]
    fn names_sort_by_namespace_then_name() {
        let mut keys: Vec<ObjectName> =
            ["b/a", "a-x/a", "a/b", "a"].iter().map(|k| k.parse().unwrap()).collect();
        keys.sort();
        let text: Vec<String> = keys.iter().map(ToString::to_string).collect();
        assert_eq!(text, ["a", "a/b", "a-x/a", "b/a"]);
    }
}
