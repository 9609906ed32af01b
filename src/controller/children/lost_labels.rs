//! Finds children that the cache cannot show: those that lost our label, and those that it has not heard of.
//!
//! Mirrors nothing in client-go, whose controllers watch every object of a kind.
//!
//! # How it works
//! Children are watched by the label `app.kubernetes.io/managed-by`. Two lists see past the cache; both read metadata only,
//! page by page, so that memory does not grow with what they pass over.
//!
//! | list | selector | finds |
//! |---|---|---|
//! | [`without_label`](Children::without_label) | `managed-by!=windlass` | a child whose label was taken off; its cost grows with other people's objects, not with ours |
//! | [`with_label`](Children::with_label) | our labels of this one owner | a child that a dead process created a moment ago |
//!
//! # Guarantees
//! - A child without its label is found by its owner's uid. (test: `children_are_found_without_their_labels`)
//! - A child that the cache has not heard of is found by its labels. (test: `children_are_found_by_their_labels`)
//! - An error is never "there are none". (test: `a_list_that_fails_finds_an_error`)
//! - An object that does not decode and names the owner counts as there. (test: `an_odd_object_that_names_the_owner_counts`)

use serde::Deserialize;
use serde_json::Value;

use super::apply::Children;
use super::deletions::ChildRef;
use super::guarded_write::PartialObject;
use super::owner::{Owner, Ownership};
use crate::api::{ApiResource, labels};
use crate::cache::{Cached, Object, object};
use crate::client::Error;

impl Children {
    /// The owner's children of a kind that do not carry our label.
    ///
    /// # Errors
    /// [`Error`]: an error is never "there are none".
    pub async fn without_label(&self, owner: &Owner, resource: &ApiResource) -> Result<Vec<ChildRef>, Error> {
        self.listed(owner, resource, labels::OTHERS_SELECTOR).await
    }

    /// The owner's children of a kind that carry the labels of this owner, whatever the cache has.
    ///
    /// # Errors
    /// As [`without_label`](Self::without_label).
    pub async fn with_label(&self, owner: &Owner, resource: &ApiResource) -> Result<Vec<ChildRef>, Error> {
        self.listed(owner, resource, &labels_of(owner)).await
    }

    /// Both, each read whole: for a pass that believes no cache.
    ///
    /// # Errors
    /// As [`without_label`](Self::without_label).
    pub async fn live_children<O: Object>(&self, owner: &Owner) -> Result<Vec<Cached<O>>, Error> {
        let (namespace, resource) = (owner.name.namespace(), O::resource());
        let mut found: Vec<Value> = Vec::new();
        self.client.each_object(&resource, namespace, &labels_of(owner), |item| found.push(item)).await?;
        for child in self.without_label(owner, &resource).await? {
            found.extend(self.client.get::<Value>(&resource, namespace, &child.name).await?);
        }
        let mut children = Vec::new();
        for item in found {
            let decoded = object::decode(item.to_string().as_bytes());
            let request = || format!("list {}", resource.plural);
            let child = decoded.map_err(|source| Error::Decode { request: request(), source })?;
            children.push(Cached::new(child));
        }
        children.retain(|child| owner.owns(child));
        Ok(children)
    }

    async fn listed(
        &self,
        owner: &Owner,
        resource: &ApiResource,
        selector: &str,
    ) -> Result<Vec<ChildRef>, Error> {
        let mut found = Vec::new();
        let each = |item: Value| match PartialObject::deserialize(&item) {
            Ok(PartialObject { metadata }) => {
                if owner.ownership_of_meta(&metadata) == Ownership::Ours {
                    found.push(ChildRef::of_meta(metadata));
                }
            }
            Err(_) => found.extend(odd(owner, &item["metadata"])),
        };
        self.client.each_metadata(resource, owner.name.namespace(), selector, each).await?;
        Ok(found)
    }
}

/// The labels that all children of an owner carry, as a selector.
fn labels_of(owner: &Owner) -> String {
    labels::to_selector(&labels::common(&owner.resource.kind, owner.name.name()))
}

/// Something whose metadata is not as it should be, if it names the owner anywhere.
fn odd(owner: &Owner, metadata: &Value) -> Option<ChildRef> {
    let text = |field: &str| metadata[field].as_str().unwrap_or_default().to_owned();
    metadata["ownerReferences"].to_string().contains(&owner.uid).then(|| ChildRef {
        name: text("name"),
        uid: text("uid"),
        version: text("resourceVersion"),
        is_deleting: !metadata["deletionTimestamp"].is_null(),
    })
}

#[cfg(test)]
mod tests;
