//! Handling an object that does not decode.
//!
//! # Guarantees
//! - Its children are kept, and its status reports the problem. (test: `an_unreadable_object_keeps_its_children`)
//! - An object that was corrected meanwhile is not reported. (test: `a_corrected_object_is_not_called_unreadable`)
//! - A deletion with `--cascade=orphan` completes. (test: `deleted_unreadable_object_is_released_when_orphaned`)
//! - Any other deletion is held by the finalizer, and the status explains how to release the object. (test: `deleted_unreadable_object_reports_how_to_release_it`)

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Reconcile, Reconciler, set_health};
use crate::api::ApiResource;
use crate::api::conditions::{self, ConditionSet, READY};
use crate::cache::{ObjectName, Unreadable};
use crate::client::Error;
use crate::controller::key::KeyState;
use crate::controller::kinds::health::{ChildHealth, reason};
use crate::controller::pass::finalizers::OwnerWriter;
use crate::controller::pass::owner::Owner;
use crate::controller::run::outcome::Outcome;

impl<R: Reconcile> Reconciler<R> {
    /// Reports the decode error in the status. Changes nothing else, but for the finalizer of an orphaned object.
    pub(super) async fn sync_unreadable(
        &self,
        key: &ObjectName,
        object: &Unreadable,
        state: &mut KeyState,
    ) -> Result<Outcome, Error> {
        let state = Mutex::new(state);
        let resource = ApiResource::of::<R::Resource>();
        let live: Option<Value> = self.tools.client.get(&resource, key.namespace(), key.name()).await?;
        let version = live.as_ref().and_then(|live| live.pointer("/metadata/resourceVersion")?.as_str());
        let (Some(live), Some(version)) = (&live, version) else { return Ok(Outcome::Done) };
        if *version != *object.meta.resource_version {
            // The object has changed since; the event for the new version wakes the key.
            return Ok(Outcome::Done);
        }
        let stored = &live["status"];
        let before = Vec::<Condition>::deserialize(&stored["conditions"]).unwrap_or_default();
        let owner = Owner::known_as(resource, key.clone(), &object.meta.uid, version)
            .managed_by(self.tools.client.manager());
        let owner = Owner { generation: object.meta.generation, ..owner };
        let held_by = R::FINALIZER.filter(|held| object.meta.deletion_timestamp.is_some() && has(live, held));
        if let Some(finalizer) = held_by.filter(|_| has(live, "orphan")) {
            // The children are orphaned: nothing has to be undone, so the unreadable spec does not matter.
            let finalizers = live.pointer("/metadata/finalizers").and_then(Value::as_array);
            let names = finalizers.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned);
            let owner = Owner { finalizers: names.collect(), ..owner };
            let writer = OwnerWriter { client: &self.tools.client, owner: &owner, state: &state };
            writer.remove_finalizer(finalizer).await?;
            return Ok(Outcome::Done);
        }
        let health = ChildHealth::stalled(reason::UNREADABLE, unreadable(&object.error, held_by));
        let mut set = ConditionSet::new(&before, Some(object.meta.generation), self.tools.clock.now());
        set_health(&mut set, &health);
        let mut status = if stored.is_object() { stored.clone() } else { json!({}) };
        status["conditions"] = json!(set.into_vec());
        let is_deleting = object.meta.deletion_timestamp.is_some();
        let writer = OwnerWriter { client: &self.tools.client, owner: &owner, state: &state };
        writer.write_status(is_deleting, Some(stored), &status).await?;
        if conditions::reason(&before, READY) != Some(reason::UNREADABLE) {
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
