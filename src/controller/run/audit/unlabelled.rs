//! Finds children that lost our label: no list and no watch with the informer's selector shows them.
//!
//! Nothing is held but a page. The list grows with other people's objects of the kind, not with ours, so it is made
//! seldom.

use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::Shared;
use crate::api::{ApiResource, labels};
use crate::cache::object::OwnerRef;
use crate::client::Error;

#[derive(Deserialize)]
struct Item {
    metadata: Metadata,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    namespace: Option<String>,
    #[serde(default, deserialize_with = "or_none")]
    owner_references: Vec<OwnerRef>,
}

/// References that do not decode are none of ours: they must not hide the other objects.
fn or_none<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<OwnerRef>, D::Error> {
    Ok(Vec::deserialize(Value::deserialize(from)?).unwrap_or_default())
}

/// Queues the owners of all objects of this kind that lack our label and belong to a cached custom resource.
///
/// # Errors
/// [`Error`]; some owners may have been queued.
pub(super) async fn queue_owners(shared: &Shared, resource: &ApiResource) -> Result<(), Error> {
    let selector = format!("{}!={}", labels::MANAGED_BY, labels::MANAGER);
    let mut children = 0_u64;
    let each = |Item { metadata: Metadata { namespace, owner_references } }: Item| {
        let mut references = owner_references.iter().map(OwnerRef::as_reference);
        if references.any(|reference| shared.owners.queue_owner(namespace.as_deref(), reference)) {
            children += 1;
        }
    };
    shared.client.each_metadata(resource, shared.namespace.as_deref(), &selector, each).await?;
    if children > 0 {
        tracing::info!(kind = %resource, children, "Children lost their label; queued their owners");
    }
    Ok(())
}
