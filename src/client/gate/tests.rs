//! Tests of the gate.

use super::*;
use crate::api::shards::{Division, Sharding};

const SECOND: Duration = Duration::from_secs(1);

async fn passes_after(gate: &Gate, passage: Passage) -> Duration {
    let started = Instant::now();
    drop(gate.pass(passage, "ns", Turn::Waits, None).await.unwrap());
    started.elapsed()
}

thread_local! {
    static ASLEEP: std::cell::Cell<Duration> = const { std::cell::Cell::new(Duration::ZERO) };
}

/// Tokio's clock stands still while the machine sleeps.
#[tokio::test(start_paused = true)]
async fn time_asleep_counts_for_the_lease() {
    let gate = Gate { time_asleep: || ASLEEP.get(), ..Gate::default() };
    gate.open_until(gate.now() + 10 * SECOND);
    ASLEEP.set(9 * SECOND);
    assert!(gate.is_open());
    let mut cut = pin!(gate.closed(Passage::Write, "ns"));
    assert!(cut.as_mut().now_or_never().is_none());
    ASLEEP.set(10 * SECOND);
    assert!(!gate.is_open() && cut.now_or_never().is_some(), "what is under way is cut");
    let sent = gate.now();
    gate.open_until(sent + SECOND);
    assert!(gate.is_open(), "a renewal after the sleep counts from then");
    ASLEEP.set(20 * SECOND);
    gate.open_until(sent + SECOND);
    assert!(!gate.is_open(), "one that was answered after a sleep counts from when it was sent");
}

#[tokio::test(start_paused = true)]
async fn closed_gate_holds_writes_and_passes_reads() {
    let gate = Gate::default();
    gate.close();
    assert!(
        tokio::time::timeout(600 * SECOND, gate.pass(Passage::Write, "ns", Turn::Waits, None)).await.is_err()
    );
    assert_eq!(passes_after(&gate, Passage::Read).await, Duration::ZERO);
    let mut write = Box::pin(gate.pass(Passage::Write, "ns", Turn::Waits, None));
    assert!(write.as_mut().now_or_never().is_none());
    gate.open();
    assert!(write.await.is_ok());
}

/// I15: on the monotonic clock, also of a process that was frozen over it.
#[tokio::test(start_paused = true)]
async fn no_write_begins_after_the_renew_deadline() {
    let gate = Gate::default();
    gate.open_until(gate.now() + 10 * SECOND);
    assert_eq!(passes_after(&gate, Passage::Write).await, Duration::ZERO);
    tokio::time::advance(10 * SECOND).await;
    for passage in [Passage::Write, Passage::Event] {
        assert!(
            tokio::time::timeout(600 * SECOND, gate.pass(passage, "ns", Turn::Waits, None)).await.is_err()
        );
    }
    assert_eq!(passes_after(&gate, Passage::Read).await, Duration::ZERO);
    assert_eq!(passes_after(&gate, Passage::Election).await, Duration::ZERO);
    gate.shut_down();
    assert_eq!(
        gate.pass(Passage::Write, "ns", Turn::Waits, None).await.err(),
        Some(Refusal::Stopping),
        "nor at a shutdown"
    );
    gate.open_until(gate.now() + SECOND);
    assert!(
        gate.pass(Passage::Write, "ns", Turn::Waits, None).await.is_ok(),
        "syncs in flight end while it leads"
    );
}

#[tokio::test(start_paused = true)]
async fn writes_pass_in_namespaces_of_held_shards_only() {
    let gate = Gate::default();
    let sharding = Sharding { of: 8, by: Division::Hash };
    let shard = sharding.shard_of("ours");
    let theirs = (0..).map(|n| format!("n{n}")).find(|name| sharding.shard_of(name) != shard).unwrap();
    let pass = |passage, namespace: &str| {
        let namespace = namespace.to_owned();
        let gate = &gate;
        async move { gate.pass(passage, &namespace, Turn::Waits, None).await.map(drop) }
    };
    gate.open_shards_until(gate.now() + 10 * SECOND, Arc::new(sharding.set([shard])));
    for passage in [Passage::Write, Passage::Event] {
        assert_eq!(pass(passage, "ours").await, Ok(()));
        assert_eq!(pass(passage, &theirs).await, Err(Refusal::NotHeld));
    }
    assert_eq!(pass(Passage::Read, &theirs).await, Ok(()));
    let mut cut = pin!(gate.closed(Passage::Write, "ours"));
    assert!(cut.as_mut().now_or_never().is_none());
    tokio::time::advance(10 * SECOND).await;
    assert!(cut.now_or_never().is_some(), "what is under way at the deadline is cut");
    assert_eq!(pass(Passage::Write, "ours").await, Err(Refusal::NotHeld));
    gate.open_shards_until(gate.now() + 10 * SECOND, Arc::new(sharding.set([shard])));
    let mut cut = pin!(gate.closed(Passage::Write, "ours"));
    assert!(cut.as_mut().now_or_never().is_none());
    gate.open_shards_until(gate.now() + 10 * SECOND, Arc::new(sharding.set([])));
    assert!(cut.now_or_never().is_some(), "and what is under way in a shard that is given up");
}

#[tokio::test(start_paused = true)]
async fn writes_in_flight_are_limited() {
    let gate = Gate::new(RequestLimits { writes_in_flight: 4, ..RequestLimits::default() });
    let write = |namespace| gate.pass(Passage::Write, namespace, Turn::Waits, None).now_or_never();
    let first = write("a").unwrap();
    let _second = write("a").unwrap();
    assert!(write("a").is_none(), "half of them are for others");
    let _third = write("b").unwrap();
    assert!(write("b").is_none());
    assert!(gate.pass(Passage::Read, "a", Turn::Waits, None).now_or_never().is_some());
    drop(first);
    assert!(write("a").is_some());
}

#[tokio::test(start_paused = true)]
async fn events_bypass_write_and_rate_limits() {
    let limits = RequestLimits { qps: Some(1.0), burst: 1, writes_in_flight: 1 };
    let gate = Gate::new(limits);
    let _write = gate.pass(Passage::Write, "ns", Turn::Waits, None).await.unwrap();
    for _ in 0..10 {
        assert_eq!(passes_after(&gate, Passage::Event).await, Duration::ZERO);
    }
    gate.asked_to_wait(5 * SECOND);
    assert_eq!(passes_after(&gate, Passage::Event).await, 5 * SECOND);
    gate.close();
    assert!(gate.pass(Passage::Event, "ns", Turn::Waits, None).now_or_never().is_none());
}

#[tokio::test(start_paused = true)]
async fn overload_pause_applies_to_all_requests() {
    let gate = Gate::default();
    gate.asked_to_wait(5 * SECOND);
    gate.asked_to_wait(2 * SECOND);
    assert_eq!(passes_after(&gate, Passage::Read).await, 5 * SECOND);
    gate.asked_to_wait(3600 * SECOND);
    assert_eq!(passes_after(&gate, Passage::Write).await, 600 * SECOND);
    assert_eq!(passes_after(&gate, Passage::Write).await, Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn partial_overload_pauses_nothing() {
    let gate = Gate::default();
    gate.served();
    gate.asked_to_wait(5 * SECOND);
    assert_eq!(passes_after(&gate, Passage::Write).await, Duration::ZERO);
    tokio::time::advance(SERVED).await;
    gate.asked_to_wait(5 * SECOND);
    assert_eq!(passes_after(&gate, Passage::Write).await, 5 * SECOND);
}

#[tokio::test(start_paused = true)]
async fn requests_stay_within_the_rate() {
    let gate = Gate::new(RequestLimits { qps: Some(10.0), burst: 3, ..RequestLimits::default() });
    let started = Instant::now();
    for _ in 0..13 {
        drop(gate.pass(Passage::Read, "ns", Turn::Waits, None).await.unwrap());
    }
    assert_eq!(started.elapsed(), SECOND, "three at once, then ten a second");
}

#[tokio::test(start_paused = true)]
async fn refused_and_delayed_requests_are_counted() {
    let gate = Gate::new(RequestLimits { qps: Some(10.0), burst: 3, ..RequestLimits::default() });
    for _ in 0..5 {
        drop(gate.pass(Passage::Read, "ns", Turn::Waits, None).await.unwrap());
    }
    gate.refused();
    assert_eq!(gate.held_back(), HeldBack { refused: 1, delayed: 2 });
}

#[tokio::test(start_paused = true)]
async fn new_rate_applies_to_waiting_requests() {
    let gate = Gate::new(RequestLimits { qps: Some(0.01), burst: 1, ..RequestLimits::default() });
    drop(gate.pass(Passage::Read, "ns", Turn::Waits, None).await.unwrap());
    let started = Instant::now();
    let faster = async {
        tokio::time::sleep(SECOND).await;
        gate.set_rate(Some(10.0), 1);
    };
    let (waiting, ()) = tokio::join!(gate.pass(Passage::Write, "ns", Turn::Waits, None), faster);
    assert!(waiting.is_ok() && started.elapsed() == SECOND, "{:?}", started.elapsed());
    assert_eq!(passes_after(&gate, Passage::Read).await, SECOND / 10);
    gate.set_rate(None, 1);
    assert_eq!(passes_after(&gate, Passage::Read).await, Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn shutdown_fails_waiting_requests() {
    let gate = Gate::default();
    gate.close();
    let mut write = Box::pin(gate.pass(Passage::Write, "ns", Turn::Waits, None));
    assert!(write.as_mut().now_or_never().is_none());
    gate.shut_down();
    assert_eq!(write.await.err(), Some(Refusal::Stopping));
    gate.asked_to_wait(5 * SECOND);
    assert_eq!(
        gate.pass(Passage::Read, "ns", Turn::Waits, None).now_or_never().unwrap().err(),
        Some(Refusal::Stopping)
    );
    let gate = Gate::default();
    gate.shut_down();
    assert!(
        gate.pass(Passage::Write, "ns", Turn::Waits, None).now_or_never().unwrap().is_ok(),
        "a sync under way may finish"
    );

    let limits = RequestLimits { qps: Some(10.0), burst: 1, writes_in_flight: 1 };
    let gate = Gate::new(limits);
    gate.shut_down();
    let first = gate.pass(Passage::Write, "ns", Turn::Waits, None).await.unwrap();
    assert_eq!(
        gate.pass(Passage::Write, "ns", Turn::Waits, None).now_or_never().unwrap().err(),
        Some(Refusal::Stopping),
        "no slot is free"
    );
    drop(first);
    assert!(
        gate.pass(Passage::Write, "ns", Turn::Waits, None).await.is_ok(),
        "its turn comes within a second"
    );
    let turns =
        futures_util::future::join_all((0..20).map(|_| gate.pass(Passage::Read, "ns", Turn::Waits, None)))
            .await;
    assert_eq!(turns.iter().filter(|turn| turn.is_ok()).count(), 10, "the turns of the next second");
}

#[tokio::test(start_paused = true)]
async fn queued_requests_obey_pause_and_closed_gate() {
    let gate = Gate::new(RequestLimits { qps: Some(1.0), burst: 1, ..RequestLimits::default() });
    drop(gate.pass(Passage::Write, "ns", Turn::Waits, None).await);
    let started = Instant::now();
    let held = async {
        tokio::time::sleep(SECOND / 2).await;
        gate.asked_to_wait(10 * SECOND);
        gate.close();
        tokio::time::sleep(20 * SECOND).await;
        gate.open();
    };
    let (read, write, ()) = tokio::join!(
        async { gate.pass(Passage::Read, "ns", Turn::Waits, None).await.map(|_| started.elapsed()) },
        async { gate.pass(Passage::Write, "ns", Turn::Waits, None).await.map(|_| started.elapsed()) },
        held,
    );
    assert!(read.unwrap() >= SECOND * 21 / 2, "after the pause: {read:?}");
    assert!(write.unwrap() >= SECOND * 41 / 2, "after the gate was opened: {write:?}");
}

/// I5: a write that was decided on a live read must not wait until the read is old.
#[tokio::test(start_paused = true)]
async fn stale_request_is_refused() {
    let limits = RequestLimits { qps: Some(1.0), burst: 1, writes_in_flight: 1 };
    let (slow, full, paused, closed) =
        (Gate::new(limits), Gate::new(limits), Gate::default(), Gate::default());
    drop(slow.pass(Passage::Read, "ns", Turn::Waits, None).await.unwrap());
    let held = full.pass(Passage::Write, "ns", Turn::Waits, None).await.unwrap();
    paused.asked_to_wait(60 * SECOND);
    closed.close();
    for gate in [&slow, &full, &paused, &closed] {
        let started = Instant::now();
        let refused = gate.pass(Passage::Write, "ns", Turn::Waits, Some(started + SECOND / 2)).await;
        assert_eq!(refused.err(), Some(Refusal::Stale));
        assert_eq!(started.elapsed(), SECOND / 2, "the caller is told as soon as it is too late");
    }
    drop(held);
    tokio::time::advance(60 * SECOND).await;
    let now = Instant::now();
    assert!(paused.pass(Passage::Write, "ns", Turn::Waits, Some(now)).await.is_ok());
    let past = now.checked_sub(Duration::from_millis(1)).unwrap();
    assert_eq!(paused.pass(Passage::Write, "ns", Turn::Waits, Some(past)).await.err(), Some(Refusal::Stale));
}

/// Turns must not accumulate during a pause and then all come at once.
#[tokio::test(start_paused = true)]
async fn requests_stay_within_the_rate_after_a_pause() {
    let gate = Gate::new(RequestLimits { qps: Some(10.0), burst: 1, ..RequestLimits::default() });
    gate.asked_to_wait(30 * SECOND);
    let started = Instant::now();
    futures_util::future::join_all((0..11).map(|_| gate.pass(Passage::Read, "ns", Turn::Waits, None))).await;
    assert_eq!(started.elapsed(), 31 * SECOND);
}
