//! The subresource `scale`: the replicas of an object in a form common to all kinds.

use serde_json::{Value, json};

use super::apply::{self, AppliedScale};
use super::core::Core;
use super::failure::{Cause, Failure, Outcome};
use super::kinds::{Kind, Of};
use super::patch;
use super::read;
use super::reply::Answer;
use super::request::{Call, number, text};
use super::table;

impl Core {
    /// Gets, updates or patches the subresource `scale`.
    pub(super) fn scale(&mut self, call: &Call) -> Outcome<Answer> {
        let kind = call.kind.clone();
        let stored = self.store.get(&kind.resource, &call.namespace, &call.name).cloned();
        let stored = stored.ok_or_else(|| Failure::not_found(&kind, &call.name))?;
        let (spec_path, status_path, selector) = scale_of(&kind, &call.version, &stored);
        let shown = |object: &Value| {
            let mut scale = json!({
                "kind": "Scale",
                "apiVersion": "autoscaling/v1",
                "metadata": {},
                "spec": {},
                "status": {"replicas": number(object, &status_path)},
            });
            // Go omits a zero here but not in the status.
            if number(object, &spec_path) != 0 {
                scale["spec"]["replicas"] = json!(number(object, &spec_path));
            }
            for key in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
                scale["metadata"][key] = object["metadata"][key].clone();
            }
            if !selector.is_empty() {
                scale["status"]["selector"] = json!(selector);
            }
            scale
        };
        if call.verb == "get" {
            let scale = shown(&stored);
            return Ok(if read::wants_table(call) {
                Answer::ok(&table::of_scale(&scale, self, read::include(call)))
            } else {
                Answer::ok(&scale)
            });
        }
        let applied = if call.verb == "patch" && patch::is_apply(&call.content_type) {
            Some(AppliedScale::check(call, &stored, &spec_path)?)
        } else {
            None
        };
        let sent = match &applied {
            Some(applied) => applied.onto(shown(&stored)),
            None if call.verb == "patch" => {
                patch::apply(&call.content_type, &shown(&stored), &call.body, true)?
            }
            None => call.json_body()?,
        };
        let replicas = sent.pointer("/spec/replicas").cloned().unwrap_or(json!(0));
        let Some(replicas) = replicas.as_i64().filter(|replicas| i32::try_from(*replicas).is_ok()) else {
            return Err(Failure::bad_request(
                "Scale in version \"v1\" cannot be handled as a Scale: spec.replicas must be an int32",
            ));
        };
        let version = text(&sent, "/metadata/resourceVersion");
        if !version.is_empty() && version != text(&stored, "/metadata/resourceVersion") {
            return Err(Failure::modified(&kind, &call.name));
        }
        if replicas < 0 && matches!(kind.of, Of::BuiltIn(_)) {
            let cause =
                Cause::invalid("spec.replicas", &json!(replicas), "must be greater than or equal to 0");
            return Err(Failure::invalid_as("Scale", "autoscaling", &call.name, &[cause]));
        }
        let mut object = self.with_replicas(&kind, &call.version, &stored, &spec_path, replicas)?;
        match applied {
            Some(applied) => applied.record(&mut object),
            None => {
                apply::record_scale(&kind, &call.version, &spec_path, &call.manager(), &mut object, &stored);
            }
        }
        let object = self.store_update(&kind, object, &stored, call.is_dry_run());
        Ok(Answer::ok(&shown(&object)))
    }

    /// Returns an object with other replicas, if it is valid.
    pub(super) fn with_replicas(
        &self,
        kind: &Kind,
        version: &str,
        stored: &Value,
        path: &str,
        replicas: i64,
    ) -> Outcome<Value> {
        let mut object = stored.clone();
        super::world::set(&mut object, path, json!(replicas));
        self.count_generation(kind, version, &mut object, stored);
        let mut causes = Vec::new();
        self.check(kind, version, &object, Some(stored), &mut causes);
        if !causes.is_empty() {
            return Err(Failure::invalid(kind, text(stored, "/metadata/name"), &causes));
        }
        super::write::check_size(&object)?;
        Ok(object)
    }
}

/// Returns the paths of a kind's replicas in spec and status, and its Pod selector as text.
pub(super) fn scale_of(kind: &Kind, version: &str, object: &Value) -> (String, String, String) {
    if let Of::Custom(definition) = &kind.of
        && let Some(scale) = definition.version(version).and_then(|version| version.scale.as_ref())
    {
        let selector = scale.selector.as_deref().map_or("", |path| text(object, path));
        return (scale.spec_replicas.clone(), scale.status_replicas.clone(), selector.to_owned());
    }
    let labels = super::request::members(object, "/spec/selector/matchLabels");
    let terms = labels.into_iter().flatten();
    let terms: Vec<String> =
        terms.map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default())).collect();
    ("/spec/replicas".to_owned(), "/status/replicas".to_owned(), terms.join(","))
}
