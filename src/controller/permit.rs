//! The one door through which children and finalizers are written: behind a live read of their owner.
//!
//! Mirrors kubernetes `RecheckDeletionTimestamp` (`pkg/controller/controller_ref_manager.go`), which in-tree
//! controllers ask before they adopt; what they delete goes on the word of their caches.
//!
//! # How it works
//! A [`Permit`] is what a live read of the owner gives, and only that; each write takes one up. So there is no
//! create, no update (a scale-down is one), no delete and no finalizer put on or taken off without the read, and none
//! whose answer is read that the guard of [`consistency`](super::consistency) does not hear of.
//!
//! | the write needs | the live owner is |
//! |---|---|
//! | [`Need::AsDecidedOn`] | this life, of this generation, not being deleted, not paused |
//! | [`Need::Living`] | this life, not being deleted, not paused |
//! | [`Need::Going`] | this life, being deleted |
//! | [`Need::GoingWithChildren`] | the same, and its children are not orphaned |
//!
//! # Guarantees
//! - Every row of the table. (test: `each_need_is_met_by_the_live_owner_alone`)
//! - An owner that cannot be read permits nothing. (test: `no_read_no_permit`)
//! - What is written is waited for. (test: `whatever_is_written_is_waited_for`)
//! - Nothing is written past it. (test: `each_write_has_one_door`)

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use super::children::{Children, Owner};
use crate::api::annotations;
use crate::cache::Object;
use crate::client::Error;

/// What the owner has to be for a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Need {
    /// As it was when the write was decided on: for children.
    AsDecidedOn,
    /// Alive, whatever its spec: to be held by a finalizer.
    Living,
    /// Being deleted: to be let go.
    Going,
    /// Being deleted, and its children with it.
    GoingWithChildren,
}

/// What a live read of the owner says to a write.
pub(super) enum Answer<'a> {
    Permitted(Permit<'a>),
    /// It is there, and not as needed.
    MovedOn,
    /// Its life is over.
    Gone,
}

/// One write for an owner that was as needed a moment ago.
pub(super) struct Permit<'a> {
    children: &'a Children,
    owner: &'a Owner,
    need: Need,
    live: Value,
}

/// What decides.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct LiveMeta {
    uid: String,
    generation: i64,
    deletion_timestamp: Option<String>,
    finalizers: Vec<String>,
    annotations: BTreeMap<String, String>,
}

// === impl Need ===

impl Need {
    fn is_met_by(self, live: &LiveMeta, owner: &Owner) -> bool {
        let is_going = live.deletion_timestamp.is_some();
        let is_living = !is_going && !annotations::ask_for_pause(&live.annotations);
        match self {
            Self::AsDecidedOn => is_living && live.generation == owner.generation,
            Self::Living => is_living,
            Self::Going => is_going,
            Self::GoingWithChildren => is_going && !live.finalizers.iter().any(|held| held == "orphan"),
        }
    }
}

// === impl Children ===

impl Children {
    /// Reads the owner live, for one write that needs it so.
    ///
    /// # Errors
    /// [`Error`]: what cannot be read permits nothing.
    pub(super) async fn permit<'a>(&'a self, owner: &'a Owner, need: Need) -> Result<Answer<'a>, Error> {
        let (namespace, name) = (owner.name.namespace(), owner.name.name());
        let Some(live) = self.client.get::<Value>(&owner.resource, namespace, name).await? else {
            return Ok(Answer::Gone);
        };
        let meta = LiveMeta::deserialize(&live["metadata"])
            .map_err(|source| Error::Decode { request: format!("read {}", owner.name), source })?;
        if meta.uid != owner.uid {
            return Ok(Answer::Gone);
        }
        if !need.is_met_by(&meta, owner) {
            tracing::debug!(?need, "Writes nothing: a live read shows that the owner has moved on");
            return Ok(Answer::MovedOn);
        }
        Ok(Answer::Permitted(Permit { children: self, owner, need, live }))
    }
}

// === impl Answer ===

impl<'a> Answer<'a> {
    /// The permit, if there is one.
    pub(super) fn granted(self) -> Option<Permit<'a>> {
        match self {
            Self::Permitted(permit) => Some(permit),
            Self::MovedOn | Self::Gone => None,
        }
    }
}

// === impl Permit ===

impl Permit<'_> {
    /// The owner as the live read shows it.
    pub(super) fn live_owner(&mut self) -> &mut Value {
        &mut self.live
    }

    /// Creates a child.
    pub(super) async fn create<O: Object>(self, body: &Value) -> Result<O, Error> {
        assert_eq!(self.need, Need::AsDecidedOn);
        let namespace = self.owner.name.namespace();
        let created = self.children.client.create::<O>(&O::resource(), namespace, body).await?;
        self.children.consistency.wrote(&self.owner.name, &created);
        Ok(created)
    }

    /// Replaces a child by `body`, which carries the uid and the version of a live read.
    pub(super) async fn update<O: Object>(self, name: &str, body: &Value) -> Result<O, Error> {
        assert_eq!(self.need, Need::AsDecidedOn);
        let namespace = self.owner.name.namespace();
        let updated = self.children.client.replace::<O>(&O::resource(), namespace, name, body).await?;
        self.children.consistency.wrote(&self.owner.name, &updated);
        Ok(updated)
    }

    /// Deletes a child in the state that a live read has shown.
    pub(super) async fn delete<O: Object>(self, child: &O) -> Result<(), Error> {
        assert!(matches!(self.need, Need::AsDecidedOn | Need::GoingWithChildren));
        let (resource, name) = (O::resource(), child.object_name());
        let Children { client, consistency, .. } = self.children;
        let (uid, version) = (child.uid(), child.resource_version());
        client.delete(&resource, name.namespace(), name.name(), uid, version).await?;
        consistency.deleted(&self.owner.name, &resource, name, uid);
        Ok(())
    }

    /// Replaces the owner by what was made of [`live_owner`](Self::live_owner).
    pub(super) async fn update_owner(self) -> Result<(), Error> {
        assert!(matches!(self.need, Need::Living | Need::Going));
        let Owner { resource, name, .. } = self.owner;
        let Children { client, consistency, .. } = self.children;
        let written: Value = client.replace(resource, name.namespace(), name.name(), &self.live).await?;
        if let Some(version) = written.pointer("/metadata/resourceVersion").and_then(Value::as_str) {
            consistency.wrote_owner(self.owner, version);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use http::Method;
    use serde_json::json;

    use super::*;
    use crate::api::ApiResource;
    use crate::api::samplecontroller::v1alpha1::Foo;
    use crate::cache::ObjectName;
    use crate::testing::object_server::ObjectServer;

    const FOOS: &str = "/apis/samplecontroller.k8s.io/v1alpha1/namespaces/ns/foos";

    fn rig() -> (ObjectServer, Children, Owner) {
        let server = ObjectServer::default();
        let children = Children::new(server.client(), Arc::default());
        let owner = Owner {
            resource: ApiResource::of::<Foo>(),
            name: ObjectName::new(Some("ns"), "one"),
            uid: "u1".to_owned(),
            generation: 2,
            reconcile_at: None,
        };
        (server, children, owner)
    }

    #[tokio::test]
    async fn each_need_is_met_by_the_live_owner_alone() {
        use Need::{AsDecidedOn, Going, GoingWithChildren, Living};
        let deleted = "2026-01-01T00:00:00Z";
        let table: [(Value, &[Need]); 7] = [
            (json!({}), &[AsDecidedOn, Living]),
            (json!({"annotations": {"windlass.dev/paused": "false"}}), &[AsDecidedOn, Living]),
            (json!({"annotations": {"windlass.dev/paused": "true"}}), &[]),
            (json!({"generation": 3}), &[Living]),
            (json!({"deletionTimestamp": deleted}), &[Going, GoingWithChildren]),
            (json!({"deletionTimestamp": deleted, "finalizers": ["orphan"]}), &[Going]),
            (json!({"uid": "another life", "deletionTimestamp": deleted}), &[]),
        ];
        for (metadata, met) in table {
            let (server, children, owner) = rig();
            let mut foo =
                json!({"metadata": {"name": "one", "namespace": "ns", "uid": "u1", "generation": 2}});
            for (key, value) in metadata.as_object().unwrap() {
                foo["metadata"][key] = value.clone();
            }
            server.store(FOOS, foo);
            for need in [AsDecidedOn, Living, Going, GoingWithChildren] {
                let answer = children.permit(&owner, need).await.unwrap();
                let is_gone = matches!(answer, Answer::Gone);
                assert_eq!(is_gone, metadata["uid"] == "another life", "{need:?} of {metadata}");
                assert_eq!(answer.granted().is_some(), met.contains(&need), "{need:?} of {metadata}");
            }
        }
    }

    #[tokio::test]
    async fn no_read_no_permit() {
        let (server, children, owner) = rig();
        for need in [Need::AsDecidedOn, Need::Living, Need::Going, Need::GoingWithChildren] {
            assert!(matches!(children.permit(&owner, need).await.unwrap(), Answer::Gone), "no such owner");
        }
        server.store(FOOS, json!({"metadata": {"name": "one", "uid": "u1", "generation": 2}}));
        server.refuse(Method::GET, 500, "InternalError");
        assert!(children.permit(&owner, Need::AsDecidedOn).await.is_err());
    }
}
