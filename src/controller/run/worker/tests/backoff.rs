//! Tests of failing passes and their backoff.

use super::*;

#[tokio::test(start_paused = true)]
async fn failed_sync_is_retried_with_backoff_until_success() {
    let mut rig = start(1, Duration::ZERO, |_, attempt| match attempt {
        4 => Ok(Outcome::Done),
        _ => Err(SyncError::from(status_error(500, "InternalError"))),
    });
    rig.caches.set();
    rig.add("a");
    tokio::time::sleep(Duration::from_secs(10)).await;
    let times: Vec<Instant> = rig.log.lock().started.iter().map(|(_, at)| *at).collect();
    let gaps: Vec<u128> = times.windows(2).map(|pair| (pair[1] - pair[0]).as_millis()).collect();
    assert_eq!(gaps.len(), 3);
    // Timers of tokio are exact to a millisecond.
    for (gap, delay) in gaps.iter().zip([10, 20, 40]) {
        assert!((delay..=delay + 2).contains(gap), "{gaps:?}");
    }
    assert_eq!(rig.queue.num_requeues(&ObjectName::new(Some("ns"), "a")), 0, "a success resets the backoff");
    rig.stop().await;
}

/// Their failures would take 94 s at the rate of the default limits.
#[tokio::test(start_paused = true)]
async fn failing_namespace_does_not_delay_retries_of_others() {
    let queue = RateLimitingQueue::new(Limits::default().limiter());
    let mut rig = start_on(queue, 2, MS, |key, attempt| match (key.namespace(), attempt) {
        (Some("good"), 2) => Ok(Outcome::Done),
        _ => Err(SyncError::from(status_error(500, "InternalError"))),
    });
    rig.caches.set();
    for number in 0..5_000 {
        rig.queue.add(ObjectName::new(Some("bad"), &number.to_string()));
    }
    tokio::time::sleep(Duration::from_secs(5)).await;
    rig.queue.add(ObjectName::new(Some("good"), "one"));
    tokio::time::sleep(MS * 500).await;
    let log = rig.log.lock().started.clone();
    let of_good = log.iter().filter(|(key, _)| key == "good/one").count();
    assert_eq!(of_good, 2, "its retry is due after 5 ms");
    let of_bad = |from: u64, to: u64| {
        let of_second = log.iter().filter(|(_, at)| {
            let since = *at - log[0].1;
            (Duration::from_secs(from)..Duration::from_secs(to)).contains(&since)
        });
        of_second.count()
    };
    assert!(of_bad(3, 5) <= 105, "the others are retried 50 times a second: {}", of_bad(3, 5));
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_event_during_the_backoff_waits() {
    let mut rig = start(1, Duration::ZERO, |_, _| Err(SyncError::from(status_error(500, "InternalError"))));
    rig.caches.set();
    for _ in 0..250 {
        rig.add("a");
        tokio::time::sleep(4 * MS).await;
    }
    assert!((6..=8).contains(&rig.started()), "10 ms doubling, over one second: {}", rig.started());
    rig.stop().await;
}

/// The event comes during the sync, so that the key is dirty when the sync fails.
#[tokio::test(start_paused = true)]
async fn event_during_failing_sync_waits_for_backoff() {
    let mut rig = start(1, 6 * MS, |_, _| Err(SyncError::from(status_error(500, "InternalError"))));
    rig.caches.set();
    for _ in 0..250 {
        rig.add("a");
        tokio::time::sleep(4 * MS).await;
    }
    assert!((6..=8).contains(&rig.started()), "10 ms doubling, over one second: {}", rig.started());
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert!(rig.started() > 8, "the key is not lost");
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn retry_after_from_the_server_is_obeyed() {
    for (code, reason) in [(429, "TooManyRequests"), (503, "ServiceUnavailable")] {
        let mut rig = start(1, Duration::ZERO, move |_, attempt| match attempt {
            1 => error(code, reason, Some(30)),
            _ => Ok(Outcome::Done),
        });
        rig.caches.set();
        rig.add("a");
        tokio::time::sleep(Duration::from_secs(29)).await;
        rig.add("a");
        tokio::time::sleep(MS).await;
        assert_eq!(rig.started(), 1, "{code}");
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert_eq!(rig.started(), 2, "{code}");
        rig.stop().await;
    }
}

/// `Retry-After: 0` must not disable the backoff.
#[tokio::test(start_paused = true)]
async fn retry_after_is_a_minimum_for_the_backoff() {
    let mut rig = start(1, Duration::ZERO, |_, _| {
        let mut error = status_error(429, "TooManyRequests");
        if let client::Error::Status { status, .. } = &mut error {
            status.retry_after = Some(Duration::ZERO);
        }
        Err(SyncError::from(error))
    });
    rig.caches.set();
    rig.add("a");
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!((6..=9).contains(&rig.started()), "10 ms doubling to 1 s: {}", rig.started());
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn new_spec_during_failing_sync_skips_backoff() {
    let mut rig = start(1, Duration::from_secs(30), |_, attempt| match attempt {
        1 => error(503, "ServiceUnavailable", None),
        _ => Ok(Outcome::Done),
    });
    rig.caches.set();
    let key = ObjectName::new(Some("ns"), "a");
    rig.queue.add(key.clone());
    tokio::time::sleep(Duration::from_secs(10)).await;
    let changed = Reason::SpecChanged { from: 1, to: 2 };
    rig.queue.add_with(key, AddOptions { bypass_backoff: true, ..AddOptions::because(changed) });
    tokio::time::sleep(Duration::from_secs(30)).await;
    let starts: Vec<Instant> = rig.log.lock().started.iter().map(|(_, at)| *at).collect();
    // Less than the shortest backoff, which is 10 ms.
    assert!(starts.len() == 2 && starts[1] - starts[0] < Duration::from_secs(30) + 5 * MS, "{starts:?}");
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn failed_audit_pass_is_retried_as_an_audit() {
    let mut rig = start(1, Duration::ZERO, |_, attempt| match attempt {
        1 => error(409, "Conflict", None),
        _ => Ok(Outcome::Done),
    });
    rig.caches.set();
    rig.queue.add_with(ObjectName::new(Some("ns"), "a"), AddOptions::because(Reason::Audit));
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(rig.log.lock().reasons, ["audit", "audit, retry 1"]);
    rig.stop().await;
}

/// A key of low priority stays behind changes when it is retried.
#[tokio::test(start_paused = true)]
async fn a_retry_keeps_its_priority() {
    let ageing = QueueOptions { ageing: Some(Ageing::default()), ..QueueOptions::default() };
    let queue = RateLimitingQueue::with(ItemExponentialFailure::new(10 * MS, 1000 * MS), ageing);
    let mut rig = start_on(queue, 1, 20 * MS, |key, attempt| match (key.name(), attempt) {
        ("low", 1) => error(500, "InternalError", None),
        _ => Ok(Outcome::Done),
    });
    rig.caches.set();
    let low = AddOptions { priority: LOW_PRIORITY, ..AddOptions::default() };
    rig.queue.add_with(ObjectName::new(Some("ns"), "low"), low);
    tokio::time::sleep(25 * MS).await;
    // The backoff ends at 30 ms, while the worker is busy; the other two keys are added before and after that.
    rig.add("busy");
    tokio::time::sleep(MS).await;
    rig.add("before");
    tokio::time::sleep(10 * MS).await;
    rig.add("after");
    tokio::time::sleep(Duration::from_secs(1)).await;
    let started: Vec<String> = rig.log.lock().started.iter().map(|(name, _)| name.clone()).collect();
    assert_eq!(started, ["ns/low", "ns/busy", "ns/before", "ns/after", "ns/low"]);
    rig.stop().await;
}

/// The last sync finds no object and succeeds.
#[tokio::test(start_paused = true)]
async fn deleted_key_leaves_no_backoff_state() {
    let queue = RateLimitingQueue::new(ItemExponentialFailure::new(10 * MS, 1000 * MS));
    let is_gone = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let gone = is_gone.clone();
    let mut rig = start_on(queue, 1, Duration::ZERO, move |_, _| {
        if gone.load(Ordering::Relaxed) { Ok(Outcome::Done) } else { error(500, "InternalError", None) }
    });
    rig.caches.set();
    rig.add("a");
    tokio::time::sleep(100 * MS).await;
    let key = ObjectName::new(Some("ns"), "a");
    assert!(rig.queue.num_requeues(&key) > 2 && rig.queue.backs_off(&key));
    is_gone.store(true, Ordering::Relaxed);
    let deleted = AddOptions { bypass_backoff: true, ..AddOptions::because(Reason::Deleted) };
    rig.queue.add_with(key.clone(), deleted);
    tokio::time::sleep(MS).await;
    assert_eq!((rig.queue.num_requeues(&key), rig.queue.backing_off(), rig.queue.list(10)), (0, 0, vec![]));
    rig.stop().await;
}
