//! Generates specs of each kind from a seed. Together they cover what the schemas allow.
//!
//! Quantities are small, and 0 for resources that a bed's nodes lack, so that every Pod can be scheduled.

use serde_json::{Map, Value, json};

/// The kinds, each with a function that generates a spec.
pub(crate) const KINDS: [(&str, Make); 5] =
    [("Foo", foo), ("Myapp", myapp), ("AppService", appservice), ("Redis", redis), ("WebApp", webapp)];

/// Generates a spec from its number and the object's name.
pub(crate) type Make = fn(&mut fastrand::Rng, usize, &str) -> Value;

fn one_of<T: Copy>(random: &mut fastrand::Rng, choices: &[T]) -> T {
    choices[random.usize(0..choices.len())]
}

/// Sets a member with probability one half.
fn maybe(random: &mut fastrand::Rng, members: &mut Value, key: &str, value: impl Into<Value>) {
    if random.bool() {
        members[key] = value.into();
    }
}

fn foo(random: &mut fastrand::Rng, _: usize, name: &str) -> Value {
    let mut spec = json!({"deploymentName": one_of(random, &["", "-other"]).to_owned()});
    spec["deploymentName"] = json!(format!("{name}{}", spec["deploymentName"].as_str().unwrap()));
    let replicas = random.i32(1..=3);
    maybe(random, &mut spec, "replicas", replicas);
    spec
}

fn myapp(random: &mut fastrand::Rng, _: usize, name: &str) -> Value {
    let mut spec = json!({"image": image(random), "containerPort": random.i32(1..=65_535),
        "servicePort": random.i32(1..=65_535)});
    let host =
        one_of(random, &["a.example.com", "*.example.com", "abc", "x-1.y.example.com", "1a.2b"]).to_owned();
    maybe(random, &mut spec, "host", host);
    let replicas = random.i32(1..=3);
    maybe(random, &mut spec, "replicas", replicas);
    let (resources, env) = (resources(random), environment(random, name));
    maybe(random, &mut spec, "resources", resources);
    maybe(random, &mut spec, "env", env);
    spec
}

fn appservice(random: &mut fastrand::Rng, number: usize, name: &str) -> Value {
    let mut spec = json!({"image": image(random), "replicas": random.i32(0..=3)});
    let (resources, envs) = (resources(random), environment(random, name));
    maybe(random, &mut spec, "resources", resources);
    maybe(random, &mut spec, "envs", envs);
    let ports = ports(random, number);
    maybe(random, &mut spec, "ports", ports);
    spec
}

fn redis(random: &mut fastrand::Rng, _: usize, _: &str) -> Value {
    let mut spec = json!({"image": image(random), "port": random.i32(1234..=54_321)});
    let replicas = random.i32(0..=4);
    maybe(random, &mut spec, "replicas", replicas);
    spec
}

fn webapp(random: &mut fastrand::Rng, _: usize, _: &str) -> Value {
    let version = one_of(random, &["1.27", "stable-alpine3.20-perl", "_", "V1"]);
    let mut spec = json!({"version": version, "replicas": random.i32(0..=3)});
    // The version overrides a tag.
    let image = one_of(random, &["nginx", "nginx:latest", "registry.local:5000/a/b", "[::1]:5000/a:b"]);
    maybe(random, &mut spec, "image", image);
    spec
}

fn image(random: &mut fastrand::Rng) -> &'static str {
    let digest =
        "registry.local:5000/a/b@sha256:0123456789012345678901234567890123456789012345678901234567890123";
    one_of(random, &["nginx", "nginx:1.27", "library/redis:7.4-alpine", digest])
}

/// Small quantities in ascending order, in all notations.
const CPU: [&str; 9] = ["0", "1500u", "0.002", "3e-3", "10m", "+11m", "1.2e-2", ".1", "0.10"];
const MEMORY: [&str; 8] = ["0", "1024Ki", "1Mi", "1.5Mi", "2e6", "2E6", "3000k", "0.01Gi"];

fn resources(random: &mut fastrand::Rng) -> Value {
    let (mut limits, mut requests) = (Map::new(), Map::new());
    for (name, amounts) in [("cpu", CPU.as_slice()), ("memory", MEMORY.as_slice())] {
        let limit = random.usize(0..amounts.len());
        let request = random.usize(0..=limit);
        for (list, at) in [(&mut limits, limit), (&mut requests, request)] {
            if random.bool() {
                list.insert(name.to_owned(), json!(amounts[at]));
            }
        }
    }
    if random.u8(0..4) == 0 {
        limits.insert(
            "ephemeral-storage".to_owned(),
            [json!(0), json!("0"), json!("0Gi")][random.usize(0..3)].clone(),
        );
    }
    if random.u8(0..4) == 0 {
        limits.insert("example.com/gpu".to_owned(), [json!(0), json!("0k")][random.usize(0..2)].clone());
    }
    let mut resources = json!({});
    maybe(random, &mut resources, "limits", limits);
    maybe(random, &mut resources, "requests", requests);
    resources
}

fn environment(random: &mut fastrand::Rng, container: &str) -> Vec<Value> {
    let count = random.usize(0..=5);
    (0..count).map(|at| variable(random, at, container)).collect()
}

fn variable(random: &mut fastrand::Rng, at: usize, container: &str) -> Value {
    let name = one_of(random, &["", " !<>~", "any.thing-but/"]);
    let mut variable = json!({"name": format!("V{at}{name}")});
    let source = random.u8(0..6);
    if source < 2 {
        let value = one_of(random, &["", "1", "a b", "$(V0)", "$$(V0)", "=\u{e9}\n\"'"]);
        maybe(random, &mut variable, "value", value);
        return variable;
    }
    let mut from = match source {
        2 => json!({"fieldPath": field(random)}),
        3 => {
            json!({"resource": one_of(random, &["limits.cpu", "requests.memory", "limits.ephemeral-storage"])})
        }
        _ => json!({"name": one_of(random, &["a", "a.b-0"]), "key": one_of(random, &["k", ".hidden..x"])}),
    };
    match source {
        2 => maybe(random, &mut from, "apiVersion", "v1"),
        3 => {
            maybe(random, &mut from, "containerName", container);
            // The divisor 1 is valid for every resource. With an exponent it would be refused.
            let divisor = [json!("1"), json!(1), json!("1000m")][random.usize(0..3)].clone();
            maybe(random, &mut from, "divisor", divisor);
        }
        _ => {
            let optional = random.bool();
            maybe(random, &mut from, "optional", optional);
        }
    }
    let key = ["fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef"][usize::from(source) - 2];
    variable["valueFrom"] = json!({key: from});
    variable
}

fn field(random: &mut fastrand::Rng) -> &'static str {
    one_of(
        random,
        &[
            "metadata.name",
            "metadata.namespace",
            "metadata.uid",
            "metadata.labels['app.kubernetes.io/name']",
            "metadata.annotations['a']",
            "spec.nodeName",
            "spec.serviceAccountName",
            "status.hostIP",
            "status.hostIPs",
            "status.podIP",
            "status.podIPs",
        ],
    )
}

/// The node ports that the server reserves for explicit requests.
const STATIC_NODE_PORTS: std::ops::Range<usize> = 30_000..30_086;

fn ports(random: &mut fastrand::Rng, number: usize) -> Vec<Value> {
    let count = random.usize(0..=4);
    let mut ports: Vec<Value> = (0..count)
        .map(|at| {
            // The second and the third port may share a number, because their protocols differ.
            let mut port = json!({"port": 80 + [0, 1, random.usize(1..=2), 3][at]});
            if count > 1 || random.bool() {
                port["name"] = json!(format!("p{at}"));
            }
            if let Some(protocol) = [None, Some("TCP"), Some("UDP"), Some("SCTP")][at] {
                port["protocol"] = json!(protocol);
            }
            let target = [json!(8080), json!(1), json!("web"), json!("p-1-q"), json!(65_535)]
                [random.usize(0..5)]
            .clone();
            maybe(random, &mut port, "targetPort", target);
            let protocol = one_of(random, &["http", "kubernetes.io/h2c", "Example_1"]);
            maybe(random, &mut port, "appProtocol", protocol);
            port
        })
        .collect();
    // Node ports are unique in the cluster, so each derives from the spec's number.
    let node_port = STATIC_NODE_PORTS.start + number / 4;
    if let Some(first) = ports.first_mut()
        && number.is_multiple_of(4)
        && STATIC_NODE_PORTS.contains(&node_port)
    {
        first["nodePort"] = json!(node_port);
    }
    random.shuffle(&mut ports);
    ports
}
