//! Bounds of the environment and resources that Myapp and AppService pass to a container.

use serde_json::{Value, json};

/// Returns valid environments.
pub(super) fn environments() -> Vec<Value> {
    let from = |source: Value| json!([{"name": "A", "valueFrom": source}]);
    let fields = [
        "metadata.name",
        "metadata.uid",
        "metadata.labels['app.kubernetes.io/name']",
        "metadata.annotations['a']",
        "spec.nodeName",
        "spec.serviceAccountName",
        "status.hostIPs",
        "status.podIP",
    ];
    let mut inside = vec![
        json!([]),
        json!([{"name": "A"}]),
        json!([{"name": "A", "value": null, "valueFrom": null}]),
        json!([{"name": " !<>~", "value": ""}]),
        json!([{"name": "1 any.thing-but/equals", "value": "=é"}]),
        json!([{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]),
        json!((0..1024).map(|at| json!({"name": format!("A{at}"), "value": "x"})).collect::<Vec<_>>()),
        json!([{"name": "A", "value": "", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]),
        from(json!({"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}})),
        from(json!({"configMapKeyRef": {"name": "a", "key": "k"}})),
        from(json!({"configMapKeyRef": {"name": "a.b-0", "key": ".hidden..x", "optional": true}})),
        from(json!({"secretKeyRef": {"name": "a".repeat(253), "key": "K".repeat(253)}})),
        from(json!({"resourceFieldRef": {"resource": "limits.cpu", "divisor": "1m"}})),
        from(json!({"resourceFieldRef": {"resource": "requests.ephemeral-storage", "divisor": 1}})),
        from(json!({"resourceFieldRef": {"resource": "limits.hugepages-2Mi", "containerName": "a"}})),
    ];
    inside.extend(fields.map(|path| from(json!({"fieldRef": {"fieldPath": path}}))));
    inside
}

/// Returns invalid environments, each with a part of the refusal's message.
pub(super) fn wrong_environments() -> Vec<(Value, &'static str)> {
    let from = |source: Value| json!([{"name": "A", "valueFrom": source}]);
    let exactly_one =
        "valueFrom must have exactly one of configMapKeyRef, fieldRef, resourceFieldRef and secretKeyRef";
    let config = |name: &str, key: &str| from(json!({"configMapKeyRef": {"name": name, "key": key}}));
    let field = |path: &str| from(json!({"fieldRef": {"fieldPath": path}}));
    let resource = |resource: &str| from(json!({"resourceFieldRef": {"resource": resource}}));
    vec![
        (json!([{"value": "1"}]), "[0].name: Required value"),
        (json!([{"name": ""}]), "[0].name"),
        (json!([{"name": "A"}, {"name": "A=B"}]), "[1].name"),
        (json!([{"name": "é"}]), "[0].name"),
        (json!([{"name": "A\n"}]), "[0].name"),
        (json!([{"name": "A", "value": 1}]), "[0].value"),
        (json!(vec![json!({"name": "A"}); 1025]), "must have at most 1024 items"),
        (
            json!([{"name": "A", "value": "1", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]),
            "value and valueFrom are both set: remove one of them",
        ),
        (from(json!({})), exactly_one),
        (from(json!({"fileKeyRef": {"volumeName": "a", "path": "b", "key": "c"}})), exactly_one),
        (
            from(
                json!({"configMapKeyRef": {"name": "a", "key": "k"}, "secretKeyRef": {"name": "a", "key": "k"}}),
            ),
            exactly_one,
        ),
        (from(json!({"configMapKeyRef": {"key": "k"}})), "valueFrom.configMapKeyRef.name: Required value"),
        (from(json!({"secretKeyRef": {"name": "a"}})), "valueFrom.secretKeyRef.key: Required value"),
        (config("", "k"), "valueFrom.configMapKeyRef.name"),
        (config("A", "k"), "valueFrom.configMapKeyRef.name"),
        (config(&"a".repeat(254), "k"), "valueFrom.configMapKeyRef.name"),
        (config("a", ""), "valueFrom.configMapKeyRef.key"),
        (config("a", "."), "valueFrom.configMapKeyRef.key"),
        (config("a", "..a"), "valueFrom.configMapKeyRef.key"),
        (config("a", "a/b"), "valueFrom.configMapKeyRef.key"),
        (config("a", &"k".repeat(254)), "valueFrom.configMapKeyRef.key"),
        (from(json!({"fieldRef": {}})), "valueFrom.fieldRef.fieldPath: Required value"),
        (field("spec.image"), "valueFrom.fieldRef.fieldPath"),
        (field("metadata.labels"), "valueFrom.fieldRef.fieldPath"),
        (
            from(json!({"fieldRef": {"apiVersion": "v2", "fieldPath": "metadata.name"}})),
            "valueFrom.fieldRef.apiVersion",
        ),
        (resource("cpu"), "valueFrom.resourceFieldRef.resource"),
        (resource("limits.gpu"), "valueFrom.resourceFieldRef.resource"),
        (
            from(json!({"resourceFieldRef": {"resource": "limits.cpu", "divisor": "one"}})),
            "valueFrom.resourceFieldRef.divisor",
        ),
    ]
}

/// Returns valid resources.
pub(super) fn resources() -> Vec<Value> {
    let quantities = [
        "0", "1", "+1", "0.5", ".5", "5.", "500m", "100n", "1u", "2k", "1M", "3Ki", "1.5Gi", "1Ei", "1E",
        "1e3", "1E-3", "1e+3",
    ];
    let mut inside = vec![
        json!({}),
        json!({"limits": {}, "requests": {}}),
        json!({"limits": {"cpu": 0, "memory": null}, "requests": null}),
        json!({"limits": {"cpu": "0".repeat(64)}}),
        json!({"limits": {"cpu": 2, "memory": "1Gi"}, "requests": {"cpu": "2", "memory": "1024Mi"}}),
        json!({"limits": {"cpu": "1"}, "requests": {"cpu": "1000m", "memory": "1"}}),
        json!({"limits": {"memory": "1Mi"}, "requests": {"memory": 1_048_576}}),
        json!({"limits": {"example.com/gpu": 1, "hugepages-2Mi": "4Mi", "ephemeral-storage": "1G", "cpu": 1}}),
        json!({"limits": (0..32).map(|at| (format!("example.com/r{at}"), json!(1))).collect::<serde_json::Map<_, _>>()}),
    ];
    inside.extend(quantities.map(|quantity| json!({"requests": {"cpu": quantity}})));
    inside
}

/// Returns invalid resources, each with a part of the refusal's message.
pub(super) fn wrong_resources() -> Vec<(Value, &'static str)> {
    let cpu = |quantity: &str| json!({"limits": {"cpu": quantity}});
    let mut outside = vec![
        (json!([]), "spec.resources"),
        (json!({"limits": {"cpu": -1}}), "spec.resources.limits.cpu"),
        (json!({"limits": {"cpu": 0.5}}), "spec.resources.limits.cpu"),
        (json!({"requests": {"memory": true}}), "spec.resources.requests.memory"),
        (
            json!({"limits": {"cpus": 1}}),
            "cpus is not a container resource: use cpu, memory, ephemeral-storage",
        ),
        (json!({"requests": {"/gpu": 1}}), "/gpu is not a container resource"),
        (
            json!({"limits": (0..33).map(|at| (format!("example.com/r{at}"), json!(1))).collect::<serde_json::Map<_, _>>()}),
            "must have at most 32 items",
        ),
        (
            json!({"limits": {"cpu": "1"}, "requests": {"cpu": "1001m"}}),
            "requests.cpu is above the limit: lower it or raise limits",
        ),
        (
            json!({"limits": {"cpu": 1, "memory": "1Mi"}, "requests": {"cpu": 1, "memory": 1_048_577}}),
            "requests.memory is above the limit",
        ),
        (
            json!({"limits": {"ephemeral-storage": "1G"}, "requests": {"ephemeral-storage": "1Gi"}}),
            "requests.ephemeral-storage is above the limit",
        ),
    ];
    let wrong = [
        "", "one", "-1", ".", "1 Gi", "1gi", "1Kii", "1mm", "1e", "1e100", "1e1.5", "1.2.3", "0x1", "1,5",
        "½",
    ];
    outside.extend(wrong.map(|quantity| (cpu(quantity), "spec.resources.limits.cpu")));
    outside.push((cpu(&"1".repeat(65)), "spec.resources.limits.cpu"));
    outside
}
