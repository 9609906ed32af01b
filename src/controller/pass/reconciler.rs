//! The sync handler that all kinds share: reads the object, calls the kind, writes status and events.
//!
//! Mirrors sample-controller `controller.go` (`syncHandler`), without the parts that concern Foo alone.
//!
//! # A sync
//! ```text
//! key ─▶ object from the cache (an audit reads it live)
//!         ├─ gone ──────────▶ done
//!         ├─ does not decode ▶ report in its status, touch nothing (orphaned: release it)
//!         ├─ being deleted ─▶ Reconcile::finalize
//!         └─ alive ─────────▶ Reconcile::reconcile ─▶ status, events on transitions ─▶ requeue
//! ```
//! A kind implements [`Reconcile`] and works through its [`Pass`].
//!
//! # Guarantees
//! - A status is written only when it differs. (test: `unchanged_status_is_not_written`)
//! - Events are recorded on transitions only, even across a restart. (test: `events_come_on_transitions_only`)
//! - Each problem of each child has one event, even across a restart. (test: `each_problem_is_reported_once`, `taken_name_of_a_second_child_is_reported`, `refusal_of_a_second_child_is_reported`, `restart_does_not_report_taken_name_again`)
//! - A sync for an audit reads the server, not the caches. (test: `audit_repairs_drift_the_caches_missed`)
//! - No child of a paused object is written; its status stays current and reports the pause. (test: `a_paused_object_is_watched_and_left_alone`)
//! - A finalizer is removed only after a cleanup in which nothing failed or was refused.
//!   (test: `finalizer_is_kept_while_the_cleanup_is_refused_or_fails`)
//! - A deletion proceeds despite a pause, and does not record the end of the pause. (test: `deleting_a_paused_object_records_no_resumed_event`)

use std::hash::BuildHasher;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde::Serialize;

use super::custom_resource::{CommonStatus, CustomResource};
use super::status::only_progress_moves;
use super::{Pass, StopReason, Tools};
use crate::api::ApiResource;
use crate::api::conditions::{self, ConditionSet, READY, RECONCILING, STALLED};
use crate::cache::{Cached, Object, ObjectName};
use crate::client::Error;
use crate::controller::kinds::health::{ChildHealth, HealthPhase, UNDONE_RETRY, reason};
use crate::controller::run::outcome::{Outcome, SyncError, SyncRequest, Trust};
use crate::controller::run::worker::SyncHandler;
use crate::record::EventType;
use crate::workqueue::Reason;

/// The part of a sync handler that is specific to one kind.
pub trait Reconcile: Send + Sync + 'static {
    /// The custom resource.
    type Resource: CustomResource;

    /// Reason and note of the event that is recorded when an object becomes Ready, if any.
    const SYNCED: Option<(&'static str, &'static str)> = None;

    /// The finalizer that keeps an object until [`finalize`](Self::finalize) has undone what others do not, if any. It is
    /// written before the first [`reconcile`](Self::reconcile).
    const FINALIZER: Option<&'static str> = None;

    /// Brings the children of an object that is not being deleted to the spec, and returns the new status. Conditions
    /// and observed generation are filled in afterwards, from the reports of the sync.
    fn reconcile(
        &self,
        pass: &mut Pass<'_, Self::Resource>,
    ) -> impl Future<Output = Result<StatusOf<Self>, StopReason>> + Send;

    /// Undoes the effects that the garbage collector leaves, for an object that is being deleted. It may be called again
    /// after it has finished. Returns `None` when nothing is left to undo: then the finalizer is removed, unless something
    /// failed or was reported. Otherwise returns the status, and is called again when a child changes or as reported.
    fn finalize(
        &self,
        _pass: &mut Pass<'_, Self::Resource>,
    ) -> impl Future<Output = Result<Option<StatusOf<Self>>, StopReason>> + Send {
        std::future::ready(Ok(None))
    }

    /// Drops all state kept for an object whose finalizer was removed.
    fn finalized(&self, _name: &ObjectName) {}

    /// Drops all state kept for an object that no longer exists, whether or not [`finalize`](Self::finalize) ran.
    fn gone(&self, _name: &ObjectName) {}
}

/// Returns the outcome, or the error if a step of the sync has failed.
fn failed_or<K: CustomResource>(pass: &mut Pass<'_, K>, outcome: Outcome) -> Result<Outcome, SyncError> {
    match pass.failure.take() {
        Some(error) => Err(error.into()),
        None => Ok(outcome),
    }
}

/// The status type of the custom resource that `R` reconciles.
pub type StatusOf<R> = <<R as Reconcile>::Resource as CustomResource>::Status;

/// The sync handler for one kind; see the module.
#[derive(Debug)]
pub struct Reconciler<R: Reconcile> {
    tools: Tools<R::Resource>,
    kind: R,
}

// === impl Reconciler ===

impl<R: Reconcile> SyncHandler for Reconciler<R> {
    async fn sync(&self, key: &ObjectName, request: SyncRequest<'_>) -> Result<Outcome, SyncError> {
        let cached = self.tools.objects.get(key);
        let is_cached = cached.is_some();
        let found = match request.trust() {
            Trust::Nothing => self.live(key, cached).await?,
            Trust::Cache | Trust::OwnerLive => cached,
        };
        let object = match found {
            None => {
                if request.reasons().contains(&Reason::Deleted) {
                    tracing::info!("Deletion is complete");
                }
                self.kind.gone(key);
                request.state.forget();
                if !is_cached {
                    request.state.own_writes.forget();
                }
                return Ok(Outcome::Done);
            }
            Some(Cached::Unreadable(unreadable)) => {
                return Ok(self.sync_unreadable(key, &unreadable, request.state).await?);
            }
            Some(Cached::Readable(object)) => object,
        };
        let mut pass = Pass::new(&self.tools, object, request);
        let status = if pass.object().is_deleting() {
            let status = self.finalize(&mut pass).await;
            status.map(|status| status.or_else(|| held_by_others::<R>(&mut pass)))
        } else {
            self.reconcile(&mut pass).await.map(Some)
        };
        pass.record_created();
        let status = match status {
            Ok(status) => status,
            Err(StopReason::KeepStatus) => Some(pass.stored_status()),
            Err(StopReason::Outcome(outcome)) => return failed_or(&mut pass, outcome),
            Err(StopReason::Failed(error)) => return Err(error),
        };
        let (is_failing, asked_to_wait) = (pass.is_failing(), pass.asked_to_wait());
        let should_report = pass.state().reported.should_report(is_failing, asked_to_wait);
        let outcome = match status {
            Some(status) if should_report => self.finish(&mut pass, status).await?,
            Some(_) | None => Outcome::Done,
        };
        failed_or(&mut pass, outcome)
    }
}

/// Reports finalizers of others that still hold an object after our cleanup.
fn held_by_others<R: Reconcile>(pass: &mut Pass<'_, R::Resource>) -> Option<StatusOf<R>> {
    let is_standard = |finalizer: &str| ["foregroundDeletion", "orphan"].contains(&finalizer);
    let mut others = pass.object().finalizers();
    others.retain(|finalizer| !is_standard(finalizer));
    if others.is_empty() || R::FINALIZER.is_some_and(|ours| others.contains(&ours)) {
        return None;
    }
    let message =
        format!("Cleanup is done; deletion waits for these finalizers to be removed: {}", others.join(", "));
    pass.report(ChildHealth::reconciling(reason::DELETING, message));
    Some(pass.stored_status())
}

impl<R: Reconcile> Reconciler<R> {
    /// Creates a sync handler for `kind`.
    #[must_use]
    pub fn new(tools: Tools<R::Resource>, kind: R) -> Self {
        Self { tools, kind }
    }

    #[cfg(all(test, feature = "sim"))]
    pub(crate) fn tools(&mut self) -> &mut Tools<R::Resource> {
        &mut self.tools
    }

    async fn reconcile(&self, pass: &mut Pass<'_, R::Resource>) -> Result<StatusOf<R>, StopReason> {
        if let Some(finalizer) = R::FINALIZER {
            pass.add_finalizer(finalizer).await?;
        }
        self.kind.reconcile(pass).await
    }

    async fn finalize(&self, pass: &mut Pass<'_, R::Resource>) -> Result<Option<StatusOf<R>>, StopReason> {
        let Some(finalizer) = R::FINALIZER else { return self.kind.finalize(pass).await };
        let name = pass.owner().name.clone();
        if !pass.has_finalizer(finalizer) {
            self.kind.gone(&name);
            return Ok(None);
        }
        let status = self.kind.finalize(pass).await?;
        if status.is_some() || pass.is_failing() || !pass.reports().is_empty() {
            return Ok(status.or_else(|| Some(pass.stored_status())));
        }
        pass.remove_finalizer(finalizer).await?;
        self.kind.finalized(&name);
        Ok(None)
    }

    /// Reads the object from the server. An object that does not decode is taken from the cache, as in other syncs.
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

    /// Writes the status, records events for transitions, and decides when to requeue.
    async fn finish(
        &self,
        pass: &mut Pass<'_, R::Resource>,
        mut status: StatusOf<R>,
    ) -> Result<Outcome, Error> {
        let object = pass.shared();
        let stored = object.status();
        let before = stored.map(CommonStatus::conditions).unwrap_or_default();
        let health = ChildHealth::worst(pass.reports());
        let observed_generation = if pass.is_paused() {
            stored.and_then(CommonStatus::observed_generation)
        } else {
            Some(pass.owner().generation)
        };
        let conditions =
            next_conditions(&before, observed_generation, &health, &*pass, self.tools.clock.now());
        status.set_common(observed_generation, conditions);
        stored.into_iter().for_each(|stored| status.keep_unknown(stored));
        if let Some(after) = deferred(pass, stored, &status) {
            return Ok(Outcome::Deferred(after.min(health.requeue_after.unwrap_or(after))));
        }
        if stored != Some(&status) {
            if !pass.writer().write_status(object.is_deleting(), stored, &status).await? {
                return Ok(Outcome::RequeueAfter(UNDONE_RETRY));
            }
            pass.state().reported.status_written(fingerprint(&stored), fingerprint(&Some(&status)));
        }
        let lags = pass.reports().iter().any(|health| health.lags);
        pass.state().reported.lag_reported(lags);
        pass.record_deferred();
        log_transition(&before, &health);
        self.record_transition(pass, &before, &health);
        Ok(match (health.phase, health.requeue_after) {
            (HealthPhase::Stalled, requeue_after) => Outcome::WaitForUser { requeue_after },
            (HealthPhase::Ready | HealthPhase::Reconciling, Some(time)) => Outcome::RequeueAfter(time),
            (HealthPhase::Ready | HealthPhase::Reconciling, None) => Outcome::Done,
        })
    }

    /// Records events for changed conditions. Compares with the stored conditions, so a restart repeats nothing.
    fn record_transition(&self, pass: &Pass<'_, R::Resource>, before: &[Condition], now: &ChildHealth) {
        let was_paused = conditions::reason(before, RECONCILING) == Some(reason::PAUSED);
        match (was_paused, pass.is_paused()) {
            (false, true) => pass.event(EventType::Normal, "Paused", "Pause", PAUSED.to_owned()),
            // A deletion ignores a pause, but does not end it.
            (true, false) if !pass.object().is_deleting() => {
                pass.event(EventType::Normal, "Resumed", "Resume", "Children are written again".to_owned());
            }
            (true, false | true) | (false, false) => {}
        }
        let generation = Some(pass.owner().generation);
        let is_news = pass.state().reported.is_news(now, generation, conditions::find(before, READY));
        if !is_news {
            return;
        }
        let note = now.message.clone();
        match (now.reason, R::SYNCED) {
            (reason::AVAILABLE, Some((reason, note))) => {
                pass.event(EventType::Normal, reason, "Sync", note.to_owned());
            }
            (reason::RESOURCE_EXISTS, _) => {
                pass.event(EventType::Warning, "ErrResourceExists", "Create", note);
            }
            (reason::CHILD_REFUSED, _) => pass.event(EventType::Warning, "ChildRefused", "Sync", note),
            (reason::CONTENDED, _) => {
                self.tools.metrics.contended();
                tracing::warn!(
                    note,
                    "Contended: another client keeps reverting a child; retrying every two minutes"
                );
                pass.event(EventType::Warning, "Contended", "Update", note);
            }
            _ => {}
        }
    }
}

/// Returns how long to hold back a changed status, if at all.
fn deferred<K: CustomResource>(
    pass: &Pass<'_, K>,
    stored: Option<&K::Status>,
    status: &K::Status,
) -> Option<Duration> {
    let before = stored.filter(|stored| *stored != status)?;
    let is_progress = only_progress_moves(before, status);
    pass.state().reported.status_waits(fingerprint(&stored), is_progress)
}

/// Logs that an object has become Ready, is not Ready any more, or waits for a user.
fn log_transition(before: &[Condition], now: &ChildHealth) {
    let (was_ready, was_stalled) = (conditions::is_true(before, READY), conditions::is_true(before, STALLED));
    // In the JSON log a field named message would be a second key of that name.
    let ChildHealth { reason, message: note, .. } = now;
    match now.phase {
        HealthPhase::Ready if !was_ready => tracing::info!(reason, note, "Became Ready"),
        HealthPhase::Reconciling if was_ready => tracing::info!(reason, note, "Is no longer Ready"),
        HealthPhase::Stalled if !was_stalled => tracing::info!(reason, note, "Stalled"),
        HealthPhase::Ready | HealthPhase::Reconciling | HealthPhase::Stalled => {}
    }
}

const PAUSED: &str = "Children are not written; remove the annotation windlass.dev/paused to resume";

fn next_conditions<K: CustomResource>(
    before: &[Condition],
    observed_generation: Option<i64>,
    health: &ChildHealth,
    pass: &Pass<'_, K>,
    now: jiff::Timestamp,
) -> Vec<Condition> {
    let mut set = ConditionSet::new(before, observed_generation, now);
    if pass.is_paused() {
        set.set(READY, health.phase == HealthPhase::Ready, health.reason, &health.message);
        set.set(RECONCILING, false, reason::PAUSED, PAUSED);
        set.set_if_true(STALLED, health.phase == HealthPhase::Stalled, health.reason, &health.message);
    } else {
        set_health(&mut set, health);
    }
    for (type_, condition) in &pass.more {
        match condition {
            Some((status, reason, message)) => set.set(type_, *status, reason, message),
            None => set.remove(type_),
        }
    }
    set.into_vec()
}

fn set_health(set: &mut ConditionSet, health: &ChildHealth) {
    let ChildHealth { phase, reason, message, .. } = health;
    set.set(READY, *phase == HealthPhase::Ready, reason, message);
    set.set_if_true(RECONCILING, *phase == HealthPhase::Reconciling, reason, message);
    set.set_if_true(STALLED, *phase == HealthPhase::Stalled, reason, message);
}

/// Hashes a status, to compare it later.
fn fingerprint(status: &impl Serialize) -> u64 {
    let json = serde_json::to_vec(status).unwrap_or_default();
    foldhash::fast::FixedState::default().hash_one(json)
}

mod unreadable;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exactly_one_health_condition_is_true() {
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
            let absent = expected.iter().skip(1).filter(|is_true| !**is_true).count();
            assert_eq!(conditions.len(), 3 - absent, "Reconciling and Stalled are absent otherwise");
        }
    }
}
