//! The context of one pass over one object: the steps a kind's operator may take, and their results.
//!
//! Each step moves a child towards its wanted state, records an event for what it changed, and adds a
//! [`ChildHealth`] report. While the object is paused, the same steps only observe.
//!
//! # Guarantees
//! - The reports of all steps become the object's conditions. (test: `each_outcome_maps_to_its_health`)
//! - A manual change to a child is reverted, with an event that names the field. (test: `manual_change_is_reverted_and_foreign_metadata_kept`)
//! - Repairs are reported even beside a contended field or a blocked child. (test: `repaired_field_is_reported_beside_contended_field`, `repair_is_reported_while_another_child_is_blocked`)
//! - When one child of a batch is refused and another fails, the pass still fails. (test: `an_error_beside_a_refusal_is_not_lost`)
//! - A new child is reported as created even if a webhook alters it. (test: `child_altered_by_webhook_is_reported_as_created`)
//! - A step that finds a newer spec ends the pass without writing a status. (test: `pass_over_an_outdated_spec_reports_nothing`)
//! - A failing child does not hold up the others, and is reported once the failure lasts. (test: `failing_child_is_reported_and_blocks_no_other`)

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{self, AtomicBool};
use std::time::Duration;

use parking_lot::Mutex;

use super::custom_resource::{CommonStatus, CustomResource};
use super::tools::Tools;
use crate::api::annotations;
use crate::api::conditions::{self, READY};
use crate::cache::{Lister, Object, ObjectName, TypedObject, compare_versions};
use crate::client::{Clock, Error, ServerStatus};
use crate::controller::children::Children;
use crate::controller::children::apply_outcome::ApplyOutcome;
use crate::controller::children::owner::Owner;
use crate::controller::children::slow_start::slow_start_batch;
use crate::controller::kinds::Wanted;
use crate::controller::kinds::difference::{Difference, describe};
use crate::controller::kinds::health::{ChildHealth, reason};
use crate::controller::run::outcome::{Outcome, SyncError, SyncRequest};
use crate::record::{EventType, Regarding};

/// Why a pass ends before its status is computed.
#[derive(Debug)]
pub enum StopReason {
    /// The pass failed and is retried after the backoff.
    Failed(SyncError),
    /// The pass cannot continue, for example because the object has changed. No status is written.
    Outcome(Outcome),
    /// The reports suffice: the stored status is kept, apart from its conditions.
    KeepStatus,
}

impl<E: std::error::Error + Send + Sync + 'static> From<E> for StopReason {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

/// For errors that are boxed already: `.map_err(SyncError::new)?`.
impl From<SyncError> for StopReason {
    fn from(error: SyncError) -> Self {
        Self::Failed(error)
    }
}

/// A kind-specific condition: status, reason and message.
pub(in crate::controller) type MoreCondition = (bool, String, String);

/// One pass over one object; see the module.
pub struct ReconcileContext<'a, K> {
    tools: &'a Tools<K>,
    object: Arc<K>,
    owner: Owner,
    request: SyncRequest<'a>,
    is_paused: bool,
    is_applied: bool,
    is_applying: bool,
    reports: Vec<ChildHealth>,
    more: Vec<(&'static str, Option<MoreCondition>)>,
    /// A child's `observedGeneration` is behind; otherwise the child is ready.
    has_lag: bool,
    /// The created children that have no event yet.
    created: Vec<String>,
    version: String,
    events: Vec<(EventType, &'static str, &'static str, String)>,
    failure: Option<Error>,
    is_failing: bool,
    is_cut_short: AtomicBool,
}

// === impl ReconcileContext ===

impl<'a, K: CustomResource> ReconcileContext<'a, K> {
    pub(in crate::controller) fn new(tools: &'a Tools<K>, object: Arc<K>, request: SyncRequest<'a>) -> Self {
        let owner = Owner::of(&*object).managed_by(tools.client.manager());
        let asks_for_pause = Object::annotations(&*object).is_some_and(annotations::ask_for_pause);
        Self {
            is_paused: asks_for_pause && !object.is_deleting(),
            is_applied: is_applied(&*object),
            is_applying: false,
            version: Object::resource_version(&*object).to_owned(),
            tools,
            object,
            owner,
            request,
            reports: Vec::new(),
            more: Vec::new(),
            has_lag: false,
            created: Vec::new(),
            events: Vec::new(),
            failure: None,
            is_failing: false,
            is_cut_short: AtomicBool::new(false),
        }
    }

    /// Returns the object being reconciled.
    #[must_use]
    pub fn object(&self) -> &K {
        &self.object
    }

    /// Returns the object as a shared pointer.
    #[must_use]
    pub fn shared(&self) -> Arc<K> {
        self.object.clone()
    }

    /// Returns the name of the object.
    #[must_use]
    pub fn name(&self) -> &str {
        self.owner.name.name()
    }

    /// Returns the object as the owner of its children.
    #[must_use]
    pub fn owner(&self) -> &Owner {
        &self.owner
    }

    /// Returns the request, with the reasons for this pass.
    #[must_use]
    pub fn request(&self) -> SyncRequest<'a> {
        self.request
    }

    /// Returns the stored status, or an empty one.
    #[must_use]
    pub fn stored_status(&self) -> K::Status {
        CustomResource::status(&*self.object).cloned().unwrap_or_default()
    }

    /// Whether the user has paused the object. Always false for an object that is being deleted.
    #[must_use]
    pub fn is_paused(&self) -> bool {
        self.is_paused
    }

    /// Whether, by the stored status, the current spec was applied to all children before this pass.
    #[must_use]
    pub fn is_applied(&self) -> bool {
        self.is_applied
    }

    /// Whether the current spec reached the children before this pass, so that a difference is somebody else's change
    /// and a missing child was deleted. A pass with live reads assumes so.
    pub(in crate::controller) fn repairs(&self) -> bool {
        let may_be_overtaken = self.request.reads_live() || self.request.is_taking_over();
        may_be_overtaken || self.observes_this_spec() && !self.is_applying
    }

    /// Whether the object is unchanged in the cache since the pass began: uid, generation, deletion and pause.
    /// A long pass checks before each write, and stops once the object has changed.
    #[must_use]
    pub fn is_current(&self) -> bool {
        let Some(now) = self.tools.objects.get(&self.owner.name) else { return self.request.reads_live() };
        let Some(now) = now.readable() else { return true };
        let asks_for_pause = Object::annotations(&**now).is_some_and(annotations::ask_for_pause);
        let is_same = Object::uid(&**now) == self.owner.uid
            && Object::generation(&**now) == self.owner.generation
            && now.is_deleting() == self.object.is_deleting()
            && (asks_for_pause && !now.is_deleting()) == self.is_paused;
        let (now, then) = (Object::resource_version(&**now), Object::resource_version(&*self.object));
        is_same || compare_versions(now, then) != Some(Ordering::Greater)
    }

    /// Marks the spec as still being applied, although the stored status observes it: that status was written when the
    /// work began.
    pub fn applies_spec(&mut self) {
        self.is_applying = true;
    }

    /// Whether the object's deletion orphans its children (`kubectl delete --cascade=orphan`).
    #[must_use]
    pub fn is_orphaning(&self) -> bool {
        self.object.meta().finalizers.iter().flatten().any(|finalizer| finalizer == "orphan")
    }

    /// Whether the object, as read for this pass, has this finalizer.
    #[must_use]
    pub fn has_finalizer(&self, finalizer: &str) -> bool {
        self.object.meta().finalizers.iter().flatten().any(|known| known == finalizer)
    }

    /// Returns the writer of children, for operations that have no step here.
    #[must_use]
    pub fn children(&self) -> &Children {
        &self.tools.children
    }

    /// Returns the wall clock.
    #[must_use]
    pub fn clock(&self) -> Clock {
        self.tools.clock
    }

    /// Returns the reports of all steps so far.
    #[must_use]
    pub fn reports(&self) -> &[ChildHealth] {
        &self.reports
    }

    pub(in crate::controller) fn has_lag(&self) -> bool {
        self.has_lag
    }

    pub(in crate::controller) fn more_conditions(&self) -> &[(&'static str, Option<MoreCondition>)] {
        &self.more
    }

    /// Adds a report to the pass.
    pub fn report(&mut self, health: ChildHealth) {
        self.reports.push(health);
    }

    /// Sets a kind-specific condition, or removes it on `None`.
    pub fn condition(&mut self, type_: &'static str, condition: Option<(bool, String, String)>) {
        self.more.push((type_, condition));
    }

    /// Creates or updates a child to match `wanted`, and reports its health.
    ///
    /// # Errors
    /// [`StopReason`], when the connection broke or the object has changed. Any other error is reported, and the pass
    /// continues but fails at its end.
    ///
    /// # Cancel safety
    /// The next pass finds an interrupted create by its name.
    pub async fn apply<W: Wanted>(
        &mut self,
        wanted: &W,
        lister: &Lister<W::Observed>,
    ) -> Result<ApplyOutcome<W::Observed>, StopReason> {
        let children = &self.tools.children;
        let cached = lister.get(&ObjectName::new(self.owner.name.namespace(), wanted.name()));
        let applied = if self.is_paused {
            self.look(wanted, lister, cached.as_ref())
        } else if !self.is_current() {
            ApplyOutcome::OwnerChanged
        } else {
            let applied = match self.request.reads_live() {
                true => children.apply_live(&self.owner, wanted).await,
                false => children.apply(&self.owner, wanted, cached.as_ref(), self.repairs()).await,
            };
            match applied {
                Ok(applied) => applied,
                Err(error) => {
                    self.fails_at(&child(wanted), error)?;
                    let observed = cached.and_then(|cached| self.ours(&cached));
                    return Ok(ApplyOutcome::Failed { observed });
                }
            }
        };
        self.record(wanted, &applied);
        if matches!(applied, ApplyOutcome::OwnerChanged) {
            // The event for the changed object wakes the key.
            return Err(StopReason::Outcome(Outcome::Done));
        }
        let found = ChildHealth::of(&self.owner.resource.kind, wanted, &applied);
        let found = self.unless_it_only_lags(wanted, &applied, found);
        self.reports.push(found);
        Ok(applied)
    }

    /// Keeps an object Ready while a child's `observedGeneration` briefly lags, for example after an annotation. A
    /// write of our own ends this tolerance.
    fn unless_it_only_lags<W: Wanted>(
        &mut self,
        wanted: &W,
        applied: &ApplyOutcome<W::Observed>,
        found: ChildHealth,
    ) -> ChildHealth {
        let states = &self.tools.children.states;
        let ApplyOutcome::Unchanged(observed) = applied else {
            states.child_written(&self.owner.name);
            return found;
        };
        if !wanted.only_lags(observed) || !self.was_ready() {
            return found;
        }
        self.has_lag = true;
        match states.lag_time_left(&self.owner.name) {
            Some(left) => ChildHealth::ready(found.message).requeue_after(left),
            None => found,
        }
    }

    /// Whether the stored status says that the object is Ready with this spec.
    fn was_ready(&self) -> bool {
        self.observes_this_spec() && conditions::is_true(&self.stored_status().conditions(), READY)
    }

    /// Applies children of one kind in slow-start batches; one result each, `None` if not attempted: after a refusal,
    /// or because other keys wait (see [`has_had_its_turn`](SyncRequest::has_had_its_turn)). The second value
    /// is an error when the pass must stop, as for [`apply`](Self::apply). `was_there` tells which children existed
    /// before. The caller records the events of created children, even when the pass must stop.
    ///
    /// # Cancel safety
    /// As for [`apply`](Self::apply).
    pub async fn apply_each<W: Wanted>(
        &mut self,
        wanted: &[W],
        lister: &Lister<W::Observed>,
        was_there: impl Fn(usize) -> bool,
    ) -> (Vec<Option<ApplyOutcome<W::Observed>>>, Result<(), StopReason>) {
        let ended: Vec<Mutex<Option<ApplyOutcome<W::Observed>>>> =
            wanted.iter().map(|_| Mutex::new(None)).collect();
        let failures: Mutex<Vec<(usize, Error)>> = Mutex::default();
        let (children, owner, ctx) = (&self.tools.children, &self.owner, &*self);
        let one = |at: usize| {
            let (wanted, ended, failures) = (&wanted[at], &ended[at], &failures);
            let was_there = self.request.reads_live() || self.request.is_taking_over() || was_there(at);
            async move {
                // At least one write in each pass, so that it gets on.
                if at > 0 && ctx.leaves_the_rest() {
                    return Err(());
                }
                let applied = if !ctx.is_current() {
                    Ok(ApplyOutcome::OwnerChanged)
                } else if ctx.request.reads_live() {
                    children.apply_live(owner, wanted).await
                } else {
                    let name = ObjectName::new(owner.name.namespace(), wanted.name());
                    children.apply(owner, wanted, lister.get(&name).as_ref(), was_there).await
                };
                let applied = applied.map_err(|error| failures.lock().push((at, error)))?;
                // A taken name concerns one child; a refusal will likely hit the others, too.
                let goes_on = !matches!(applied, ApplyOutcome::Refused { .. } | ApplyOutcome::OwnerChanged);
                *ended.lock() = Some(applied);
                goes_on.then_some(()).ok_or(())
            }
        };
        slow_start_batch(wanted.len(), one).await;
        let ended: Vec<_> = ended.into_iter().map(Mutex::into_inner).collect();
        let mut outcome = Ok(());
        for (at, error) in failures.into_inner() {
            outcome = outcome.and(self.fails_at(&child(&wanted[at]), error));
        }
        for (wanted, applied) in wanted.iter().zip(&ended) {
            match applied {
                Some(ApplyOutcome::OwnerChanged) => {
                    outcome = outcome.and(Err(StopReason::Outcome(Outcome::Done)))
                }
                Some(applied) => {
                    // The caller records created children.
                    if !applied.was_created() {
                        self.record(wanted, applied);
                    }
                    if !applied.is_as_wanted() {
                        self.reports.push(ChildHealth::of(&self.owner.resource.kind, wanted, applied));
                    }
                }
                None => {}
            }
        }
        (ended, outcome)
    }

    /// Whether a batch was cut short because other keys wait.
    #[must_use]
    pub fn is_cut_short(&self) -> bool {
        self.is_cut_short.load(atomic::Ordering::Relaxed)
    }

    /// Whether to leave the rest of a batch to the next pass.
    fn leaves_the_rest(&self) -> bool {
        let leaves = self.request.has_had_its_turn();
        self.is_cut_short.fetch_or(leaves, atomic::Ordering::Relaxed);
        leaves
    }

    /// Reports that the server refuses to delete a child, to be retried after `requeue_after`.
    pub fn refused_deletion(&mut self, child: &str, status: &ServerStatus, requeue_after: Duration) {
        self.report(ChildHealth::refused(&format!("to delete {child}"), status).requeue_after(requeue_after));
    }

    /// Fails the pass once its status is written. Of several errors, keeps the one with the longest `Retry-After`.
    pub fn fails_after_its_status(&mut self, error: Error) {
        if self.failure.as_ref().is_none_or(|known| known.retry_after() < error.retry_after()) {
            self.failure = Some(error);
        }
    }

    pub(in crate::controller) fn take_failure(&mut self) -> Option<Error> {
        self.failure.take()
    }

    /// Returns the object's resource version, which the next write must name.
    pub(in crate::controller) fn version(&self) -> &str {
        &self.version
    }

    /// Records an event for an updated child, or notes a created child for a later event.
    fn record<W: Wanted>(&mut self, wanted: &W, applied: &ApplyOutcome<W::Observed>) {
        let child = child(wanted);
        match applied {
            ApplyOutcome::Created(_) | ApplyOutcome::StoredOtherwise { is_new: true, .. } => {
                self.created.push(child);
            }
            ApplyOutcome::Updated(_, differences) => self.record_update(&child, differences),
            ApplyOutcome::StoredOtherwise { is_new: false, repaired, .. } => {
                self.record_update(&child, repaired);
            }
            ApplyOutcome::Contended { repaired, .. } => self.record_update(&child, repaired),
            ApplyOutcome::Unchanged(_)
            | ApplyOutcome::Terminating(_)
            | ApplyOutcome::OwnerChanged
            | ApplyOutcome::ResourceExists { .. }
            | ApplyOutcome::Refused { .. }
            | ApplyOutcome::Paused { .. }
            | ApplyOutcome::Failed { .. } => {}
        }
    }

    /// Records an event that names the written fields of a child, if there are any.
    fn record_update(&mut self, child: &str, differences: &[Difference]) {
        if differences.is_empty() {
            return;
        }
        let (reason, verb) = match self.had_reached(child) {
            true => ("ChildRepaired", "Repaired"),
            false => ("ChildUpdated", "Updated"),
        };
        let note = format!("{verb} {child}: {}", describe(differences));
        self.event(EventType::Normal, reason, "Update", note);
    }

    /// Whether the current spec had already reached this child, so that a difference is somebody else's change. A
    /// problem of another child does not count; after a restart it is unknown which child had the problem.
    fn had_reached(&self, child: &str) -> bool {
        let conditions = self.stored_status().conditions();
        let is_unreached = conditions::reason(&conditions, READY).is_some_and(|reason| {
            [reason::STORED_OTHERWISE, reason::CHILD_REFUSED, reason::CHILD_FAILING].contains(&reason)
                && self.tools.children.states.problem_is_about(&self.owner.name, child) != Some(false)
        });
        self.observes_this_spec() && !self.is_applying && !is_unreached
    }

    /// Records an event about the object.
    pub fn event(&self, event_type: EventType, reason: &'static str, action: &'static str, note: String) {
        let resource = &self.owner.resource;
        let regarding = Regarding {
            api_version: resource.api_version(),
            kind: resource.kind.to_string(),
            namespace: self.owner.name.namespace().map(str::to_owned),
            name: self.name().to_owned(),
            uid: self.owner.uid.clone(),
            resource_version: Object::resource_version(&*self.object).to_owned(),
        };
        tracing::debug!(reason, note, "Recorded an event");
        self.tools.recorder.event(regarding, event_type, reason, action, note);
    }

    /// Defers an event until the status is written.
    pub fn event_when_written(
        &mut self,
        event_type: EventType,
        reason: &'static str,
        action: &'static str,
        note: String,
    ) {
        self.events.push((event_type, reason, action, note));
    }

    /// Records one event for all children created in this pass.
    pub(in crate::controller) fn record_created(&mut self) {
        let created = std::mem::take(&mut self.created);
        if !created.is_empty() {
            let note = format!("Created {}", created.join(", "));
            self.event(EventType::Normal, "ChildCreated", "Create", note);
        }
    }

    /// Records the deferred events.
    pub(in crate::controller) fn record_left(&mut self) {
        for (event_type, reason, action, note) in std::mem::take(&mut self.events) {
            self.event(event_type, reason, action, note);
        }
    }

    /// Whether the stored status observes the current spec.
    #[must_use]
    pub fn observes_this_spec(&self) -> bool {
        let observed = CustomResource::status(&*self.object).and_then(CommonStatus::observed_generation);
        observed == self.object.meta().generation
    }
}

/// Formats kind and name of a child for messages.
fn child<W: Wanted>(wanted: &W) -> String {
    format!("{} {:?}", W::Observed::resource().kind, wanted.name())
}

/// See [`ReconcileContext::is_applied`].
fn is_applied<K: CustomResource>(object: &K) -> bool {
    let Some(status) = CustomResource::status(object) else { return false };
    status.observed_generation() == object.meta().generation
        && conditions::reason(&status.conditions(), READY)
            .is_some_and(|reason| !reason::NOT_APPLIED.contains(&reason))
}

impl<K: fmt::Debug> fmt::Debug for ReconcileContext<'_, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReconcileContext")
            .field("owner", &self.owner)
            .field("reports", &self.reports)
            .finish_non_exhaustive()
    }
}

mod failing;
mod own;
mod paused;
mod unwanted;
