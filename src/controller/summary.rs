//! What is said of an object in a word: ready, on its way, or stuck; and the conditions that say so.
//!
//! Mirrors kstatus (`sigs.k8s.io/cli-utils`), whose three words are the conditions `Ready`, `Reconciling` and
//! `Stalled`. A pass finds one summary for each child; the worst of them is the object's.
//!
//! | what became of a child | phase | reason | looked at again |
//! |---|---|---|---|
//! | as wanted | as [`Wanted::progress`] says | `Available`, `Progressing` | when it changes |
//! | stored by the server otherwise than written | reconciling | `StoredOtherwise` | 1 s |
//! | being deleted, or of an earlier life | reconciling | `WaitingForDeletion` | 30 s |
//! | an error, such as 500, for 10 s or more | reconciling | `ChildFailing` | with the backoff of the key |
//! | not there, or changed since its spec was applied, and the object is paused | reconciling | `Paused` | when it changes |
//! | as a former spec wants it, and the object is paused | as [`Wanted::progress`] says | likewise | when it changes |
//! | somebody else's | stalled | `ResourceExists` | 30 s |
//! | refused by the server | stalled | `ChildRefused` | 2 min |
//! | changed back by somebody each time | stalled | `Contended` | 2 min |
//!
//! # Guarantees
//! - Each row is so. (test: `each_end_of_a_child_has_its_summary`)
//! - The worst counts: stalled before reconciling before ready; what fails before what is on its way. (test: `the_worst_of_all_counts`)
//! - A refusal names the field. (test: `a_refusal_names_the_field`)

use std::time::Duration;

use super::children::{Ensured, Wanted, describe};
use crate::cache::Object;
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
pub enum Phase {
    /// As wanted.
    Ready,
    /// It gets there by itself.
    Reconciling,
    /// Only a person can help.
    Stalled,
}

/// What is found of one thing that an object wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// How bad it is.
    pub phase: Phase,
    /// Why, in one word.
    pub reason: &'static str,
    /// Why, for a person: what to do, if there is something to do.
    pub message: String,
    /// When to look again although nothing has changed.
    pub look_again: Option<Duration>,
    /// What stands in the way, by kind and name, where one obstacle is to be told from another. It is not shown.
    pub(super) about: String,
}

// === impl Summary ===

impl Summary {
    /// All is there and works.
    #[must_use]
    pub fn ready(message: impl Into<String>) -> Self {
        Self::new(Phase::Ready, reason::AVAILABLE, message.into())
    }

    /// It gets there by itself.
    #[must_use]
    pub fn reconciling(reason: &'static str, message: impl Into<String>) -> Self {
        Self::new(Phase::Reconciling, reason, message.into())
    }

    /// Only a person can help.
    #[must_use]
    pub fn stalled(reason: &'static str, message: impl Into<String>) -> Self {
        Self::new(Phase::Stalled, reason, message.into())
    }

    fn new(phase: Phase, reason: &'static str, message: String) -> Self {
        Self { phase, reason, message, look_again: None, about: String::new() }
    }

    fn about(self, what: &str) -> Self {
        Self { about: what.to_owned(), ..self }
    }

    /// The same, looked at again after this time.
    #[must_use]
    pub fn again_in(self, time: Duration) -> Self {
        Self { look_again: Some(time), ..self }
    }

    /// What is said of something that the server refuses.
    #[must_use]
    pub fn refused(what: &str, status: &ServerStatus) -> Self {
        let causes: Vec<String> =
            status.causes.iter().map(|cause| format!("{}: {}", cause.field, cause.message)).collect();
        let cause = if causes.is_empty() { status.message.clone() } else { causes.join("; ") };
        Self::stalled(reason::CHILD_REFUSED, format!("The API server refuses {what}: {cause}"))
            .again_in(REFUSED_RETRY)
            .about(&format!("refuses {what}:"))
    }

    /// What is said of something that cannot be looked after now; `why` in words of our own.
    #[must_use]
    pub fn failing(what: &str, why: &str) -> Self {
        Self::reconciling(
            reason::CHILD_FAILING,
            format!("{what} could not be looked after: {why}; trying again"),
        )
    }

    /// What is said of a child of an owner of `owner_kind` after [`Children::ensure`](super::Children::ensure).
    #[must_use]
    pub fn of<W: Wanted>(owner_kind: &str, wanted: &W, ensured: &Ensured<W::Observed>) -> Self {
        let name = wanted.name();
        let child = format!("{} {name:?}", W::Observed::resource().kind);
        match ensured {
            Ensured::Unchanged(observed) | Ensured::Created(observed) | Ensured::Updated(observed, _) => {
                wanted.progress(observed)
            }
            Ensured::Undone { .. } => Self::reconciling(
                reason::STORED_OTHERWISE,
                format!("The API server stored {child} otherwise than written; trying again"),
            )
            .again_in(UNDONE_RETRY),
            Ensured::Failing { .. } => Self::failing(&child, "of an error"),
            Ensured::Leaving(_) | Ensured::OwnerMovedOn => Self::reconciling(
                reason::WAITING_FOR_DELETION,
                format!("{child} of an earlier time is being deleted; a new one follows"),
            )
            .again_in(EXISTS_RETRY),
            // Of a spec that has not been applied nothing is said: the child is as the former one wants it.
            Ensured::Held { observed: Some(observed), is_applied: false, .. } => wanted.progress(observed),
            Ensured::Held { observed: None, .. } => {
                Self::reconciling(reason::PAUSED, format!("{child} is not there, and this object is paused"))
            }
            Ensured::Held { differences, .. } => Self::reconciling(
                reason::PAUSED,
                format!("{child} is not as wanted ({}), and this object is paused", describe(differences)),
            ),
            Ensured::ResourceExists { again_in } => {
                Self::stalled(reason::RESOURCE_EXISTS, resource_exists(name, owner_kind))
                    .again_in(*again_in)
                    .about(&child)
            }
            Ensured::Refused { status, again_in, .. } => Self::refused(&child, status).again_in(*again_in),
            Ensured::Contended { difference, again_in, .. } => Self::stalled(
                reason::CONTENDED,
                format!(
                    "Somebody changes {child} back each time ({difference}): find out who, and stop one of us"
                ),
            )
            .again_in(*again_in)
            .about(&child),
        }
    }

    /// How bad it is: what fails says more than what is on its way.
    fn rank(&self) -> (Phase, bool) {
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
        let look_again = all.iter().filter_map(|summary| summary.look_again).min();
        let worst = worst.cloned().unwrap_or_else(|| Self::ready("Nothing is wanted"));
        Self { look_again, ..worst }
    }
}

/// sample-controller's message, for event and condition.
fn resource_exists(child: &str, owner_kind: &str) -> String {
    format!("Resource {child:?} already exists and is not managed by {owner_kind}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::controller::Wanted;
    use crate::controller::deployment::{ObservedDeployment, WantedDeployment};

    fn wanted() -> WantedDeployment {
        WantedDeployment { name: "web".to_owned(), replicas: 2, ..WantedDeployment::default() }
    }

    fn observed(replicas: i32, available: i32) -> ObservedDeployment {
        let mut live = json!({"metadata": {"name": "web", "generation": 1}});
        wanted().apply(&mut live);
        live["spec"]["replicas"] = json!(replicas);
        live["status"] = json!({"observedGeneration": 1, "replicas": replicas, "updatedReplicas": replicas,
            "availableReplicas": available});
        serde_json::from_value(live).unwrap()
    }

    #[track_caller]
    fn check(ensured: &Ensured<ObservedDeployment>, phase: Phase, reason: &str, again_in: u64) {
        let summary = Summary::of("Foo", &wanted(), ensured);
        let again_in = (again_in > 0).then(|| Duration::from_secs(again_in));
        assert_eq!((summary.phase, summary.reason, summary.look_again), (phase, reason, again_in));
    }

    #[test]
    fn each_end_of_a_child_has_its_summary() {
        use Phase::{Ready, Reconciling, Stalled};
        check(&Ensured::Unchanged(observed(2, 2)), Ready, "Available", 0);
        check(&Ensured::Updated(observed(2, 2), Vec::new()), Ready, "Available", 0);
        check(&Ensured::Unchanged(observed(2, 1)), Reconciling, "Progressing", 0);
        check(&Ensured::Created(ObservedDeployment::default()), Reconciling, "Progressing", 0);
        check(
            &Ensured::Undone { observed: observed(7, 7), is_new: true, repaired: Vec::new() },
            Reconciling,
            "StoredOtherwise",
            1,
        );
        check(&Ensured::Leaving(None), Reconciling, "WaitingForDeletion", 30);
        check(&Ensured::ResourceExists { again_in: EXISTS_RETRY }, Stalled, "ResourceExists", 30);
        let held = |is_applied| Ensured::Held {
            differences: wanted().differences(&observed(3, 3)),
            observed: Some(observed(3, 3)),
            is_applied,
        };
        check(&held(true), Reconciling, "Paused", 0);
        check(&held(false), Ready, "Available", 0);
        let message = Summary::of("Foo", &wanted(), &held(false)).message;
        assert_eq!(
            message, "3 of 3 replicas are available",
            "not counted against a spec that is not applied"
        );
        let none = Ensured::Held { observed: None, differences: Vec::new(), is_applied: false };
        check(&none, Reconciling, "Paused", 0);
        let refused = |again_in| Ensured::Refused {
            observed: Some(observed(1, 1)),
            status: ServerStatus::default(),
            again_in,
        };
        check(&refused(REFUSED_RETRY), Stalled, "ChildRefused", 120);
        check(&refused(Duration::from_secs(7)), Stalled, "ChildRefused", 7);
        let contended = Ensured::Contended {
            observed: observed(7, 7),
            repaired: Vec::new(),
            difference: "spec.replicas was 7, wanted 2".to_owned(),
            again_in: Duration::from_secs(77),
        };
        check(&contended, Stalled, "Contended", 77);
    }

    #[test]
    fn the_worst_of_all_counts() {
        let ready = Summary::ready("a");
        let on_its_way = Summary::reconciling("B", "b").again_in(Duration::from_secs(30));
        let stuck = Summary::stalled("C", "c").again_in(Duration::from_secs(120));
        let worst =
            Summary::worst(&[ready.clone(), on_its_way.clone(), stuck.clone(), Summary::stalled("D", "d")]);
        assert_eq!(worst, Summary { look_again: Some(Duration::from_secs(30)), ..stuck.clone() });
        assert_eq!(Summary::worst(&[ready.clone(), on_its_way.clone()]), on_its_way);
        let failing = Summary::failing("Service \"web\"", "an error");
        assert_eq!(Summary::worst(&[on_its_way.clone(), failing.clone()]).reason, "ChildFailing");
        assert_eq!(Summary::worst(&[failing, stuck]).reason, "C");
        assert_eq!(Summary::worst(&[ready.clone(), Summary::ready("z")]), ready);
        assert_eq!(Summary::worst(&[]).phase, Phase::Ready);
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
            Summary::refused("Deployment \"web\"", &status).message,
            "The API server refuses Deployment \"web\": spec.replicas: must be less than 5"
        );
    }
}
