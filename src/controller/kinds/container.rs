//! What is wanted and what is observed of a container, in a Pod or in a template of Pods.
//!
//! Whose each field is stands in [`FIELDS`].
//!
//! The server keeps the order and the duplicates of `env` and `ports` as they are written. The order of `env` counts,
//! because a variable may use those before it; that of `ports` means nothing, and to write it would roll all Pods. A limit without a request means that the request is the limit; so both
//! ways to say it are one, in a template too.
//!
//! # What a Pod has more
//! The container of a Pod cannot be changed, and admission adds to it: variables (webhooks), requests and limits
//! (`LimitRanger`), `Always` (`AlwaysPullImages`). Whoever took that for a difference would replace the Pod for
//! ever. So [`is_outdated`](super::pod::WantedPod::is_outdated) asks only whether everything that is wanted is there: what is no longer
//! wanted, and nothing instead of it, is not noticed.
//!
//! # Guarantees
//! - What we write has no difference from what we want, whatever was there before, and writing it twice changes nothing. (test: `after_applying_nothing_differs_in_a_container`)
//! - What has no difference is not written anew, so that fields that we do not know survive. (test: `what_means_the_same_is_not_written_anew`)
//! - What is not ours stays. (test: `what_is_not_wanted_of_a_container_is_left_alone`)
//! - Ports that are turned around are the same ports. (test: `duplicates_of_ports_count_and_their_order_does_not`)
//! - Resources that are no longer wanted go. (test: `resources_go_when_none_are_wanted`)
//! - Amounts are compared by value, a missing request as its limit. (test: `resources_are_compared_by_value`)
//! - What admission adds to a Pod does not outdate it. (test: `what_admission_adds_does_not_outdate_a_pod`)
//! - The value of an environment variable is shown to nobody. (test: `the_values_of_an_environment_are_not_shown`)

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{ContainerPort, EnvVar, ResourceClaim, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde::Deserialize;
use serde_json::{Value, json};

use super::difference::{Difference, difference, differs, differs_hidden, missing, object_at, replace_list};
use super::fields::Field;
use super::quantity::normal;

/// Whose each field of a container is; what is not named is others'.
pub const FIELDS: &[Field] = &[
    Field::value("image"),
    // In a Pod, Always outdates nothing: an admission plugin puts it there.
    Field::value("imagePullPolicy").if_wanted("imagePullPolicy").or_by(
        "Always for the tag latest, or for neither tag nor digest; else IfNotPresent",
        |_, container| {
            let image = container.get("image")?.as_str()?;
            let (name, digest) = image.split_once('@').map_or((image, None), |(name, it)| (name, Some(it)));
            let tag = name.rsplit('/').next()?.split_once(':').map(|(_, tag)| tag);
            let is_latest = tag == Some("latest") || tag.is_none() && digest.is_none();
            Some(json!(if is_latest { "Always" } else { "IfNotPresent" }))
        },
    ),
    // A variable may use those before it, so the order counts.
    Field::whole("env").merged().of(&[
        Field::value("valueFrom.fieldRef.apiVersion").or("\"v1\""),
        Field::value("valueFrom.resourceFieldRef.divisor").or("\"0\""),
        Field::value("valueFrom.fileKeyRef.optional").or("false"),
    ]),
    Field::set("ports", &[]).merged().of(&[Field::value("protocol").or("\"TCP\"")]),
    Field::amounts("resources.limits").if_wanted("resources"),
    Field::amounts("resources.requests").if_wanted("resources").or_by(
        "in a Pod: what has a limit and no request",
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
    /// Its name.
    pub name: String,
    /// Its image.
    pub image: String,
    /// Its whole environment.
    pub env: Vec<EnvVar>,
    /// All its ports.
    pub ports: Vec<ContainerPort>,
    /// Limits, requests and claims; empty ones take away what is there, `None` leaves it alone.
    pub resources: Option<ResourceRequirements>,
    /// When its image is pulled; `None` leaves that alone.
    pub image_pull_policy: Option<String>,
}

/// A container.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ObservedContainer {
    /// Its name.
    pub name: String,
    /// Its image.
    pub image: String,
    /// Its environment.
    pub env: Vec<EnvVar>,
    /// Its ports.
    pub ports: Vec<ContainerPort>,
    /// Limits, requests and claims.
    pub resources: ResourceRequirements,
    /// When its image is pulled.
    pub image_pull_policy: String,
}

// === impl WantedContainer ===

impl WantedContainer {
    /// What of it is not so in a template, whose containers we may write.
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
        differs(found, format!("{field}.image"), &live.image, &self.image);
        if let Some(policy) = &self.image_pull_policy {
            differs(found, format!("{field}.imagePullPolicy"), &live.image_pull_policy, policy);
        }
        differs_hidden(found, format!("{field}.env"), &meanings(&live.env, env), &meanings(&self.env, env));
        differs_hidden(found, format!("{field}.ports"), &ports(&live.ports), &ports(&self.ports));
        if let Some(wanted) = &self.resources {
            resources_differ(found, &format!("{field}.resources"), &live.resources, wanted);
        }
    }

    /// What of it is missing in a Pod, whose containers nobody may change: then the Pod has to be replaced.
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
        differs(found, format!("{field}.image"), &live.image, &self.image);
        if let Some(policy) = self.image_pull_policy.as_ref().filter(|_| live.image_pull_policy != "Always") {
            differs(found, format!("{field}.imagePullPolicy"), &live.image_pull_policy, policy);
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

    /// Writes it into a list of containers; others in it stay.
    pub(in crate::controller) fn apply_to(&self, containers: &mut Vec<Value>) {
        match containers.iter_mut().find(|container| container["name"] == *self.name) {
            Some(container) => self.write_into(container),
            None => containers.push(self.to_json()),
        }
    }

    /// A new container.
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
            // All three or none: what a request means hangs on the limits.
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

/// A variable with what the server fills in.
fn env(variable: &EnvVar) -> EnvVar {
    let mut variable = variable.clone();
    let Some(source) = &mut variable.value_from else {
        // An empty value and none mean the same.
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

/// Ports with what the server fills in, in one order.
fn ports(all: &[ContainerPort]) -> Vec<ContainerPort> {
    let mut ports = meanings(all, port);
    ports.sort_by_cached_key(|port| {
        let ContainerPort { container_port, protocol, name, host_ip, host_port } = port.clone();
        (container_port, protocol, name, host_ip, host_port)
    });
    ports
}

/// A port with what the server fills in.
fn port(port: &ContainerPort) -> ContainerPort {
    ContainerPort {
        container_port: port.container_port,
        protocol: Some(text_or(port.protocol.clone(), "TCP")),
        name: port.name.clone().filter(|name| !name.is_empty()),
        host_ip: port.host_ip.clone().filter(|address| !address.is_empty()),
        host_port: port.host_port.filter(|port| *port != 0),
    }
}

/// Text, or what takes its place when it is empty or not there.
pub(in crate::controller) fn text_or(text: Option<String>, default: &str) -> String {
    text.filter(|text| !text.is_empty()).unwrap_or_else(|| default.to_owned())
}

/// What of the wanted list is in the live one, in the wanted order.
fn common<T: PartialEq + Clone>(live: &[T], wanted: &[T]) -> Vec<T> {
    let mut live = live.iter();
    wanted.iter().filter(|wanted| live.by_ref().any(|live| live == *wanted)).cloned().collect()
}

// --- resources ---

/// Amounts by name, as they are written.
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
    // A limit without a request is the request; of what neither requests the limits tell all.
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

/// The resources of a Pod without what nobody wants.
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
