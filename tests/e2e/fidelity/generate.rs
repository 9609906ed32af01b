//! Generates sequences of requests from a seed.

use std::fmt;

use fastrand::Rng;
use serde_json::{Value, json};

use super::kinds::{KINDS, Kind, changes_of_any};

const NAMES: [&str; 2] = ["a", "b"];
const MERGE: &str = "application/merge-patch+json";
const JSON: &str = "application/json";

/// One request.
pub(super) struct Step {
    pub(super) method: String,
    pub(super) path: String,
    pub(super) media: String,
    pub(super) body: BodyOf,
}

/// The body of a request. `$ns`, `$rv3$` and `$uid3$` stand for the side's namespace and for the version and uid in its
/// response to step 3.
pub(super) enum BodyOf {
    Nothing,
    Raw(String),
    Json(Value),
    /// The stored object with a merge patch applied, with or without its version.
    Stored {
        change: Value,
        keeps_version: bool,
    },
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.method, self.path, self.media)?;
        match &self.body {
            BodyOf::Nothing => Ok(()),
            BodyOf::Raw(text) => write!(f, " {text}"),
            BodyOf::Json(value) => write!(f, " {value}"),
            BodyOf::Stored { change, keeps_version } => {
                write!(f, " stored + {change}{}", if *keeps_version { "" } else { ", without version" })
            }
        }
    }
}

impl Step {
    fn new(method: &str, path: String, media: &str, body: BodyOf) -> Self {
        Self { method: method.to_owned(), path, media: media.to_owned(), body }
    }

    pub(super) fn is_watch(&self) -> bool {
        self.path.contains("watch=true")
    }

    /// Whether the server may answer the request from its cache.
    pub(super) fn is_from_cache(&self) -> bool {
        self.path.ends_with("resourceVersion=0") || self.path.contains("NotOlderThan")
    }

    pub(super) fn create(kind: &Kind, object: Value) -> Self {
        Self::new("POST", kind.collection(), JSON, BodyOf::Json(object))
    }
}

/// Generates the kind and the steps of a sequence.
pub(super) fn sequence(seed: u64) -> (&'static Kind, Vec<Step>) {
    let mut rng = Rng::with_seed(seed);
    let kind = &KINDS[rng.usize(..KINDS.len())];
    let mut steps = vec![Step::create(kind, kind.valid("a"))];
    let length = rng.usize(6..16);
    while steps.len() < length {
        let at = steps.len();
        steps.push(step(&mut rng, kind, at));
    }
    (kind, steps)
}

fn change(rng: &mut Rng, kind: &Kind) -> Value {
    let own = (kind.changes)();
    let any = changes_of_any();
    if rng.u8(..3) == 0 { any[rng.usize(..any.len())].clone() } else { own[rng.usize(..own.len())].clone() }
}

/// Returns query options of a write, or none.
fn options(rng: &mut Rng) -> &'static str {
    ["", "", "", "", "?fieldValidation=Strict", "?fieldValidation=Ignore", "?dryRun=All", "?fieldManager=me"]
        [rng.usize(..8)]
}

/// A status alone, as the operator replaces it.
fn status_alone(kind: &Kind, name: &str, earlier: usize, status: &Value) -> BodyOf {
    let whole = kind.valid(name);
    let [uid, version] = ["uid", "rv"].map(|of| format!("${of}{earlier}$"));
    let metadata = json!({"name": name, "uid": uid, "resourceVersion": version});
    BodyOf::Json(
        json!({"apiVersion": whole["apiVersion"], "kind": whole["kind"], "metadata": metadata, "status": status}),
    )
}

fn step(rng: &mut Rng, kind: &Kind, at: usize) -> Step {
    let name = NAMES[rng.usize(..NAMES.len())];
    let object = format!("{}/{name}", kind.collection());
    let earlier = rng.usize(..at);
    match rng.u8(..21) {
        0..=3 => {
            let mut body = kind.valid(name);
            if rng.bool() {
                let change = change(rng, kind);
                super::json_merge(&mut body, &change);
            }
            let path = kind.collection() + options(rng);
            Step::new("POST", path, JSON, BodyOf::Json(body))
        }
        4..=6 => {
            let mut change = change(rng, kind);
            if rng.u8(..6) == 0 {
                change["metadata"]["resourceVersion"] = json!(format!("$rv{earlier}$"));
            }
            let body = BodyOf::Stored { change, keeps_version: rng.u8(..4) > 0 };
            Step::new("PUT", object + options(rng), JSON, body)
        }
        7..=9 => {
            let mut body = change(rng, kind);
            if rng.u8(..8) == 0 {
                body["metadata"]["resourceVersion"] = json!(format!("$rv{earlier}$"));
            }
            Step::new("PATCH", object + options(rng), MERGE, BodyOf::Json(body))
        }
        10 => {
            let body = change(rng, kind);
            Step::new("PATCH", object, "application/strategic-merge-patch+json", BodyOf::Json(body))
        }
        11 => Step::new("PATCH", object, "application/json-patch+json", BodyOf::Json(json_patch(rng))),
        12 => {
            let status = [
                json!({"replicas": 2}),
                json!({"phase": "New"}),
                json!({"phase": "Other"}),
                json!({"other": 1}),
            ];
            let status = status[rng.usize(..if kind.is_custom { 4 } else { 1 })].clone();
            // The statuses of other built-in kinds do not have these fields.
            let status = if kind.is_custom || kind.kind == "Deployment" { status } else { json!({}) };
            if rng.bool() && kind.is_custom {
                let body = status_alone(kind, name, earlier, &status);
                return Step::new("PUT", format!("{object}/status"), JSON, body);
            }
            let body = json!({"status": status, "spec": {"replicas": 5}, "metadata": {"labels": {"from": "status"}}});
            Step::new("PATCH", format!("{object}/status"), MERGE, BodyOf::Json(body))
        }
        13 => {
            let replicas = [json!(4), json!(0), json!(11), json!(-1)][rng.usize(..4)].clone();
            let method = if rng.bool() { "GET" } else { "PATCH" };
            let body = if method == "GET" {
                BodyOf::Nothing
            } else {
                BodyOf::Json(json!({"spec": {"replicas": replicas}}))
            };
            Step::new(method, format!("{object}/scale"), MERGE, body)
        }
        14..=15 => Step::new("DELETE", object, JSON, delete_options(rng, earlier)),
        16 => Step::new("GET", object, JSON, BodyOf::Nothing),
        19 => Step::new("GET", kind.collection() + &watch_options(rng, earlier), JSON, BodyOf::Nothing),
        17..=18 => Step::new("GET", kind.collection() + &list_options(rng, earlier), JSON, BodyOf::Nothing),
        _ => {
            let texts = ["{", "", "[]", "\"x\"", "{\"kind\": 1}", "{\"spec\": 1}", "{\"metadata\": []}"];
            let text = texts[rng.usize(..texts.len())].to_owned();
            Step::new("POST", kind.collection(), JSON, BodyOf::Raw(text))
        }
    }
}

fn json_patch(rng: &mut Rng) -> Value {
    let patches = [
        json!([{"op": "add", "path": "/metadata/labels", "value": {"by": "patch"}}]),
        json!([{"op": "test", "path": "/metadata/name", "value": "a"}, {"op": "add", "path": "/metadata/annotations", "value": {"a": "b"}}]),
        json!([{"op": "test", "path": "/metadata/name", "value": "other"}]),
        json!([{"op": "remove", "path": "/none"}]),
        json!([{"op": "replace", "path": "/spec/replicas", "value": 4}]),
        json!([]),
    ];
    patches[rng.usize(..patches.len())].clone()
}

fn delete_options(rng: &mut Rng, earlier: usize) -> BodyOf {
    let options = [
        json!({"preconditions": {"uid": format!("$uid{earlier}$")}}),
        json!({"preconditions": {"resourceVersion": format!("$rv{earlier}$")}}),
        json!({"propagationPolicy": "Foreground"}),
        json!({"propagationPolicy": "Orphan"}),
        json!({"propagationPolicy": "Background"}),
        json!({"propagationPolicy": "Sideways"}),
        json!({"dryRun": ["All"]}),
        json!({"gracePeriodSeconds": 0}),
    ];
    match rng.usize(..12) {
        at if at < options.len() => BodyOf::Json(options[at].clone()),
        _ => BodyOf::Nothing,
    }
}

fn watch_options(rng: &mut Rng, earlier: usize) -> String {
    let streamed = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let choices = [
        String::new(),
        format!("&resourceVersion=$rv{earlier}$"),
        "&resourceVersion=nonsense".to_owned(),
        format!("&{streamed}"),
        format!("&{streamed}&resourceVersion=$rv{earlier}$"),
        format!("&{streamed}&labelSelector=team%3Da"),
        "&sendInitialEvents=true".to_owned(),
        "&resourceVersionMatch=Exact".to_owned(),
        "&fieldSelector=metadata.name%3Da".to_owned(),
    ];
    format!("?watch=true&timeoutSeconds=1{}", choices[rng.usize(..choices.len())])
}

fn list_options(rng: &mut Rng, earlier: usize) -> String {
    let choices = [
        "?labelSelector=team%3Da".to_owned(),
        "?labelSelector=team,tier!%3Db".to_owned(),
        "?labelSelector=%3D%3D".to_owned(),
        "?labelSelector=team!%3Dwe%20b".to_owned(),
        "?labelSelector=team%20notin(a),tier%3E1".to_owned(),
        "?fieldSelector=metadata.name%3Da".to_owned(),
        "?fieldSelector=spec.nothing%3Da".to_owned(),
        "?limit=1".to_owned(),
        format!("?limit=1&continue=$continue{earlier}$"),
        "?resourceVersion=0".to_owned(),
        format!("?resourceVersion=$rv{earlier}$&resourceVersionMatch=NotOlderThan"),
        format!("?resourceVersion=$rv{earlier}$&resourceVersionMatch=Exact"),
        "?resourceVersionMatch=Exact".to_owned(),
        "?resourceVersion=0&resourceVersionMatch=Exact".to_owned(),
        "?resourceVersion=nonsense".to_owned(),
        "?resourceVersion=999999999&resourceVersionMatch=NotOlderThan".to_owned(),
        "?continue=nonsense".to_owned(),
        String::new(),
    ];
    choices[rng.usize(..choices.len())].clone()
}
