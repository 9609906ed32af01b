//! The API server refuses what cannot work, and names the field. Each kind has a file of its own with what is just
//! inside its bounds and what is just outside.

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

/// An object of a kind that is right but for what the case changes: its name, and members of its spec.
struct Object {
    name: String,
    spec: Value,
}

/// One that is refused, and words of the refusal.
type Refused = (Object, &'static str);

/// An object with this spec.
fn named(name: impl Into<String>, spec: Value) -> Object {
    Object { name: name.into(), spec }
}

/// A minimal spec with some members changed; those that are null are taken away.
fn with(mut spec: Value, changes: Value) -> Value {
    let Value::Object(changes) = changes else { panic!("changes are members") };
    let members = spec.as_object_mut().expect("a spec has members");
    members.extend(changes);
    members.retain(|_, value| !value.is_null());
    spec
}

fn letters(length: usize) -> String {
    "a".repeat(length)
}

/// Asks a server to create them, without storing them.
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
async fn each_bound_of_foo_holds_just_inside_and_just_outside() {
    check::<Foo>(foo::inside(), foo::outside()).await;
}

#[apply(both_beds)]
async fn each_bound_of_myapp_holds_just_inside_and_just_outside() {
    check::<Myapp>(myapp::inside(), myapp::outside()).await;
}

#[apply(both_beds)]
async fn each_bound_of_appservice_holds_just_inside_and_just_outside() {
    check::<AppService>(appservice::inside(), appservice::outside()).await;
}

#[apply(both_beds)]
async fn each_bound_of_redis_holds_just_inside_and_just_outside() {
    check::<Redis>(redis::inside(), redis::outside()).await;
}

#[apply(both_beds)]
async fn each_bound_of_webapp_holds_just_inside_and_just_outside() {
    check::<WebApp>(webapp::inside(), webapp::outside()).await;
}
