//! Schema parts that several kinds share: they refuse what the API server would refuse in a child, naming the
//! custom resource's field.
//!
//! Mirrors the checks of `kubernetes/pkg/apis/core/validation` on the fields that our kinds pass to their children:
//! images, environments, resources. The schemas of Kubernetes' own types are written out in short form to keep the
//! CRDs small. Two of their fields are left out, because our Pods have nothing for them to name: `resources.claims`
//! (claims) and `env[].valueFrom.fileKeyRef` (volumes).
//!
//! | our bound | reason |
//! |---|---|
//! | 1024 environment variables, 32 resources | a server refuses a rule over an unbounded list or map |
//! | 64 characters for a quantity, 2 for its exponent | comparing two quantities must not exhaust a server's memory |
//! | images of printable ASCII without spaces | no other name is valid, and a Pod with such an image never starts |
//!
//! Left to the server's validation of the child, and reported as a condition: huge pages (sizes, and that they need
//! cpu or memory), whole numbers and equal limits of extended resources, divisors, the keys of labels and annotations.
//!
//! # Guarantees
//! - A value that no Pod can have is refused with the field's name. (test: `myapp_schema_bounds_are_exact`)
//! - Any other value is accepted, within the bounds above. (test: `myapp_schema_bounds_are_exact`)
//! - A quantity may be a number, as the schema says. (test: `quantity_may_be_a_number`)
//! - A name that no child can have is refused, with limit and reason. (test: `redis_schema_bounds_are_exact`)

use kube_core::Rule;
use schemars::{Schema, SchemaGenerator, json_schema};

/// An image: printable characters, no spaces.
pub(super) const IMAGE: &str = "^[!-~]+$";

/// A DNS label, without its limit of 63 characters.
pub(super) const DNS_LABEL: &str = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$";

/// The name of a ConfigMap or a Secret.
const SUBDOMAIN: &str = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$";

/// A key of a ConfigMap or a Secret: not `.`, and not starting with two dots.
const DATA_KEY: &str = r"^\.?[-_a-zA-Z0-9][-._a-zA-Z0-9]*$";

/// The name of an environment variable: printable ASCII except `=`.
const VARIABLE: &str = "^[ -<>-~]+$";

/// A field of the Pod that a variable may read.
const POD_FIELD: &str = r"^(metadata\.(name|namespace|uid)|metadata\.(annotations|labels)\['[^']+'\]|spec\.(nodeName|serviceAccountName)|status\.(hostIP|hostIPs|podIP|podIPs))$";

/// A resource of the container that a variable may read.
const CONTAINER_RESOURCE: &str = "^(limits|requests)[.](cpu|memory|ephemeral-storage|hugepages-.+)$";

/// A non-negative quantity. Quantities end at 2^63, so two digits are enough for an exponent.
const QUANTITY: &str = r"^[+]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][-+]?[0-9]{1,2})?$";

/// Returns the default number of Pods: 1.
pub(super) fn default_replicas() -> i32 {
    1
}

/// Returns the rule for a kind whose Service has the same name.
pub(super) fn names_a_service() -> Rule {
    Rule::new("size(self.metadata.name) <= 63 && self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')").message(
        "metadata.name must be a DNS-1035 label of at most 63 characters (a letter first, then letters, digits and hyphens, no dots): it becomes the name of a Service; choose another name",
    )
}

/// Returns the rule for a kind whose name, followed by `-` and up to 5 digits, becomes a host name.
pub(super) fn names_hosts_by_number() -> Rule {
    Rule::new("size(self.metadata.name) <= 57 && !self.metadata.name.contains('.')").message(
        "metadata.name must be a DNS label of at most 57 characters (letters, digits and hyphens, no dots): with a number behind it, it becomes the host name of each Pod; choose another name",
    )
}

/// The conditions of a status.
pub(super) fn conditions(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
        "items": {
            "type": "object",
            "description": "One aspect of the object's observed state.",
            "required": ["lastTransitionTime", "message", "reason", "status", "type"],
            "properties": {
                "type": {"type": "string", "description": "Type of the condition."},
                "status": {"type": "string", "description": "`True`, `False` or `Unknown`."},
                "reason": {"type": "string", "description": "Machine-readable reason in CamelCase."},
                "message": {"type": "string", "description": "Human-readable explanation."},
                "lastTransitionTime": {
                    "type": "string", "format": "date-time",
                    "description": "When the status of this condition last changed.",
                },
                "observedGeneration": {
                    "type": "integer", "format": "int64",
                    "description": "The metadata.generation for which the condition was observed.",
                },
            },
        },
    })
}

/// `[]EnvVar`. As in Kubernetes, a name may be repeated: the last entry wins.
pub(super) fn environment(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "maxItems": 1024,
        "x-kubernetes-list-type": "atomic",
        "items": {
            "type": "object",
            "description": "One environment variable.",
            "required": ["name"],
            "properties": {
                "name": {
                    "type": "string", "pattern": VARIABLE,
                    "description": "Name of the variable: printable ASCII characters other than `=`.",
                },
                "value": {
                    "type": "string",
                    "description": "Value of the variable; empty by default. `$(NAME)` expands to the value of an earlier variable, `$$(NAME)` to the literal text `$(NAME)`.",
                },
                "valueFrom": value_from(),
            },
            "x-kubernetes-validations": [{
                "rule": "!has(self.valueFrom) || !has(self.value) || size(self.value) == 0",
                "message": "value and valueFrom are both set: remove one of them",
            }],
        },
    })
}

/// `EnvVarSource`.
fn value_from() -> Schema {
    let selector = |what: &str| {
        json_schema!({
            "type": "object",
            "description": format!("A key of a {what} in this namespace."),
            "required": ["key", "name"],
            "properties": {
                "name": {
                    "type": "string", "maxLength": 253, "pattern": SUBDOMAIN,
                    "description": format!("Name of the {what}."),
                },
                "key": {
                    "type": "string", "maxLength": 253, "pattern": DATA_KEY,
                    "description": "The key to read.",
                },
                "optional": {
                    "type": "boolean",
                    "description": "Whether a Pod may start without it; `false` when left out.",
                },
            },
            "x-kubernetes-map-type": "atomic",
        })
    };
    json_schema!({
        "type": "object",
        "description": "Source of the value, instead of `value`; exactly one field must be set.",
        "properties": {
            "configMapKeyRef": selector("ConfigMap"),
            "secretKeyRef": selector("Secret"),
            "fieldRef": {
                "type": "object",
                "description": "A field of the Pod.",
                "required": ["fieldPath"],
                "properties": {
                    "apiVersion": {
                        "type": "string", "enum": ["v1"],
                        "description": "Version of the path's schema; `v1` when left out.",
                    },
                    "fieldPath": {
                        "type": "string", "pattern": POD_FIELD,
                        "description": "metadata.name, metadata.namespace, metadata.uid, metadata.labels['KEY'], metadata.annotations['KEY'], spec.nodeName, spec.serviceAccountName, status.hostIP, status.hostIPs, status.podIP or status.podIPs.",
                    },
                },
                "x-kubernetes-map-type": "atomic",
            },
            "resourceFieldRef": {
                "type": "object",
                "description": "A limit or a request of the container.",
                "required": ["resource"],
                "properties": {
                    "containerName": {
                        "type": "string",
                        "description": "Name of the container; the one with this variable when left out.",
                    },
                    "resource": {
                        "type": "string", "pattern": CONTAINER_RESOURCE,
                        "description": "limits or requests, a dot, and cpu, memory, ephemeral-storage or hugepages-SIZE.",
                    },
                    "divisor": quantity("The unit of the value, such as `1m` or `1Mi`; 1 when left out."),
                },
                "x-kubernetes-map-type": "atomic",
            },
        },
        "x-kubernetes-validations": [{
            "rule": "[has(self.configMapKeyRef), has(self.fieldRef), has(self.resourceFieldRef), has(self.secretKeyRef)].exists_one(is_set, is_set)",
            "message": "valueFrom must have exactly one of configMapKeyRef, fieldRef, resourceFieldRef and secretKeyRef",
        }],
    })
}

/// `ResourceRequirements`.
pub(super) fn resources(_: &mut SchemaGenerator) -> Schema {
    let amounts = |description: &str| {
        json_schema!({
            "type": "object",
            "description": description,
            "maxProperties": 32,
            "additionalProperties": quantity("An amount, such as `500m`, `1` or `128Mi`; not negative."),
            "x-kubernetes-validations": [{
                "rule": format!("self.all(name, {IS_RESOURCE})"),
                "messageExpression": format!(
                    "'%s is not a container resource: use cpu, memory, ephemeral-storage, hugepages-SIZE or an extended resource such as example.com/gpu'.format([self.filter(name, !({IS_RESOURCE}))[0]])"
                ),
            }],
        })
    };
    json_schema!({
        "type": "object",
        "properties": {
            "limits": amounts("The most that the container may use, by resource: cpu in cores (`500m` is half of one), memory and ephemeral-storage in bytes (`128Mi`); no limit for what is left out."),
            "requests": amounts("Resources reserved for the container, in the same units as limits; a resource that is left out defaults to its limit."),
        },
        "x-kubernetes-validations": [{
            "rule": format!("{NAMED_IN_BOTH}.all(name, {REQUEST_FITS})"),
            "messageExpression": format!(
                "'requests.%s is above the limit: lower it or raise limits'.format([{NAMED_IN_BOTH}.filter(name, !({REQUEST_FITS}))[0]])"
            ),
        }],
    })
}

/// Whether a container may have a resource of this name.
const IS_RESOURCE: &str = r"name in ['cpu', 'memory', 'ephemeral-storage'] || name.startsWith('hugepages-') || name.matches('^[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$')";

/// The resources whose request may be below their limit, if both are set.
const NAMED_IN_BOTH: &str = "['cpu', 'memory', 'ephemeral-storage'].filter(name, has(self.requests) && has(self.limits) && name in self.requests && name in self.limits)";

/// Whether a request is at most its limit.
const REQUEST_FITS: &str =
    "quantity(string(self.requests[name])).compareTo(quantity(string(self.limits[name]))) <= 0";

/// A quantity, as text or as a whole number.
fn quantity(description: &str) -> Schema {
    json_schema!({
        "x-kubernetes-int-or-string": true,
        "nullable": false,
        "minimum": 0,
        "maxLength": 64,
        "pattern": QUANTITY,
        "description": description,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::api::appservice::v1alpha1::AppServiceSpec;
    use crate::api::myapp::v1::MyappSpec;

    /// A server stores a quantity as sent, so a number is read back as a number.
    #[test]
    fn quantity_may_be_a_number() {
        let resources = json!({"limits": {"cpu": 2, "memory": "1Gi"}, "requests": {"cpu": 1}});
        let source = json!({"resourceFieldRef": {"resource": "limits.cpu", "divisor": 1}});
        let env = json!([{"name": "A", "valueFrom": source}]);
        let myapp = json!({"image": "nginx", "containerPort": 80, "servicePort": 80, "resources": resources, "env": env});
        let app = json!({"replicas": 1, "image": "nginx", "resources": resources, "envs": env});
        // Decode from text, as on the wire, and from a parsed JSON value.
        let myapp: MyappSpec = serde_json::from_str(&myapp.to_string()).unwrap();
        let app: AppServiceSpec = serde_json::from_value(app).unwrap();
        for (resources, env) in [(myapp.resources, &myapp.env), (app.resources, &app.envs)] {
            let resources = resources.unwrap();
            assert_eq!(resources.limits.unwrap()["cpu"].0, "2");
            assert_eq!(resources.requests.unwrap()["cpu"].0, "1");
            let source = env[0].value_from.as_ref().unwrap().resource_field_ref.as_ref().unwrap();
            assert_eq!(source.divisor.as_ref().unwrap().0, "1");
        }
    }
}
