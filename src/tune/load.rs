//! The load of a sweep: which objects exist, which are created and changed when, and how the API server answers.
//!
//! ```text
//! --load FILE (YAML) or --profile NAME ─▶ Load ─▶ trial: schedule, server model, operator
//! ```
//!
//! # Guarantees
//! - Every profile is valid, and prints as a file that reads back the same. (test: `profiles_read_back_the_same`)
//! - A mistake is reported with its field and a remedy. (test: `each_mistake_names_its_field`)
//! - The same seed gives the same arrivals, at the rate that was asked for. (test: `arrivals_follow_their_shape_and_seed`)

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::history::History;
use crate::duration;
use crate::operators;

/// A duration, written as Go does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Deserialize, Serialize)]
#[serde(try_from = "String", into = "String")]
pub(super) struct Span(pub(super) Duration);

/// The load of a sweep.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[schemars(title = "windlass tune load")]
pub(super) struct Load {
    /// The kinds of custom resources, by the name of their controller; objects alternate between them.
    pub(super) kinds: Vec<String>,
    /// The custom resources that exist when the operator starts.
    pub(super) objects: Objects,
    /// When custom resources are created.
    pub(super) creations: Vec<Arrivals>,
    /// When the spec of an existing custom resource is changed.
    pub(super) changes: Vec<Arrivals>,
    /// When a change counts as converged.
    pub(super) converged_when: ConvergedWhen,
    /// How the API server answers.
    pub(super) server: Server,
    /// What the operator's own work costs.
    pub(super) operator: Operator,
    /// How many Deployments a second kube-controller-manager makes available: its own limit of requests decides that where
    /// many are new, and it sees all of them before it makes the first available. 0: each after 25 ms.
    pub(super) rollouts_per_second: f64,
    /// How long each hook of a WebApp's first task takes.
    pub(super) webapp_task: Span,
    /// What the operator did when this was recorded: the report compares a trial with it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) history: Option<History>,
}

/// The custom resources that exist when the operator starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct Objects {
    /// How many.
    pub(super) count: usize,
    /// Whether an earlier process has reconciled them already.
    pub(super) converged: bool,
}

/// When a change counts as converged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) enum ConvergedWhen {
    /// The object is Ready in the generation of the change: rollouts count, too.
    #[default]
    Ready,
    /// The status has the generation of the change: the operator has seen it and done its part.
    Observed,
}

/// A series of creations or changes.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", tag = "shape", deny_unknown_fields)]
pub(super) enum Arrivals {
    /// As they came: `windlass tune record` writes them.
    #[serde(rename_all = "camelCase")]
    Recorded {
        /// Milliseconds from the start, ascending.
        at: Vec<u64>,
        /// For changes, the number of the changed object: those that exist at the start come first, then those that are
        /// created, in their order. Any objects, if it is left out.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        objects: Vec<u32>,
    },
    /// At random times with this mean rate.
    #[serde(rename_all = "camelCase")]
    Steady {
        /// Per second.
        rate: f64,
        /// When the series begins.
        #[serde(default)]
        from: Span,
        /// How long it lasts.
        r#for: Span,
    },
    /// All at once.
    #[serde(rename_all = "camelCase")]
    Burst {
        /// How many.
        count: usize,
        /// When.
        #[serde(default)]
        at: Span,
    },
    /// A rate that changes evenly.
    #[serde(rename_all = "camelCase")]
    Ramp {
        /// Per second, at the beginning.
        rate: f64,
        /// Per second, at the end.
        to: f64,
        /// When the series begins.
        #[serde(default)]
        from: Span,
        /// How long it lasts.
        r#for: Span,
    },
    /// A rate that is switched on and off.
    #[serde(rename_all = "camelCase")]
    OnOff {
        /// Per second, while on.
        rate: f64,
        /// How long it is on each time.
        on: Span,
        /// How long it is off each time.
        off: Span,
        /// When the series begins.
        #[serde(default)]
        from: Span,
        /// How long it lasts.
        r#for: Span,
    },
}

/// How the API server answers the operator.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct Server {
    /// How long requests take. The first rule that matches counts.
    pub(super) latency: Vec<Latency>,
    /// How latencies grow: with n requests in flight, one takes n to the power of this as long as one alone. 0: the server
    /// has room for all; 1: each further request waits for all others. `--from` finds it from two scrapes.
    pub(super) latency_growth: f64,
    /// Processor time of the server for each request, besides its latency: requests to a busy server take longer.
    pub(super) cpu_per_request: Span,
    /// The processors of the server; 0 if it shares the operator's.
    pub(super) cpus: usize,
    /// How many requests of the operator are served at once; further ones get 429.
    pub(super) requests_in_flight: usize,
    /// The Retry-After of these answers, in whole seconds.
    pub(super) retry_after: Span,
    /// Requests that fail.
    pub(super) failures: Vec<Failures>,
    /// When the server is down.
    pub(super) outages: Vec<Period>,
    /// Admission webhooks, each of which adds to the latency of writes.
    pub(super) webhooks: Vec<Webhook>,
}

/// How long requests take: always `median`, or, with `p99`, log-normally distributed.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Latency {
    #[serde(flatten)]
    pub(super) which: Which,
    /// The median.
    pub(super) median: Span,
    /// The 99th percentile; when left out, each request takes as long as the median.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) p99: Option<Span>,
}

/// The requests that a rule is for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Which {
    /// `get`, `list`, `create`, `update`, `patch` or `delete`; all when left out.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) verb: String,
    /// The plural of a resource, such as `deployments`; all when left out.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) resource: String,
}

/// Requests that fail.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Failures {
    #[serde(flatten)]
    pub(super) which: Which,
    /// The share of requests that fail, 0 to 1.
    pub(super) share: f64,
    /// The status code of the answer.
    pub(super) code: u16,
    /// When failures begin.
    #[serde(default)]
    pub(super) from: Span,
    /// How long they last; to the end when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) r#for: Option<Span>,
}

/// An admission webhook.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Webhook {
    #[serde(flatten)]
    pub(super) which: Which,
    /// How long it takes.
    pub(super) takes: Span,
}

/// A period of time, from the start of the operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Period {
    /// When it begins.
    pub(super) from: Span,
    /// How long it lasts.
    pub(super) r#for: Span,
}

/// What the operator's own work costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct Operator {
    /// Processor time for each request.
    pub(super) cpu_per_request: Span,
    /// Processor time for each pass that sends a request, besides that of its requests.
    pub(super) cpu_per_pass: Span,
    /// The processors that share this work.
    pub(super) cpus: usize,
}

/// A load with a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Profile {
    /// 2,000 new objects exist when the operator starts
    Startup,
    /// 500 objects, 20 changes a second for a minute
    Steady,
    /// 500 objects, 20 changes a second for a minute; the server is down for 20 s
    Outage,
    /// 500 objects, 10 changes a second; a webhook takes a second for each write of a Deployment
    Webhook,
    /// 500 objects, bursts of changes; others leave the operator eight requests at once
    NoisyNeighbour,
}

// === impl Span ===

impl TryFrom<String> for Span {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        duration::parse(&text).map(Self).map_err(|form| format!("invalid duration {text:?}: {form}"))
    }
}

impl From<Span> for String {
    fn from(span: Span) -> Self {
        if span.0.is_zero() {
            "0".to_owned()
        } else {
            humantime::format_duration(span.0).to_string().replace(' ', "")
        }
    }
}

impl JsonSchema for Span {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Duration".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "type": "string",
            "description": "A number with a unit, such as 5ms, 20s, 2m or 1h30m.",
            "pattern": "^(0|([0-9]+(ns|us|ms|s|m|h))+)$",
        })
    }
}

pub(super) const fn millis(millis: u64) -> Span {
    Span(Duration::from_millis(millis))
}

const fn secs(secs: u64) -> Span {
    Span(Duration::from_secs(secs))
}

/// Returns the JSON schema of a file with a load.
pub(crate) fn schema() -> serde_json::Value {
    let settings = schemars::generate::SchemaSettings::draft2020_12();
    settings.into_generator().into_root_schema_for::<Load>().to_value()
}

// === defaults ===

impl Default for Load {
    fn default() -> Self {
        Self {
            kinds: vec![operators::foo::NAME.to_owned()],
            objects: Objects::default(),
            creations: Vec::new(),
            changes: Vec::new(),
            converged_when: ConvergedWhen::default(),
            server: Server::default(),
            operator: Operator::default(),
            rollouts_per_second: 0.0,
            webapp_task: millis(100),
            history: None,
        }
    }
}

impl Default for Server {
    fn default() -> Self {
        let all =
            |median, p99| Latency { which: Which::default(), median: millis(median), p99: Some(millis(p99)) };
        Self {
            latency: vec![all(10, 50)],
            latency_growth: 0.0,
            cpu_per_request: Span::default(),
            cpus: 0,
            requests_in_flight: 200,
            retry_after: secs(1),
            failures: Vec::new(),
            outages: Vec::new(),
            webhooks: Vec::new(),
        }
    }
}

/// Measured: see docs/tuning.md.
impl Default for Operator {
    fn default() -> Self {
        let micros = |micros| Span(Duration::from_micros(micros));
        Self { cpu_per_request: micros(300), cpu_per_pass: micros(5), cpus: 2 }
    }
}

// === impl Load ===

/// How many values a file may have: five days of a hundred changes a second.
const NODES_MAX: usize = 100_000_000;

impl Load {
    /// Returns the load of a profile.
    pub(super) fn of(profile: Profile) -> Self {
        let steady = |rate| vec![Arrivals::Steady { rate, from: secs(0), r#for: secs(60) }];
        let converged = Objects { count: 500, converged: true };
        match profile {
            Profile::Startup => {
                Self { objects: Objects { count: 2000, converged: false }, ..Self::default() }
            }
            Profile::Steady => Self { objects: converged, changes: steady(20.0), ..Self::default() },
            Profile::Outage => {
                let server =
                    Server { outages: vec![Period { from: secs(20), r#for: secs(20) }], ..Server::default() };
                Self { objects: converged, changes: steady(20.0), server, ..Self::default() }
            }
            Profile::Webhook => {
                let which = Which { resource: "deployments".to_owned(), ..Which::default() };
                let webhooks = vec![Webhook { which, takes: secs(1) }];
                let server = Server { webhooks, ..Server::default() };
                Self { objects: converged, changes: steady(10.0), server, ..Self::default() }
            }
            Profile::NoisyNeighbour => {
                let bursts = Arrivals::OnOff {
                    rate: 80.0,
                    on: secs(5),
                    off: secs(15),
                    from: secs(0),
                    r#for: secs(60),
                };
                let server = Server { requests_in_flight: 8, ..Server::default() };
                Self { objects: converged, changes: vec![bursts], server, ..Self::default() }
            }
        }
    }

    /// Reads a load; unknown and wrong fields are refused.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let load = Self::parse_unchecked(text)?;
        load.check()?;
        Ok(load)
    }

    /// As [`parse`](Self::parse), but for the values. A recording of a busy day has millions of times.
    pub(super) fn parse_unchecked(text: &str) -> Result<Self, String> {
        let budget = serde_saphyr::budget! {
            max_nodes: NODES_MAX,
            max_events: 2 * NODES_MAX,
            max_total_scalar_bytes: 20 * NODES_MAX,
        };
        let options = serde_saphyr::options! { budget: budget };
        serde_saphyr::from_str_with_options(text, options).map_err(|error| error.to_string())
    }

    /// Returns the load as YAML.
    pub(super) fn to_yaml(&self) -> Result<String, String> {
        serde_saphyr::to_string(self).map_err(|error| error.to_string())
    }

    /// Returns a time after which nothing is created or changed.
    pub(super) fn end(&self) -> Duration {
        self.creations.iter().chain(&self.changes).map(Arrivals::end).max().unwrap_or_default()
    }

    /// Returns the number of creations and changes, if they were recorded.
    pub(super) fn recorded(&self) -> Option<usize> {
        let series = self.creations.iter().chain(&self.changes);
        let counts = series.map(|arrivals| match arrivals {
            Arrivals::Recorded { at, .. } => Some(at.len()),
            Arrivals::Steady { .. }
            | Arrivals::Burst { .. }
            | Arrivals::Ramp { .. }
            | Arrivals::OnOff { .. } => None,
        });
        counts.sum::<Option<usize>>().filter(|count| *count > 0)
    }

    /// Returns what is wrong with the load, by field.
    pub(super) fn check(&self) -> Result<(), String> {
        if let Some(unknown) = self.kinds.iter().find(|kind| !operators::NAMES.contains(&kind.as_str())) {
            return Err(format!("kinds: unknown kind {unknown:?}; kinds: {}", operators::NAMES.join(", ")));
        }
        self.check_but_for_kinds()
    }

    /// As [`check`](Self::check), for kinds of any operator.
    pub(super) fn check_but_for_kinds(&self) -> Result<(), String> {
        let within = |field: &str, is_valid: bool, rule: &str| {
            if is_valid { Ok(()) } else { Err(format!("{field} must be {rule}")) }
        };
        within("kinds", !self.kinds.is_empty(), "at least one kind")?;
        within("objects.count", self.objects.count <= 100_000, "at most 100000")?;
        within("server.requestsInFlight", self.server.requests_in_flight > 0, "at least 1")?;
        within("server.retryAfter", self.server.retry_after.0 >= Duration::from_secs(1), "at least 1s")?;
        within("server.latencyGrowth", (0.0..=1.0).contains(&self.server.latency_growth), "between 0 and 1")?;
        within("operator.cpus", self.operator.cpus > 0, "at least 1")?;
        let rollouts = self.rollouts_per_second;
        let is_rate = rollouts == 0.0 || (0.001..=10_000.0).contains(&rollouts);
        within("rolloutsPerSecond", is_rate, "0, or between 0.001 and 10000")?;
        for failures in &self.server.failures {
            within("server.failures.share", (0.0..=1.0).contains(&failures.share), "between 0 and 1")?;
            within("server.failures.code", (400..600).contains(&failures.code), "between 400 and 599")?;
        }
        for latency in &self.server.latency {
            let is_valid = latency.p99.is_none_or(|p99| p99 >= latency.median && !latency.median.0.is_zero());
            within("server.latency.p99", is_valid, "at least the median, which must not be 0")?;
        }
        self.history.as_ref().map_or(Ok(()), History::check)?;
        for (field, series) in [("creations", &self.creations), ("changes", &self.changes)] {
            for arrivals in series {
                let rates = match arrivals {
                    Arrivals::Burst { .. } => [0.0, 0.0],
                    Arrivals::Recorded { at, objects } => {
                        within(&format!("{field}.at"), at.is_sorted(), "ascending")?;
                        let has_all = objects.is_empty() || objects.len() == at.len();
                        within(&format!("{field}.objects"), has_all, "as many as times, or left out")?;
                        [0.0, 0.0]
                    }
                    Arrivals::Ramp { rate, to, .. } => [*rate, *to],
                    Arrivals::Steady { rate, .. } | Arrivals::OnOff { rate, .. } => [*rate, 0.0],
                };
                let is_valid = rates.iter().all(|rate| (0.0..=10_000.0).contains(rate));
                within(&format!("{field}.rate"), is_valid, "between 0 and 10000 per second")?;
                if let Arrivals::OnOff { on, off, .. } = arrivals {
                    within(&format!("{field}.on"), !(on.0 + off.0).is_zero(), "above 0 together with off")?;
                }
            }
        }
        let has_targets = self.objects.count > 0 || !self.creations.is_empty();
        within("changes", self.changes.is_empty() || has_targets, "empty without objects or creations")?;
        let has_load = !self.creations.is_empty() || !self.changes.is_empty() || !self.objects.converged;
        let has_objects = self.objects.count > 0 || !self.creations.is_empty();
        within("objects, creations or changes", has_load && has_objects, "given: this load has nothing to do")
    }
}

// === impl Arrivals ===

impl Arrivals {
    fn end(&self) -> Duration {
        match self {
            Self::Burst { at, .. } => at.0,
            Self::Recorded { at, .. } => at.last().copied().map(Duration::from_millis).unwrap_or_default(),
            Self::Steady { from, r#for, .. }
            | Self::Ramp { from, r#for, .. }
            | Self::OnOff { from, r#for, .. } => from.0 + r#for.0,
        }
    }

    /// Returns the times of the series, in order.
    pub(super) fn times(&self, rng: &mut fastrand::Rng) -> Vec<Duration> {
        let (from, end) = match self {
            Self::Burst { count, at } => return vec![at.0; *count],
            Self::Recorded { at, .. } => return at.iter().copied().map(Duration::from_millis).collect(),
            Self::Steady { from, .. } | Self::Ramp { from, .. } | Self::OnOff { from, .. } => {
                (from.0, self.end())
            }
        };
        let highest = match self {
            Self::Ramp { rate, to, .. } => rate.max(*to),
            Self::Steady { rate, .. } | Self::OnOff { rate, .. } => *rate,
            Self::Burst { .. } | Self::Recorded { .. } => 0.0,
        };
        // Thinning: arrivals at the highest rate, each kept with the chance of the rate at its time.
        let (mut times, mut at) = (Vec::new(), from.as_secs_f64());
        if highest <= 0.0 {
            return times;
        }
        loop {
            at -= (1.0 - rng.f64()).ln() / highest;
            if at >= end.as_secs_f64() {
                return times;
            }
            if rng.f64() * highest < self.rate_at(at - from.as_secs_f64()) {
                times.push(Duration::from_secs_f64(at));
            }
        }
    }

    /// Returns the rate at a time since the beginning, in seconds.
    fn rate_at(&self, seconds: f64) -> f64 {
        match self {
            Self::Burst { .. } | Self::Recorded { .. } => 0.0,
            Self::Steady { rate, .. } => *rate,
            Self::Ramp { rate, to, r#for, .. } => rate + (to - rate) * seconds / r#for.0.as_secs_f64(),
            Self::OnOff { rate, on, off, .. } => {
                let is_on = seconds % (on.0 + off.0).as_secs_f64() < on.0.as_secs_f64();
                if is_on { *rate } else { 0.0 }
            }
        }
    }
}

// === impl Which ===

impl Which {
    pub(super) fn matches(&self, verb: &str, resource: &str) -> bool {
        (self.verb.is_empty() || self.verb == verb) && (self.resource.is_empty() || self.resource == resource)
    }
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum;

    use super::*;

    #[test]
    fn profiles_read_back_the_same() {
        for profile in Profile::value_variants() {
            let load = Load::of(*profile);
            let text = load.to_yaml().unwrap();
            assert_eq!(Load::parse(&text), Ok(load), "{text}");
        }
    }

    #[test]
    fn each_mistake_names_its_field() {
        let cases = [
            ("kinds: [bar]", "kinds: unknown kind \"bar\"; kinds: foo"),
            ("objects: {count: 1, many: 2}", "many"),
            (
                "objects: {count: 1}\nserver: {requestsInFlight: 0}",
                "server.requestsInFlight must be at least 1",
            ),
            ("objects: {count: 1}\nwebappTask: 5", "invalid duration"),
            ("objects: {count: 1}\nrolloutsPerSecond: -1", "rolloutsPerSecond must be 0, or between 0.001"),
            (
                "objects: {count: 1}\nhistory: {workers: 2, syncs: [{reasons: [spec], at: [1], objects: [0], took: []}]}",
                "history.syncs must have",
            ),
            ("objects: {count: 1}\nserver: {failures: [{share: 2, code: 500}]}", "server.failures.share"),
            ("objects: {count: 1}\nserver: {latency: [{median: 5ms, p99: 1ms}]}", "server.latency.p99"),
            ("changes: [{shape: burst, count: 3}]", "changes must be empty without objects"),
            ("objects: {count: 5, converged: true}", "nothing to do"),
            ("creations: [{shape: steady, rate: -1, for: 5s}]", "creations.rate must be between 0 and 10000"),
            ("creations: [{shape: wave, rate: 1, for: 5s}]", "wave"),
        ];
        for (text, cause) in cases {
            let error = Load::parse(text).unwrap_err();
            assert!(error.contains(cause), "{text}: {error}");
        }
    }

    #[test]
    fn arrivals_follow_their_shape_and_seed() {
        let count = |arrivals: &Arrivals| arrivals.times(&mut fastrand::Rng::with_seed(1)).len();
        let steady = Arrivals::Steady { rate: 50.0, from: secs(10), r#for: secs(100) };
        let times = steady.times(&mut fastrand::Rng::with_seed(1));
        assert!((4600..5400).contains(&times.len()), "{}", times.len());
        assert!(times.is_sorted() && times[0] >= secs(10).0 && times[times.len() - 1] < secs(110).0);
        assert_eq!(times, steady.times(&mut fastrand::Rng::with_seed(1)));
        assert_ne!(times, steady.times(&mut fastrand::Rng::with_seed(2)));
        let ramp = Arrivals::Ramp { rate: 0.0, to: 50.0, from: secs(0), r#for: secs(100) };
        assert!((2200..2800).contains(&count(&ramp)), "{}", count(&ramp));
        let on_off =
            Arrivals::OnOff { rate: 50.0, on: secs(1), off: secs(3), from: secs(0), r#for: secs(100) };
        assert!((1050..1450).contains(&count(&on_off)), "{}", count(&on_off));
        assert_eq!(count(&Arrivals::Burst { count: 7, at: secs(1) }), 7);
    }

    /// The YAML reader's own limit is 250,000 values.
    #[test]
    fn recording_of_a_day_is_read() {
        let at: Vec<String> = (0..300_000).map(|time| time.to_string()).collect();
        let load = Load::parse(&format!(
            "objects: {{count: 1, converged: true}}\nchanges:\n- {{shape: recorded, at: [{}]}}\n",
            at.join(", ")
        ));
        assert_eq!(load.map(|load| load.end()), Ok(Duration::from_millis(299_999)));
    }
}
