//! What a pass does about children that are no longer wanted.
//!
//! # Guarantees
//! - What is not wanted any more goes after what replaces it is there, also when it lost our label. (test: `an_old_deployment_without_our_label_is_found_live`)
//! - While what replaces it is not there, it stays. (test: `while_the_new_name_is_taken_the_old_one_stays`)
//! - A deletion that the server refuses is found, not an error. (test: `a_refused_delete_of_the_old_deployment_shows_in_the_status`)

use std::collections::BTreeSet;

use super::{Halt, Turn};
use crate::cache::{Lister, Object};
use crate::client::Error;
use crate::controller::children::{Ensured, Wanted};
use crate::controller::deletions::Deletion;
use crate::controller::outcome::Outcome;
use crate::controller::reconciler::CustomResource;
use crate::controller::summary::UNDONE_RETRY;
use crate::record::EventType;

impl<K: CustomResource> Turn<'_, K> {
    /// Deletes the children of this kind that the object had under other names, now that `wanted` is there in
    /// their place. `why` ends the event's note.
    ///
    /// # Errors
    /// As [`ensure`](Self::ensure); also when it has to be looked at again: a status must not say that this spec is
    /// applied while a former child may be left.
    pub async fn replace_others<W: Wanted>(
        &mut self,
        wanted: &W,
        ensured: &Ensured<W::Observed>,
        lister: &Lister<W::Observed>,
        why: &str,
    ) -> Result<(), Halt> {
        if self.is_paused || !ensured.is_there() {
            return Ok(());
        }
        let is_new = matches!(ensured, Ensured::Created(_));
        let others = self.names_of_others(lister, Some(wanted.name()), is_new).await;
        for name in self.unless_failing::<W::Observed>(others)? {
            let deletion = self.tools.children.delete_replaced(&self.owner, wanted, &name).await;
            self.deleted::<W::Observed>(&name, deletion, why)?;
        }
        Ok(())
    }

    /// Deletes all children of this kind: none is wanted any more. `why` ends the event's note.
    ///
    /// # Errors
    /// As [`replace_others`](Self::replace_others).
    pub async fn delete_all<O: Object>(&mut self, lister: &Lister<O>, why: &str) -> Result<(), Halt> {
        if self.is_paused {
            return Ok(());
        }
        let all = self.names_of_others(lister, None, false).await;
        for name in self.unless_failing::<O>(all)? {
            let deletion = self.tools.children.delete_surplus::<O>(&self.owner, &name, None).await;
            self.deleted::<O>(&name, deletion, why)?;
        }
        Ok(())
    }

    /// The names of its children of a kind, but for one, without those that are on their way out. When the spec or
    /// the child is new also those that lost our label, which the cache does not show.
    async fn names_of_others<O: Object>(
        &self,
        lister: &Lister<O>,
        but: Option<&str>,
        is_new: bool,
    ) -> Result<BTreeSet<String>, Error> {
        let cached = lister.controlled_by(&self.owner.uid).into_iter();
        let staying = cached.filter(|child| !child.readable().is_some_and(|child| child.is_deleting()));
        let mut names: BTreeSet<String> =
            staying.map(|child| child.object_name().name().to_owned()).collect();
        if self.pass.reads_live() || self.owner.generation > 1 && (is_new || !self.is_applied) {
            let live: Vec<O> = self.tools.children.live_children(&self.owner).await?;
            let staying = live.into_iter().filter(|child| !child.is_deleting());
            names.extend(staying.map(|child| child.object_name().name().to_owned()));
        }
        if let Some(but) = but {
            names.remove(but);
        }
        Ok(names)
    }

    /// These names, or none when it is not known which there are.
    fn unless_failing<O: Object>(
        &mut self,
        names: Result<BTreeSet<String>, Error>,
    ) -> Result<BTreeSet<String>, Halt> {
        names.or_else(|error| {
            self.fails_at(&format!("Each former {}", O::resource().kind), error)?;
            Ok(BTreeSet::new())
        })
    }

    fn deleted<O: Object>(
        &mut self,
        name: &str,
        deletion: Result<Deletion, Error>,
        why: &str,
    ) -> Result<(), Halt> {
        let child = format!("{} {name:?}", O::resource().kind);
        let deletion = match deletion {
            Ok(deletion) => deletion,
            Err(error) => return self.fails_at(&child, error),
        };
        match deletion {
            Deletion::Deleted => {
                self.has_written = true;
                let note = format!("Deleted {child}: {why}");
                self.event(EventType::Normal, "ChildDeleted", "Delete", note);
            }
            Deletion::NothingToDo => {}
            Deletion::NotNow => return Err(Halt::Ends(Outcome::RequeueAfter(UNDONE_RETRY))),
            Deletion::Refused { status, again_in } => self.refused_deletion(&child, &status, again_in),
        }
        Ok(())
    }
}
