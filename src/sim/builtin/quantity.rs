//! Stores the quantities of Pods and templates as a real server does.

use serde_json::Value;

use crate::api::quantity::{MILLI, NANO, stored};

/// Brings all quantities in a Pod, or an object with a Pod template, into their stored form.
pub(super) fn normalize(object: &mut Value) -> Result<(), &'static str> {
    normalize_in(object, "")
}

fn normalize_in(value: &mut Value, parent: &str) -> Result<(), &'static str> {
    match value {
        Value::Array(items) => items.iter_mut().try_for_each(|item| normalize_in(item, parent)),
        Value::Object(members) => members.iter_mut().try_for_each(|(name, value)| match (parent, &**name) {
            // Labels and annotations may have any names.
            (_, "metadata") => Ok(()),
            ("resources", "limits" | "requests") => {
                let mut amounts = value.as_object_mut().into_iter().flat_map(serde_json::Map::values_mut);
                // Requests and limits have milli precision.
                amounts.try_for_each(|amount| store(amount, MILLI))
            }
            ("resourceFieldRef", "divisor") | ("emptyDir", "sizeLimit") => store(value, NANO),
            (_, name) => normalize_in(value, name),
        }),
        _ => Ok(()),
    }
}

fn store(value: &mut Value, precision: i32) -> Result<(), &'static str> {
    let text = match value {
        Value::String(text) => text.trim().to_owned(),
        Value::Number(number) => number.to_string(),
        // Decoding refuses other types.
        _ => return Ok(()),
    };
    *value = Value::String(stored(&text, precision)?);
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn quantities_are_normalized_wherever_they_occur() {
        let mut pod = json!({"metadata": {"labels": {"resources": "x"}}, "spec": {
            "nodeSelector": {"limits": "1000m"},
            "containers": [{
                "resources": {"limits": {"cpu": 1, "memory": "1024Mi", "odd": true}, "requests": {"cpu": "100u"}},
                "env": [{"valueFrom": {"resourceFieldRef": {"divisor": "1000m"}}}],
            }],
            "volumes": [{"emptyDir": {"sizeLimit": 0.5}}],
        }});
        normalize(&mut pod).unwrap();
        let container = &pod["spec"]["containers"][0];
        let resources =
            json!({"limits": {"cpu": "1", "memory": "1Gi", "odd": true}, "requests": {"cpu": "1m"}});
        assert_eq!(container["resources"], resources);
        assert_eq!(container["env"][0]["valueFrom"]["resourceFieldRef"]["divisor"], "1");
        assert_eq!(pod["spec"]["volumes"][0]["emptyDir"]["sizeLimit"], "500m");
        assert_eq!(pod["spec"]["nodeSelector"]["limits"], "1000m");
    }
}
