//! Required fields: those that a real server demands, but that decoding alone fills with zero values.
//!
//! The table holds unconditionally required fields. Fields required because of another field's value (such as
//! the ports of a Service with a cluster IP) are checked with their kind.

use serde_json::Value;

use super::super::failure::Cause;
use super::super::field::Field;
use super::super::kinds::BuiltIn;
use super::meta;

/// A field's path below the root, and the detail after "Required value".
///
/// `[*]` stands for every item of a list; a field with `?` is optional, and only checked if present.
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

/// Kinds, the root of their paths, and the rows.
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

/// Reports missing required fields.
pub(super) fn check(of: BuiltIn, object: &Value, causes: &mut Vec<Cause>) {
    for (_, root, rows) in TABLE.iter().filter(|(kinds, ..)| kinds.contains(&of)) {
        for (path, detail) in *rows {
            walk(Some(object), root, &Field::Root, &mut |at_root, root| {
                walk(at_root, path, root, &mut |value, field| {
                    // Go does not distinguish missing from zero.
                    if value.is_none_or(|value| meta::is_empty(value) || *value == 0) {
                        causes.push(Cause::required(field, detail));
                    }
                });
            });
        }
    }
}

/// Calls `visit` for each field at a path below `field`, whose value is `value`, also for missing ones.
fn walk(
    value: Option<&Value>,
    path: &str,
    field: &Field<'_>,
    visit: &mut dyn FnMut(Option<&Value>, &Field<'_>),
) {
    let (step, rest) = path.split_once('.').map_or((path, None), |(step, rest)| (step, Some(rest)));
    let name = step.trim_end_matches("[*]").trim_end_matches('?');
    let member = value.and_then(|value| value.get(name));
    let field = &Field::Member(field, name);
    let mut go_on = |value: Option<&Value>, field: &Field<'_>| match rest {
        Some(rest) => walk(value, rest, field, visit),
        None => visit(value, field),
    };
    if step.ends_with("[*]") {
        for (at, item) in member.and_then(Value::as_array).into_iter().flatten().enumerate() {
            go_on(Some(item), &Field::Item(field, at));
        }
    } else if !step.ends_with('?') || member.is_some() {
        go_on(member, field);
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
    fn required_fields_are_checked_in_every_list_item() {
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
    fn fields_of_missing_objects_are_required_unless_optional() {
        let spec = ["spec.maxReplicas", "spec.scaleTargetRef.kind", "spec.scaleTargetRef.name"];
        assert_eq!(missing(BuiltIn::HorizontalPodAutoscaler, &json!({})), spec);
        let backend = |backend: Value| json!({"spec": {"rules": [{"http": {"paths": [{"pathType": "Exact", "backend": backend}]}}]}});
        let name = ["spec.rules[0].http.paths[0].backend.service.name"];
        assert_eq!(missing(BuiltIn::Ingress, &backend(json!({"service": {"port": {}}}))), name);
        assert!(missing(BuiltIn::Ingress, &backend(json!({"resource": {}}))).is_empty());
    }

    #[test]
    fn kind_without_rows_requires_nothing() {
        assert!(missing(BuiltIn::ConfigMap, &json!({})).is_empty());
    }
}
