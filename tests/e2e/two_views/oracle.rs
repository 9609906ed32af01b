//! Finds forbidden changes in the ordered history of all objects.
//!
//! | finding | what happened |
//! |---|---|
//! | deleted though wanted | a child is deleted although its live owner's spec wants it unchanged |
//! | scaled below the spec | a Deployment is scaled down, below the replicas of its live owner's spec |
//! | recreated for a deleted owner | a child is created more than once for an owner that is gone |
//! | left behind | an owner that had a finalizer is gone before its children |
//! | taken | a child of a living owner becomes that of another one |
//! | duplicated | one owner has more children of a kind at once |
//!
//! A finding only counts if it is more frequent than in an undisturbed run.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::plans::workloads::NAME;

/// One change of an object, as received by the administrator's watches.
#[derive(Clone, Debug)]
pub(super) struct Event {
    pub(super) version: u64,
    pub(super) kind: &'static str,
    type_: String,
    object: Value,
}

/// The findings and how many times each occurred.
pub(super) type Findings = BTreeMap<String, usize>;

/// Ends the findings that say how many there were; the others may not occur at all.
const AT_ONCE: &str = " of one owner at once";

/// Whether a finding says how many there were, which an undisturbed run may have, too.
pub(super) fn is_measure(what: &str) -> bool {
    what.ends_with(AT_ONCE)
}

/// The state of all objects at one event.
#[derive(Default)]
struct Scene<'a> {
    owners: BTreeMap<&'a str, &'a Value>,
    /// Deleted owners, and whether they ever had a finalizer.
    gone: BTreeMap<&'a str, bool>,
    has_finalizer: BTreeMap<&'a str, bool>,
    children: BTreeMap<&'a str, &'a Event>,
    /// How many times each child was created for a deleted owner.
    for_the_dead: BTreeMap<(&'a str, String), usize>,
    findings: Findings,
}

// === impl Event ===

impl Event {
    pub(super) fn new(kind: &'static str, mut event: Value) -> Self {
        let object = event["object"].take();
        let version = text(&object["metadata"]["resourceVersion"]).parse().expect("a version is a number");
        Self { version, kind, type_: text(&event["type"]).to_owned(), object }
    }

    fn uid(&self) -> &str {
        text(&self.object["metadata"]["uid"])
    }

    fn name(&self) -> &str {
        text(&self.object["metadata"]["name"])
    }

    fn is_going(&self) -> bool {
        self.type_ == "DELETED" || self.object["metadata"]["deletionTimestamp"].is_string()
    }

    /// Returns the uid of the object's controller if its kind is `kind`.
    fn owner(&self, kind: &str) -> Option<&str> {
        owner_of(&self.object, kind)
    }
}

/// Returns the uid of an object's controller if its kind is `kind`.
pub(super) fn owner_of<'a>(object: &'a Value, kind: &str) -> Option<&'a str> {
    let references = object["metadata"]["ownerReferences"].as_array()?;
    let controller = references.iter().find(|one| one["controller"] == true && one["kind"] == kind)?;
    controller["uid"].as_str()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Whether this owner wants this child unchanged. Only Pods are compared beyond their names, because the other kinds
/// can be updated in place.
fn wants(kind: &str, owner: &Value, child: &Event) -> bool {
    let (spec, owner, name) = (&owner["spec"], text(&owner["metadata"]["name"]), child.name());
    match child.kind {
        "Deployment" if kind == "Foo" => spec["deploymentName"] == name,
        "Deployment" => name == owner,
        "Service" => {
            name == owner && (kind == "Myapp" || spec["ports"].as_array().is_some_and(|p| !p.is_empty()))
        }
        "Ingress" => name == owner && spec["host"].as_str().is_some_and(|host| !host.is_empty()),
        "Pod" => {
            let container = &child.object["spec"]["containers"][0];
            let ordinal = name.strip_prefix(owner).and_then(|rest| rest.strip_prefix('-'));
            let ordinal = ordinal.and_then(|ordinal| ordinal.parse::<i64>().ok());
            ordinal.is_some_and(|ordinal| ordinal < spec["replicas"].as_i64().unwrap_or_default())
                && container["image"] == spec["image"]
                && container["ports"][0]["containerPort"] == spec["port"]
        }
        _ => false,
    }
}

/// Evaluates all events, which are ordered by version.
pub(super) fn findings(kind: &str, events: &[Event]) -> Findings {
    let mut scene = Scene::default();
    for event in events {
        if event.kind == kind {
            scene.owner(event);
        } else if let Some(owner) = event.owner(kind) {
            scene.child(kind, owner, event);
        }
    }
    for ((_, name), times) in &scene.for_the_dead {
        if *times > 1 {
            *scene.findings.entry(format!("made {name} again for an owner that has gone")).or_default() +=
                times - 1;
        }
    }
    scene.findings
}

impl<'a> Scene<'a> {
    fn find(&mut self, what: String) {
        *self.findings.entry(what).or_default() += 1;
    }

    fn owner(&mut self, event: &'a Event) {
        let uid = event.uid();
        if event.object["metadata"]["finalizers"].as_array().is_some_and(|held| !held.is_empty()) {
            self.has_finalizer.insert(uid, true);
        }
        if event.type_ != "DELETED" {
            self.owners.insert(uid, &event.object);
            return;
        }
        self.owners.remove(uid);
        let was_held = self.has_finalizer.contains_key(uid);
        self.gone.insert(uid, was_held);
        let kind = event.kind;
        let left: Vec<String> = self
            .children
            .values()
            .filter(|child| was_held && child.owner(kind) == Some(uid))
            .map(|child| format!("left {} {:?} behind", child.kind, child.name()))
            .collect();
        left.into_iter().for_each(|what| self.find(what));
    }

    fn child(&mut self, kind: &str, owner: &'a str, event: &'a Event) {
        let what = format!("{} {:?}", event.kind, event.name());
        let before = self.children.get(event.uid()).copied();
        let living = self.owners.get(owner).filter(|owner| owner["metadata"]["deletionTimestamp"].is_null());
        let goes = event.is_going() && before.is_some_and(|before| !before.is_going());
        // Deletion is judged when it begins.
        if let (Some(owner), Some(before)) = (living, before) {
            let spec = &owner["spec"];
            let replicas = |value: &Value| value["replicas"].as_i64().unwrap_or_default();
            let (was, is) = (replicas(&before.object["spec"]), replicas(&event.object["spec"]));
            let is_wanted = wants(kind, owner, before);
            if goes && is_wanted {
                self.find(format!("deleted {what}, which is wanted"));
            } else if event.kind == "Deployment" && is_wanted && is < was && is < replicas(spec) {
                self.find(format!("scaled {what} down, below its owner's spec"));
            }
        }
        let old = before.and_then(|before| before.owner(kind)).filter(|old| *old != owner);
        if old.is_some_and(|old| self.owners.contains_key(old)) {
            self.find(format!("took {what} from its owner"));
        }
        if before.is_none() && self.gone.contains_key(owner) {
            *self.for_the_dead.entry((owner, what)).or_default() += 1;
        }
        if event.type_ == "DELETED" {
            self.children.remove(event.uid());
        } else {
            self.children.insert(event.uid(), event);
        }
        let alike = self
            .children
            .values()
            .filter(|child| child.kind == event.kind && !child.is_going() && child.owner(kind) == Some(owner))
            .count();
        let most = self.findings.entry(format!("{}s{AT_ONCE}", event.kind)).or_default();
        *most = alike.max(*most);
    }
}

/// Returns the findings that are more frequent than in an undisturbed run.
pub(super) fn beyond(found: &Findings, clean: &Findings) -> Vec<String> {
    let more = |(what, times): (&String, &usize)| {
        let usual = clean.get(what).copied().unwrap_or_default();
        (*times > usual).then(|| format!("{what}: {times}, not {usual}"))
    };
    found.iter().filter_map(more).collect()
}

/// Whether the custom resource exists at a version and is not being deleted.
pub(super) fn is_living_at(kind: &str, events: &[Event], version: u64) -> bool {
    let is_it = |event: &&Event| event.kind == kind && event.name() == NAME && event.version <= version;
    let mut until = events.iter().filter(is_it);
    until.next_back().is_some_and(|event| !event.is_going())
}
