//! Deleting children that are no longer wanted.
//!
//! # Guarantees
//! - A replaced child is deleted once its replacement exists, even if it lost our label. (test: `old_deployment_without_label_is_found_live`)
//! - A child stays while its replacement is missing. (test: `old_deployment_stays_while_new_name_is_taken`)
//! - A refused deletion is a condition, not an error. (test: `refused_delete_of_old_deployment_sets_condition`)

use super::apply_outcome::ApplyOutcome;
use super::custom_resource::CustomResource;
use super::delete::{ChildRef, Deletion};
use super::{Pass, StopReason};
use crate::api::ApiResource;
use crate::cache::{Lister, ObjectName, TypedObject};
use crate::client::Error;
use crate::controller::kinds::Wanted;
use crate::controller::kinds::health::UNDONE_RETRY;
use crate::controller::run::outcome::{Outcome, Trust};
use crate::record::EventType;

impl<K: CustomResource> Pass<'_, K> {
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
        if self.is_paused() || !applied.is_as_wanted() {
            return Ok(());
        }
        let is_new = matches!(applied, ApplyOutcome::Created(_));
        if is_new && self.owner.generation > 1 && !self.is_applied() {
            self.state().reported.rename_begun();
        }
        // The response to a write proves that the replacement exists.
        let is_proven =
            is_new || matches!(applied, ApplyOutcome::Updated(..)) || self.trust == Trust::Nothing;
        let others = self.others(lister, Some(wanted.name())).await;
        for child in self.unless_failing::<W::Observed>(others)? {
            let replacement = (wanted, is_proven);
            let deletion = self.delete_replaced(replacement, &child).await;
            self.after_deletion::<W::Observed>(&child.name, deletion, why)?;
        }
        if !self.is_failing() {
            self.state().reported.rename_ended();
        }
        Ok(())
    }

    /// Deletes the child of this name, if the cache knows it and it is the object's. `why` ends the note of the event.
    /// Nothing is deleted if the object is being deleted and orphans its children.
    ///
    /// # Errors
    /// As for [`prune_others`](Self::prune_others).
    pub async fn delete<O: TypedObject>(
        &mut self,
        name: &str,
        lister: &Lister<O>,
        why: &str,
    ) -> Result<(), StopReason> {
        let cached = lister.get(&ObjectName::new(self.owner.name.namespace(), name));
        let Some(child) = cached.filter(|child| !self.is_paused() && self.owner.owns(child)) else {
            return Ok(());
        };
        self.delete_and_tell::<O>(&ChildRef::of(&child), why).await
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
        if self.is_paused() {
            return Ok(());
        }
        let all = self.others(lister, None).await;
        for child in self.unless_failing::<O>(all)? {
            self.delete_and_tell::<O>(&child, why).await?;
        }
        Ok(())
    }

    async fn delete_and_tell<O: TypedObject>(
        &mut self,
        child: &ChildRef,
        why: &str,
    ) -> Result<(), StopReason> {
        let resource = ApiResource::of::<O>();
        let deletion = if self.object.is_deleting() {
            self.delete_of_deleted(&resource, child).await
        } else {
            self.delete_surplus(&resource, child).await
        };
        self.after_deletion::<O>(&child.name, deletion, why)
    }

    /// Returns the object's children of a kind, except `but` and those being deleted. Searches for children that lost
    /// our label while a rename is under way, and when the caches are not trusted.
    async fn others<O: TypedObject>(
        &self,
        lister: &Lister<O>,
        but: Option<&str>,
    ) -> Result<Vec<ChildRef>, Error> {
        let mut others: Vec<ChildRef> =
            lister.controlled_by(&self.owner.uid).iter().map(ChildRef::of).collect();
        let may_be_left = but.is_some() && self.state().reported.is_renaming();
        if self.trust == Trust::Nothing || may_be_left {
            let unlabelled = self.without_label(&ApiResource::of::<O>()).await?;
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
            self.fails_at(&format!("former {} objects", ApiResource::of::<O>().kind), error)?;
            Ok(Vec::new())
        })
    }

    fn after_deletion<O: TypedObject>(
        &mut self,
        name: &str,
        deletion: Result<Deletion, Error>,
        why: &str,
    ) -> Result<(), StopReason> {
        let child = format!("{} {name:?}", ApiResource::of::<O>().kind);
        let deletion = match deletion {
            Ok(deletion) => deletion,
            Err(error) => return self.fails_at(&child, error).map(drop),
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
