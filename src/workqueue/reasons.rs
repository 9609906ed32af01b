//! Why a key is processed: the reasons of all the adds that one pass answers.
//!
//! Mirrors nothing in client-go, where a worker cannot tell why it was woken.
//!
//! # Guarantees
//! - Adds that collapse leave all their reasons. (test: `adds_that_collapse_leave_all_their_reasons`)
//! - A reason that comes again is kept once; changes of the spec become one. (test: `equal_reasons_are_one`)
//! - No more than [`MAX`] are kept; the others are counted. (test: `what_is_too_much_is_counted`)
//! - Of too many, children give way to everything else. (test: `children_make_room_for_what_may_matter_more`)

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

/// How many reasons of one pass are kept.
pub const MAX: usize = 8;

/// Why a key was added.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// The object was there when the controller started.
    Initial,
    /// The object is new.
    Created,
    /// Its spec changed from one generation to another.
    SpecChanged {
        /// The generation before.
        from: i64,
        /// The generation now.
        to: i64,
    },
    /// Something else of it changed: status, labels, annotations.
    Changed,
    /// The object has gone, or its deletion was asked for.
    Deleted,
    /// One of its children changed, came or went.
    Child {
        /// The child's kind.
        kind: Cow<'static, str>,
        /// The child's name.
        name: Arc<str>,
    },
    /// A resync: nothing has changed.
    Resync,
    /// The n-th try after a failure.
    Retry(u32),
    /// Time has passed for which the last pass asked.
    Timer,
    /// It is checked against the server from time to time.
    Audit,
    /// Somebody asked for it.
    Manual,
}

impl Reason {
    /// One word for each kind of reason, as a metric's label has it.
    #[must_use]
    pub fn as_label(&self) -> &'static str {
        match self {
            Self::Initial => "initial",
            Self::Created => "created",
            Self::SpecChanged { .. } => "spec",
            Self::Changed => "changed",
            Self::Deleted => "deleted",
            Self::Child { .. } => "child",
            Self::Resync => "resync",
            Self::Retry(_) => "retry",
            Self::Timer => "timer",
            Self::Audit => "audit",
            Self::Manual => "manual",
        }
    }
}

impl Reason {
    /// All that [`as_label`](Self::as_label) says.
    pub const LABELS: [&'static str; 11] = [
        "initial", "created", "spec", "changed", "deleted", "child", "resync", "retry", "timer", "audit",
        "manual",
    ];

    /// Whether it may have cured the cause of a failure: a new spec or life, or somebody's word.
    #[must_use]
    pub fn may_cure(&self) -> bool {
        matches!(self, Self::Created | Self::SpecChanged { .. } | Self::Deleted | Self::Manual)
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

/// The reasons of the adds that one pass answers, in the order in which they came.
///
/// ```
/// use windlass::workqueue::{Reason, Reasons};
/// let mut reasons = Reasons::default();
/// reasons.add(Reason::SpecChanged { from: 3, to: 4 });
/// reasons.add(Reason::Child { kind: "Deployment".into(), name: "ns/web".into() });
/// reasons.add(Reason::SpecChanged { from: 4, to: 5 });
/// assert_eq!(reasons.to_string(), "spec changed (generation 3 to 5), Deployment ns/web changed");
/// ```
// One pointer: most keys wait without, or with few.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reasons(Option<Box<Kept>>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Kept {
    first: Reason,
    others: Vec<Reason>,
    more: u32,
}

impl Reasons {
    /// Adds one.
    pub fn add(&mut self, reason: Reason) {
        let Some(kept) = &mut self.0 else {
            *self = reason.into();
            return;
        };
        let known = std::iter::once(&mut kept.first).chain(&mut kept.others);
        for known in known {
            match (known, &reason) {
                (Reason::SpecChanged { to, .. }, Reason::SpecChanged { to: newer, .. }) => {
                    *to = *newer;
                    return;
                }
                (Reason::Retry(attempt), Reason::Retry(newer)) => {
                    *attempt = *newer;
                    return;
                }
                (known, reason) if *known == *reason => return,
                _ => {}
            }
        }
        if kept.others.len() + 1 < MAX {
            kept.others.push(reason);
            return;
        }
        kept.more = kept.more.saturating_add(1);
        // There may be any number of children; of everything else there are few, and each may matter.
        let is_child = |reason: &Reason| matches!(reason, Reason::Child { .. });
        if !is_child(&reason)
            && let Some(child) = kept.others.iter_mut().rev().find(|known| is_child(known))
        {
            *child = reason;
        }
    }

    /// Adds all of another's.
    pub fn merge(&mut self, other: Self) {
        if self.is_empty() {
            *self = other;
            return;
        }
        let Some(other) = other.0 else { return };
        self.add(other.first);
        for reason in other.others {
            self.add(reason);
        }
        if let Some(kept) = &mut self.0 {
            kept.more = kept.more.saturating_add(other.more);
        }
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Those that are kept.
    pub fn iter(&self) -> impl Iterator<Item = &Reason> {
        self.0.iter().flat_map(|kept| std::iter::once(&kept.first).chain(&kept.others))
    }

    /// Whether this is one of them.
    #[must_use]
    pub fn contains(&self, reason: &Reason) -> bool {
        self.iter().any(|known| known == reason)
    }

    /// How many there were beyond those.
    #[must_use]
    pub fn more(&self) -> u32 {
        self.0.as_ref().map_or(0, |kept| kept.more)
    }
}

impl From<Reason> for Reasons {
    fn from(reason: Reason) -> Self {
        Self(Some(Box::new(Kept { first: reason, others: Vec::new(), more: 0 })))
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
    fn equal_reasons_are_one() {
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
    fn children_make_room_for_what_may_matter_more() {
        let mut reasons = Reasons::default();
        (0..20).for_each(|at| reasons.add(child(&at.to_string())));
        reasons.add(Reason::Audit);
        reasons.add(Reason::Retry(1));
        reasons.add(Reason::Retry(2));
        assert!(reasons.contains(&Reason::Audit) && reasons.contains(&Reason::Retry(2)), "{reasons}");
        assert_eq!((reasons.iter().count(), reasons.more()), (MAX, 14));
    }

    #[test]
    fn what_is_too_much_is_counted() {
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
}
