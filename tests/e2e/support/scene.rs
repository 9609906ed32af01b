//! A scene: a namespace on a bed, an operator that watches it, and helpers that act on Foos and Deployments.

use std::process::Output;
use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube_client::ResourceExt;
use kube_client::api::{
    Api, ApiResource as KubeResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams,
};
use serde_json::{Value, json};
use windlass::api::samplecontroller::v1alpha1::{Foo, FooSpec};

use super::canary::{CANARY, clean};
use super::{Bed, DryRun, LedgerEntry, Operator, SlowLink, wait_until};

/// See the module.
pub(crate) struct Scene {
    /// Declared before the bed so that it is dropped first: its log, printed on failure, is in the bed's directory.
    operator: Option<Operator>,
    pub(crate) bed: Bed,
    pub(crate) namespace: String,
    pub(crate) foos: Api<Foo>,
    pub(crate) deployments: Api<Deployment>,
    events: Api<Event>,
}

/// Returns the condition of this type.
pub(crate) fn condition<'a>(foo: &'a Foo, type_: &str) -> Option<&'a Condition> {
    foo.status.as_ref()?.conditions.iter().find(|condition| condition.type_ == type_)
}

impl Scene {
    /// Creates a scene on the shared bed and starts an operator.
    pub(crate) async fn new(name: &str) -> Self {
        let mut scene = Self::on(Bed::shared().await, name).await;
        scene.start_operator();
        scene
    }

    /// Creates a scene on this bed without an operator.
    pub(crate) async fn on(bed: Bed, name: &str) -> Self {
        let namespace = bed.namespace(name).await;
        let client = bed.client();
        Self {
            operator: None,
            foos: Api::namespaced(client.clone(), &namespace),
            deployments: Api::namespaced(client.clone(), &namespace),
            events: Api::namespaced(client, &namespace),
            bed,
            namespace,
        }
    }

    /// Returns the user that the scene's operators run as.
    pub(crate) fn user(&self) -> String {
        format!("windlass-{}", self.namespace)
    }

    /// Starts an operator for this namespace.
    pub(crate) fn start_operator(&mut self) {
        self.start_operator_with(&[]);
    }

    /// Starts an operator for this namespace with additional flags.
    pub(crate) fn start_operator_with(&mut self, flags: &[&str]) {
        let namespace = format!("--namespace={}", self.namespace);
        self.operator = Some(self.bed.operator(&self.user(), &[&[namespace.as_str()], flags].concat()));
    }

    /// Starts an operator for this namespace whose requests arrive so much later while the link lasts.
    pub(crate) fn start_operator_over_slow_link(&mut self, delay: Duration, flags: &[&str]) -> SlowLink {
        let Bed::Real(bed) = &self.bed else { panic!("sockets do not work with a paused clock") };
        let namespace = format!("--namespace={}", self.namespace);
        let flags = [&[namespace.as_str()], flags].concat();
        let (operator, link) = bed.operator_over_slow_link(&self.user(), delay, &flags);
        self.operator = Some(operator);
        link
    }

    /// Makes a dry run for this namespace, as the user of the scene's operators.
    pub(crate) async fn dry_run(&self, flags: &[&str]) -> DryRun {
        let namespace = format!("--namespace={}", self.namespace);
        self.bed.dry_run(&self.user(), true, &[&[namespace.as_str()], flags].concat()).await
    }

    /// Starts an operator that may read and patch Foos but not Deployments.
    pub(crate) async fn deny_deployments(&mut self) {
        self.bed.grant_foos(&self.user(), &self.namespace).await;
        let namespace = format!("--namespace={}", self.namespace);
        self.operator = Some(self.bed.operator_without_role(&self.user(), &[&namespace]));
    }

    /// Grants the scene's operator the full role in this namespace.
    pub(crate) async fn grant_deployments(&self) {
        self.bed.grant_all(&self.user(), &self.namespace).await;
    }

    /// Returns the operator that was started last.
    pub(crate) fn operator(&self) -> &Operator {
        self.operator.as_ref().expect("an operator was started")
    }

    /// Takes the operator out of the scene, to stop it.
    pub(crate) fn take_operator(&mut self) -> Operator {
        self.operator.take().expect("an operator was started")
    }

    /// Returns all finished requests of the scene's operators.
    pub(crate) fn ledger(&self) -> Vec<LedgerEntry> {
        self.bed.ledger(&self.user())
    }

    /// Returns all finished writes of the scene's operators.
    pub(crate) fn writes(&self) -> Vec<LedgerEntry> {
        self.ledger().into_iter().filter(LedgerEntry::is_write).collect()
    }

    /// Returns the API for Foos as untyped JSON.
    pub(crate) async fn untyped_foos(&self) -> Api<DynamicObject> {
        let resource = KubeResource::erase::<Foo>(&());
        Api::namespaced_with(self.bed.client(), &self.namespace, &resource)
    }

    pub(crate) async fn create_foo(&self, name: &str, deployment: &str, replicas: i32) -> Foo {
        let mut foo = Foo::new(name, FooSpec { deployment_name: deployment.to_owned(), replicas });
        foo.annotations_mut().insert("example.com/password".to_owned(), CANARY.to_owned());
        self.foos.create(&PostParams::default(), &foo).await.expect("the Foo is valid")
    }

    /// Creates a Foo, waits until it is Ready, and returns its Deployment of the same name.
    pub(crate) async fn ready_foo(&self, name: &str, replicas: i32) -> Deployment {
        self.create_foo(name, name, replicas).await;
        self.ready(name).await;
        self.deployments.get(name).await.expect("a Ready Foo has a Deployment")
    }

    /// Waits until a Foo is Ready at its current generation.
    #[track_caller]
    pub(crate) fn ready(&self, name: &str) -> impl Future<Output = Foo> {
        self.foo_until(name, "Ready", |foo| {
            let ready = condition(foo, "Ready");
            ready.is_some_and(|c| c.status == "True" && c.observed_generation == foo.metadata.generation)
        })
    }

    /// Waits until a Foo's Ready condition has this reason.
    #[track_caller]
    pub(crate) fn reason(&self, name: &str, reason: &'static str) -> impl Future<Output = Foo> {
        self.foo_until(name, reason, move |foo| condition(foo, "Ready").is_some_and(|c| c.reason == reason))
    }

    #[track_caller]
    pub(crate) fn foo_until(
        &self,
        name: &str,
        what: &str,
        test: impl Fn(&Foo) -> bool,
    ) -> impl Future<Output = Foo> {
        wait_until(&format!("Foo {name} is {what}"), async move || {
            let foo = self.foos.get(name).await.map_err(|e| e.to_string())?;
            if test(&foo) { Ok(foo) } else { Err(format!("{foo:?}")) }
        })
    }

    #[track_caller]
    pub(crate) fn deployment_until(
        &self,
        name: &str,
        what: &str,
        test: impl Fn(&Deployment) -> bool,
    ) -> impl Future<Output = Deployment> {
        wait_until(&format!("Deployment {name}: {what}"), async move || {
            let deployment = self.deployments.get(name).await.map_err(|e| e.to_string())?;
            if test(&deployment) { Ok(deployment) } else { Err(format!("{deployment:?}")) }
        })
    }

    #[track_caller]
    pub(crate) fn deployment_gone(&self, name: &str) -> impl Future<Output = ()> {
        wait_until(&format!("Deployment {name} is gone"), async move || {
            match self.deployments.get_opt(name).await {
                Ok(None) => Ok(()),
                seen => Err(format!("{seen:?}")),
            }
        })
    }

    #[track_caller]
    pub(crate) fn foo_gone(&self, name: &str) -> impl Future<Output = ()> {
        wait_until(&format!("Foo {name} is gone"), async move || match self.foos.get_opt(name).await {
            Ok(None) => Ok(()),
            seen => Err(format!("{seen:?}")),
        })
    }

    pub(crate) async fn patch_foo(&self, name: &str, patch: Value) {
        self.foos.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.expect("a valid patch");
    }

    /// Edits a Deployment with a strategic merge patch, as `kubectl edit` and `kubectl patch` do.
    pub(crate) async fn patch_deployment(&self, name: &str, patch: Value) {
        let patch = Patch::Strategic(patch);
        self.deployments.patch(name, &PatchParams::default(), &patch).await.expect("a valid patch");
    }

    pub(crate) async fn delete_foo(&self, name: &str, how: DeleteParams) {
        drop(self.foos.delete(name, &how).await.expect("the Foo exists"));
    }

    /// Creates a Deployment that the operator does not own.
    pub(crate) async fn foreign_deployment(&self, name: &str, metadata: Value) -> Deployment {
        let mut deployment = json!({
            "metadata": metadata,
            "spec": {
                "replicas": 1,
                "selector": {"matchLabels": {"app": "theirs"}},
                "template": {
                    "metadata": {"labels": {"app": "theirs"}},
                    "spec": {"containers": [
                        {"name": "theirs", "image": "theirs", "env": [{"name": "PASSWORD", "value": CANARY}]},
                    ]},
                },
            },
        });
        deployment["metadata"]["name"] = json!(name);
        let deployment = serde_json::from_value(deployment).expect("the test's own JSON fits the type");
        self.deployments.create(&PostParams::default(), &deployment).await.expect("a valid Deployment")
    }

    /// Returns the reasons of a Foo's events, oldest first.
    pub(crate) async fn event_reasons(&self, foo: &str) -> Vec<String> {
        self.events(foo).await.into_iter().map(|(reason, _)| reason).collect()
    }

    /// Returns reasons and notes of a Foo's events, oldest first.
    pub(crate) async fn events(&self, foo: &str) -> Vec<(String, String)> {
        self.events_about("Foo", foo).await
    }

    /// Returns all events in the namespace, oldest first.
    pub(crate) async fn all_events(&self) -> Vec<Event> {
        let mut events = self.events.list(&ListParams::default()).await.expect("events can be listed").items;
        events.iter().for_each(|event| drop(clean("an event", format!("{event:?}"))));
        events.sort_by(|a, b| a.event_time.cmp(&b.event_time));
        events
    }

    /// Waits for an event about a Foo with this reason and returns its note.
    #[track_caller]
    pub(crate) fn event(&self, foo: &str, reason: &str) -> impl Future<Output = String> {
        wait_until(&format!("event {reason} about Foo {foo}"), async move || {
            let events = self.events(foo).await;
            let found = events.iter().find(|(found, _)| found == reason).map(|(_, note)| note.clone());
            found.ok_or(events)
        })
    }

    /// Runs kubectl in the scene's namespace and returns its output, whether it succeeds or not.
    pub(crate) fn kubectl_output(&self, args: &[&str]) -> Output {
        let namespace = format!("--namespace={}", self.namespace);
        self.bed.kubectl(&[&[namespace.as_str()], args].concat())
    }

    /// Runs kubectl in the scene's namespace, asserts success, and returns its standard output.
    pub(crate) fn kubectl(&self, args: &[&str]) -> String {
        let output = self.kubectl_output(args);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert!(output.status.success(), "kubectl {args:?}: {}", text(&output.stderr));
        text(&output.stdout)
    }
}
