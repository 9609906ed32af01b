//! Deleting children that are no longer wanted.
//!
//! # Guarantees
//! - A replaced child is deleted once its replacement exists, even if it lost our label. (test: `old_deployment_without_label_is_found_live`)
//! - A child stays while its replacement is missing. (test: `old_deployment_stays_while_new_name_is_taken`)
//! - A refused deletion is a condition, not an error. (test: `refused_delete_of_old_deployment_sets_condition`)

use parking_lot::Mutex;

use super::{ReconcileContext, StopReason};
use crate::api::ApiResource;
use crate::cache::{Lister, Object, TypedObject};
use crate::client::Error;
use crate::controller::children::apply_outcome::ApplyOutcome;
use crate::controller::children::deletions::{ChildRef, Deletion};
use crate::controller::children::slow_start::slow_start_batch;
use crate::controller::kinds::Wanted;
use crate::controller::kinds::health::UNDONE_RETRY;
use crate::controller::reconcile::custom_resource::CustomResource;
use crate::controller::run::outcome::Outcome;
use crate::record::EventType;

impl<K: CustomResource> ReconcileContext<'_, K> {
    /// Deletes the object's children of this kind under other names, once `wanted` has replaced them. `why` ends the
    /// note of the event.
    ///
    /// # Errors
    /// As for [`apply`](Self::apply); also when a deletion must wait, because the status must not report the spec as
    /// applied while a former child may remain.
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
        // The response to a write proves that the replacement exists.
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

    /// Deletes all children of this kind. `why` ends the note of the event.
    ///
    /// # Errors
    /// As for [`prune_others`](Self::prune_others).
    pub async fn prune_all<O: TypedObject>(
        &mut self,
        lister: &Lister<O>,
        why: &str,
    ) -> Result<(), StopReason> {
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

    /// Deletes children of one kind in slow-start batches, in the given order; one result each, `None` if not
    /// attempted, as for [`apply_each`](Self::apply_each). For an object that is being deleted, deletes nothing if its children are orphaned.
    ///
    /// # Errors
    /// The first error; the results still list what was deleted.
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
                if at > 0 && self.leaves_the_rest() {
                    return Err(());
                }
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

    /// Returns the object's children of a kind, except `but` and those being deleted. Searches for children that lost
    /// our label when a rename, by this or a former process, may have left them behind, and in passes with live
    /// reads.
    async fn others<O: TypedObject>(
        &self,
        lister: &Lister<O>,
        but: Option<&str>,
    ) -> Result<Vec<ChildRef>, Error> {
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
        let is_other = |child: &ChildRef| but != Some(child.name.as_str());
        others.retain(|child| child.is_controlled && !child.is_deleting && is_other(child));
        others.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(others)
    }

    /// Returns the children, or reports the error and returns none.
    fn unless_failing<O: TypedObject>(
        &mut self,
        children: Result<Vec<ChildRef>, Error>,
    ) -> Result<Vec<ChildRef>, StopReason> {
        children.or_else(|error| {
            self.fails_at(&format!("former {} objects", O::resource().kind), error)?;
            Ok(Vec::new())
        })
    }

    fn deleted<O: TypedObject>(
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
