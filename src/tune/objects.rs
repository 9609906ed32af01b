//! Creates and changes the custom resources of a load.

use std::sync::Arc;
use std::time::Duration;

use kube_client::Client;
use kube_client::api::{Api, DynamicObject, Patch, PatchParams, PostParams};
use serde_json::json;
use tokio::time::Instant;

use super::load::{Arrivals, ConvergedWhen, Load};
use super::program::{Kind, Program};
use super::tracker::Tracker;
use crate::api::ApiResource;
use crate::cache::SharedInformerFactory;

/// See the module.
pub(super) struct Objects {
    program: Arc<Program>,
    /// In the order of the program's kinds.
    apis: Vec<Api<DynamicObject>>,
    /// How often each object has been changed, by its number.
    changes: Vec<usize>,
}

/// A creation or a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Write {
    Create,
    Change,
}

// === impl Objects ===

impl Objects {
    /// `count` objects exist already.
    pub(super) fn new(program: &Arc<Program>, client: &Client, count: usize) -> Self {
        let api = |kind: &Kind| {
            let ApiResource { group, version, kind: name, plural } = &kind.resource;
            let names = kube_core::GroupVersionKind::gvk(group, version, name);
            let resource = kube_core::ApiResource::from_gvk_with_plural(&names, plural);
            Api::default_namespaced_with(client.clone(), &resource)
        };
        let apis = program.kinds.iter().map(api).collect();
        Self { program: program.clone(), apis, changes: vec![0; count] }
    }

    /// Watches all kinds for the tracker.
    pub(super) fn follow(
        &self,
        informers: &SharedInformerFactory,
        tracker: &Arc<Tracker>,
        when: ConvergedWhen,
    ) {
        for kind in &self.program.kinds {
            (kind.observe)(informers, tracker, kind.controller, when);
        }
    }

    /// Creates the next object.
    pub(super) async fn create(&mut self, tracker: &Tracker) -> Result<(), String> {
        let at = self.changes.len();
        self.changes.push(0);
        let (kind, api, name) = self.of(at);
        let mut object = kind.sample.clone();
        object["metadata"]["name"] = json!(name);
        if object["spec"]["deploymentName"].is_string() {
            object["spec"]["deploymentName"] = json!(name);
        }
        let object: DynamicObject = serde_json::from_value(object).map_err(|error| error.to_string())?;
        let created = api.create(&PostParams::default(), &object).await.map_err(|error| error.to_string())?;
        tracker.follow(kind.controller, &name, created.metadata.generation.unwrap_or_default());
        Ok(())
    }

    /// Changes an object.
    async fn change(&mut self, at: usize, tracker: &Tracker) -> Result<(), String> {
        let nth = self.changes[at];
        self.changes[at] += 1;
        let (kind, api, name) = self.of(at);
        let patch = Patch::Merge((kind.change)(nth));
        let changed = api.patch(&name, &PatchParams::default(), &patch).await;
        let changed = changed.map_err(|error| error.to_string())?;
        tracker.follow(kind.controller, &name, changed.metadata.generation.unwrap_or_default());
        Ok(())
    }

    fn of(&self, at: usize) -> (&Kind, &Api<DynamicObject>, String) {
        let of_kind = at % self.apis.len();
        let kind = &self.program.kinds[of_kind];
        (kind, &self.apis[of_kind], format!("{}-{at}", kind.controller))
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
        let mut steps: Vec<(Duration, Write, Option<u32>)> = Vec::new();
        for (step, series) in [(Write::Create, &load.creations), (Write::Change, &load.changes)] {
            for arrivals in series {
                let objects = match arrivals {
                    Arrivals::Recorded { objects, .. } => objects.as_slice(),
                    _ => &[],
                };
                let objects = objects.iter().copied().map(Some).chain(std::iter::repeat(None));
                let times = arrivals.times(&mut rng);
                steps.extend(times.into_iter().zip(objects).map(|(at, object)| (at, step, object)));
            }
        }
        steps.sort_unstable();
        for (at, step, object) in steps {
            tokio::time::sleep_until(began + at).await;
            match step {
                Write::Create => self.create(&tracker).await?,
                // There may be nothing to change yet.
                Write::Change if self.changes.is_empty() => {}
                Write::Change => {
                    let recorded = object.and_then(|number| usize::try_from(number).ok());
                    let known = recorded.filter(|number| *number < self.changes.len());
                    let at = known.unwrap_or_else(|| rng.usize(..self.changes.len()));
                    self.change(at, &tracker).await?;
                }
            }
        }
        Ok(())
    }
}
