//! The kinds of children: their wanted and observed state, and the differences between the two. Pure; sends nothing.
//!
//! | module | in one sentence |
//! |---|---|
//! | [`deployment`], [`service`], [`ingress`], [`pod`] | the wanted and the observed state of each kind |
//! | [`container`] | the same for a container, in a Pod or in a Pod template |
//! | [`observed`] | what the projections of all kinds have in common |
//! | [`difference`] | the differences between an observed and a wanted child |
//! | [`fields`] | the owner of each field of a child, as data |
//! | [`health`] | whether a child is ready, in progress or stuck, and why |

pub mod container;
pub mod deployment;
pub mod difference;
pub mod fields;
pub mod health;
pub mod ingress;
pub mod observed;
pub mod pod;
pub mod service;

use serde_json::Value;

use crate::cache::TypedObject;
use difference::Difference;
use fields::Field;
use health::ChildHealth;

/// The field of a Pod's spec by which it gets a token of its service account.
const AUTOMOUNT: &str = "automountServiceAccountToken";

/// A child as its owner wants it.
pub trait Wanted: Send + Sync {
    /// The projection of the child in the cache.
    type Observed: TypedObject + Clone;

    /// The owner of each field of the child.
    const FIELDS: &'static [Field];

    /// Returns the child's name, in the owner's namespace.
    fn name(&self) -> &str;
    /// Returns the fields of ours that differ in meaning from the wanted state.
    fn differences(&self, observed: &Self::Observed) -> Vec<Difference>;
    /// Writes our fields into a live or an empty object, and keeps everything else. The Pods of a new object mount no
    /// token of a service account; that is never compared, so that nothing restarts for it.
    fn write_into(&self, live: &mut Value);

    /// Whether writing these differences removes something that serves users: a replica, a port, a host.
    fn destroys(&self, _observed: &Self::Observed, _differences: &[Difference]) -> bool {
        false
    }

    /// Whether the patch for these differences has to be computed from the whole live object.
    fn patches_live(&self, _differences: &[Difference]) -> bool {
        false
    }

    /// Whether only a lagging `observedGeneration` keeps the child from being ready.
    fn only_lags(&self, _observed: &Self::Observed) -> bool {
        false
    }

    /// Adds to a patch what the table of fields cannot express.
    fn amend_patch(&self, _observed: &Self::Observed, _patch: &mut Value) {}

    /// Returns the health of a child that matches; a kind that reports nothing more is ready as soon as it exists.
    fn progress(&self, _observed: &Self::Observed) -> ChildHealth {
        ChildHealth::ready(format!("{} {:?} is up to date", Self::Observed::resource().kind, self.name()))
    }
}
