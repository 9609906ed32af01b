//! What a sweep tries: an operator, and the kinds of its objects.
//!
//! # Guarantees
//! - Every kind of ours has a sample, and a change that its controller has to act on. (test: `each_kind_has_an_effective_change`)

use std::fmt;
use std::pin::pin;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube_client::Client;
use kube_core::Resource;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::load::ConvergedWhen;
use super::setting::Setting;
use super::tracker::{Tracker, observe};
use crate::api::ApiResource;
use crate::api::appservice::v1alpha1::AppService;
use crate::api::myapp::v1::Myapp;
use crate::api::redis::v1::Redis;
use crate::api::samplecontroller::v1alpha1::Foo;
use crate::api::webapp::v1::WebApp;
use crate::cache::SharedInformerFactory;
use crate::cli::crds;
use crate::cli::run::{self, InProcess};
use crate::client::ApiClient;
use crate::controller::{BuildError, Limits, Manager};
use crate::demo::setup;
use crate::operators::{appservice, foo, myapp, redis, webapp};

/// An operator and the kinds of its objects.
#[derive(Debug)]
pub(super) struct Program {
    pub(super) kinds: Vec<Kind>,
    operator: Operator,
}

/// A kind of custom resource.
pub(super) struct Kind {
    /// The name of its controller in metrics.
    pub(super) controller: &'static str,
    pub(super) resource: ApiResource,
    pub(super) sample: Value,
    /// Returns the merge patch of the nth change of an object.
    pub(super) change: Arc<dyn Fn(usize) -> Value + Send + Sync>,
    pub(super) observe: fn(&SharedInformerFactory, &Arc<Tracker>, &'static str, ConvergedWhen),
}

/// Adds the controllers of an operator to its manager.
pub(super) type AddControllers = Arc<dyn Fn(&mut Manager) -> Result<(), BuildError> + Send + Sync>;

enum Operator {
    /// That of `windlass run`.
    Ours,
    /// That of a library user.
    Given { definitions: Vec<CustomResourceDefinition>, add: AddControllers },
}

// === impl Kind ===

impl Kind {
    /// Describes the kind `K`, whose objects are copies of `sample`.
    pub(super) fn new<K: Resource<DynamicType = ()> + 'static>(
        controller: &'static str,
        sample: Value,
        change: impl Fn(usize) -> Value + Send + Sync + 'static,
    ) -> Self {
        let resource = ApiResource::of::<K>();
        Self { controller, resource, sample, change: Arc::new(change), observe: observe::<K> }
    }

    fn ours(name: &str) -> Result<Self, String> {
        /// Scales between one and two replicas.
        fn scaled<K: Resource<DynamicType = ()> + 'static>(
            controller: &'static str,
            samples: &str,
        ) -> Result<Kind, String> {
            let sample = samples.split("---").next().unwrap_or_default();
            let sample: Value = serde_saphyr::from_str(sample).map_err(|error| error.to_string())?;
            let change = |nth: usize| json!({"spec": {"replicas": 2 - nth % 2}});
            Ok(Kind::new::<K>(controller, sample, change))
        }
        match name {
            foo::NAME => scaled::<Foo>(foo::NAME, include_str!("../../crd/samples/foo.yaml")),
            myapp::NAME => scaled::<Myapp>(myapp::NAME, include_str!("../../crd/samples/myapp.yaml")),
            appservice::NAME => {
                scaled::<AppService>(appservice::NAME, include_str!("../../crd/samples/appservice.yaml"))
            }
            redis::NAME => scaled::<Redis>(redis::NAME, include_str!("../../crd/samples/redis.yaml")),
            webapp::NAME => scaled::<WebApp>(webapp::NAME, include_str!("../../crd/samples/webapp.yaml")),
            _ => Err(format!("there is no kind {name:?}")),
        }
    }
}

impl fmt::Debug for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kind").field("controller", &self.controller).finish_non_exhaustive()
    }
}

impl fmt::Debug for Operator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ours => "Ours",
            Self::Given { .. } => "Given",
        })
    }
}

// === impl Program ===

impl Program {
    /// The operator of `windlass run` with these controllers.
    pub(super) fn ours(controllers: &[String]) -> Result<Self, String> {
        let kinds = controllers.iter().map(|name| Kind::ours(name)).collect::<Result<_, String>>()?;
        Ok(Self { kinds, operator: Operator::Ours })
    }

    pub(super) fn given(
        kinds: Vec<Kind>,
        definitions: Vec<CustomResourceDefinition>,
        add: AddControllers,
    ) -> Self {
        Self { kinds, operator: Operator::Given { definitions, add } }
    }

    /// Creates the definitions of the kinds, and waits until they are served.
    pub(super) async fn define(&self, client: &ApiClient) -> Result<(), String> {
        let definitions = match &self.operator {
            Operator::Ours => crds::definitions(),
            Operator::Given { definitions, .. } => definitions.clone(),
        };
        setup::define_all(client, definitions).await.map_err(|failure| failure.to_string())
    }

    /// Runs the operator with this setting until a signal.
    pub(super) fn run(
        &self,
        client: Client,
        setting: &Setting,
        given: InProcess,
        mut signals: mpsc::Receiver<&'static str>,
    ) -> BoxFuture<'static, Result<(), String>> {
        let client = ApiClient::new(client);
        match &self.operator {
            Operator::Ours => {
                let controllers: Vec<&str> = self.kinds.iter().map(|kind| kind.controller).collect();
                let mut flags = vec![
                    "--leader-elect=false".to_owned(),
                    "--metrics-bind-address=0".to_owned(),
                    "--health-probe-bind-address=0".to_owned(),
                    format!("--controllers={}", controllers.join(",")),
                ];
                flags.extend(setting.arguments());
                Box::pin(async move {
                    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
                    let ended = run::run_over(client, &flags, given, signals).await;
                    ended.map_err(|failure| failure.to_string())
                })
            }
            Operator::Given { add, .. } => {
                let (add, limits, requests) =
                    (add.clone(), setting.limits(Limits::default()), setting.request_limits());
                Box::pin(async move {
                    let mut manager = Manager::new(client.with_limits(requests?), limits?)
                        .with_metrics(given.metrics)
                        .with_clock(given.clock)
                        .with_seed(given.seed);
                    add(&mut manager).map_err(|error| error.to_string())?;
                    if let Some(observer) = given.passes {
                        manager.views().iter().for_each(|view| view.workers.observe(observer.clone()));
                    }
                    let stop = CancellationToken::new();
                    let mut running = pin!(manager.run(stop.clone()));
                    tokio::select! {
                        biased;
                        _ = signals.recv() => {}
                        ended = &mut running => return ended.map_err(|error| error.to_string()),
                    }
                    stop.cancel();
                    running.await.map_err(|error| error.to_string())
                })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_has_an_effective_change() {
        let all = crate::operators::NAMES.map(str::to_owned);
        for kind in Program::ours(&all).unwrap().kinds {
            let [first, second] = [0, 1].map(|nth| (kind.change)(nth)["spec"]["replicas"].clone());
            assert!(first != second && kind.sample["spec"]["replicas"] != first, "{}", kind.controller);
        }
        assert!(Program::ours(&["bar".to_owned()]).unwrap_err().contains("no kind \"bar\""));
    }
}
