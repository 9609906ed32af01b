//! Server-side apply as users of kube-rs write it: the answers are the same on both beds.

use k8s_openapi::api::core::v1::ConfigMap;
use kube_client::Error;
use kube_client::api::{Api, Patch, PatchParams, PostParams};
use macro_rules_attribute::apply;
use serde_json::{Value, json};
use windlass::api::samplecontroller::v1alpha1::{Foo, FooSpec};

use crate::support::{Scene, both_beds};

/// Applies this data to a ConfigMap, and returns what it has then.
async fn applied(maps: &Api<ConfigMap>, params: &PatchParams, data: Value) -> Result<Value, (u16, String)> {
    let object =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "shared"}, "data": data});
    match maps.patch("shared", params, &Patch::Apply(object)).await {
        Ok(map) => Ok(json!(map.data)),
        Err(Error::Api(status)) => Err((status.code, status.message.clone())),
        Err(error) => panic!("{error}"),
    }
}

#[apply(both_beds)]
async fn managers_share_an_object() {
    let scene = Scene::new("applying").await;
    let maps: Api<ConfigMap> = Api::namespaced(scene.bed.client(), &scene.namespace);
    let (one, other) = (PatchParams::apply("one"), PatchParams::apply("other"));
    let both = json!({"colour": "red", "size": "big"});
    assert_eq!(applied(&maps, &one, both.clone()).await, Ok(both));

    let conflict = r#"Apply failed with 1 conflict: conflict with "one": .data.colour"#;
    let blue = json!({"colour": "blue"});
    assert_eq!(applied(&maps, &other, blue.clone()).await, Err((409, conflict.to_owned())));
    let forced = applied(&maps, &other.clone().force(), blue).await;
    assert_eq!(forced, Ok(json!({"colour": "blue", "size": "big"})), "only what is in conflict is taken");

    let left = applied(&maps, &one, json!({"size": "big"})).await;
    assert_eq!(left, Ok(json!({"colour": "blue", "size": "big"})), "the other one owns the colour");
    let left = applied(&maps, &other, json!({})).await;
    assert_eq!(left, Ok(json!({"size": "big"})), "nobody owns the colour any more");

    let map = maps.get("shared").await.unwrap();
    let managers = map.metadata.managed_fields.unwrap_or_default().into_iter();
    let owned: Vec<Value> = managers
        .map(|entry| json!([entry.manager, entry.operation, entry.fields_v1.map(|fields| fields.0)]))
        .collect();
    let size = json!(["one", "Apply", {"f:data": {"f:size": {}}}]);
    assert_eq!(owned, [size, json!(["other", "Apply", {"f:data": {}}])]);
}

#[apply(both_beds)]
async fn status_of_a_custom_resource_is_applied() {
    let scene = Scene::new("applying-status").await;
    let foos: Api<Foo> = Api::namespaced(scene.bed.client(), &scene.namespace);
    let foo = Foo::new("web", FooSpec { deployment_name: "web".to_owned(), replicas: 2 });
    foos.create(&PostParams::default(), &foo).await.unwrap();
    let object = json!({
        "apiVersion": "samplecontroller.k8s.io/v1alpha1",
        "kind": "Foo",
        "status": {"availableReplicas": 2},
        "spec": {"replicas": 7},
    });
    // The operator may have written the status before.
    let params = PatchParams::apply("someone").force();
    let foo = foos.patch_status("web", &params, &Patch::Apply(object)).await.unwrap();
    assert_eq!((foo.spec.replicas, foo.status.unwrap().available_replicas), (2, 2), "the spec stays");
}
