//! The comparison by meaning, held against the server: what is written reads back without a difference.

use k8s_openapi::api::core::v1::{
    ConfigMapKeySelector, ContainerPort, EnvVar, EnvVarSource, ObjectFieldSelector, ResourceFieldSelector,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube_client::Api;
use kube_client::api::{DynamicObject, PostParams};
use macro_rules_attribute::apply;
use serde_json::{Value, json};
use windlass::api::labels::Labels;
use windlass::controller::Wanted;
use windlass::controller::deployment::{ObservedDeployment, WantedContainer, WantedDeployment};

use crate::support::{Bed, both_beds};

/// Deployments that are generated, each written twice.
const GENERATED: usize = 60;

fn some<T>(
    random: &mut fastrand::Rng,
    most: usize,
    mut make: impl FnMut(&mut fastrand::Rng, usize) -> T,
) -> Vec<T> {
    (0..random.usize(0..=most)).map(|at| make(random, at)).collect()
}

fn variable(random: &mut fastrand::Rng, at: usize) -> EnvVar {
    let source = match random.u8(0..6) {
        0 => Some(EnvVarSource {
            field_ref: Some(ObjectFieldSelector {
                // The server fills in v1.
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
                divisor: random.bool().then(|| Quantity("1".to_owned())),
                resource: "limits.cpu".to_owned(),
            }),
            ..EnvVarSource::default()
        }),
        _ => None,
    };
    let value = source.is_none().then(|| ["", "1", "a b", "$(X)"][random.usize(0..4)].to_owned());
    EnvVar { name: format!("V{at}"), value: value.filter(|_| random.u8(0..4) > 0), value_from: source }
}

fn port(random: &mut fastrand::Rng, at: usize) -> ContainerPort {
    ContainerPort {
        container_port: 8000 + i32::try_from(at).expect("it is small"),
        name: random.bool().then(|| format!("p{at}")),
        protocol: [None, Some("TCP"), Some("UDP")][random.usize(0..3)].map(str::to_owned),
        ..ContainerPort::default()
    }
}

fn wanted(random: &mut fastrand::Rng, name: &str) -> WantedDeployment {
    let selector = Labels::from([("app".to_owned(), name.to_owned())]);
    let mut pod_labels = selector.clone();
    pod_labels.extend(some(random, 2, |_, at| (format!("example.com/l{at}"), String::new())));
    let count = random.usize(1..=3);
    let containers: Vec<WantedContainer> = (0..count)
        .map(|at| WantedContainer {
            name: format!("c{at}"),
            image: [
                "nginx",
                "nginx:1.27",
                "registry.local/a@sha256:0123456789012345678901234567890123456789012345678901234567890123",
            ][random.usize(0..3)]
            .to_owned(),
            env: some(random, 4, variable),
            ports: some(random, 3, port),
        })
        .collect();
    WantedDeployment {
        name: name.to_owned(),
        labels: some(random, 3, |random, at| (format!("l{at}"), random.u8(0..9).to_string()))
            .into_iter()
            .collect(),
        selector,
        pod_labels,
        replicas: i32::from(random.u8(0..2)),
        containers,
    }
}

/// What of it differs in what the server has stored.
fn differences(wanted: &WantedDeployment, stored: &DynamicObject) -> Vec<String> {
    let stored = serde_json::to_value(stored).expect("it is JSON");
    let observed: ObservedDeployment = serde_json::from_value(stored).expect("it is a Deployment");
    wanted.differences(&observed).iter().map(ToString::to_string).collect()
}

#[apply(both_beds)]
async fn what_is_written_reads_back_without_a_difference() {
    let bed = Bed::shared().await;
    let namespace = bed.namespace("written").await;
    let resource = kube_core::ApiResource::erase::<k8s_openapi::api::apps::v1::Deployment>(&());
    let api: Api<DynamicObject> = Api::namespaced_with(bed.client(), &namespace, &resource);
    let mut random = fastrand::Rng::with_seed(7);
    for at in 0..GENERATED {
        let name = format!("web-{at}");
        let first = wanted(&mut random, &name);
        let mut body = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}});
        first.apply(&mut body);
        let body: DynamicObject = serde_json::from_value(body).expect("it is an object");
        let created = api.create(&PostParams::default(), &body).await.expect("it is created");
        assert_eq!(differences(&first, &created), Vec::<String>::new(), "{first:#?}");

        // Another spec over whatever the server has made of the first.
        let second = WantedDeployment { selector: first.selector.clone(), ..wanted(&mut random, &name) };
        let updated = loop {
            let live = api.get(&name).await.expect("it is read");
            let mut live: Value = serde_json::to_value(&live).expect("it is JSON");
            second.apply(&mut live);
            let live: DynamicObject = serde_json::from_value(live).expect("it is an object");
            match api.replace(&name, &PostParams::default(), &live).await {
                // The Deployment controller has written its status in between.
                Err(kube_client::Error::Api(status)) if status.code == 409 => {}
                outcome => break outcome.expect("it is replaced"),
            }
        };
        assert_eq!(differences(&second, &updated), Vec::<String>::new(), "{second:#?}");
        let stored = api.get(&name).await.expect("it is read");
        assert_eq!(differences(&second, &stored), Vec::<String>::new(), "{second:#?}");
    }
}
