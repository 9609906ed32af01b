//! Tests each row of the table of outcomes.

use super::*;

/// The effects of one row.
#[derive(Debug, PartialEq)]
struct Row {
    /// Delay of the next sync.
    next: Option<Duration>,
    /// Failures of the key: one before this sync, and this one.
    failures: u32,
    level: &'static str,
    /// The counters that changed.
    counted: Vec<String>,
}

/// Returns the counters of outcomes.
fn counters(rig: &Rig) -> BTreeSet<String> {
    let names =
        ["_reconcile_total", "_reconcile_errors_total", "_reconcile_panics_total", "windlass_retries_total"];
    let text = rig.metrics.encode();
    let lines =
        text.lines().filter(|line| names.iter().any(|name| line.contains(name)) && !line.starts_with('#'));
    let short =
        |line: &str| line.replace("controller_runtime_reconcile_", "").replace("controller=\"test\",", "");
    lines.map(short).collect()
}

/// Runs a key that has failed once and whose next sync ends with `end`.
async fn row(end: fn() -> Result<Outcome, SyncError>) -> Row {
    let log = crate::testing::capture_log();
    let mut rig = start(1, Duration::ZERO, move |_, attempt| match attempt {
        1 => error(500, "InternalError", None),
        2 => end(),
        _ => Ok(Outcome::Done),
    });
    rig.caches.set();
    rig.add("a");
    tokio::time::sleep(5 * MS).await;
    let before = counters(&rig);
    // The backoff is 10 ms.
    tokio::time::sleep(7 * MS).await;
    let failures = rig.queue.num_requeues(&ObjectName::new(Some("ns"), "a"));
    let counted = counters(&rig).difference(&before).cloned().collect();
    let lines = log.lines();
    let last = lines.last().unwrap();
    let level = ["DEBUG", "INFO", "WARN", "ERROR"].into_iter().find(|level| last.starts_with(level)).unwrap();
    tokio::time::sleep(Duration::from_secs(600)).await;
    let started: Vec<Instant> = rig.log.lock().started.iter().map(|(_, at)| *at).collect();
    rig.stop().await;
    assert!(started.len() <= 3, "the third pass succeeds");
    Row { next: started.get(2).map(|next| *next - started[1]), failures, level, counted }
}

#[tokio::test(start_paused = true)]
async fn every_row_of_the_outcome_table_holds() {
    let after = |millis| Some(Duration::from_millis(millis));
    let check = |found: Row, next, failures, level, counted: &[&str]| {
        let counted = counted.iter().map(|&line| line.to_owned()).collect();
        assert_eq!(found, Row { next, failures, level, counted });
    };
    let (success, requeued) = (["total{result=\"success\"} 1"], ["total{result=\"requeue_after\"} 1"]);
    check(row(|| Ok(Outcome::Done)).await, None, 0, "DEBUG", &success);
    let later = || Ok(Outcome::RequeueAfter(Duration::from_secs(60)));
    check(row(later).await, after(60_000), 0, "DEBUG", &requeued);
    let wait = || Ok(Outcome::WaitForUser { requeue_after: Some(Duration::from_secs(120)) });
    check(row(wait).await, after(120_000), 0, "DEBUG", &requeued);
    check(row(|| Ok(Outcome::WaitForUser { requeue_after: None })).await, None, 0, "DEBUG", &success);

    // The delay doubles with the second failure, unless the server asks for a longer one.
    let conflict = [requeued[0], "windlass_retries_total{cause=\"conflict\"} 1"];
    check(row(|| error(409, "Conflict", None)).await, after(20), 2, "DEBUG", &conflict);
    let failed = ["errors_total{controller=\"test\"} 2", "total{result=\"error\"} 2"];
    let lost = || {
        let request = "GET /".to_owned();
        Err(SyncError::from(client::Error::Timeout { request, after: Duration::from_secs(30) }))
    };
    let connection = [failed[0], failed[1], "windlass_retries_total{cause=\"connection\"} 1"];
    check(row(lost).await, after(20), 2, "DEBUG", &connection);
    let throttled = [failed[0], failed[1], "windlass_retries_total{cause=\"throttled\"} 1"];
    check(row(|| error(429, "TooManyRequests", Some(30))).await, after(30_000), 2, "DEBUG", &throttled);
    let other = [failed[0], failed[1], "windlass_retries_total{cause=\"error\"} 2"];
    check(row(|| error(500, "InternalError", None)).await, after(20), 2, "WARN", &other);
    check(row(|| error(503, "ServiceUnavailable", Some(7))).await, after(7000), 2, "WARN", &other);
    let panicked = [
        failed[0],
        "panics_total{controller=\"test\"} 1",
        failed[1],
        "windlass_retries_total{cause=\"panic\"} 1",
    ];
    check(row(|| std::panic::resume_unwind(Box::new("x"))).await, after(20), 2, "ERROR", &panicked);
}
