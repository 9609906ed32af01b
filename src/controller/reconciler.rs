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
//! What a kind brings is [`Reconcile`]; what it may use is its [`Turn`].
//!
//! # Guarantees
//! - A status is written when it differs, and not else. (test: `a_converged_foo_sends_nothing`)
//! - Events come on transitions only, also across a restart: the stored condition tells. (test: `events_come_on_transitions_only`)
//! - Each obstacle has one event, also when another has been before it. (test: `each_obstacle_is_told_once`)
//! - So has the same obstacle of another child. (test: `a_taken_name_of_another_child_is_told_as_well`, `a_refusal_of_another_child_is_told_as_well`)
//! - A new process does not repeat it. (test: `a_new_process_does_not_repeat_a_taken_name`)
//! - A pass for an audit believes the server and no cache. (test: `an_audit_finds_what_the_caches_have_missed`)
//! - A paused object has no child written; its status is kept, and says that it is paused. (test: `a_paused_foo_is_watched_and_left_alone`)
//! - A deletion goes on in spite of a pause, and is not called its end. (test: `the_deletion_of_a_paused_redis_resumes_nothing`)
//! - A key that asks for itself without end has a condition that says so, as long as it does. (test: `a_hot_foo_has_a_condition`)

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::children::Children;
use super::consistency::Consistency;
use super::hot_loop;
use super::outcome::{Outcome, Pass, SyncError};
use super::status::{Written, only_progress_moves, write};
use super::summary::{Phase, Summary, UNDONE_RETRY, reason};
use super::turn::{Halt, Turn};
use super::worker::SyncHandler;
use crate::api::ApiResource;
use crate::api::conditions::{self, ConditionSet, HOT_LOOP, READY, RECONCILING, STALLED};
use crate::cache::{Cached, Lister, Object, ObjectName};
use crate::client::{ApiClient, Clock, Error};
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
    /// observed generation are filled in afterwards, from what the turn has found.
    fn reconcile(
        &self,
        turn: &mut Turn<'_, Self::Resource>,
    ) -> impl Future<Output = Result<StatusOf<Self>, Halt>> + Send;

    /// Undoes what the garbage collector does not, for an object that is being deleted; `None` when there is nothing
    /// (more) to say in its status.
    fn finalize(
        &self,
        _turn: &mut Turn<'_, Self::Resource>,
    ) -> impl Future<Output = Result<Option<StatusOf<Self>>, Halt>> + Send {
        std::future::ready(Ok(None))
    }

    /// There is no such object any more, seen to its end by [`finalize`](Self::finalize) or not: nothing need be
    /// remembered of it.
    fn gone(&self, _name: &ObjectName) {}
}

/// Ends a pass so, unless something has failed in it.
fn failed_or<K: CustomResource>(turn: &mut Turn<'_, K>, outcome: Outcome) -> Result<Outcome, SyncError> {
    match turn.take_failure() {
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
    memory: Memory,
}

// === impl Reconciler ===

impl<R: Reconcile> SyncHandler for Reconciler<R> {
    async fn sync(&self, key: &ObjectName, pass: Pass<'_>) -> Result<Outcome, SyncError> {
        let cached = self.tools.objects.get(key);
        let found = if pass.reads_live() { self.live(key, cached).await? } else { cached };
        let object = match found {
            None => {
                self.memory.forget(key);
                self.tools.children.lags.forget(key);
                self.tools.children.renames.ended(key);
                self.kind.gone(key);
                return Ok(Outcome::Done);
            }
            Some(Cached::Unreadable(unreadable)) => {
                return Ok(self.sync_unreadable(key, &unreadable).await?);
            }
            Some(Cached::Readable(object)) => object,
        };
        let mut turn = Turn::new(&self.tools, object, pass);
        let status = if turn.object().is_deleting() {
            self.kind.finalize(&mut turn).await
        } else {
            self.kind.reconcile(&mut turn).await.map(Some)
        };
        turn.record_created();
        let status = match status {
            Ok(status) => status,
            Err(Halt::Found) => Some(turn.stored_status()),
            Err(Halt::Ends(outcome)) => return failed_or(&mut turn, outcome),
            Err(Halt::Failed(error)) => return Err(error.into()),
        };
        let is_told = self.memory.is_to_be_told(key, turn.is_failing(), turn.asked_to_wait());
        let outcome = match status {
            Some(status) if is_told => self.finish(&mut turn, status).await?,
            Some(_) | None => Outcome::Done,
        };
        failed_or(&mut turn, outcome)
    }
}

impl<R: Reconcile> Reconciler<R> {
    /// What `kind` does, with these tools.
    #[must_use]
    pub fn new(tools: Tools<R::Resource>, kind: R) -> Self {
        Self { tools, kind, memory: Memory::default() }
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
        turn: &mut Turn<'_, R::Resource>,
        mut status: StatusOf<R>,
    ) -> Result<Outcome, Error> {
        let object = turn.shared();
        let stored = object.status();
        let before = stored.map(CommonStatus::conditions).unwrap_or_default();
        let summary = Summary::worst(turn.findings());
        let observed_generation = if turn.is_paused() {
            stored.and_then(CommonStatus::observed_generation)
        } else {
            Some(turn.owner().generation)
        };
        let conditions =
            next_conditions(&before, observed_generation, &summary, &*turn, self.tools.clock.now());
        status.set_common(observed_generation, conditions);
        let key = turn.owner().name.clone();
        if let Some(after) = self.deferred(&key, stored, &status) {
            return Ok(Outcome::Deferred(after.min(summary.look_again.unwrap_or(after))));
        }
        if stored != Some(&status) {
            let state = (turn.version(), turn.object().is_deleting());
            match write(&self.tools.client, turn.owner(), state, stored, &status).await? {
                Written::Stored(version) => {
                    self.memory.status_written(&key, fingerprint(&stored), fingerprint(&Some(&status)));
                    if let Some(version) = version {
                        self.tools.consistency.wrote_owner(turn.owner(), &version);
                    }
                }
                Written::MovedOn(live) => {
                    tracing::debug!("Writes no status: a live read shows that the object has moved on");
                    self.tools.children.await_owner(turn.owner(), live.as_ref());
                    return Ok(Outcome::RequeueAfter(UNDONE_RETRY));
                }
            }
        }
        self.tools.children.lags.reported(&key, turn.has_lag());
        turn.record_left();
        self.record_transition(turn, &before, &status.conditions(), &summary);
        let look_again = match turn.is_hot() {
            // So that the condition goes when the key has cooled.
            true => Some(summary.look_again.unwrap_or(hot_loop::COOLED)),
            false => summary.look_again,
        };
        Ok(match (summary.phase, look_again) {
            (Phase::Stalled, look_again) => Outcome::WaitForUser { look_again },
            (Phase::Ready | Phase::Reconciling, Some(time)) => Outcome::RequeueAfter(time),
            (Phase::Ready | Phase::Reconciling, None) => Outcome::Done,
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
        self.memory.status_waits(key, fingerprint(&stored), is_progress)
    }

    /// What changed in the conditions; the stored ones tell, so a restart repeats nothing.
    fn record_transition(
        &self,
        turn: &Turn<'_, R::Resource>,
        before: &[Condition],
        after: &[Condition],
        now: &Summary,
    ) {
        let was_paused = conditions::reason(before, RECONCILING) == Some(reason::PAUSED);
        match (was_paused, turn.is_paused()) {
            (false, true) => turn.event(EventType::Normal, "Paused", "Pause", PAUSED.to_owned()),
            // A deletion is not held up by a pause, and does not end it either.
            (true, false) if !turn.object().is_deleting() => {
                turn.event(EventType::Normal, "Resumed", "Resume", "Children are written again".to_owned());
            }
            (true, false | true) | (false, false) => {}
        }
        let taken = (now.reason == reason::RESOURCE_EXISTS).then_some(now.about.as_str());
        let is_of_another = self.memory.is_of_another(&turn.owner().name, taken);
        if is_told(before, after, &now.about) && !is_of_another {
            return;
        }
        let note = now.message.clone();
        match (now.reason, R::SYNCED) {
            (reason::AVAILABLE, Some((reason, note))) => {
                turn.event(EventType::Normal, reason, "Sync", note.to_owned());
            }
            (reason::RESOURCE_EXISTS, _) => {
                turn.event(EventType::Warning, "ErrResourceExists", "Create", note);
            }
            (reason::CHILD_REFUSED, _) => turn.event(EventType::Warning, "ChildRefused", "Sync", note),
            (reason::CONTENDED, _) => {
                self.tools.metrics.contended();
                tracing::warn!(
                    note,
                    "Contended: somebody changes it back each time; tried every two minutes"
                );
                turn.event(EventType::Warning, "Contended", "Update", note);
            }
            _ => {}
        }
    }
}

const PAUSED: &str = "No child is written until the annotation windlass.dev/paused is taken off";

fn next_conditions<K: CustomResource>(
    before: &[Condition],
    observed_generation: Option<i64>,
    summary: &Summary,
    turn: &Turn<'_, K>,
    now: jiff::Timestamp,
) -> Vec<Condition> {
    let mut set = ConditionSet::new(before, observed_generation, now);
    if turn.is_paused() {
        set.set(READY, summary.phase == Phase::Ready, summary.reason, &summary.message);
        set.set(RECONCILING, false, reason::PAUSED, PAUSED);
        set.set(STALLED, summary.phase == Phase::Stalled, summary.reason, &summary.message);
    } else {
        set_summary(&mut set, summary);
    }
    for (type_, condition) in turn.more_conditions() {
        match condition {
            Some((status, reason, message)) => set.set(type_, *status, reason, message),
            None => set.remove(type_),
        }
    }
    if turn.is_hot() {
        set.set(HOT_LOOP, true, "AsksForItself", HOT);
    } else {
        set.remove(HOT_LOOP);
    }
    set.into_vec()
}

const HOT: &str = "This object is looked at again and again although nothing changes; it is slowed down. The log of the operator says why";

fn set_summary(set: &mut ConditionSet, summary: &Summary) {
    let Summary { phase, reason, message, .. } = summary;
    set.set(READY, *phase == Phase::Ready, reason, message);
    set.set(RECONCILING, *phase == Phase::Reconciling, reason, message);
    set.set(STALLED, *phase == Phase::Stalled, reason, message);
}

/// Whether the stored condition has told already what the new one tells, `about` what its obstacle is. An obstacle is
/// another one when its text is: that of a taken name names it, and stays. The text of a refusal may hold numbers that
/// change by themselves, such as what a quota has left; it is another one when something else is refused, or another spec
/// in other words.
fn is_told(before: &[Condition], after: &[Condition], about: &str) -> bool {
    let (Some(before), Some(after)) = (conditions::find(before, READY), conditions::find(after, READY))
    else {
        return false;
    };
    let is_same_text = before.message == after.message;
    let is_of_the_same = before.message.contains(about);
    before.reason == after.reason
        && match after.reason.as_str() {
            reason::RESOURCE_EXISTS => is_same_text,
            reason::CHILD_REFUSED => {
                is_same_text || is_of_the_same && before.observed_generation >= after.observed_generation
            }
            reason::CONTENDED => is_of_the_same,
            _ => true,
        }
}

mod memory;
mod unreadable;

use memory::{Memory, fingerprint};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_condition_of_three_is_true() {
        for (phase, expected) in [
            (Phase::Ready, [true, false, false]),
            (Phase::Reconciling, [false, true, false]),
            (Phase::Stalled, [false, false, true]),
        ] {
            let mut set = ConditionSet::new(&[], Some(4), jiff::Timestamp::UNIX_EPOCH);
            set_summary(&mut set, &Summary { phase, ..Summary::ready("") });
            let conditions = set.into_vec();
            let found = [READY, RECONCILING, STALLED].map(|type_| conditions::is_true(&conditions, type_));
            assert_eq!(found, expected);
            assert!(conditions.iter().all(|condition| condition.observed_generation == Some(4)));
        }
    }

    fn ready(reason: &str, message: &str, generation: i64) -> Vec<Condition> {
        let mut set = ConditionSet::new(&[], Some(generation), jiff::Timestamp::UNIX_EPOCH);
        set.set(READY, false, reason, message);
        set.into_vec()
    }

    #[test]
    fn each_obstacle_is_told_once() {
        use reason::{CHILD_REFUSED, CONTENDED, PROGRESSING, RESOURCE_EXISTS};
        assert!(!is_told(&[], &ready(RESOURCE_EXISTS, "a", 1), ""));
        for (before, after, expected) in [
            (ready(PROGRESSING, "a", 1), ready(RESOURCE_EXISTS, "a", 1), false),
            (ready(PROGRESSING, "1 of 2", 1), ready(PROGRESSING, "2 of 2", 2), true),
            (ready(RESOURCE_EXISTS, "a", 1), ready(RESOURCE_EXISTS, "a", 2), true),
            (ready(RESOURCE_EXISTS, "a", 1), ready(RESOURCE_EXISTS, "b", 1), false),
            (ready(RESOURCE_EXISTS, "a", 1), ready(CHILD_REFUSED, "a", 1), false),
            (ready(CHILD_REFUSED, "3 left", 1), ready(CHILD_REFUSED, "2 left", 1), true),
            (ready(CHILD_REFUSED, "port 1", 1), ready(CHILD_REFUSED, "port 1", 2), true),
            (ready(CHILD_REFUSED, "port 1", 1), ready(CHILD_REFUSED, "port 2", 2), false),
            // A text that is stored cut is compared so.
            (
                ready(RESOURCE_EXISTS, &"a".repeat(2000), 1),
                ready(RESOURCE_EXISTS, &"a".repeat(2001), 1),
                true,
            ),
        ] {
            assert_eq!(is_told(&before, &after, ""), expected, "{before:?} {after:?}");
        }
        for reason in [CHILD_REFUSED, CONTENDED] {
            let before = ready(reason, "refuses Service \"web\": 3 left", 1);
            let after = |child: &str| ready(reason, &format!("refuses {child} \"web\": 2 left"), 1);
            assert!(is_told(&before, &after("Service"), "Service \"web\""), "{reason}");
            assert!(!is_told(&before, &after("Ingress"), "Ingress \"web\""), "{reason} of another child");
        }
    }
}
