//! Creates and changes the custom resources of a load.
//!
//! # Guarantees
//! - Every kind has a sample, and a change that its controller has to act on. (test: `each_kind_has_an_effective_change`)

use std::sync::Arc;
use std::time::Duration;

use kube_client::Client;
use kube_client::api::{Api, DynamicObject, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::load::{ConvergedWhen, Load};
use super::tracker::{Tracker, observe};
use crate::api::ApiResource;
use crate::api::appservice::v1alpha1::AppService;
use crate::api::myapp::v1::Myapp;
use crate::api::redis::v1::Redis;
use crate::api::samplecontroller::v1alpha1::Foo;
use crate::api::webapp::v1::WebApp;
use crate::cache::SharedInformerFactory;
use crate::operators::{appservice, foo, myapp, redis, webapp};

/// A kind of custom resource.
struct Kind {
    controller: &'static str,
    resource: fn() -> ApiResource,
    sample: &'static str,
    /// Returns the merge patch of the nth change of an object.
    change: fn(usize) -> Value,
    observe: fn(&SharedInformerFactory, &Arc<Tracker>, &'static str, ConvergedWhen),
}

const KINDS: [Kind; 5] = [
    Kind {
        controller: foo::NAME,
        resource: ApiResource::of::<Foo>,
        sample: include_str!("../../crd/samples/foo.yaml"),
        change: replicas,
        observe: observe::<Foo>,
    },
    Kind {
        controller: myapp::NAME,
        resource: ApiResource::of::<Myapp>,
        sample: include_str!("../../crd/samples/myapp.yaml"),
        change: replicas,
        observe: observe::<Myapp>,
    },
    Kind {
        controller: appservice::NAME,
        resource: ApiResource::of::<AppService>,
        sample: include_str!("../../crd/samples/appservice.yaml"),
        change: replicas,
        observe: observe::<AppService>,
    },
    Kind {
        controller: redis::NAME,
        resource: ApiResource::of::<Redis>,
        sample: include_str!("../../crd/samples/redis.yaml"),
        change: replicas,
        observe: observe::<Redis>,
    },
    Kind {
        controller: webapp::NAME,
        resource: ApiResource::of::<WebApp>,
        sample: include_str!("../../crd/samples/webapp.yaml"),
        change: replicas,
        observe: observe::<WebApp>,
    },
];

/// Scales between one and two replicas.
fn replicas(nth: usize) -> Value {
    json!({"spec": {"replicas": 2 - nth % 2}})
}

/// See the module.
pub(super) struct Objects {
    kinds: Vec<Served>,
    /// How often each object has been changed, by its number.
    changes: Vec<usize>,
}

struct Served {
    kind: &'static Kind,
    api: Api<DynamicObject>,
    sample: Value,
}

/// A creation or a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Write {
    Create,
    Change,
}

// === impl Objects ===

impl Objects {
    pub(super) fn new(load: &Load, client: &Client) -> Result<Self, String> {
        let kinds = load.kinds.iter().map(|name| {
            let kind = KINDS.iter().find(|kind| kind.controller == name);
            let kind = kind.ok_or_else(|| format!("there is no kind {name:?}"))?;
            let sample = kind.sample.split("---").next().unwrap_or_default();
            let sample: Value = serde_saphyr::from_str(sample).map_err(|error| error.to_string())?;
            let ApiResource { group, version, kind: name, plural } = (kind.resource)();
            let names = kube_core::GroupVersionKind::gvk(&group, &version, &name);
            let resource = kube_core::ApiResource::from_gvk_with_plural(&names, &plural);
            Ok(Served { kind, api: Api::default_namespaced_with(client.clone(), &resource), sample })
        });
        Ok(Self { kinds: kinds.collect::<Result<_, String>>()?, changes: Vec::new() })
    }

    /// Watches all kinds of the load for the tracker.
    pub(super) fn follow(
        &self,
        informers: &SharedInformerFactory,
        tracker: &Arc<Tracker>,
        when: ConvergedWhen,
    ) {
        for served in &self.kinds {
            (served.kind.observe)(informers, tracker, served.kind.controller, when);
        }
    }

    /// Creates the next object.
    pub(super) async fn create(&mut self, tracker: &Tracker) -> Result<(), String> {
        let at = self.changes.len();
        self.changes.push(0);
        let (served, name) = self.of(at);
        let mut object = served.sample.clone();
        object["metadata"]["name"] = json!(name);
        if object["spec"]["deploymentName"].is_string() {
            object["spec"]["deploymentName"] = json!(name);
        }
        let object: DynamicObject = serde_json::from_value(object).map_err(|error| error.to_string())?;
        let created =
            served.api.create(&PostParams::default(), &object).await.map_err(|error| error.to_string())?;
        tracker.follow(served.kind.controller, &name, created.metadata.generation.unwrap_or_default());
        Ok(())
    }

    /// Changes an object.
    async fn change(&mut self, at: usize, tracker: &Tracker) -> Result<(), String> {
        let nth = self.changes[at];
        self.changes[at] += 1;
        let (served, name) = self.of(at);
        let patch = Patch::Merge((served.kind.change)(nth));
        let changed = served.api.patch(&name, &PatchParams::default(), &patch).await;
        let changed = changed.map_err(|error| error.to_string())?;
        tracker.follow(served.kind.controller, &name, changed.metadata.generation.unwrap_or_default());
        Ok(())
    }

    fn of(&self, at: usize) -> (&Served, String) {
        let served = &self.kinds[at % self.kinds.len()];
        (served, format!("{}-{at}", served.kind.controller))
    }

    /// Creates and changes objects when the load says so.
    pub(super) async fn play(
        mut self,
        load: Arc<Load>,
        seed: u64,
        tracker: Arc<Tracker>,
    ) -> Result<(), String> {
        let began = Instant::now();
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut steps: Vec<(Duration, Write)> = Vec::new();
        for (step, series) in [(Write::Create, &load.creations), (Write::Change, &load.changes)] {
            for arrivals in series {
                steps.extend(arrivals.times(&mut rng).into_iter().map(|at| (at, step)));
            }
        }
        steps.sort_unstable();
        for (at, step) in steps {
            tokio::time::sleep_until(began + at).await;
            match step {
                Write::Create => self.create(&tracker).await?,
                // There may be nothing to change yet.
                Write::Change if self.changes.is_empty() => {}
                Write::Change => self.change(rng.usize(..self.changes.len()), &tracker).await?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_has_an_effective_change() {
        assert_eq!(KINDS.each_ref().map(|kind| kind.controller), crate::operators::NAMES);
        for kind in &KINDS {
            let sample: Value = serde_saphyr::from_str(kind.sample.split("---").next().unwrap()).unwrap();
            let [first, second] = [0, 1].map(|nth| (kind.change)(nth)["spec"]["replicas"].clone());
            assert!(first != second && sample["spec"]["replicas"] != first, "{}", kind.controller);
        }
    }
}
