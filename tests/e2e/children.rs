//! Written children read back from the server without differences, despite its defaults and normalization.
//!
//! For each child kind, many objects are generated and created; each is then patched to match another.

use std::collections::BTreeMap;
use std::fmt::Debug;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{
    ConfigMapKeySelector, ContainerPort, EnvVar, EnvVarSource, ObjectFieldSelector, ResourceFieldSelector,
    ResourceRequirements, ServiceAccount, ServicePort,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube_client::Api;
use kube_client::api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube_core::GroupVersionKind;
use macro_rules_attribute::apply;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use windlass::api::ApiResource;
use windlass::api::labels::Labels;
use windlass::controller::Wanted;
use windlass::controller::kinds::config_map::WantedConfigMap;
use windlass::controller::kinds::container::WantedContainer;
use windlass::controller::kinds::deployment::WantedDeployment;
use windlass::controller::kinds::diff::{Changes, body_of, differences};
use windlass::controller::kinds::ingress::WantedIngress;
use windlass::controller::kinds::pod::WantedPod;
use windlass::controller::kinds::secret::WantedSecret;
use windlass::controller::kinds::service::{ObservedService, ServiceType, WantedService};

use crate::support::{Bed, both_beds, wait_until};

/// How many objects of each kind are generated.
const GENERATED: usize = 40;

// --- writing ---

fn parse<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).expect("the JSON fits the type")
}

fn api_of<W: Wanted>(bed: &Bed, namespace: &str) -> Api<DynamicObject> {
    let resource = ApiResource::of::<W::Observed>();
    let kind = GroupVersionKind::gvk(&resource.group, &resource.version, &resource.kind);
    let kind = kube_core::ApiResource::from_gvk_with_plural(&kind, &resource.plural);
    Api::namespaced_with(bed.client(), namespace, &kind)
}

/// Decodes a stored object as the cache does, and asserts that it has no differences.
fn as_wanted<W: Wanted + Debug>(wanted: &W, stored: &DynamicObject) -> W::Observed {
    let observed = parse(serde_json::to_value(stored).expect("an object serializes"));
    let found: Vec<String> = differences(wanted, &observed).iter().map(ToString::to_string).collect();
    assert_eq!(found, Vec::<String>::new(), "{wanted:#?}\n{stored:#?}");
    observed
}

async fn create<W: Wanted + Debug>(api: &Api<DynamicObject>, wanted: &W) -> W::Observed {
    let mut child = W::Observed::default();
    wanted.write_into(&mut child);
    let mut body = body_of(&child, None, wanted.name());
    body["metadata"].as_object_mut().expect("an object has metadata").remove("namespace");
    let created = api.create(&PostParams::default(), &parse(body)).await;
    as_wanted(wanted, &created.unwrap_or_else(|error| panic!("not created: {error}\n{wanted:#?}")))
}

/// Patches the object as a sync does.
async fn write_over<W: Wanted + Debug>(api: &Api<DynamicObject>, wanted: &W) -> W::Observed {
    let name = wanted.name();
    loop {
        let live = api.get(name).await.expect("the object can be read");
        let live = serde_json::to_value(&live).expect("an object serializes");
        let observed = parse(live.clone());
        let changes = Changes::of(wanted, &observed);
        if changes.differences.is_empty() {
            return observed;
        }
        let patch = changes.patch(&observed, Some(&live));
        let params = PatchParams::default();
        let patched = match patch.is_strategic {
            true => api.patch(name, &params, &Patch::Strategic(&patch.body)).await,
            false => api.patch(name, &params, &Patch::Merge(&patch.body)).await,
        };
        match patched {
            // A controller has updated the status in between.
            Err(kube_client::Error::Api(status)) if status.code == 409 => {}
            Err(error) => panic!("not patched: {error}\n{wanted:#?}\n{}", patch.body),
            Ok(patched) => {
                as_wanted(wanted, &patched);
                return as_wanted(wanted, &api.get(name).await.expect("the object can be read"));
            }
        }
    }
}

// --- generating ---

fn one_of<'a>(random: &mut fastrand::Rng, choices: &[&'a str]) -> &'a str {
    choices[random.usize(0..choices.len())]
}

fn some<T>(
    random: &mut fastrand::Rng,
    most: usize,
    mut make: impl FnMut(&mut fastrand::Rng, usize) -> T,
) -> Vec<T> {
    (0..random.usize(0..=most)).map(|at| make(random, at)).collect()
}

fn labels(random: &mut fastrand::Rng) -> Labels {
    some(random, 3, |random, at| (format!("l{at}"), random.u8(0..9).to_string())).into_iter().collect()
}

fn variable(random: &mut fastrand::Rng, at: usize) -> EnvVar {
    let source = match random.u8(0..6) {
        0 => Some(EnvVarSource {
            field_ref: Some(ObjectFieldSelector {
                // The server defaults this to v1.
                api_version: random.bool().then(|| "v1".to_owned()),
                field_path: "metadata.name".to_owned(),
            }),
            ..EnvVarSource::default()
        }),
        1 => Some(EnvVarSource {
            config_map_key_ref: Some(ConfigMapKeySelector {
                key: "k".to_owned(),
                name: "m".to_owned(),
                optional: random.bool().then_some(true),
            }),
            ..EnvVarSource::default()
        }),
        2 => Some(EnvVarSource {
            resource_field_ref: Some(ResourceFieldSelector {
                container_name: random.bool().then(|| "c0".to_owned()),
                divisor: random.bool().then(|| Quantity(one_of(random, &["1", "1000m", "1m"]).to_owned())),
                resource: "limits.cpu".to_owned(),
            }),
            ..EnvVarSource::default()
        }),
        _ => None,
    };
    let value = source.is_none().then(|| one_of(random, &["", "1", "a b", "$(X)"]).to_owned());
    EnvVar { name: format!("V{at}"), value: value.filter(|_| random.u8(0..4) > 0), value_from: source }
}

fn port(random: &mut fastrand::Rng, at: usize) -> ContainerPort {
    ContainerPort {
        container_port: 8000 + i32::try_from(at).expect("the index is small"),
        name: random.bool().then(|| format!("p{at}")),
        protocol: [None, Some("TCP"), Some("UDP")][random.usize(0..3)].map(str::to_owned),
        ..ContainerPort::default()
    }
}

/// Quantities in ascending order, small enough for any node.
const CPU: [&str; 6] = ["1m", "1500u", "0.002", "3e-3", "10m", ".1"];
const MEMORY: [&str; 6] = ["1024Ki", "1Mi", "1.5Mi", "2e6", "3000k", "0.01Gi"];

fn resources(random: &mut fastrand::Rng) -> ResourceRequirements {
    let mut resources = ResourceRequirements::default();
    for (name, amounts) in [("cpu", CPU), ("memory", MEMORY)] {
        let limit = random.usize(0..amounts.len());
        let request = random.usize(0..=limit);
        for (list, at) in [(&mut resources.limits, limit), (&mut resources.requests, request)] {
            if random.bool() {
                list.get_or_insert_default().insert(name.to_owned(), Quantity(amounts[at].to_owned()));
            }
        }
    }
    resources
}

fn container(random: &mut fastrand::Rng, at: usize) -> WantedContainer {
    let digest = "registry.local/a@sha256:0123456789012345678901234567890123456789012345678901234567890123";
    let mut env = some(random, 4, variable);
    random.shuffle(&mut env);
    WantedContainer {
        name: format!("c{at}"),
        image: one_of(random, &["nginx", "nginx:1.27", digest]).to_owned(),
        env,
        ports: some(random, 3, port),
        resources: (random.u8(0..4) > 0).then(|| resources(random)),
        image_pull_policy: [None, Some("Always"), Some("IfNotPresent"), Some("Never")][random.usize(0..4)]
            .map(str::to_owned),
    }
}

fn deployment(random: &mut fastrand::Rng, name: &str) -> WantedDeployment {
    let selector = Labels::from([("app".to_owned(), name.to_owned())]);
    let mut pod_labels = selector.clone();
    pod_labels.extend(some(random, 2, |_, at| (format!("example.com/l{at}"), String::new())));
    let count = random.usize(1..=3);
    WantedDeployment {
        name: name.to_owned(),
        labels: labels(random),
        selector,
        pod_labels,
        replicas: i32::from(random.u8(0..2)),
        containers: (0..count).map(|at| container(random, at)).collect(),
    }
}

fn service(random: &mut fastrand::Rng, name: &str) -> WantedService {
    let count = random.usize(1..=4);
    let mut ports: Vec<ServicePort> = (0..count)
        .map(|at| ServicePort {
            name: (count > 1 || random.bool()).then(|| format!("p{at}")),
            // The second and the third port may share a number.
            port: 80 + [0, 1, random.i32(1..=2), 3][at],
            protocol: [None, Some("TCP"), Some("UDP"), Some("UDP")][at].map(str::to_owned),
            target_port: [None, Some(IntOrString::Int(8080)), Some(IntOrString::String("web".to_owned()))]
                [random.usize(0..3)]
            .clone(),
            app_protocol: [None, Some("http"), Some("kubernetes.io/h2c")][random.usize(0..3)]
                .map(str::to_owned),
            node_port: None,
        })
        .collect();
    random.shuffle(&mut ports);
    WantedService {
        name: name.to_owned(),
        labels: labels(random),
        selector: Labels::from([("app".to_owned(), one_of(random, &["a", "b"]).to_owned())]),
        service_type: [ServiceType::ClusterIp, ServiceType::NodePort][random.usize(0..2)],
        ports,
    }
}

fn data(random: &mut fastrand::Rng) -> BTreeMap<String, String> {
    some(random, 3, |random, at| (format!("k{at}"), one_of(random, &["", "1", "a\nb"]).to_owned()))
        .into_iter()
        .collect()
}

fn config_map(random: &mut fastrand::Rng, name: &str) -> WantedConfigMap {
    WantedConfigMap { name: name.to_owned(), labels: labels(random), data: data(random) }
}

fn secret(random: &mut fastrand::Rng, name: &str) -> WantedSecret {
    WantedSecret {
        name: name.to_owned(),
        labels: labels(random),
        type_: [None, Some("Opaque"), Some("example.com/key")][random.usize(0..3)].map(str::to_owned),
        data: data(random).into_iter().map(|(key, value)| (key, ByteString(value.into_bytes()))).collect(),
    }
}

fn ingress(random: &mut fastrand::Rng, name: &str) -> WantedIngress {
    WantedIngress {
        name: name.to_owned(),
        labels: labels(random),
        class: one_of(random, &["nginx", "other.example.com"]).to_owned(),
        host: one_of(random, &["a.example.com", "*.example.com"]).to_owned(),
        service: one_of(random, &["a", "b"]).to_owned(),
        service_port: random.i32(1..=65_535),
    }
}

// --- cases ---

/// Creates generated objects and overwrites each with another; `keep` copies immutable fields to the second.
async fn write_twice<W: Wanted + Debug>(
    make: impl Fn(&mut fastrand::Rng, &str) -> W,
    keep: impl Fn(&W, W) -> W,
) {
    let bed = Bed::shared().await;
    let namespace = bed.namespace("written").await;
    let api = api_of::<W>(&bed, &namespace);
    let mut random = fastrand::Rng::with_seed(7);
    for at in 0..GENERATED {
        let name = format!("web-{at}");
        let first = make(&mut random, &name);
        create(&api, &first).await;
        let second = keep(&first, make(&mut random, &name));
        write_over(&api, &second).await;
    }
}

#[apply(both_beds)]
async fn written_deployment_reads_back_without_differences() {
    // The selector is immutable.
    let keep =
        |first: &WantedDeployment, second| WantedDeployment { selector: first.selector.clone(), ..second };
    write_twice(deployment, keep).await;
}

/// What others have added to a Deployment, also to our container, outlives our patches, and their items keep their place.
#[apply(both_beds)]
async fn patched_deployment_keeps_what_others_added() {
    let bed = Bed::shared().await;
    let namespace = bed.namespace("written").await;
    let api = api_of::<WantedDeployment>(&bed, &namespace);
    let mut random = fastrand::Rng::with_seed(7);
    for at in 0..GENERATED {
        let name = format!("web-{at}");
        let first = deployment(&mut random, &name);
        create(&api, &first).await;
        let theirs = json!({
            "metadata": {"annotations": {"theirs": "1"}, "labels": {"theirs": "1"}},
            "spec": {"minReadySeconds": 1, "template": {"spec": {
                "containers": [
                    {"name": "theirs", "image": "proxy", "env": [{"name": "V0", "value": "theirs"}]},
                    {"name": "c0", "workingDir": "/theirs", "volumeMounts": [{"name": "theirs", "mountPath": "/theirs"}]},
                ],
                "volumes": [{"name": "theirs", "emptyDir": {}}],
            }}},
        });
        api.patch(&name, &PatchParams::default(), &Patch::Strategic(&theirs))
            .await
            .expect("others may patch");
        let second = WantedDeployment { selector: first.selector.clone(), ..deployment(&mut random, &name) };
        write_over(&api, &second).await;
        let live = json!(api.get(&name).await.expect("the object can be read"));
        let pod = &live["spec"]["template"]["spec"];
        let container = |name: &str| {
            let all = pod["containers"].as_array().expect("a Pod has containers");
            all.iter().find(|container| container["name"] == name).expect("the container is there")
        };
        assert_eq!(container("theirs")["env"], json!([{"name": "V0", "value": "theirs"}]));
        assert_eq!(container("c0")["workingDir"], "/theirs");
        assert_eq!(container("c0")["volumeMounts"][0]["name"], "theirs");
        assert_eq!(pod["volumes"], json!([{"name": "theirs", "emptyDir": {}}]));
        assert_eq!(live["spec"]["minReadySeconds"], 1);
        let metadata = &live["metadata"];
        assert_eq!(
            (&metadata["annotations"]["theirs"], &metadata["labels"]["theirs"]),
            (&json!("1"), &json!("1"))
        );
        let names = |env: &Value| -> Vec<String> {
            env.as_array().into_iter().flatten().map(|one| one["name"].to_string()).collect()
        };
        assert_eq!(
            names(&container("c0")["env"]),
            names(&json!(second.containers[0].env)),
            "the order matters"
        );
    }
}

#[apply(both_beds)]
async fn written_maps_read_back_without_differences() {
    write_twice(config_map, |_, second| second).await;
    // The type is immutable.
    write_twice(secret, |first, second| WantedSecret { type_: first.type_.clone(), ..second }).await;
}

#[apply(both_beds)]
async fn written_ingress_reads_back_without_differences() {
    write_twice(ingress, |_, second| second).await;
}

/// Returns the allocated node port of the port with the same number and protocol.
fn node_port_of(service: &ObservedService, port: &ServicePort) -> Option<i32> {
    let protocol = |port: &ServicePort| port.protocol.clone().unwrap_or_else(|| "TCP".to_owned());
    let found =
        service.spec.ports.iter().find(|live| live.port == port.port && protocol(live) == protocol(port));
    found.and_then(|live| live.node_port)
}

#[apply(both_beds)]
async fn written_service_keeps_its_allocated_fields() {
    let bed = Bed::shared().await;
    let namespace = bed.namespace("written").await;
    let api = api_of::<WantedService>(&bed, &namespace);
    let mut random = fastrand::Rng::with_seed(7);
    for at in 0..GENERATED {
        let name = format!("web-{at}");
        let first = create(&api, &service(&mut random, &name)).await;
        let mut second = service(&mut random, &name);
        // One port requests a node port that the first version holds.
        let asked = if second.service_type == ServiceType::NodePort && random.bool() {
            let asked = first.spec.ports[random.usize(0..first.spec.ports.len())].node_port;
            let at = random.usize(0..second.ports.len());
            second.ports[at].node_port = asked;
            asked
        } else {
            None
        };
        let written = write_over(&api, &second).await;
        assert_eq!(written.spec.cluster_ip, first.spec.cluster_ip);
        for port in second.ports.iter().filter(|_| second.service_type == ServiceType::NodePort) {
            let (before, now) = (node_port_of(&first, port), node_port_of(&written, port));
            assert!(now.is_some(), "{written:#?}");
            if before.is_some() && before != asked && port.node_port.is_none() {
                assert_eq!(now, before, "{first:#?}\n{second:#?}\n{written:#?}");
            }
        }
        // A node port that is no longer requested is kept.
        second.ports.iter_mut().for_each(|port| port.node_port = None);
        assert_eq!(write_over(&api, &second).await.spec, written.spec);
        api.delete(&name, &DeleteParams::default()).await.expect("the Service can be deleted");
    }
}

/// Only labels are changed, as the rest of a Pod is immutable.
#[apply(both_beds)]
async fn written_pod_reads_back_and_is_not_outdated() {
    let bed = Bed::shared().await;
    let namespace = bed.namespace("written").await;
    let accounts: Api<ServiceAccount> = Api::namespaced(bed.client(), &namespace);
    // The server rejects Pods until the service account exists.
    wait_until("the default service account exists", async || accounts.get("default").await).await;
    let api = api_of::<WantedPod>(&bed, &namespace);
    let mut random = fastrand::Rng::with_seed(7);
    for at in 0..GENERATED {
        let wanted = WantedPod {
            name: format!("web-{at}"),
            labels: labels(&mut random),
            container: container(&mut random, 0),
        };
        let created = create(&api, &wanted).await;
        assert_eq!(wanted.is_outdated(&created), [], "{wanted:#?}\n{created:#?}");
        let relabelled = WantedPod { labels: labels(&mut random), ..wanted };
        let written = write_over(&api, &relabelled).await;
        assert_eq!(relabelled.is_outdated(&written), [], "{relabelled:#?}\n{written:#?}");
    }
}
