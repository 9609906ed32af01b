//! Create, update and patch of objects and their status.
//!
//! Checks run in a real server's order, so that a request with two mistakes gets the same error: the body's
//! form, the namespace, the version, the fields, quotas, then the name.

use std::io;
use std::sync::Arc;

use serde_json::{Value, json};

use super::apply::{self, Sent};
use super::body::{Claim, Source};
use super::builtin;
use super::core::{Core, key_of};
use super::custom;
use super::failure::{Cause, Failure, Outcome};
use super::kinds::{BuiltIn, Kind, Of};
use super::meta;
use super::patch;
use super::read::presented;
use super::reply::Answer;
use super::request::{Call, at, items, members, number, text};

/// The largest stored object, in bytes of JSON: etcd's limit for one request.
pub(super) const MAX_OBJECT: usize = 1536 * 1024;

impl Core {
    pub(super) fn create(&mut self, call: &Call) -> Outcome<Answer> {
        let kind = call.kind.clone();
        let mut object = call.json_body()?;
        let claim = Claim::of(&object);
        let sent = Sent::take(&kind, &mut object)?;
        let warnings = self.decode(call, &mut object, Source::Body)?;
        claim.check_custom(call, text(&object, "/metadata/name"))?;
        meta::check_identity(&kind, &mut object, &call.namespace, "")?;
        self.record(call, &mut object, None, sent);
        self.add(call, object, warnings)
    }

    /// Creates an object that is decoded.
    pub(super) fn add(
        &mut self,
        call: &Call,
        mut object: Value,
        mut warnings: Vec<String>,
    ) -> Outcome<Answer> {
        let kind = call.kind.clone();
        warnings.extend(meta::finalizer_warnings(&kind, &object, None));
        if kind.is_namespaced {
            self.check_namespace(&kind, &object, &call.namespace)?;
        }
        let version = text(&object, "/metadata/resourceVersion").to_owned();
        let (now, uid, suffix) = (self.stamp(), self.new_uid(), self.suffix());
        meta::before_create(&mut object, &now, &uid, &suffix);
        self.reset_on_create(&kind, &call.version, &mut object);
        let (mut causes, mut taken) = (Vec::new(), Vec::new());
        if kind.is(BuiltIn::Service) {
            self.allocate(&mut object, None, call.is_dry_run(), &mut taken)?;
        }
        self.check(&kind, &call.version, &object, None, &mut causes);
        // Allocation errors are reported only for an otherwise valid object.
        if causes.is_empty() {
            causes = taken;
        }
        let name = text(&object, "/metadata/name").to_owned();
        if !causes.is_empty() {
            return Err(Failure::invalid(&kind, &name, &causes));
        }
        self.check_quota(&kind, &object)?;
        if let Of::Custom(_) = kind.of {
            self.check_definition(&kind)?;
        }
        if self.store.get(&kind.resource, &call.namespace, &name).is_some() {
            return Err(Failure::already_exists(&kind, &name));
        }
        if !version.is_empty() {
            let why = "resourceVersion should not be set on objects to be created";
            return Err(Failure::new(500, "", why));
        }
        check_size(&object)?;
        let object = if call.is_dry_run() { Arc::new(object) } else { self.put(&kind, object) };
        Ok(Answer::new(201, &presented(&kind, &call.version, &object), warnings))
    }

    /// Updates or patches an object or its status.
    pub(super) fn update(&mut self, call: &Call) -> Outcome<Answer> {
        let kind = call.kind.clone();
        let stored = self.store.get(&kind.resource, &call.namespace, &call.name).cloned();
        let is_patch = call.verb == "patch";
        if is_patch {
            patch::check_media(&call.content_type, matches!(kind.of, Of::BuiltIn(_)))?;
        }
        if is_patch && patch::is_apply(&call.content_type) {
            return self.apply(call, stored);
        }
        let mut object = if is_patch {
            let stored = stored.as_ref().ok_or_else(|| Failure::not_found(&kind, &call.name))?;
            let shown = presented(&kind, &call.version, stored);
            let is_built_in = matches!(kind.of, Of::BuiltIn(_));
            patch::apply(&call.content_type, &shown, &call.body, is_built_in)?
        } else {
            call.json_body()?
        };
        if is_patch && call.content_type.starts_with(patch::STRATEGIC) {
            // A strategic patch applies to a typed object and cannot change its type.
            object["kind"] = json!(kind.kind);
            object["apiVersion"] = json!(call.api_version());
        }
        if text(&object, "/metadata/name").is_empty() && object.is_object() {
            return Err(Failure::bad_request(
                "the name of the object (a based on URL) was undeterminable: name must be provided",
            ));
        }
        let claim = Claim::of(&object);
        let sent = Sent::take(&kind, &mut object)?;
        let source = if is_patch { Source::Patch } else { Source::Body };
        let warnings = self.decode(call, &mut object, source).map_err(|failure| {
            // An invalid result is reported as an invalid patch.
            if is_patch { Failure::invalid_patch(&failure.message) } else { failure }
        })?;
        meta::check_identity(&kind, &mut object, &call.namespace, &call.name)?;
        let Some(stored) = stored else {
            let creates = matches!(kind.of, Of::BuiltIn(of) if builtin::allows_create_on_update(of));
            if creates && call.subresource.is_empty() {
                return self.create(call);
            }
            return Err(Failure::not_found(&kind, &call.name));
        };
        self.record(call, &mut object, Some(&stored), sent);
        self.replace(call, &claim, object, &stored, warnings)
    }

    /// Stores a decoded object in place of another.
    pub(super) fn replace(
        &mut self,
        call: &Call,
        claim: &Claim,
        mut object: Value,
        stored: &Arc<Value>,
        mut warnings: Vec<String>,
    ) -> Outcome<Answer> {
        let kind = call.kind.clone();
        self.check_version(&kind, call, &object, stored)?;
        claim.check_custom(call, &call.name)?;
        meta::before_update(&mut object, stored);
        if call.subresource == "status" {
            only_status(&kind, &mut object, stored);
        } else if kind.serves_status(&call.version) {
            set_or_remove(&mut object, "status", stored.get("status"));
        }
        if kind.is(BuiltIn::Namespace) {
            // Only the namespace's own deletion removes these.
            object["spec"]["finalizers"] = stored["spec"]["finalizers"].clone();
        }
        let (mut causes, mut taken) = (Vec::new(), Vec::new());
        if kind.is(BuiltIn::Service) && call.subresource.is_empty() {
            self.allocate(&mut object, Some(stored), call.is_dry_run(), &mut taken)?;
        }
        self.count_generation(&kind, &call.version, &mut object, stored);
        warnings.extend(meta::finalizer_warnings(&kind, &object, Some(stored)));
        meta::validate_update(&object, stored, &mut causes);
        self.check(&kind, &call.version, &object, Some(stored), &mut causes);
        if causes.is_empty() {
            causes = taken;
        }
        if !causes.is_empty() {
            return Err(Failure::invalid(&kind, &call.name, &causes));
        }
        check_size(&object)?;
        let object = self.store_update(&kind, object, stored, call.is_dry_run());
        Ok(Answer::new(200, &presented(&kind, &call.version, &object), warnings))
    }

    /// Stores an update, unless nothing changes; removes an object being deleted once its last finalizer is gone.
    pub(super) fn store_update(
        &mut self,
        kind: &Kind,
        mut object: Value,
        stored: &Arc<Value>,
        is_dry_run: bool,
    ) -> Arc<Value> {
        object["metadata"]["resourceVersion"] = stored["metadata"]["resourceVersion"].clone();
        if object == **stored || apply::differ_in_times_only(&object, stored) {
            return stored.clone();
        }
        let is_released = at(&object, "/metadata/deletionTimestamp").is_some()
            && items(&object, "/metadata/finalizers").is_empty()
            && at(&object, "/metadata/deletionGracePeriodSeconds").is_none_or(|seconds| *seconds == 0)
            && (!kind.is(BuiltIn::Namespace) || items(&object, "/spec/finalizers").is_empty());
        if is_dry_run {
            return Arc::new(object);
        }
        if is_released {
            let key = key_of(&object);
            // Watches see the object as last stored, the client as it updated it.
            self.remove(kind, &key);
            return Arc::new(object);
        }
        self.put(kind, object)
    }

    fn check_namespace(&self, kind: &Kind, object: &Value, namespace: &str) -> Outcome<()> {
        let namespaces = self.catalogue.built_in(BuiltIn::Namespace);
        let Some(found) = self.store.get(&namespaces.resource, "", namespace) else {
            return Err(Failure::not_found(&namespaces, namespace));
        };
        if text(found, "/status/phase") == "Terminating" {
            let name = text(object, "/metadata/name");
            let why = format!(
                "unable to create new content in namespace {namespace} because it is being terminated"
            );
            let message = format!("namespace {namespace} is being terminated");
            return Err(Failure::forbidden(kind, name, &why).because(
                "NamespaceTerminating",
                &message,
                "metadata.namespace",
            ));
        }
        Ok(())
    }

    fn check_definition(&self, kind: &Kind) -> Outcome<()> {
        let definitions = self.catalogue.built_in(BuiltIn::CustomResourceDefinition);
        let name = format!("{}.{}", kind.plural, kind.group);
        let crd = self.store.get(&definitions.resource, "", &name);
        if crd.is_some_and(|crd| crd.pointer("/metadata/deletionTimestamp").is_some()) {
            let why = "create not allowed while custom resource definition is terminating";
            return Err(Failure::forbidden(kind, "", why));
        }
        Ok(())
    }

    /// Replaces the status and generation that a client sends in a new object.
    fn reset_on_create(&self, kind: &Kind, version: &str, object: &mut Value) {
        let (status, generation) = match kind.of {
            Of::BuiltIn(of) => {
                let counts = builtin::generation_changes(of, object, object).is_some();
                (builtin::initial_status(of, object), counts)
            }
            Of::Custom(_) => (None, true),
        };
        if kind.serves_status(version) || status.is_some() {
            set_or_remove(object, "status", status.as_ref());
        }
        if generation {
            object["metadata"]["generation"] = json!(1);
        }
    }

    pub(super) fn count_generation(&self, kind: &Kind, version: &str, object: &mut Value, stored: &Value) {
        let changes = match kind.of {
            Of::BuiltIn(of) => builtin::generation_changes(of, object, stored).unwrap_or(false),
            Of::Custom(_) => {
                let has_status = kind.serves_status(version);
                let counts = |(key, _): &(&String, &Value)| match key.as_str() {
                    "metadata" | "kind" | "apiVersion" => false,
                    "status" => !has_status,
                    _ => true,
                };
                let rest = |object| members(object, "").into_iter().flatten().filter(counts);
                rest(object).ne(rest(stored))
            }
        };
        if changes {
            let generation = number(stored, "/metadata/generation").saturating_add(1);
            object["metadata"]["generation"] = json!(generation);
        }
    }

    pub(super) fn check(
        &self,
        kind: &Kind,
        version: &str,
        object: &Value,
        stored: Option<&Value>,
        causes: &mut Vec<Cause>,
    ) {
        meta::validate(kind, object, causes);
        match &kind.of {
            Of::BuiltIn(of) => builtin::validate(*of, object, stored, causes),
            Of::Custom(definition) => {
                let Some(version) = definition.version(version) else { return };
                custom::validate(object, &version.schema, causes);
                version.check_scale(object, causes);
                if let Some(stored) = stored {
                    ratchet(causes, object, stored);
                }
                version.check_rules(object, stored, causes);
            }
        }
    }

    fn check_version(&self, kind: &Kind, call: &Call, object: &Value, stored: &Value) -> Outcome<()> {
        let sent = text(object, "/metadata/uid");
        let uid = text(stored, "/metadata/uid");
        // A patch that changes the uid is refused later, as a change of an immutable field.
        if !sent.is_empty() && sent != uid && call.verb != "patch" {
            let why = format!("Precondition failed: UID in precondition: {sent}, UID in object meta: {uid}");
            return Err(Failure::conflict(kind, &call.name, &why));
        }
        let version = text(object, "/metadata/resourceVersion");
        if version.is_empty() || version == "0" {
            let allows = matches!(kind.of, Of::BuiltIn(of) if builtin::allows_unconditional_update(of));
            if !allows {
                let cause =
                    Cause::invalid("metadata.resourceVersion", &json!(0), "must be specified for an update");
                return Err(Failure::invalid_resource(kind, &call.name, &[cause]));
            }
            return Ok(());
        }
        if version.parse::<u64>().is_err() {
            let cause = Cause::invalid(
                "metadata.resourceVersion",
                &json!(version),
                "strconv.ParseUint: invalid syntax",
            );
            return Err(Failure::invalid(kind, &call.name, &[cause]));
        }
        if version != text(stored, "/metadata/resourceVersion") {
            return Err(Failure::modified(kind, &call.name));
        }
        Ok(())
    }
}

/// Limits an update of `status` to the status; built-in kinds also accept metadata.
fn only_status(kind: &Kind, object: &mut Value, stored: &Value) {
    let status = object.get("status").cloned();
    let version = at(object, "/metadata/resourceVersion").cloned();
    let metadata = object["metadata"].take();
    let managers = metadata.get("managedFields").cloned();
    *object = stored.clone();
    if matches!(kind.of, Of::BuiltIn(_)) {
        object["metadata"] = metadata;
        if kind.is(BuiltIn::Deployment) {
            set_or_remove(&mut object["metadata"], "labels", at(stored, "/metadata/labels"));
        }
    }
    set_or_remove(object, "status", status.as_ref());
    set_or_remove(&mut object["metadata"], "managedFields", managers.as_ref());
    if let Some(version) = version {
        object["metadata"]["resourceVersion"] = version;
    }
}

fn set_or_remove(object: &mut Value, key: &str, value: Option<&Value>) {
    match value {
        Some(value) => object[key] = value.clone(),
        None => {
            if let Some(object) = object.as_object_mut() {
                object.remove(key);
            }
        }
    }
}

/// Counts what is written to it.
struct Size(usize);

// === impl Size ===

impl io::Write for Size {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Refuses an object too large for etcd; a real server gives no reason either.
pub(super) fn check_size(object: &Value) -> Outcome<()> {
    let mut size = Size(0);
    serde_json::to_writer(&mut size, object).expect("JSON can be counted");
    if size.0 > MAX_OBJECT {
        return Err(Failure::new(500, "", "etcdserver: request is too large"));
    }
    Ok(())
}

/// Drops errors in unchanged fields, as CRD validation ratcheting does. A path that leads nowhere, such as one
/// with a dot in a key, counts as changed.
fn ratchet(causes: &mut Vec<Cause>, object: &Value, stored: &Value) {
    let is_untouched = |path: &str| object.pointer(path).is_some_and(|now| stored.pointer(path) == Some(now));
    causes.retain(|cause| {
        if cause.field.starts_with("metadata") {
            return true;
        }
        let field = cause.field.trim_start_matches('.');
        let path = format!("/{}", field.replace(['.', '['], "/").replace(']', ""));
        let parent = path.rsplit_once('/').map_or("", |(parent, _)| parent);
        // A missing field is an error of its parent, a repeated item one of its list.
        let is_of_parent = cause.is_duplicate() || object.pointer(&path).is_none();
        !is_untouched(if is_of_parent { parent } else { &path })
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(field: &str, object: &Value, stored: &Value, is_kept: bool) {
        let mut causes = vec![Cause::required(field, "")];
        ratchet(&mut causes, object, stored);
        assert_eq!(!causes.is_empty(), is_kept, "{field}");
    }

    #[test]
    fn ratcheting_ignores_errors_in_unchanged_fields() {
        let stored = json!({"spec": {"name": "", "labels": {"a": "x"}}});
        let object = json!({"spec": {"name": "", "labels": {"a": 1, "b.c/d": 1}}});
        check("spec.name", &object, &stored, false);
        check("spec.labels.a", &object, &stored, true);
        check("spec.labels.b.c/d", &object, &stored, true);
        check("spec.replicas", &object, &stored, true);
        check("spec.replicas", &stored, &stored, false);
        let tags = |first: &str| json!({"spec": {"tags": [first, "a"]}});
        let mut causes = vec![Cause::duplicate("spec.tags[1]", &json!("a"))];
        ratchet(&mut causes, &tags("a"), &tags("b"));
        assert_eq!(causes.len(), 1, "the item is as before, the list is not");
        ratchet(&mut causes, &tags("a"), &tags("a"));
        assert!(causes.is_empty());
    }
}
