//! Observing the children of a paused object.
//!
//! # Guarantees
//! - While a pause holds back a new spec, Ready reflects the spec that was applied. (test: `rename_waits_until_the_pause_ends`)
//!
//! A child that only the new spec wants is reported as missing: the former spec is not known.

use super::ReconcileContext;
use crate::cache::{Cached, Lister, Object};
use crate::controller::children::apply_outcome::ApplyOutcome;
use crate::controller::kinds::Wanted;
use crate::controller::reconcile::custom_resource::CustomResource;

impl<K: CustomResource> ReconcileContext<'_, K> {
    /// Compares a child with `wanted` without writing. When the current spec is not applied and the wanted name has
    /// no child of ours, falls back to a child under another name.
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
