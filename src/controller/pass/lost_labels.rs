//! Finds children that the cache cannot show: children that lost our label, and children it has not received yet.
//!
//! Mirrors nothing in client-go, whose controllers watch every object of a kind.
//!
//! # How it works
//! Children are watched by the label `app.kubernetes.io/managed-by`. Two lists see past the cache; both read only
//! metadata, page by page, so that memory does not grow with the number of skipped objects.
//!
//! | list | selector | finds |
//! |---|---|---|
//! | [`without_label`](Pass::without_label) | `managed-by!=windlass` | a child whose label was removed; its cost grows with other people's objects, not with ours |
//! | [`with_label`](Pass::with_label) | our labels for this owner | a child that a previous process created just before it died |
//!
//! # Guarantees
//! - A child without its label is found by its owner's uid. (test: `unlabelled_children_are_found_by_owner_uid`)
//! - A child that is not in the cache yet is found by its labels. (test: `uncached_children_are_found_by_their_labels`)
//! - Both lists are made concurrently. (test: `unseen_children_are_listed_concurrently`)
//! - An error is never read as "there are none". (test: `failed_list_returns_an_error`)
//! - A malformed object that names the owner counts as a child. (test: `malformed_object_naming_the_owner_counts`)

use serde::Deserialize;
use serde_json::Value;

use super::Pass;
use super::custom_resource::CustomResource;
use super::delete::ChildRef;
use super::owner::{Owner, Ownership};
use super::trust::PartialObject;
use crate::api::{ApiResource, labels};
use crate::cache::{Cached, TypedObject, decode::decode};
use crate::client::Error;

impl<K: CustomResource> Pass<'_, K> {
    /// Lists the owner's children of a kind that lack our label.
    ///
    /// # Errors
    /// [`Error`], which never means that there are none.
    pub async fn without_label(&self, resource: &ApiResource) -> Result<Vec<ChildRef>, Error> {
        self.listed(resource, &labels::others_selector(self.owner.manager)).await
    }

    /// Lists the owner's children of a kind that carry this owner's labels, whether cached or not.
    ///
    /// # Errors
    /// As [`without_label`](Self::without_label).
    pub async fn with_label(&self, resource: &ApiResource) -> Result<Vec<ChildRef>, Error> {
        self.listed(resource, &labels_of(&self.owner)).await
    }

    /// Lists the owner's children of a kind that the cache may have missed: those that
    /// [`without_label`](Self::without_label) and [`with_label`](Self::with_label) find. Both lists are made
    /// concurrently: an API server may hold each of them back until its watch cache is fresh.
    ///
    /// # Errors
    /// As [`without_label`](Self::without_label).
    pub async fn unseen_children(&self, resource: &ApiResource) -> Result<Vec<ChildRef>, Error> {
        let (mut unseen, labelled) =
            tokio::try_join!(self.without_label(resource), self.with_label(resource))?;
        unseen.extend(labelled);
        Ok(unseen)
    }

    /// Lists all the owner's children of a kind, labelled or not, as whole objects: for a sync that trusts no cache.
    ///
    /// # Errors
    /// As [`without_label`](Self::without_label).
    pub async fn live_children<O: TypedObject>(&self) -> Result<Vec<Cached<O>>, Error> {
        let (namespace, resource) = (self.owner.name.namespace(), ApiResource::of::<O>());
        let mut found: Vec<Value> = Vec::new();
        self.tools
            .client
            .each_object(&resource, namespace, &labels_of(&self.owner), |item| found.push(item))
            .await?;
        for child in self.without_label(&resource).await? {
            found.extend(self.tools.client.get::<Value>(&resource, namespace, &child.name).await?);
        }
        let mut children = Vec::new();
        for item in found {
            let decoded = decode(item.to_string().as_bytes());
            let request = || format!("list {}", resource.plural);
            let child = decoded.map_err(|source| Error::Decode { request: request(), source })?;
            children.push(Cached::new(child));
        }
        children.retain(|child| self.owner.owns(child));
        Ok(children)
    }

    async fn listed(&self, resource: &ApiResource, selector: &str) -> Result<Vec<ChildRef>, Error> {
        let mut found = Vec::new();
        let each = |item: Value| match PartialObject::deserialize(&item) {
            Ok(PartialObject { metadata }) => {
                if self.owner.ownership_of_meta(&metadata) == Ownership::Ours {
                    found.push(ChildRef::of_meta(metadata));
                }
            }
            Err(_) => found.extend(odd(&self.owner, &item["metadata"])),
        };
        self.tools.client.each_metadata(resource, self.owner.name.namespace(), selector, each).await?;
        Ok(found)
    }
}

/// Returns a selector for the labels that all children of an owner carry.
fn labels_of(owner: &Owner) -> String {
    labels::to_selector(&owner.child_labels())
}

/// Returns an object with malformed metadata as a child, if the owner is its controller.
fn odd(owner: &Owner, metadata: &Value) -> Option<ChildRef> {
    let text = |field: &str| metadata[field].as_str().unwrap_or_default().to_owned();
    let mut references = metadata["ownerReferences"].as_array().into_iter().flatten();
    let is_ours = |reference: &Value| reference["uid"] == *owner.uid && reference["controller"] == true;
    references.any(is_ours).then(|| ChildRef {
        name: text("name"),
        uid: text("uid"),
        version: text("resourceVersion"),
        is_deleting: !metadata["deletionTimestamp"].is_null(),
        is_controlled: true,
    })
}

#[cfg(test)]
#[cfg(feature = "sim")]
mod tests;
