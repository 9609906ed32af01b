//! OpenAPI v3: enough for `kubectl explain` and for clients that check for server-side field validation.
//!
//! Schemas of built-in kinds come from the types of `k8s-openapi`, those of custom kinds from their CRDs. Each
//! schema carries its group, version and kind.

use k8s_openapi::api;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use schemars::JsonSchema;
use serde_json::{Map, Value, json};

use super::apply;
use super::core::Core;
use super::failure::{Failure, Outcome};
use super::kinds::{BuiltIn, Kind, Of};
use super::patch;

impl Core {
    /// Returns the index, or the document of one group and version.
    pub(super) fn openapi(&self, path: &[&str]) -> Outcome<Value> {
        match path {
            [] => {
                let mut paths = Map::new();
                for group in self.groups() {
                    for version in self.versions(&group) {
                        let at = if group.is_empty() {
                            format!("api/{version}")
                        } else {
                            format!("apis/{group}/{version}")
                        };
                        let url = format!("/openapi/v3/{at}?hash={}", self.store.version());
                        paths.insert(at, json!({"serverRelativeURL": url}));
                    }
                }
                Ok(json!({"paths": paths}))
            }
            ["api", version] => self.document("", version),
            ["apis", group, version] => self.document(group, version),
            _ => Err(Failure::no_such_path()),
        }
    }

    fn document(&self, group: &str, version: &str) -> Outcome<Value> {
        if !self.catalogue.serves(group, version) {
            return Err(Failure::no_such_path());
        }
        let mut schemas = Map::new();
        let mut paths = Map::new();
        for kind in self.catalogue.iter().filter(|kind| kind.serves(group, version)) {
            let identity = json!([{"group": group, "kind": kind.kind, "version": version}]);
            let (mut schema, shared) = schema_of(kind, version);
            schema["x-kubernetes-group-version-kind"] = identity.clone();
            schemas.insert(schema_name(kind, version), schema);
            schemas.extend(shared);
            paths.extend(paths_of(kind, version));
        }
        Ok(json!({
            "openapi": "3.0.0",
            "info": {"title": "Kubernetes", "version": super::discovery::KUBERNETES.2},
            "paths": paths,
            "components": {"schemas": schemas},
        }))
    }
}

fn schema_name(kind: &Kind, version: &str) -> String {
    let group: Vec<&str> = kind.group.rsplit('.').collect();
    format!(
        "{}.{version}.{}",
        if kind.group.is_empty() { "core".to_owned() } else { group.join(".") },
        kind.kind
    )
}

/// Returns the two paths of a kind with the parameters of each verb, where clients look for `fieldValidation`.
fn paths_of(kind: &Kind, version: &str) -> Vec<(String, Value)> {
    let root = if kind.group.is_empty() {
        format!("/api/{version}")
    } else {
        format!("/apis/{}/{version}", kind.group)
    };
    let root = if kind.is_namespaced { format!("{root}/namespaces/{{namespace}}") } else { root };
    let identity = json!({"group": kind.group, "kind": kind.kind, "version": version});
    let parameters = |names: &[&str]| {
        let one = |name: &&str| json!({"name": name, "in": "query", "schema": {"type": "string"}});
        names.iter().map(one).collect::<Vec<Value>>()
    };
    let write = ["dryRun", "fieldManager", "fieldValidation"];
    let operation = |action: &str| {
        let reference = format!("#/components/schemas/{}", schema_name(kind, version));
        json!({
            "x-kubernetes-action": action,
            "x-kubernetes-group-version-kind": identity,
            "parameters": parameters(&write),
            "responses": {"200": {"description": "OK", "content": {"application/json": {"schema": {"$ref": reference}}}}},
        })
    };
    let collection = json!({"get": operation("list"), "post": operation("post")});
    let object = json!({
        "get": operation("get"), "put": operation("put"), "patch": operation("patch"), "delete": operation("delete"),
    });
    vec![
        (format!("{root}/{}", kind.plural), collection),
        (format!("{root}/{}/{{name}}", kind.plural), object),
    ]
}

/// Returns a kind's schema, and the schemas it refers to.
fn schema_of(kind: &Kind, version: &str) -> (Value, Map<String, Value>) {
    match &kind.of {
        Of::Custom(definition) => {
            let mut schema = definition.version(version).map_or(json!({}), |version| version.schema.clone());
            // These three are the same in all kinds.
            let (like, mut shared) = built_in(BuiltIn::ConfigMap);
            for name in ["apiVersion", "kind", "metadata"] {
                schema["properties"][name] = like["properties"][name].clone();
            }
            shared.retain(|name, _| name.contains(".meta.v1."));
            (schema, shared)
        }
        Of::BuiltIn(of) => built_in(*of),
    }
}

/// Returns the schema of metadata, and the schemas it refers to.
pub(super) fn metadata() -> (Value, Map<String, Value>) {
    of_type::<ObjectMeta>()
}

/// Returns the schema of a built-in kind, and the schemas it refers to.
pub(super) fn built_in(of: BuiltIn) -> (Value, Map<String, Value>) {
    match of {
        BuiltIn::ConfigMap => of_type::<api::core::v1::ConfigMap>(),
        BuiltIn::CustomResourceDefinition => of_type::<CustomResourceDefinition>(),
        BuiltIn::Deployment => of_type::<api::apps::v1::Deployment>(),
        BuiltIn::Event => of_type::<api::core::v1::Event>(),
        BuiltIn::EventV1 => of_type::<api::events::v1::Event>(),
        BuiltIn::HorizontalPodAutoscaler => of_type::<api::autoscaling::v2::HorizontalPodAutoscaler>(),
        BuiltIn::Ingress => of_type::<api::networking::v1::Ingress>(),
        BuiltIn::Lease => of_type::<api::coordination::v1::Lease>(),
        BuiltIn::Namespace => of_type::<api::core::v1::Namespace>(),
        BuiltIn::Node => of_type::<api::core::v1::Node>(),
        BuiltIn::Pod => of_type::<api::core::v1::Pod>(),
        BuiltIn::ReplicaSet => of_type::<api::apps::v1::ReplicaSet>(),
        BuiltIn::ResourceQuota => of_type::<api::core::v1::ResourceQuota>(),
        BuiltIn::Secret => of_type::<api::core::v1::Secret>(),
        BuiltIn::Service => of_type::<api::core::v1::Service>(),
        BuiltIn::ServiceAccount => of_type::<api::core::v1::ServiceAccount>(),
    }
}

fn of_type<T: JsonSchema>() -> (Value, Map<String, Value>) {
    let settings = schemars::generate::SchemaSettings::openapi3();
    let mut schema = settings.into_generator().into_root_schema_for::<T>().to_value();
    with_merge_keys(&mut schema);
    without_required_metadata(&mut schema);
    apply::annotate(&T::schema_name(), &mut schema);
    let mut shared = schema.pointer_mut("/components/schemas").map(Value::take);
    for (name, schema) in shared.as_mut().and_then(Value::as_object_mut).into_iter().flatten() {
        apply::annotate(name, schema);
    }
    if let Some(schema) = schema.as_object_mut() {
        schema.remove("components");
        schema.remove("$schema");
    }
    match shared {
        Some(Value::Object(shared)) => (schema, shared),
        _ => (schema, Map::new()),
    }
}

/// Lets metadata be missing, which the types do not.
fn without_required_metadata(schema: &mut Value) {
    match schema {
        Value::Object(members) => {
            if let Some(required) = members.get_mut("required").and_then(Value::as_array_mut) {
                required.retain(|name| name != "metadata");
            }
            members.values_mut().for_each(without_required_metadata);
        }
        Value::Array(items) => items.iter_mut().for_each(without_required_metadata),
        _ => {}
    }
}

/// Adds the merge key to each list that a strategic merge patch merges.
fn with_merge_keys(schema: &mut Value) {
    match schema {
        Value::Object(members) => {
            let properties = members.get_mut("properties").and_then(Value::as_object_mut);
            for (name, property) in properties.into_iter().flatten() {
                if property["type"] == "array"
                    && let Some(key) = patch::declared_merge_key(name)
                {
                    property["x-kubernetes-patch-merge-key"] = json!(key);
                    property["x-kubernetes-patch-strategy"] = json!("merge");
                }
            }
            members.values_mut().for_each(with_merge_keys);
        }
        Value::Array(items) => items.iter_mut().for_each(with_merge_keys),
        _ => {}
    }
}
