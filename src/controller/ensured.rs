//! What becomes of a child that is to be as wanted: the words between [`Children`](super::Children) and a pass.

use std::time::Duration;

use super::difference::Difference;
use crate::client::ServerStatus;

/// What became of a child that was to be as wanted.
#[derive(Clone, Debug)]
pub enum Ensured<O> {
    /// It is as wanted.
    Unchanged(O),
    /// It was not there.
    Created(O),
    /// It was different; these were the differences.
    Updated(O, Vec<Difference>),
    /// The server took the write and stored something else: an admission webhook changed it. To be tried
    /// again soon; when it comes back each time it ends as contended.
    Undone {
        /// The child as it is.
        observed: O,
        /// Whether it was not there before.
        is_new: bool,
        /// What was not as wanted before, and is now.
        repaired: Vec<Difference>,
    },
    /// It is ours and being deleted (then it is here), or of an earlier life of its owner: it will go by
    /// itself.
    Leaving(Option<O>),
    /// The owner is gone, being deleted, paused, or has another spec by now: nothing was done.
    OwnerMovedOn,
    /// It is not as wanted, and was left so: the owner is paused.
    Held {
        /// The child as it is, if it is there and ours.
        observed: Option<O>,
        /// What is not as wanted.
        differences: Vec<Difference>,
        /// Whether the present spec had reached the child already, so that somebody else has changed it since.
        is_applied: bool,
    },
    /// The name is somebody else's; to be looked at again after this time.
    ResourceExists {
        /// When to look again.
        again_in: Duration,
    },
    /// The server does not take it; to be tried again after this time.
    Refused {
        /// The child as it is, if it is there.
        observed: Option<O>,
        /// What the server said.
        status: ServerStatus,
        /// When to try again.
        again_in: Duration,
    },
    /// An error, which is tried again at once: nothing is known of the write.
    Failing {
        /// The child as the cache shows it, if it is there and ours.
        observed: Option<O>,
    },
    /// Somebody changes it back each time; to be tried again after this time.
    Contended {
        /// The child as it is.
        observed: O,
        /// What comes back.
        difference: String,
        /// What was not as wanted beside that, and is now.
        repaired: Vec<Difference>,
        /// When to try again.
        again_in: Duration,
    },
}

// === impl Ensured ===

impl<O> Ensured<O> {
    /// The child as it is, if it is there and ours.
    #[must_use]
    pub fn observed(&self) -> Option<&O> {
        match self {
            Self::Unchanged(observed)
            | Self::Created(observed)
            | Self::Updated(observed, _)
            | Self::Undone { observed, .. }
            | Self::Contended { observed, .. } => Some(observed),
            Self::Leaving(observed)
            | Self::Refused { observed, .. }
            | Self::Held { observed, .. }
            | Self::Failing { observed } => observed.as_ref(),
            Self::ResourceExists { .. } | Self::OwnerMovedOn => None,
        }
    }

    /// Whether it is there, ours, and as wanted.
    #[must_use]
    pub fn is_there(&self) -> bool {
        matches!(self, Self::Unchanged(_) | Self::Created(_) | Self::Updated(..))
    }

    /// Whether it was not there before, and is now.
    #[must_use]
    pub fn is_new(&self) -> bool {
        matches!(self, Self::Created(_) | Self::Undone { is_new: true, .. })
    }
}
