use super::*;

fn with_container(more: &Value) -> Value {
    let mut deployment = deployment("web", 0);
    json_patch::merge(&mut deployment["spec"]["template"]["spec"]["containers"][0], more);
    deployment
}

#[tokio::test(start_paused = true)]
async fn quantities_are_stored_in_canonical_form() {
    let bed = Bed::new();
    let resources = json!({"limits": {"cpu": "1000m", "memory": "1024Mi"}, "requests": {"cpu": 0.5}});
    let made = bed.ok("POST", DEPLOYMENTS, with_container(&json!({"resources": resources}))).await;
    let stored = json!({"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "500m"}});
    assert_eq!(
        made["spec"]["template"]["spec"]["containers"][0]["resources"], stored,
        "templates get no default requests"
    );
    let mut pod = json!({"metadata": {"name": "a"}, "spec": made["spec"]["template"]["spec"].clone()});
    pod["spec"]["containers"][0]["resources"] = resources;
    let made = bed.ok("POST", PODS, pod).await;
    let stored =
        json!({"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "500m", "memory": "1Gi"}});
    assert_eq!(made["spec"]["containers"][0]["resources"], stored, "in a Pod requests default to limits");
    let wrong = with_container(&json!({"resources": {"limits": {"cpu": "much"}}}));
    let refused = bed.call("POST", DEPLOYMENTS, wrong).await;
    assert_eq!(reason(&refused), (400, "BadRequest"));
    assert!(refused.1["message"].as_str().unwrap().contains("quantities must match the regular expression"));
}

#[tokio::test(start_paused = true)]
async fn empty_environment_value_is_omitted() {
    let bed = Bed::new();
    let sent = with_container(&json!({"env": [{"name": "A", "value": ""}, {"name": "B", "value": "1"}]}));
    let made = bed.ok("POST", DEPLOYMENTS, sent).await;
    let stored = json!([{"name": "A"}, {"name": "B", "value": "1"}]);
    assert_eq!(made["spec"]["template"]["spec"]["containers"][0]["env"], stored);
}

#[tokio::test(start_paused = true)]
async fn invalid_container_is_refused_with_its_fields() {
    let bed = Bed::new();
    for (more, expected) in [
        (json!({"imagePullPolicy": "Sometimes"}), &["imagePullPolicy"][..]),
        (json!({"ports": [{"containerPort": 80, "protocol": "ICMP"}]}), &["ports[0].protocol"]),
        (json!({"ports": [{"containerPort": 80, "hostPort": 70000}]}), &["ports[0].hostPort"]),
        (json!({"ports": [{"containerPort": 80, "name": "8080"}]}), &["ports[0].name"]),
        (json!({"ports": [{"containerPort": 80, "name": "-a--b-"}]}), &["ports[0].name", "ports[0].name"]),
        (
            json!({"ports": [{"containerPort": 80, "name": "a"}, {"containerPort": 81, "name": "a"}]}),
            &["ports[1].name"],
        ),
        (json!({"resources": {"limits": {"cpus": "1"}}}), &["resources.limits[cpus]"]),
        (json!({"resources": {"limits": {"cpu": "-1"}}}), &["resources.limits[cpu]"]),
        (
            json!({"resources": {"limits": {"memory": "1G"}, "requests": {"memory": "1Gi"}}}),
            &["resources.requests"],
        ),
    ] {
        let refused = bed.call("POST", DEPLOYMENTS, with_container(&more)).await;
        assert_eq!(reason(&refused), (422, "Invalid"), "{more}");
        let causes = refused.1["details"]["causes"].as_array().unwrap();
        let fields: Vec<&str> = causes.iter().map(|cause| cause["field"].as_str().unwrap()).collect();
        let prefix = "spec.template.spec.containers[0].";
        let fields: Vec<&str> = fields.iter().map(|field| field.trim_start_matches(prefix)).collect();
        assert_eq!(fields, expected, "{more}");
    }
    let duplicate = json!({"ports": [{"containerPort": 80}, {"containerPort": 80}]});
    bed.ok("POST", DEPLOYMENTS, with_container(&duplicate)).await;
}
