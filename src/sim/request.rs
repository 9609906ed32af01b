//! Parses requests: path, verb, options, body.
//!
//! Mirrors `RequestInfo` of the API server: `/api/v1/...` and `/apis/<group>/<version>/...`, then
//! optionally a namespace, a resource, a name and a subresource.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Method, header};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::DeleteOptions;
use serde_json::{Map, Value, json};

use super::absent;
use super::failure::{Cause, Failure, Outcome};
use super::kinds::{Catalogue, Kind, Of};
use super::patch;
use super::protobuf;

/// The largest accepted body, in bytes.
pub(super) const MAX_BODY: usize = 3 * 1024 * 1024;

/// The longest name of a field manager, in bytes.
const MAX_MANAGER: usize = 128;

/// A request as a transport receives it.
#[derive(Clone, Debug)]
pub struct Request {
    /// The user.
    pub user: String,
    /// The HTTP method.
    pub method: Method,
    /// The path and query.
    pub uri: String,
    /// The headers; only `Content-Type`, `Accept` and `User-Agent` are read.
    pub headers: HeaderMap,
    /// The whole body.
    pub body: Bytes,
}

/// The parameters of a request's query.
#[derive(Clone, Debug, Default)]
pub(super) struct Query(Vec<(String, String)>);

/// A parsed request for a resource.
#[derive(Clone, Debug)]
pub(super) struct Call {
    pub(super) verb: &'static str,
    pub(super) kind: Arc<Kind>,
    pub(super) version: String,
    /// Empty: all namespaces, or a cluster-scoped kind.
    pub(super) namespace: String,
    /// Empty: the collection.
    pub(super) name: String,
    /// Empty: the object itself.
    pub(super) subresource: String,
    pub(super) query: Query,
    pub(super) body: Bytes,
    pub(super) content_type: String,
    pub(super) accept: String,
    pub(super) user_agent: String,
}

// === impl Query ===

impl Query {
    pub(super) fn parse(text: &str) -> Self {
        let pairs = form_urlencoded::parse(text.as_bytes());
        Self(
            pairs.filter(|(key, _)| !key.is_empty()).map(|(k, v)| (k.into_owned(), v.into_owned())).collect(),
        )
    }

    /// Returns the value of a parameter; empty if absent.
    pub(super) fn get(&self, name: &str) -> &str {
        self.0.iter().find(|(key, _)| key == name).map_or("", |(_, value)| value.as_str())
    }

    pub(super) fn is_true(&self, name: &str) -> bool {
        matches!(self.get(name), "true" | "1")
    }

    pub(super) fn is_dry_run(&self) -> bool {
        self.get("dryRun") == "All"
    }
}

// === impl Request ===

impl Request {
    pub(super) fn path_and_query(&self) -> (&str, &str) {
        self.uri.split_once('?').unwrap_or((&self.uri, ""))
    }

    fn header(&self, name: &header::HeaderName) -> String {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned()
    }

    pub(super) fn user_agent(&self) -> String {
        self.header(&header::USER_AGENT)
    }

    pub(super) fn accept(&self) -> String {
        self.header(&header::ACCEPT)
    }

    /// Parses a request for a resource below `/api` or `/apis`; `None` for any other path.
    pub(super) fn call(&self, catalogue: &Catalogue) -> Outcome<Option<Call>> {
        let (path, query) = self.path_and_query();
        let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
        let (group, version, rest) = match &parts[..] {
            ["api", version, rest @ ..] if !rest.is_empty() => ("", *version, rest),
            // Access reviews are not stored resources.
            ["apis", "authentication.k8s.io" | "authorization.k8s.io", ..] => return Ok(None),
            ["apis", group, version, rest @ ..] if !rest.is_empty() => (*group, *version, rest),
            _ => return Ok(None),
        };
        let (namespace, rest) = match rest {
            // `/namespaces/x` and its subresources address the Namespace, all else addresses its contents.
            ["namespaces", namespace, inside, more @ ..] if !matches!(*inside, "status" | "finalize") => {
                (*namespace, [&[*inside], more].concat())
            }
            rest => ("", rest.to_vec()),
        };
        let Some(kind) = catalogue.get(group, rest[0]).filter(|k| k.versions.iter().any(|v| v == version))
        else {
            if (group, version, rest[0]) == ("autoscaling", "v1", "horizontalpodautoscalers") {
                return Err(Failure::only_newer_autoscalers());
            }
            if let Some(kind) = absent::kind(group, rest[0]) {
                return Err(Failure::absent(kind));
            }
            // In a group without built-in kinds, paths exist only for the kinds of CRDs.
            let is_built_in = catalogue.has_built_in(group, version);
            return Err(if is_built_in { Failure::no_such_resource() } else { Failure::no_such_path() });
        };
        if rest.len() > 3 || (!kind.is_namespaced && !namespace.is_empty()) {
            return Err(Failure::no_such_path());
        }
        let name = decoded(rest.get(1).copied().unwrap_or_default());
        let subresource = rest.get(2).copied().unwrap_or_default().to_owned();
        let query = Query::parse(query);
        let verb = match absent::subresource(&kind, &subresource) {
            // `core` refuses it, whatever the method, if the object exists.
            Some(_) => "get",
            None => self.verb(!name.is_empty(), query.is_true("watch"))?,
        };
        // Without a namespace only list and watch are allowed.
        if kind.is_namespaced && namespace.is_empty() && !matches!(verb, "list" | "watch") {
            return Err(match kind.of {
                Of::BuiltIn(_) => Failure::method_not_allowed(),
                Of::Custom(_) => Failure::no_such_path(),
            });
        }
        Ok(Some(Call {
            verb,
            kind,
            version: version.to_owned(),
            namespace: decoded(namespace),
            name,
            subresource,
            query,
            body: self.body.clone(),
            content_type: self.header(&header::CONTENT_TYPE),
            accept: self.accept(),
            user_agent: self.user_agent(),
        }))
    }

    fn verb(&self, is_named: bool, is_watch: bool) -> Outcome<&'static str> {
        Ok(match (self.method.as_str(), is_named) {
            ("GET", false) if is_watch => "watch",
            ("GET", true) => "get",
            ("GET", false) => "list",
            ("POST", false) => "create",
            ("PUT", true) => "update",
            ("PATCH", true) => "patch",
            ("DELETE", true) => "delete",
            ("DELETE", false) => "deletecollection",
            _ => return Err(Failure::method_not_allowed()),
        })
    }
}

fn decoded(text: &str) -> String {
    // Valid names need no escapes: a decoded `%2F` and the like simply match no object.
    if !text.contains('%') {
        return text.to_owned();
    }
    let text = text.replace('+', "%2B").replace('&', "%26");
    form_urlencoded::parse(format!("x={text}").as_bytes())
        .next()
        .map(|(_, value)| value.into_owned())
        .unwrap_or_default()
}

// === impl Call ===

impl Call {
    pub(super) fn api_version(&self) -> String {
        self.kind.api_version(&self.version)
    }

    /// Applies a merge patch to a JSON body.
    pub(super) fn edit(&mut self, patch: &Value) {
        if let Ok(mut body) = serde_json::from_slice::<Value>(&self.body) {
            json_patch::merge(&mut body, patch);
            self.body = body.to_string().into();
        }
    }

    /// Refuses unknown write options.
    pub(super) fn check_write_options(&self) -> Outcome<()> {
        let options = match self.verb {
            "create" => "CreateOptions",
            "update" => "UpdateOptions",
            "patch" => "PatchOptions",
            _ => return Ok(()),
        };
        let mut causes = Vec::new();
        let manager = self.query.get("fieldManager");
        match (self.verb == "patch", patch::is_apply(&self.content_type)) {
            (true, true) if manager.is_empty() => {
                causes.push(Cause::required("fieldManager", "is required for apply patch"));
            }
            (true, false) if !self.query.get("force").is_empty() => {
                causes.push(Cause::forbidden("force", "may not be specified for non-apply patch"));
            }
            _ => {}
        }
        if manager.len() > MAX_MANAGER {
            causes.push(Cause::too_long("fieldManager", MAX_MANAGER as u64));
        }
        causes
            .extend(Some(self.query.get("dryRun")).filter(|value| !value.is_empty()).and_then(wrong_dry_run));
        if causes.is_empty() { Ok(()) } else { Err(Failure::invalid_options(options, &causes)) }
    }

    /// Returns the field manager of a write: the parameter or, without one, the program in the `User-Agent`.
    pub(super) fn manager(&self) -> String {
        let named = self.query.get("fieldManager");
        let program = self.user_agent.split('/').next().unwrap_or_default();
        let mut manager: String = if named.is_empty() { program } else { named }.to_owned();
        while manager.len() > MAX_MANAGER {
            manager.pop();
        }
        if manager.is_empty() { "unknown".to_owned() } else { manager }
    }

    /// Returns whether the request must not be persisted.
    pub(super) fn is_dry_run(&self) -> bool {
        self.query.is_dry_run()
    }

    /// Returns the body as JSON: an object or options.
    pub(super) fn json_body(&self) -> Outcome<Value> {
        if self.body.len() > MAX_BODY {
            return Err(Failure::too_large_body());
        }
        let media = self.content_type.split(';').next().unwrap_or_default().trim();
        if media.contains("protobuf") {
            let is_create = self.verb == "create" && self.subresource.is_empty();
            let object = is_create.then(|| protobuf::decode(&self.kind, &self.body)).flatten();
            return object.ok_or_else(|| {
                Failure::unsupported_media_type(
                    "this server does not read the protobuf of this object: with kubectl, add --dry-run=client -o yaml \
                     and pipe it to kubectl apply -f -; in a client, set the content type application/json",
                )
            });
        }
        let is_json = media.is_empty() || media.ends_with("json");
        if !is_json && !media.ends_with("yaml") {
            return Err(Failure::unsupported_media_type(format!(
                "the body of the request was in an unknown format - accepted media types include: \
                 application/json, got: {media}"
            )));
        }
        parse_json(&self.body)
    }

    /// Returns the `DeleteOptions` from the body or, without one, from the query: a body makes the query irrelevant.
    pub(super) fn delete_options(&self) -> Outcome<DeleteOptions> {
        let options = if self.body.is_empty() {
            self.delete_options_of_query()
        } else if let Some(options) = protobuf::delete_options(&self.body) {
            options
        } else {
            self.json_body()?
        };
        if !options.is_object() {
            return Err(Failure::bad_request("the body of a delete must be DeleteOptions"));
        }
        let options: DeleteOptions = serde_json::from_value(options)
            .map_err(|error| Failure::bad_request(format!("DeleteOptions: {error}")))?;
        check_dry_run("DeleteOptions", options.dry_run.as_deref().unwrap_or_default())?;
        Ok(options)
    }

    fn delete_options_of_query(&self) -> Value {
        let mut options = json!({});
        for (parameter, is_number) in [("propagationPolicy", false), ("gracePeriodSeconds", true)] {
            let value = self.query.get(parameter);
            if !value.is_empty() {
                options[parameter] = if is_number {
                    value.parse::<i64>().map_or_else(|_| json!(value), Value::from)
                } else {
                    json!(value)
                };
            }
        }
        if !self.query.get("dryRun").is_empty() {
            options["dryRun"] = json!([self.query.get("dryRun")]);
        }
        options
    }
}

/// Refuses an unknown `dryRun` value, so that a misspelt dry run writes nothing.
fn check_dry_run(options: &str, values: &[String]) -> Outcome<()> {
    match values.iter().find_map(|value| wrong_dry_run(value)) {
        Some(cause) => Err(Failure::invalid_options(options, &[cause])),
        None => Ok(()),
    }
}

fn wrong_dry_run(value: &str) -> Option<Cause> {
    (value != "All").then(|| Cause::not_supported("dryRun", &json!([value]), &["All".to_owned()]))
}

/// Parses JSON, reporting malformed JSON with the server's error.
pub(super) fn parse_json(body: &[u8]) -> Outcome<Value> {
    serde_json::from_slice(body).map_err(|error| {
        let mut shown = String::from_utf8_lossy(body.get(..200).unwrap_or(body)).into_owned();
        shown.retain(|c| !c.is_control());
        Failure::bad_request(format!(
            "the object provided is unrecognized (must be of type JSON): {error} ({shown:?})"
        ))
    })
}

/// Returns the value at a path of fields, such as `/metadata/name`. Unlike [`Value::pointer`] it allocates nothing, and
/// knows neither escapes nor indices.
pub(super) fn at<'a>(object: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('/').skip(1).try_fold(object, |object, field| object.get(field))
}

/// Returns the string at a path; empty if absent.
pub(super) fn text<'a>(object: &'a Value, path: &str) -> &'a str {
    at(object, path).and_then(Value::as_str).unwrap_or_default()
}

/// Returns the integer at a path; 0 if absent.
pub(super) fn number(object: &Value, path: &str) -> i64 {
    at(object, path).and_then(Value::as_i64).unwrap_or_default()
}

/// Returns the members of the object at a path.
pub(super) fn members<'a>(object: &'a Value, path: &str) -> Option<&'a Map<String, Value>> {
    at(object, path).and_then(Value::as_object)
}

/// Returns the items of the array at a path; none if absent.
pub(super) fn items<'a>(object: &'a Value, path: &str) -> &'a [Value] {
    at(object, path).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// Returns the object at a key, creating it if absent.
pub(super) fn member<'a>(object: &'a mut Value, key: &str) -> &'a mut Value {
    if !object.get(key).is_some_and(Value::is_object) {
        object[key] = json!({});
    }
    &mut object[key]
}
