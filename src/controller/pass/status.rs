//! Writing the status of an object.
//!
//! # Guarantees
//! - A write whose response is lost counts if a read shows the new status. (test: `status_stored_despite_lost_response_counts_as_written`)
//! - A conflict is retried once after a live read, unless the object has changed. (test: `conflicting_status_write_is_retried_once`)
//! - Mere progress is distinguished from a change of Ready, Reconciling or Stalled. (test: `progress_is_distinguished_from_health_changes`)
//! - Fields that another version of the operator has written are kept. (test: `unknown_fields_of_a_status_are_kept`)

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::finalizers::OwnerWriter;
use super::owner::Owner;
use super::trust::{LiveMeta, PartialObject};
use crate::api::conditions::{READY, RECONCILING, STALLED};
use crate::client::Error;
use crate::client::json_error::without_values;
use crate::controller::kinds::diff::{are_same, to_json};

/// The result of writing a status.
enum Written {
    /// The status is stored, at this resource version if a write was needed.
    Stored(Option<String>),
    /// The object has changed, or is gone (`None`), by a live read.
    MovedOn(Option<LiveMeta>),
}

impl OwnerWriter<'_, '_> {
    /// Replaces the status of the owner by `wanted`, if it differs from the `stored` one. After a conflict, reads
    /// the object live and retries once, provided that uid, generation and deletion are unchanged. Returns `false` if
    /// they are not: the key then waits until the cache shows that.
    ///
    /// # Errors
    /// [`Error`], including a second conflict.
    pub(super) async fn write_status<S: Serialize>(
        self,
        is_deleting: bool,
        stored: Option<&S>,
        wanted: &S,
    ) -> Result<bool, Error> {
        if stored.is_some_and(|stored| are_same(stored, wanted)) {
            return Ok(true);
        }
        let status = to_json(wanted);
        let written = match self.send_status(&self.owner.version, &status).await {
            Ok(written) => written,
            Err(error) => self.after_failure(error, is_deleting, &status).await?,
        };
        match written {
            Written::Stored(version) => version.inspect(|version| self.wrote(version)),
            Written::MovedOn(live) => {
                tracing::debug!("Skipping the status write: a live read shows that the object has changed");
                self.awaits(live.as_ref());
                return Ok(false);
            }
        };
        Ok(true)
    }

    async fn send_status(self, version: &str, status: &Value) -> Result<Written, Error> {
        let Owner { resource, name, uid, .. } = self.owner;
        let (object, state) = ((name.namespace(), name.name()), (&**uid, version));
        let stored = self.client.update_status::<PartialObject>(resource, object, state, status).await?;
        Ok(Written::Stored(Some(stored.metadata.resource_version.into())))
    }

    async fn after_failure(self, error: Error, is_deleting: bool, wanted: &Value) -> Result<Written, Error> {
        let Owner { resource, name, uid, generation, .. } = self.owner;
        let read = async || self.client.get::<Value>(resource, name.namespace(), name.name()).await;
        if may_be_stored(&error) {
            // If the write did succeed, the next sync would see no transition and record no event.
            let live = read().await.ok().flatten();
            let version = live.and_then(|live| version_with(&live, wanted));
            return version.map(|version| Written::Stored(Some(version))).ok_or(error);
        }
        if !error.is_conflict() && !error.is_not_found() {
            return Err(error);
        }
        let Some(live) = read().await? else { return Ok(Written::MovedOn(None)) };
        let meta = PartialObject::<LiveMeta>::deserialize(&live).map(|live| live.metadata);
        let meta = meta.map_err(|error| Error::Decode {
            request: format!("read {name}"),
            source: without_values(&error),
        })?;
        let is_same = meta.uid == *uid
            && meta.generation == *generation
            && meta.deletion_timestamp.is_some() == is_deleting;
        if !is_same {
            return Ok(Written::MovedOn(Some(meta)));
        }
        match to_json(&live["status"]) == *wanted {
            true => Ok(Written::Stored(Some(meta.resource_version))),
            false => self.send_status(&meta.resource_version, wanted).await,
        }
    }
}

/// Whether two statuses differ only in numbers, messages and conditions other than `Ready`, `Reconciling` and `Stalled`.
pub(super) fn only_progress_moves<S: Serialize>(stored: &S, wanted: &S) -> bool {
    fn health(conditions: &[Value]) -> Vec<&Value> {
        let is_common =
            |one: &&Value| [READY, RECONCILING, STALLED].iter().any(|type_| one["type"] == *type_);
        conditions.iter().filter(is_common).collect()
    }
    fn is_so(name: &str, stored: &Value, wanted: &Value) -> bool {
        match (stored, wanted) {
            (Value::Object(stored), Value::Object(wanted)) => {
                let names: BTreeSet<&String> = stored.keys().chain(wanted.keys()).collect();
                let of = |map: &Map<String, Value>, name: &str| map.get(name).cloned().unwrap_or(json!(0));
                names.iter().all(|name| is_so(name, &of(stored, name), &of(wanted, name)))
            }
            (Value::Array(stored), Value::Array(wanted)) if name == "conditions" => {
                let (stored, wanted) = (health(stored), health(wanted));
                stored.len() == wanted.len()
                    && stored.iter().zip(&wanted).all(|(stored, wanted)| is_so("", stored, wanted))
            }
            (Value::Array(stored), Value::Array(wanted)) => {
                stored.len() == wanted.len()
                    && stored.iter().zip(wanted).all(|(stored, wanted)| is_so(name, stored, wanted))
            }
            (Value::Number(_), Value::Number(_)) => name != "observedGeneration" || stored == wanted,
            (Value::String(_), Value::String(_)) => name == "message" || stored == wanted,
            _ => stored == wanted,
        }
    }
    let json = |status: &S| serde_json::to_value(status).unwrap_or_default();
    is_so("", &json(stored), &json(wanted))
}

/// Whether a write may have succeeded despite this error.
fn may_be_stored(error: &Error) -> bool {
    error.is_connection() || error.status().is_some_and(|status| status.code >= 500)
}

/// Returns the resource version of a live object if it has the wanted status.
fn version_with(live: &Value, wanted: &Value) -> Option<String> {
    let version = live.pointer("/metadata/resourceVersion")?.as_str()?;
    (to_json(&live["status"]) == *wanted).then(|| version.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_distinguished_from_health_changes() {
        let status = |replicas: i64, message: &str, status: &str, observed: i64| {
            let of_a_child =
                json!({"type": "Available", "status": if replicas > 1 { "True" } else { "False" }});
            let ready = json!({"type": "Ready", "status": status, "message": message});
            json!({"replicas": replicas, "observedGeneration": observed, "conditions": [of_a_child, ready]})
        };
        let stored = status(1, "1 of 3", "False", 2);
        assert!(only_progress_moves(&stored, &status(2, "2 of 3", "False", 2)));
        assert!(only_progress_moves(&json!({}), &json!({"replicas": 1})), "an absent number counts as 0");
        for other in [status(3, "3 of 3", "True", 2), status(1, "1 of 3", "False", 3), json!({"replicas": 1})]
        {
            assert!(!only_progress_moves(&stored, &other), "{other}");
        }
    }

    #[test]
    fn only_the_wanted_status_counts_as_written() {
        let live = |status: Value| json!({"metadata": {"resourceVersion": "7"}, "status": status});
        let wanted = json!({"replicas": 2});
        assert_eq!(version_with(&live(json!({"replicas": 2, "none": null})), &wanted), Some("7".to_owned()));
        for other in [json!({"replicas": 1}), json!({"replicas": 2, "more": 1}), json!(null)] {
            assert_eq!(version_with(&live(other), &wanted), None);
        }
    }
}
