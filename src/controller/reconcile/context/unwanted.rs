//! What a pass does about children that are no longer wanted.
//!
//! # Guarantees
//! - What is not wanted any more goes after what replaces it is there, also when it lost our label. (test: `an_old_deployment_without_our_label_is_found_live`)
//! - While what replaces it is not there, it stays. (test: `while_the_new_name_is_taken_the_old_one_stays`)
//! - A deletion that the server refuses is found, not an error. (test: `a_refused_delete_of_the_old_deployment_shows_in_the_status`)

use parking_lot::Mutex;

use super::{ReconcileContext, StopReason};
use crate::api::ApiResource;
use crate::cache::{Lister, Object};
use crate::client::Error;
use crate::controller::children::apply_outcome::ApplyOutcome;
use crate::controller::children::deletions::{ChildRef, Deletion};
use crate::controller::children::slow_start::slow_start_batch;
use crate::controller::kinds::Wanted;
use crate::controller::kinds::health::UNDONE_RETRY;
use crate::controller::reconcile::reconciler::CustomResource;
use crate::controller::run::outcome::Outcome;
use crate::record::EventType;

impl<K: CustomResource> ReconcileContext<'_, K> {
    /// Deletes the children of this kind that the object had under other names, now that `wanted` is there in
    /// their place. `why` ends the event's note.
    ///
    /// # Errors
    /// As [`apply`](Self::apply); also when it has to be looked at again: a status must not say that this spec is
    /// applied while a former child may be left.
    pub async fn prune_others<W: Wanted>(
        &mut self,
        wanted: &W,
        applied: &ApplyOutcome<W::Observed>,
        lister: &Lister<W::Observed>,
        why: &str,
    ) -> Result<(), StopReason> {
        if self.is_paused || !applied.is_as_wanted() {
            return Ok(());
        }
        let is_new = matches!(applied, ApplyOutcome::Created(_));
        let key = self.owner.name.clone();
        if is_new && self.owner.generation > 1 && !self.is_applied {
            self.tools.children.states.rename_begun(&key);
        }
        // The answer to a write is a live read of the replacement.
        let is_proven = is_new || matches!(applied, ApplyOutcome::Updated(..)) || self.request.reads_live();
        let others = self.others(lister, Some(wanted.name())).await;
        for child in self.unless_failing::<W::Observed>(others)? {
            let replacement = (wanted, is_proven);
            let deletion = self.tools.children.delete_replaced(&self.owner, replacement, &child).await;
            self.deleted::<W::Observed>(&child.name, deletion, why)?;
        }
        if !self.is_failing {
            self.tools.children.states.rename_ended(&key);
        }
        Ok(())
    }

    /// Deletes all children of this kind: none is wanted any more. `why` ends the event's note.
    ///
    /// # Errors
    /// As [`prune_others`](Self::prune_others).
    pub async fn prune_all<O: Object>(&mut self, lister: &Lister<O>, why: &str) -> Result<(), StopReason> {
        if self.is_paused {
            return Ok(());
        }
        let all = self.others(lister, None).await;
        for child in self.unless_failing::<O>(all)? {
            let deletion = self.tools.children.delete_surplus(&self.owner, &O::resource(), &child).await;
            self.deleted::<O>(&child.name, deletion, why)?;
        }
        Ok(())
    }

    /// Deletes children of one kind in slow-start batches, in their order; one result each, `None` if not attempted.
    /// For an object that is being deleted only if its children are not orphaned.
    ///
    /// # Errors
    /// The first error; what was deleted before stands in the results.
    pub async fn delete_each(
        &self,
        resource: &ApiResource,
        all: &[ChildRef],
    ) -> (Vec<Option<Deletion>>, Result<(), Error>) {
        let ended: Vec<Mutex<Option<Deletion>>> = all.iter().map(|_| Mutex::new(None)).collect();
        let failure: Mutex<Option<Error>> = Mutex::default();
        let (children, owner) = (&self.tools.children, &self.owner);
        let one = |at: usize| {
            let (child, ended, failure) = (&all[at], &ended[at], &failure);
            async move {
                let deletion = if !self.is_current() {
                    Ok(Deletion::NotNow)
                } else if self.object.is_deleting() {
                    children.delete_of_deleted(owner, resource, child).await
                } else {
                    children.delete_surplus(owner, resource, child).await
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
        let ended = ended.into_iter().map(Mutex::into_inner).collect();
        (ended, failure.into_inner().map_or(Ok(()), Err))
    }

    /// Its children of a kind, but for one, without those that are on their way out. Those that lost our label are looked
    /// for when they may have been left by a rename: by this pass, or by a process that was cut off in the middle of it.
    async fn others<O: Object>(&self, lister: &Lister<O>, but: Option<&str>) -> Result<Vec<ChildRef>, Error> {
        let mut others: Vec<ChildRef> =
            lister.controlled_by(&self.owner.uid).iter().map(ChildRef::of).collect();
        let was_cut_off = self.request.is_first() && self.owner.generation > 1 && !self.is_applied;
        let may_be_left = was_cut_off || self.tools.children.states.is_renaming(&self.owner.name);
        if self.request.reads_live() || but.is_some() && may_be_left {
            let resource = O::resource();
            let unlabelled = self.tools.children.without_label(&self.owner, &resource).await?;
            others.retain(|known| !unlabelled.iter().any(|one| one.name == known.name));
            others.extend(unlabelled);
        }
        others.retain(|child| !child.is_deleting && but != Some(child.name.as_str()));
        others.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(others)
    }

    /// These children, or none when it is not known which there are.
    fn unless_failing<O: Object>(
        &mut self,
        children: Result<Vec<ChildRef>, Error>,
    ) -> Result<Vec<ChildRef>, StopReason> {
        children.or_else(|error| {
            self.fails_at(&format!("Each former {}", O::resource().kind), error)?;
            Ok(Vec::new())
        })
    }

    fn deleted<O: Object>(
        &mut self,
        name: &str,
        deletion: Result<Deletion, Error>,
        why: &str,
    ) -> Result<(), StopReason> {
        let child = format!("{} {name:?}", O::resource().kind);
        let deletion = match deletion {
            Ok(deletion) => deletion,
            Err(error) => return self.fails_at(&child, error),
        };
        match deletion {
            Deletion::Deleted => {
                self.record_created();
                let note = format!("Deleted {child}: {why}");
                self.event(EventType::Normal, "ChildDeleted", "Delete", note);
            }
            Deletion::NothingToDo => {}
            Deletion::NotNow => return Err(StopReason::Outcome(Outcome::RequeueAfter(UNDONE_RETRY))),
            Deletion::Refused { status, requeue_after } => {
                self.refused_deletion(&child, &status, requeue_after)
            }
        }
        Ok(())
    }
}
