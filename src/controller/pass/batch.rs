//! Applies and deletes many children of one kind, in slow-start batches.
//!
//! # Guarantees
//! - When one child of a batch is refused and another fails, the sync still fails.
//!   (test: `an_error_beside_a_refusal_is_not_lost`)
//! - A new child is reported as created even if a webhook alters it.
//!   (test: `child_altered_by_webhook_is_reported_as_created`)

use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use super::apply::{Spec, child};
use super::apply_outcome::ApplyOutcome;
use super::custom_resource::CustomResource;
use super::delete::{ChildRef, Deletion};
use super::slow_start::slow_start_batch;
use super::{Pass, StopReason};
use crate::api::ApiResource;
use crate::cache::{Lister, ObjectName};
use crate::client::Error;
use crate::controller::kinds::Wanted;
use crate::controller::kinds::health::ChildHealth;
use crate::controller::run::outcome::Outcome;

/// How children of one kind fared.
#[derive(Debug)]
#[must_use = "the rest of a batch that was cut short needs another sync"]
pub struct Batch<T, E> {
    /// One result each; `None` if it was not attempted, or if its request failed.
    pub results: Vec<Option<T>>,
    /// Whether some were not attempted because the sync has lasted a second and other keys wait: requeue the key soon.
    pub is_cut_short: bool,
    /// The first error, which stops the sync.
    pub outcome: Result<(), E>,
}

impl<K: CustomResource> Pass<'_, K> {
    /// Applies children of one kind in slow-start batches. `was_there` tells which children existed before. The caller
    /// records the events of created children, even when the sync must stop.
    ///
    /// # Cancel safety
    /// As for [`apply`](Self::apply).
    pub async fn apply_each<W: Wanted>(
        &mut self,
        wanted: &[W],
        lister: &Lister<W::Observed>,
        was_there: impl Fn(usize) -> bool,
    ) -> Batch<ApplyOutcome<W::Observed>, StopReason> {
        let ended: Vec<Mutex<Option<ApplyOutcome<W::Observed>>>> =
            wanted.iter().map(|_| Mutex::new(None)).collect();
        let failures: Mutex<Vec<(usize, Error)>> = Mutex::default();
        let is_cut_short = AtomicBool::new(false);
        let pass = &*self;
        let one = |at: usize| {
            let (wanted, ended, failures, is_cut_short) = (&wanted[at], &ended[at], &failures, &is_cut_short);
            let spec = if was_there(at) { Spec::Known } else { Spec::New };
            async move {
                // The first in any case, so that a slow sync gets on.
                if at > 0 && pass.turn.is_over() {
                    is_cut_short.store(true, Ordering::Relaxed);
                    return Err(());
                }
                let outcome = if pass.is_current() {
                    let name = ObjectName::new(pass.owner.name.namespace(), wanted.name());
                    pass.apply_one(wanted, lister.get(&name).as_ref(), spec).await
                } else {
                    Ok(ApplyOutcome::OwnerChanged)
                };
                let outcome = outcome.map_err(|error| failures.lock().push((at, error)))?;
                // A taken name concerns one child; a refusal will likely hit the others, too.
                let goes_on = !matches!(outcome, ApplyOutcome::Refused { .. } | ApplyOutcome::OwnerChanged);
                *ended.lock() = Some(outcome);
                goes_on.then_some(()).ok_or(())
            }
        };
        slow_start_batch(wanted.len(), one).await;
        let ended: Vec<_> = ended.into_iter().map(Mutex::into_inner).collect();
        let mut stop = Ok(());
        for (at, error) in failures.into_inner() {
            stop = stop.and(self.fails_at(&child(&wanted[at]), error).map(drop));
        }
        for (wanted, outcome) in wanted.iter().zip(&ended) {
            match outcome {
                Some(ApplyOutcome::OwnerChanged) => {
                    stop = stop.and(Err(StopReason::Outcome(Outcome::Done)));
                }
                Some(outcome) => {
                    // The caller records created children.
                    if !outcome.was_created() {
                        self.record(wanted, outcome, Spec::Known);
                    }
                    if !outcome.is_as_wanted() {
                        self.reports.push(ChildHealth::of(&self.owner.resource.kind, wanted, outcome));
                    }
                }
                None => {}
            }
        }
        Batch { results: ended, is_cut_short: is_cut_short.into_inner(), outcome: stop }
    }

    /// Deletes children of one kind in slow-start batches, in the given order. For an object that is being deleted,
    /// deletes nothing if its children are orphaned.
    pub async fn delete_each(&self, resource: &ApiResource, all: &[ChildRef]) -> Batch<Deletion, Error> {
        let ended: Vec<Mutex<Option<Deletion>>> = all.iter().map(|_| Mutex::new(None)).collect();
        let failure: Mutex<Option<Error>> = Mutex::default();
        let is_cut_short = AtomicBool::new(false);
        let one = |at: usize| {
            let (child, ended, failure, is_cut_short) = (&all[at], &ended[at], &failure, &is_cut_short);
            async move {
                if at > 0 && self.turn.is_over() {
                    is_cut_short.store(true, Ordering::Relaxed);
                    return Err(());
                }
                let deletion = if !self.is_current() {
                    Ok(Deletion::NotNow)
                } else if self.object.is_deleting() {
                    self.delete_of_deleted(resource, child).await
                } else {
                    self.delete_surplus(resource, child).await
                };
                let deletion = deletion.map_err(|error| {
                    failure.lock().get_or_insert(error);
                })?;
                let goes_on = matches!(deletion, Deletion::Deleted | Deletion::NothingToDo);
                *ended.lock() = Some(deletion);
                goes_on.then_some(()).ok_or(())
            }
        };
        slow_start_batch(all.len(), one).await;
        Batch {
            results: ended.into_iter().map(Mutex::into_inner).collect(),
            is_cut_short: is_cut_short.into_inner(),
            outcome: failure.into_inner().map_or(Ok(()), Err),
        }
    }
}
