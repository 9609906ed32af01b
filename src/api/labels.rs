//! The labels that every child and Pod of ours carries.

use std::collections::BTreeMap;

/// Kind of the owner, in lower case.
pub const NAME: &str = "app.kubernetes.io/name";
/// Name of the owner.
pub const INSTANCE: &str = "app.kubernetes.io/instance";
/// Who manages the object: [`MANAGER`] for all of ours.
pub const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
/// The value of [`MANAGED_BY`], and the field manager of every write.
pub const MANAGER: &str = "windlass";
/// The label selector under which children are listed and watched.
pub const SELECTOR: &str = "app.kubernetes.io/managed-by=windlass";

/// The label selector of everything else: a child of ours among it has lost its label.
pub const OTHERS_SELECTOR: &str = "app.kubernetes.io/managed-by!=windlass";

/// A set of labels.
pub type Labels = BTreeMap<String, String>;

/// The labels of kind and name: part of every selector, so that two custom resources never share
/// Pods, whatever their kinds.
#[must_use]
pub fn identity(kind: &str, name: &str) -> Labels {
    Labels::from([(NAME.to_owned(), kind.to_ascii_lowercase()), (INSTANCE.to_owned(), name.to_owned())])
}

/// [`identity`] plus [`MANAGED_BY`]: the labels of every child and of every Pod.
#[must_use]
pub fn common(kind: &str, name: &str) -> Labels {
    let mut labels = identity(kind, name);
    labels.insert(MANAGED_BY.to_owned(), MANAGER.to_owned());
    labels
}

/// Writes labels as a selector string, `a=b,c=d`: what a scale subresource shows.
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
