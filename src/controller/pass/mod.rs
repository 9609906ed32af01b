//! One sync of one key, top to bottom: what a kind's reconciler may do in it, and what comes of that.
//!
//! Mirrors sample-controller `controller.go` (`syncHandler`) and controller-runtime `controllerutil`.
//!
//! | file | what it does |
//! |---|---|
//! | [`reconciler`] | gets the object, calls the kind, writes the status, records the events |
//! | [`owner`], [`trust`] | the object as the owner of its children; what a write requires of it |
//! | [`writes`] | the only place that writes children and finalizers |
//! | [`apply`], [`batch`] | brings one child, or many, to the wanted state |
//! | [`apply_outcome`] | the result of applying a child, and its health |
//! | [`delete`], [`prune`], [`lost_labels`] | removes children; finds those that the cache does not show |
//! | [`own`], [`finalizers`], [`status`], [`events`] | annotations, finalizers, status and events of the object |
//! | `failing`, `paused` | goes on after the error of one child; observes the children of a paused object |
//!
//! # Guarantees
//! - The reports of all steps become the object's conditions. (test: `each_outcome_maps_to_its_health`)
//! - A manual change to a child is reverted, with an event that names the field.
//!   (test: `manual_change_is_reverted_and_foreign_metadata_kept`)
//! - A step that finds a newer spec ends the sync without writing a status.
//!   (test: `pass_over_an_outdated_spec_reports_nothing`)
//! - A failing child does not hold up the others, and is reported once the failure lasts.
//!   (test: `failing_child_is_reported_and_blocks_no_other`)

pub(super) mod apply;
pub(super) mod apply_outcome;
pub(super) mod batch;
pub(super) mod custom_resource;
pub(super) mod delete;
mod events;
mod failing;
mod finalizers;
pub(super) mod lost_labels;
mod own;
pub(super) mod owner;
mod paused;
mod prune;
pub(super) mod reconciler;
pub(super) mod slow_start;
pub(super) mod status;
pub(super) mod trust;
pub(super) mod writes;

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};

use super::key::KeyState;
use super::kinds::health::{ChildHealth, reason};
use super::run::outcome::{Outcome, SyncError, SyncRequest, Trust, Turn};
use crate::api::conditions::{self, READY};
use crate::cache::{Lister, Object, compare_versions};
use crate::client::{ApiClient, Clock, Error};
use crate::metrics::ControllerMetrics;
use crate::record::{EventRecorder, EventType};
use custom_resource::{CommonStatus, CustomResource};
use finalizers::OwnerWriter;
use owner::Owner;
use trust::{Mode, OwnerRead};

/// Why a sync ends before its status is computed.
#[derive(Debug)]
pub enum StopReason {
    /// The sync failed and is retried after the backoff.
    Failed(SyncError),
    /// The sync cannot continue, for example because the object has changed. No status is written.
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

/// The clients, caches and recorders that the syncs of kind `K` work with.
#[derive(Debug)]
pub struct Tools<K> {
    /// Sends requests to the API server.
    pub client: ApiClient,
    /// Lists the objects of the kind, from the cache.
    pub objects: Lister<K>,
    /// Makes the informer of the objects relist.
    pub relist: Relist,
    /// Records events.
    pub recorder: EventRecorder,
    /// Supplies the times in conditions.
    pub clock: Clock,
    /// Counts events such as contended children.
    pub metrics: ControllerMetrics,
}

/// Makes an informer relist, after a live read has returned an older object than its cache holds: the server's store
/// was restored from a backup.
#[derive(Clone, Default)]
pub struct Relist(Option<Arc<dyn Fn() + Send + Sync>>);

/// A kind-specific condition: status, reason and message.
pub(in crate::controller) type MoreCondition = (bool, String, String);

/// One sync of one object; see the module.
pub struct Pass<'a, K> {
    tools: &'a Tools<K>,
    object: Arc<K>,
    owner: Owner,
    mode: Mode,
    trust: Trust,
    /// The record of the key. The lock is for children that are applied at the same time.
    state: Mutex<&'a mut KeyState>,
    turn: Turn<'a>,
    /// The last live read of the owner.
    owner_read: OwnerRead,
    reports: Vec<ChildHealth>,
    more: Vec<(&'static str, Option<MoreCondition>)>,
    /// The created children that have no event yet.
    created: Vec<String>,
    /// Events to record once the status is stored.
    events: Vec<(EventType, &'static str, &'static str, String)>,
    /// The error that fails the sync once its status is written.
    failure: Option<Error>,
}

// === impl Relist ===

impl Relist {
    /// Calls `relist` when a relist is needed.
    #[must_use]
    pub fn by(relist: impl Fn() + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(relist)))
    }

    fn ask(&self) {
        if let Some(relist) = &self.0 {
            relist();
        }
    }
}

impl fmt::Debug for Relist {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Relist").field(&self.0.is_some()).finish()
    }
}

// === impl Pass ===

impl<'a, K: CustomResource> Pass<'a, K> {
    /// Begins a sync of `object`.
    #[must_use]
    pub fn new(tools: &'a Tools<K>, object: Arc<K>, request: SyncRequest<'a>) -> Self {
        let owner = Owner::of(&*object).managed_by(tools.client.manager());
        let SyncRequest { trust, turn, state, .. } = request;
        state.begin(&owner.uid);
        Self {
            mode: Mode::of(&*object),
            tools,
            object,
            owner,
            trust,
            state: Mutex::new(state),
            turn,
            owner_read: OwnerRead::default(),
            reports: Vec::new(),
            more: Vec::new(),
            created: Vec::new(),
            events: Vec::new(),
            failure: None,
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

    /// Returns how far the caches are trusted.
    #[must_use]
    pub fn trust(&self) -> Trust {
        self.trust
    }

    /// Returns the stored status, or an empty one.
    #[must_use]
    pub fn stored_status(&self) -> K::Status {
        CustomResource::status(&*self.object).cloned().unwrap_or_default()
    }

    /// Whether the user has paused the object. Always false for an object that is being deleted.
    #[must_use]
    pub fn is_paused(&self) -> bool {
        self.mode == Mode::Observe
    }

    /// Whether the stored status observes the current spec.
    #[must_use]
    pub fn observes_this_spec(&self) -> bool {
        let observed = CustomResource::status(&*self.object).and_then(CommonStatus::observed_generation);
        observed.unwrap_or_default() == Object::generation(&*self.object)
    }

    /// Whether, by the stored status, the current spec was applied to all children before this sync.
    #[must_use]
    pub fn is_applied(&self) -> bool {
        let conditions = self.stored_status().conditions();
        let is_applied = |reason: &str| !reason::NOT_APPLIED.contains(&reason);
        self.observes_this_spec() && conditions::reason(&conditions, READY).is_some_and(is_applied)
    }

    /// Whether the object is unchanged in the cache since the sync began: uid, generation, deletion and pause.
    /// A long sync checks before each write, and stops once the object has changed.
    #[must_use]
    pub fn is_current(&self) -> bool {
        let Some(now) = self.tools.objects.get(&self.owner.name) else { return self.trust == Trust::Nothing };
        let Some(now) = now.readable() else { return true };
        let is_same = Object::uid(&**now) == self.owner.uid
            && Object::generation(&**now) == self.owner.generation
            && now.is_deleting() == self.object.is_deleting()
            && Mode::of(&**now) == self.mode;
        let (now, then) = (Object::resource_version(&**now), Object::resource_version(&*self.object));
        is_same || compare_versions(now, then) != Some(Ordering::Greater)
    }

    /// Whether the object's deletion orphans its children (`kubectl delete --cascade=orphan`).
    #[must_use]
    pub fn is_orphaning(&self) -> bool {
        self.has_finalizer("orphan")
    }

    /// Whether the object, as read for this sync, has this finalizer.
    #[must_use]
    pub fn has_finalizer(&self, finalizer: &str) -> bool {
        self.object.finalizers().contains(&finalizer)
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

    /// Adds a report to the sync.
    pub fn report(&mut self, health: ChildHealth) {
        self.reports.push(health);
    }

    /// Sets a kind-specific condition, or removes it on `None`.
    pub fn condition(&mut self, type_: &'static str, condition: Option<(bool, String, String)>) {
        self.more.push((type_, condition));
    }

    /// Returns a writer of the object itself.
    fn writer(&self) -> OwnerWriter<'_, 'a> {
        self.writer_through(&self.tools.client)
    }

    /// Like [`writer`](Self::writer), with another client.
    fn writer_through<'p>(&'p self, client: &'p ApiClient) -> OwnerWriter<'p, 'a> {
        OwnerWriter { client, owner: &self.owner, state: &self.state }
    }

    /// Returns the record of the key.
    fn state(&self) -> MutexGuard<'_, &'a mut KeyState> {
        self.state.lock()
    }
}

impl<K: fmt::Debug> fmt::Debug for Pass<'_, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pass")
            .field("owner", &self.owner)
            .field("reports", &self.reports)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
#[cfg(feature = "sim")]
pub(super) mod tests;
