//! Defaults and validation of Deployments and ReplicaSets.

use serde_json::{Value, json};

use super::super::failure::Cause;
use super::super::kinds::BuiltIn;
use super::super::meta;
use super::super::request::{at, member, number, text};
use super::super::selectors::selector_matches;
use super::{check_not_negative, or_default, pods};

pub(super) fn default_deployment(deployment: &mut Value) {
    let spec = member(deployment, "spec");
    for (key, value) in [("replicas", 1), ("revisionHistoryLimit", 10), ("progressDeadlineSeconds", 600)] {
        if spec.get(key).is_none() {
            spec[key] = json!(value);
        }
    }
    let strategy = member(spec, "strategy");
    or_default(strategy, "type", json!("RollingUpdate"));
    if strategy["type"] == "RollingUpdate" {
        let rolling = member(strategy, "rollingUpdate");
        for key in ["maxSurge", "maxUnavailable"] {
            if rolling.get(key).is_none() {
                rolling[key] = json!("25%");
            }
        }
    }
    default_template(spec);
}

pub(super) fn default_replica_set(set: &mut Value) {
    let spec = member(set, "spec");
    if spec.get("replicas").is_none() {
        spec["replicas"] = json!(1);
    }
    default_template(spec);
}

fn default_template(spec: &mut Value) {
    let template = member(spec, "template");
    member(template, "metadata");
    pods::default_spec(member(template, "spec"));
}

pub(super) fn validate(of: BuiltIn, object: &Value, stored: Option<&Value>, causes: &mut Vec<Cause>) {
    for field in ["replicas", "minReadySeconds", "revisionHistoryLimit", "progressDeadlineSeconds"] {
        check_not_negative(object, &format!("/spec/{field}"), causes);
    }
    let spec = &object["spec"];
    let selector = &spec["selector"];

    if meta::is_empty(selector) || !selector_matches(selector, &spec["template"]) {
        let labels = spec.pointer("/template/metadata/labels").cloned().unwrap_or(json!({}));
        let detail = "`selector` does not match template `labels`";
        causes.push(Cause::invalid("spec.template.metadata.labels", &labels, detail));
    }
    if let Some(stored) = stored
        && at(stored, "/spec/selector") != Some(selector)
    {
        causes.push(Cause::invalid("spec.selector", selector, "field is immutable"));
    }
    let template = &spec["template"]["spec"];
    pods::validate_spec(template, "spec.template.spec", causes);
    let policy = text(template, "/restartPolicy");
    if policy != "Always" && matches!(policy, "OnFailure" | "Never") {
        let supported = ["Always".to_owned()];
        let field = "spec.template.spec.restartPolicy";
        causes.push(Cause::not_supported(field, &template["restartPolicy"], &supported));
    }
    if of == BuiltIn::Deployment {
        validate_strategy(spec, causes);
        let deadline = &spec["progressDeadlineSeconds"];
        if deadline.as_i64().is_some_and(|deadline| deadline <= number(spec, "/minReadySeconds")) {
            let detail = "must be greater than minReadySeconds";
            causes.push(Cause::invalid("spec.progressDeadlineSeconds", deadline, detail));
        }
    }
}

/// Returns whether a number or percentage is zero, or cannot be parsed.
fn is_zero(value: &Value) -> bool {
    let number = match value.as_str() {
        Some(text) => text.trim_end_matches('%').parse().ok(),
        None => value.as_i64(),
    };
    number.unwrap_or_default() == 0
}

fn validate_strategy(spec: &Value, causes: &mut Vec<Cause>) {
    let strategy = &spec["strategy"];
    match text(strategy, "/type") {
        "Recreate" if strategy.get("rollingUpdate").is_some() => {
            let detail = "may not be specified when strategy `type` is 'Recreate'";
            causes.push(Cause::forbidden("spec.strategy.rollingUpdate", detail));
        }
        "RollingUpdate" => {
            let rolling = &strategy["rollingUpdate"];
            if is_zero(&rolling["maxSurge"]) && is_zero(&rolling["maxUnavailable"]) {
                let field = "spec.strategy.rollingUpdate.maxUnavailable";
                let detail = "may not be 0 when `maxSurge` is 0";
                causes.push(Cause::invalid(field, &rolling["maxUnavailable"], detail));
            }
            for name in ["maxSurge", "maxUnavailable"] {
                let value = &rolling[name];
                let percent = value.as_str().and_then(|text| text.strip_suffix('%')?.parse::<u16>().ok());
                let number = value.as_i64().filter(|number| (0..=i64::from(i32::MAX)).contains(number));
                let is_too_much = name == "maxUnavailable" && percent.is_some_and(|percent| percent > 100);
                if (percent.is_none() && number.is_none()) || is_too_much {
                    let field = format!("spec.strategy.rollingUpdate.{name}");
                    let detail = "must be an integer or percentage (e.g '5%'), not negative";
                    causes.push(Cause::invalid(field, value, detail));
                }
            }
        }
        "Recreate" => {}
        _ => {
            let supported = ["Recreate".to_owned(), "RollingUpdate".to_owned()];
            causes.push(Cause::not_supported("spec.strategy", strategy, &supported));
        }
    }
}
