use super::*;

const MS: Duration = Duration::from_millis(1);

/// client-go: `TestItemExponentialFailureRateLimiter`
#[test]
fn an_item_backs_off_exponentially() {
    let limiter = ItemExponentialFailure::new(MS, 1000 * MS);
    for expected in [1, 2, 4, 8, 16] {
        assert_eq!(limiter.when(&"one"), expected * MS);
    }
    assert_eq!(limiter.num_requeues(&"one"), 5);
    assert_eq!(limiter.when(&"two"), MS);
    limiter.forget(&"one");
    assert_eq!(limiter.num_requeues(&"one"), 0);
    assert_eq!(limiter.when(&"one"), MS);
}

/// client-go: `TestItemExponentialFailureRateLimiterOverFlow`
#[test]
fn many_failures_stay_at_the_cap() {
    let limiter = ItemExponentialFailure::new(5 * MS, 120_000 * MS);
    let delays: Vec<Duration> = (0..2000).map(|_| limiter.when(&"one")).collect();
    assert_eq!(delays[14], 81_920 * MS);
    assert!(delays[15..].iter().all(|delay| *delay == 120_000 * MS));
}

#[test]
fn forgotten_key_leaves_no_entry() {
    let limiter = ItemExponentialFailure::new(MS, MS);
    limiter.when(&"one");
    limiter.forget(&"one");
    assert_eq!(limiter.failures.keys(), 0);
    let limiter = ItemFastSlow::new(MS, MS, 1);
    limiter.when(&"one");
    limiter.forget(&"one");
    assert_eq!(limiter.failures.keys(), 0);
}

/// A key whose hash collides with all others.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Alike(u8);

impl std::hash::Hash for Alike {
    fn hash<H: std::hash::Hasher>(&self, _: &mut H) {}
}

#[test]
fn colliding_keys_are_counted_separately() {
    let limiter = ItemExponentialFailure::new(MS, 1000 * MS);
    for failures in 1..=3 {
        assert_eq!(limiter.failed(&Alike(0)).1, failures);
    }
    assert_eq!((limiter.num_requeues(&Alike(0)), limiter.num_requeues(&Alike(1))), (3, 0));
    limiter.forget(&Alike(1));
    assert_eq!(limiter.failed(&Alike(0)), (8 * MS, 4));
}

#[test]
fn forgotten_keys_free_memory_of_an_outage() {
    let limiter = ItemExponentialFailure::new(MS, MS);
    (0..10_000).for_each(|key| assert_eq!(limiter.failed(&key), (MS, 1), "each key counts separately"));
    (0..10_000).for_each(|key| limiter.forget(&key));
    assert_eq!(limiter.failures.keys(), 0);
    assert!(limiter.failures.counts.lock().capacity() <= 1024);
}

#[test]
fn failing_key_keeps_no_memory_of_others() {
    for keys in [1_000, 100_000] {
        let limiter = ItemExponentialFailure::new(MS, MS);
        (0..=keys).for_each(|key| assert_eq!(limiter.when(&key), MS));
        (0..keys).for_each(|key| limiter.forget(&key));
        assert_eq!((limiter.failures.keys(), limiter.num_requeues(&keys)), (1, 1));
        assert!(limiter.failures.counts.lock().capacity() <= 1024);
    }
}

/// client-go: `TestItemFastSlowRateLimiter`
#[test]
fn an_item_is_fast_first_then_slow() {
    let limiter = ItemFastSlow::new(5 * MS, 10_000 * MS, 3);
    for expected in [5, 5, 5, 10_000, 10_000] {
        assert_eq!(limiter.when(&"one"), expected * MS);
    }
    assert_eq!(limiter.num_requeues(&"one"), 5);
    assert_eq!(limiter.when(&"two"), 5 * MS);
    limiter.forget(&"one");
    assert_eq!((limiter.num_requeues(&"one"), limiter.when(&"one")), (0, 5 * MS));
}

/// client-go: `TestWithMaxWaitRateLimiter`
#[test]
fn maximum_wait_limits_only_the_delay() {
    let limiter = WithMaxWait::new(ItemExponentialFailure::new(MS, 1000 * MS), 5 * MS);
    for expected in [1, 2, 4, 5, 5] {
        assert_eq!(limiter.when(&"one"), expected * MS);
    }
    assert_eq!(limiter.num_requeues(&"one"), 5);
    limiter.forget(&"one");
    assert_eq!(limiter.when(&"one"), MS);
}

#[tokio::test(start_paused = true)]
async fn bucket_allows_its_burst_then_its_rate() {
    let bucket = Bucket::new(50.0, 3, Duration::from_secs(120));
    let delays: Vec<Duration> = (0..5).map(|_| RateLimiter::when(&bucket, &"a")).collect();
    assert_eq!(delays, [Duration::ZERO, Duration::ZERO, Duration::ZERO, 20 * MS, 40 * MS]);
    tokio::time::advance(60 * MS).await;
    assert_eq!(RateLimiter::when(&bucket, &"b"), Duration::ZERO);
    tokio::time::advance(Duration::from_secs(3600)).await;
    let full: Vec<Duration> = (0..4).map(|_| RateLimiter::when(&bucket, &"a")).collect();
    assert_eq!(full[3], 20 * MS, "an idle bucket saves no more than its burst");
}

#[tokio::test(start_paused = true)]
async fn bucket_debt_is_limited() {
    let bucket = Bucket::new(50.0, 3, Duration::from_secs(120));
    let longest = (0..100_000).map(|_| RateLimiter::when(&bucket, &"a")).max();
    assert_eq!(longest, Some(Duration::from_secs(120)));
    tokio::time::advance(Duration::from_secs(120)).await;
    assert!(RateLimiter::when(&bucket, &"b") <= 20 * MS, "the debt is paid after two minutes");
}

#[tokio::test(start_paused = true)]
async fn new_limits_apply_to_the_next_failure() {
    let limiter = MaxOf::new(vec![
        Box::new(ItemExponentialFailure::new(MS, 1000 * MS)) as Box<dyn RateLimiter<&str>>,
        Box::new(Bucket::new(1000.0, 2, Duration::from_secs(120))),
    ]);
    assert_eq!((limiter.when(&"one"), limiter.when(&"one")), (MS, 2 * MS));
    let limits = RetryLimits { base_delay: 10 * MS, qps: 10.0, burst: 1 };
    limiter.adopt(&limits);
    assert_eq!(limiter.failed(&"one"), (100 * MS, 3), "the bucket is empty, and earns 10 a second");
    tokio::time::advance(Duration::from_secs(60)).await;
    assert_eq!(limiter.when(&"one"), 80 * MS, "the new base, doubled three times");
    assert_eq!(limiter.when(&"two"), 100 * MS, "the new burst is one");
    limiter.adopt(&RetryLimits { qps: 1000.0, burst: 100, ..limits });
    tokio::time::advance(Duration::from_secs(1)).await;
    assert_eq!(limiter.when(&"three"), 10 * MS);
    let slower = WithMaxWait::new(limiter, MS);
    slower.adopt(&limits);
    assert_eq!(slower.when(&"four"), MS);
}

/// client-go: `TestMaxOfRateLimiter`
#[test]
fn longest_of_several_delays_wins() {
    // A bucket counts no failures, and forgets none.
    let bucket = || Box::new(Bucket::new(1000.0, 1000, MS)) as Box<dyn RateLimiter<&str>>;
    let limiter = MaxOf::new(vec![
        bucket(),
        Box::new(ItemExponentialFailure::new(5 * MS, 10 * MS)),
        Box::new(ItemExponentialFailure::new(MS, 1000 * MS)),
        bucket(),
    ]);
    for expected in [5, 10, 10, 10, 16, 32] {
        assert_eq!(limiter.when(&"one"), expected * MS);
    }
    assert_eq!((limiter.num_requeues(&"one"), bucket().num_requeues(&"one")), (6, 0));
    limiter.forget(&"one");
    assert_eq!((limiter.num_requeues(&"one"), limiter.when(&"one")), (0, 5 * MS));
    let spent = Bucket::new(1.0, 1, Duration::from_secs(9));
    let _ = RateLimiter::when(&spent, &"one");
    RateLimiter::forget(&spent, &"one");
    assert!(RateLimiter::when(&spent, &"one") > 900 * MS, "the debt remains");
}

#[tokio::test(start_paused = true)]
async fn defaults_match_those_of_client_go() {
    let limiter = default_controller_rate_limiter();
    // The item's delays exceed the bucket's; each call takes one token of the burst.
    let delays: Vec<Duration> = (0..20).map(|_| limiter.when(&0)).collect();
    assert_eq!(delays[..3], [5 * MS, 10 * MS, 20 * MS]);
    assert_eq!(delays[17], Duration::from_millis(5 << 17), "the 18th waits 655 s");
    assert_eq!(delays[18..], [DEFAULT_MAX; 2]);
    let others: Vec<Duration> = (1..=82).map(|key| limiter.when(&key)).collect();
    assert_eq!(others[..80], [5 * MS; 80], "the rest of the burst");
    assert_eq!(others[80..], [100 * MS, 200 * MS], "ten a second");
    let limiter = default_item_based_rate_limiter();
    assert_eq!([limiter.when(&"a"), limiter.when(&"a")], [MS, 2 * MS]);
    assert_eq!((0..30).map(|_| limiter.when(&"a")).max(), Some(DEFAULT_MAX));
}
