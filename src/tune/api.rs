//! Sweeps for controllers of your own.
//!
//! # Guarantees
//! - The report has every setting, and recommends one. (test: `sweep_of_a_given_operator_recommends_a_setting`)
//! - A flag, a value or a load that is wrong is refused before anything runs. (test: `wrong_flags_values_and_loads_are_refused`)

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube_core::{CustomResourceExt, Resource};
use serde::Serialize;
use serde_json::{Value, json};

use super::load::Load;
use super::program::{AddControllers, Kind, Program};
use super::report::{self, Report, Subject};
use super::setting::{Combine, Dimension, Setting, expand, settings};
use super::sweep::{Plan, Source, cores, start, with_seeds};
use super::trial::{Trial, Trials};
use super::verdict::Verdict;
use crate::controller::{BuildError, Limits, Manager};

/// What can be varied: the names are those of the flags of `windlass run`.
const FLAGS: [&str; 7] = [
    "workers",
    "queue-base-delay",
    "queue-max-delay",
    "queue-qps",
    "queue-burst",
    "kube-api-qps",
    "kube-api-burst",
];
/// The workers that are tried if nothing is varied.
const WORKERS: &str = "1..32";

/// A sweep over the settings of an operator that is built on this crate: each setting is tried on the embedded API server,
/// in virtual time, under the same load.
///
/// `windlass tune sweep` is such a sweep of our own operators; `docs/tuning.md` explains loads, reports and verdicts.
/// Errors, panics and hangs of the operator show as changes that never converge. The operator may wait for the embedded server
/// and for tokio's clock only: while it waits for anything else, its timeouts pass at once.
///
/// ```no_run
/// # use windlass::prelude::*;
/// # use windlass::tune::Sweep;
/// # custom_resource! {
/// #     #[kube(group = "example.com", version = "v1", kind = "Greeting", namespaced, status = "BasicStatus")]
/// #     struct GreetingSpec { text: String }
/// # }
/// # fn add(manager: &mut Manager) -> Result<(), BuildError> { Ok(()) }
/// let sample = Greeting::new("sample", GreetingSpec { text: "Hello".to_owned() });
/// let report = Sweep::new(add)
///     .kind("greetings", &sample, |nth| json!({"spec": {"text": format!("Hello for the {nth}. time")}}))
///     .with_load("objects: {count: 500, converged: true}\nchanges: [{shape: steady, rate: 20, for: 60s}]")?
///     .vary("workers", "1..16")?
///     .run()?;
/// println!("{report}");
/// # Ok::<(), windlass::tune::SweepError>(())
/// ```
pub struct Sweep {
    kinds: Vec<Kind>,
    definitions: Vec<CustomResourceDefinition>,
    add: AddControllers,
    load: Load,
    dimensions: Vec<Dimension>,
    combine: Combine,
    seed: u64,
    seeds: u16,
    limit: Duration,
    jobs: usize,
    target: Option<Duration>,
}

/// Why a sweep cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum SweepError {
    /// The load is wrong.
    #[error("the load: {0}; `windlass schema tune-load` prints its schema")]
    Load(String),
    /// A flag or a value is wrong.
    #[error("{0}")]
    Setting(String),
    /// A trial failed: the operator cannot be built or has ended, or an object was refused.
    #[error("{0}")]
    Trial(String),
}

/// The result of a sweep; its text is a table with a verdict.
#[derive(Debug)]
pub struct SweepReport {
    load: Load,
    dimensions: Vec<Dimension>,
    seed: u64,
    trials: Vec<Trial>,
    verdict: Option<Verdict>,
}

// === impl Sweep ===

impl Sweep {
    /// Creates a sweep of the operator whose controllers `add` adds to a manager. The load is 2,000 new objects, and 1 to 32
    /// workers are tried, until [`with_load`](Self::with_load) and [`vary`](Self::vary) say otherwise.
    #[must_use]
    pub fn new(add: impl Fn(&mut Manager) -> Result<(), BuildError> + Send + Sync + 'static) -> Self {
        let mut load = Load::default();
        load.objects.count = 2000;
        Self {
            kinds: Vec::new(),
            definitions: Vec::new(),
            add: Arc::new(add),
            load,
            dimensions: Vec::new(),
            combine: Combine::Cross,
            seed: 1,
            seeds: 5,
            limit: Duration::from_secs(30 * 60),
            jobs: cores(),
            target: None,
        }
    }

    /// Adds a kind of custom resource: the load creates copies of `sample` under names of its own, and changes them by the
    /// merge patch that `change` returns for the nth change of an object. An object has converged when its condition Ready
    /// is True for its generation. `controller` is the controller's name in metrics.
    #[must_use]
    pub fn kind<K: Resource<DynamicType = ()> + CustomResourceExt + Serialize + 'static>(
        mut self,
        controller: &'static str,
        sample: &K,
        change: impl Fn(usize) -> Value + Send + Sync + 'static,
    ) -> Self {
        self.definitions.push(K::crd());
        self.kinds.push(Kind::new::<K>(controller, json!(sample), change));
        self
    }

    /// Sets the load, in YAML: a file of `windlass tune sweep --load` without its `kinds`.
    ///
    /// # Errors
    /// [`SweepError::Load`].
    pub fn with_load(self, yaml: &str) -> Result<Self, SweepError> {
        let load = Load::parse_unchecked(yaml).map_err(SweepError::Load)?;
        Ok(Self { load, ..self })
    }

    /// Varies a setting, by the name of its flag: `("workers", "1,2,4")`, `("workers", "1..16")` or
    /// `("queue-max-delay", "5s,30s,2m")`. All combinations are tried.
    ///
    /// # Errors
    /// [`SweepError::Setting`].
    pub fn vary(mut self, flag: &str, values: &str) -> Result<Self, SweepError> {
        let Some(flag) = FLAGS.into_iter().find(|known| *known == flag) else {
            return Err(SweepError::Setting(format!(
                "{flag} cannot be varied; these can: {}",
                FLAGS.join(", ")
            )));
        };
        let values =
            expand(values).map_err(|cause| SweepError::Setting(format!("values of {flag}: {cause}")))?;
        for value in &values {
            let setting = Setting::of(flag, value);
            setting.limits(Limits::default()).map_err(SweepError::Setting)?;
            setting.request_limits().map_err(SweepError::Setting)?;
        }
        self.dimensions.push(Dimension { flag, values });
        Ok(self)
    }

    /// Varies one setting at a time, while the others have their defaults.
    #[must_use]
    pub fn one_at_a_time(self) -> Self {
        Self { combine: Combine::OneAtATime, ..self }
    }

    /// Recommends the cheapest setting with which 99 % of all changes converge within this time.
    #[must_use]
    pub fn with_target_p99(self, target: Duration) -> Self {
        Self { target: Some(target), ..self }
    }

    /// Sets the seed of everything random, 1 by default.
    #[must_use]
    pub fn with_seed(self, seed: u64) -> Self {
        Self { seed, ..self }
    }

    /// Sets with how many seeds the recommended setting, and those beside it, are tried, 5 by default: the report then says
    /// which differences are noise.
    #[must_use]
    pub fn with_seeds(self, seeds: u16) -> Self {
        Self { seeds: seeds.max(1), ..self }
    }

    /// Sets the virtual time after which a trial ends although changes have not converged, 30 minutes by default.
    #[must_use]
    pub fn with_limit(self, limit: Duration) -> Self {
        Self { limit, ..self }
    }

    /// Runs all trials, on all processors, and waits for them.
    ///
    /// # Errors
    /// [`SweepError`].
    pub fn run(mut self) -> Result<SweepReport, SweepError> {
        self.load.kinds = self.kinds.iter().map(|kind| kind.controller.to_owned()).collect();
        self.load.check_but_for_kinds().map_err(SweepError::Load)?;
        if self.dimensions.is_empty() {
            self = self.vary("workers", WORKERS)?;
        }
        let program = Program::given(self.kinds, self.definitions, self.add);
        let plan = Plan {
            source: Arc::new(Source::Load(Trials::new(program, self.load.clone()))),
            runs: with_seeds(settings(&Setting::default(), &self.dimensions, self.combine), self.seed, 1),
            limit: self.limit,
            jobs: self.jobs,
        };
        let (trials, verdict) = plan.judge(&self.dimensions, self.target, (self.seed, self.seeds), wait)?;
        Ok(SweepReport { load: self.load, dimensions: self.dimensions, seed: self.seed, trials, verdict })
    }
}

/// Runs trials, and returns them in the order of the plan.
fn wait(plan: Plan) -> Result<Vec<Trial>, SweepError> {
    let (mut ended, mut trials) = (start(plan), Vec::new());
    while let Some((at, trial)) = ended.blocking_recv() {
        trials.push((at, trial.map_err(SweepError::Trial)?));
    }
    trials.sort_by_key(|(at, _)| *at);
    Ok(trials.into_iter().map(|(_, trial)| trial).collect())
}

impl fmt::Debug for Sweep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sweep").field("kinds", &self.kinds).finish_non_exhaustive()
    }
}

// === impl SweepReport ===

impl SweepReport {
    fn as_report(&self) -> Report<'_> {
        Report {
            subject: Subject::Load(&self.load),
            seed: self.seed,
            settings: self.trials.len(),
            trials: &self.trials,
            verdict: self.verdict.clone(),
        }
    }

    /// Returns the recommended flags with their values.
    #[must_use]
    pub fn recommended(&self) -> Vec<(String, String)> {
        let flags = self.verdict.iter().flat_map(|verdict| &verdict.take.0);
        flags.map(|entry| (entry.flag.clone(), entry.value.clone())).collect()
    }

    /// Returns everything as JSON, as `windlass tune sweep --output json` prints it.
    #[must_use]
    pub fn to_json(&self) -> Value {
        report::json(&self.as_report())
    }

    /// Returns a page with plots, which needs no network.
    #[must_use]
    pub fn to_html(&self) -> String {
        report::html(&self.as_report(), &self.dimensions)
    }
}

impl fmt::Display for SweepReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&report::table(&self.as_report(), &self.dimensions))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::samplecontroller::v1alpha1::{Foo, FooSpec};
    use crate::operators::foo;

    fn sweep() -> Sweep {
        let sample = Foo::new("sample", FooSpec { deployment_name: "sample".to_owned(), replicas: 1 });
        Sweep::new(|manager| manager.add(foo::controller)).kind(
            foo::NAME,
            &sample,
            |nth| json!({"spec": {"replicas": 2 - nth % 2}}),
        )
    }

    #[test]
    fn sweep_of_a_given_operator_recommends_a_setting() {
        let load = "objects: {count: 20}\nserver: {latency: [{median: 20ms}]}";
        let swept = sweep().with_load(load).unwrap().vary("workers", "1,8").unwrap().run().unwrap();
        assert_eq!(swept.recommended(), [("workers".to_owned(), "8".to_owned())]);
        let (text, json) = (swept.to_string(), swept.to_json());
        assert!(text.contains("Take --workers=8"), "{text}");
        assert_eq!(json["trials"].as_array().unwrap().len(), 2, "{json}");
        assert!(swept.to_html().contains("--workers=8"));
    }

    #[test]
    fn wrong_flags_values_and_loads_are_refused() {
        let refused = |result: Result<Sweep, SweepError>| result.unwrap_err().to_string();
        assert!(
            refused(sweep().vary("replicas", "1"))
                .starts_with("replicas cannot be varied; these can: workers")
        );
        assert_eq!(refused(sweep().vary("workers", "1,many")), "--workers=many cannot be read");
        assert!(refused(sweep().vary("workers", "1..")).starts_with("values of workers: "));
        let wrong = refused(sweep().with_load("objects: {cuont: 5}"));
        assert!(wrong.contains("cuont") && wrong.contains("schema tune-load"), "{wrong}");
        let nothing = Sweep::new(|_| Ok(())).run().unwrap_err().to_string();
        assert!(nothing.contains("kinds must be at least one kind"), "{nothing}");
    }
}
