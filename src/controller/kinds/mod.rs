//! What a kind of child is: wanted, observed, and what differs between the two. Pure; it sends nothing.
//!
//! | module | in one sentence |
//! |---|---|
//! | [`deployment`], [`service`], [`ingress`], [`pod`] | what is wanted and what is observed of each kind |
//! | [`container`] | the same of a container, in a Pod or in a template |
//! | [`observed`] | what the projections of all kinds have in common |
//! | [`difference`] | what differs between a child as it is and as it is wanted |
//! | [`fields`] | whose each field of a child is, as data |
//! | [`quantity`] | amounts such as `500m`, compared by value |
//! | [`health`] | ready, on its way or stuck, and why |

pub mod container;
pub mod deployment;
pub mod difference;
pub mod fields;
pub mod health;
pub mod ingress;
pub mod observed;
pub mod pod;
pub mod quantity;
pub mod service;

use serde_json::Value;

use crate::cache::Object;
use difference::Difference;
use fields::Field;
use health::ChildHealth;

/// A child as its owner wants it.
pub trait Wanted: Send + Sync {
    /// The projection of such a child in the cache.
    type Observed: Object + Clone;

    /// Whose each field of such a child is.
    const FIELDS: &'static [Field];

    /// Its name, in the owner's namespace.
    fn name(&self) -> &str;
    /// The fields of ours that are not as wanted, by meaning.
    fn differences(&self, observed: &Self::Observed) -> Vec<Difference>;
    /// Writes the fields of ours into a live object, or into an empty one; the rest stays.
    fn write_into(&self, live: &mut Value);

    /// Whether to write these differences takes something away that serves users: a replica, a port, a host.
    fn destroys(&self, _observed: &Self::Observed, _differences: &[Difference]) -> bool {
        false
    }

    /// Whether the patch that writes these differences has to be made from the whole live object.
    fn patches_live(&self, _differences: &[Difference]) -> bool {
        false
    }

    /// Whether a child would be ready, were its `observedGeneration` not behind.
    fn only_lags(&self, _observed: &Self::Observed) -> bool {
        false
    }

    /// Adds to a patch what no field of the table tells.
    fn amend_patch(&self, _observed: &Self::Observed, _patch: &mut Value) {}

    /// How far a child has come that is as wanted: one that is there is ready, if its kind knows nothing more.
    fn progress(&self, _observed: &Self::Observed) -> ChildHealth {
        ChildHealth::ready(format!("{} {:?} is as wanted", Self::Observed::resource().kind, self.name()))
    }
}
