//! Tests of panics in a sync and outside of one.

use super::*;
use crate::workqueue::RateLimiter;

#[tokio::test(start_paused = true)]
async fn a_panic_is_caught_and_retried() {
    let mut rig = start(1, Duration::ZERO, |key, attempt| {
        if key.name() == "bad" && attempt < 3 {
            std::panic::resume_unwind(Box::new("no such thing"));
        }
        Ok(Outcome::Done)
    });
    rig.caches.set();
    rig.add("bad");
    rig.add("good");
    tokio::time::sleep(Duration::from_secs(1)).await;
    let started: Vec<String> = rig.log.lock().started.iter().map(|(name, _)| name.clone()).collect();
    assert_eq!(started, ["ns/bad", "ns/good", "ns/bad", "ns/bad"]);
    rig.stop().await;
}

/// A rate limiter that panics outside of a sync.
#[derive(Debug)]
struct Broken;

impl RateLimiter<ObjectName> for Broken {
    fn when(&self, _: &ObjectName) -> Duration {
        std::panic::resume_unwind(Box::new("the machinery is broken"));
    }

    fn forget(&self, _: &ObjectName) {}

    fn num_requeues(&self, _: &ObjectName) -> u32 {
        0
    }
}

#[tokio::test(start_paused = true)]
async fn panic_outside_syncs_ends_run_after_running_syncs() {
    let mut rig = start_on(RateLimitingQueue::new(Broken), 2, 5 * MS, |key, _| {
        if key.name() == "fails" { error(500, "InternalError", None) } else { Ok(Outcome::Done) }
    });
    rig.caches.set();
    rig.add("fails");
    tokio::time::sleep(2 * MS).await;
    rig.add("in flight");
    rig.add("queued");
    let ended = rig.tasks.join_next().await.unwrap();
    let panic = ended.unwrap_err().into_panic();
    assert_eq!(panic.downcast_ref::<&str>(), Some(&"the machinery is broken"));
    let log = rig.log.lock();
    let started: Vec<&str> = log.started.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!((started, log.ended), (vec!["ns/fails", "ns/in flight"], 2));
}
