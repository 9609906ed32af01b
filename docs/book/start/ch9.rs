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

    /// Whether this process may write now. It asks its own clock: the server may be out of reach.
    pub fn is_leader(&self) -> bool {
        todo!("chapter 9: is_leader")
    }

    /// Tries once to take the Lease, or to renew it.
    pub async fn try_acquire_or_renew(&self) -> Result<(), Refused> {
        todo!("chapter 9: try")
    }

    /// Whether the holder has not renewed it for [`DURATION`], by our own clock: no two machines' clocks agree.
    fn has_expired(&self, lease: &Object, now: Instant) -> bool {
        todo!("chapter 9: expired")
    }

    /// The content of our Lease. The time is there so that each renewal changes it; nobody compares it with a clock.
    fn spec(&self, transitions: u64) -> Object {
        json!({
            "holderIdentity": self.name,
            "leaseDurationSeconds": DURATION.as_secs(),
            "leaseTransitions": transitions,
            "renewTime": now(),
        })
    }

    /// Tries again and again, until dropped.
    pub async fn run(&self) {
        loop {
            // A try that hangs must not cost the next one.
            drop(tokio::time::timeout(RETRY, self.try_acquire_or_renew()).await);
            tokio::time::sleep(RETRY).await;
        }
    }

    /// Makes a write, if this process may write, and cuts it when it no longer may.
    pub async fn fenced<T>(&self, write: impl Future<Output = Result<T, Refused>>) -> Result<T, Refused> {
        let until = self.renewed.lock().map(|renewed| renewed + DEADLINE);
        let refused = || Refused { code: 0, message: "this process no longer leads".to_owned() };
        let Some(until) = until.filter(|until| Instant::now() < *until) else { return Err(refused()) };
        tokio::time::timeout_at(until, write).await.unwrap_or_else(|_| Err(refused()))
    }

    /// Gives the Lease back, so that the next process need not wait for its end. The last thing that a leader does.
    pub async fn release(&self) -> Result<(), Refused> {
        todo!("chapter 9: release")
    }
}
