//! Parts of the schemas that several kinds share: what a child's server would refuse is refused here, in the
//! words of the custom resource.
//!
//! Mirrors the checks of `kubernetes/pkg/apis/core/validation` on what our kinds hand on: images, environments,
//! resources. The schemas of Kubernetes' own types are written out here and short, so that a definition stays
//! small. Two fields of theirs are left out, because they name what our Pods do not have: `resources.claims`
//! (claims) and `env[].valueFrom.fileKeyRef` (volumes).
//!
//! | bound of ours | why |
//! |---|---|
//! | 1024 environment variables, 32 resources | a server refuses a rule over a list or a map without end |
//! | 64 characters for a quantity, 2 for its exponent | comparing two must not cost a server its memory |
//! | images of printable ASCII without spaces | no image is called otherwise, and a Pod of it never starts |
//!
//! Left to the server of the child, which tells as a condition: huge pages (sizes, and that they need cpu or
//! memory), whole numbers and equal limits of extended resources, divisors, the keys of labels and annotations.
//!
//! # Guarantees
//! - What no Pod could have is refused with the field's name. (test: `each_bound_of_myapp_holds_just_inside_and_just_outside`)
//! - What a Pod may have is taken, but for the bounds above. (test: `each_bound_of_myapp_holds_just_inside_and_just_outside`)
//! - An amount may be a number, as the schema says. (test: `an_amount_may_be_a_number`)
//! - A name that a child could not have is refused, with limit and reason. (test: `each_bound_of_redis_holds_just_inside_and_just_outside`)

use kube_core::Rule;
use schemars::{Schema, SchemaGenerator, json_schema};

/// An image: printable characters, no spaces.
pub(super) const IMAGE: &str = "^[!-~]+$";

/// A DNS label, but for its length.
pub(super) const DNS_LABEL: &str = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$";

/// The name of a ConfigMap or a Secret.
const SUBDOMAIN: &str = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$";

/// A key in one: neither `.` nor with two dots in front.
const DATA_KEY: &str = r"^\.?[-_a-zA-Z0-9][-._a-zA-Z0-9]*$";

/// The name of an environment variable: printable ASCII but for `=`.
const VARIABLE: &str = "^[ -<>-~]+$";

/// What a variable may read of its Pod.
const POD_FIELD: &str = r"^(metadata\.(name|namespace|uid)|metadata\.(annotations|labels)\['[^']+'\]|spec\.(nodeName|serviceAccountName)|status\.(hostIP|hostIPs|podIP|podIPs))$";

/// What it may read of its container's resources.
const CONTAINER_RESOURCE: &str = "^(limits|requests)[.](cpu|memory|ephemeral-storage|hugepages-.+)$";

/// A quantity that is not negative; beyond 2^63 there is none, so two digits are enough for an exponent.
const QUANTITY: &str = r"^[+]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][-+]?[0-9]{1,2})?$";

/// One Pod, where a spec says nothing.
pub(super) fn default_replicas() -> i32 {
    1
}

/// For a kind whose name becomes that of a Service.
pub(super) fn names_a_service() -> Rule {
    Rule::new("size(self.metadata.name) <= 63 && self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')").message(
        "metadata.name must be a DNS-1035 label of at most 63 characters (a letter first, then letters, digits and hyphens, no dots): it becomes the name of a Service; choose another name",
    )
}

/// For a kind whose name, with `-` and a number of up to 5 digits behind it, becomes a host name.
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
            "description": "One aspect of the state, as last observed.",
            "required": ["lastTransitionTime", "message", "reason", "status", "type"],
            "properties": {
                "type": {"type": "string", "description": "Which aspect."},
                "status": {"type": "string", "description": "`True`, `False` or `Unknown`."},
                "reason": {"type": "string", "description": "Why, in one word for programs."},
                "message": {"type": "string", "description": "Why, in a sentence for people."},
                "lastTransitionTime": {
                    "type": "string", "format": "date-time",
                    "description": "When the status of this condition last changed.",
                },
                "observedGeneration": {
                    "type": "integer", "format": "int64",
                    "description": "The metadata.generation that this condition is about.",
                },
            },
        },
    })
}

/// `[]EnvVar`. As in Kubernetes, a name may come twice: the later one counts.
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
                    "description": "Its name: printable ASCII characters other than `=`.",
                },
                "value": {
                    "type": "string",
                    "description": "Its value; empty when left out. `$(NAME)` stands for the value of an earlier variable, `$$(NAME)` for that text itself.",
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
                    "description": "The key whose value is taken.",
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
        "description": "Where the value comes from, instead of `value`: exactly one of these.",
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
                    "'%s is no resource of a container: use cpu, memory, ephemeral-storage, hugepages-SIZE or an extended resource such as example.com/gpu'.format([self.filter(name, !({IS_RESOURCE}))[0]])"
                ),
            }],
        })
    };
    json_schema!({
        "type": "object",
        "properties": {
            "limits": amounts("The most that the container may use, by resource: cpu in cores (`500m` is half of one), memory and ephemeral-storage in bytes (`128Mi`); no limit for what is left out."),
            "requests": amounts("What is set aside for the container, by resource, in the same units as limits; the limit when left out."),
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

/// The resources that may be asked for below their limit, where both are there.
const NAMED_IN_BOTH: &str = "['cpu', 'memory', 'ephemeral-storage'].filter(name, has(self.requests) && has(self.limits) && name in self.requests && name in self.limits)";

/// Whether a request is not above its limit.
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

    /// A server stores what was sent, so a number comes back as one.
    #[test]
    fn an_amount_may_be_a_number() {
        let resources = json!({"limits": {"cpu": 2, "memory": "1Gi"}, "requests": {"cpu": 1}});
        let source = json!({"resourceFieldRef": {"resource": "limits.cpu", "divisor": 1}});
        let env = json!([{"name": "A", "valueFrom": source}]);
        let myapp = json!({"image": "nginx", "containerPort": 80, "servicePort": 80, "resources": resources, "env": env});
        let app = json!({"replicas": 1, "image": "nginx", "resources": resources, "envs": env});
        // As from the wire, and as from JSON that is read already.
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
