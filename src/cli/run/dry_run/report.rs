//! What the passes of a dry run would do, judged, as JSON with stable fields.
//!
//! | a refused write | counts as | because |
//! |---|---|---|
//! | by default | an error | the operator would be stuck, or the dry run cannot tell |
//! | and the status keeps its reason | no error: `known` | the operator is refused today, too, and says so |
//! | a create that is forbidden after a delete in the same pass | no error: `unsure` | the delete may make room in a quota |
//!
//! # Guarantees
//! - A refusal that the status already reports is no error. (test: `known_refusal_is_no_error`)
//! - A create that a delete may make room for is no error. (test: `quota_after_a_delete_is_unsure`)
//! - An object whose pass may lead to more is marked. (test: `writes_of_children_have_consequences`)

use serde::Serialize;

use super::Pass;
use crate::client::ServerStatus;
use crate::client::dry_run::{Change, Effect, Write};

/// The whole report.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Report {
    /// Objects with something to report, by kind, namespace and name.
    pub(super) objects: Vec<ObjectReport>,
    pub(super) summary: Summary,
}

/// Each object is counted once.
#[derive(Debug, Default, PartialEq, Serialize)]
pub(super) struct Summary {
    pub(super) changed: usize,
    pub(super) unchanged: usize,
    pub(super) failed: usize,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ObjectReport {
    pub(super) kind: String,
    pub(super) namespace: Option<String>,
    pub(super) name: String,
    /// Writes that would be made, or refused, in their order.
    pub(super) writes: Vec<WriteReport>,
    /// Hooks of tasks that would be called.
    pub(super) calls: Vec<Call>,
    /// Whether later passes may do more, once the writes are stored and the calls made.
    pub(super) more_follows: bool,
    /// Why the pass failed.
    pub(super) error: Option<String>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct WriteReport {
    pub(super) verb: &'static str,
    pub(super) kind: String,
    pub(super) namespace: Option<String>,
    pub(super) name: String,
    pub(super) subresource: Option<&'static str>,
    pub(super) changes: Vec<Change>,
    pub(super) refusal: Option<Refusal>,
}

#[derive(Debug, Serialize)]
pub(super) struct Call {
    pub(super) task: String,
    pub(super) hook: &'static str,
}

#[derive(Debug, Serialize)]
pub(super) struct Refusal {
    pub(super) code: u16,
    pub(super) reason: String,
    pub(super) message: String,
    pub(super) verdict: Verdict,
}

/// What a refusal means for the dry run; see the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Verdict {
    Error,
    Known,
    Unsure,
}

// === impl Report ===

impl Report {
    pub(super) fn of(mut passes: Vec<Pass>) -> Self {
        passes.sort_by(|a, b| (&a.kind, &a.namespace, &a.name).cmp(&(&b.kind, &b.namespace, &b.name)));
        let (mut objects, mut summary) = (Vec::new(), Summary::default());
        for pass in passes {
            let object = ObjectReport::of(pass);
            *match (object.has_failed(), object.would_change()) {
                (true, _) => &mut summary.failed,
                (false, true) => &mut summary.changed,
                (false, false) => &mut summary.unchanged,
            } += 1;
            if object.error.is_some() || !object.writes.is_empty() || !object.calls.is_empty() {
                objects.push(object);
            }
        }
        Self { objects, summary }
    }

    /// Returns the exit code, as that of `kubectl diff`.
    pub(super) fn code(&self) -> u8 {
        match self.summary {
            Summary { failed: 1.., .. } => 2,
            Summary { changed: 1.., .. } => 1,
            Summary { .. } => 0,
        }
    }
}

// === impl ObjectReport ===

impl ObjectReport {
    fn of(pass: Pass) -> Self {
        let keeps_reason = !pass.effects.iter().any(changes_reason);
        let Pass { kind, namespace, name, effects, error } = pass;
        let (mut writes, mut calls, mut has_deleted) = (Vec::<WriteReport>::new(), Vec::new(), false);
        for effect in effects {
            match effect {
                Effect::Write(write) => {
                    let is_of_status = write.is_status;
                    let verdict = move |verb: &str, status: &ServerStatus| match status.code {
                        403 if has_deleted && verb == "create" => Verdict::Unsure,
                        _ if keeps_reason && !is_of_status => Verdict::Known,
                        _ => Verdict::Error,
                    };
                    has_deleted |= write.verb == "delete" && write.outcome.is_ok();
                    writes.push(WriteReport::of(write, verdict));
                }
                Effect::Call { task, hook } => calls.push(Call { task, hook }),
            }
        }
        let has_consequences = |write: &WriteReport| {
            write.subresource.is_none() && write.would_change() || write.verdict() == Some(Verdict::Unsure)
        };
        let more_follows = !calls.is_empty() || writes.iter().any(has_consequences);
        Self { kind, namespace, name, writes, calls, more_follows, error }
    }

    fn has_failed(&self) -> bool {
        self.error.is_some() || self.writes.iter().any(|write| write.verdict() == Some(Verdict::Error))
    }

    fn would_change(&self) -> bool {
        !self.calls.is_empty() || self.writes.iter().any(WriteReport::would_change)
    }
}

/// Whether a effect changes why an object is Ready or not.
fn changes_reason(effect: &Effect) -> bool {
    let Effect::Write(Write { is_status: true, outcome: Ok(changes), .. }) = effect else { return false };
    changes.iter().any(|change| change.field == "status.conditions[Ready].reason")
}

// === impl WriteReport ===

impl WriteReport {
    fn of(write: Write, verdict: impl Fn(&str, &ServerStatus) -> Verdict) -> Self {
        let Write { verb, kind, namespace, name, is_status, outcome } = write;
        let (changes, refused) = match outcome {
            Ok(changes) => (changes, None),
            Err(status) => (Vec::new(), Some(status)),
        };
        let refusal = refused.map(|status| {
            let verdict = verdict(verb, &status);
            let ServerStatus { code, reason, message, .. } = status;
            Refusal { code, reason, message, verdict }
        });
        Self { verb, kind, namespace, name, subresource: is_status.then_some("status"), changes, refusal }
    }

    fn verdict(&self) -> Option<Verdict> {
        self.refusal.as_ref().map(|refusal| refusal.verdict)
    }

    /// Whether the store would change: an update whose answer is what is stored changes nothing.
    pub(super) fn would_change(&self) -> bool {
        self.refusal.is_none() && (self.verb != "patch" || !self.changes.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn change(field: &str) -> Change {
        Change { field: field.to_owned(), before: Some(json!(1)), after: Some(json!(2)) }
    }

    fn write(verb: &'static str, outcome: Result<Vec<Change>, u16>) -> Effect {
        let outcome = outcome.map_err(|code| ServerStatus { code, ..ServerStatus::default() });
        let (kind, name, namespace) = ("Pod".to_owned(), "a".to_owned(), None);
        Effect::Write(Write { verb, kind, namespace, name, is_status: false, outcome })
    }

    fn status(field: &str) -> Effect {
        let Effect::Write(write) = write("patch", Ok(vec![change(field)])) else { unreachable!("a write") };
        Effect::Write(Write { is_status: true, ..write })
    }

    fn report(effects: Vec<Effect>) -> Report {
        let (kind, name) = ("Foo".to_owned(), "one".to_owned());
        Report::of(vec![Pass { kind, namespace: None, name, effects, error: None }])
    }

    const READY_REASON: &str = "status.conditions[Ready].reason";

    #[test]
    fn known_refusal_is_no_error() {
        let refused = || write("create", Err(422));
        for (effects, code) in [
            (vec![], 0),
            (vec![refused()], 0),
            (vec![refused(), status("status.replicas")], 1),
            (vec![refused(), status(READY_REASON)], 2),
            (vec![write("patch", Ok(vec![change("a")])), refused(), status(READY_REASON)], 2),
        ] {
            let text = format!("{effects:?}");
            assert_eq!(report(effects).code(), code, "{text}");
        }
    }

    #[test]
    fn quota_after_a_delete_is_unsure() {
        let deleted = || write("delete", Ok(vec![]));
        let report = |code| report(vec![deleted(), write("create", Err(code)), status(READY_REASON)]);
        assert_eq!((report(403).code(), report(422).code()), (1, 2));
        assert!(report(403).objects[0].more_follows);
    }

    #[test]
    fn writes_of_children_have_consequences() {
        let call = || Effect::Call { task: "a".to_owned(), hook: "create" };
        for (effects, more_follows, code) in [
            (vec![status("status.replicas")], false, 1),
            (vec![write("patch", Ok(vec![]))], false, 0),
            (vec![write("patch", Ok(vec![change("a")]))], true, 1),
            (vec![write("delete", Ok(vec![]))], true, 1),
            (vec![call()], true, 1),
        ] {
            let report = report(effects);
            assert_eq!((report.objects[0].more_follows, report.code()), (more_follows, code), "{report:?}");
        }
    }

    #[test]
    fn failed_pass_is_an_error() {
        let pass = |error: Option<&str>, name: &str| {
            let (kind, error) = ("Foo".to_owned(), error.map(str::to_owned));
            Pass { kind, namespace: None, name: name.to_owned(), effects: vec![], error }
        };
        let report = Report::of(vec![pass(Some("lost"), "b"), pass(None, "a")]);
        assert_eq!(report.summary, Summary { changed: 0, unchanged: 1, failed: 1 });
        assert_eq!((report.code(), report.objects.len()), (2, 1));
    }

    /// Programs read these fields.
    #[test]
    fn json_has_stable_fields() {
        let effects = vec![
            write("patch", Ok(vec![change("spec.replicas")])),
            write("create", Err(422)),
            Effect::Call { task: "a".to_owned(), hook: "create" },
        ];
        let expected = json!({
            "objects": [{
                "kind": "Foo", "namespace": null, "name": "one", "moreFollows": true, "error": null,
                "writes": [
                    {"verb": "patch", "kind": "Pod", "namespace": null, "name": "a", "subresource": null,
                        "changes": [{"field": "spec.replicas", "before": 1, "after": 2}], "refusal": null},
                    {"verb": "create", "kind": "Pod", "namespace": null, "name": "a", "subresource": null,
                        "changes": [], "refusal": {"code": 422, "reason": "", "message": "", "verdict": "known"}},
                ],
                "calls": [{"task": "a", "hook": "create"}],
            }],
            "summary": {"changed": 1, "unchanged": 0, "failed": 0},
        });
        assert_eq!(serde_json::to_value(report(effects)).unwrap(), expected);
    }
}
