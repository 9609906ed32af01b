//! What a pass finds of the children of an object that is paused.
//!
//! # Guarantees
//! - While a pause keeps a spec from the children, Ready is judged by what was applied. (test: `a_new_name_waits_for_the_end_of_a_pause`)
//!
//! A child that only the new spec asks for is told as missing: nothing says that the former one did not ask for it.

use super::ReconcileContext;
use crate::cache::{Cached, Lister, Object};
use crate::controller::children::apply_outcome::ApplyOutcome;
use crate::controller::kinds::Wanted;
use crate::controller::reconcile::reconciler::CustomResource;

impl<K: CustomResource> ReconcileContext<'_, K> {
    /// What there is of a child, for an object that is paused. A spec that has not been applied may call it otherwise:
    /// then it is the one that the object has.
    pub(super) fn look<W: Wanted>(
        &self,
        wanted: &W,
        lister: &Lister<W::Observed>,
        cached: Option<&Cached<W::Observed>>,
    ) -> ApplyOutcome<W::Observed> {
        let is_applied = self.observes_this_spec();
        let found = self.tools.children.look(&self.owner, wanted, cached, is_applied);
        if is_applied
            || !matches!(
                found,
                ApplyOutcome::Paused { observed: None, .. } | ApplyOutcome::ResourceExists { .. }
            )
        {
            return found;
        }
        let all = lister.controlled_by(&self.owner.uid);
        let former = all.iter().filter_map(Cached::readable).find(|child| !child.is_deleting());
        match former {
            Some(former) => ApplyOutcome::Paused {
                observed: Some(W::Observed::clone(former)),
                differences: Vec::new(),
                is_applied,
            },
            None => found,
        }
    }
}
