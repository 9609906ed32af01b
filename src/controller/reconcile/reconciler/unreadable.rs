//! Handling an object that does not decode.
//!
//! # Guarantees
//! - Its children are kept, and its status reports the problem. (test: `an_unreadable_foo_keeps_its_deployment`)
//! - An object that was corrected meanwhile is not reported. (test: `a_corrected_foo_is_not_called_unreadable`)
//! - A deletion with `--cascade=orphan` completes. (test: `deleted_unreadable_object_is_released_when_orphaned`)
//! - Any other deletion is held by the finalizer, and the status explains how to release the object. (test: `deleted_unreadable_object_reports_how_to_release_it`)

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Reconcile, Reconciler, set_health};
use crate::api::ApiResource;
use crate::api::conditions::{self, ConditionSet, READY};
use crate::cache::{ObjectName, Unreadable};
use crate::client::Error;
use crate::controller::children::owner::Owner;
use crate::controller::kinds::health::{ChildHealth, reason};
use crate::controller::reconcile::status::{Written, write};
use crate::controller::run::outcome::Outcome;

impl<R: Reconcile> Reconciler<R> {
    /// Reports the decode error in the status. Changes nothing else, but for the finalizer of an orphaned object.
    pub(super) async fn sync_unreadable(
        &self,
        key: &ObjectName,
        object: &Unreadable,
    ) -> Result<Outcome, Error> {
        #[derive(Clone, Default, Serialize, Deserialize)]
        struct Status {
            #[serde(default)]
            conditions: Vec<Condition>,
        }
        let resource = ApiResource::of::<R::Resource>();
        let live: Option<Value> = self.tools.client.get(&resource, key.namespace(), key.name()).await?;
        let version = live.as_ref().and_then(|live| live.pointer("/metadata/resourceVersion")?.as_str());
        let (Some(live), Some(version)) = (&live, version) else { return Ok(Outcome::Done) };
        if version != object.meta.resource_version {
            // The object has changed since; the event for the new version wakes the key.
            return Ok(Outcome::Done);
        }
        let stored = Status::deserialize(&live["status"]).unwrap_or_default();
        let owner = Owner::known_as(resource, key.clone(), &object.meta.uid, version)
            .managed_by(self.tools.client.manager());
        let owner = Owner { generation: object.meta.generation, ..owner };
        let held_by = R::FINALIZER.filter(|held| object.meta.deletion_timestamp.is_some() && has(live, held));
        if let Some(finalizer) = held_by.filter(|_| has(live, "orphan")) {
            // The children are orphaned: nothing has to be undone, so the unreadable spec does not matter.
            let finalizers = live.pointer("/metadata/finalizers").and_then(Value::as_array);
            let names = finalizers.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned);
            let owner = Owner { finalizers: names.collect(), ..owner };
            self.tools.children.remove_finalizer(&owner, finalizer).await?;
            return Ok(Outcome::Done);
        }
        let health = ChildHealth::stalled(reason::UNREADABLE, unreadable(&object.error, held_by));
        let mut set =
            ConditionSet::new(&stored.conditions, Some(object.meta.generation), self.tools.clock.now());
        set_health(&mut set, &health);
        let status = Status { conditions: set.into_vec() };
        let state = (version, object.meta.deletion_timestamp.is_some());
        match write(&self.tools.client, &owner, state, Some(&stored), &status).await? {
            Written::Stored(Some(version)) => owner.wrote(&self.tools.consistency, &version),
            Written::Stored(None) => {}
            Written::MovedOn(live) => self.tools.children.await_owner(&owner, live.as_ref()),
        }
        if conditions::reason(&stored.conditions, READY) != Some(reason::UNREADABLE) {
            tracing::warn!(
                error = object.error,
                "The stored object cannot be decoded; its children are left unchanged"
            );
        }
        Ok(Outcome::Done)
    }
}

/// Whether a live object has this finalizer.
fn has(live: &Value, finalizer: &str) -> bool {
    let finalizers = live.pointer("/metadata/finalizers").and_then(Value::as_array);
    finalizers.is_some_and(|all| all.iter().any(|known| known == finalizer))
}

/// Formats the message for an object that does not decode; `held_by` is the finalizer that blocks its deletion.
fn unreadable(error: &str, held_by: Option<&str>) -> String {
    match held_by {
        None => {
            format!("The stored object cannot be decoded; its children are left unchanged. Fix it: {error}")
        }
        Some(finalizer) => format!(
            "Deletion is blocked: the stored object cannot be decoded, so what it created cannot be undone. \
             Fix its spec, or clean up by hand and remove the finalizer {finalizer}: {error}"
        ),
    }
}

#[cfg(test)]
#[cfg(feature = "sim")]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use serde_json::json;

    use super::*;
    use crate::api::samplecontroller::v1alpha1::{Foo, FooStatus};
    use crate::cache::{Cached, Indexers, Lister, store};
    use crate::client::Clock;
    use crate::controller::{Children, ReconcileContext, StopReason, SyncHandler, SyncRequest, Tools};
    use crate::metrics::ControllerMetrics;
    use crate::record::EventRecorder;
    use crate::testing::test_server::TestServer;
    use crate::workqueue::Reasons;

    const FOOS: &str = "/apis/samplecontroller.k8s.io/v1alpha1/namespaces/ns/foos";

    /// A kind with a finalizer, whose `reconcile` must not be reached.
    #[derive(Debug)]
    struct HeldKind;

    impl Reconcile for HeldKind {
        type Resource = Foo;

        const FINALIZER: Option<&'static str> = Some("windlass.dev/test");

        async fn reconcile(&self, _: &mut ReconcileContext<'_, Foo>) -> Result<FooStatus, StopReason> {
            Err(StopReason::Outcome(Outcome::RequeueAfter(Duration::MAX)))
        }
    }

    /// Runs a pass over an unreadable Foo that is being deleted, and returns the Foo from the server.
    async fn after_a_pass(finalizers: &[&str]) -> Value {
        let server = TestServer::start().await;
        let metadata = json!({"name": "one", "namespace": "ns", "uid": "u", "generation": 2,
            "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": finalizers});
        let foo = server.store(FOOS, json!({"metadata": metadata, "spec": {"replicas": "three"}}));
        let (objects, mut writer) = store::pair(Indexers::default());
        writer.upsert(Cached::new(crate::cache::object::decode(foo.to_string().as_bytes()).unwrap()));
        let clock = Clock::starting_at(jiff::Timestamp::UNIX_EPOCH);
        let tools = Tools {
            client: server.client(),
            objects: Lister::new(objects),
            children: Children::new(server.client(), Arc::default()),
            consistency: Arc::default(),
            recorder: EventRecorder::to_buffer(clock, 10).0,
            clock,
            metrics: ControllerMetrics::unread("foo"),
        };
        let key = ObjectName::new(Some("ns"), "one");
        let outcome =
            Reconciler::new(tools, HeldKind).sync(&key, SyncRequest::new(&Reasons::default())).await;
        assert_eq!(outcome.unwrap(), Outcome::Done);
        server.get(&format!("{FOOS}/one")).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn deleted_unreadable_object_is_released_when_orphaned() {
        let foo = after_a_pass(&["windlass.dev/test", "orphan"]).await;
        assert_eq!(foo["metadata"]["finalizers"], json!(["orphan"]));
        assert_eq!(foo["status"], Value::Null);
    }

    #[tokio::test(start_paused = true)]
    async fn deleted_unreadable_object_reports_how_to_release_it() {
        let foo = after_a_pass(&["windlass.dev/test"]).await;
        assert_eq!(foo["metadata"]["finalizers"], json!(["windlass.dev/test"]));
        let ready = &foo["status"]["conditions"][0];
        assert_eq!(ready["reason"], "Unreadable");
        let message = ready["message"].as_str().unwrap();
        assert!(message.contains("remove the finalizer windlass.dev/test"), "{message}");
        // Finalizers of others are not mentioned.
        let foo = after_a_pass(&["example.com/other", "orphan"]).await;
        assert_eq!(foo["metadata"]["finalizers"], json!(["example.com/other", "orphan"]));
        let message = foo["status"]["conditions"][0]["message"].as_str().unwrap();
        assert!(message.contains("its children are left unchanged"), "{message}");
    }
}
