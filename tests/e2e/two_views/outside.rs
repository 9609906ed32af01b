//! What the tasks of WebApps do outside the cluster: each operation once, and none for an older spec after a newer one.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::Value;
use windlass::operators::webapp::TaskEntry;
use windlass::operators::webapp::tasks::{HookCall, HookError, HookFuture, TaskExecutor};

use super::gate::OperatorGate;

/// How long an operation takes.
const WORK: Duration = Duration::from_millis(500);
/// How often a suspended operator looks whether it goes on.
const POLL: Duration = Duration::from_millis(100);

/// An operation that took effect.
#[derive(Debug)]
struct Effect {
    id: String,
    uid: String,
    hook: &'static str,
    spec: Value,
}

#[derive(Debug, Default)]
struct Ledger {
    effects: Vec<Effect>,
    /// The newest generation of each WebApp; older ones are refused.
    newest: BTreeMap<String, i64>,
    /// Generations no longer grow: the store was rolled back.
    is_restored: bool,
    wrong: Vec<String>,
}

/// The system outside, which all operators share.
#[derive(Clone, Debug, Default)]
pub(super) struct Outside {
    ledger: Arc<Mutex<Ledger>>,
}

/// One operator's task.
struct Reserve {
    outside: Outside,
    gate: OperatorGate,
}

// === impl Outside ===

impl Outside {
    /// Returns the tasks of the operator behind this gate.
    pub(super) fn tasks(&self, gate: &OperatorGate) -> Vec<TaskEntry> {
        let reserve = Reserve { outside: self.clone(), gate: gate.clone() };
        vec![TaskEntry::Executor(Arc::new(reserve)), TaskEntry::Workload("workload".to_owned())]
    }

    /// From now on no generation is refused.
    pub(super) fn restored(&self) {
        self.ledger.lock().is_restored = true;
    }

    /// Returns what was wrong, given the custom resources that are Ready at the end.
    pub(super) fn wrong(&self, webapps: &[&Value]) -> Vec<String> {
        let ledger = self.ledger.lock();
        let mut wrong = ledger.wrong.clone();
        for webapp in webapps {
            let uid = webapp["metadata"]["uid"].as_str().unwrap_or_default();
            let last =
                ledger.effects.iter().rev().find(|effect| effect.uid == uid && effect.hook == "create");
            if !last.is_some_and(|last| contains(&last.spec, &webapp["spec"])) {
                wrong.push(format!("outside there is {last:?}, for the spec {}", webapp["spec"]));
            }
        }
        if !ledger.is_restored {
            let is_left = |uid: &str| webapps.iter().any(|webapp| webapp["metadata"]["uid"] == uid);
            for uid in ledger.newest.keys().filter(|uid| !is_left(uid)) {
                let last = ledger.effects.iter().rev().find(|effect| effect.uid == *uid);
                if last.is_some_and(|last| last.hook == "create") {
                    wrong.push(format!("left {last:?} behind outside"));
                }
            }
        }
        wrong
    }
}

/// Whether a spec has all members of another, which may lack defaults.
fn contains(spec: &Value, other: &Value) -> bool {
    other.as_object().is_some_and(|members| members.iter().all(|(key, value)| spec[key] == *value))
}

// === impl Ledger ===

impl Ledger {
    /// Whether a newer generation has begun.
    fn is_old(&self, call: &HookCall) -> bool {
        !self.is_restored && self.newest.get(call.uid()).is_some_and(|newest| *newest > call.generation())
    }

    fn begin(&mut self, call: &HookCall) {
        if self.is_old(call) {
            let (hook, generation) = (call.hook().as_str(), call.generation());
            self.wrong.push(format!("{hook} of generation {generation} began after that of a newer one"));
        }
        let newest = self.newest.entry(call.uid().to_owned()).or_default();
        *newest = call.generation().max(*newest);
    }

    fn take_effect(&mut self, call: &HookCall) -> Result<(), HookError> {
        if self.is_old(call) {
            return Err(HookError::permanent("a newer generation has begun"));
        }
        if self.effects.iter().any(|effect| effect.id == call.operation_id()) {
            return Ok(());
        }
        let effect = Effect {
            id: call.operation_id().to_owned(),
            uid: call.uid().to_owned(),
            hook: call.hook().as_str(),
            spec: serde_json::to_value(call.spec()).expect("a spec serializes"),
        };
        let last = self.effects.iter().rev().find(|last| last.uid == effect.uid && last.hook == effect.hook);
        if let Some(last) = last.filter(|last| last.spec == effect.spec && !self.is_restored) {
            self.wrong.push(format!("{effect:?} took effect twice, before as {}", last.id));
        }
        self.effects.push(effect);
        Ok(())
    }
}

// === impl Reserve ===

impl Reserve {
    fn run<'a>(&'a self, call: &'a HookCall) -> HookFuture<'a> {
        Box::pin(async move {
            self.outside.ledger.lock().begin(call);
            tokio::time::sleep(WORK).await;
            while self.gate.is_suspended() {
                tokio::time::sleep(POLL).await;
            }
            if self.gate.is_dead() {
                return std::future::pending().await;
            }
            self.outside.ledger.lock().take_effect(call)
        })
    }
}

impl TaskExecutor for Reserve {
    fn name(&self) -> &'static str {
        "reserve"
    }

    fn create<'a>(&'a self, call: &'a HookCall) -> HookFuture<'a> {
        self.run(call)
    }

    fn delete<'a>(&'a self, call: &'a HookCall) -> HookFuture<'a> {
        self.run(call)
    }
}
