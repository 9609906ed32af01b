//! A secret in every object that cases make: no log, event, status, report, metric or debug answer may show it.
//!
//! I17: [`plant`] puts [`CANARY`] into annotations and environments, and whatever a case reads of an operator's words goes
//! through [`clean`].

use serde_json::{Value, json};

/// The secret.
pub(crate) const CANARY: &str = "canary-5e2d81";

/// Puts the secret into an annotation of a custom resource, and into the environment of its containers, unless it has one.
pub(crate) fn plant(kind: &str, object: &mut Value) {
    let variables = match kind {
        "Myapp" => Some("env"),
        "AppService" => Some("envs"),
        "Foo" | "Redis" | "WebApp" => None,
        _ => return,
    };
    object["metadata"]["annotations"]["example.com/password"] = json!(CANARY);
    if let Some(variables) = variables
        && object["spec"].is_object()
        && object["spec"][variables].is_null()
    {
        object["spec"][variables] = json!([{"name": "PASSWORD", "value": CANARY}]);
    }
}

/// Returns the text, which must not contain the secret.
#[track_caller]
pub(crate) fn clean(what: &str, text: String) -> String {
    if let Some(at) = text.find(CANARY) {
        let line = text[..at].matches('\n').count();
        panic!("{what} shows a secret: {}", text.lines().nth(line).unwrap_or_default());
    }
    text
}
