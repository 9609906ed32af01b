//! An in-memory object server behind a client: get, list, create, replace, patch, delete; no watch.
//!
//! For this crate's unit tests of writes: records each request, and refuses requests on demand.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;

use http::{Method, Request, Response};
use kube_client::client::Body;
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::client::ApiClient;

/// The objects and the recorded requests. Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct ObjectServer {
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    version: u64,
    objects: BTreeMap<String, Value>,
    requests: Vec<String>,
    bodies: Vec<Value>,
    refusals: Vec<(Method, u16, String, String)>,
    /// Methods of requests whose responses will be lost.
    lost: Vec<Method>,
    /// Changes each written object, like an admission webhook.
    mutate: Option<fn(&mut Value)>,
}

impl ObjectServer {
    pub(crate) fn client(&self) -> ApiClient {
        let me = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let me = me.clone();
            async move { Ok::<_, Infallible>(me.serve(request).await) }
        });
        ApiClient::new(kube_client::Client::new(service, "default"))
    }

    /// Stores an object under a collection's path; adds a uid and a version if missing.
    pub(crate) fn store(&self, collection: &str, mut object: Value) -> Value {
        let state = &mut *self.state.lock();
        let path = format!("{collection}/{}", object["metadata"]["name"].as_str().unwrap());
        state.stamp(&mut object, &path);
        state.objects.insert(path, object.clone());
        object
    }

    pub(crate) fn get(&self, path: &str) -> Option<Value> {
        self.state.lock().objects.get(path).cloned()
    }

    pub(crate) fn remove(&self, path: &str) {
        self.state.lock().objects.remove(path);
    }

    /// Refuses the next request with this method.
    pub(crate) fn refuse(&self, method: Method, code: u16, reason: &str) {
        self.refuse_with(method, code, reason, "requested by the test");
    }

    /// Like [`refuse`](Self::refuse), with this message.
    pub(crate) fn refuse_with(&self, method: Method, code: u16, reason: &str, message: &str) {
        self.state.lock().refusals.push((method, code, reason.to_owned(), message.to_owned()));
    }

    /// Carries out the next request with this method, but answers with a timeout.
    pub(crate) fn lose(&self, method: Method) {
        self.state.lock().lost.push(method);
    }

    /// Changes each object written from now on with `webhook`.
    pub(crate) fn mutate(&self, webhook: fn(&mut Value)) {
        self.state.lock().mutate = Some(webhook);
    }

    /// Returns the requests since the last call: `GET /path`.
    pub(crate) fn requests(&self) -> Vec<String> {
        std::mem::take(&mut self.state.lock().requests)
    }

    /// Returns the last request body.
    pub(crate) fn last_body(&self) -> Value {
        self.state.lock().bodies.last().cloned().unwrap_or_default()
    }

    async fn serve(&self, request: Request<Body>) -> Response<Body> {
        let (head, body) = request.into_parts();
        let body = body.collect_bytes().await.unwrap();
        let body: Value = serde_json::from_slice(&body).unwrap_or_default();
        let (code, answer) = {
            let (path, query) = (head.uri.path(), head.uri.query().unwrap_or_default());
            self.state.lock().answer(&head.method, (path, query), body)
        };
        Response::builder().status(code).body(Body::from(answer.to_string().into_bytes())).unwrap()
    }
}

impl State {
    fn answer(&mut self, method: &Method, (path, query): (&str, &str), body: Value) -> (u16, Value) {
        self.requests.push(format!("{method} {path}"));
        if !body.is_null() {
            self.bodies.push(body.clone());
        }
        if let Some(at) = self.refusals.iter().position(|(refused, ..)| refused == method) {
            let (_, code, reason, message) = self.refusals.remove(at);
            return failure(code, &reason, &message);
        }
        if let Some(at) = self.lost.iter().position(|lost| lost == method) {
            self.lost.remove(at);
            self.carry_out(method, (path, query), body);
            return failure(504, "Timeout", "the answer is lost");
        }
        self.carry_out(method, (path, query), body)
    }

    fn carry_out(&mut self, method: &Method, (path, query): (&str, &str), body: Value) -> (u16, Value) {
        match *method {
            Method::GET => self.read(path, query),
            Method::POST => self.create(path, body),
            Method::PUT => self.write(path, body),
            Method::PATCH => self.patch(path.trim_end_matches("/status"), &body),
            Method::DELETE => self.delete(path, &body),
            _ => failure(405, "MethodNotAllowed", path),
        }
    }

    fn read(&self, path: &str, query: &str) -> (u16, Value) {
        if let Some(object) = self.objects.get(path) {
            return (200, object.clone());
        }
        let below = format!("{path}/");
        let of_kind = self.objects.iter().filter(|(path, _)| path.starts_with(&below));
        let items: Vec<&Value> =
            of_kind.map(|(_, object)| object).filter(|object| is_selected(object, query)).collect();
        let is_collection =
            path.ends_with("s") && path.rsplit('/').next().is_some_and(|last| last == "deployments");
        if is_collection {
            return (200, json!({"metadata": {}, "items": items}));
        }
        not_found(path)
    }

    fn create(&mut self, collection: &str, mut object: Value) -> (u16, Value) {
        let path = format!("{collection}/{}", object["metadata"]["name"].as_str().unwrap());
        if self.objects.contains_key(&path) {
            return failure(409, "AlreadyExists", &path);
        }
        self.stamp(&mut object, &path);
        self.objects.insert(path, object.clone());
        (201, object)
    }

    fn write(&mut self, path: &str, mut next: Value) -> (u16, Value) {
        let Some(stored) = self.objects.get(path) else { return not_found(path) };
        if next["metadata"]["resourceVersion"] != stored["metadata"]["resourceVersion"] {
            return failure(409, "Conflict", path);
        }
        next["metadata"]["resourceVersion"] = Value::Null;
        self.stamp(&mut next, path);
        self.objects.insert(path.to_owned(), next.clone());
        (200, next)
    }

    fn patch(&mut self, path: &str, patch: &Value) -> (u16, Value) {
        let Some(stored) = self.objects.get(path) else { return not_found(path) };
        let is_other = |field: &str| {
            let wanted = &patch["metadata"][field];
            !wanted.is_null() && *wanted != stored["metadata"][field]
        };
        if is_other("resourceVersion") {
            return failure(409, "Conflict", path);
        }
        if is_other("uid") {
            let (code, mut status) = failure(422, "Invalid", path);
            status["details"] = json!({"causes": [{"field": "metadata.uid", "reason": "FieldValueInvalid"}]});
            return (code, status);
        }
        let mut next = stored.clone();
        merge(&mut next, patch);
        self.write(path, next)
    }

    fn delete(&mut self, path: &str, options: &Value) -> (u16, Value) {
        let Some(stored) = self.objects.get(path) else { return not_found(path) };
        let wanted = &options["preconditions"];
        if wanted["uid"] != stored["metadata"]["uid"]
            || wanted["resourceVersion"] != stored["metadata"]["resourceVersion"]
        {
            return failure(409, "Conflict", path);
        }
        self.objects.remove(path);
        (200, json!({"kind": "Status", "status": "Success"}))
    }

    fn stamp(&mut self, object: &mut Value, path: &str) {
        self.version += 1;
        if let Some(mutate) = self.mutate {
            mutate(object);
        }
        let meta = &mut object["metadata"];
        if meta["uid"].is_null() {
            meta["uid"] = json!(format!("uid-{}-of-{path}", self.version));
        }
        if meta["resourceVersion"].is_null() {
            meta["resourceVersion"] = json!(self.version.to_string());
        }
        if meta["generation"].is_null() {
            meta["generation"] = json!(1);
        }
    }
}

/// Returns whether an object matches the query's label selector.
fn is_selected(object: &Value, query: &str) -> bool {
    let mut selectors = form_urlencoded::parse(query.as_bytes()).filter(|(name, _)| name == "labelSelector");
    let Some((_, selector)) = selectors.next() else { return true };
    selector.split(',').all(|one| match one.split_once("!=") {
        Some((label, value)) => object["metadata"]["labels"][label] != value,
        None => {
            let (label, value) = one.split_once('=').unwrap();
            object["metadata"]["labels"][label] == value
        }
    })
}

/// Applies a merge patch, or the subset of a strategic merge patch that this crate writes.
fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        target.clone_from(patch);
        return;
    };
    if !target.is_object() || patch.get("$patch").is_some() {
        *target = json!({});
    }
    for (name, patch) in patch.iter().filter(|(name, _)| *name != "$patch") {
        match patch {
            Value::Null => drop(target.as_object_mut().unwrap().remove(name)),
            Value::Array(items) if items.iter().any(|item| item["$patch"] == "replace") => {
                target[name] = items.iter().filter(|item| item.get("$patch").is_none()).cloned().collect();
            }
            Value::Array(items) if ["containers", "ownerReferences"].contains(&name.as_str()) => {
                merge_items(&mut target[name], items);
            }
            patch => merge(&mut target[name], patch),
        }
    }
}

fn merge_items(list: &mut Value, items: &[Value]) {
    if !list.is_array() {
        *list = json!([]);
    }
    let list = list.as_array_mut().unwrap();
    for item in items {
        let key = if item["uid"].is_null() { "name" } else { "uid" };
        match list.iter_mut().find(|known| known[key] == item[key]) {
            Some(known) => merge(known, item),
            None => list.push(item.clone()),
        }
    }
}

fn not_found(path: &str) -> (u16, Value) {
    failure(404, "NotFound", &format!("\"{}\" not found", path.rsplit('/').next().unwrap_or_default()))
}

fn failure(code: u16, reason: &str, message: &str) -> (u16, Value) {
    (code, json!({"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": message}))
}
