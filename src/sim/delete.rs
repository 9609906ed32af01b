//! Deletion: at once, or in two phases when a finalizer or a grace period delays it.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::DeleteOptions;
use serde_json::{Value, json};

use super::core::{Core, key_of};
use super::custom;
use super::failure::{Cause, Failure, Outcome};
use super::kinds::{BuiltIn, Kind};
use super::read::presented;
use super::reply::{Answer, List};
use super::request::{Call, items, member, text};
use super::selectors::Selection;

pub(super) const FOREGROUND: &str = "foregroundDeletion";
pub(super) const ORPHAN: &str = "orphan";

impl Core {
    pub(super) fn delete(&mut self, call: &Call) -> Outcome<Answer> {
        let kind = call.kind.clone();
        let options = call.delete_options()?;
        let policy = policy_of(&options)?;
        let stored = self.store.get(&kind.resource, &call.namespace, &call.name).cloned();
        let stored = stored.ok_or_else(|| Failure::not_found(&kind, &call.name))?;
        check_preconditions(&kind, &call.name, &options, &stored)?;
        if kind.is(BuiltIn::Namespace)
            && matches!(call.name.as_str(), "default" | "kube-public" | "kube-system")
        {
            return Err(Failure::forbidden(&kind, &call.name, "this namespace may not be deleted"));
        }
        let is_dry_run = is_dry_run(&options);
        let grace = options.grace_period_seconds;
        let (last, is_gone) = self.start_deletion(&kind, &stored, policy, grace, is_dry_run);
        Ok(if is_gone && !returns_deleted(&kind) {
            Answer::ok(&deleted(&kind, &last))
        } else {
            Answer::ok(&presented(&kind, &call.version, &last))
        })
    }

    pub(super) fn delete_collection(&mut self, server: usize, call: &Call) -> Outcome<Answer> {
        let kind = call.kind.clone();
        if kind.is(BuiltIn::Namespace) {
            return Err(Failure::method_not_allowed());
        }
        let options = call.delete_options()?;
        let policy = policy_of(&options)?;
        let selection = Selection::of(call, self.servers[server].is_sharding)?;
        let is_dry_run = is_dry_run(&options);
        let found: Vec<Arc<Value>> = self
            .store
            .collection(&kind.resource)
            .map(|(_, object)| object)
            .filter(|object| selection.matches(object))
            .cloned()
            .collect();
        let grace = options.grace_period_seconds;
        let mut deleted = Vec::new();
        for object in found {
            check_preconditions(&kind, text(&object, "/metadata/name"), &options, &object)?;
            let (last, _) = self.start_deletion(&kind, &object, policy, grace, is_dry_run);
            deleted.push(last);
        }
        let mut metadata = json!({"resourceVersion": self.store.version().to_string()});
        if let Some(info) = selection.shard_info(&kind) {
            metadata["shardInfo"] = info;
        }
        let shown = deleted.iter().map(|last| presented(&kind, &call.version, last)).collect();
        Ok(Answer::ok(&List::new(call, metadata, shown)))
    }

    /// Removes an object, or marks it as being deleted if its removal must wait. Returns its last state, and
    /// whether it was removed.
    pub(super) fn start_deletion(
        &mut self,
        kind: &Kind,
        stored: &Arc<Value>,
        policy: &str,
        grace: Option<i64>,
        is_dry_run: bool,
    ) -> (Arc<Value>, bool) {
        let mut object = Value::clone(stored);
        let grace = self.grace_of(kind, &object, grace);
        let mut finalizers: Vec<Value> = items(&object, "/metadata/finalizers").to_vec();
        match policy {
            "Orphan" => with(&mut finalizers, ORPHAN, FOREGROUND),
            "Foreground" => with(&mut finalizers, FOREGROUND, ORPHAN),
            "Background" => finalizers.retain(|f| f != FOREGROUND && f != ORPHAN),
            // Without a policy the present finalizers decide.
            _ => {}
        }
        if kind.is(BuiltIn::CustomResourceDefinition) && !finalizers.iter().any(|f| f == custom::CLEANUP) {
            // Its custom objects are deleted first.
            finalizers.push(json!(custom::CLEANUP));
        }
        let must_wait = !finalizers.is_empty() || grace > 0 || kind.is(BuiltIn::Namespace);
        if !must_wait {
            let key = key_of(&object);
            if is_dry_run {
                return (stored.clone(), true);
            }
            let last = self.remove(kind, &key).unwrap_or_else(|| stored.clone());
            return (last, true);
        }
        set_finalizers(&mut object, finalizers);
        let after = std::time::Duration::from_secs(u64::try_from(grace).unwrap_or_default());
        let due = self.stamp_in(after);
        let meta = member(&mut object, "metadata");
        let is_first = meta.get("deletionTimestamp").is_none();
        let is_sooner =
            meta.get("deletionGracePeriodSeconds").and_then(Value::as_i64).is_some_and(|g| grace < g);
        if is_first || is_sooner {
            meta["deletionTimestamp"] = json!(due);
            meta["deletionGracePeriodSeconds"] = json!(grace);
        }
        if is_first && let Some(generation) = meta.get("generation").and_then(Value::as_i64) {
            meta["generation"] = json!(generation.saturating_add(1));
        }
        if kind.is(BuiltIn::Namespace) {
            member(&mut object, "status")["phase"] = json!("Terminating");
        }
        if object == **stored || is_dry_run {
            return (Arc::new(object), false);
        }
        (self.put(kind, object), false)
    }

    /// Returns the grace period in seconds; only Pods running on a node have one.
    fn grace_of(&self, kind: &Kind, object: &Value, asked: Option<i64>) -> i64 {
        if !kind.is(BuiltIn::Pod) || text(object, "/spec/nodeName").is_empty() {
            return 0;
        }
        if matches!(text(object, "/status/phase"), "Succeeded" | "Failed") {
            return 0;
        }
        let own = object.pointer("/spec/terminationGracePeriodSeconds").and_then(Value::as_i64);
        asked.or(own).unwrap_or(30).max(0)
    }
}

fn with(finalizers: &mut Vec<Value>, wanted: &str, other: &str) {
    finalizers.retain(|finalizer| finalizer != other);
    if !finalizers.iter().any(|finalizer| finalizer == wanted) {
        finalizers.push(json!(wanted));
    }
}

pub(super) fn set_finalizers(object: &mut Value, finalizers: Vec<Value>) {
    let meta = member(object, "metadata");
    if finalizers.is_empty() {
        meta.as_object_mut().map(|meta| meta.remove("finalizers"));
    } else {
        meta["finalizers"] = Value::Array(finalizers);
    }
}

fn is_dry_run(options: &DeleteOptions) -> bool {
    options.dry_run.as_ref().is_some_and(|stages| !stages.is_empty())
}

fn policy_of(options: &DeleteOptions) -> Outcome<&'static str> {
    if options.orphan_dependents == Some(true) {
        return Ok("Orphan");
    }
    match options.propagation_policy.as_deref().unwrap_or_default() {
        "" => Ok(""),
        "Background" => Ok("Background"),
        "Foreground" => Ok("Foreground"),
        "Orphan" => Ok("Orphan"),
        other => {
            let supported = ["Foreground", "Background", "Orphan", "nil"].map(str::to_owned);
            let cause = Cause::not_supported("propagationPolicy", &json!(other), &supported);
            Err(Failure::invalid_options("DeleteOptions", &[cause]))
        }
    }
}

fn check_preconditions(kind: &Kind, name: &str, options: &DeleteOptions, stored: &Value) -> Outcome<()> {
    let Some(preconditions) = &options.preconditions else { return Ok(()) };
    let about = [
        (&preconditions.uid, "uid", "UID", "The object might have been deleted and then recreated"),
        (
            &preconditions.resource_version,
            "resourceVersion",
            "ResourceVersion",
            "The object might have been modified",
        ),
    ];
    for (wanted, key, shown, guess) in about {
        let Some(wanted) = wanted else { continue };
        let found = text(stored, &format!("/metadata/{key}"));
        if wanted != found {
            let why = format!(
                "the {shown} in the precondition ({wanted}) does not match the {shown} in record ({found}). {guess}"
            );
            return Err(Failure::precondition(kind, name, &why));
        }
    }
    Ok(())
}

/// Returns whether the answer to a deletion is the deleted object, not a `Status`.
fn returns_deleted(kind: &Kind) -> bool {
    [BuiltIn::Pod, BuiltIn::Service, BuiltIn::ServiceAccount, BuiltIn::ResourceQuota]
        .into_iter()
        .any(|of| kind.is(of))
}

/// Returns the `Status` that answers an immediate deletion.
fn deleted(kind: &Kind, last: &Value) -> Value {
    let mut details = json!({
        "name": last["metadata"]["name"],
        "kind": kind.plural,
        "uid": last["metadata"]["uid"],
    });
    if !kind.group.is_empty() {
        details["group"] = json!(kind.group);
    }
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details})
}
