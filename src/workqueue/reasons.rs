//! Why a key is processed: the reasons of all adds that were merged into one pass.
//!
//! client-go has no counterpart: its workers do not know why a key was added.
//! Flow: event handlers -> **reasons** -> queue -> workers -> logs, metrics, sync handler
//!
//! # Guarantees
//! - Merged adds keep all their reasons. (test: `collapsed_adds_keep_all_reasons`)
//! - Equal reasons are kept once; spec changes are combined, and a later retry replaces an earlier one. (test: `equal_reasons_are_merged`, `a_later_retry_replaces_an_earlier_one`)
//! - At most [`MAX`] reasons are kept; the others are counted. (test: `reasons_beyond_max_are_counted`)
//! - Beyond [`MAX`], other reasons replace those of children. (test: `children_make_room_for_other_reasons`)

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

/// Maximum number of reasons kept for one pass.
pub const MAX: usize = 8;

/// Why a key was added.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// The object existed when the controller started.
    Initial,
    /// The object is new.
    Created,
    /// The object's spec changed from one generation to another.
    SpecChanged {
        /// The generation before.
        from: i64,
        /// The generation now.
        to: i64,
    },
    /// The object changed outside its spec: status, labels, annotations.
    Changed,
    /// The object is gone, or its deletion was requested.
    Deleted,
    /// A child of the object was created, changed or deleted.
    Child {
        /// The child's kind.
        kind: Cow<'static, str>,
        /// The child's name.
        name: Arc<str>,
    },
    /// A resync, without a change.
    Resync,
    /// The n-th retry after a failure.
    Retry(u32),
    /// The delay requested by the last pass is over.
    Timer,
    /// A periodic comparison of cache and server.
    Audit,
    /// A user asked for a pass.
    Manual,
}

impl Reason {
    /// All values of [`as_label`](Self::as_label).
    pub const LABELS: [&'static str; 11] = [
        "initial", "created", "spec", "changed", "deleted", "child", "resync", "retry", "timer", "audit",
        "manual",
    ];

    /// Returns one word for the kind of reason, for a metric's label.
    #[must_use]
    pub fn as_label(&self) -> &'static str {
        Self::LABELS[self.label_index()]
    }

    /// Returns the index of the label in [`LABELS`](Self::LABELS).
    #[must_use]
    pub fn label_index(&self) -> usize {
        match self {
            Self::Initial => 0,
            Self::Created => 1,
            Self::SpecChanged { .. } => 2,
            Self::Changed => 3,
            Self::Deleted => 4,
            Self::Child { .. } => 5,
            Self::Resync => 6,
            Self::Retry(_) => 7,
            Self::Timer => 8,
            Self::Audit => 9,
            Self::Manual => 10,
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SpecChanged { from, to } => write!(f, "spec changed (generation {from} to {to})"),
            Self::Child { kind, name } => write!(f, "{kind} {name} changed"),
            Self::Retry(attempt) => write!(f, "retry {attempt}"),
            other => f.write_str(other.as_label()),
        }
    }
}

/// The reasons of all adds that were merged into one pass, in order of arrival.
///
/// ```
/// use windlass::workqueue::{Reason, Reasons};
/// let mut reasons = Reasons::default();
/// reasons.add(Reason::SpecChanged { from: 3, to: 4 });
/// reasons.add(Reason::Child { kind: "Deployment".into(), name: "ns/web".into() });
/// reasons.add(Reason::SpecChanged { from: 4, to: 5 });
/// assert_eq!(reasons.to_string(), "spec changed (generation 3 to 5), Deployment ns/web changed");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reasons(Repr);

/// Most passes have one reason, which needs no allocation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum Repr {
    #[default]
    None,
    One(Reason),
    Many(Box<Many>),
}

/// Two reasons or more.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Many {
    kept: Vec<Reason>,
    more: u32,
}

impl Reasons {
    /// Adds a reason.
    pub fn add(&mut self, reason: Reason) {
        match &mut self.0 {
            Repr::None => *self = reason.into(),
            Repr::One(known) => {
                if !known.absorb(&reason) {
                    self.0 = Repr::Many(Box::new(Many { kept: vec![known.clone(), reason], more: 0 }));
                }
            }
            Repr::Many(many) => many.add(reason),
        }
    }

    /// Adds all reasons of `other`.
    pub fn merge(&mut self, other: Self) {
        match other.0 {
            Repr::None => {}
            other if self.is_empty() => self.0 = other,
            Repr::One(reason) => self.add(reason),
            Repr::Many(other) => {
                other.kept.into_iter().for_each(|reason| self.add(reason));
                if let Repr::Many(many) = &mut self.0 {
                    many.more = many.more.saturating_add(other.more);
                }
            }
        }
    }

    /// Returns whether there is no reason.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        matches!(self.0, Repr::None)
    }

    /// Returns the reasons that are kept.
    pub fn iter(&self) -> impl Iterator<Item = &Reason> {
        let kept = match &self.0 {
            Repr::None => &[],
            Repr::One(reason) => std::slice::from_ref(reason),
            Repr::Many(many) => &many.kept[..],
        };
        kept.iter()
    }

    /// Returns whether this reason is kept.
    #[must_use]
    pub fn contains(&self, reason: &Reason) -> bool {
        self.iter().any(|known| known == reason)
    }

    /// Returns the number of reasons beyond those that are kept.
    #[must_use]
    pub fn more(&self) -> u32 {
        match &self.0 {
            Repr::None | Repr::One(_) => 0,
            Repr::Many(many) => many.more,
        }
    }
}

impl Reason {
    /// Merges a newer reason into this one if possible: combines spec changes, keeps the last retry. Returns whether it
    /// could.
    fn absorb(&mut self, newer: &Self) -> bool {
        match (self, newer) {
            (Self::SpecChanged { to, .. }, Self::SpecChanged { to: newer, .. }) => *to = *newer,
            (Self::Retry(attempt), Self::Retry(newer)) => *attempt = *newer,
            (known, newer) => return *known == *newer,
        }
        true
    }
}

impl Many {
    fn add(&mut self, reason: Reason) {
        if self.kept.iter_mut().any(|known| known.absorb(&reason)) {
            return;
        }
        if self.kept.len() < MAX {
            self.kept.push(reason);
            return;
        }
        self.more = self.more.saturating_add(1);
        // There may be any number of children; other reasons are few, and each may matter.
        let is_child = |reason: &Reason| matches!(reason, Reason::Child { .. });
        if !is_child(&reason)
            && let Some(child) = self.kept.iter_mut().rev().find(|known| is_child(known))
        {
            *child = reason;
        }
    }
}

impl From<Reason> for Reasons {
    fn from(reason: Reason) -> Self {
        Self(Repr::One(reason))
    }
}

impl fmt::Display for Reasons {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, reason) in self.iter().enumerate() {
            write!(f, "{}{reason}", if at == 0 { "" } else { ", " })?;
        }
        match self.more() {
            0 => Ok(()),
            more => write!(f, ", and {more} more"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn child(name: &str) -> Reason {
        Reason::Child { kind: "Pod".into(), name: name.into() }
    }

    #[test]
    fn equal_reasons_are_merged() {
        let mut reasons = Reasons::from(child("a"));
        for reason in [child("a"), Reason::SpecChanged { from: 1, to: 2 }, child("b"), Reason::Resync] {
            reasons.add(reason);
        }
        let mut later = Reasons::from(Reason::SpecChanged { from: 2, to: 7 });
        later.add(child("b"));
        reasons.merge(later);
        assert_eq!(
            reasons.to_string(),
            "Pod a changed, spec changed (generation 1 to 7), Pod b changed, resync"
        );
    }

    #[test]
    fn children_make_room_for_other_reasons() {
        let mut reasons = Reasons::default();
        (0..20).for_each(|at| reasons.add(child(&at.to_string())));
        reasons.add(Reason::Audit);
        reasons.add(Reason::Retry(1));
        reasons.add(Reason::Retry(2));
        assert!(reasons.contains(&Reason::Audit) && reasons.contains(&Reason::Retry(2)), "{reasons}");
        assert_eq!((reasons.iter().count(), reasons.more()), (MAX, 14));
    }

    #[test]
    fn reasons_beyond_max_are_counted() {
        let mut reasons = Reasons::default();
        for at in 0..MAX + 3 {
            reasons.add(child(&at.to_string()));
        }
        assert_eq!((reasons.iter().count(), reasons.more()), (MAX, 3));
        assert!(reasons.to_string().ends_with("Pod 7 changed, and 3 more"));
        let mut all = Reasons::from(Reason::Manual);
        all.merge(reasons);
        assert_eq!((all.iter().count(), all.more()), (MAX, 4));
    }

    #[test]
    fn a_later_retry_replaces_an_earlier_one() {
        let mut reasons = Reasons::from(Reason::Retry(1));
        reasons.add(Reason::Retry(300));
        assert_eq!(reasons, Reason::Retry(300).into());
        assert!(reasons.contains(&Reason::Retry(300)) && !reasons.contains(&Reason::Retry(1)));
    }
}
