use super::*;

const SERVICES: &str = "/api/v1/namespaces/default/services";

fn service(name: &str, ports: Value) -> Value {
    let mut service =
        json!({"metadata": {"name": name}, "spec": {"type": "NodePort", "selector": {"a": "b"}}});
    service["spec"]["ports"] = ports;
    service
}

fn node_ports(service: &Value) -> Vec<i64> {
    let ports = service["spec"]["ports"].as_array().unwrap();
    ports.iter().map(|port| port["nodePort"].as_i64().unwrap_or_default()).collect()
}

fn fields(refused: &(u16, Value)) -> Vec<&str> {
    assert_eq!(reason(refused), (422, "Invalid"), "{refused:?}");
    let causes = refused.1["details"]["causes"].as_array().unwrap();
    causes.iter().map(|cause| cause["field"].as_str().unwrap()).collect()
}

#[tokio::test(start_paused = true)]
async fn services_get_unique_addresses_and_node_ports() {
    let bed = Bed::new();
    let first = bed.ok("POST", SERVICES, service("a", json!([{"port": 80, "nodePort": 30080}]))).await;
    assert!(first["spec"]["clusterIP"].as_str().unwrap().starts_with("10.0."));
    assert_eq!(first["spec"]["ports"][0]["targetPort"], 80);
    for protocol in ["TCP", "UDP"] {
        let port = json!([{"port": 80, "nodePort": 30080, "protocol": protocol}]);
        let taken = bed.call("POST", SERVICES, service("b", port)).await;
        assert_eq!(fields(&taken), ["spec.ports[0].nodePort"]);
        assert!(taken.1["message"].as_str().unwrap().contains("provided port is already allocated"));
    }
    let free = bed.ok("POST", SERVICES, service("d", json!([{"port": 80}]))).await;
    assert_eq!(node_ports(&free), [30086]);
    let outside = bed.call("POST", SERVICES, service("e", json!([{"port": 80, "nodePort": 80}]))).await;
    assert_eq!(fields(&outside), ["spec.ports[0].nodePort"]);
    bed.ok("DELETE", &format!("{SERVICES}/a"), Value::Null).await;
    bed.ok("POST", SERVICES, service("b", json!([{"port": 80, "nodePort": 30080}]))).await;
    // Two protocols of one Service may share a node port.
    let both = json!([{"name": "a", "port": 53, "nodePort": 30053},
        {"name": "b", "port": 53, "nodePort": 30053, "protocol": "UDP"}]);
    bed.ok("POST", SERVICES, service("dns", both)).await;
}

#[tokio::test(start_paused = true)]
async fn new_service_shares_node_ports_by_port_number() {
    let bed = Bed::new();
    let dns = json!([{"name": "a", "port": 53}, {"name": "b", "port": 53, "protocol": "UDP"}, {"name": "c", "port": 54}]);
    assert_eq!(node_ports(&bed.ok("POST", SERVICES, service("a", dns)).await), [30086, 30086, 30087]);
    let asked =
        json!([{"name": "a", "port": 53}, {"name": "b", "port": 53, "protocol": "UDP", "nodePort": 30500}]);
    assert_eq!(node_ports(&bed.ok("POST", SERVICES, service("b", asked)).await), [30500, 30500]);
    // Different port numbers may not share a node port.
    let two = json!([{"name": "a", "port": 1, "nodePort": 30600},
        {"name": "b", "port": 2, "protocol": "UDP", "nodePort": 30600}]);
    assert_eq!(fields(&bed.call("POST", SERVICES, service("c", two)).await), ["spec.ports[1].nodePort"]);
    let apart = json!([{"name": "a", "port": 1, "nodePort": 30601},
        {"name": "b", "port": 1, "protocol": "UDP", "nodePort": 30602}]);
    assert_eq!(node_ports(&bed.ok("POST", SERVICES, service("c", apart)).await), [30601, 30602]);
}

#[tokio::test(start_paused = true)]
async fn updated_service_keeps_node_ports_by_name() {
    let bed = Bed::new();
    let two =
        json!([{"name": "a", "port": 1, "nodePort": 30001}, {"name": "b", "port": 2, "nodePort": 30002}]);
    bed.ok("POST", SERVICES, service("a", two)).await;
    let path = format!("{SERVICES}/a");
    // The names are swapped, and so are the node ports.
    let swapped = json!([{"name": "b", "port": 1}, {"name": "a", "port": 2}, {"name": "c", "port": 3}]);
    let changed = bed.ok("PUT", &path, service("a", swapped)).await;
    assert_eq!(node_ports(&changed), [30002, 30001, 30086]);
    // A node port that another port requests is not kept.
    let asked = json!([{"name": "a", "port": 1}, {"name": "b", "port": 2, "nodePort": 30001}]);
    assert_eq!(node_ports(&bed.ok("PUT", &path, service("a", asked)).await), [30087, 30001]);
}

#[tokio::test(start_paused = true)]
async fn duplicate_node_port_in_update_is_internal_error() {
    let bed = Bed::new();
    bed.ok("POST", SERVICES, service("a", json!([{"name": "a", "port": 1}]))).await;
    let twice =
        json!([{"name": "a", "port": 1, "nodePort": 30100}, {"name": "b", "port": 2, "nodePort": 30100}]);
    let (code, status) = bed.call("PUT", &format!("{SERVICES}/a"), service("a", twice.clone())).await;
    assert_eq!((code, status["message"].as_str().unwrap()), (500, "duplicate nodePort: {TCP 30100}"));
    assert_eq!(fields(&bed.call("POST", SERVICES, service("b", twice)).await), ["spec.ports[1].nodePort"]);
}

#[tokio::test(start_paused = true)]
async fn service_loses_fields_of_its_old_type() {
    let bed = Bed::new();
    let mut outside = service("a", json!([{"port": 80}]));
    outside["spec"]["type"] = json!("LoadBalancer");
    outside["spec"]["loadBalancerClass"] = json!("example.com/x");
    let mut made = bed.ok("POST", SERVICES, outside).await;
    assert_eq!(made["spec"]["externalTrafficPolicy"], "Cluster");
    assert_eq!(made["spec"]["allocateLoadBalancerNodePorts"], true);
    let path = format!("{SERVICES}/a");
    made["spec"]["type"] = json!("NodePort");
    let mut made = bed.ok("PUT", &path, made).await;
    assert_eq!(made["spec"].get("allocateLoadBalancerNodePorts"), None);
    assert_eq!(made["spec"].get("loadBalancerClass"), None);
    assert_eq!(node_ports(&made), [30086]);
    made["spec"]["type"] = json!("ClusterIP");
    let mut made = bed.ok("PUT", &path, made).await;
    assert_eq!(node_ports(&made), [0]);
    assert_eq!(made["spec"].get("externalTrafficPolicy"), None);
    made["spec"]["type"] = json!("ExternalName");
    made["spec"]["externalName"] = json!("example.com");
    let made = bed.ok("PUT", &path, made).await;
    for gone in ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
        assert_eq!(made["spec"].get(gone), None, "{gone}");
    }
}

#[tokio::test(start_paused = true)]
async fn invalid_service_is_refused_with_its_field() {
    let bed = Bed::new();
    for (spec, field) in [
        (json!({"ports": [{"port": 1, "targetPort": "much-too-long-for-it"}]}), "spec.ports[0].targetPort"),
        (json!({"ports": [{"port": 1, "targetPort": "80"}]}), "spec.ports[0].targetPort"),
        (json!({"ports": [{"port": 1, "appProtocol": ""}]}), "spec.ports[0].appProtocol"),
        (json!({"ports": [{"port": 1, "protocol": "ICMP"}]}), "spec.ports[0].protocol"),
        (json!({"ports": [{"port": 1, "nodePort": 30001}]}), "spec.ports[0].nodePort"),
        (
            json!({"ports": [{"port": 1}], "loadBalancerSourceRanges": ["10.0.0.0/8"]}),
            "spec.LoadBalancerSourceRanges",
        ),
        (
            json!({"ports": [{"port": 1}], "allocateLoadBalancerNodePorts": false}),
            "spec.allocateLoadBalancerNodePorts",
        ),
        (json!({"ports": [{"port": 1}], "externalTrafficPolicy": "Local"}), "spec.externalTrafficPolicy"),
    ] {
        let refused = bed.call("POST", SERVICES, json!({"metadata": {"name": "a"}, "spec": spec})).await;
        assert_eq!(fields(&refused), [field]);
    }
    // A Service's name may begin with a digit.
    bed.ok("POST", SERVICES, service("1a", json!([{"port": 80}]))).await;
    assert_eq!(
        fields(&bed.call("POST", SERVICES, service("a.b", json!([{"port": 80}]))).await),
        ["metadata.name"]
    );
}
