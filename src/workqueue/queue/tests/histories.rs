//! Histories of adds, gets and dones, whatever they are.

use proptest::prelude::*;

use super::*;
use crate::workqueue::{Listed, Stage};

#[derive(Clone, Debug)]
enum Step {
    Add(u8, i32),
    Get,
    /// Ends the n-th of the passes that are under way.
    Done(usize),
    /// So many times 700 ms pass: never a multiple of the ageing, so that no two ranks are equal.
    Wait(u64),
}

/// What the queue is held against: lists, and a search through all of them at each turn.
#[derive(Default)]
struct Model {
    /// Milliseconds.
    now: i64,
    /// Key, priority, and when it came to its place.
    waiting: Vec<(u8, i32, i64)>,
    held: Vec<u8>,
    /// Keys that come again after their pass, with their priority.
    again: Vec<(u8, i32)>,
    turn: i64,
}

impl Model {
    /// Each key that will have a pass, its priority, and whether it is queued.
    fn listed(&self) -> Vec<(u8, i32, bool)> {
        let queued = self.waiting.iter().map(|&(key, priority, _)| (key, priority, true));
        let again = self.again.iter().map(|&(key, priority)| (key, priority, false));
        let mut all: Vec<_> = queued.chain(again).collect();
        all.sort_unstable();
        all
    }

    /// A place of its own in time.
    fn stamp(&mut self) -> i64 {
        self.turn += 1;
        self.now * 1_000_000 + self.turn
    }

    /// The ageing is a second.
    fn rank((_, priority, stamp): (u8, i32, i64)) -> i64 {
        stamp - 1_000_000_000 * i64::from(priority)
    }

    fn add(&mut self, key: u8, priority: i32) {
        if self.held.contains(&key) {
            match self.again.iter_mut().find(|(known, _)| *known == key) {
                Some((_, known)) => *known = priority.max(*known),
                None => self.again.push((key, priority)),
            }
        } else if let Some(at) = self.waiting.iter().position(|(known, ..)| *known == key) {
            let place = self.waiting[at];
            let raised = (key, priority, self.now * 1_000_000 + self.turn + 1);
            if priority > place.1 && Self::rank(raised) < Self::rank(place) {
                self.stamp();
                self.waiting[at] = raised;
            }
        } else {
            let stamp = self.stamp();
            self.waiting.push((key, priority, stamp));
        }
    }

    fn get(&mut self) -> Option<u8> {
        let first = self.waiting.iter().copied().min_by_key(|&place| (Self::rank(place), -place.1))?;
        self.waiting.retain(|place| *place != first);
        self.held.push(first.0);
        Some(first.0)
    }

    fn done(&mut self, at: usize) {
        let key = self.held.remove(at);
        if let Some(at) = self.again.iter().position(|(known, _)| *known == key) {
            let (key, priority) = self.again.remove(at);
            let stamp = self.stamp();
            self.waiting.push((key, priority, stamp));
        }
    }
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (0..5_u8, -3..3_i32).prop_map(|(key, priority)| Step::Add(key, priority)),
        3 => Just(Step::Get),
        2 => (0..4_usize).prop_map(Step::Done),
        1 => (1..4_u64).prop_map(Step::Wait),
    ];
    prop::collection::vec(step, 1..80)
}

/// One history on a queue and on the model; each key has one worker, and none is lost.
async fn agrees_with_the_model(has_priorities: bool, steps: Vec<Step>) {
    let ageing = Ageing(Duration::from_secs(1));
    let queue =
        Queue::with(QueueOptions { ageing: has_priorities.then_some(ageing), ..QueueOptions::default() });
    let mut model = Model::default();
    let mut held: Vec<Processing<'_, u8>> = Vec::new();
    for step in steps {
        match step {
            Step::Add(key, priority) => {
                queue.add_with(key, priority, Reasons::default());
                model.add(key, if has_priorities { priority } else { 0 });
            }
            Step::Get => {
                let got = queue.try_get();
                assert_eq!(got.as_ref().map(|p| *p.key()), model.get());
                held.extend(got);
            }
            Step::Done(at) if at < held.len() => {
                drop(held.remove(at));
                model.done(at);
            }
            Step::Done(_) => {}
            Step::Wait(times) => {
                tokio::time::advance(Duration::from_millis(700 * times)).await;
                model.now += 700 * i64::try_from(times).expect("it is small");
            }
        }
        let state = queue.state();
        assert_eq!((queue.len(), state.processing), (model.waiting.len(), model.held.len()));
        assert_eq!(state.depth, model.waiting.len() + model.again.len());
        let is_queued = |listed: &Listed<u8>| matches!(listed.stage, Stage::Queued { .. });
        // A plain queue takes no heed of priorities.
        let priority = |listed: &Listed<u8>| if has_priorities { listed.priority } else { 0 };
        let listed = queue.list(100);
        let mut listed: Vec<_> = listed.iter().map(|one| (one.key, priority(one), is_queued(one))).collect();
        listed.sort_unstable();
        assert_eq!(listed, model.listed());
    }
    drains_as_the_model(&queue, model, held);
}

/// A drain goes on as long as something is queued, processed or to come again, and takes nothing more; what is left is
/// handed out in its order, each once.
fn drains_as_the_model<'a>(queue: &'a Queue<u8>, mut model: Model, mut held: Vec<Processing<'a, u8>>) {
    let mut drain = Box::pin(queue.shut_down_with_drain());
    loop {
        let is_idle = model.waiting.is_empty() && model.held.is_empty() && model.again.is_empty();
        assert_eq!(drain.as_mut().now_or_never().is_some(), is_idle);
        // Some of them are queued, some processed, some unknown.
        (0..8).for_each(|key| queue.add_with(key, 7, Reasons::default()));
        let got = queue.try_get();
        assert_eq!(got.as_ref().map(|p| *p.key()), model.get());
        if is_idle {
            break;
        }
        match got {
            Some(got) => held.push(got),
            None => {
                drop(held.remove(0));
                model.done(0);
            }
        }
    }
    assert_eq!((queue.len(), queue.state().depth, queue.processing()), (0, 0, 0));
}

proptest! {
    #[test]
    fn the_queue_agrees_with_a_naive_model(has_priorities in any::<bool>(), steps in steps()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        runtime.unwrap().block_on(agrees_with_the_model(has_priorities, steps));
    }
}

proptest! {
    /// The worst that equal hashes do is that a key waits for the end of another: none is lost, none has two workers,
    /// and each add is answered by a pass that begins after it.
    #[test]
    fn keys_of_one_hash_are_all_handed_out(steps in steps()) {
        let queue = Queue::<Alike>::new();
        let (mut wanted, mut held) = (BTreeSet::new(), Vec::<Processing<'_, Alike>>::new());
        let hand_out = |wanted: &mut BTreeSet<u8>, held: &[Processing<'_, Alike>]| {
            let got = queue.try_get();
            if let Some(got) = &got {
                assert!(wanted.remove(&got.key().0), "{got:?} was not asked for");
                assert!(held.iter().all(|held| held.key() != got.key()), "{got:?} has two workers");
            }
            got
        };
        for step in steps {
            match step {
                Step::Add(key, priority) => {
                    queue.add_with(Alike(key), priority, Reasons::default());
                    wanted.insert(key);
                }
                Step::Get => held.extend(hand_out(&mut wanted, &held)),
                Step::Done(at) if at < held.len() => drop(held.remove(at)),
                Step::Done(_) | Step::Wait(_) => {}
            }
            prop_assert!(queue.state().depth >= wanted.len());
        }
        held.clear();
        while hand_out(&mut wanted, &held).is_some() {}
        prop_assert_eq!((wanted.len(), queue.state().depth, queue.processing()), (0, 0, 0));
    }
}
