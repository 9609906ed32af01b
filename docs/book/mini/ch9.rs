//! Chapter 9, in production: of several processes one writes, and it knows when it may no longer.

use std::time::Duration;

use parking_lot::Mutex;
use serde_json::json;
use tokio::time::Instant;

use crate::cluster::{Api, LEASES, Object, Refused, now};

/// How long a Lease holds without a renewal. Others count from the renewal that they have seen.
pub const DURATION: Duration = Duration::from_secs(15);
/// When the holder must have renewed it, or stop writing: earlier than others may take over.
pub const DEADLINE: Duration = Duration::from_secs(10);
/// How often each process tries.
pub const RETRY: Duration = Duration::from_secs(2);

/// One candidate for the leadership.
pub struct Elector {
    api: Api,
    name: &'static str,
    /// The Lease as last seen, and when it last changed by our own clock.
    seen: Mutex<Option<(Object, Instant)>>,
    /// When our last successful renewal was sent.
    renewed: Mutex<Option<Instant>>,
}

impl Elector {
    pub fn new(api: Api, name: &'static str) -> Self {
        Self { api, name, seen: Mutex::default(), renewed: Mutex::default() }
    }

    // [is_leader]
    /// Whether this process may write now. It asks its own clock: the server may be out of reach.
    pub fn is_leader(&self) -> bool {
        self.renewed.lock().is_some_and(|renewed| renewed.elapsed() < DEADLINE)
    }
    // [/is_leader]

    // [try]
    /// Tries once to take the Lease, or to renew it.
    pub async fn try_acquire_or_renew(&self) -> Result<(), Refused> {
        let sent = Instant::now();
        let path = format!("{LEASES}/book");
        match self.api.get(&path).await {
            Err(refused) if refused.code == 404 => {
                let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
                    "metadata": {"name": "book"}, "spec": self.spec(0)});
                self.api.post(LEASES, &lease).await?;
            }
            Err(refused) => return Err(refused),
            Ok(lease) => {
                let holder = &lease["spec"]["holderIdentity"];
                let (is_ours, is_free) = (*holder == self.name, *holder == "");
                if !is_ours && !is_free && !self.has_expired(&lease, sent) {
                    return Err(Refused { code: 0, message: "another process leads".to_owned() });
                }
                let renewals = lease["spec"]["leaseTransitions"].as_u64().unwrap_or(0) + u64::from(!is_ours);
                let mut lease = lease;
                lease["spec"] = self.spec(renewals);
                // The version in it makes this fail if somebody else was faster.
                self.api.put(&path, &lease).await?;
            }
        }
        *self.renewed.lock() = Some(sent);
        Ok(())
    }
    // [/try]

    // [expired]
    /// Whether the holder has not renewed it for [`DURATION`], by our own clock: no two machines' clocks agree.
    fn has_expired(&self, lease: &Object, now: Instant) -> bool {
        let mut seen = self.seen.lock();
        match &*seen {
            Some((known, since))
                if known["metadata"]["resourceVersion"] == lease["metadata"]["resourceVersion"] =>
            {
                now.duration_since(*since) >= DURATION
            }
            _ => {
                *seen = Some((lease.clone(), now));
                false
            }
        }
    }
    // [/expired]

    /// The content of our Lease. The time is there so that each renewal changes it; nobody compares it with a clock.
    fn spec(&self, transitions: u64) -> Object {
        json!({
            "holderIdentity": self.name,
            "leaseDurationSeconds": DURATION.as_secs(),
            "leaseTransitions": transitions,
            "renewTime": now(),
        })
    }

    // [given run]
    /// Tries again and again, until dropped.
    pub async fn run(&self) {
        loop {
            // A try that hangs must not cost the next one.
            drop(tokio::time::timeout(RETRY, self.try_acquire_or_renew()).await);
            tokio::time::sleep(RETRY).await;
        }
    }
    // [/given run]

    // [given fence]
    /// Makes a write, if this process may write, and cuts it when it no longer may.
    pub async fn fenced<T>(&self, write: impl Future<Output = Result<T, Refused>>) -> Result<T, Refused> {
        let until = self.renewed.lock().map(|renewed| renewed + DEADLINE);
        let refused = || Refused { code: 0, message: "this process no longer leads".to_owned() };
        let Some(until) = until.filter(|until| Instant::now() < *until) else { return Err(refused()) };
        tokio::time::timeout_at(until, write).await.unwrap_or_else(|_| Err(refused()))
    }
    // [/given fence]

    // [release]
    /// Gives the Lease back, so that the next process need not wait for its end. The last thing that a leader does.
    pub async fn release(&self) -> Result<(), Refused> {
        *self.renewed.lock() = None;
        let path = format!("{LEASES}/book");
        let mut lease = self.api.get(&path).await?;
        if lease["spec"]["holderIdentity"] == self.name {
            lease["spec"]["holderIdentity"] = json!("");
            self.api.put(&path, &lease).await?;
        }
        Ok(())
    }
    // [/release]
}
