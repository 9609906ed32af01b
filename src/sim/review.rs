//! Answers `kubectl auth`: `can-i`, whose answer is always yes because there is no RBAC, and `whoami`.

use serde_json::{Value, json};

use super::reply::{Answer, Reply};
use super::request::Request;

/// The groups of each user.
const GROUPS: [&str; 2] = ["system:masters", "system:authenticated"];

/// Answers a review; `None` if there is none at this path. A JSON spec is echoed; kubectl sends protobuf, and reads only
/// the status.
pub(super) fn answer(request: &Request, path: &str, now: &str) -> Option<Reply> {
    let all = ["*"];
    let (group, kind, status) = match path {
        "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews" => {
            ("authorization", "SelfSubjectAccessReview", json!({"allowed": true}))
        }
        "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews" => {
            let resources = json!([{"verbs": all, "apiGroups": all, "resources": all}]);
            let others = json!([{"verbs": all, "nonResourceURLs": all}]);
            let status = json!({"resourceRules": resources, "nonResourceRules": others, "incomplete": false});
            ("authorization", "SelfSubjectRulesReview", status)
        }
        "/apis/authentication.k8s.io/v1/selfsubjectreviews" => {
            let user = json!({"username": request.user, "groups": GROUPS});
            ("authentication", "SelfSubjectReview", json!({"userInfo": user}))
        }
        _ => return None,
    };
    let sent: Value = serde_json::from_slice(&request.body).unwrap_or_default();
    let mut body = json!({
        "kind": kind,
        "apiVersion": format!("{group}.k8s.io/v1"),
        "metadata": {"creationTimestamp": now},
        "status": status,
    });
    if group == "authorization" {
        body["spec"] = sent.get("spec").cloned().unwrap_or_else(|| json!({}));
    }
    Some(Reply::of(Answer::new(201, &body, Vec::new())))
}
