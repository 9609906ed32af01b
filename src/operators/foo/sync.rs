//! The sync handler of Foo.
//!
//! Mirrors sample-controller `controller.go` (`syncHandler`).
//!
//! # Guarantees
//! - Nothing to do, nothing sent. (test: `a_converged_foo_sends_nothing`)
//! - The old Deployment goes only after the new one is there. (test: `a_new_name_creates_first_and_deletes_after`)
//! - While the new name is taken the old Deployment stays. (test: `while_the_new_name_is_taken_the_old_one_stays`)
//! - A Foo that is being deleted is left to the garbage collector. (test: `a_foo_being_deleted_is_left_alone`)
//! - A Foo that does not decode keeps its Deployment and says so. (test: `an_unreadable_foo_keeps_its_deployment`)
//! - Events come on transitions only. (test: `events_come_on_transitions_only`)

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube_core::Resource;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::status::{self, Subject, Summary, reason};
use super::wanted;
use crate::api::ApiResource;
use crate::api::conditions::{self, READY};
use crate::api::samplecontroller::v1alpha1::{Foo, FooStatus};
use crate::cache::{Cached, Lister, Object, ObjectName, Unreadable, compare_versions};
use crate::client::{ApiClient, Clock, Error, ServerStatus};
use crate::controller::children::describe;
use crate::controller::deployment::{ObservedDeployment, WantedDeployment};
use crate::controller::status::write;
use crate::controller::{
    Children, Consistency, Deletion, Ensured, Outcome, Owner, Pass, SyncError, SyncHandler,
};
use crate::metrics::ControllerMetrics;
use crate::record::{EventRecorder, EventType, Regarding};

/// How soon a name that somebody else has is looked at again.
const EXISTS_RETRY: Duration = Duration::from_secs(30);
/// How soon a write that the server stored otherwise is tried again.
const UNDONE_RETRY: Duration = Duration::from_secs(1);
/// How soon a refused Deployment is tried again, unless the spec changes first.
const REFUSED_RETRY: Duration = Duration::from_secs(120);

/// Makes the Deployment of a Foo as the Foo wants it.
#[derive(Debug)]
pub struct FooSync {
    pub(super) client: ApiClient,
    pub(super) foos: Lister<Foo>,
    pub(super) deployments: Lister<ObservedDeployment>,
    pub(super) children: Children,
    pub(super) consistency: Arc<Consistency>,
    pub(super) recorder: EventRecorder,
    pub(super) clock: Clock,
    pub(super) metrics: ControllerMetrics,
}

impl SyncHandler for FooSync {
    async fn sync(&self, key: &ObjectName, pass: Pass<'_>) -> Result<Outcome, SyncError> {
        let cached = self.foos.get(key);
        let (found, is_missed) =
            if pass.is_audit() { self.live(key, cached.as_ref()).await? } else { (cached, false) };
        let foo = match found {
            None => return Ok(Outcome::Done),
            Some(Cached::Unreadable(unreadable)) => {
                return Ok(self.sync_unreadable(key, &unreadable).await?);
            }
            Some(Cached::Readable(foo)) => foo,
        };
        if foo.is_deleting() {
            return Ok(Outcome::Done);
        }
        let owner = Owner::of(&*foo);
        let wanted = wanted::deployment(&foo);
        let cached = self.deployments.get(&ObjectName::new(key.namespace(), &wanted.name));
        let ensured = if pass.is_audit() {
            self.children.audit(&owner, &wanted).await?
        } else {
            self.children.ensure(&owner, &wanted, cached.as_ref()).await?
        };
        self.record_child(&foo, &wanted.name, &ensured);
        if matches!(ensured, Ensured::OwnerMovedOn) {
            // The event that shows it is on its way to the cache.
            return Ok(Outcome::Done);
        }
        let mut refusal = None;
        if is_there(&ensured) {
            match self.delete_others(&foo, &owner, &wanted, &ensured).await {
                Err(error) if error.is_refused() => refusal = error.status().cloned(),
                // The status must not say that this spec is applied while a former Deployment may be left.
                Ok(false) => return Ok(Outcome::RequeueAfter(UNDONE_RETRY)),
                outcome => drop(outcome?),
            }
        }
        self.update_status(&foo, &wanted, &ensured, refusal.as_ref()).await?;
        if pass.is_audit() {
            let is_repaired = matches!(ensured, Ensured::Created(_) | Ensured::Updated(..));
            self.metrics.audited(is_missed || is_repaired);
        }
        let wait = |look_again| Outcome::WaitForUser { look_again: Some(look_again) };
        Ok(match ensured {
            _ if refusal.is_some() => wait(REFUSED_RETRY),
            Ensured::Unchanged(_) | Ensured::Created(_) | Ensured::Updated(..) | Ensured::OwnerMovedOn => {
                Outcome::Done
            }
            Ensured::Undone(_) => Outcome::RequeueAfter(UNDONE_RETRY),
            Ensured::Leaving(_) => Outcome::RequeueAfter(EXISTS_RETRY),
            Ensured::ResourceExists => wait(EXISTS_RETRY),
            Ensured::Refused { .. } => wait(REFUSED_RETRY),
            Ensured::Contended { again_in, .. } => wait(again_in),
        })
    }
}

/// Whether the wanted Deployment exists, is ours, and is as wanted.
fn is_there(ensured: &Ensured<ObservedDeployment>) -> bool {
    matches!(ensured, Ensured::Unchanged(_) | Ensured::Created(_) | Ensured::Updated(..))
}

/// Whether the present spec had reached the Deployment already, as the stored status tells.
fn is_applied(foo: &Foo) -> bool {
    let Some(status) = &foo.status else { return false };
    let reached = [reason::AVAILABLE, reason::PROGRESSING];
    status.observed_generation == foo.meta().generation
        && conditions::reason(&status.conditions, READY).is_some_and(|reason| reached.contains(&reason))
}

// === impl FooSync ===

impl FooSync {
    /// The Foo as the server has it, for a pass that believes no cache, and whether the cache had missed that.
    /// A Foo that does not decode is left to the usual way.
    async fn live(
        &self,
        key: &ObjectName,
        cached: Option<&Cached<Foo>>,
    ) -> Result<(Option<Cached<Foo>>, bool), Error> {
        let resource = ApiResource::of::<Foo>();
        let live = match self.client.get::<Foo>(&resource, key.namespace(), key.name()).await {
            Err(Error::Decode { .. }) => return Ok((cached.cloned(), false)),
            live => live?,
        };
        let version = |foo: &Foo| Object::resource_version(foo).to_owned();
        let (seen, now) = (cached.map(|foo| foo.resource_version().to_owned()), live.as_ref().map(version));
        // A cache that is only late has not passed the version that the server has.
        let is_missed = now.as_ref().is_some_and(|now| {
            let order = compare_versions(&self.foos.resource_version(), now);
            seen.as_ref() != Some(now) && order.is_some_and(std::cmp::Ordering::is_ge)
        });
        if is_missed {
            tracing::warn!("The cache had missed a change of this Foo; its next list brings it");
        }
        Ok((live.map(|foo| Cached::new(Ok(foo))), is_missed))
    }

    /// Deletes the Deployments that this Foo had under other names. When the spec or the Deployment is
    /// new, also those that lost our label, which the cache does not show. `false` when that has to be
    /// looked at again.
    async fn delete_others(
        &self,
        foo: &Foo,
        owner: &Owner,
        wanted: &WantedDeployment,
        ensured: &Ensured<ObservedDeployment>,
    ) -> Result<bool, Error> {
        let is_leaving =
            |child: &Cached<ObservedDeployment>| child.readable().is_some_and(|d| d.is_deleting());
        let cached =
            self.deployments.controlled_by(&owner.uid).into_iter().filter(|child| !is_leaving(child));
        let mut names: BTreeSet<String> = cached.map(|child| child.object_name().name().to_owned()).collect();
        if owner.generation > 1 && (matches!(ensured, Ensured::Created(_)) || !is_applied(foo)) {
            let live: Vec<ObservedDeployment> = self.children.live_children(owner).await?;
            names.extend(live.into_iter().filter(|d| !d.is_deleting()).map(|d| d.metadata.name));
        }
        names.remove(&wanted.name);
        let mut is_settled = true;
        for name in names {
            match self.children.delete_replaced(owner, wanted, &name).await? {
                Deletion::Deleted => {
                    let note =
                        format!("Deleted Deployment {name:?}: spec.deploymentName is {:?} now", wanted.name);
                    self.event(foo, EventType::Normal, "ChildDeleted", "Delete", note);
                }
                Deletion::NothingToDo => {}
                Deletion::NotNow => is_settled = false,
            }
        }
        Ok(is_settled)
    }

    async fn update_status(
        &self,
        foo: &Foo,
        wanted: &WantedDeployment,
        ensured: &Ensured<ObservedDeployment>,
        refusal: Option<&ServerStatus>,
    ) -> Result<(), Error> {
        let name = foo.object_name();
        let none = FooStatus::default();
        let subject = Subject {
            name: name.name(),
            wanted,
            generation: foo.meta().generation.unwrap_or_default(),
            previous: foo.status.as_ref().unwrap_or(&none),
        };
        let summary = match refusal {
            Some(refusal) => status::refused("to delete the Deployment of the former name", refusal),
            None => status::summary(&subject, ensured),
        };
        let next = status::status(&subject, &summary, ensured, self.clock.now());
        let resource = ApiResource::of::<Foo>();
        let version = Object::resource_version(foo);
        let written = write(&self.client, &resource, &name, version, foo.status.as_ref(), &next).await?;
        if let Some(version) = written {
            self.consistency.wrote(&name, &resource, &version);
        }
        self.record_transition(foo, &subject.previous.conditions, &summary);
        Ok(())
    }

    /// Says in the status of a Foo that does not decode why, and touches nothing else.
    async fn sync_unreadable(&self, key: &ObjectName, foo: &Unreadable) -> Result<Outcome, Error> {
        #[derive(Default, Serialize, Deserialize)]
        struct Status {
            #[serde(default)]
            conditions: Vec<Condition>,
        }
        let resource = ApiResource::of::<Foo>();
        let live: Option<Value> = self.client.get(&resource, key.namespace(), key.name()).await?;
        let version = live.as_ref().and_then(|live| live.pointer("/metadata/resourceVersion")?.as_str());
        let (Some(live), Some(version)) = (&live, version) else { return Ok(Outcome::Done) };
        if version != foo.meta.resource_version {
            // It has changed, maybe for the better: the event that shows it is on its way to the cache.
            return Ok(Outcome::Done);
        }
        let stored = Status::deserialize(&live["status"]).unwrap_or_default();
        let conditions =
            status::unreadable(&stored.conditions, foo.meta.generation, &foo.error, self.clock.now());
        let status = Status { conditions };
        if let Some(version) = write(&self.client, &resource, key, version, Some(&stored), &status).await? {
            self.consistency.wrote(key, &resource, &version);
        }

        if conditions::reason(&stored.conditions, READY) != Some(reason::UNREADABLE) {
            tracing::warn!(
                error = foo.error,
                "The stored Foo does not decode; its Deployment is left as it is"
            );
        }
        Ok(Outcome::Done)
    }

    /// What was done to the Deployment.
    fn record_child(&self, foo: &Foo, name: &str, ensured: &Ensured<ObservedDeployment>) {
        match ensured {
            Ensured::Created(_) => {
                let note = format!("Created Deployment {name:?}");
                self.event(foo, EventType::Normal, "ChildCreated", "Create", note);
            }
            Ensured::Updated(_, differences) => {
                let (reason, verb) =
                    if is_applied(foo) { ("ChildRepaired", "Repaired") } else { ("ChildUpdated", "Updated") };
                let note = format!("{verb} Deployment {name:?}: {}", describe(differences));
                self.event(foo, EventType::Normal, reason, "Update", note);
            }
            Ensured::Unchanged(_)
            | Ensured::Undone(_)
            | Ensured::Leaving(_)
            | Ensured::OwnerMovedOn
            | Ensured::ResourceExists
            | Ensured::Refused { .. }
            | Ensured::Contended { .. } => {}
        }
    }

    /// What changed in the Ready condition; the stored one tells, so a restart repeats nothing.
    fn record_transition(&self, foo: &Foo, before: &[Condition], now: &Summary) {
        if conditions::reason(before, READY) == Some(now.reason) {
            return;
        }
        let note = now.message.clone();
        match now.reason {
            reason::AVAILABLE => {
                self.event(foo, EventType::Normal, "Synced", "Sync", "Foo synced successfully".to_owned());
            }
            reason::RESOURCE_EXISTS => {
                self.event(foo, EventType::Warning, "ErrResourceExists", "Create", note)
            }
            reason::CHILD_REFUSED => self.event(foo, EventType::Warning, "ChildRefused", "Sync", note),
            reason::CONTENDED => self.event(foo, EventType::Warning, "Contended", "Update", note),
            _ => {}
        }
    }

    fn event(
        &self,
        foo: &Foo,
        event_type: EventType,
        reason: &'static str,
        action: &'static str,
        note: String,
    ) {
        let resource = ApiResource::of::<Foo>();
        let name = foo.object_name();
        let regarding = Regarding {
            api_version: resource.api_version(),
            kind: resource.kind.into_owned(),
            namespace: name.namespace().map(str::to_owned),
            name: name.name().to_owned(),
            uid: Object::uid(foo).to_owned(),
            resource_version: Object::resource_version(foo).to_owned(),
        };
        self.recorder.event(regarding, event_type, reason, action, note);
    }
}

#[cfg(test)]
mod tests;
