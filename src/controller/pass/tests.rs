//! Tests of the frame, with small kinds over the custom resource Foo: what holds here holds for every kind.

mod events;
mod failing;
pub(crate) mod fixture;
pub(crate) mod one_step;
mod own;
mod passes;
mod pauses;
mod problems;
mod status;
mod unreadable;

use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Service, ServicePort};
use serde_json::{Value, json};

use self::fixture::{Caches, Fixture};
use super::apply_outcome::ApplyOutcome;
use super::delete::ChildRef;
use super::reconciler::Reconcile;
use super::{Pass, StopReason};
use crate::api::samplecontroller::v1alpha1::{Foo, FooStatus};
use crate::api::{ApiResource, labels};
use crate::cache::{Lister, TypedObject};
use crate::controller::kinds::container::WantedContainer;
use crate::controller::kinds::deployment::{ObservedDeployment, WantedDeployment};
use crate::controller::kinds::health::{ChildHealth, reason};
use crate::controller::kinds::service::{ObservedService, ServiceType, WantedService};
use crate::controller::run::outcome::Outcome;
use crate::sim::{Action, Fault, When};
use crate::workqueue::Reasons;

/// The annotation that a [`PlainKind`] may write: its spec.
const ANNOTATION: &str = "windlass.dev/test-spec";
/// The finalizer of a [`HeldKind`].
const FINALIZER: &str = "windlass.dev/test";

/// Wants one Deployment. If told to, also wants a Service while there are two replicas or more, and then records its
/// spec in an annotation.
struct PlainKind {
    deployments: Lister<ObservedDeployment>,
    services: Option<Lister<ObservedService>>,
    annotates: bool,
}

/// Wants as many Deployments as replicas, applied in batches.
struct BatchKind {
    deployments: Lister<ObservedDeployment>,
}

/// Wants one Deployment, and has a finalizer.
struct HeldKind {
    deployments: Lister<ObservedDeployment>,
}

/// Wants one Deployment, and deletes it before its finalizer is removed.
struct CleaningKind {
    deployments: Lister<ObservedDeployment>,
}

impl PlainKind {
    fn new(caches: &mut Caches) -> Self {
        Self { deployments: caches.lister(), services: None, annotates: false }
    }

    fn with_service(caches: &mut Caches) -> Self {
        Self { services: Some(caches.lister()), ..Self::new(caches) }
    }

    fn annotating(caches: &mut Caches) -> Self {
        Self { annotates: true, ..Self::with_service(caches) }
    }
}

async fn plain() -> Fixture<PlainKind> {
    Fixture::new(PlainKind::new).await
}

async fn with_service() -> Fixture<PlainKind> {
    Fixture::new(PlainKind::with_service).await
}

async fn batch() -> Fixture<BatchKind> {
    Fixture::new(|caches| BatchKind { deployments: caches.lister() }).await
}

async fn held() -> Fixture<HeldKind> {
    Fixture::new(|caches| HeldKind { deployments: caches.lister() }).await
}

fn deployment(name: &str, replicas: i32) -> WantedDeployment {
    let selector = labels::identity("Test", name);
    let container = WantedContainer {
        name: "c".to_owned(),
        image: "nginx:1.27".to_owned(),
        ..WantedContainer::default()
    };
    WantedDeployment {
        name: name.to_owned(),
        labels: labels::common("Test", name),
        selector: selector.clone(),
        pod_labels: selector,
        replicas,
        containers: vec![container],
    }
}

fn service(name: &str) -> WantedService {
    WantedService {
        name: name.to_owned(),
        labels: labels::common("Test", name),
        selector: labels::identity("Test", name),
        service_type: ServiceType::ClusterIp,
        ports: vec![ServicePort { port: 80, ..ServicePort::default() }],
    }
}

fn status_of(applied: &ApplyOutcome<ObservedDeployment>) -> FooStatus {
    let replicas = applied.observed().map_or(0, |observed| observed.status.replicas);
    FooStatus { replicas, ..FooStatus::default() }
}

impl Reconcile for PlainKind {
    type Resource = Foo;

    const SYNCED: Option<(&'static str, &'static str)> = Some(("Synced", "Synced successfully"));

    async fn reconcile(&self, pass: &mut Pass<'_, Foo>) -> Result<FooStatus, StopReason> {
        let spec = pass.object().spec.clone();
        let wanted = deployment(&spec.deployment_name, spec.replicas);
        let applied = pass.apply(&wanted, &self.deployments).await?;
        match &self.services {
            Some(services) if spec.replicas > 1 => {
                pass.apply(&service(&spec.deployment_name), services).await?;
            }
            Some(services) => pass.prune_all(services, "one replica needs no Service").await?,
            None => {}
        }
        if self.annotates {
            pass.annotate(ANNOTATION, &json!(spec).to_string()).await;
        }
        Ok(status_of(&applied.outcome))
    }
}

impl Reconcile for BatchKind {
    type Resource = Foo;

    async fn reconcile(&self, pass: &mut Pass<'_, Foo>) -> Result<FooStatus, StopReason> {
        let names = (0..pass.object().spec.replicas).map(|number| format!("{}-{number}", pass.name()));
        let wanted: Vec<_> = names.map(|name| deployment(&name, 1)).collect();
        let was_there = pass.observes_this_spec();
        let batch = pass.apply_each(&wanted, &self.deployments, |_| was_there).await;
        batch.outcome?;
        for (wanted, applied) in wanted.iter().zip(batch.results.iter().flatten()) {
            if applied.is_as_wanted() {
                pass.report(ChildHealth::of("Foo", wanted, applied));
            }
        }
        Ok(FooStatus::default())
    }
}

impl Reconcile for HeldKind {
    type Resource = Foo;

    const FINALIZER: Option<&'static str> = Some(FINALIZER);

    async fn reconcile(&self, pass: &mut Pass<'_, Foo>) -> Result<FooStatus, StopReason> {
        let wanted = deployment(pass.name(), pass.object().spec.replicas);
        Ok(status_of(&pass.apply(&wanted, &self.deployments).await?.outcome))
    }

    async fn finalize(&self, pass: &mut Pass<'_, Foo>) -> Result<Option<FooStatus>, StopReason> {
        let children = self.deployments.controlled_by(&pass.owner().uid);
        if children.is_empty() {
            return Ok(None);
        }
        let children: Vec<ChildRef> = children.iter().map(ChildRef::of).collect();
        pass.delete_each(&ApiResource::of::<ObservedDeployment>(), &children).await.outcome?;
        pass.report(ChildHealth::reconciling(reason::DELETING, "Deleting the Deployment"));
        Ok(Some(pass.stored_status()))
    }
}

impl Reconcile for CleaningKind {
    type Resource = Foo;

    const FINALIZER: Option<&'static str> = Some(FINALIZER);

    async fn reconcile(&self, pass: &mut Pass<'_, Foo>) -> Result<FooStatus, StopReason> {
        pass.apply(&deployment("web", 1), &self.deployments).await?;
        Ok(FooStatus::default())
    }

    async fn finalize(&self, pass: &mut Pass<'_, Foo>) -> Result<Option<FooStatus>, StopReason> {
        pass.delete("web", &self.deployments, "its Foo is deleted").await?;
        Ok(None)
    }
}

/// Returns the spec of an object whose children are called `web`.
fn spec(replicas: i32) -> Value {
    json!({"deploymentName": "web", "replicas": replicas})
}

/// Edits the object, and updates the caches.
async fn edit<R: Reconcile<Resource = Foo>>(f: &mut Fixture<R>, edit: impl FnOnce(&mut Value)) {
    f.edit::<Foo>("web", edit).await;
    f.catch_up().await;
}

/// Sets the replicas in the spec, and updates the caches.
async fn scale<R: Reconcile<Resource = Foo>>(f: &mut Fixture<R>, replicas: i32) {
    edit(f, |foo| foo["spec"]["replicas"] = json!(replicas)).await;
}

/// Pauses or resumes the object, and updates the caches.
async fn pause<R: Reconcile<Resource = Foo>>(f: &mut Fixture<R>, is_paused: bool) {
    let paused = json!({"windlass.dev/paused": is_paused.to_string()});
    edit(f, |foo| foo["metadata"]["annotations"] = paused).await;
}

/// Sets the replicas of the Deployment by hand; the caches stay stale.
async fn scale_by_hand<R: Reconcile<Resource = Foo>>(f: &Fixture<R>, replicas: i32) {
    f.edit::<Deployment>("web", |live| live["spec"]["replicas"] = json!(replicas)).await;
}

/// Returns the message of the object's first condition.
async fn message<R: Reconcile<Resource = Foo>>(f: &Fixture<R>) -> String {
    f.status("web").await["conditions"][0]["message"].as_str().unwrap().to_owned()
}

/// Returns a fault that refuses requests of the operator.
fn refusal(verb: &str, resource: &str, (code, reason): (u16, &str)) -> Fault {
    Fault::new(When::verb(verb).resource(resource).user("operator"), Action::refuse(code, reason))
}
