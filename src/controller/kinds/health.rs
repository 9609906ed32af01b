//! The health of a child: ready, in progress or stuck, and why.
//!
//! Mirrors kstatus (`sigs.k8s.io/cli-utils`), whose three states are the conditions `Ready`, `Reconciling` and
//! `Stalled`. A sync reports the health of each child; the worst becomes that of the object.
//!
//! # Guarantees
//! - The worst wins: stalled before reconciling before ready, and failing before in progress.
//!   (test: `worst_health_wins`)
//! - The message of a refusal names the field. (test: `refusal_message_names_the_field`)

use std::time::Duration;

use crate::client::ServerStatus;

/// Reasons of the Ready condition.
pub mod reason {
    /// Everything exists and works.
    pub const AVAILABLE: &str = "Available";
    /// In progress.
    pub const PROGRESSING: &str = "Progressing";
    /// The server accepted a write but stored something else.
    pub const STORED_OTHERWISE: &str = "StoredOtherwise";
    /// A previous child of the same name has to be deleted first.
    pub const WAITING_FOR_DELETION: &str = "WaitingForDeletion";
    /// The name of a child is taken by an object that is not ours.
    pub const RESOURCE_EXISTS: &str = "ResourceExists";
    /// The server refuses a child.
    pub const CHILD_REFUSED: &str = "ChildRefused";
    /// A child cannot be read or written, because of an error that may be temporary.
    pub const CHILD_FAILING: &str = "ChildFailing";
    /// Another client keeps reverting a child.
    pub const CONTENDED: &str = "Contended";
    /// The object itself does not decode.
    pub const UNREADABLE: &str = "Unreadable";
    /// The user asked for no writes.
    pub const PAUSED: &str = "Paused";
    /// The object is being deleted, and its effects are being undone.
    pub const DELETING: &str = "Deleting";

    /// Reasons that mean that the current spec has not been applied to the children.
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

/// How soon a taken name is checked again.
pub const EXISTS_RETRY: Duration = Duration::from_secs(30);
/// How soon a write is retried when the server stored something else.
pub const UNDONE_RETRY: Duration = Duration::from_secs(1);
/// How soon a refused child is retried, unless the spec changes first.
pub const REFUSED_RETRY: Duration = Duration::from_secs(120);

/// The state of an object or child, from best to worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum HealthPhase {
    /// Everything is as wanted.
    Ready,
    /// Will become ready by itself.
    Reconciling,
    /// Needs a person.
    Stalled,
}

/// The health of a child, or of anything else that an object wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChildHealth {
    /// The state.
    pub phase: HealthPhase,
    /// The reason, in one word.
    pub reason: &'static str,
    /// The cause, for people, and what to do about it, if anything.
    pub message: String,
    /// When to check again even if nothing changes.
    pub requeue_after: Option<Duration>,
    /// The kind and name of the object that has the problem, to tell problems apart. Not shown.
    pub(in crate::controller) about: String,
    /// Whether only the `observedGeneration` of a child is behind. Not shown.
    pub(in crate::controller) lags: bool,
}

// === impl ChildHealth ===

impl ChildHealth {
    /// Everything exists and works.
    #[must_use]
    pub fn ready(message: impl Into<String>) -> Self {
        Self::new(HealthPhase::Ready, reason::AVAILABLE, message.into())
    }

    /// Will become ready by itself.
    #[must_use]
    pub fn reconciling(reason: &'static str, message: impl Into<String>) -> Self {
        Self::new(HealthPhase::Reconciling, reason, message.into())
    }

    /// Needs a person.
    #[must_use]
    pub fn stalled(reason: &'static str, message: impl Into<String>) -> Self {
        Self::new(HealthPhase::Stalled, reason, message.into())
    }

    fn new(phase: HealthPhase, reason: &'static str, message: String) -> Self {
        Self { phase, reason, message, requeue_after: None, about: String::new(), lags: false }
    }

    pub(in crate::controller) fn about(self, what: &str) -> Self {
        Self { about: what.to_owned(), ..self }
    }

    pub(in crate::controller) fn lagging(self) -> Self {
        Self { lags: true, ..self }
    }

    /// Sets when to check again.
    #[must_use]
    pub fn requeue_after(self, time: Duration) -> Self {
        Self { requeue_after: Some(time), ..self }
    }

    /// Returns the health of something that the server refuses.
    #[must_use]
    pub fn refused(what: &str, status: &ServerStatus) -> Self {
        let causes: Vec<String> =
            status.causes.iter().map(|cause| format!("{}: {}", cause.field, cause.message)).collect();
        let cause = if causes.is_empty() { status.message.clone() } else { causes.join("; ") };
        Self::stalled(reason::CHILD_REFUSED, format!("The API server refuses {what}: {cause}"))
            .requeue_after(REFUSED_RETRY)
            .about(what)
    }

    /// Appends a remedy to the message.
    #[must_use]
    pub fn with_remedy(mut self, remedy: &str) -> Self {
        self.message = format!("{}; {remedy}", self.message);
        self
    }

    /// Returns the health of something that cannot be reconciled now; `why` must be in our own words.
    #[must_use]
    pub fn failing(what: &str, why: &str) -> Self {
        Self::reconciling(reason::CHILD_FAILING, format!("Could not reconcile {what}: {why}; retrying"))
            .about(what)
    }

    /// Orders health by severity: failing is worse than in progress.
    fn rank(&self) -> (HealthPhase, bool) {
        (self.phase, self.reason == reason::CHILD_FAILING)
    }

    /// Returns the worst of these, the first if several are equal, with the earliest requeue of all. An empty slice is
    /// ready.
    #[must_use]
    pub fn worst(all: &[Self]) -> Self {
        let worst = all.iter().fold(None::<&Self>, |worst, next| match worst {
            Some(worst) if worst.rank() >= next.rank() => Some(worst),
            _ => Some(next),
        });
        let requeue_after = all.iter().filter_map(|health| health.requeue_after).min();
        let worst = worst.cloned().unwrap_or_else(|| Self::ready("No children are wanted"));
        Self { requeue_after, ..worst }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    #[test]
    fn worst_health_wins() {
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
    fn refusal_message_names_the_field() {
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
