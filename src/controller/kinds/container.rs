//! The wanted and the observed state of a container, in a Pod or in a Pod template.
//!
//! [`FIELDS`] says who owns each field.
//!
//! The server keeps the order and the duplicates of `env` and `ports` as written. The order of `env` matters, because a
//! variable may refer to those before it. The order of `ports` does not, and rewriting it would roll all Pods. A limit
//! without a request means that the request equals the limit, so the two spellings are equal, in a template too.
//!
//! # Containers of a Pod
//! The container of a Pod is immutable, and admission adds to it: variables (webhooks), requests and limits
//! (`LimitRanger`), `Always` (`AlwaysPullImages`). If additions counted as differences, the Pod would be replaced
//! forever. So [`is_outdated`](super::pod::WantedPod::is_outdated) checks only that everything wanted is present; a
//! value that is no longer wanted, and has no successor, goes unnoticed.
//!
//! # Guarantees
//! - A written container has no differences, whatever was there before, and writing it again changes nothing.
//!   (test: `applied_container_has_no_differences`)
//! - A value without a difference is not rewritten, so that fields unknown to us survive.
//!   (test: `equivalent_container_values_are_not_rewritten`)
//! - Fields that are not ours are kept. (test: `unmanaged_container_fields_are_left_alone`)
//! - Resources that are no longer wanted are removed. (test: `resources_are_removed_when_none_are_wanted`)
//! - Amounts are compared by value, and a missing request as its limit. (test: `resources_are_compared_by_value`)
//! - Additions by admission do not outdate a Pod. (test: `admission_additions_do_not_outdate_a_pod`)
//! - The values of environment variables are never shown. (test: `environment_values_are_not_shown`)

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{ContainerPort, EnvVar, ResourceClaim, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};

use super::difference::{Difference, difference, differs, differs_hidden, missing, object_at, replace_list};
use super::fields::Field;
use crate::api::quantity::normal;
use crate::cache::Text;

/// The owner of each field of a container; fields that are not named belong to others.
pub const FIELDS: &[Field] = &[
    Field::value("image"),
    // In a Pod, Always does not make it outdated: an admission plugin sets it.
    Field::value("imagePullPolicy").if_wanted("imagePullPolicy").or_by(
        "Always for the tag latest or without tag and digest, else IfNotPresent",
        |_, container| {
            let image = container.get("image")?.as_str()?;
            let (name, digest) = image.split_once('@').map_or((image, None), |(name, it)| (name, Some(it)));
            let tag = name.rsplit('/').next()?.split_once(':').map(|(_, tag)| tag);
            let is_latest = tag == Some("latest") || tag.is_none() && digest.is_none();
            Some(json!(if is_latest { "Always" } else { "IfNotPresent" }))
        },
    ),
    // A variable may refer to those before it, so the order matters.
    Field::whole("env").merged().of(&[
        Field::value("valueFrom.fieldRef.apiVersion").or("\"v1\""),
        Field::value("valueFrom.resourceFieldRef.divisor").or("\"0\""),
        Field::value("valueFrom.fileKeyRef.optional").or("false"),
    ]),
    Field::set("ports", &[]).merged().of(&[Field::value("protocol").or("\"TCP\"")]),
    Field::amounts("resources.limits").if_wanted("resources"),
    Field::amounts("resources.requests").if_wanted("resources").or_by(
        "in a Pod: the limit, if there is no request",
        |_, container| {
            let mut filled = container.pointer("/resources/limits")?.as_object()?.clone();
            let requests = container.pointer("/resources/requests").and_then(Value::as_object);
            filled.extend(requests.cloned().unwrap_or_default());
            Some(Value::Object(filled))
        },
    ),
    Field::whole("resources.claims").if_wanted("resources"),
];

/// A container as a custom resource wants it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WantedContainer {
    /// The name.
    pub name: String,
    /// The image.
    pub image: String,
    /// The complete environment.
    pub env: Vec<EnvVar>,
    /// All ports.
    pub ports: Vec<ContainerPort>,
    /// Limits, requests and claims; `Some` replaces the live ones even if empty, `None` leaves them alone.
    pub resources: Option<ResourceRequirements>,
    /// The image pull policy; `None` leaves it alone.
    pub image_pull_policy: Option<String>,
}

/// A container as observed.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ObservedContainer {
    /// The name.
    pub name: Text,
    /// The image.
    pub image: Text,
    /// The environment.
    pub env: Box<[EnvVar]>,
    /// The ports.
    pub ports: Box<[ContainerPort]>,
    /// Limits, requests and claims.
    pub resources: ResourceRequirements,
    /// The image pull policy.
    pub image_pull_policy: Text,
}

thread_local! {
    static LAST: RefCell<Arc<[ObservedContainer]>> = RefCell::default();
}

/// Reads containers, and shares them with the object read before by this thread if that has equal ones, as most
/// children of one operator do. A Foo's Deployment takes 1,058 bytes in place of 1,226.
pub(super) fn shared<'de, D: Deserializer<'de>>(from: D) -> Result<Arc<[ObservedContainer]>, D::Error> {
    let read = Vec::<ObservedContainer>::deserialize(from)?;
    Ok(LAST.with_borrow_mut(|last| {
        if **last != *read {
            *last = read.into();
        }
        last.clone()
    }))
}

// === impl WantedContainer ===

impl WantedContainer {
    /// Adds the differences of a container in a template, which can be updated in place.
    pub(in crate::controller) fn differences(
        &self,
        field: &str,
        observed: &[ObservedContainer],
        found: &mut Vec<Difference>,
    ) {
        let field = format!("{field}[{}]", self.name);
        let Some(live) = observed.iter().find(|container| container.name == self.name) else {
            found.push(missing(field));
            return;
        };
        differs(found, format!("{field}.image"), live.image.as_str(), self.image.as_str());
        if let Some(policy) = &self.image_pull_policy {
            differs(
                found,
                format!("{field}.imagePullPolicy"),
                live.image_pull_policy.as_str(),
                policy.as_str(),
            );
        }
        differs_hidden(found, format!("{field}.env"), &meanings(&live.env, env), &meanings(&self.env, env));
        differs_hidden(found, format!("{field}.ports"), &ports(&live.ports), &ports(&self.ports));
        if let Some(wanted) = &self.resources {
            resources_differ(found, &format!("{field}.resources"), &live.resources, wanted);
        }
    }

    /// Adds what a container in a Pod lacks; containers of a Pod are immutable, so the Pod then has to be replaced.
    pub(in crate::controller) fn outdates(
        &self,
        field: &str,
        observed: &[ObservedContainer],
        found: &mut Vec<Difference>,
    ) {
        let field = format!("{field}[{}]", self.name);
        let Some(live) = observed.iter().find(|container| container.name == self.name) else {
            found.push(missing(field));
            return;
        };
        differs(found, format!("{field}.image"), live.image.as_str(), self.image.as_str());
        if let Some(policy) = self.image_pull_policy.as_ref().filter(|_| live.image_pull_policy != "Always") {
            differs(
                found,
                format!("{field}.imagePullPolicy"),
                live.image_pull_policy.as_str(),
                policy.as_str(),
            );
        }
        let (live_env, wanted_env) = (meanings(&live.env, env), meanings(&self.env, env));
        differs_hidden(found, format!("{field}.env"), &common(&live_env, &wanted_env), &wanted_env);
        let (live_ports, wanted_ports) = (ports(&live.ports), ports(&self.ports));
        differs_hidden(found, format!("{field}.ports"), &common(&live_ports, &wanted_ports), &wanted_ports);
        if let Some(wanted) = &self.resources {
            let live = wanted_part(&live.resources, wanted);
            resources_differ(found, &format!("{field}.resources"), &live, wanted);
        }
    }

    /// Writes the container into a list, and keeps the other containers.
    pub(in crate::controller) fn apply_to(&self, containers: &mut Vec<Value>) {
        match containers.iter_mut().find(|container| container["name"] == *self.name) {
            Some(container) => self.write_into(container),
            None => containers.push(self.to_json()),
        }
    }

    /// Returns the container as a new object.
    pub(in crate::controller) fn to_json(&self) -> Value {
        let mut container = json!({"name": self.name});
        self.write_into(&mut container);
        container
    }

    fn write_into(&self, container: &mut Value) {
        let live = ObservedContainer::deserialize(&*container).unwrap_or_default();
        let fields = object_at(container, &[]);
        fields.insert("image".to_owned(), json!(self.image));
        if let Some(policy) = &self.image_pull_policy {
            fields.insert("imagePullPolicy".to_owned(), json!(policy));
        }
        if meanings(&live.env, env) != meanings(&self.env, env) {
            replace_list(fields, "env", &self.env);
        }
        if ports(&live.ports) != ports(&self.ports) {
            replace_list(fields, "ports", &self.ports);
        }
        if let Some(wanted) = &self.resources {
            let mut different = Vec::new();
            resources_differ(&mut different, "", &live.resources, wanted);
            // All three or none: the meaning of a missing request depends on the limits.
            if !different.is_empty() {
                let fields = object_at(container, &["resources"]);
                replace_list(fields, "limits", &wanted.limits);
                replace_list(fields, "requests", &wanted.requests);
                replace_list(fields, "claims", &wanted.claims);
            }
        }
    }
}

// --- meanings ---

fn meanings<T>(list: &[T], meaning: impl Fn(&T) -> T) -> Vec<T> {
    list.iter().map(meaning).collect()
}

/// Returns the variable with the server's defaults.
fn env(variable: &EnvVar) -> EnvVar {
    let mut variable = variable.clone();
    let Some(source) = &mut variable.value_from else {
        // An empty value and no value mean the same.
        variable.value.get_or_insert_default();
        return variable;
    };
    variable.value = variable.value.filter(|value| !value.is_empty());
    if let Some(field) = &mut source.field_ref {
        field.api_version = Some(text_or(field.api_version.take(), "v1"));
    }
    if let Some(field) = &mut source.resource_field_ref {
        let divisor = field.divisor.take().map_or_else(|| "0".to_owned(), |divisor| divisor.0);
        field.divisor = Some(Quantity(normal(&divisor)));
    }
    if let Some(file) = &mut source.file_key_ref {
        file.optional.get_or_insert_default();
    }
    variable
}

/// Returns the ports with the server's defaults, sorted.
fn ports(all: &[ContainerPort]) -> Vec<ContainerPort> {
    let mut ports = meanings(all, port);
    ports.sort_by_cached_key(|port| {
        let ContainerPort { container_port, protocol, name, host_ip, host_port } = port.clone();
        (container_port, protocol, name, host_ip, host_port)
    });
    ports
}

/// Returns the port with the server's defaults.
fn port(port: &ContainerPort) -> ContainerPort {
    ContainerPort {
        container_port: port.container_port,
        protocol: Some(text_or(port.protocol.clone(), "TCP")),
        name: port.name.clone().filter(|name| !name.is_empty()),
        host_ip: port.host_ip.clone().filter(|address| !address.is_empty()),
        host_port: port.host_port.filter(|port| *port != 0),
    }
}

/// Returns the text, or the default if it is missing or empty.
pub(in crate::controller) fn text_or(text: Option<String>, default: &str) -> String {
    text.filter(|text| !text.is_empty()).unwrap_or_else(|| default.to_owned())
}

/// Returns the wanted items that also occur, in this order, in the live list.
fn common<T: PartialEq + Clone>(live: &[T], wanted: &[T]) -> Vec<T> {
    let mut live = live.iter();
    wanted.iter().filter(|wanted| live.by_ref().any(|live| live == *wanted)).cloned().collect()
}

// --- resources ---

/// Amounts by resource name, as written.
type Amounts<'a> = BTreeMap<&'a str, &'a str>;

fn amounts(list: Option<&BTreeMap<String, Quantity>>) -> Amounts<'_> {
    list.into_iter().flatten().map(|(name, amount)| (name.as_str(), amount.0.as_str())).collect()
}

fn claims(resources: &ResourceRequirements) -> Vec<ResourceClaim> {
    resources.claims.clone().unwrap_or_default()
}

fn resources_differ(
    found: &mut Vec<Difference>,
    field: &str,
    live: &ResourceRequirements,
    wanted: &ResourceRequirements,
) {
    let limits = [live, wanted].map(|resources| amounts(resources.limits.as_ref()));
    let requests = [live, wanted].map(|resources| amounts(resources.requests.as_ref()));
    amounts_differ(found, &format!("{field}.limits"), &limits);
    // A missing request equals the limit; where neither side has a request, comparing the limits is enough.
    let names: BTreeSet<&str> = requests.iter().flat_map(|requests| requests.keys().copied()).collect();
    let meant = [0, 1].map(|of| {
        let amount = |name: &&str| requests[of].get(name).or(limits[of].get(name)).copied();
        names.iter().filter_map(|name| Some((*name, amount(name)?))).collect()
    });
    amounts_differ(found, &format!("{field}.requests"), &meant);
    differs_hidden(found, format!("{field}.claims"), &claims(live), &claims(wanted));
}

fn amounts_differ(found: &mut Vec<Difference>, field: &str, [live, wanted]: &[Amounts<'_>; 2]) {
    let shown = |amount: Option<&&str>| amount.map_or("none".to_owned(), |amount| format!("{amount:?}"));
    let names: BTreeSet<&str> = live.keys().chain(wanted.keys()).copied().collect();
    for name in names {
        let (live, wanted) = (live.get(name), wanted.get(name));
        if live.map(|amount| normal(amount)) != wanted.map(|amount| normal(amount)) {
            found.push(difference(format!("{field}[{name}]"), shown(live), shown(wanted)));
        }
    }
}

/// Returns the resources of a Pod without those that nobody wants.
fn wanted_part(live: &ResourceRequirements, wanted: &ResourceRequirements) -> ResourceRequirements {
    let (limits, requests) = (amounts(wanted.limits.as_ref()), amounts(wanted.requests.as_ref()));
    let mut part = live.clone();
    part.limits.get_or_insert_default().retain(|name, _| limits.contains_key(name.as_str()));
    let is_requested = |name: &str| limits.contains_key(name) || requests.contains_key(name);
    part.requests.get_or_insert_default().retain(|name, _| is_requested(name));
    part.claims = Some(common(&claims(live), &claims(wanted)));
    part
}

#[cfg(test)]
mod tests;
