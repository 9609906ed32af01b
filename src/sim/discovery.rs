//! Discovery: groups, versions, resources; also the health and version endpoints.

use std::cmp::Reverse;

use http::Method;
use serde_json::{Value, json};

use super::core::Core;
use super::custom;
use super::failure::{Failure, Outcome};
use super::kinds::{Kind, Of};
use super::reply::{Answer, Reply};
use super::request::Request;
use super::review;

/// The Kubernetes version that this server imitates.
pub(super) const KUBERNETES: (&str, &str, &str) = ("1", "37", "v1.37.2+windlass-sim");

const VERBS: [&str; 8] = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];
/// The same in a real server's order for custom kinds.
const CUSTOM_VERBS: [&str; 8] =
    ["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"];

impl Core {
    /// Answers a request for a non-resource path.
    pub(super) fn serve_other(&self, request: &Request) -> Outcome<Reply> {
        let (path, _) = request.path_and_query();
        if request.method == Method::POST
            && let Some(reply) = review::answer(request, path, &self.stamp())
        {
            return Ok(reply);
        }
        if request.method != Method::GET {
            return Err(Failure::no_such_path());
        }
        let accept = request.accept();
        let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
        let is_aggregated = accept.contains("apidiscovery.k8s.io") && accept.contains("v=v2");
        match &parts[..] {
            ["healthz" | "livez" | "readyz"] => Ok(Reply::text(200, "ok")),
            ["version"] => Ok(Reply::of(Answer::ok(&version()))),
            ["api"] if is_aggregated => Ok(aggregated(&self.aggregated(&[String::new()]))),
            ["apis"] if is_aggregated => {
                let groups: Vec<String> = self.groups().into_iter().filter(|g| !g.is_empty()).collect();
                Ok(aggregated(&self.aggregated(&groups)))
            }
            ["api"] => Ok(Reply::of(Answer::ok(&json!({
                "kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": [],
            })))),
            ["apis"] => {
                let groups = self.groups().into_iter().filter(|group| !group.is_empty());
                let groups: Vec<Value> = groups.map(|group| self.group(&group)).collect();
                let list = json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups});
                Ok(Reply::of(Answer::ok(&list)))
            }
            ["apis", group] if self.groups().iter().any(|found| found == group) => {
                let mut shown = self.group(group);
                shown["kind"] = json!("APIGroup");
                shown["apiVersion"] = json!("v1");
                Ok(Reply::of(Answer::ok(&shown)))
            }
            ["api", version] if self.catalogue.serves("", version) => self.resources("", version),
            ["apis", group, version] if self.catalogue.serves(group, version) => {
                self.resources(group, version)
            }
            // Without schemas, kubectl takes those of version 3.
            ["openapi", "v2"] => Ok(Reply::Whole {
                code: 200,
                media: "application/com.github.proto-openapi.spec.v2.v1.0+protobuf",
                headers: Vec::new(),
                body: bytes::Bytes::new(),
            }),
            ["openapi", "v3", rest @ ..] => self.openapi(rest).map(|body| Reply::of(Answer::ok(&body))),
            _ => Err(Failure::no_such_path()),
        }
    }

    /// Returns all groups, sorted; the core group is the empty string.
    pub(super) fn groups(&self) -> Vec<String> {
        let mut groups: Vec<String> = self.catalogue.iter().map(|kind| kind.group.clone()).collect();
        groups.sort();
        groups.dedup();
        groups
    }

    /// Returns the versions of a group, preferred first.
    pub(super) fn versions(&self, group: &str) -> Vec<String> {
        let mut versions: Vec<String> = Vec::new();
        for kind in self.catalogue.iter().filter(|kind| kind.group == group) {
            for version in &kind.versions {
                if !versions.contains(version) {
                    versions.push(version.clone());
                }
            }
        }
        versions.sort_by_key(|version| Reverse(custom::priority(version)));
        versions
    }

    fn group(&self, group: &str) -> Value {
        let versions = self.versions(group);
        let shown =
            |version: &String| json!({"groupVersion": format!("{group}/{version}"), "version": version});
        let all: Vec<Value> = versions.iter().map(shown).collect();
        json!({"name": group, "versions": all, "preferredVersion": all.first()})
    }

    fn resources(&self, group: &str, version: &str) -> Outcome<Reply> {
        let mut resources = Vec::new();
        for kind in self.catalogue.iter().filter(|kind| kind.serves(group, version)) {
            let mut main = json!({
                "name": kind.plural,
                "singularName": kind.singular,
                "namespaced": kind.is_namespaced,
                "kind": kind.kind,
                "verbs": verbs(kind),
            });
            if !kind.short_names.is_empty() {
                main["shortNames"] = json!(kind.short_names);
            }
            if !kind.categories.is_empty() {
                main["categories"] = json!(kind.categories);
            }
            resources.push(main);
            for (name, shown, group, version) in subresources(kind, version) {
                let mut inner = json!({
                    "name": format!("{}/{name}", kind.plural),
                    "singularName": "",
                    "namespaced": kind.is_namespaced,
                    "kind": shown,
                    "verbs": ["get", "patch", "update"],
                });
                if !group.is_empty() {
                    inner["group"] = json!(group);
                    inner["version"] = json!(version);
                }
                resources.push(inner);
            }
        }
        let group_version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
        Ok(Reply::of(Answer::ok(&json!({
            "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": resources,
        }))))
    }

    fn aggregated(&self, groups: &[String]) -> Value {
        let items: Vec<Value> = groups
            .iter()
            .map(|group| {
                let versions: Vec<Value> = self
                    .versions(group)
                    .iter()
                    .map(|version| {
                        let kinds = self.catalogue.iter().filter(|kind| kind.serves(group, version));
                        let resources: Vec<Value> =
                            kinds.map(|kind| aggregated_resource(kind, version)).collect();
                        json!({"version": version, "resources": resources, "freshness": "Current"})
                    })
                    .collect();
                let mut metadata = json!({});
                if !group.is_empty() {
                    metadata["name"] = json!(group);
                }
                json!({"metadata": metadata, "versions": versions})
            })
            .collect();
        json!({
            "kind": "APIGroupDiscoveryList",
            "apiVersion": "apidiscovery.k8s.io/v2",
            "metadata": {},
            "items": items,
        })
    }
}

fn verbs(kind: &Kind) -> [&'static str; 8] {
    if matches!(kind.of, Of::Custom(_)) { CUSTOM_VERBS } else { VERBS }
}

/// Returns name, kind, group and version of the subresources; the last two are empty if as the resource's.
fn subresources(kind: &Kind, version: &str) -> Vec<(&'static str, String, &'static str, &'static str)> {
    let mut all = Vec::new();
    if kind.has_scale(version) {
        all.push(("scale", "Scale".to_owned(), "autoscaling", "v1"));
    }
    if kind.serves_status(version) {
        all.push(("status", kind.kind.clone(), "", ""));
    }
    all
}

fn aggregated_resource(kind: &Kind, version: &str) -> Value {
    let response =
        |group: &str, version: &str, kind: &str| json!({"group": group, "version": version, "kind": kind});
    let inner: Vec<Value> = subresources(kind, version)
        .into_iter()
        .map(|(name, shown, group, inner_version)| {
            let response = if group.is_empty() {
                response(&kind.group, version, &shown)
            } else {
                response(group, inner_version, &shown)
            };
            json!({"subresource": name, "responseKind": response, "verbs": ["get", "patch", "update"]})
        })
        .collect();
    let mut resource = json!({
        "resource": kind.plural,
        "responseKind": response(&kind.group, version, &kind.kind),
        "scope": if kind.is_namespaced { "Namespaced" } else { "Cluster" },
        "singularResource": kind.singular,
        "verbs": verbs(kind),
        "shortNames": kind.short_names,
        "categories": kind.categories,
    });
    if !inner.is_empty() {
        resource["subresources"] = json!(inner);
    }
    resource
}

fn aggregated(list: &Value) -> Reply {
    let mut reply = Reply::of(Answer::ok(list));
    if let Reply::Whole { media, .. } = &mut reply {
        *media = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    }
    reply
}

fn version() -> Value {
    let (major, minor, git) = KUBERNETES;
    json!({
        "major": major,
        "minor": minor,
        "gitVersion": git,
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "",
        "compiler": "rustc",
        "platform": format!("{}/{}", std::env::consts::OS, std::env::consts::ARCH),
    })
}
