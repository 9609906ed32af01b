//! Finds children that lost our label, which the informer's selector therefore hides.
//!
//! Only one page is held at a time. The list covers everybody's objects of the kind, so it is made rarely.

use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::AuditContext;
use crate::api::{ApiResource, labels};
use crate::cache::owner::OwnerRef;
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

/// Treats references that do not decode as none: they are not ours, and must not fail the list.
fn or_none<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<OwnerRef>, D::Error> {
    Ok(Vec::deserialize(Value::deserialize(from)?).unwrap_or_default())
}

/// Enqueues the owners of all objects of this kind, in one namespace or, with `None`, in all, that lack our label and belong to a cached custom resource.
///
/// # Errors
/// [`Error`] of the list; some owners may have been enqueued.
pub(super) async fn queue_owners(
    context: &AuditContext,
    resource: &ApiResource,
    namespace: Option<&str>,
) -> Result<(), Error> {
    let selector = labels::others_selector(context.client.manager());
    let mut children = 0_u64;
    let each = |Item { metadata: Metadata { namespace, owner_references } }: Item| {
        let mut references = owner_references.iter().map(OwnerRef::as_reference);
        if references.any(|reference| context.owners.queue_owner(namespace.as_deref(), reference)) {
            children += 1;
        }
    };
    context.client.each_metadata(resource, namespace, &selector, each).await?;
    if children > 0 {
        tracing::info!(
            kind = %resource,
            children,
            "Children have lost the managed-by label; enqueued their owners to restore it"
        );
    }
    Ok(())
}
