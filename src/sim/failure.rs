//! Errors of the API server: `Status` objects.
//!
//! Mirrors `apimachinery/pkg/api/errors`: one constructor for each error that clients distinguish, with the
//! code, reason and wording of a real server.

use serde_json::{Map, Value, json};

use super::kinds::Kind;

/// The result of a step that may fail.
pub(super) type Outcome<T> = Result<T, Box<Failure>>;

/// An error answer.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Failure {
    pub(super) code: u16,
    pub(super) reason: String,
    pub(super) message: String,
    details: Map<String, Value>,
    /// The delay in seconds, also sent as a header.
    pub(super) retry_after: Option<u32>,
    /// Sent as text instead of a `Status`, as the router of a real server does for unknown paths.
    is_plain: bool,
}

/// An error in one field, like Go's `field.Error`.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Cause {
    pub(super) field: String,
    reason: &'static str,
    /// The text after `<field>: `.
    message: String,
}

// === impl Cause ===

impl Cause {
    pub(super) fn required(field: impl Into<String>, detail: &str) -> Self {
        let message =
            if detail.is_empty() { "Required value".to_owned() } else { format!("Required value: {detail}") };
        Self { field: field.into(), reason: "FieldValueRequired", message }
    }

    pub(super) fn invalid(field: impl Into<String>, value: &Value, detail: &str) -> Self {
        let message = format!("Invalid value: {}: {detail}", printed(value));
        Self { field: field.into(), reason: "FieldValueInvalid", message }
    }

    /// Returns whether this error prevents the evaluation of CEL rules.
    pub(super) fn blocks_rules(&self) -> bool {
        matches!(
            self.reason,
            "FieldValueNotSupported"
                | "FieldValueRequired"
                | "FieldValueTooLong"
                | "FieldValueTooMany"
                | "FieldValueTypeInvalid"
        )
    }

    /// A string that violates its format.
    pub(super) fn wrong_format(field: impl Into<String>, value: &Value, detail: &str) -> Self {
        let message = format!("Invalid value: {}: {detail}", printed(value));
        Self { field: field.into(), reason: "FieldValueTypeInvalid", message }
    }

    /// A value of the wrong type; `value` names the actual type.
    pub(super) fn wrong_type(field: impl Into<String>, value: &str, detail: &str) -> Self {
        let message = format!("Invalid value: {value:?}: {detail}");
        Self { field: field.into(), reason: "FieldValueTypeInvalid", message }
    }

    pub(super) fn not_supported(field: impl Into<String>, value: &Value, supported: &[String]) -> Self {
        let supported: Vec<String> = supported.iter().map(|value| format!("{value:?}")).collect();
        let message =
            format!("Unsupported value: {}: supported values: {}", printed(value), supported.join(", "));
        Self { field: field.into(), reason: "FieldValueNotSupported", message }
    }

    pub(super) fn too_long(field: impl Into<String>, limit: u64) -> Self {
        let message = format!("Too long: may not be more than {limit} bytes");
        Self { field: field.into(), reason: "FieldValueTooLong", message }
    }

    pub(super) fn too_many(field: impl Into<String>, found: usize, limit: u64) -> Self {
        let message = format!("Too many: {found}: must have at most {limit} items");
        Self { field: field.into(), reason: "FieldValueTooMany", message }
    }

    pub(super) fn not_found(field: impl Into<String>, value: &Value) -> Self {
        let message = format!("Not found: {}", printed(value));
        Self { field: field.into(), reason: "FieldValueNotFound", message }
    }

    pub(super) fn duplicate(field: impl Into<String>, value: &Value) -> Self {
        let message = format!("Duplicate value: {}", printed(value));
        Self { field: field.into(), reason: "FieldValueDuplicate", message }
    }

    /// Whether it is about an item that is there twice, so about the list.
    pub(super) fn is_duplicate(&self) -> bool {
        self.reason == "FieldValueDuplicate"
    }

    pub(super) fn forbidden(field: impl Into<String>, detail: &str) -> Self {
        Self { field: field.into(), reason: "FieldValueForbidden", message: format!("Forbidden: {detail}") }
    }
}

/// Returns `kind.group`, or the kind alone for the core group.
fn dotted(kind: &str, group: &str) -> String {
    if group.is_empty() { kind.to_owned() } else { format!("{kind}.{group}") }
}

/// Formats a value as `field.Error` does: strings quoted, objects as JSON.
fn printed(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        other => other.to_string(),
    }
}

// === impl Failure ===

impl Failure {
    pub(super) fn new(code: u16, reason: &str, message: impl Into<String>) -> Box<Self> {
        Box::new(Self {
            code,
            reason: reason.to_owned(),
            message: message.into(),
            details: Map::new(),
            retry_after: None,
            is_plain: false,
        })
    }

    fn about(mut self: Box<Self>, kind: &Kind, name: &str) -> Box<Self> {
        self.details.insert("name".to_owned(), json!(name));
        if !kind.group.is_empty() {
            self.details.insert("group".to_owned(), json!(kind.group));
        }
        self.details.insert("kind".to_owned(), json!(kind.plural));
        self
    }

    pub(super) fn bad_request(message: impl Into<String>) -> Box<Self> {
        Self::new(400, "BadRequest", message)
    }

    pub(super) fn not_found(kind: &Kind, name: &str) -> Box<Self> {
        Self::new(404, "NotFound", format!("{} {name:?} not found", kind.qualified())).about(kind, name)
    }

    /// An unknown path.
    pub(super) fn no_such_path() -> Box<Self> {
        let mut failure = Self::new(404, "NotFound", "404 page not found\n");
        failure.is_plain = true;
        failure
    }

    /// An unknown resource in a known group and version.
    pub(super) fn no_such_resource() -> Box<Self> {
        Self::new(404, "NotFound", "the server could not find the requested resource")
    }

    /// A kind that only a real server has.
    pub(super) fn absent(kinds: &str) -> Box<Self> {
        Self::new(
            404,
            "NotFound",
            format!("this server has no {kinds}; docs/embedded-server.md lists what it has"),
        )
    }

    /// A request that only a real server can serve.
    pub(super) fn not_implemented(why: &str) -> Box<Self> {
        Self::new(501, "NotImplemented", why)
    }

    /// A request for autoscaling/v1, which older kubectls create and newer ones fall back to.
    pub(super) fn only_newer_autoscalers() -> Box<Self> {
        let message = "this server serves HorizontalPodAutoscalers in autoscaling/v2 only: apply a YAML \
             manifest with kubectl apply -f";
        Self::new(404, "NotFound", message)
    }

    pub(super) fn already_exists(kind: &Kind, name: &str) -> Box<Self> {
        Self::new(409, "AlreadyExists", format!("{} {name:?} already exists", kind.qualified()))
            .about(kind, name)
    }

    pub(super) fn conflict(kind: &Kind, name: &str, why: &str) -> Box<Self> {
        let message = format!("Operation cannot be fulfilled on {} {name:?}: {why}", kind.qualified());
        Self::new(409, "Conflict", message).about(kind, name)
    }

    /// A write with an outdated resource version.
    pub(super) fn modified(kind: &Kind, name: &str) -> Box<Self> {
        let why =
            "the object has been modified; please apply your changes to the latest version and try again";
        Self::conflict(kind, name, why)
    }

    /// An apply that would take fields from other managers.
    pub(super) fn apply_conflict(message: String, causes: Vec<Value>) -> Box<Self> {
        let mut failure = Self::new(409, "Conflict", message);
        failure.details.insert("causes".to_owned(), Value::Array(causes));
        failure
    }

    pub(super) fn forbidden(kind: &Kind, name: &str, why: &str) -> Box<Self> {
        Self::new(403, "Forbidden", format!("{} {name:?} is forbidden: {why}", kind.qualified()))
            .about(kind, name)
    }

    /// A failed precondition of a deletion.
    pub(super) fn precondition(kind: &Kind, name: &str, why: &str) -> Box<Self> {
        let mut failure = Self::conflict(kind, name, why);
        failure.message =
            format!("Operation cannot be fulfilled on {} {name:?}: {why}", dotted(&kind.kind, &kind.group));
        failure.details.insert("kind".to_owned(), json!(kind.kind));
        failure
    }

    /// An object with invalid fields.
    pub(super) fn invalid(kind: &Kind, name: &str, causes: &[Cause]) -> Box<Self> {
        Self::invalid_as(&kind.kind, &kind.group, name, causes)
    }

    /// Like [`invalid`](Self::invalid), but named by the resource: the form for errors found before validation.
    pub(super) fn invalid_resource(kind: &Kind, name: &str, causes: &[Cause]) -> Box<Self> {
        Self::invalid_as(&kind.plural, &kind.group, name, causes)
    }

    /// Invalid options of a request.
    pub(super) fn invalid_options(kind: &str, causes: &[Cause]) -> Box<Self> {
        Self::invalid_as(kind, "meta.k8s.io", "", causes)
    }

    /// A patch whose result does not decode.
    pub(super) fn invalid_patch(why: &str) -> Box<Self> {
        Self::invalid_as("", "", "", &[Cause::invalid("patch", &Value::Null, why)])
    }

    pub(super) fn invalid_as(kind: &str, group: &str, name: &str, causes: &[Cause]) -> Box<Self> {
        let words: Vec<String> = causes.iter().map(|c| format!("{}: {}", c.field, c.message)).collect();
        let words = match &words[..] {
            [one] => one.clone(),
            many => format!("[{}]", many.join(", ")),
        };
        let mut failure =
            Self::new(422, "Invalid", format!("{} {name:?} is invalid: {words}", dotted(kind, group)));
        for (key, value) in [("name", name), ("group", group), ("kind", kind)] {
            if !value.is_empty() {
                failure.details.insert(key.to_owned(), json!(value));
            }
        }
        let causes: Vec<Value> = causes
            .iter()
            .map(|c| json!({"reason": c.reason, "message": c.message, "field": c.field}))
            .collect();
        failure.details.insert("causes".to_owned(), json!(causes));
        failure
    }

    /// Replaces the causes by one with its own reason; `field` may be empty.
    pub(super) fn because(mut self: Box<Self>, reason: &str, message: &str, field: &str) -> Box<Self> {
        let mut cause = json!({"reason": reason, "message": message});
        if !field.is_empty() {
            cause["field"] = json!(field);
        }
        self.details.insert("causes".to_owned(), json!([cause]));
        self
    }

    /// A resource version that is no longer available.
    pub(super) fn expired(message: impl Into<String>) -> Box<Self> {
        Self::new(410, "Expired", message)
    }

    /// An expired continue token; the answer offers a token to continue inconsistently.
    pub(super) fn token_expired(kind: &Kind, inconsistent: &str) -> Box<Self> {
        let mut failure = Self::expired(
            "The provided continue parameter is too old to display a consistent list result. You can start \
             a new list without the continue parameter, or use the continue token in this response to \
             retrieve the remainder of the results. Continuing with the provided token results in an \
             inconsistent list - objects that were created, modified, or deleted between the time the first \
             chunk was returned and now may show up in the list.",
        );
        failure.details.insert("kind".to_owned(), json!(kind.plural));
        failure.details.insert("continue".to_owned(), json!(inconsistent));
        failure
    }

    pub(super) fn too_large_version(wanted: u64, current: u64) -> Box<Self> {
        let message = format!("Too large resource version: {wanted}, current: {current}");
        Self::new(504, "Timeout", format!("Timeout: {message}"))
            .because("ResourceVersionTooLarge", "Too large resource version", "")
            .retry_after(1)
    }

    pub(super) fn method_not_allowed() -> Box<Self> {
        Self::new(405, "MethodNotAllowed", "the server does not allow this method on the requested resource")
    }

    pub(super) fn unsupported_media_type(message: impl Into<String>) -> Box<Self> {
        Self::new(415, "UnsupportedMediaType", message)
    }

    pub(super) fn too_large_body() -> Box<Self> {
        Self::new(413, "RequestEntityTooLarge", "Request entity too large: limit is 3145728")
    }

    /// A request without a valid token.
    pub(super) fn unauthorized() -> Box<Self> {
        Self::new(401, "Unauthorized", "Unauthorized")
    }

    pub(super) fn retry_after(mut self: Box<Self>, seconds: u32) -> Box<Self> {
        self.retry_after = Some(seconds);
        self.details.insert("retryAfterSeconds".to_owned(), json!(seconds));
        self
    }

    /// Returns the body, and whether it is JSON.
    pub(super) fn body(&self) -> (String, bool) {
        if self.is_plain {
            return (self.message.clone(), false);
        }
        (self.status().to_string(), true)
    }

    /// Returns the `Status` object.
    pub(super) fn status(&self) -> Value {
        let mut status = json!({
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
            "code": self.code,
        });
        if self.reason.is_empty()
            && let Some(status) = status.as_object_mut()
        {
            status.remove("reason");
        }
        let mut details = self.details.clone();
        if let Some(token) = details.remove("continue") {
            status["metadata"]["continue"] = token;
        }
        // kubectl reads the details of a 404 without a check.
        if !details.is_empty() || self.code == 404 {
            status["details"] = Value::Object(details);
        }
        status
    }
}
