//! Server-side apply, and the `managedFields` that it needs.
//!
//! ```text
//!  body of an apply ─┐ typed: merge, prune      ┌─▶ the new object, then as for any update: `write`
//!  stored object ────┤ managers: conflicts ─────┤
//!  managedFields ────┘                          └─▶ managedFields
//! ```
//!
//! | file | holds |
//! |---|---|
//! | `mod.rs` | the requests: apply, and what other writes do to managers |
//! | `managers.rs` | who owns what; conflicts |
//! | `typed.rs` | values with a schema: fields, comparison, merge, removal |
//! | `set.rs` | sets of field paths, `fieldsV1` |
//! | `types.rs`, `lists.rs` | schemas: which lists and maps merge, by which keys |
//!
//! # Guarantees
//! - An apply changes nothing that another manager owns, unless forced (test: `conflict_names_manager_and_field`)
//! - What an applier no longer applies goes, unless somebody else owns it (test: `field_goes_with_its_last_owner`)
//! - An apply that changes nothing keeps the version (test: `repeated_apply_keeps_the_version`)
//! - Other writes own what they change (test: `updates_own_what_they_change`)

mod lists;
mod managers;
mod set;
mod typed;
mod types;

use std::sync::Arc;

use serde_json::{Value, json};

use super::body::{self, Claim, Source};
use super::core::Core;
use super::failure::{Failure, Outcome};
use super::kinds::{BuiltIn, Kind, Of};
use super::meta;
use super::read::presented;
use super::reply::Answer;
use super::request::{Call, items, text};
pub(super) use lists::annotate;
pub(super) use managers::differ_in_times_only;
use managers::{Conflicts, Id, Managers, Write};
use set::{Fields, Path, Step};
use types::Type;

/// The field manager of the simulated controllers.
pub(super) const CONTROLLER: &str = "kube-controller-manager";

/// What a client sends as `managedFields`.
pub(super) enum Sent {
    Nothing,
    /// An empty list, or one with an empty entry: nobody owns anything.
    Reset,
    Entries(Vec<Value>),
}

// === impl Sent ===

impl Sent {
    /// Takes `managedFields` out of a body. An empty list in a custom object resets nothing.
    pub(super) fn take(kind: &Kind, object: &mut Value) -> Outcome<Self> {
        let is_custom = matches!(kind.of, Of::Custom(_));
        let metadata = object.get_mut("metadata").and_then(Value::as_object_mut);
        match metadata.and_then(|metadata| metadata.remove("managedFields")) {
            None | Some(Value::Null) => Ok(Self::Nothing),
            Some(Value::Array(entries)) if is_custom && entries.is_empty() => Ok(Self::Nothing),
            Some(Value::Array(entries)) if entries.is_empty() || entries[..] == [json!({})] => {
                Ok(Self::Reset)
            }
            Some(Value::Array(entries)) => Ok(Self::Entries(entries)),
            Some(other) => Err(Failure::bad_request(format!(
                "json: cannot unmarshal {} into Go struct field ObjectMeta.metadata.managedFields of type \
                 []v1.ManagedFieldsEntry",
                meta::type_of(&other)
            ))),
        }
    }
}

/// Returns whether managers of a kind are tracked: those of Events, which have two forms, are not.
fn is_tracked(kind: &Kind) -> bool {
    !kind.is(BuiltIn::Event) && !kind.is(BuiltIn::EventV1)
}

/// Returns the managers in an object.
fn stored_managers(object: &Value) -> Managers {
    // A real server forgets what it cannot read, too.
    Managers::decode(items(object, "/metadata/managedFields")).unwrap_or_default()
}

/// Writes the managers into an object.
fn set_managers(object: &mut Value, managers: &Managers) {
    let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else { return };
    if managers.is_empty() {
        metadata.remove("managedFields");
    } else {
        metadata.insert("managedFields".to_owned(), Value::Array(managers.encoded()));
    }
}

/// Returns an object in a version, without its managers.
fn bare(kind: &Kind, version: &str, object: &Value) -> Value {
    let mut bare = presented(kind, version, object).into_owned();
    if let Some(metadata) = bare.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
    bare
}

/// Returns an object for a comparison, with the empty members that Go writes.
fn compared(kind: &Kind, version: &str, object: &Value) -> Value {
    let mut compared = bare(kind, version, object);
    if let Of::BuiltIn(of) = kind.of {
        lists::fill(of, &mut compared);
    }
    compared
}

/// Returns what an object is compared with when all of it is new.
fn empty(kind: &Kind, version: &str) -> Value {
    let object = match kind.of {
        Of::BuiltIn(of) => lists::empty(of),
        Of::Custom(_) => json!({}),
    };
    presented(kind, version, &object).into_owned()
}

/// Returns the fields that a write cannot set, because the server resets them.
fn ignored(kind: &Kind, version: &str, subresource: &str) -> Fields {
    match (&kind.of, subresource) {
        (Of::Custom(_), "status") => Fields::of([&["metadata"][..], &["spec"]]),
        (Of::BuiltIn(BuiltIn::Deployment), "status") => Fields::of([&["spec"][..], &["metadata", "labels"]]),
        (Of::BuiltIn(BuiltIn::Pod), "status") => {
            Fields::of([&["spec"][..], &["metadata", "deletionTimestamp"], &["metadata", "ownerReferences"]])
        }
        (_, "status") => Fields::of([&["spec"][..]]),
        _ if kind.serves_status(version) => Fields::of([&["status"][..]]),
        _ => Fields::default(),
    }
}

/// Converts a JSON pointer to a path.
fn path_of(pointer: &str) -> Path {
    pointer.split('/').skip(1).map(Step::field).collect()
}

fn refused(conflicts: &Conflicts) -> Box<Failure> {
    Failure::apply_conflict(conflicts.message(), conflicts.causes())
}

/// Checks that a configuration is of the kind and version in the path.
fn check_type(config: &Value, api_version: &str, kind: &str) -> Outcome<()> {
    let of = |version: &str, kind: &str| match version.contains('/') {
        true => format!("{version}, Kind={kind}"),
        false => format!("/{version}, Kind={kind}"),
    };
    let (version, sent) = (text(config, "/apiVersion"), text(config, "/kind"));
    if (version, sent) != (api_version, kind) {
        return Err(Failure::bad_request(format!("invalid object type: {}", of(version, sent))));
    }
    if config.pointer("/metadata/managedFields").is_some_and(|fields| !fields.is_null()) {
        return Err(Failure::bad_request("metadata.managedFields must be nil"));
    }
    Ok(())
}

/// Parses the body of an apply. JSON is YAML; other YAML is refused.
fn parse(call: &Call) -> Outcome<Value> {
    let config: Value = serde_json::from_slice(&call.body).map_err(|error| {
        Failure::bad_request(format!(
            "error decoding patch: this server reads only YAML that is JSON: {error}"
        ))
    })?;
    if config.is_object() {
        Ok(config)
    } else {
        Err(Failure::bad_request("error decoding patch: it is no object"))
    }
}

impl Core {
    /// Applies a configuration to an object, or creates it.
    pub(super) fn apply(&mut self, call: &Call, stored: Option<Arc<Value>>) -> Outcome<Answer> {
        let kind = call.kind.clone();
        if !is_tracked(&kind) {
            let why = "this server has no server-side apply for Events: create them, or send another patch";
            return Err(Failure::unsupported_media_type(why));
        }
        let config = parse(call)?;
        check_type(&config, &call.api_version(), &kind.kind)?;
        let of = Type::of_kind(&kind, &call.api_version()).ok_or_else(Failure::no_such_path)?;
        typed::validate(&config, of).map_err(|why| {
            let (at, what) = (format!("{}/{}", call.namespace, call.name), call.api_version());
            let group = if what.contains('/') { "" } else { "/" };
            let what = format!("{group}{what}, Kind={}", kind.kind);
            Failure::new(500, "", format!("failed to create typed patch object ({at}; {what}): {why}"))
        })?;
        let live = stored.as_ref().map_or_else(
            || presented(&kind, &call.version, &json!({})).into_owned(),
            |stored| bare(&kind, &call.version, stored),
        );
        let mut managers = stored.as_deref().map(stored_managers).unwrap_or_default();
        let type_in = |version: &str| Type::of_kind(&kind, version);
        let id = Id::apply(call.query.get("fieldManager"), &call.subresource);
        let write = Write { type_in: &type_in, ..self.write(&kind, &call.version, id) };
        if let Some(stored) = stored.as_ref().filter(|_| managers.is_empty()) {
            managers.begin(&empty(&kind, &call.version), &compared(&kind, &call.version, stored), &write);
        }
        let applied = managers.apply(&live, &config, &write, of, call.query.is_true("force"));
        let mut object = applied.map_err(|conflicts| refused(&conflicts))?;
        self.check_target(call, &object, stored.is_some())?;
        let claim = Claim::of(&object);
        let mut warnings = body::check_duplicates(call)?;
        warnings.extend(self.decode(call, &mut object, Source::Apply).map_err(|failure| {
            Failure::new(500, "", format!("failed to convert new typed object: {}", failure.message))
        })?);
        meta::check_identity(&kind, &mut object, &call.namespace, &call.name)?;
        set_managers(&mut object, &managers);
        match stored {
            Some(stored) => self.replace(call, &claim, object, &stored, warnings),
            None => self.add(call, object, warnings),
        }
    }

    /// Checks that the object that an apply makes is the one in the path.
    fn check_target(&self, call: &Call, object: &Value, exists: bool) -> Outcome<()> {
        let uid = text(object, "/metadata/uid");
        if !exists && !uid.is_empty() {
            let why = format!(
                "uid mismatch: the provided object specified uid {uid}, and no existing object was found"
            );
            return Err(Failure::conflict(&call.kind, &call.name, &why));
        }
        if text(object, "/metadata/name").is_empty() {
            return Err(Failure::bad_request(
                "the name of the object (a based on URL) was undeterminable: name must be provided",
            ));
        }
        if !exists && !call.subresource.is_empty() {
            return Err(Failure::not_found(&call.kind, &call.name));
        }
        Ok(())
    }

    fn write(&self, kind: &Kind, version: &str, id: Id) -> Write<'static> {
        Write {
            version: kind.api_version(version),
            now: self.stamp(),
            ignored: ignored(kind, version, &id.subresource),
            type_in: &|_| None,
            id,
        }
    }

    /// Records what a write other than an apply changes, before the server does its part: sets `managedFields`.
    pub(super) fn record(&self, call: &Call, object: &mut Value, stored: Option<&Value>, sent: Sent) {
        let kind = &call.kind;
        let before = stored.map(stored_managers).unwrap_or_default();
        let mut managers = match sent {
            _ if !call.subresource.is_empty() => before,
            Sent::Nothing => before,
            Sent::Reset => Managers::default(),
            Sent::Entries(entries) => Managers::decode(&entries).unwrap_or(before),
        };
        let begins = stored.is_none() && self.settings.tracks_managers;
        if !is_tracked(kind) || managers.is_empty() && !begins {
            return;
        }
        let live =
            stored.map_or_else(|| empty(kind, &call.version), |stored| compared(kind, &call.version, stored));
        let new = compared(kind, &call.version, object);
        let id = Id::update(&call.manager(), &call.api_version(), &call.subresource);
        let type_in = |version: &str| Type::of_kind(kind, version);
        managers.update(&live, &new, &Write { type_in: &type_in, ..self.write(kind, &call.version, id) });
        set_managers(object, &managers);
    }

    /// Records what a simulated controller or kubelet writes to a status.
    pub(super) fn record_status(&self, kind: &Kind, object: &mut Value, stored: &Value) {
        let mut managers = stored_managers(stored);
        let Some(version) = kind.versions.first().filter(|_| !managers.is_empty()) else { return };
        let manager = if kind.is(BuiltIn::Pod) { "kubelet" } else { CONTROLLER };
        let id = Id::update(manager, &kind.api_version(version), "status");
        let type_in = |version: &str| Type::of_kind(kind, version);
        let write = Write { type_in: &type_in, ..self.write(kind, version, id) };
        managers.update(&compared(kind, version, stored), &compared(kind, version, object), &write);
        set_managers(object, &managers);
    }
}

/// Records that a manager has scaled an object, whose replicas are at `pointer`.
pub(super) fn record_scale(
    kind: &Kind,
    version: &str,
    pointer: &str,
    manager: &str,
    object: &mut Value,
    stored: &Value,
) {
    let mut managers = stored_managers(stored);
    if managers.is_empty() || object.pointer(pointer) == stored.pointer(pointer) {
        return;
    }
    let version = kind.api_version(version);
    managers.hand_over(&path_of(pointer), Id::update(manager, &version, "scale"), &version);
    set_managers(object, &managers);
}

/// An apply to the subresource `scale`.
pub(super) struct AppliedScale {
    /// The configuration's replicas, if it has any.
    pub(super) replicas: Option<Value>,
    managers: Managers,
}

// === impl AppliedScale ===

impl AppliedScale {
    /// Returns the scale with the applied replicas.
    pub(super) fn onto(&self, mut scale: Value) -> Value {
        if let Some(replicas) = &self.replicas {
            scale["spec"]["replicas"] = replicas.clone();
        }
        scale
    }

    /// Reads the configuration, and checks that it takes the replicas of `stored` from nobody.
    pub(super) fn check(call: &Call, stored: &Value, pointer: &str) -> Outcome<Self> {
        if matches!(call.kind.of, Of::Custom(_)) {
            // A real server cannot do it.
            let why = "request to convert CR to an invalid group/version: autoscaling/v1";
            return Err(Failure::new(500, "", why));
        }
        let config = parse(call)?;
        check_type(&config, managers::SCALE, "Scale")?;
        let replicas = config.pointer("/spec/replicas").cloned();
        let (path, version) = (path_of(pointer), call.api_version());
        let mut managers = stored_managers(stored);
        let id = Id::apply(call.query.get("fieldManager"), "scale");
        if replicas.is_some() && replicas.as_ref() != stored.pointer(pointer) {
            let conflicts = managers.conflicts_of_scale(&path, &id);
            if !conflicts.is_empty() && !call.query.is_true("force") {
                return Err(refused(&conflicts));
            }
            managers.hand_over(&path, id, &version);
        } else if replicas.is_some() {
            managers.take_from_updaters(&path);
            managers.share(&path, id, &version);
        }
        Ok(Self { replicas, managers })
    }

    pub(super) fn record(&self, object: &mut Value) {
        set_managers(object, &self.managers);
    }
}
