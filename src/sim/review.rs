//! Answers the access reviews of `kubectl auth can-i`: always yes, because there is no RBAC.

use serde_json::{Value, json};

use super::reply::{Answer, Reply};
use super::request::Request;

/// The path of the endpoint.
pub(super) const PATH: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";

/// Answers an access review. A JSON spec is echoed; kubectl sends protobuf and reads only the status.
pub(super) fn answer(request: &Request) -> Reply {
    let sent: Value = serde_json::from_slice(&request.body).unwrap_or_default();
    let spec = sent.get("spec").cloned().unwrap_or_else(|| json!({}));
    let body = json!({
        "kind": "SelfSubjectAccessReview",
        "apiVersion": "authorization.k8s.io/v1",
        "metadata": {},
        "spec": spec,
        "status": {"allowed": true},
    });
    Reply::of(&Answer { code: 201, body, warnings: Vec::new() })
}
