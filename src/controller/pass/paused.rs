//! Observing the children of a paused object.
//!
//! # Guarantees
//! - While a pause holds back a new spec, Ready reflects the spec that was applied. (test: `rename_waits_until_the_pause_ends`)
//!
//! A child that only the new spec wants is reported as missing: the former spec is not known.

use super::Pass;
use super::apply_outcome::ApplyOutcome;
use super::custom_resource::CustomResource;
use super::owner::Ownership;
use crate::cache::{Cached, Lister, Object};
use crate::controller::kinds::Wanted;
use crate::controller::kinds::health::EXISTS_RETRY;

impl<K: CustomResource> Pass<'_, K> {
    /// Compares a child with `wanted` without writing. When the current spec is not applied and the wanted name has
    /// no child of ours, falls back to a child under another name.
    pub(super) fn look<W: Wanted>(
        &self,
        wanted: &W,
        lister: &Lister<W::Observed>,
        cached: Option<&Cached<W::Observed>>,
    ) -> ApplyOutcome<W::Observed> {
        let is_applied = self.observes_this_spec();
        let found = self.compare(wanted, cached, is_applied);
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

    /// Returns what applying the child would find, from the cache alone and without writing.
    fn compare<W: Wanted>(
        &self,
        wanted: &W,
        cached: Option<&Cached<W::Observed>>,
        is_applied: bool,
    ) -> ApplyOutcome<W::Observed> {
        let Some(Cached::Readable(observed)) = cached else {
            return ApplyOutcome::Paused { observed: None, differences: Vec::new(), is_applied };
        };
        match self.owner.ownership(&**observed) {
            Ownership::Foreign => ApplyOutcome::ResourceExists { requeue_after: EXISTS_RETRY },
            Ownership::PreviousIncarnation => ApplyOutcome::Terminating(None),
            Ownership::Ours | Ownership::Released if observed.is_deleting() => {
                ApplyOutcome::Terminating(Some(W::Observed::clone(observed)))
            }
            Ownership::Ours | Ownership::Released => {
                let differences = self.owner.differences(wanted, observed);
                let observed = W::Observed::clone(observed);
                match differences.is_empty() {
                    true => ApplyOutcome::Unchanged(observed),
                    false => ApplyOutcome::Paused { observed: Some(observed), differences, is_applied },
                }
            }
        }
    }
}
