//! Finds changes that the caches have missed: compares each cache with the server's metadata once per period.
//!
//! A watch can lose an event silently, and does not report that the server's store was restored from a backup.
//! Flow: API server -> **audit** -> informer (a relist), workqueue (the owner's key, with [`Reason::Audit`](crate::workqueue::Reason::Audit))
//!
//! ```text
//! list the metadata ─▶ compare ─▶ wait until the cache has reached the list ─▶ compare again
//!      ─▶ read what still differs ─▶ confirmed: count, warn, relist, enqueue the owner
//! ```
//! Each informer has its own audit; the audits are spread evenly over the period (`docs/requests.md` has their cost).
//! Every [`UNLABELLED_EVERY`] periods the objects without our label are listed, to find children that lost it.
//! client-go has no audit: its resync replays the cache to handlers.
//!
//! # Guarantees
//! - A lost event is repaired within a period, plus a minute for the next bookmark.
//!   (test: `lost_events_are_found_within_a_period`)
//! - A store that was restored from a backup is noticed within a period. (test: `a_restored_store_is_noticed`)
//! - Each informer of a kind is audited. (test: `each_informer_of_a_kind_is_audited`)
//! - A late cache is not a finding; a cache that stays late for a whole period is relisted.
//!   (test: `late_cache_is_not_a_finding`, `persistently_late_cache_is_relisted`)
//! - An error is never read as "the object is gone"; the audit is retried.
//!   (test: `failed_audit_request_finds_nothing_and_is_retried`)
//! - A cache is relisted at most once per period. (test: `kind_relists_at_most_once_per_period`)
//! - A child that lost its label is found within eight periods.
//!   (test: `an_unlabelled_child_is_found_every_eighth_period`)
//! - A clean audit sends one request per page, and holds at most 16 bytes per object.
//!   (test: `clean_audit_sends_one_request_per_page`, `set_holds_at_most_16_bytes_per_uid`)

mod kind;
mod owners;
mod uids;
mod unlabelled;

use std::any::TypeId;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, join_all};
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::api::ApiResource;
use crate::cache::{ObjectName, Selection, SharedInformer, TypedObject};
use crate::client::ApiClient;
use crate::controller::key::Keys;
use crate::metrics::Metrics;
use crate::workqueue::RateLimitingQueue;
use kind::KindAudit;
use owners::Owners;

/// How many periods lie between two searches for children that lost their label.
pub(crate) const UNLABELLED_EVERY: u32 = 8;

/// The longest period, so that sums of periods and instants never overflow.
const PERIOD_MAX: Duration = Duration::from_secs(365 * 24 * 3600);

/// Collects the kinds to audit while controllers are built, and audits them.
#[derive(Default)]
pub struct Audits {
    kinds: Mutex<Vec<Kind>>,
    owners: Mutex<Owners>,
}

struct Kind {
    resource: ApiResource,
    /// What tells apart the informers of one kind.
    informer: (TypeId, Selection),
    run: RunKind,
}

/// Audits one kind forever, starting after this delay.
type RunKind = Box<dyn FnOnce(Arc<AuditContext>, Duration) -> BoxFuture<'static, ()> + Send>;

/// The state that the audits of all kinds share.
struct AuditContext {
    client: ApiClient,
    period: Duration,
    metrics: Metrics,
    owners: Owners,
}

/// The role of a kind in its controllers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    /// A custom resource: its names are keys of controllers, and all its objects are watched.
    Owner,
    /// A kind of children, of which only those with our label are watched.
    Child,
}

// === impl Audits ===

impl Audits {
    /// Adds a kind whose names are the keys of `queue`, with the records of these keys.
    pub fn add_owner<K: TypedObject>(
        &self,
        informer: &SharedInformer<K>,
        queue: RateLimitingQueue<ObjectName>,
        keys: Arc<Keys>,
    ) {
        self.owners.lock().add(informer, queue, keys);
        self.add(informer, Role::Owner);
    }

    /// Adds a kind of children, whose informer selects by our label. Ignores an informer that was added before.
    pub fn add_child<K: TypedObject>(&self, informer: &SharedInformer<K>) {
        self.add(informer, Role::Child);
    }

    fn add<K: TypedObject>(&self, informer: &SharedInformer<K>, role: Role) {
        let (resource, of_informer) =
            (ApiResource::of::<K>(), (TypeId::of::<K>(), informer.selection().clone()));
        let mut kinds = self.kinds.lock();
        if kinds.iter().any(|kind| kind.resource == resource && kind.informer == of_informer) {
            return;
        }
        let informer = informer.clone();
        let run: RunKind =
            Box::new(move |context, first| Box::pin(KindAudit::new(informer, role, context).run(first)));
        kinds.push(Kind { resource, informer: of_informer, run });
    }

    /// Audits each informer once per `period`, until `shutdown`.
    ///
    /// # Cancel safety
    /// Safe: the next period repeats an interrupted audit.
    pub async fn run(
        self,
        client: ApiClient,
        period: Duration,
        metrics: Metrics,
        shutdown: CancellationToken,
    ) {
        let (kinds, owners, period) =
            (self.kinds.into_inner(), self.owners.into_inner(), period.min(PERIOD_MAX));
        let context = Arc::new(AuditContext { client, period, metrics, owners });
        let count = u32::try_from(kinds.len()).unwrap_or(u32::MAX);
        // Kinds start one after the other over the first period: their caches have only just listed.
        let audits = (1..).zip(kinds).map(|(turn, kind)| (kind.run)(context.clone(), period * turn / count));
        tokio::select! {
            biased;
            () = shutdown.cancelled() => return,
            _ = join_all(audits) => {}
        }
        shutdown.cancelled().await;
    }
}

impl fmt::Debug for Audits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kinds: Vec<String> = self.kinds.lock().iter().map(|kind| kind.resource.to_string()).collect();
        f.debug_struct("Audits").field("kinds", &kinds).finish_non_exhaustive()
    }
}

#[cfg(test)]
#[cfg(feature = "sim")]
mod tests;
