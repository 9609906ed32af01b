//! Writing: create, update, the three patches, `status` and `scale`.
//!
//! The order of the checks is a real server's, so that of two mistakes the same one is named: the body's
//! form, whether the namespace takes new objects, the version, the fields, quotas, and then the name.

use std::sync::Arc;

use serde_json::{Value, json};

use super::builtin;
use super::core::{Answer, Core, key_of};
use super::custom;
use super::failure::{Cause, Failure, Outcome};
use super::kinds::{BuiltIn, Kind, Of};
use super::meta;
use super::patch;
use super::read::presented;
use super::request::{Call, items, text};

/// What a body has too much, and what is done about it.
struct Strictness {
    is_strict: bool,
    warns: bool,
}

// === impl Strictness ===

impl Strictness {
    fn of(call: &Call) -> Outcome<Self> {
        match call.query.get("fieldValidation") {
            "Strict" => Ok(Self { is_strict: true, warns: false }),
            "" | "Warn" => Ok(Self { is_strict: false, warns: true }),
            "Ignore" => Ok(Self { is_strict: false, warns: false }),
            other => {
                let supported = ["Ignore", "Warn", "Strict"];
                Err(Failure::bad_request(format!(
                    "fieldValidation: Unsupported value: {other:?}: supported values: {supported:?}"
                )))
            }
        }
    }

    fn judge(&self, call: &Call, mut problems: Vec<String>) -> Outcome<Vec<String>> {
        problems.sort();
        if self.is_strict && !problems.is_empty() {
            let problems = problems.join(", ");
            return Err(Failure::bad_request(format!(
                "{0} in version {1:?} cannot be handled as a {0}: strict decoding error: {problems}",
                call.kind.kind, call.version
            )));
        }
        Ok(if self.warns { problems } else { Vec::new() })
    }
}

impl Core {
    pub(super) fn create(&mut self, call: &Call) -> Outcome<Answer> {
        let kind = call.kind.clone();
        let mut object = call.json_body()?;
        let claim = Claim::of(&object);
        let warnings = self.decode(call, &mut object, true)?;
        claim.check_custom(call, text(&object, "/metadata/name"))?;
        meta::check_identity(&kind, &mut object, &call.namespace, "")?;
        if kind.is_namespaced {
            self.check_namespace(&kind, &object, &call.namespace)?;
        }
        let version = text(&object, "/metadata/resourceVersion").to_owned();
        let (now, uid, suffix) = (self.stamp(), self.new_uid(), self.suffix());
        meta::before_create(&mut object, &now, &uid, &suffix);
        self.reset_on_create(&kind, &call.version, &mut object);
        let (mut causes, mut taken) = (Vec::new(), Vec::new());
        if kind.is(BuiltIn::Service) {
            self.allocate(&mut object, None, call.is_dry_run(), &mut taken);
        }
        self.check(&kind, &call.version, &object, None, &mut causes);
        // Only what is right is given addresses and ports.
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
        let object = if call.is_dry_run() { Arc::new(object) } else { self.put(&kind, object) };
        Ok(Answer { code: 201, body: presented(&kind, &call.version, &object), warnings })
    }

    /// Update and patch, of an object or of its status.
    pub(super) fn update(&mut self, call: &Call) -> Outcome<Answer> {
        let kind = call.kind.clone();
        let stored = self.store.get(&kind.resource, &call.namespace, &call.name).cloned();
        let is_patch = call.verb == "patch";
        if is_patch {
            patch::check_media(&call.content_type, matches!(kind.of, Of::BuiltIn(_)))?;
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
            // It is applied to a typed object, whose type it cannot change.
            object["kind"] = json!(kind.kind);
            object["apiVersion"] = json!(call.api_version());
        }
        if text(&object, "/metadata/name").is_empty() && object.is_object() {
            return Err(Failure::bad_request(
                "the name of the object (a based on URL) was undeterminable: name must be provided",
            ));
        }
        let claim = Claim::of(&object);
        let warnings = self.decode(call, &mut object, !is_patch).map_err(|failure| {
            // What a patch makes is judged as the patch's.
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
        self.check_version(&kind, call, &object, &stored)?;
        claim.check_custom(call, &call.name)?;
        meta::before_update(&mut object, &stored);
        if call.subresource == "status" {
            only_status(&kind, &mut object, &stored);
        } else if kind.serves_status(&call.version) {
            set_or_remove(&mut object, "status", stored.get("status"));
        }
        if kind.is(BuiltIn::Namespace) {
            // These are ended by the namespace's own end alone.
            object["spec"]["finalizers"] = stored["spec"]["finalizers"].clone();
        }
        let (mut causes, mut taken) = (Vec::new(), Vec::new());
        if kind.is(BuiltIn::Service) && call.subresource.is_empty() {
            self.allocate(&mut object, Some(&stored), call.is_dry_run(), &mut taken);
        }
        self.count_generation(&kind, &call.version, &mut object, &stored);
        meta::validate_update(&object, &stored, &mut causes);
        self.check(&kind, &call.version, &object, Some(&stored), &mut causes);
        if causes.is_empty() {
            causes = taken;
        }
        if !causes.is_empty() {
            return Err(Failure::invalid(&kind, &call.name, &causes));
        }
        let object = self.store_update(&kind, object, &stored, call.is_dry_run());
        Ok(Answer { code: 200, body: presented(&kind, &call.version, &object), warnings })
    }

    /// Stores an update: not at all when nothing differs, and as a deletion when the last finalizer of an
    /// object that is being deleted has gone.
    pub(super) fn store_update(
        &mut self,
        kind: &Kind,
        mut object: Value,
        stored: &Arc<Value>,
        is_dry_run: bool,
    ) -> Arc<Value> {
        object["metadata"]["resourceVersion"] = stored["metadata"]["resourceVersion"].clone();
        if object == **stored {
            return stored.clone();
        }
        let is_released = object.pointer("/metadata/deletionTimestamp").is_some()
            && items(&object, "/metadata/finalizers").is_empty()
            && object.pointer("/metadata/deletionGracePeriodSeconds").is_none_or(|seconds| *seconds == 0)
            && (!kind.is(BuiltIn::Namespace) || items(&object, "/spec/finalizers").is_empty());
        if is_dry_run {
            return Arc::new(object);
        }
        if is_released {
            let key = key_of(&object);
            // Watches see what was stored before, the sender what it has made of it.
            self.remove(kind, &key);
            return Arc::new(object);
        }
        self.put(kind, object)
    }

    /// Brings a body into the form in which it is stored; returns warnings.
    fn decode(&self, call: &Call, object: &mut Value, is_body: bool) -> Outcome<Vec<String>> {
        let kind = &call.kind;
        if !object.is_object() {
            return Err(Failure::bad_request("the object provided is unrecognized: it is no JSON object"));
        }
        let strictness = Strictness::of(call)?;
        check_type_is_text(call, object)?;
        Claim::of(object).check(call, !is_body)?;
        object["kind"] = json!(kind.kind);
        object["apiVersion"] = json!(call.api_version());
        let mut unknown = Vec::new();
        let cannot = |why: String| {
            let name = &kind.kind;
            Failure::bad_request(format!(
                "{name} in version {:?} cannot be handled as a {name}: {why}",
                call.version
            ))
        };
        meta::normalize(object, &mut unknown).map_err(cannot)?;
        match &kind.of {
            Of::BuiltIn(of) => {
                builtin::decode(*of, object, &mut unknown).map_err(cannot)?;
                if *of == BuiltIn::EventV1 {
                    builtin::event_to_v1(object);
                }
                builtin::default(*of, object);
            }
            Of::Custom(definition) => {
                let Some(version) = definition.version(&call.version) else {
                    return Err(Failure::no_such_path());
                };
                custom::prune(object, &version.schema, "", true, &mut unknown);
                custom::default(object, &version.schema);
            }
        }
        let mut problems: Vec<String> =
            unknown.iter().map(|path| format!("unknown field {path:?}")).collect();
        if is_body {
            let twice = super::duplicates::find(&call.body);
            problems.extend(twice.into_iter().map(|path| format!("duplicate field {path:?}")));
        }
        strictness.judge(call, problems)
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

    /// What a client sends of status and generation in a new object is not kept.
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

    fn count_generation(&self, kind: &Kind, version: &str, object: &mut Value, stored: &Value) {
        let changes = match kind.of {
            Of::BuiltIn(of) => builtin::generation_changes(of, object, stored).unwrap_or(false),
            Of::Custom(_) => {
                let has_status = kind.serves_status(version);
                let rest = |object: &Value| {
                    let mut rest = object.as_object().cloned().unwrap_or_default();
                    for key in ["metadata", "kind", "apiVersion"] {
                        rest.remove(key);
                    }
                    if has_status {
                        rest.remove("status");
                    }
                    rest
                };
                rest(object) != rest(stored)
            }
        };
        if changes {
            let generation =
                stored.pointer("/metadata/generation").and_then(Value::as_i64).unwrap_or_default();
            object["metadata"]["generation"] = json!(generation + 1);
        }
    }

    fn check(
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
        // A patch that changes the uid is refused as a change of what may not change.
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

    /// The subresource `scale`.
    pub(super) fn scale(&mut self, call: &Call) -> Outcome<Answer> {
        let kind = call.kind.clone();
        let stored = self.store.get(&kind.resource, &call.namespace, &call.name).cloned();
        let stored = stored.ok_or_else(|| Failure::not_found(&kind, &call.name))?;
        let (spec_path, status_path, selector) = scale_of(&kind, &call.version, &stored);
        let shown = |object: &Value| {
            let number = |path: &str| object.pointer(path).and_then(Value::as_i64).unwrap_or_default();
            let mut scale = json!({
                "kind": "Scale",
                "apiVersion": "autoscaling/v1",
                "metadata": {},
                "spec": {},
                "status": {"replicas": number(&status_path)},
            });
            // Go leaves out a zero here, and not in the status.
            if number(&spec_path) != 0 {
                scale["spec"]["replicas"] = json!(number(&spec_path));
            }
            for key in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
                scale["metadata"][key] = object["metadata"][key].clone();
            }
            if !selector.is_empty() {
                scale["status"]["selector"] = json!(selector);
            }
            scale
        };
        if call.verb == "get" {
            return Ok(Answer::ok(shown(&stored)));
        }
        let sent = if call.verb == "patch" {
            patch::apply(&call.content_type, &shown(&stored), &call.body, true)?
        } else {
            call.json_body()?
        };
        let replicas = sent.pointer("/spec/replicas").cloned().unwrap_or(json!(0));
        let Some(replicas) = replicas.as_i64().filter(|replicas| i32::try_from(*replicas).is_ok()) else {
            return Err(Failure::bad_request(
                "Scale in version \"v1\" cannot be handled as a Scale: spec.replicas is a number",
            ));
        };
        let version = text(&sent, "/metadata/resourceVersion");
        if !version.is_empty() && version != text(&stored, "/metadata/resourceVersion") {
            return Err(Failure::modified(&kind, &call.name));
        }
        if replicas < 0 && matches!(kind.of, Of::BuiltIn(_)) {
            let cause =
                Cause::invalid("spec.replicas", &json!(replicas), "must be greater than or equal to 0");
            return Err(Failure::invalid_as("Scale", "autoscaling", &call.name, &[cause]));
        }
        let mut object = Value::clone(&stored);
        super::world::set(&mut object, &spec_path, json!(replicas));
        self.count_generation(&kind, &call.version, &mut object, &stored);
        let mut causes = Vec::new();
        self.check(&kind, &call.version, &object, Some(&stored), &mut causes);
        if !causes.is_empty() {
            return Err(Failure::invalid(&kind, &call.name, &causes));
        }
        let object = self.store_update(&kind, object, &stored, call.is_dry_run());
        Ok(Answer::ok(shown(&object)))
    }
}

/// Where a kind keeps its replicas, and the selector of its Pods as text.
fn scale_of(kind: &Kind, version: &str, object: &Value) -> (String, String, String) {
    if let Of::Custom(definition) = &kind.of
        && let Some(scale) = definition.version(version).and_then(|version| version.scale.as_ref())
    {
        let selector = scale.selector.as_deref().map_or("", |path| text(object, path));
        return (scale.spec_replicas.clone(), scale.status_replicas.clone(), selector.to_owned());
    }
    let labels = super::request::members(object, "/spec/selector/matchLabels");
    let terms = labels.into_iter().flatten();
    let terms: Vec<String> =
        terms.map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default())).collect();
    ("/spec/replicas".to_owned(), "/status/replicas".to_owned(), terms.join(","))
}

/// Of a body for `status` only the status counts; built-in kinds also take annotations and labels.
fn only_status(kind: &Kind, object: &mut Value, stored: &Value) {
    let status = object.get("status").cloned();
    let version = object.pointer("/metadata/resourceVersion").cloned();
    let metadata = object["metadata"].take();
    *object = stored.clone();
    if matches!(kind.of, Of::BuiltIn(_)) {
        object["metadata"] = metadata;
        if kind.is(BuiltIn::Deployment) {
            set_or_remove(&mut object["metadata"], "labels", stored.pointer("/metadata/labels"));
        }
    }
    set_or_remove(object, "status", status.as_ref());
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

/// What was wrong before and has not been touched is let pass, as CRD validation ratcheting does.
fn ratchet(causes: &mut Vec<Cause>, object: &Value, stored: &Value) {
    causes.retain(|cause| {
        if cause.field.starts_with("metadata") {
            return true;
        }
        let field = cause.field.trim_start_matches('.');
        let path = format!("/{}", field.replace(['.', '['], "/").replace(']', ""));
        let (now, before) = (object.pointer(&path), stored.pointer(&path));
        if now.is_some() {
            return now != before;
        }
        // What is missing is the mistake of the object around it.
        let parent = path.rsplit_once('/').map_or("", |(parent, _)| parent);
        object.pointer(parent) != stored.pointer(parent)
    });
}

/// What a body claims to be.
struct Claim {
    kind: String,
    version: String,
}

// === impl Claim ===

impl Claim {
    fn of(object: &Value) -> Self {
        Self { kind: text(object, "/kind").to_owned(), version: text(object, "/apiVersion").to_owned() }
    }

    /// Whether it fits the path, as far as that is known before decoding. Of a custom resource another kind is
    /// noticed later, and in a patch another version too.
    fn check(&self, call: &Call, is_patch: bool) -> Outcome<()> {
        let is_custom = matches!(call.kind.of, Of::Custom(_));
        let wanted = call.api_version();
        if self.kind.is_empty() && self.version.is_empty() {
            // Clients with types of their own may leave both out for built-in kinds.
            if is_custom {
                let why = "Object 'Kind' is missing in the body: write apiVersion and kind";
                return Err(Failure::bad_request(why));
            }
            return Ok(());
        }
        let (has_kind, has_version) = (self.kind == call.kind.kind, self.version == wanted);
        if !has_version && (has_kind || is_custom) && !(is_custom && is_patch) {
            return Err(Failure::bad_request(format!(
                "the API version in the data ({}) does not match the expected API version ({wanted})",
                self.version
            )));
        }
        if is_custom || has_kind && has_version {
            return Ok(());
        }
        Err(Failure::bad_request(format!(
            "{} in version {:?} cannot be handled as a {kind}: converting ({}.{}) to ({wanted}.{kind}): unknown \
             conversion",
            self.kind,
            call.version,
            self.version,
            self.kind,
            kind = call.kind.kind
        )))
    }

    /// What of a custom resource is noticed late.
    fn check_custom(&self, call: &Call, name: &str) -> Outcome<()> {
        let mut causes = Vec::new();
        for (field, found, wanted) in
            [("apiVersion", &self.version, &call.api_version()), ("kind", &self.kind, &call.kind.kind)]
        {
            if !found.is_empty() && found != wanted {
                causes.push(Cause::invalid(field, &json!(found), &format!("must be {wanted}")));
            }
        }
        if causes.is_empty() || !matches!(call.kind.of, Of::Custom(_)) {
            return Ok(());
        }
        let group = self.version.split_once('/').map_or("", |(group, _)| group);
        Err(Failure::invalid_as(&self.kind, group, name, &causes))
    }
}

/// The names of a kind and a version are text.
fn check_type_is_text(call: &Call, object: &Value) -> Outcome<()> {
    for key in ["kind", "apiVersion"] {
        if object.get(key).is_some_and(|value| !value.is_string() && !value.is_null()) {
            return Err(Failure::bad_request(format!(
                "the object provided is unrecognized (must be of type {}): couldn't get version/kind: {key} is no text",
                call.kind.kind
            )));
        }
    }
    Ok(())
}
