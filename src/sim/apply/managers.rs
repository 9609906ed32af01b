//! Field managers: who owns which fields, and what an update or an apply does to that.
//!
//! Mirrors `merge.Updater` of structured-merge-diff and the managers in `managedfields` of apimachinery.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use super::set::{Fields, Path, Step, shown};
use super::typed::{self, Changes};
use super::types::Type;

/// The annotation in which `kubectl apply` without `--server-side` keeps what it applied.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// The version of the subresource `scale`.
pub(super) const SCALE: &str = "autoscaling/v1";

/// The owner of the fields of an object that was not tracked before.
const BEFORE: &str = "before-first-apply";

/// What tells one entry from another. An applier has one entry for all versions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Id {
    pub(super) manager: String,
    pub(super) is_apply: bool,
    /// Empty for an applier.
    version: String,
    pub(super) subresource: String,
}

#[derive(Clone, Debug, PartialEq)]
struct Owned {
    version: String,
    time: Option<String>,
    fields: Fields,
}

/// The entries of `managedFields`.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Managers(BTreeMap<Id, Owned>);

/// A write, as its managers see it.
pub(super) struct Write<'a> {
    pub(super) id: Id,
    pub(super) version: String,
    pub(super) now: String,
    /// The fields that this write cannot set, such as `status`.
    pub(super) ignored: Fields,
    /// Returns the type of the object in a version; `None` if that is not served.
    pub(super) type_in: &'a dyn Fn(&str) -> Option<Type<'a>>,
}

/// The fields of others that an apply would change.
#[derive(Debug)]
pub(super) struct Conflicts(BTreeMap<Id, Fields>);

// === impl Id ===

/// The order of messages: that of the entries' JSON.
impl Ord for Id {
    fn cmp(&self, other: &Self) -> Ordering {
        let key =
            |id: &Self| (id.manager.clone(), !id.is_apply, id.version.clone(), id.subresource.is_empty());
        key(self).cmp(&key(other)).then_with(|| self.subresource.cmp(&other.subresource))
    }
}

impl PartialOrd for Id {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Id {
    pub(super) fn update(manager: &str, version: &str, subresource: &str) -> Self {
        let (manager, version, subresource) =
            (manager.to_owned(), version.to_owned(), subresource.to_owned());
        Self { manager, is_apply: false, version, subresource }
    }

    pub(super) fn apply(manager: &str, subresource: &str) -> Self {
        let (manager, subresource) = (manager.to_owned(), subresource.to_owned());
        Self { manager, is_apply: true, version: String::new(), subresource }
    }

    fn shown(&self) -> String {
        let mut shown = format!("{:?}", self.manager);
        if !self.subresource.is_empty() {
            shown.push_str(&format!(" with subresource {:?}", self.subresource));
        }
        if !self.is_apply {
            shown.push_str(&format!(" using {}", self.version));
        }
        shown
    }
}

// === impl Conflicts ===

impl Conflicts {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn all(&self) -> impl Iterator<Item = (&Id, Path)> {
        self.0.iter().flat_map(|(id, fields)| fields.paths().into_iter().map(move |path| (id, path)))
    }

    pub(super) fn message(&self) -> String {
        let count = self.all().count();
        if let (1, Some((id, path))) = (count, self.all().next()) {
            return format!("Apply failed with 1 conflict: conflict with {}: {}", id.shown(), shown(&path));
        }
        let mut lines = Vec::new();
        for (id, fields) in &self.0 {
            lines.push(format!("conflicts with {}:", id.shown()));
            lines.extend(fields.paths().iter().map(|path| format!("- {}", shown(path))));
        }
        format!("Apply failed with {count} conflicts: {}", lines.join("\n"))
    }

    pub(super) fn causes(&self) -> Vec<Value> {
        let cause = |(id, path): (&Id, Path)| {
            json!({"reason": "FieldManagerConflict", "message": format!("conflict with {}", id.shown()),
                "field": shown(&path)})
        };
        self.all().map(cause).collect()
    }

    /// Drops the conflicts in some fields.
    fn except(mut self, fields: &Fields) -> Self {
        self.0.values_mut().for_each(|conflicts| *conflicts = conflicts.difference(fields));
        self.0.retain(|_, conflicts| !conflicts.is_empty());
        self
    }
}

/// The metadata that nobody owns.
fn unowned() -> Fields {
    const META: [&str; 8] = [
        "creationTimestamp",
        "generation",
        "managedFields",
        "name",
        "namespace",
        "resourceVersion",
        "selfLink",
        "uid",
    ];
    let mut set = Fields::of([&["apiVersion"][..], &["kind"], &["metadata"]]);
    for name in META {
        set = set.union(&Fields::of([&["metadata", name][..]]));
    }
    set
}

// === impl Managers ===

impl Managers {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Parses `managedFields`.
    pub(super) fn decode(entries: &[Value]) -> Result<Self, String> {
        let mut managers = BTreeMap::new();
        for entry in entries {
            let text = |name: &str| entry.get(name).and_then(Value::as_str).unwrap_or_default();
            let version = text("apiVersion");
            let id = match text("operation") {
                "Apply" => Id::apply(text("manager"), text("subresource")),
                "Update" => Id::update(text("manager"), version, text("subresource")),
                _ => return Err("operation must be `Apply` or `Update`".to_owned()),
            };
            if version.is_empty() || text("fieldsType") != "FieldsV1" {
                return Err("an entry needs an apiVersion, and fieldsType FieldsV1".to_owned());
            }
            let fields = entry.get("fieldsV1").map_or_else(|| Ok(Fields::default()), Fields::decode)?;
            let time = entry.get("time").and_then(Value::as_str).map(str::to_owned);
            managers.insert(id, Owned { version: version.to_owned(), time, fields });
        }
        Ok(Self(managers))
    }

    /// Returns the entries as `managedFields`: appliers first, then by time.
    pub(super) fn encoded(&self) -> Vec<Value> {
        let mut all: Vec<(&Id, &Owned)> = self.0.iter().collect();
        all.sort_by(|(a, x), (b, y)| {
            let key = |id: &Id| (id.manager.clone(), id.version.clone(), id.subresource.clone());
            (!a.is_apply, &x.time).cmp(&(!b.is_apply, &y.time)).then_with(|| key(a).cmp(&key(b)))
        });
        let entry = |(id, owned): (&Id, &Owned)| {
            let mut entry = json!({"manager": id.manager, "operation": if id.is_apply { "Apply" } else { "Update" },
                "apiVersion": owned.version, "fieldsType": "FieldsV1", "fieldsV1": owned.fields.encoded()});
            for (name, value) in [("time", owned.time.as_deref()), ("subresource", Some(&*id.subresource))] {
                if let Some(value) = value.filter(|value| !value.is_empty()) {
                    entry[name] = json!(value);
                }
            }
            entry
        };
        all.into_iter().map(entry).collect()
    }

    /// Returns the conflicts of an apply to `scale` that changes the field of others.
    pub(super) fn conflicts_of_scale(&self, field: &[Step], own: &Id) -> Conflicts {
        let others = self.0.iter().filter(|(id, owned)| *id != own && owned.fields.has(field));
        let conflict = |(id, _): (&Id, &Owned)| {
            // The entries are those of a Scale.
            let version = if id.is_apply { "" } else { SCALE };
            (Id { version: version.to_owned(), ..id.clone() }, Fields::of([&["spec", "replicas"][..]]))
        };
        Conflicts(others.map(conflict).collect())
    }

    /// Takes a field from all managers but appliers, as an apply to `scale` does.
    pub(super) fn take_from_updaters(&mut self, path: &[Step]) {
        let mut field = Fields::default();
        field.insert(path);
        for (_, owned) in self.0.iter_mut().filter(|(id, _)| !id.is_apply) {
            owned.fields = owned.fields.difference(&field);
        }
        self.0.retain(|_, owned| !owned.fields.is_empty());
    }

    /// Takes a field from all managers, and gives it to one.
    pub(super) fn hand_over(&mut self, path: &[Step], id: Id, version: &str) {
        let mut field = Fields::default();
        field.insert(path);
        for owned in self.0.values_mut() {
            owned.fields = owned.fields.difference(&field);
        }
        self.share(path, id, version);
        self.0.retain(|_, owned| !owned.fields.is_empty());
    }

    /// Makes a manager own a field, beside those that do.
    pub(super) fn share(&mut self, path: &[Step], id: Id, version: &str) {
        let new = || Owned { version: version.to_owned(), time: None, fields: Fields::default() };
        self.0.entry(id).or_insert_with(new).fields.insert(path);
    }

    /// Takes what a write changes from the managers other than `keeper`, unless that is a conflict.
    fn yield_to(
        &mut self,
        live: &Value,
        new: &Value,
        write: &Write<'_>,
        keeper: Option<&Id>,
        force: bool,
    ) -> Result<Changes, Conflicts> {
        let mut changes: BTreeMap<String, Option<Changes>> = BTreeMap::new();
        let versions: BTreeSet<String> = self.0.values().map(|owned| owned.version.clone()).collect();
        for version in versions.into_iter().chain([write.version.clone()]) {
            let ignored = if version == write.version { write.ignored.clone() } else { Fields::default() };
            let between = (write.type_in)(&version).map(|of| Changes::between(live, new, of, &ignored));
            changes.insert(version, between);
        }
        // Versions that are no longer served are forgotten.
        self.0.retain(|_, owned| changes.get(&owned.version).is_some_and(Option::is_some));
        let change_of =
            |owned: &Owned| changes.get(&owned.version).and_then(Option::as_ref).cloned().unwrap_or_default();
        let mut conflicts = BTreeMap::new();
        for (id, owned) in self.0.iter().filter(|(id, _)| Some(*id) != keeper) {
            let taken = owned.fields.intersection(&change_of(owned).written());
            if !taken.is_empty() {
                conflicts.insert(id.clone(), taken);
            }
        }
        if !force && !conflicts.is_empty() {
            return Err(Conflicts(conflicts));
        }
        for (id, owned) in self.0.iter_mut().filter(|(id, _)| Some(*id) != keeper) {
            if let Some(taken) = conflicts.get(id) {
                owned.fields = owned.fields.difference(taken);
            }
            owned.fields = owned.fields.difference(&change_of(owned).removed);
        }
        self.0.retain(|_, owned| !owned.fields.is_empty());
        Ok(changes.remove(&write.version).flatten().unwrap_or_default())
    }

    /// Records an update: its manager owns what it changes.
    pub(super) fn update(&mut self, live: &Value, new: &Value, write: &Write<'_>) {
        // Forced, there are no conflicts.
        let Ok(changes) = self.yield_to(live, new, write, None, true) else { return };
        let fields = changes.written().difference(&unowned());
        if fields.is_empty() {
            return;
        }
        let before = self.0.remove(&write.id).map(|owned| owned.fields).unwrap_or_default();
        let time = Some(write.now.clone());
        self.0.insert(
            write.id.clone(),
            Owned { version: write.version.clone(), time, fields: before.union(&fields) },
        );
    }

    /// Gives all fields of an object that was not tracked to one manager.
    pub(super) fn begin(&mut self, empty: &Value, live: &Value, write: &Write<'_>) {
        let id = Id::update(BEFORE, &write.version, &write.id.subresource);
        let (version, now, ignored) = (write.version.clone(), write.now.clone(), write.ignored.clone());
        self.update(empty, live, &Write { id, version, now, ignored, ..*write });
    }

    /// Applies a configuration to an object, and returns the new one.
    pub(super) fn apply(
        &mut self,
        live: &Value,
        config: &Value,
        write: &Write<'_>,
        of: Type<'_>,
        force: bool,
    ) -> Result<Value, Conflicts> {
        let before = self.clone();
        let mut done = self.apply_tracked(live, config, write, of, force);
        if write.id.manager == "kubectl"
            && let Err(conflicts) = done
        {
            // What kubectl has applied without --server-side, and nobody has changed since, is its own.
            let conflicts = conflicts.except(&last_applied(live, write, of));
            *self = before;
            if !conflicts.is_empty() {
                return Err(conflicts);
            }
            done = self.apply_tracked(live, config, write, of, true);
        }
        let mut object = done?;
        if write.id.manager == "kubectl" {
            update_annotation(&mut object, config);
        }
        Ok(object)
    }

    fn apply_tracked(
        &mut self,
        live: &Value,
        config: &Value,
        write: &Write<'_>,
        of: Type<'_>,
        force: bool,
    ) -> Result<Value, Conflicts> {
        let merged = typed::merge(Some(live), Some(config), of).unwrap_or_else(|| live.clone());
        let last = self.0.get(&write.id).cloned();
        let fields = typed::fields(config, of).without(&write.ignored);
        let time = last.as_ref().and_then(|last| last.time.clone());
        self.0.insert(write.id.clone(), Owned { version: write.version.clone(), time, fields });
        let new = last.map_or_else(|| merged.clone(), |last| self.pruned(&merged, &last.fields, of));
        self.yield_to(live, &new, write, Some(&write.id), force)?;
        if let Some(own) = self.0.get_mut(&write.id) {
            own.fields = own.fields.difference(&unowned());
            if new != *live {
                own.time = Some(write.now.clone());
            }
        }
        self.0.retain(|_, owned| !owned.fields.is_empty());
        Ok(new)
    }

    /// Removes the fields that the applier owned, no longer applies, and nobody else owns.
    fn pruned(&self, merged: &Value, last: &Fields, of: Type<'_>) -> Value {
        let named = |fields: &Fields| fields.with_named(of);
        let last = named(last);
        let pruned = typed::remove(merged, &last, of);
        let owned = self.0.values().fold(Fields::default(), |all, owned| all.union(&owned.fields));
        let all = named(&typed::fields(merged, of));
        let set = |value: &Value| named(&typed::fields(value, of));
        // Items that are gone take their fields with them, owned or not.
        let pruned = typed::remove(merged, &all.difference(&set(&pruned).union(&named(&owned))), of);
        // What the applier did not own stays.
        typed::remove(merged, &all.difference(&set(&pruned)).intersection(&last), of)
    }
}

/// Brings kubectl's annotation of what was applied last up to date, if there is one.
fn update_annotation(object: &mut Value, config: &Value) {
    let annotation = object.pointer_mut("/metadata/annotations").and_then(|all| all.get_mut(LAST_APPLIED));
    let Some(annotation) = annotation.filter(|text| text.as_str().is_some_and(|text| !text.is_empty()))
    else {
        return;
    };
    let mut config = config.clone();
    if let Some(all) = config.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) {
        all.remove(LAST_APPLIED);
    }
    *annotation = json!(format!("{config}\n"));
}

/// Returns the fields of the configuration in kubectl's annotation that are still as applied.
fn last_applied(live: &Value, write: &Write<'_>, of: Type<'_>) -> Fields {
    let annotation = live.pointer("/metadata/annotations").and_then(|all| all.get(LAST_APPLIED));
    let config = annotation.and_then(Value::as_str).and_then(|text| serde_json::from_str::<Value>(text).ok());
    let Some(config) = config.filter(|config| config["apiVersion"] == write.version.as_str()) else {
        return Fields::default();
    };
    if typed::validate(&config, of).is_err() {
        return Fields::default();
    }
    let changes = Changes::between(&config, live, of, &Fields::default());
    typed::fields(&config, of).difference(&changes.written()).difference(&changes.removed)
}

/// Returns whether two objects differ at most in the times of their entries.
pub(in super::super) fn differ_in_times_only(a: &Value, b: &Value) -> bool {
    let entries = |object: &Value| {
        let mut entries = object.pointer("/metadata/managedFields").cloned()?;
        let all = entries.as_array_mut().into_iter().flatten();
        all.filter_map(Value::as_object_mut).for_each(|entry| drop(entry.remove("time")));
        Some(entries)
    };
    let rest = |object: &Value| -> Option<(Map<String, Value>, Map<String, Value>)> {
        let mut rest = object.as_object()?.clone();
        let mut metadata = rest.remove("metadata")?.as_object()?.clone();
        metadata.remove("managedFields");
        Some((rest, metadata))
    };
    entries(a).is_some_and(|entries_of_a| entries(b) == Some(entries_of_a)) && rest(a) == rest(b)
}
