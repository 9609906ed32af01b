use std::convert::Infallible;
use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;

use super::*;
use crate::api::samplecontroller::v1alpha1::Foo;
use crate::cache::ObjectName;
use crate::client::ApiClient;
use crate::controller::kinds::deployment::{DEPLOYMENTS, ObservedDeployment};
use crate::controller::pass::tests::one_step::OneStep;
use crate::testing::test_server::TestServer;

const COLLECTION: &str = "/apis/apps/v1/namespaces/ns/deployments";

async fn rig() -> (TestServer, OneStep, Owner) {
    let server = TestServer::start().await;
    let children = OneStep::new(server.client());
    let foos = ApiResource::of::<Foo>();
    (server, children, Owner::known_as(foos, ObjectName::new(Some("ns"), "one"), "u1", "1"))
}

fn store(server: &TestServer, name: &str, owner_uid: &str, has_labels: bool) {
    let labels = if has_labels { json!(labels::common("Foo", "one")) } else { json!({}) };
    let reference = json!({"apiVersion": "samplecontroller.k8s.io/v1alpha1", "kind": "Foo", "name": "one",
        "uid": owner_uid, "controller": true});
    let metadata = json!({"name": name, "namespace": "ns", "labels": labels, "ownerReferences": [reference]});
    server.store(COLLECTION, json!({"metadata": metadata}));
}

fn names(found: &[ChildRef]) -> Vec<&str> {
    found.iter().map(|child| child.name.as_str()).collect()
}

#[tokio::test(start_paused = true)]
async fn unlabelled_children_are_found_by_owner_uid() {
    let (server, children, owner) = rig().await;
    store(&server, "bare", "u1", false);
    store(&server, "labelled", "u1", true);
    store(&server, "foreign", "another", false);
    let found = children.without_label(&owner, &DEPLOYMENTS).await.unwrap();
    assert_eq!(names(&found), ["bare"]);
}

#[tokio::test(start_paused = true)]
async fn uncached_children_are_found_by_their_labels() {
    let (server, children, owner) = rig().await;
    store(&server, "bare", "u1", false);
    store(&server, "late", "u1", true);
    store(&server, "of-a-previous-incarnation", "u0", true);
    let found = children.with_label(&owner, &DEPLOYMENTS).await.unwrap();
    assert_eq!(names(&found), ["late"]);
    let unseen = children.unseen_children(&owner, &DEPLOYMENTS).await.unwrap();
    assert_eq!(names(&unseen), ["bare", "late"]);
    let all: Vec<Cached<ObservedDeployment>> = children.live_children(&owner).await.unwrap();
    let mut all: Vec<ChildRef> = all.iter().map(ChildRef::of).collect();
    all.sort_by(|a, b| a.name.cmp(&b.name));
    assert_eq!(names(&all), ["bare", "late"]);
}

#[tokio::test(start_paused = true)]
async fn unseen_children_are_listed_concurrently() {
    const WAIT: Duration = Duration::from_millis(100);
    let service = tower::service_fn(|_: http::Request<kube_client::client::Body>| async {
        tokio::time::sleep(WAIT).await;
        let list = json!({"metadata": {"resourceVersion": "1"}, "items": []}).to_string();
        Ok::<_, Infallible>(http::Response::new(kube_client::client::Body::from(list.into_bytes())))
    });
    let children = OneStep::new(ApiClient::new(kube_client::Client::new(service, "default")));
    let (_, _, owner) = rig().await;
    let began = Instant::now();
    assert_eq!(children.unseen_children(&owner, &DEPLOYMENTS).await.unwrap(), []);
    assert_eq!(began.elapsed(), WAIT, "the two lists do not wait for each other");
}

/// I10
#[tokio::test(start_paused = true)]
async fn failed_list_returns_an_error() {
    let (server, children, owner) = rig().await;
    for _ in 0..3 {
        server.refuse("list", 500, "InternalError");
    }
    assert!(children.without_label(&owner, &DEPLOYMENTS).await.is_err());
    assert!(children.unseen_children(&owner, &DEPLOYMENTS).await.is_err());
    assert!(children.live_children::<ObservedDeployment>(&owner).await.is_err());
}

/// I7: the owner's finalizer must not be removed before this object is gone.
#[tokio::test(start_paused = true)]
async fn malformed_object_naming_the_owner_counts() {
    let (server, children, owner) = rig().await;
    for (name, uid) in [("odd", "u1"), ("others", "another")] {
        let metadata = json!({"name": name, "namespace": "ns", "generation": "seven",
            "ownerReferences": [{"uid": uid, "controller": true}]});
        server.store(COLLECTION, json!({"metadata": metadata}));
    }
    let found = children.without_label(&owner, &DEPLOYMENTS).await.unwrap();
    assert_eq!(names(&found), ["odd"]);
}
