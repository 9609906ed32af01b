use serde_json::{Value, json};

use super::*;
use crate::api::samplecontroller::v1alpha1::Foo;
use crate::controller::pass::tests::one_step::OneStep;
use crate::testing::test_server::TestServer;

const FOOS: &str = "/apis/samplecontroller.k8s.io/v1alpha1/namespaces/ns/foos";
const OURS: &str = "windlass.dev/test";

/// Returns a server with a live Foo, and the owner as of `cached`, or of the live object.
async fn rig(metadata: &Value, cached: Option<&Value>) -> (TestServer, OneStep, Owner) {
    let server = TestServer::start().await;
    let with = |more: &Value| {
        let mut foo = json!({"metadata": {"name": "one", "uid": "u1", "generation": 1},
            "spec": {"deploymentName": "web", "replicas": 1}});
        for (key, value) in more.as_object().unwrap() {
            foo["metadata"][key] = value.clone();
        }
        server.store(FOOS, foo)
    };
    let before = cached.map(with);
    let live = with(metadata);
    let foo: Foo = serde_json::from_value(before.unwrap_or(live)).unwrap();
    let children = OneStep::new(server.client());
    (server, children, Owner::of(&foo))
}

fn finalizers(server: &TestServer) -> Value {
    server.get(&format!("{FOOS}/one")).unwrap()["metadata"]["finalizers"].clone()
}

#[tokio::test(start_paused = true)]
async fn foreign_finalizers_are_kept() {
    let others = json!({"finalizers": ["a.example/x", "b.example/y"]});
    let (server, children, owner) = rig(&others, None).await;
    let written = children.add_finalizer(&owner, OURS).await.unwrap().unwrap();
    assert_eq!(finalizers(&server), json!(["a.example/x", "b.example/y", OURS]));
    assert_eq!(server.requests(), [format!("PATCH {FOOS}/one")]);
    let held = Owner { version: written, finalizers: vec!["x".into(), OURS.into()], ..owner };
    assert_eq!(children.add_finalizer(&held, OURS).await.unwrap(), Some(held.version.clone()));
    assert_eq!(server.requests(), Vec::<String>::new(), "the finalizer is already set");
}

#[tokio::test(start_paused = true)]
async fn finalizer_is_not_added_to_a_changed_owner() {
    for metadata in [
        json!({"deletionTimestamp": "2020-01-01T00:00:00Z"}),
        json!({"uid": "another uid"}),
        json!({"generation": 2}),
        json!({"annotations": {"windlass.dev/paused": "true"}}),
    ] {
        let (server, children, owner) = rig(&metadata, Some(&json!({}))).await;
        assert_eq!(children.add_finalizer(&owner, OURS).await.unwrap(), None, "{metadata}");
        assert_eq!(finalizers(&server), Value::Null);
    }
    let (server, children, owner) = rig(&json!({}), None).await;
    server.remove(&format!("{FOOS}/one"));
    assert_eq!(children.add_finalizer(&owner, OURS).await.unwrap(), None);
}

#[tokio::test(start_paused = true)]
async fn stale_finalizer_list_is_reread_once() {
    let (server, children, owner) = rig(&json!({"finalizers": ["a.example/x"]}), Some(&json!({}))).await;
    assert!(children.add_finalizer(&owner, OURS).await.unwrap().is_some());
    assert_eq!(finalizers(&server), json!(["a.example/x", OURS]));
    assert_eq!(server.requests(), ["PATCH", "GET", "PATCH"].map(|verb| format!("{verb} {FOOS}/one")));
}

#[tokio::test(start_paused = true)]
async fn finalizer_is_removed_only_from_a_deleted_owner() {
    let held = json!({"finalizers": [OURS]});
    let going = json!({"finalizers": ["a.example/x", OURS], "deletionTimestamp": "2020-01-01T00:00:00Z"});
    let (server, children, owner) = rig(&held, Some(&going)).await;
    assert!(!children.remove_finalizer(&owner, OURS).await.unwrap(), "the live owner stays");
    assert_eq!(finalizers(&server), json!([OURS]));
    for cached in [None, Some(&json!({"finalizers": [OURS], "deletionTimestamp": "2020-01-01T00:00:00Z"}))] {
        let (server, children, owner) = rig(&going, cached).await;
        assert!(children.remove_finalizer(&owner, OURS).await.unwrap());
        assert_eq!(finalizers(&server), json!(["a.example/x"]));
    }
    let another = json!({"finalizers": [OURS], "uid": "another uid"});
    let (server, children, owner) = rig(&another, Some(&going)).await;
    assert!(children.remove_finalizer(&owner, OURS).await.unwrap());
    assert_eq!(finalizers(&server), json!([OURS]), "the finalizer of another object stays");
}

/// The response carries the old version, which the cache has seen: the object is deleted without another store.
#[tokio::test(start_paused = true)]
async fn removing_last_finalizer_waits_for_the_deletion_event() {
    use k8s_openapi::api::core::v1::ConfigMap;

    use crate::api::ApiResource;
    use crate::cache::{Cached, Indexers, Object, ObjectName, store};
    use crate::client::ApiClient;
    use crate::sim::{InProcessTransport, Settings, Sim};

    let (sim, maps) = (Sim::new(Settings::default()), ApiResource::of::<ConfigMap>());
    let client = ApiClient::new(kube_client::Client::new(InProcessTransport::new(&sim, "me"), "default"));
    let map = json!({"metadata": {"name": "a", "finalizers": [OURS]}});
    let map: ConfigMap = client.create(&maps, Some("default"), &map).await.unwrap();
    client.delete(&maps, Some("default"), "a", map.uid(), map.resource_version()).await.unwrap();
    let live: ConfigMap = client.get(&maps, Some("default"), "a").await.unwrap().unwrap();

    let (cache, mut writer) = store::pair(Indexers::default());
    let (owner, name) = (Owner::of(&live), ObjectName::new(Some("default"), "a"));
    writer.upsert(Cached::new(Ok(live)));
    let children = OneStep::new(client);
    children.stores.add(maps, None, cache);
    assert!(children.remove_finalizer(&owner, OURS).await.unwrap());
    assert!(!children.is_ready(), "the cache still shows the object");
    writer.delete(&name, "999");
    assert!(children.is_ready());
}
