//! The switches of the page: limits, faults of the embedded server, and load.
//!
//! ```text
//! page ─▶ Panel ─┬─▶ workers, queues, gate of the running operator
//!                ├─▶ Sim: faults, for the operator alone
//!                └─▶ Load: objects and changes
//! ```
//! There are none on a real cluster.
//!
//! # Guarantees
//! - Limits are changed in the running operator (test: `limits_are_changed_while_it_runs`)
//! - Faults hit the operator alone, and end when switched off (test: `faults_hit_the_operator_alone`)
//! - A value out of range is refused, and changes nothing (test: `values_out_of_range_are_refused`)

use std::time::Duration;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::load::{Order, Orders};
use crate::client::RequestLimits;
use crate::controller::Limits;
use crate::debug::{Live, Switches};
use crate::sim::{Action, Fault, FaultId, Sim, When};
use crate::workqueue::RetryLimits;

/// The operator's user on the embedded server.
pub(super) const OPERATOR: &str = "windlass";

/// All switches; see the module.
pub(crate) struct Panel {
    sim: Sim,
    orders: Orders,
    state: Mutex<Positions>,
}

struct Positions {
    retries: Retries,
    requests: Requests,
    faults: Faults,
    active: Vec<FaultId>,
}

/// A change that the page asks for.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
enum Change {
    /// The number of workers of each controller.
    Workers(usize),
    Retries(Retries),
    Requests(Requests),
    Faults(Faults),
    /// Ends the open watches.
    CutWatches,
    /// Forgets the history, so that every kind is listed again.
    Compact,
    /// Creates objects.
    Create(usize),
    Churn(Churn),
    /// Deletes a child.
    BreakChild,
    /// Deletes the created objects.
    RemoveLoad,
}

/// The limits of failures.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Retries {
    base_delay_ms: u64,
    qps: u32,
    burst: u32,
}

/// The limits of requests.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Requests {
    /// 0 for no limit.
    qps: u32,
    burst: u32,
}

/// The faults of the server, as the operator sees them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Faults {
    /// Every request takes this much longer.
    latency_ms: u64,
    /// Every write is answered with 500.
    errors: bool,
    /// Every write is answered with 429 and a Retry-After of 1 s, as by an overloaded server: once it serves nothing else, all requests pause.
    throttling: bool,
    /// An admission webhook rejects each write of a Deployment.
    webhook: bool,
    /// Connections break.
    outage: bool,
    /// Connections stay open, and nothing is answered.
    freeze: bool,
}

/// Changes of the created objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Churn {
    /// Changes per second; 0 for none.
    rate: u16,
    /// Whether a single object is changed.
    hot: bool,
}

// === impl Panel ===

impl Panel {
    pub(super) fn new(sim: Sim, orders: Orders) -> Self {
        let Limits { base_delay, qps, burst, .. } = Limits::default();
        let base_delay_ms = u64::try_from(base_delay.as_millis()).unwrap_or_default();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the default is 50")]
        let retries = Retries { base_delay_ms, qps: qps as u32, burst };
        let requests = Requests { qps: 0, burst: RequestLimits::default().burst };
        let state = Positions { retries, requests, faults: Faults::default(), active: Vec::new() };
        Self { sim, orders, state: Mutex::new(state) }
    }

    /// Sets the faults.
    fn set_faults(&self, wanted: Faults) {
        let mut state = self.state.lock();
        if wanted.freeze != state.faults.freeze {
            self.sim.suspend(OPERATOR, wanted.freeze);
        }
        state.faults = wanted;
        self.apply(&mut state, 0);
        if wanted.outage {
            self.sim.cut_watches(OPERATOR, "");
        }
    }

    /// Makes the next watch of each of so many kinds fail with 410, so that the kind is listed again.
    fn compact(&self, kinds: usize) {
        self.sim.compact();
        self.apply(&mut self.state.lock(), kinds);
        self.sim.cut_watches(OPERATOR, "");
    }

    /// Replaces the active faults; so many watches have expired. The first fault that matches a request decides, so
    /// delays come last.
    fn apply(&self, state: &mut Positions, expired: usize) {
        for id in state.active.drain(..) {
            self.sim.heal(id);
        }
        let wanted = state.faults;
        let mut faults = Vec::new();
        if wanted.outage {
            faults.push(Fault::new(When::any().user(OPERATOR), Action::DropBefore));
        }
        if expired > 0 {
            let watch = When::verb("watch").user(OPERATOR).times(expired);
            faults.push(Fault::new(watch, Action::refuse(410, "Expired")));
        }
        for verb in ["create", "update", "patch"] {
            let message = "admission webhook \"refuse.windlass.dev\" denied the request: its switch is on";
            let (code, reason, message) = (403, "Forbidden".to_owned(), message.to_owned());
            let then = Action::Refuse { code, reason, message, retry_after: None };
            if wanted.webhook {
                faults.push(Fault::new(When::verb(verb).resource("deployments").user(OPERATOR), then));
            }
        }
        for verb in ["create", "update", "patch", "delete"] {
            let then = if wanted.errors {
                Action::refuse(500, "InternalError")
            } else if wanted.throttling {
                Action::Overload { retry_after: 1 }
            } else {
                break;
            };
            faults.push(Fault::new(When::verb(verb).user(OPERATOR), then));
        }
        if wanted.latency_ms > 0 {
            let delay = Action::Delay(Duration::from_millis(wanted.latency_ms));
            faults.push(Fault::new(When::any().user(OPERATOR), delay));
        }
        state.active = faults.into_iter().map(|fault| self.sim.fault(fault)).collect();
    }
}

impl Switches for Panel {
    fn positions(&self, live: &Live) -> Value {
        let (created, churn) = self.orders.state();
        let Positions { retries, requests, faults, .. } = &*self.state.lock();
        json!({
            "workers": live.controllers.first().map(|view| view.workers.count()),
            "retries": retries,
            "requests": requests,
            "faults": faults,
            "created": created,
            "churn": Churn { rate: churn.0, hot: churn.1 },
        })
    }

    fn change(&self, live: &Live, wanted: &[u8]) -> Result<(), String> {
        let wanted: Change =
            serde_json::from_slice(wanted).map_err(|error| format!("not a change: {error}"))?;
        match wanted {
            Change::Workers(workers) => {
                within("workers", workers, 1, 32)?;
                live.controllers.iter().for_each(|view| view.workers.set(workers));
            }
            Change::Retries(retries) => {
                let Retries { base_delay_ms, qps, burst } = retries;
                within("base delay in ms", base_delay_ms, 1, 60_000)?;
                within("retries per second", qps, 1, 10_000)?;
                within("burst of retries", burst, 1, 10_000)?;
                let base_delay = Duration::from_millis(base_delay_ms);
                let limits = RetryLimits { base_delay, qps: f64::from(qps), burst };
                live.controllers.iter().for_each(|view| view.queue.set_limits(&limits));
                self.state.lock().retries = retries;
            }
            Change::Requests(requests) => {
                within("requests per second", requests.qps, 0, 10_000)?;
                within("burst of requests", requests.burst, 1, 10_000)?;
                let qps = (requests.qps > 0).then(|| f64::from(requests.qps));
                live.client.gate().set_rate(qps, requests.burst);
                self.state.lock().requests = requests;
            }
            Change::Faults(faults) => {
                within("latency in ms", faults.latency_ms, 0, 10_000)?;
                self.set_faults(faults);
            }
            Change::CutWatches => self.sim.cut_watches(OPERATOR, ""),
            Change::Compact => self.compact(live.kinds),
            Change::Create(count) => {
                within("objects", count, 1, 1000)?;
                self.orders.give(Order::Create(count))?;
            }
            Change::Churn(Churn { rate, hot }) => {
                within("changes per second", rate, 0, 500)?;
                self.orders.give(Order::Churn(rate, hot))?;
            }
            Change::BreakChild => self.orders.give(Order::BreakChild)?,
            Change::RemoveLoad => self.orders.give(Order::Remove)?,
        }
        Ok(())
    }
}

/// Refuses a value out of range.
fn within<T: Copy + PartialOrd + std::fmt::Display>(
    what: &str,
    value: T,
    min: T,
    max: T,
) -> Result<(), String> {
    if value < min || value > max {
        return Err(format!("{what}: {value} is not in {min} to {max}"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use kube_client::Client;

    use super::super::load::Load;
    use super::*;
    use crate::api::ApiResource;
    use crate::client::{ApiClient, Error};
    use crate::sim::{InProcessTransport, Settings};

    const CONFIG_MAPS: ApiResource = ApiResource::new("", "v1", "ConfigMap", "configmaps");

    struct Rig {
        panel: Panel,
        live: Live,
        _load: Load,
    }

    fn rig() -> (Sim, Rig) {
        let sim = Sim::new(Settings::default());
        let client = of(&sim, OPERATOR);
        let (load, orders) = Load::new(client.clone());
        let live = Live { controllers: Vec::new(), client, kinds: 0 };
        (sim.clone(), Rig { panel: Panel::new(sim, orders), live, _load: load })
    }

    fn of(sim: &Sim, user: &str) -> ApiClient {
        ApiClient::new(Client::new(InProcessTransport::new(sim, user), "default"))
    }

    impl Rig {
        fn change(&self, wanted: &Value) -> Result<(), String> {
            self.panel.change(&self.live, wanted.to_string().as_bytes())
        }

        fn faults(&self, name: &str, value: &Value) {
            let mut faults = json!(Faults::default());
            faults[name] = value.clone();
            self.change(&json!({"faults": faults})).unwrap();
            assert_eq!(self.panel.positions(&self.live)["faults"], faults);
        }
    }

    async fn create(client: &ApiClient) -> Result<(), Error> {
        let object = json!({"metadata": {"generateName": "x-"}});
        client.create::<Value>(&CONFIG_MAPS, Some("default"), &object).await.map(drop)
    }

    #[tokio::test(start_paused = true)]
    async fn faults_hit_the_operator_alone() {
        let (sim, rig) = rig();
        let (operator, other) = (rig.live.client.clone(), of(&sim, "other"));
        for (fault, code) in [("errors", Some(500)), ("throttling", Some(429)), ("outage", None)] {
            rig.faults(fault, &json!(true));
            let error = create(&operator).await.unwrap_err();
            assert_eq!(error.status().map(|status| status.code), code, "{fault}");
            assert!(create(&other).await.is_ok(), "{fault}");
            rig.faults(fault, &json!(false));
            assert!(create(&operator).await.is_ok(), "{fault} is over");
        }
        let before = tokio::time::Instant::now();
        rig.faults("latencyMs", &json!(200));
        let run = sim.clone();
        tokio::select! {
            created = create(&operator) => assert!(created.is_ok()),
            () = run.run() => {}
        }
        assert_eq!(before.elapsed(), Duration::from_millis(200));
        rig.faults("freeze", &json!(true));
        let frozen = tokio::time::timeout(Duration::from_secs(1), create(&operator));
        assert!(frozen.await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn limits_are_changed_while_it_runs() {
        let (_sim, rig) = rig();
        rig.change(&json!({"requests": {"qps": 1, "burst": 1}})).unwrap();
        let before = tokio::time::Instant::now();
        create(&rig.live.client).await.unwrap();
        create(&rig.live.client).await.unwrap();
        assert_eq!(before.elapsed(), Duration::from_secs(1));
        rig.change(&json!({"requests": {"qps": 0, "burst": 1}})).unwrap();
        create(&rig.live.client).await.unwrap();
        assert_eq!(before.elapsed(), Duration::from_secs(1));
        let retries = json!({"baseDelayMs": 100, "qps": 5, "burst": 6});
        rig.change(&json!({"retries": retries})).unwrap();
        assert_eq!(rig.panel.positions(&rig.live)["retries"], retries);
    }

    #[tokio::test(start_paused = true)]
    async fn values_out_of_range_are_refused() {
        let (_sim, rig) = rig();
        let before = rig.panel.positions(&rig.live);
        for wrong in [
            json!({"workers": 0}),
            json!({"workers": 33}),
            json!({"retries": {"baseDelayMs": 0, "qps": 1, "burst": 1}}),
            json!({"retries": {"baseDelayMs": 5, "qps": 0, "burst": 1}}),
            json!({"requests": {"qps": 1, "burst": 0}}),
            json!({"create": 1001}),
            json!({"churn": {"rate": 501, "hot": false}}),
            json!({"faults": {"latencyMs": 10_001}}),
            json!({"unknown": 1}),
            json!("unknown"),
            json!(null),
        ] {
            let error = rig.change(&wrong).unwrap_err();
            assert!(error.contains("is not in") || error.starts_with("not a change: "), "{wrong}: {error}");
        }
        assert_eq!(rig.panel.positions(&rig.live), before);
    }
}
