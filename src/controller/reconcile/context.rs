//! One pass over one object: what a kind's operator may do in it, and what is written down of it.
//!
//! Each step brings something nearer to what is wanted, records an event of what it did, and leaves a
//! [`ChildHealth`] of what it found. When the object is paused the same steps look and write nothing.
//!
//! # Guarantees
//! - What a step finds becomes the object's conditions. (test: `each_outcome_has_its_health`)
//! - What was changed by hand is put back with an event that names the field, one child or many. (test: `a_change_by_hand_is_named_and_put_back_and_what_is_not_ours_stays`)
//! - Also beside a field that is not put back, for a webhook or a rival. (test: `what_is_put_back_beside_what_is_not_is_reported`)
//! - Also what was changed while another child stood in the way, or in a pause. (test: `a_hand_edit_is_reported_beside_an_obstacle_of_another`)
//! - Of a batch of which one is refused and another fails, the failure is not lost. (test: `an_error_beside_a_refusal_is_not_lost`)
//! - A child that a webhook alters is told as created all the same. (test: `a_child_that_a_webhook_alters_is_reported_as_created`)
//! - A step that finds the owner to have moved on ends the pass, and no status is written. (test: `a_pass_over_a_spec_that_has_moved_on_says_nothing`)
//! - A child that fails holds up no other, and is told when it lasts. (test: `a_failing_child_holds_up_no_other_and_is_reported`)

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::reconciler::{CommonStatus, CustomResource, Tools};
use crate::api::annotations;
use crate::api::conditions::{self, READY};
use crate::cache::{Lister, Object, ObjectName, compare_versions};
use crate::client::{Clock, Error, ServerStatus};
use crate::controller::children::apply::Children;
use crate::controller::children::apply_outcome::ApplyOutcome;
use crate::controller::children::owner::Owner;
use crate::controller::children::slow_start::slow_start_batch;
use crate::controller::kinds::Wanted;
use crate::controller::kinds::difference::{Difference, describe};
use crate::controller::kinds::health::{ChildHealth, reason};
use crate::controller::run::outcome::{Outcome, SyncError, SyncRequest};
use crate::record::{EventType, Regarding};

/// Why a pass ends before its status is worked out.
#[derive(Debug)]
pub enum StopReason {
    /// It failed, and is to be tried again.
    Failed(SyncError),
    /// What it was based on is not so any more.
    Outcome(Outcome),
    /// What was found says all there is to say: the status stays as it is stored, but for its conditions.
    KeepStatus,
}

impl<E: std::error::Error + Send + Sync + 'static> From<E> for StopReason {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

/// A condition of a kind's own: status, reason and message.
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
    /// A child's `observedGeneration` is behind, and nothing else.
    has_lag: bool,
    /// The children that were created and have no event yet.
    created: Vec<String>,
    version: String,
    events: Vec<(EventType, &'static str, &'static str, String)>,
    failure: Option<Error>,
    is_failing: bool,
}

// === impl ReconcileContext ===

impl<'a, K: CustomResource> ReconcileContext<'a, K> {
    pub(in crate::controller) fn new(tools: &'a Tools<K>, object: Arc<K>, request: SyncRequest<'a>) -> Self {
        let owner = Owner::of(&*object);
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
        }
    }

    /// The object.
    #[must_use]
    pub fn object(&self) -> &K {
        &self.object
    }

    /// The same, to be kept.
    #[must_use]
    pub fn shared(&self) -> Arc<K> {
        self.object.clone()
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.owner.name.name()
    }

    /// The object as the owner of its children.
    #[must_use]
    pub fn owner(&self) -> &Owner {
        &self.owner
    }

    /// Why the pass is made.
    #[must_use]
    pub fn request(&self) -> SyncRequest<'a> {
        self.request
    }

    /// Its status as stored, or an empty one.
    #[must_use]
    pub fn stored_status(&self) -> K::Status {
        CustomResource::status(&*self.object).cloned().unwrap_or_default()
    }

    /// Whether the user asked that nothing be written for it. Never so for an object that is being deleted.
    #[must_use]
    pub fn is_paused(&self) -> bool {
        self.is_paused
    }

    /// Whether the present spec had reached the children already, as the stored status tells.
    #[must_use]
    pub fn is_applied(&self) -> bool {
        self.is_applied
    }

    /// Whether the present spec had reached the children before this pass: what differs now was changed by somebody else,
    /// and a child that is missing was there. A pass that believes no cache takes it so.
    pub(in crate::controller) fn repairs(&self) -> bool {
        self.request.reads_live() || self.observes_this_spec() && !self.is_applying
    }

    /// Whether the cache still shows the object as it was when the pass began: its uid, spec, deletion mark and pause.
    /// A long pass looks before each write, and stops when the object has moved on.
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

    /// What follows applies the present spec, although a stored status is about it: one that was written when it was
    /// begun.
    pub fn applies_spec(&mut self) {
        self.is_applying = true;
    }

    /// Whether its children are to be left when it goes (`kubectl delete --cascade=orphan`).
    #[must_use]
    pub fn is_orphaning(&self) -> bool {
        self.object.meta().finalizers.iter().flatten().any(|finalizer| finalizer == "orphan")
    }

    /// Whether it has this finalizer, as the cache shows it.
    #[must_use]
    pub fn has_finalizer(&self, finalizer: &str) -> bool {
        self.object.meta().finalizers.iter().flatten().any(|known| known == finalizer)
    }

    /// Writes children beyond what the steps here do.
    #[must_use]
    pub fn children(&self) -> &Children {
        &self.tools.children
    }

    /// Stamps times.
    #[must_use]
    pub fn clock(&self) -> Clock {
        self.tools.clock
    }

    /// What all the steps have found.
    #[must_use]
    pub fn reports(&self) -> &[ChildHealth] {
        &self.reports
    }

    pub(in crate::controller) fn has_lag(&self) -> bool {
        self.has_lag
    }

    pub(in crate::controller) fn is_hot(&self) -> bool {
        self.request.is_hot()
    }

    pub(in crate::controller) fn more_conditions(&self) -> &[(&'static str, Option<MoreCondition>)] {
        &self.more
    }

    /// Writes down what was found.
    pub fn report(&mut self, health: ChildHealth) {
        self.reports.push(health);
    }

    /// Sets a condition beside the common ones, or takes it off.
    pub fn condition(&mut self, type_: &'static str, condition: Option<(bool, String, String)>) {
        self.more.push((type_, condition));
    }

    /// Makes a child as it is wanted; what becomes of it is written down.
    ///
    /// # Errors
    /// [`StopReason`], when the connection broke or the object has moved on: the pass is over. Any other error is found, and
    /// the pass goes on; it fails in the end.
    ///
    /// # Cancel safety
    /// A write that is cut is found again by its name.
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
            // The event that shows it is on its way to the cache.
            return Err(StopReason::Outcome(Outcome::Done));
        }
        let found = ChildHealth::of(&self.owner.resource.kind, wanted, &applied);
        let found = self.unless_it_only_lags(wanted, &applied, found);
        self.reports.push(found);
        Ok(applied)
    }

    /// A child whose `observedGeneration` is behind for a moment, because somebody has annotated it say, takes nothing
    /// back that was Ready for this spec; unless we have written it ourselves.
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

    /// Applies children of one kind in slow-start batches; one result each, `None` if not attempted, and whether the pass
    /// goes on, as [`apply`](Self::apply) says it. `was_there` tells which of them were there before. The event of what
    /// was created is the caller's, also when the pass is over.
    ///
    /// # Cancel safety
    /// As [`apply`](Self::apply).
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
            let was_there = self.request.reads_live() || was_there(at);
            async move {
                let applied = if !ctx.is_current() {
                    Ok(ApplyOutcome::OwnerChanged)
                } else if ctx.request.reads_live() {
                    children.apply_live(owner, wanted).await
                } else {
                    let name = ObjectName::new(owner.name.namespace(), wanted.name());
                    children.apply(owner, wanted, lister.get(&name).as_ref(), was_there).await
                };
                let applied = applied.map_err(|error| failures.lock().push((at, error)))?;
                // A name that is taken says nothing of the others; a refusal does.
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
                    // Of those that are new the event is the caller's.
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

    /// Writes down that the server refuses to delete a child, and when it is asked again.
    pub fn refused_deletion(&mut self, child: &str, status: &ServerStatus, requeue_after: Duration) {
        self.report(ChildHealth::refused(&format!("to delete {child}"), status).requeue_after(requeue_after));
    }

    /// The pass has failed, and its status is true all the same: it is written first. Of several errors the one counts
    /// that asks for the longest wait.
    pub fn fails_after_its_status(&mut self, error: Error) {
        if self.failure.as_ref().is_none_or(|known| known.retry_after() < error.retry_after()) {
            self.failure = Some(error);
        }
    }

    pub(in crate::controller) fn take_failure(&mut self) -> Option<Error> {
        self.failure.take()
    }

    /// The version of the object, of which the next write of it is made.
    pub(in crate::controller) fn version(&self) -> &str {
        &self.version
    }

    /// What was done to a child.
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

    /// That these fields of a child were written, if any.
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

    /// Whether the present spec had reached this child already: then somebody else has changed it since. What stands in
    /// the way of another child says nothing of this one; a new process does not know which child it was.
    fn had_reached(&self, child: &str) -> bool {
        let conditions = self.stored_status().conditions();
        let is_unreached = conditions::reason(&conditions, READY).is_some_and(|reason| {
            [reason::STORED_OTHERWISE, reason::CHILD_REFUSED, reason::CHILD_FAILING].contains(&reason)
                && self.tools.children.states.obstacle_is_about(&self.owner.name, child) != Some(false)
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
        if event_type == EventType::Normal {
            tracing::info!(reason, note, "{action}");
        }
        self.tools.recorder.event(regarding, event_type, reason, action, note);
    }

    /// Records an event when the status is written: of what is only so when it is stored.
    pub fn event_when_written(
        &mut self,
        event_type: EventType,
        reason: &'static str,
        action: &'static str,
        note: String,
    ) {
        self.events.push((event_type, reason, action, note));
    }

    /// Records one event of all children that the pass has created.
    pub(in crate::controller) fn record_created(&mut self) {
        let created = std::mem::take(&mut self.created);
        if !created.is_empty() {
            let note = format!("Created {}", created.join(", "));
            self.event(EventType::Normal, "ChildCreated", "Create", note);
        }
    }

    /// Records what was left for now.
    pub(in crate::controller) fn record_left(&mut self) {
        for (event_type, reason, action, note) in std::mem::take(&mut self.events) {
            self.event(event_type, reason, action, note);
        }
    }

    /// Whether the stored status is about the present spec.
    #[must_use]
    pub fn observes_this_spec(&self) -> bool {
        let observed = CustomResource::status(&*self.object).and_then(CommonStatus::observed_generation);
        observed == self.object.meta().generation
    }
}

/// Kind and name of a child, for a person.
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
