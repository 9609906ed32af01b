//! Labels of every child and Pod that an operator creates.

use std::collections::BTreeMap;

/// Kind of the owner, in lower case.
pub const NAME: &str = "app.kubernetes.io/name";
/// Name of the owner.
pub const INSTANCE: &str = "app.kubernetes.io/instance";
/// Operator that manages the object; [`MANAGER`] for this crate's operators.
pub const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
/// The value of [`MANAGED_BY`], and the field manager of every write.
pub const MANAGER: &str = "windlass";
/// A set of labels.
pub type Labels = BTreeMap<String, String>;

/// Returns the labels of kind and name. They are part of every selector, so that two custom resources
/// never share Pods, whatever their kinds.
#[must_use]
pub fn identity(kind: &str, name: &str) -> Labels {
    Labels::from([(NAME.to_owned(), kind.to_ascii_lowercase()), (INSTANCE.to_owned(), name.to_owned())])
}

/// Returns the labels of every child and Pod of this crate's operators: [`identity`] plus [`MANAGED_BY`].
#[must_use]
pub fn common(kind: &str, name: &str) -> Labels {
    managed(MANAGER, kind, name)
}

/// Returns the same labels as [`common`], for the operator `manager`.
#[must_use]
pub fn managed(manager: &str, kind: &str, name: &str) -> Labels {
    let kind = kind.to_ascii_lowercase();
    of_child(manager, &kind, name).map(|(key, value)| (key.to_owned(), value.to_owned())).into()
}

/// Returns the same labels as [`managed`]; `kind` is in lower case.
pub(crate) fn of_child<'a>(manager: &'a str, kind: &'a str, name: &'a str) -> [(&'static str, &'a str); 3] {
    [(NAME, kind), (INSTANCE, name), (MANAGED_BY, manager)]
}

/// Returns whether `text` is a valid, non-empty label value.
pub(crate) fn is_value(text: &str) -> bool {
    let ends = [text.bytes().next(), text.bytes().last()];
    text.len() <= 63
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
        && ends.iter().all(|end| end.is_some_and(|byte| byte.is_ascii_alphanumeric()))
}

/// Returns the label selector under which the children of `manager` are listed and watched.
#[must_use]
pub fn selector(manager: &str) -> String {
    format!("{MANAGED_BY}={manager}")
}

/// Returns the label selector of all other objects. A child among these has lost its label.
#[must_use]
pub fn others_selector(manager: &str) -> String {
    format!("{MANAGED_BY}!={manager}")
}

/// Formats labels as a selector string, `a=b,c=d`, as a scale subresource shows it.
///
/// ```
/// use windlass::api::labels;
/// assert_eq!(
///     labels::to_selector(&labels::identity("Foo", "one")),
///     "app.kubernetes.io/instance=one,app.kubernetes.io/name=foo",
/// );
/// ```
#[must_use]
pub fn to_selector(labels: &Labels) -> String {
    let pairs: Vec<String> = labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
    pairs.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selectors_tell_managers_apart() {
        let labels = managed("greeter", "Greeting", "hello");
        assert_eq!(labels[MANAGED_BY], "greeter");
        assert_eq!(selector("greeter"), "app.kubernetes.io/managed-by=greeter");
        assert_eq!(others_selector("greeter"), "app.kubernetes.io/managed-by!=greeter");
    }

    #[test]
    fn manager_must_be_a_label_value() {
        for valid in ["a", "greeter", "A.b_c-9", &"x".repeat(63)] {
            assert!(is_value(valid), "{valid}");
        }
        for invalid in ["", "-a", "a.", "a b", "ü", "a/b", &"x".repeat(64)] {
            assert!(!is_value(invalid), "{invalid}");
        }
    }
}
