//! Audits one informer: compares the server's metadata with the cache, and repairs what the cache has missed.

use std::cmp::Ordering;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep};

use super::uids::Uids;
use super::{AuditContext, Role, UNLABELLED_EVERY, unlabelled};
use crate::api::shards::ShardSet;
use crate::api::{ApiResource, labels};
use crate::cache::{Meta, ObjectName, Selection, SharedInformer, Store, TypedObject, compare_versions};
use crate::client::Error;
use crate::metrics::{AuditMetrics, AuditResult};

/// How long the cache may take to reach the version of the list: a server sends a bookmark every minute.
const PATIENCE: Duration = Duration::from_secs(120);
/// How often the cache is checked meanwhile.
const LOOK: Duration = Duration::from_secs(1);
/// How many mismatches are followed up. The relist repairs the others.
const MISMATCHES_MAX: usize = 1000;
/// How often a step is tried in a period.
const TRIES: u32 = 8;

/// Audits one informer; see the module.
pub(super) struct KindAudit<K: TypedObject> {
    informer: SharedInformer<K>,
    store: Store<K>,
    resource: ApiResource,
    selection: Selection,
    role: Role,
    context: Arc<AuditContext>,
    metrics: AuditMetrics,
    /// Version of the last list, if the cache did not reach it in time.
    late: Option<String>,
    /// Whether the kind has not been relisted in this period.
    may_relist: bool,
}

#[derive(Clone, Copy, Debug)]
enum Comparison {
    Compare,
    Unlabelled,
}

#[derive(Deserialize)]
struct Item {
    metadata: Identity,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Identity {
    namespace: Option<String>,
    name: String,
    uid: String,
    resource_version: String,
}

#[derive(Deserialize)]
struct Live {
    #[serde(deserialize_with = "Meta::deserialize_leniently")]
    metadata: Meta,
}

/// A mismatch between list and cache.
#[derive(Debug)]
enum Mismatch {
    /// The list has this state of an object; the cache has an older one, another uid, or nothing.
    Missed { name: ObjectName, uid: String, version: String },
    /// The cache has this object; the list, which is not older, does not.
    Ghost { name: ObjectName, uid: String },
    /// The cache has this state of an object; the list, which is not older, has an older one. The server's store was
    /// restored from a backup.
    Undone { name: ObjectName, uid: String, version: String },
}

// === impl KindAudit ===

impl<K: TypedObject> KindAudit<K> {
    pub(super) fn new(informer: SharedInformer<K>, role: Role, context: Arc<AuditContext>) -> Self {
        let (store, resource) = (informer.store(), ApiResource::of::<K>());
        let selection = informer.selection().clone();
        let metrics = context.metrics.audits(&resource.to_string());
        Self { informer, store, resource, selection, role, context, metrics, late: None, may_relist: true }
    }

    /// Audits once per period, starting after the delay `first`.
    pub(super) async fn run(mut self, first: Duration) {
        let mut tick = interval_at(Instant::now() + first, self.context.period);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        for period in 1_u32.. {
            tick.tick().await;
            self.may_relist = true;
            self.try_step(Comparison::Compare).await;
            if self.role == Role::Child && self.selects_our_label() && period.is_multiple_of(UNLABELLED_EVERY)
            {
                self.try_step(Comparison::Unlabelled).await;
            }
        }
    }

    /// Runs a step, and retries it over half a period while it fails.
    async fn try_step(&mut self, step: Comparison) {
        for _ in 0..TRIES {
            let outcome = match step {
                Comparison::Compare => self.compare().await,
                Comparison::Unlabelled => {
                    let namespace = self.selection.namespace.as_deref();
                    unlabelled::queue_owners(&self.context, &self.resource, namespace).await
                }
            };
            let Err(error) = outcome else { return };
            tracing::debug!(
                kind = %self.resource,
                namespace = self.selection.namespace,
                ?step,
                error = &error as &dyn std::error::Error,
                "Audit failed; retrying"
            );
            sleep(self.context.period / (2 * TRIES)).await;
        }
    }

    async fn compare(&mut self) -> Result<(), Error> {
        let outcome = self.find_and_repair().await;
        self.metrics.audited(*outcome.as_ref().unwrap_or(&AuditResult::Error));
        outcome.map(drop)
    }

    async fn find_and_repair(&mut self) -> Result<AuditResult, Error> {
        let shards = self.informer.shards().cloned();
        let Some(shards) = shards else { return self.find_and_repair_in(None).await };
        let scope = shards.scope();
        if scope.set.is_empty() {
            return Ok(AuditResult::Clean);
        }
        // What the cache is to have changes with the shards; the next period looks at the new ones.
        tokio::select! {
            biased;
            () = shards.changed(&scope) => Ok(AuditResult::Late),
            outcome = self.find_and_repair_in(Some(&scope.set)) => outcome,
        }
    }

    /// Finds and repairs what the cache has missed, in some shards or, with `None`, in all.
    async fn find_and_repair_in(&mut self, shards: Option<&ShardSet>) -> Result<AuditResult, Error> {
        if !self.informer.synced().is_synced() {
            return Ok(AuditResult::Late);
        }
        let reached = self.store.resource_version();
        let (version, mut mismatches) = self.list(&reached, shards).await?;
        if is_newer(&reached, &version) {
            tracing::warn!(
                kind = %self.resource,
                namespace = self.selection.namespace,
                "The server is at an earlier version than the cache: its store was restored from a backup; relisting"
            );
            self.metrics.found(1);
            self.relist();
            return Ok(AuditResult::Found);
        }
        if !self.catches_up(&version, &mut mismatches).await {
            self.is_late(version);
            return Ok(AuditResult::Late);
        }
        self.late = None;
        self.confirm(&mismatches, &version).await
    }

    /// Compares each object with the cache as its page arrives; returns the version of the list and the
    /// mismatches. `reached` is the version of the cache before it.
    async fn list(&self, reached: &str, shards: Option<&ShardSet>) -> Result<(String, Vec<Mismatch>), Error> {
        let mut uids = Uids::expecting(self.store.len());
        let mut mismatches = Vec::new();
        let each = |Item { metadata: Identity { namespace, name, uid, resource_version } }: Item| {
            if shards.is_some_and(|shards| !shards.has_namespace(namespace.as_deref().unwrap_or_default())) {
                return;
            }
            uids.insert(&uid);
            let name = ObjectName::new(namespace.as_deref(), &name);
            if mismatches.len() >= MISMATCHES_MAX {
                return;
            }
            if let Some(version) = self.undone(&name, &uid, &resource_version, reached) {
                mismatches.push(Mismatch::Undone { name, uid, version });
            } else if !self.has(&name, &uid, &resource_version) {
                mismatches.push(Mismatch::Missed { name, uid, version: resource_version });
            }
        };
        let Selection { namespace, label_selector, field_selector } = &self.selection;
        let shards = shards.and_then(ShardSet::selector);
        let selectors =
            [label_selector, field_selector, &shards].map(|selector| selector.as_deref().unwrap_or_default());
        let listed =
            self.context.client.each_selected_metadata(&self.resource, namespace.as_deref(), selectors, each);
        let version = listed.await?;
        let uids = uids.sorted();
        self.store.for_each(|name, cached| {
            if is_newer(cached.resource_version(), &version) || uids.contains(cached.uid()) {
                return;
            }
            // The list may have this name with another uid, which is a mismatch already.
            let is_known = mismatches.iter().any(|mismatch: &Mismatch| mismatch.name() == name);
            if mismatches.len() < MISMATCHES_MAX && !is_known {
                mismatches.push(Mismatch::Ghost { name: name.clone(), uid: cached.uid().to_owned() });
            }
        });
        Ok((version, mismatches))
    }

    /// Waits until the cache has reached the list or agrees with it; returns `false` on a timeout. Drops the
    /// mismatches that are resolved meanwhile.
    async fn catches_up(&self, version: &str, mismatches: &mut Vec<Mismatch>) -> bool {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let has_passed = self.has_passed(version);
            mismatches.retain(|mismatch| self.differs(mismatch, version));
            if has_passed || mismatches.is_empty() {
                return true;
            }
            if Instant::now() >= deadline {
                return false;
            }
            sleep(LOOK).await;
        }
    }

    /// Relists if the cache has not even reached the list of the previous period: its watch delivers no events any
    /// more.
    fn is_late(&mut self, version: String) {
        if self.late.as_deref().is_some_and(|before| !self.has_passed(before)) {
            tracing::warn!(
                kind = %self.resource,
                namespace = self.selection.namespace,
                "The cache has lagged behind the server for a whole audit period; relisting"
            );
            self.relist();
        }
        self.late = Some(version);
    }

    /// Reads the remaining mismatches live; for the confirmed ones, enqueues the owners and relists.
    async fn confirm(&mut self, mismatches: &[Mismatch], version: &str) -> Result<AuditResult, Error> {
        let (mut findings, mut first, mut outcome) = (0, None, Ok(()));
        for mismatch in mismatches {
            let name = mismatch.name();
            let client = &self.context.client;
            let live = match client.get_metadata(&self.resource, name.namespace(), name.name()).await {
                Ok(live) => live.map(|Live { metadata }| metadata),
                Err(error) => {
                    outcome = Err(error);
                    break;
                }
            };
            if self.is_confirmed(mismatch, version, live.as_ref()) {
                self.queue_owner(name, live.as_ref());
                findings += 1;
                first.get_or_insert(name);
            }
        }
        if let Some(object) = first {
            self.metrics.found(findings);
            tracing::warn!(
                kind = %self.resource,
                namespace = self.selection.namespace,
                findings,
                %object,
                "The cache had missed changes, the first of them to this object; relisting"
            );
            self.relist();
        }
        outcome?;
        Ok(if findings > 0 { AuditResult::Found } else { AuditResult::Clean })
    }

    /// Whether a live read confirms that the cache has missed a change.
    fn is_confirmed(&self, mismatch: &Mismatch, list: &str, live: Option<&Meta>) -> bool {
        match mismatch {
            Mismatch::Missed { name, uid, version } => live.is_some_and(|live| {
                // What was in the list was selected.
                let is_selected = self.selects(live).unwrap_or(*live.resource_version == **version);
                // Check the version before the object: a cache that has reached it receives nothing older.
                let has_passed = self.has_passed(&live.resource_version);
                let is_it = is_selected && *live.uid == **uid;
                is_it && has_passed && !self.has(name, uid, &live.resource_version)
            }),
            Mismatch::Undone { uid, version, .. } => {
                let is_older = |live: &Meta| *live.uid == **uid && is_newer(version, &live.resource_version);
                live.is_some_and(is_older) && self.differs(mismatch, list)
            }
            Mismatch::Ghost { uid, .. } => {
                // What has not changed since the list, and was not in it, was not selected.
                let is_selected = |live: &Meta| {
                    self.selects(live).unwrap_or_else(|| is_newer(&live.resource_version, list))
                };
                let selected = live.filter(|live| is_selected(live));
                selected.is_none_or(|live| *live.uid != **uid) && self.differs(mismatch, list)
            }
        }
    }

    /// Whether the informer selects an object with this metadata; `None` if only the server can tell.
    fn selects(&self, live: &Meta) -> Option<bool> {
        let Selection { label_selector, field_selector, .. } = &self.selection;
        if label_selector.is_none() && field_selector.is_none() {
            return Some(true);
        }
        let manager = self.context.client.manager();
        self.selects_our_label().then(|| live.labels.get(labels::MANAGED_BY) == Some(manager))
    }

    /// Whether the informer selects by our label and by nothing else.
    fn selects_our_label(&self) -> bool {
        let Selection { label_selector, field_selector, .. } = &self.selection;
        let ours = labels::selector(self.context.client.manager());
        label_selector.as_ref() == Some(&ours) && field_selector.is_none()
    }

    /// Enqueues a custom resource itself, or the known controllers of a child.
    fn queue_owner(&self, name: &ObjectName, live: Option<&Meta>) {
        let owners = &self.context.owners;
        match self.role {
            Role::Owner => owners.queue_key(&self.resource, name),
            Role::Child => {
                let cached = self.store.get(name);
                let references =
                    [live.and_then(Meta::controller), cached.as_ref().and_then(|c| c.controller())];
                for reference in references.into_iter().flatten() {
                    owners.queue_owner(name.namespace(), reference);
                }
            }
        }
    }

    fn relist(&mut self) {
        if std::mem::take(&mut self.may_relist) {
            self.informer.relist();
        }
    }

    fn has_passed(&self, version: &str) -> bool {
        compare_versions(&self.store.resource_version(), version).is_some_and(Ordering::is_ge)
    }

    /// Returns the cached version of an object if it is newer than the listed one, and was before the list: what is
    /// newer than `reached` has happened since.
    fn undone(&self, name: &ObjectName, uid: &str, listed: &str, reached: &str) -> Option<String> {
        let cached = self.store.get(name).filter(|cached| cached.uid() == uid)?;
        let own = cached.resource_version();
        (is_newer(own, listed) && !is_newer(own, reached)).then(|| own.to_owned())
    }

    /// Whether the cache has this state of an object, or a newer object of its name.
    fn has(&self, name: &ObjectName, uid: &str, version: &str) -> bool {
        self.store.get(name).is_some_and(|cached| {
            is_newer(cached.resource_version(), version)
                || cached.uid() == uid && cached.resource_version() == version
        })
    }

    /// Whether the cache still disagrees with a list of this version.
    fn differs(&self, mismatch: &Mismatch, list: &str) -> bool {
        match mismatch {
            Mismatch::Missed { name, uid, version } => !self.has(name, uid, version),
            Mismatch::Undone { name, uid, version } => self
                .store
                .get(name)
                .is_some_and(|cached| cached.uid() == *uid && cached.resource_version() == *version),
            Mismatch::Ghost { name, uid } => self
                .store
                .get(name)
                .is_some_and(|cached| cached.uid() == *uid && !is_newer(cached.resource_version(), list)),
        }
    }
}

// === impl Mismatch ===

impl Mismatch {
    fn name(&self) -> &ObjectName {
        match self {
            Self::Missed { name, .. } | Self::Ghost { name, .. } | Self::Undone { name, .. } => name,
        }
    }
}

fn is_newer(a: &str, b: &str) -> bool {
    compare_versions(a, b) == Some(Ordering::Greater)
}
