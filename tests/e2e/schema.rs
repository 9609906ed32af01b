//! The API server refuses invalid specs and names the field. Each kind has a file with specs just inside and just
//! outside its bounds.

mod appservice;
mod foo;
mod myapp;
mod redis;
mod shared;
mod webapp;

use kube_client::Resource;
use kube_client::api::{Api, ApiResource as KubeResource, DynamicObject, PostParams};
use macro_rules_attribute::apply;
use serde_json::{Value, json};
use windlass::api::appservice::v1alpha1::AppService;
use windlass::api::myapp::v1::Myapp;
use windlass::api::redis::v1::Redis;
use windlass::api::samplecontroller::v1alpha1::Foo;
use windlass::api::webapp::v1::WebApp;

use crate::support::{Bed, Scene, both_beds};

/// A name and a spec to create an object from.
struct Object {
    name: String,
    spec: Value,
}

/// An object that is refused, and a part of the refusal's message.
type Refused = (Object, &'static str);

/// Creates an object with this name and spec.
fn named(name: impl Into<String>, spec: Value) -> Object {
    Object { name: name.into(), spec }
}

/// Returns a spec with some members changed; a null removes the member.
fn with(mut spec: Value, changes: Value) -> Value {
    let Value::Object(changes) = changes else { panic!("changes are an object") };
    let members = spec.as_object_mut().expect("a spec has members");
    members.extend(changes);
    members.retain(|_, value| !value.is_null());
    spec
}

fn letters(length: usize) -> String {
    "a".repeat(length)
}

/// Checks with dry runs that the server accepts the objects `inside` and refuses the objects `outside`.
async fn check<K: Resource<DynamicType = ()>>(inside: Vec<Object>, outside: Vec<Refused>) {
    let scene = Scene::on(Bed::shared().await, "bounds").await;
    let resource = KubeResource::erase::<K>(&());
    let api: Api<DynamicObject> = Api::namespaced_with(scene.bed.client(), &scene.namespace, &resource);
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    let create = async |object: &Object| {
        let object = json!({"apiVersion": resource.api_version, "kind": resource.kind,
            "metadata": {"name": object.name}, "spec": object.spec});
        let object = serde_json::from_value(object).expect("an object has metadata");
        api.create(&dry_run, &object).await.map(drop).map_err(|error| error.to_string())
    };
    for object in inside {
        assert_eq!(create(&object).await, Ok(()), "{}: {}", object.name, object.spec);
    }
    for (object, words) in outside {
        let refusal = create(&object).await.expect_err(&format!("{} is refused: {words}", object.spec));
        assert!(refusal.contains(words), "{}: {words} is not in: {refusal}", object.spec);
    }
}

#[apply(both_beds)]
async fn foo_schema_bounds_are_exact() {
    check::<Foo>(foo::inside(), foo::outside()).await;
}

#[apply(both_beds)]
async fn myapp_schema_bounds_are_exact() {
    check::<Myapp>(myapp::inside(), myapp::outside()).await;
}

#[apply(both_beds)]
async fn appservice_schema_bounds_are_exact() {
    check::<AppService>(appservice::inside(), appservice::outside()).await;
}

#[apply(both_beds)]
async fn redis_schema_bounds_are_exact() {
    check::<Redis>(redis::inside(), redis::outside()).await;
}

#[apply(both_beds)]
async fn webapp_schema_bounds_are_exact() {
    check::<WebApp>(webapp::inside(), webapp::outside()).await;
}
