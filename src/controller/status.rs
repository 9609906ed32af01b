//! Writes a status when it differs.

use serde::Serialize;
use serde_json::{Map, Value};

use crate::api::ApiResource;
use crate::cache::{Meta, ObjectName};
use crate::client::{ApiClient, Error};

/// Merge-patches the status of the object at `resource_version` to be `wanted`; writes nothing when it
/// is so already. The version that it wrote, if it did.
///
/// # Errors
/// [`Error`]; a conflict means that the object has changed since.
pub async fn write<S: Serialize>(
    client: &ApiClient,
    resource: &ApiResource,
    object: &ObjectName,
    resource_version: &str,
    stored: Option<&S>,
    wanted: &S,
) -> Result<Option<String>, Error> {
    #[derive(serde::Deserialize)]
    struct Written {
        metadata: Meta,
    }
    let Some(patch) = difference(stored, wanted) else { return Ok(None) };
    let Written { metadata } =
        client.patch_status(resource, object.namespace(), object.name(), resource_version, &patch).await?;
    Ok(Some(metadata.resource_version))
}

/// The merge patch from one to the other, field by field; `None` when there is none.
fn difference<S: Serialize>(stored: Option<&S>, wanted: &S) -> Option<Value> {
    let fields = |status: &S| match serde_json::to_value(status) {
        Ok(Value::Object(fields)) => fields,
        _ => Map::new(),
    };
    let stored = stored.map(fields).unwrap_or_default();
    let mut patch = fields(wanted);
    for name in stored.keys() {
        patch.entry(name.clone()).or_insert(Value::Null);
    }
    patch.retain(|name, value| stored.get(name) != Some(value));
    (!patch.is_empty()).then_some(Value::Object(patch))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_patch_holds_what_differs_and_null_for_what_goes() {
        let stored = json!({"replicas": 1, "selector": "a=b", "gone": true});
        let wanted = json!({"replicas": 2, "selector": "a=b"});
        assert_eq!(difference(Some(&stored), &wanted), Some(json!({"replicas": 2, "gone": null})));
        assert_eq!(difference(Some(&wanted), &wanted), None);
        assert_eq!(difference(None, &wanted), Some(wanted));
    }
}
