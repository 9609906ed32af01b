//! The CRDs and samples of the project's own kinds.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube_core::CustomResourceExt;
use serde::de::DeserializeOwned;

use super::*;
use crate::api::ApiResource;
use crate::api::appservice::v1alpha1::AppService;
use crate::api::myapp::v1::Myapp;
use crate::api::redis::v1::Redis;
use crate::api::samplecontroller::v1alpha1::Foo;

/// Creates the CRD of a kind and its samples; returns the samples as stored.
async fn store<K>(samples: &str) -> Vec<K>
where
    K: CustomResourceExt + kube_core::Resource<DynamicType = ()> + DeserializeOwned,
{
    let bed = Bed::new();
    let crd: CustomResourceDefinition = K::crd();
    bed.ok("POST", CRDS, serde_json::to_value(crd).unwrap()).await;
    settle().await;
    let path = format!("{}?fieldValidation=Strict", ApiResource::of::<K>().path(Some("default")));
    let mut stored = Vec::new();
    for sample in serde_saphyr::from_multiple::<Value>(samples).unwrap() {
        let sample = bed.ok("POST", &path, sample).await;
        stored.push(serde_json::from_value(sample).unwrap());
    }
    stored
}

#[tokio::test(start_paused = true)]
async fn samples_are_stored_with_schema_defaults() {
    let foos: Vec<Foo> = store(include_str!("../../../crd/samples/foo.yaml")).await;
    assert_eq!(foos.iter().map(|foo| foo.spec.replicas).collect::<Vec<_>>(), [1, 3]);
    let myapps: Vec<Myapp> = store(include_str!("../../../crd/samples/myapp.yaml")).await;
    assert_eq!(myapps.iter().map(|myapp| myapp.spec.replicas).collect::<Vec<_>>(), [1, 2]);
    let services: Vec<AppService> = store(include_str!("../../../crd/samples/appservice.yaml")).await;
    let protocols = services[1].spec.ports.iter().map(|port| port.protocol.as_deref());
    assert_eq!(protocols.collect::<Vec<_>>(), [Some("TCP"), Some("TCP"), Some("UDP")]);
    let redis: Vec<Redis> = store(include_str!("../../../crd/samples/redis.yaml")).await;
    assert_eq!(redis.iter().map(|redis| redis.spec.replicas).collect::<Vec<_>>(), [1, 3]);
}
