//! Finds what the caches have missed: compares each kind's metadata on the server with its cache, once a period.
//!
//! A watch can lose an event without a sign. The cache is then wrong until the object changes again, which may be never.
//! Flow: API server -> **audit** -> informer (a relist), workqueue (the owner's key, with [`Reason::Audit`](crate::workqueue::Reason::Audit))
//!
//! # How it works
//! ```text
//! list the metadata ─▶ what differs? ─▶ wait until the cache has passed the list ─▶ what still differs?
//!      ─▶ read it live ─▶ confirmed: count it, warn, let the informer list anew, queue the owner
//! ```
//! Kinds take turns, spread evenly over the period. A kind of `n` objects costs `n / 500` list requests, and a read for
//! each difference that stays. While a list runs, 8 to 16 bytes are held for each object: the hash of its uid.
//!
//! A child that has lost our label is neither in such a list nor in the cache. Every [`UNLABELLED_EVERY`] periods the
//! objects of each child kind that lack the label are listed, and the owners of ours among them are queued.
//!
//! # Guarantees
//! - A lost event is repaired within a period and the minute in which a bookmark comes. (test: `lost_events_are_found_within_a_period`)
//! - A cache that is only late is no finding; one that stays late for a period lists anew. (test: `a_late_cache_is_no_finding`, `a_cache_that_stays_late_lists_anew`)
//! - An error is never taken for "there is none"; the audit is tried again. (test: `a_list_that_fails_finds_nothing_and_is_tried_again`)
//! - A kind lists anew once a period at most. (test: `a_kind_lists_anew_once_a_period`)
//! - A child that lost its label is found within eight periods. (test: `an_unlabelled_child_is_found_every_eighth_period`)
//! - An audit costs its pages, and holds at most 16 bytes an object. (test: `an_audit_costs_its_pages_alone`, `at_most_16_bytes_are_held_for_an_object`)
//!
//! # Differences from client-go
//! Its resync shows handlers what the cache has; nothing finds what the cache lacks.

mod kind;
mod owners;
mod uids;
mod unlabelled;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, join_all};
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::api::{ApiResource, labels};
use crate::cache::{Object, ObjectName, SharedInformer};
use crate::client::ApiClient;
use crate::metrics::Metrics;
use crate::workqueue::RateLimitingQueue;
use kind::KindAudit;
use owners::Owners;

/// Every so many periods the children that lost their label are looked for.
pub const UNLABELLED_EVERY: u32 = 8;

/// No process runs longer: the sum of two such times is a time.
const PERIOD_MAX: Duration = Duration::from_secs(365 * 24 * 3600);

/// The kinds to audit, collected while controllers are wired.
#[derive(Default)]
pub struct Audits {
    kinds: Mutex<Vec<Kind>>,
    owners: Mutex<Owners>,
}

struct Kind {
    resource: ApiResource,
    run: RunKind,
}

/// Audits one kind for ever, first after this time.
type RunKind = Box<dyn FnOnce(Arc<Shared>, Duration) -> BoxFuture<'static, ()> + Send>;

/// What the audits of all kinds share.
struct Shared {
    client: ApiClient,
    /// `None` for all.
    namespace: Option<String>,
    period: Duration,
    metrics: Metrics,
    owners: Owners,
}

/// What a kind is to its controllers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    /// The keys of controllers are its names. All objects are watched.
    Owner,
    /// Its objects are children. Those with our label are watched.
    Child,
}

// === impl Audits ===

impl Audits {
    /// Audits a kind whose names are the keys of this queue.
    pub fn add_owner<K: Object>(&self, informer: &SharedInformer<K>, queue: RateLimitingQueue<ObjectName>) {
        self.owners.lock().add(informer.store(), queue);
        self.add(informer, Role::Owner);
    }

    /// Audits a kind of children, whose informer selects those with our label. A kind that was added before is left as
    /// it is.
    pub fn add_child<K: Object>(&self, informer: &SharedInformer<K>) {
        self.add(informer, Role::Child);
    }

    fn add<K: Object>(&self, informer: &SharedInformer<K>, role: Role) {
        let (resource, informer) = (K::resource(), informer.clone());
        let mut kinds = self.kinds.lock();
        if kinds.iter().any(|kind| kind.resource == resource) {
            return;
        }
        let run: RunKind =
            Box::new(move |shared, first| Box::pin(KindAudit::new(informer, role, shared).run(first)));
        kinds.push(Kind { resource, run });
    }

    /// Audits each kind once in a `period`, in one namespace (all, with `None`), until `shutdown`.
    ///
    /// # Cancel safety
    /// Safe: an audit that is cut is made in the next period.
    pub async fn run(
        self,
        client: ApiClient,
        namespace: Option<String>,
        period: Duration,
        metrics: Metrics,
        shutdown: CancellationToken,
    ) {
        let (kinds, owners, period) =
            (self.kinds.into_inner(), self.owners.into_inner(), period.min(PERIOD_MAX));
        let shared = Arc::new(Shared { client, namespace, period, metrics, owners });
        let count = u32::try_from(kinds.len()).unwrap_or(u32::MAX);
        // The caches have listed only just now when the process starts.
        let audits = (1..).zip(kinds).map(|(place, kind)| (kind.run)(shared.clone(), period * place / count));
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

// === impl Role ===

impl Role {
    /// The label selector of the kind's informer.
    fn selector(self) -> &'static str {
        match self {
            Self::Owner => "",
            Self::Child => labels::SELECTOR,
        }
    }

    /// Whether the informer's selector takes an object with these labels.
    fn selects(self, of_object: &labels::Labels) -> bool {
        match self {
            Self::Owner => true,
            Self::Child => of_object.get(labels::MANAGED_BY).is_some_and(|value| value == labels::MANAGER),
        }
    }
}

#[cfg(test)]
#[cfg(feature = "sim")]
mod tests;
