//! Finalizers: what keeps an object that is being deleted until its operator has done its part.
//!
//! Mirrors controller-runtime `pkg/controller/controllerutil` (`AddFinalizer`, `RemoveFinalizer`), with the reads
//! and writes around them.
//!
//! # Guarantees
//! - Only the named finalizer is added or removed; those of others stay, in their order. (test: `others_finalizers_stay`)
//! - An owner that is being deleted, is another life or is paused is not held. (test: `only_a_living_owner_is_held`)
//! - An owner is let go only when a live read shows that it is being deleted. (test: `only_a_deleted_owner_is_let_go`)

use serde_json::{Value, json};

use super::children::{Children, Owner};
use super::permit::{Answer, Need};
use crate::client::Error;

/// Adds a finalizer; returns whether it was missing.
pub fn add(object: &mut Value, finalizer: &str) -> bool {
    let list = &mut object["metadata"]["finalizers"];
    if list.as_array().is_some_and(|list| list.iter().any(|known| known == finalizer)) {
        return false;
    }
    match list.as_array_mut() {
        Some(list) => list.push(json!(finalizer)),
        None => *list = json!([finalizer]),
    }
    true
}

/// Removes a finalizer, however often it is there; returns whether it was.
pub fn remove(object: &mut Value, finalizer: &str) -> bool {
    let Some(list) = object.pointer_mut("/metadata/finalizers").and_then(Value::as_array_mut) else {
        return false;
    };
    let before = list.len();
    list.retain(|known| known != finalizer);
    list.len() < before
}

impl Children {
    /// Puts a finalizer on the owner, before the first effect that has to be undone. `false` when the owner is
    /// gone, being deleted, paused, or another life: then nothing is to be done for it.
    ///
    /// # Errors
    /// [`Error`], to be tried again.
    pub async fn hold(&self, owner: &Owner, finalizer: &str) -> Result<bool, Error> {
        let Some(mut permit) = self.permit(owner, Need::Living).await?.granted() else { return Ok(false) };
        if add(permit.live_owner(), finalizer) {
            permit.update_owner().await?;
        }
        Ok(true)
    }

    /// Takes a finalizer off an owner that is being deleted, after the last of its effects was undone. `false`
    /// when a live read shows it not to be deleted: then nothing was done.
    ///
    /// # Errors
    /// [`Error`], to be tried again.
    pub async fn let_go(&self, owner: &Owner, finalizer: &str) -> Result<bool, Error> {
        let mut permit = match self.permit(owner, Need::Going).await? {
            Answer::Permitted(permit) => permit,
            Answer::MovedOn => return Ok(false),
            Answer::Gone => return Ok(true),
        };
        if remove(permit.live_owner(), finalizer) {
            match permit.update_owner().await {
                // Ours was the last: it went meanwhile.
                Err(error) if error.is_not_found() => {}
                outcome => outcome?,
            }
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::api::ApiResource;
    use crate::api::samplecontroller::v1alpha1::Foo;
    use crate::cache::ObjectName;
    use crate::testing::object_server::ObjectServer;

    const FOOS: &str = "/apis/samplecontroller.k8s.io/v1alpha1/namespaces/ns/foos";
    const OURS: &str = "windlass.dev/test";

    fn rig(metadata: &Value) -> (ObjectServer, Children, Owner) {
        let server = ObjectServer::default();
        let mut foo = json!({"metadata": {"name": "one", "namespace": "ns", "uid": "u1"}, "spec": {}});
        for (key, value) in metadata.as_object().unwrap() {
            foo["metadata"][key] = value.clone();
        }
        server.store(FOOS, foo);
        let children = Children::new(server.client(), Arc::default());
        let owner = Owner {
            resource: ApiResource::of::<Foo>(),
            name: ObjectName::new(Some("ns"), "one"),
            uid: "u1".to_owned(),
            generation: 1,
            reconcile_at: None,
        };
        (server, children, owner)
    }

    fn finalizers(server: &ObjectServer) -> Value {
        server.get(&format!("{FOOS}/one")).unwrap()["metadata"]["finalizers"].clone()
    }

    #[tokio::test]
    async fn others_finalizers_stay() {
        let (server, children, owner) = rig(&json!({"finalizers": ["a.example/x", "b.example/y"]}));
        for _ in 0..2 {
            assert!(children.hold(&owner, OURS).await.unwrap());
            assert_eq!(finalizers(&server), json!(["a.example/x", "b.example/y", OURS]));
        }
        let requests = server.requests();
        assert_eq!(requests.iter().filter(|request| request.starts_with("PUT")).count(), 1, "{requests:?}");
        let mut object = json!({"metadata": {"finalizers": [OURS, "a.example/x", OURS]}});
        assert!(remove(&mut object, OURS) && !remove(&mut object, OURS));
        assert_eq!(object["metadata"]["finalizers"], json!(["a.example/x"]));
    }

    #[tokio::test]
    async fn only_a_living_owner_is_held() {
        for metadata in [
            json!({"deletionTimestamp": "2020-01-01T00:00:00Z"}),
            json!({"uid": "another life"}),
            json!({"annotations": {"windlass.dev/paused": "true"}}),
        ] {
            let (server, children, owner) = rig(&metadata);
            assert!(!children.hold(&owner, OURS).await.unwrap());
            assert_eq!(finalizers(&server), Value::Null);
        }
        let (server, children, owner) = rig(&json!({}));
        server.remove(&format!("{FOOS}/one"));
        assert!(!children.hold(&owner, OURS).await.unwrap());
    }

    #[tokio::test]
    async fn only_a_deleted_owner_is_let_go() {
        let (server, children, owner) = rig(&json!({"finalizers": [OURS]}));
        assert!(!children.let_go(&owner, OURS).await.unwrap());
        assert_eq!(finalizers(&server), json!([OURS]));
        let deleted =
            json!({"finalizers": ["a.example/x", OURS], "deletionTimestamp": "2020-01-01T00:00:00Z"});
        let (server, children, owner) = rig(&deleted);
        assert!(children.let_go(&owner, OURS).await.unwrap());
        assert_eq!(finalizers(&server), json!(["a.example/x"]));
        let (server, children, owner) = rig(&json!({"finalizers": [OURS], "uid": "another life"}));
        assert!(children.let_go(&owner, OURS).await.unwrap());
        assert_eq!(finalizers(&server), json!([OURS]), "it is not ours to let go");
    }
}
