//! The frame of every operator's sync handler: from a key to a status that says what is true.
//!
//! Mirrors sample-controller `controller.go` (`syncHandler`), without what is Foo's own there.
//!
//! # A pass
//! ```text
//! key ─▶ object from the cache (an audit reads it live)
//!         ├─ gone ──────────▶ done
//!         ├─ does not decode ▶ say so in its status, touch nothing (orphaned: let it go)
//!         ├─ being deleted ─▶ Reconcile::finalize
//!         └─ alive ─────────▶ Reconcile::reconcile ─▶ status, events on transitions ─▶ when to look again
//! ```
//! What a kind brings is [`Reconcile`]; what it may use is its [`ReconcileContext`].
//!
//! # Guarantees
//! - A status is written when it differs, and not else. (test: `a_converged_foo_sends_nothing`)
//! - Events come on transitions only, also across a restart: the stored condition tells. (test: `events_come_on_transitions_only`)
//! - Each obstacle has one event, also when another has been before it. (test: `each_obstacle_is_reported_once`)
//! - So has the same obstacle of another child. (test: `a_taken_name_of_another_child_is_reported_as_well`, `a_refusal_of_another_child_is_reported_as_well`)
//! - A new process does not repeat it. (test: `a_new_process_does_not_repeat_a_taken_name`)
//! - A pass for an audit believes the server and no cache. (test: `an_audit_finds_what_the_caches_have_missed`)
//! - A paused object has no child written; its status is kept, and says that it is paused. (test: `a_paused_foo_is_watched_and_left_alone`)
//! - A deletion goes on in spite of a pause, and is not called its end. (test: `the_deletion_of_a_paused_redis_resumes_nothing`)
//! - A key that asks for itself without end has a condition that says so, as long as it does. (test: `a_hot_foo_has_a_condition`)

use std::fmt;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::context::{ReconcileContext, StopReason};
use super::status::{Written, only_progress_moves, write};
use crate::api::ApiResource;
use crate::api::conditions::{self, ConditionSet, HOT_LOOP, READY, RECONCILING, STALLED};
use crate::cache::{Cached, Lister, Object, ObjectName};
use crate::client::{ApiClient, Clock, Error};
use crate::controller::children::apply::Children;
use crate::controller::children::object_state::ObjectStates;
use crate::controller::kinds::health::{ChildHealth, HealthPhase, UNDONE_RETRY, reason};
use crate::controller::run::consistency::Consistency;
use crate::controller::run::hot_loop;
use crate::controller::run::outcome::{Outcome, SyncError, SyncRequest};
use crate::controller::run::worker::SyncHandler;
use crate::metrics::ControllerMetrics;
use crate::record::{EventRecorder, EventType};

/// What a kind's operator does with one object.
pub trait Reconcile: Send + Sync + 'static {
    /// The custom resource.
    type Resource: CustomResource;

    /// The event that says that an object has become ready: reason and note, if there is one.
    const SYNCED: Option<(&'static str, &'static str)> = None;

    /// What holds an object until [`finalize`](Self::finalize) has let it go, if anything does.
    const FINALIZER: Option<&'static str> = None;

    /// Brings the children of a living object to what it wants, and says what is true of it now. Conditions and
    /// observed generation are filled in afterwards, from what the pass has found.
    fn reconcile(
        &self,
        ctx: &mut ReconcileContext<'_, Self::Resource>,
    ) -> impl Future<Output = Result<StatusOf<Self>, StopReason>> + Send;

    /// Undoes what the garbage collector does not, for an object that is being deleted; `None` when there is nothing
    /// (more) to say in its status.
    fn finalize(
        &self,
        _ctx: &mut ReconcileContext<'_, Self::Resource>,
    ) -> impl Future<Output = Result<Option<StatusOf<Self>>, StopReason>> + Send {
        std::future::ready(Ok(None))
    }

    /// There is no such object any more, seen to its end by [`finalize`](Self::finalize) or not: nothing need be
    /// remembered of it.
    fn gone(&self, _name: &ObjectName) {}
}

/// Ends a pass so, unless something has failed in it.
fn failed_or<K: CustomResource>(
    ctx: &mut ReconcileContext<'_, K>,
    outcome: Outcome,
) -> Result<Outcome, SyncError> {
    match ctx.take_failure() {
        Some(error) => Err(error.into()),
        None => Ok(outcome),
    }
}

/// The status type of what a kind's operator works on.
pub type StatusOf<R> = <<R as Reconcile>::Resource as CustomResource>::Status;

/// A custom resource with a status such as ours have.
pub trait CustomResource:
    kube_core::Resource<DynamicType = ()> + DeserializeOwned + Clone + fmt::Debug + Send + Sync + 'static
{
    /// Its status.
    type Status: CommonStatus;

    /// Its status as stored, if there is one.
    fn status(&self) -> Option<&Self::Status>;
}

impl<K> CustomResource for K
where
    K: kube_core::Resource<DynamicType = ()>
        + kube_core::object::HasStatus<Status: CommonStatus>
        + DeserializeOwned
        + Clone
        + fmt::Debug
        + Send
        + Sync
        + 'static,
{
    type Status = <K as kube_core::object::HasStatus>::Status;

    fn status(&self) -> Option<&Self::Status> {
        kube_core::object::HasStatus::status(self)
    }
}

/// What every status has.
pub trait CommonStatus: Clone + Default + PartialEq + Serialize + fmt::Debug + Send + Sync + 'static {
    /// The generation that it is about.
    fn observed_generation(&self) -> Option<i64>;
    /// Its conditions.
    fn conditions(&self) -> Vec<Condition>;
    /// Fills in both.
    fn set_common(&mut self, observed_generation: Option<i64>, conditions: Vec<Condition>);
}

/// What every operator works with, for objects of its kind.
#[derive(Debug)]
pub struct Tools<K> {
    /// The way to the API server.
    pub client: ApiClient,
    /// The objects.
    pub objects: Lister<K>,
    /// Writes their children.
    pub children: Children,
    /// Is told of each write.
    pub consistency: Arc<Consistency>,
    /// Records events.
    pub recorder: EventRecorder,
    /// Stamps conditions.
    pub clock: Clock,
    /// Counts.
    pub metrics: ControllerMetrics,
}

/// A sync handler around what a kind brings; see the module.
#[derive(Debug)]
pub struct Reconciler<R: Reconcile> {
    tools: Tools<R::Resource>,
    kind: R,
}

// === impl Reconciler ===

impl<R: Reconcile> SyncHandler for Reconciler<R> {
    async fn sync(&self, key: &ObjectName, request: SyncRequest<'_>) -> Result<Outcome, SyncError> {
        let cached = self.tools.objects.get(key);
        let found = if request.reads_live() { self.live(key, cached).await? } else { cached };
        let object = match found {
            None => {
                self.states().forget(key);
                self.kind.gone(key);
                return Ok(Outcome::Done);
            }
            Some(Cached::Unreadable(unreadable)) => {
                return Ok(self.sync_unreadable(key, &unreadable).await?);
            }
            Some(Cached::Readable(object)) => object,
        };
        let mut ctx = ReconcileContext::new(&self.tools, object, request);
        let status = if ctx.object().is_deleting() {
            self.kind.finalize(&mut ctx).await
        } else {
            self.kind.reconcile(&mut ctx).await.map(Some)
        };
        ctx.record_created();
        let status = match status {
            Ok(status) => status,
            Err(StopReason::KeepStatus) => Some(ctx.stored_status()),
            Err(StopReason::Outcome(outcome)) => return failed_or(&mut ctx, outcome),
            Err(StopReason::Failed(error)) => return Err(error),
        };
        let should_report = self.states().should_report(key, ctx.is_failing(), ctx.asked_to_wait());
        let outcome = match status {
            Some(status) if should_report => self.finish(&mut ctx, status).await?,
            Some(_) | None => Outcome::Done,
        };
        failed_or(&mut ctx, outcome)
    }
}

impl<R: Reconcile> Reconciler<R> {
    /// What `kind` does, with these tools.
    #[must_use]
    pub fn new(tools: Tools<R::Resource>, kind: R) -> Self {
        Self { tools, kind }
    }

    fn states(&self) -> &ObjectStates {
        &self.tools.children.states
    }

    #[cfg(test)]
    pub(crate) fn tools(&mut self) -> &mut Tools<R::Resource> {
        &mut self.tools
    }

    /// The object as the server has it, for a pass that believes no cache. What does not decode is left to the usual way.
    async fn live(
        &self,
        key: &ObjectName,
        cached: Option<Cached<R::Resource>>,
    ) -> Result<Option<Cached<R::Resource>>, Error> {
        let resource = ApiResource::of::<R::Resource>();
        match self.tools.client.get::<R::Resource>(&resource, key.namespace(), key.name()).await {
            Err(Error::Decode { .. }) => Ok(cached),
            live => Ok(live?.map(|object| Cached::new(Ok(object)))),
        }
    }

    /// Writes the status, says what has changed, and decides when to look again.
    async fn finish(
        &self,
        ctx: &mut ReconcileContext<'_, R::Resource>,
        mut status: StatusOf<R>,
    ) -> Result<Outcome, Error> {
        let object = ctx.shared();
        let stored = object.status();
        let before = stored.map(CommonStatus::conditions).unwrap_or_default();
        let health = ChildHealth::worst(ctx.reports());
        let observed_generation = if ctx.is_paused() {
            stored.and_then(CommonStatus::observed_generation)
        } else {
            Some(ctx.owner().generation)
        };
        let conditions =
            next_conditions(&before, observed_generation, &health, &*ctx, self.tools.clock.now());
        status.set_common(observed_generation, conditions);
        let key = ctx.owner().name.clone();
        if let Some(after) = self.deferred(&key, stored, &status) {
            return Ok(Outcome::Deferred(after.min(health.requeue_after.unwrap_or(after))));
        }
        if stored != Some(&status) {
            let state = (ctx.version(), ctx.object().is_deleting());
            match write(&self.tools.client, ctx.owner(), state, stored, &status).await? {
                Written::Stored(version) => {
                    self.states().status_written(&key, fingerprint(&stored), fingerprint(&Some(&status)));
                    if let Some(version) = version {
                        ctx.owner().wrote(&self.tools.consistency, &version);
                    }
                }
                Written::MovedOn(live) => {
                    tracing::debug!("Writes no status: a live read shows that the object has moved on");
                    self.tools.children.await_owner(ctx.owner(), live.as_ref());
                    return Ok(Outcome::RequeueAfter(UNDONE_RETRY));
                }
            }
        }
        self.states().lag_reported(&key, ctx.has_lag());
        ctx.record_left();
        self.record_transition(ctx, &before, &health);
        let requeue_after = match ctx.is_hot() {
            // So that the condition goes when the key has cooled.
            true => Some(health.requeue_after.unwrap_or(hot_loop::COOLED)),
            false => health.requeue_after,
        };
        Ok(match (health.phase, requeue_after) {
            (HealthPhase::Stalled, requeue_after) => Outcome::WaitForUser { requeue_after },
            (HealthPhase::Ready | HealthPhase::Reconciling, Some(time)) => Outcome::RequeueAfter(time),
            (HealthPhase::Ready | HealthPhase::Reconciling, None) => Outcome::Done,
        })
    }

    /// How long a status is held back that differs from the stored one, if it is.
    fn deferred(
        &self,
        key: &ObjectName,
        stored: Option<&StatusOf<R>>,
        status: &StatusOf<R>,
    ) -> Option<Duration> {
        let before = stored.filter(|stored| *stored != status)?;
        let is_progress = only_progress_moves(before, status);
        self.states().status_waits(key, fingerprint(&stored), is_progress)
    }

    /// What changed in the conditions; the stored ones tell, so a restart repeats nothing.
    fn record_transition(
        &self,
        ctx: &ReconcileContext<'_, R::Resource>,
        before: &[Condition],
        now: &ChildHealth,
    ) {
        let was_paused = conditions::reason(before, RECONCILING) == Some(reason::PAUSED);
        match (was_paused, ctx.is_paused()) {
            (false, true) => ctx.event(EventType::Normal, "Paused", "Pause", PAUSED.to_owned()),
            // A deletion is not held up by a pause, and does not end it either.
            (true, false) if !ctx.object().is_deleting() => {
                ctx.event(EventType::Normal, "Resumed", "Resume", "Children are written again".to_owned());
            }
            (true, false | true) | (false, false) => {}
        }
        let generation = Some(ctx.owner().generation);
        if !self.states().is_news(&ctx.owner().name, now, generation, conditions::find(before, READY)) {
            return;
        }
        let note = now.message.clone();
        match (now.reason, R::SYNCED) {
            (reason::AVAILABLE, Some((reason, note))) => {
                ctx.event(EventType::Normal, reason, "Sync", note.to_owned());
            }
            (reason::RESOURCE_EXISTS, _) => {
                ctx.event(EventType::Warning, "ErrResourceExists", "Create", note);
            }
            (reason::CHILD_REFUSED, _) => ctx.event(EventType::Warning, "ChildRefused", "Sync", note),
            (reason::CONTENDED, _) => {
                self.tools.metrics.contended();
                tracing::warn!(
                    note,
                    "Contended: somebody changes it back each time; tried every two minutes"
                );
                ctx.event(EventType::Warning, "Contended", "Update", note);
            }
            _ => {}
        }
    }
}

const PAUSED: &str = "No child is written until the annotation windlass.dev/paused is taken off";

fn next_conditions<K: CustomResource>(
    before: &[Condition],
    observed_generation: Option<i64>,
    health: &ChildHealth,
    ctx: &ReconcileContext<'_, K>,
    now: jiff::Timestamp,
) -> Vec<Condition> {
    let mut set = ConditionSet::new(before, observed_generation, now);
    if ctx.is_paused() {
        set.set(READY, health.phase == HealthPhase::Ready, health.reason, &health.message);
        set.set(RECONCILING, false, reason::PAUSED, PAUSED);
        set.set(STALLED, health.phase == HealthPhase::Stalled, health.reason, &health.message);
    } else {
        set_health(&mut set, health);
    }
    for (type_, condition) in ctx.more_conditions() {
        match condition {
            Some((status, reason, message)) => set.set(type_, *status, reason, message),
            None => set.remove(type_),
        }
    }
    if ctx.is_hot() {
        set.set(HOT_LOOP, true, "AsksForItself", HOT);
    } else {
        set.remove(HOT_LOOP);
    }
    set.into_vec()
}

const HOT: &str = "This object is looked at again and again although nothing changes; it is slowed down. The log of the operator says why";

fn set_health(set: &mut ConditionSet, health: &ChildHealth) {
    let ChildHealth { phase, reason, message, .. } = health;
    set.set(READY, *phase == HealthPhase::Ready, reason, message);
    set.set(RECONCILING, *phase == HealthPhase::Reconciling, reason, message);
    set.set(STALLED, *phase == HealthPhase::Stalled, reason, message);
}

/// Tells one status from another.
fn fingerprint(status: &impl Serialize) -> u64 {
    let json = serde_json::to_vec(status).unwrap_or_default();
    foldhash::fast::FixedState::default().hash_one(json)
}

mod unreadable;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_condition_of_three_is_true() {
        for (phase, expected) in [
            (HealthPhase::Ready, [true, false, false]),
            (HealthPhase::Reconciling, [false, true, false]),
            (HealthPhase::Stalled, [false, false, true]),
        ] {
            let mut set = ConditionSet::new(&[], Some(4), jiff::Timestamp::UNIX_EPOCH);
            set_health(&mut set, &ChildHealth { phase, ..ChildHealth::ready("") });
            let conditions = set.into_vec();
            let found = [READY, RECONCILING, STALLED].map(|type_| conditions::is_true(&conditions, type_));
            assert_eq!(found, expected);
            assert!(conditions.iter().all(|condition| condition.observed_generation == Some(4)));
        }
    }
}
