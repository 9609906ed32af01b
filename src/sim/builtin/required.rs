//! What must be there: members that a real server asks for, and that decoding alone fills in with nothing.
//!
//! The table holds what is required always. What is required because of another member's value (the ports of
//! a Service that has an address, say) stands with the checks of its kind.

use serde_json::Value;

use super::super::failure::Cause;
use super::super::kinds::BuiltIn;
use super::meta;

/// A member's path below the root, and what is said beside "Required value".
///
/// `[*]` stands for every item of a list; what has a `?` is looked into only where it is there.
type Row = (&'static str, &'static str);

const POD_SPEC: &[Row] = &[
    ("containers", ""),
    ("containers[*].name", ""),
    ("containers[*].image", ""),
    ("containers[*].ports[*].containerPort", ""),
    ("containers[*].env[*].name", ""),
    ("containers[*].volumeMounts[*].name", ""),
    ("containers[*].volumeMounts[*].mountPath", ""),
    ("initContainers[*].name", ""),
    ("initContainers[*].image", ""),
    ("initContainers[*].ports[*].containerPort", ""),
    ("initContainers[*].env[*].name", ""),
    ("initContainers[*].volumeMounts[*].name", ""),
    ("initContainers[*].volumeMounts[*].mountPath", ""),
    ("volumes[*].name", ""),
];

/// Kinds, the root of their rows, the rows.
const TABLE: &[(&[BuiltIn], &str, &[Row])] = &[
    (&[BuiltIn::Pod], "spec", POD_SPEC),
    (&[BuiltIn::Deployment, BuiltIn::ReplicaSet], "spec", &[("selector", "")]),
    (&[BuiltIn::Deployment, BuiltIn::ReplicaSet], "spec.template.spec", POD_SPEC),
    (
        &[BuiltIn::Ingress],
        "spec.rules[*].http.paths[*]",
        &[("pathType", "pathType must be specified"), ("backend.service?.name", "")],
    ),
    (
        &[BuiltIn::HorizontalPodAutoscaler],
        "spec",
        &[
            ("maxReplicas", "must be set and greater than 0"),
            ("scaleTargetRef.kind", ""),
            ("scaleTargetRef.name", ""),
        ],
    ),
];

/// Names what is missing.
pub(super) fn check(of: BuiltIn, object: &Value, causes: &mut Vec<Cause>) {
    for (_, root, rows) in TABLE.iter().filter(|(kinds, ..)| kinds.contains(&of)) {
        for (path, detail) in *rows {
            let path = format!("{root}.{path}");
            let steps: Vec<&str> = path.split('.').collect();
            walk(Some(object), &steps, String::new(), &mut |field| {
                causes.push(Cause::required(field, detail));
            });
        }
    }
}

fn walk(value: Option<&Value>, steps: &[&str], place: String, missing: &mut dyn FnMut(String)) {
    let Some((step, rest)) = steps.split_first() else {
        // Go does not tell nothing from zero.
        if value.is_none_or(|value| meta::is_empty(value) || *value == 0) {
            missing(place);
        }
        return;
    };
    let name = step.trim_end_matches("[*]").trim_end_matches('?');
    let member = value.and_then(|value| value.get(name));
    let place = if place.is_empty() { name.to_owned() } else { format!("{place}.{name}") };
    if step.ends_with("[*]") {
        for (at, item) in member.and_then(Value::as_array).into_iter().flatten().enumerate() {
            walk(Some(item), rest, format!("{place}[{at}]"), missing);
        }
    } else if !step.ends_with('?') || member.is_some() {
        walk(member, rest, place, missing);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn missing(of: BuiltIn, object: &Value) -> Vec<String> {
        let mut causes = Vec::new();
        check(of, object, &mut causes);
        causes.into_iter().map(|cause| cause.field).collect()
    }

    #[test]
    fn every_item_of_a_list_is_looked_at_and_zero_is_missing() {
        let pod = json!({"spec": {"containers": [
            {"name": "a", "image": "b", "ports": [{"containerPort": 80}, {"containerPort": 0}]},
            {"name": "", "image": "b", "env": [{}]},
        ]}});
        let found = [
            "spec.containers[1].name",
            "spec.containers[0].ports[1].containerPort",
            "spec.containers[1].env[0].name",
        ];
        assert_eq!(missing(BuiltIn::Pod, &pod), found);
    }

    #[test]
    fn a_member_of_what_is_missing_is_missing_unless_it_is_optional() {
        let spec = ["spec.maxReplicas", "spec.scaleTargetRef.kind", "spec.scaleTargetRef.name"];
        assert_eq!(missing(BuiltIn::HorizontalPodAutoscaler, &json!({})), spec);
        let backend = |backend: Value| json!({"spec": {"rules": [{"http": {"paths": [{"pathType": "Exact", "backend": backend}]}}]}});
        let name = ["spec.rules[0].http.paths[0].backend.service.name"];
        assert_eq!(missing(BuiltIn::Ingress, &backend(json!({"service": {"port": {}}}))), name);
        assert!(missing(BuiltIn::Ingress, &backend(json!({"resource": {}}))).is_empty());
    }

    #[test]
    fn a_kind_without_rows_needs_nothing() {
        assert!(missing(BuiltIn::ConfigMap, &json!({})).is_empty());
    }
}
