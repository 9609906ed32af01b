//! Up to five members, up to sixteen shards, and whatever can go wrong: never two may write in one shard, in the end each
//! has a writer, and shares are even.
//!
//! As in the model of a single leader: processes freeze and thaw, end and start, their clocks are hours apart, requests for
//! Leases come late, fail, or are carried out without an answer. `WINDLASS_SHARDS_SEED` repeats a failure,
//! `WINDLASS_SHARDS_RUNS` says how many runs there are.

use jiff::Timestamp;

use super::*;
use crate::client::Clock;
use crate::client::shards::Change;
use crate::leader_election::tests::{Faults, Frost, number};

/// How often the gates are looked at.
const TICK: Duration = Duration::from_millis(100);
/// How long things go wrong.
const TROUBLE: Duration = Duration::from_secs(240);
/// How long it takes until shares are even, when all is well again.
const RECOVERY: Duration = Duration::from_secs(90);
/// So many runs lose shards.
const ENOUGH: u64 = 8;

struct Process {
    member: Member,
    frost: Frost,
    /// Syncs in flight.
    syncs: Vec<Admission>,
}

impl Process {
    fn start(sim: &Sim, user: &str, starts: usize, of: u16, skew_hours: i64) -> Self {
        let (client, shards) = (client(sim, user), Shards::new(sharding(of)));
        let epoch = Timestamp::now() + jiff::SignedDuration::from_hours(skew_hours);
        let elector =
            elector(&client, &format!("{user}-{starts}"), &shards).with_clock(Clock::starting_at(epoch));
        let (frost, release) = (Frost::default(), CancellationToken::new());
        let mut task = JoinSet::new();
        task.spawn(frost.clone().over(elector.run(CancellationToken::new(), release.clone())));
        Self { member: Member { client, shards, release, task }, frost, syncs: Vec::new() }
    }

    fn set_frozen(&self, is_frozen: bool) {
        self.frost.set(is_frozen);
    }
}

/// The observations of one run.
#[derive(Debug, Default)]
struct Seen {
    /// The most processes that could write in one shard at once.
    writers: usize,
    /// The most processes that took themselves for the holder of one shard at once.
    holders: usize,
    /// The number of shards that were lost.
    losses: u64,
    counts_in_the_end: Vec<usize>,
    unheld_in_the_end: usize,
}

async fn run(seed: u64) -> Seen {
    let mut random = fastrand::Rng::with_seed(seed);
    let sim = Sim::new(Settings { seed, ..Settings::default() });
    let (driven, mut driver) = (sim.clone(), JoinSet::new());
    driver.spawn(async move { driven.run().await });
    let of = random.u16(1..=16);
    let namespaces: Vec<String> = (0..of).map(|shard| namespace(shard, of)).collect();
    let users = &["a", "b", "c", "d", "e"][..random.usize(2..=5)];
    let skews: Vec<i64> = users.iter().map(|_| random.i64(-3..=3)).collect();
    let mut of_each = Vec::<Shards>::new();
    let mut start = |at: usize| {
        let process = Process::start(&sim, users[at], of_each.len(), of, skews[at]);
        of_each.push(process.member.shards.clone());
        process
    };
    let mut processes: Vec<Process> = (0..users.len()).map(&mut start).collect();
    let (mut seen, started) = (Seen::default(), Instant::now());
    let (mut faults, mut next_trouble) = (Faults::new(&sim), Duration::ZERO);
    loop {
        let now = started.elapsed();
        if now >= TROUBLE {
            break;
        }
        if now >= next_trouble {
            next_trouble = now + Duration::from_millis(random.u64(200..12_000));
            faults.heal();
            for (at, process) in processes.iter_mut().enumerate() {
                disturb(&mut random, process, &namespaces, || start(at)).await;
            }
            if random.u8(..4) > 0 {
                let user = users[random.usize(..users.len())];
                faults.inject(&mut random, user, &["list", "update", "update", "create", ""]);
            }
        }
        look(&mut seen, &processes, &namespaces);
        tokio::time::sleep(TICK).await;
    }
    faults.heal();
    for process in &mut processes {
        process.set_frozen(false);
        process.syncs.clear();
    }
    let healed = Instant::now();
    while healed.elapsed() < RECOVERY {
        look(&mut seen, &processes, &namespaces);
        tokio::time::sleep(TICK).await;
    }
    seen.counts_in_the_end = processes.iter().map(|process| process.member.count()).collect();
    let is_held =
        |name: &&String| processes.iter().any(|process| process.member.client.gate().is_open_for(name));
    seen.losses = of_each.iter().filter_map(|shards| shards.counts().get(&Change::Lost).copied()).sum();
    seen.unheld_in_the_end = namespaces.iter().filter(|name| !is_held(name)).count();
    seen
}

/// Freezes or thaws a process, replaces it, or lets syncs of it begin or end.
async fn disturb(
    random: &mut fastrand::Rng,
    process: &mut Process,
    namespaces: &[String],
    start: impl FnOnce() -> Process,
) {
    process.set_frozen(random.u8(..5) == 0);
    if random.u8(..12) == 0 {
        // It ends without a word, and another one is started.
        *process = start();
    } else if random.u8(..12) == 0 {
        let ended = std::mem::replace(process, start());
        ended.set_frozen(false);
        ended.member.stop().await;
    } else if random.u8(..3) == 0 {
        process.syncs.clear();
    } else if random.u8(..3) == 0 {
        process.syncs.extend(namespaces.iter().map(|name| process.member.shards.admit(name)));
    }
}

fn look(seen: &mut Seen, processes: &[Process], namespaces: &[String]) {
    for namespace in namespaces {
        let may_write = |process: &&Process| process.member.client.gate().is_open_for(namespace);
        seen.writers = seen.writers.max(processes.iter().filter(may_write).count());
    }
    let held = processes.iter().map(|process| process.member.shards.held());
    let mut holders = vec![0; namespaces.len()];
    held.for_each(|held| held.iter().for_each(|shard| holders[usize::from(shard)] += 1));
    seen.holders = seen.holders.max(holders.into_iter().max().unwrap_or_default());
}

#[tokio::test(start_paused = true)]
async fn never_two_write_in_a_shard_and_one_eventually_does() {
    let first = number("WINDLASS_SHARDS_SEED", fastrand::u64(..1 << 40));
    let runs = number("WINDLASS_SHARDS_RUNS", ENOUGH);
    let (mut losses, mut disputed) = (0, 0);
    for seed in first.. {
        // One run in four has two processes that take themselves for the holder of a shard, so that both would write
        // without the fence. The default is to go on until there was one.
        let done = seed - first;
        if done >= runs && (runs < ENOUGH || disputed > 0) {
            break;
        }
        assert!(done < 8 * runs, "never two that take themselves for the holder");
        let seen = run(seed).await;
        assert!(seen.writers <= 1, "WINDLASS_SHARDS_SEED={seed}: {seen:?}");
        let (least, most) = (seen.counts_in_the_end.iter().min(), seen.counts_in_the_end.iter().max());
        let is_even = least.zip(most).is_some_and(|(least, most)| most - least <= 1);
        assert!(is_even && seen.unheld_in_the_end == 0, "WINDLASS_SHARDS_SEED={seed}: {seen:?}");
        losses += seen.losses;
        disputed += u32::from(seen.holders > 1);
    }
    assert!(runs < ENOUGH || losses >= 20, "{losses} shards were lost");
}
