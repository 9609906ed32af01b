//! The health of a child: ready, on its way, or stuck, and why.
//!
//! Mirrors kstatus (`sigs.k8s.io/cli-utils`), whose three words are the conditions `Ready`, `Reconciling` and
//! `Stalled`. A pass reports the health of each child; the worst of them is the object's.
//!
//! # Guarantees
//! - The worst counts: stalled before reconciling before ready; what fails before what is on its way. (test: `the_worst_of_all_counts`)
//! - A refusal names the field. (test: `a_refusal_names_the_field`)

use std::time::Duration;

use crate::client::ServerStatus;

/// Reasons of the Ready condition.
pub mod reason {
    /// All is there and works.
    pub const AVAILABLE: &str = "Available";
    /// On its way.
    pub const PROGRESSING: &str = "Progressing";
    /// The server took a write and stored something else.
    pub const STORED_OTHERWISE: &str = "StoredOtherwise";
    /// A child of that name has to go first.
    pub const WAITING_FOR_DELETION: &str = "WaitingForDeletion";
    /// The name of a child is somebody else's.
    pub const RESOURCE_EXISTS: &str = "ResourceExists";
    /// The server refuses a child.
    pub const CHILD_REFUSED: &str = "ChildRefused";
    /// A child cannot be read or written now, for an error that may end by itself.
    pub const CHILD_FAILING: &str = "ChildFailing";
    /// Somebody changes a child back each time.
    pub const CONTENDED: &str = "Contended";
    /// The object itself does not decode.
    pub const UNREADABLE: &str = "Unreadable";
    /// The user asked for no writes.
    pub const PAUSED: &str = "Paused";
    /// The object is being deleted, and what it has made is being undone.
    pub const DELETING: &str = "Deleting";

    /// Those that say that the present spec has not reached the children.
    pub(crate) const NOT_APPLIED: [&str; 9] = [
        STORED_OTHERWISE,
        WAITING_FOR_DELETION,
        RESOURCE_EXISTS,
        CHILD_REFUSED,
        CHILD_FAILING,
        CONTENDED,
        UNREADABLE,
        PAUSED,
        DELETING,
    ];
}

/// How soon a name that somebody else has is looked at again.
pub const EXISTS_RETRY: Duration = Duration::from_secs(30);
/// How soon a write that the server stored otherwise is tried again.
pub const UNDONE_RETRY: Duration = Duration::from_secs(1);
/// How soon a refused child is tried again, unless the spec changes first.
pub const REFUSED_RETRY: Duration = Duration::from_secs(120);

/// Where an object is on its way, from best to worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum HealthPhase {
    /// As wanted.
    Ready,
    /// It gets there by itself.
    Reconciling,
    /// Only a person can help.
    Stalled,
}

/// What is found of one thing that an object wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChildHealth {
    /// How bad it is.
    pub phase: HealthPhase,
    /// Why, in one word.
    pub reason: &'static str,
    /// Why, for a person: what to do, if there is something to do.
    pub message: String,
    /// When to look again although nothing has changed.
    pub requeue_after: Option<Duration>,
    /// What stands in the way, by kind and name, where one obstacle is to be told from another. It is not shown.
    pub(in crate::controller) about: String,
}

// === impl ChildHealth ===

impl ChildHealth {
    /// All is there and works.
    #[must_use]
    pub fn ready(message: impl Into<String>) -> Self {
        Self::new(HealthPhase::Ready, reason::AVAILABLE, message.into())
    }

    /// It gets there by itself.
    #[must_use]
    pub fn reconciling(reason: &'static str, message: impl Into<String>) -> Self {
        Self::new(HealthPhase::Reconciling, reason, message.into())
    }

    /// Only a person can help.
    #[must_use]
    pub fn stalled(reason: &'static str, message: impl Into<String>) -> Self {
        Self::new(HealthPhase::Stalled, reason, message.into())
    }

    fn new(phase: HealthPhase, reason: &'static str, message: String) -> Self {
        Self { phase, reason, message, requeue_after: None, about: String::new() }
    }

    pub(in crate::controller) fn about(self, what: &str) -> Self {
        Self { about: what.to_owned(), ..self }
    }

    /// The same, looked at again after this time.
    #[must_use]
    pub fn requeue_after(self, time: Duration) -> Self {
        Self { requeue_after: Some(time), ..self }
    }

    /// What is said of something that the server refuses.
    #[must_use]
    pub fn refused(what: &str, status: &ServerStatus) -> Self {
        let causes: Vec<String> =
            status.causes.iter().map(|cause| format!("{}: {}", cause.field, cause.message)).collect();
        let cause = if causes.is_empty() { status.message.clone() } else { causes.join("; ") };
        Self::stalled(reason::CHILD_REFUSED, format!("The API server refuses {what}: {cause}"))
            .requeue_after(REFUSED_RETRY)
            .about(what)
    }

    /// What is said of something that cannot be looked after now; `why` in words of our own.
    #[must_use]
    pub fn failing(what: &str, why: &str) -> Self {
        Self::reconciling(
            reason::CHILD_FAILING,
            format!("{what} could not be looked after: {why}; trying again"),
        )
        .about(what)
    }

    /// How bad it is: what fails says more than what is on its way.
    fn rank(&self) -> (HealthPhase, bool) {
        (self.phase, self.reason == reason::CHILD_FAILING)
    }

    /// The worst of them, the first of equals; looked at again when the most impatient wants it. Nothing found is
    /// all well.
    #[must_use]
    pub fn worst(all: &[Self]) -> Self {
        let worst = all.iter().fold(None::<&Self>, |worst, next| match worst {
            Some(worst) if worst.rank() >= next.rank() => Some(worst),
            _ => Some(next),
        });
        let requeue_after = all.iter().filter_map(|health| health.requeue_after).min();
        let worst = worst.cloned().unwrap_or_else(|| Self::ready("Nothing is wanted"));
        Self { requeue_after, ..worst }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    #[test]
    fn the_worst_of_all_counts() {
        let ready = ChildHealth::ready("a");
        let on_its_way = ChildHealth::reconciling("B", "b").requeue_after(Duration::from_secs(30));
        let stuck = ChildHealth::stalled("C", "c").requeue_after(Duration::from_secs(120));
        let worst = ChildHealth::worst(&[
            ready.clone(),
            on_its_way.clone(),
            stuck.clone(),
            ChildHealth::stalled("D", "d"),
        ]);
        assert_eq!(worst, ChildHealth { requeue_after: Some(Duration::from_secs(30)), ..stuck.clone() });
        assert_eq!(ChildHealth::worst(&[ready.clone(), on_its_way.clone()]), on_its_way);
        let failing = ChildHealth::failing("Service \"web\"", "an error");
        assert_eq!(ChildHealth::worst(&[on_its_way.clone(), failing.clone()]).reason, "ChildFailing");
        assert_eq!(ChildHealth::worst(&[failing, stuck]).reason, "C");
        assert_eq!(ChildHealth::worst(&[ready.clone(), ChildHealth::ready("z")]), ready);
        assert_eq!(ChildHealth::worst(&[]).phase, HealthPhase::Ready);
    }

    #[test]
    fn a_refusal_names_the_field() {
        let cause = crate::client::Cause {
            field: "spec.replicas".to_owned(),
            message: "must be less than 5".to_owned(),
            ..Default::default()
        };
        let status = ServerStatus { causes: vec![cause], ..ServerStatus::default() };
        assert_eq!(
            ChildHealth::refused("Deployment \"web\"", &status).message,
            "The API server refuses Deployment \"web\": spec.replicas: must be less than 5"
        );
    }
}
