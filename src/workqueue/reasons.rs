//! Why a key is processed: the reasons of all the adds that one pass answers.
//!
//! Mirrors nothing in client-go, where a worker cannot tell why it was woken.
//!
//! # Guarantees
//! - Adds that collapse leave all their reasons. (test: `adds_that_collapse_leave_all_their_reasons`)
//! - A reason that comes again is kept once; changes of the spec become one. (test: `equal_reasons_are_one`)
//! - No more than [`MAX`] are kept; the others are counted. (test: `what_is_too_much_is_counted`)
//! - Most reasons need no memory of their own, and are the same in every form. (test: `one_reason_is_the_same_in_every_form`)
//! - Of too many, children give way to everything else. (test: `children_make_room_for_what_may_matter_more`)

use std::borrow::Cow;
use std::fmt;
use std::sync::{Arc, LazyLock};

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
    /// All that [`as_label`](Self::as_label) says.
    pub const LABELS: [&'static str; 11] = [
        "initial", "created", "spec", "changed", "deleted", "child", "resync", "retry", "timer", "audit",
        "manual",
    ];

    /// One word for each kind of reason, as a metric's label has it.
    #[must_use]
    pub fn as_label(&self) -> &'static str {
        Self::LABELS[self.label_index()]
    }

    /// Where [`LABELS`](Self::LABELS) has it.
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
#[derive(Clone, Debug, Default)]
pub struct Reasons(Repr);

#[derive(Clone, Debug, Default)]
enum Repr {
    #[default]
    None,
    /// One that says nothing but its kind, as most are: it needs no memory.
    Plain(Plain),
    Kept(Box<Kept>),
}

/// More than one reason, or one with a name or numbers of its own.
#[derive(Clone, Debug)]
pub(super) struct Kept {
    first: Reason,
    others: Vec<Reason>,
    more: u32,
}

/// A reason in two bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Plain {
    Initial,
    Created,
    Changed,
    Deleted,
    Resync,
    Retry(u8),
    Timer,
    Audit,
    Manual,
}

impl Plain {
    #[inline]
    fn of(reason: &Reason) -> Option<Self> {
        Some(match reason {
            Reason::Initial => Self::Initial,
            Reason::Created => Self::Created,
            Reason::Changed => Self::Changed,
            Reason::Deleted => Self::Deleted,
            Reason::Resync => Self::Resync,
            Reason::Retry(attempt) => Self::Retry(u8::try_from(*attempt).ok()?),
            Reason::Timer => Self::Timer,
            Reason::Audit => Self::Audit,
            Reason::Manual => Self::Manual,
            Reason::SpecChanged { .. } | Reason::Child { .. } => return None,
        })
    }
}

/// All tries that a [`Plain::Retry`] may stand for.
static RETRIES: LazyLock<Vec<Reason>> =
    LazyLock::new(|| (0..=u8::MAX).map(|attempt| Reason::Retry(attempt.into())).collect());

impl Plain {
    fn as_reason(self) -> &'static Reason {
        match self {
            Self::Initial => &Reason::Initial,
            Self::Created => &Reason::Created,
            Self::Changed => &Reason::Changed,
            Self::Deleted => &Reason::Deleted,
            Self::Resync => &Reason::Resync,
            Self::Retry(attempt) => &RETRIES[usize::from(attempt)],
            Self::Timer => &Reason::Timer,
            Self::Audit => &Reason::Audit,
            Self::Manual => &Reason::Manual,
        }
    }
}

impl From<Plain> for Reason {
    fn from(plain: Plain) -> Self {
        match plain {
            Plain::Retry(attempt) => Self::Retry(attempt.into()),
            other => other.as_reason().clone(),
        }
    }
}

impl Reasons {
    /// Adds one.
    #[inline]
    pub fn add(&mut self, reason: Reason) {
        match &mut self.0 {
            Repr::None => *self = reason.into(),
            Repr::Plain(plain) => match (*plain, &reason) {
                (Plain::Retry(_), Reason::Retry(_)) => *self = reason.into(),
                (plain, reason) if Plain::of(reason) == Some(plain) => {}
                (plain, _) => {
                    self.0 =
                        Repr::Kept(Box::new(Kept { first: plain.into(), others: vec![reason], more: 0 }));
                }
            },
            Repr::Kept(kept) => kept.add(reason),
        }
    }

    /// Adds all of another's.
    pub fn merge(&mut self, other: Self) {
        if self.is_empty() {
            *self = other;
            return;
        }
        match other.0 {
            Repr::None => {}
            Repr::Plain(plain) => self.add(plain.into()),
            Repr::Kept(other) => {
                self.add(other.first);
                other.others.into_iter().for_each(|reason| self.add(reason));
                if let Repr::Kept(kept) = &mut self.0 {
                    kept.more = kept.more.saturating_add(other.more);
                }
            }
        }
    }

    /// Whether there is none.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        matches!(self.0, Repr::None)
    }

    /// Those that are kept.
    pub fn iter(&self) -> impl Iterator<Item = &Reason> {
        let (first, others) = match &self.0 {
            Repr::None => (None, &[][..]),
            Repr::Plain(plain) => (Some(plain.as_reason()), &[][..]),
            Repr::Kept(kept) => (Some(&kept.first), &kept.others[..]),
        };
        first.into_iter().chain(others)
    }

    /// Whether this is one of them.
    #[must_use]
    pub fn contains(&self, reason: &Reason) -> bool {
        self.iter().any(|known| known == reason)
    }

    /// How many there were beyond those.
    #[must_use]
    pub fn more(&self) -> u32 {
        match &self.0 {
            Repr::Kept(kept) => kept.more,
            Repr::None | Repr::Plain(_) => 0,
        }
    }
}

impl Kept {
    fn add(&mut self, reason: Reason) {
        for known in std::iter::once(&mut self.first).chain(&mut self.others) {
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
        if self.others.len() + 1 < MAX {
            self.others.push(reason);
            return;
        }
        self.more = self.more.saturating_add(1);
        // There may be any number of children; of everything else there are few, and each may matter.
        let is_child = |reason: &Reason| matches!(reason, Reason::Child { .. });
        if !is_child(&reason)
            && let Some(child) = self.others.iter_mut().rev().find(|known| is_child(known))
        {
            *child = reason;
        }
    }
}

impl PartialEq for Reasons {
    fn eq(&self, other: &Self) -> bool {
        self.more() == other.more() && self.iter().eq(other.iter())
    }
}

impl Eq for Reasons {}

impl From<Reason> for Reasons {
    #[inline]
    fn from(reason: Reason) -> Self {
        Self(match Plain::of(&reason) {
            Some(plain) => Repr::Plain(plain),
            None => Repr::Kept(Box::new(Kept { first: reason, others: Vec::new(), more: 0 })),
        })
    }
}

/// For what has very many: fewer bytes than [`Reasons`] needs by itself.
impl Reasons {
    /// In two parts, ten bytes, that lie between other fields; one of them is none at least.
    #[inline]
    pub(super) fn into_parts(self) -> (Option<Plain>, Option<Box<Kept>>) {
        match self.0 {
            Repr::None => (None, None),
            Repr::Plain(plain) => (Some(plain), None),
            Repr::Kept(kept) => (None, Some(kept)),
        }
    }

    #[inline]
    pub(super) fn from_parts(plain: Option<Plain>, kept: Option<Box<Kept>>) -> Self {
        Self(match (plain, kept) {
            (_, Some(kept)) => Repr::Kept(kept),
            (Some(plain), None) => Repr::Plain(plain),
            (None, None) => Repr::None,
        })
    }

    /// In a box, eight bytes, where most have none.
    pub(super) fn into_box(self) -> Option<Box<Kept>> {
        match self.0 {
            Repr::None => None,
            Repr::Plain(plain) => Some(Box::new(Kept { first: plain.into(), others: Vec::new(), more: 0 })),
            Repr::Kept(kept) => Some(kept),
        }
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

    #[test]
    fn one_reason_is_the_same_in_every_form() {
        let spec = Reason::SpecChanged { from: 1, to: 2 };
        for reason in
            [Reason::Initial, Reason::Retry(255), Reason::Retry(256), Reason::Manual, spec, child("a")]
        {
            let reasons = Reasons::from(reason.clone());
            let (plain, kept) = reasons.clone().into_parts();
            assert_eq!(Reasons::from_parts(plain, kept), reasons);
            assert_eq!(Reasons::from_parts(None, reasons.clone().into_box()), reasons);
            assert_eq!((reasons.contains(&reason), reasons.to_string()), (true, reason.to_string()));
        }
        let mut tries = Reasons::from(Reason::Retry(1));
        tries.add(Reason::Retry(300));
        assert_eq!(tries, Reason::Retry(300).into());
        tries.add(Reason::Retry(2));
        assert_eq!((&tries, tries.iter().count()), (&Reason::Retry(2).into(), 1));
        assert_eq!(Reasons::from_parts(None, Reasons::default().into_box()), Reasons::default());
    }
}
