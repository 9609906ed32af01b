//! Generated histories of adds, gets and dones, on the queue and on a naive model.

use proptest::prelude::*;

use super::*;
use crate::workqueue::{Listed, Stage};

#[derive(Clone, Debug)]
enum QueueCall {
    Add(u8, i32),
    Get,
    /// Ends the n-th pass in progress.
    Done(usize),
    /// Advances the time by this many times 700 ms.
    Wait(u64),
}

/// A naive queue: lists that are searched completely at each step.
#[derive(Default)]
struct Model {
    /// The time in milliseconds.
    now: i64,
    waiting: Vec<Entry>,
    held: Vec<u8>,
    /// Keys to requeue after their pass, with their priority.
    again: Vec<(u8, i32)>,
    turn: i64,
}

struct Entry {
    key: u8,
    priority: i32,
    /// The best rank of all adds.
    rank: (i64, i64),
}

impl Model {
    /// Returns each key with a pending pass, its priority, and whether it is queued.
    fn listed(&self) -> Vec<(u8, i32, bool)> {
        let queued = self.waiting.iter().map(|entry| (entry.key, entry.priority, true));
        let again = self.again.iter().map(|&(key, priority)| (key, priority, false));
        let mut all: Vec<_> = queued.chain(again).collect();
        all.sort_unstable();
        all
    }

    /// Returns the rank of an add, with an ageing of one second.
    fn rank(&mut self, priority: i32) -> (i64, i64) {
        self.turn += 1;
        (self.now - 1000 * i64::from(priority), self.turn)
    }

    fn add(&mut self, key: u8, priority: i32) {
        if self.held.contains(&key) {
            match self.again.iter_mut().find(|(known, _)| *known == key) {
                Some((_, known)) => *known = priority.max(*known),
                None => self.again.push((key, priority)),
            }
            return;
        }
        let rank = self.rank(priority);
        match self.waiting.iter_mut().find(|entry| entry.key == key) {
            Some(entry) => {
                entry.priority = entry.priority.max(priority);
                entry.rank = entry.rank.min(rank);
            }
            None => self.waiting.push(Entry { key, priority, rank }),
        }
    }

    fn get(&mut self) -> Option<u8> {
        let first = (0..self.waiting.len()).min_by_key(|&at| self.waiting[at].rank)?;
        let Entry { key, .. } = self.waiting.remove(first);
        self.held.push(key);
        Some(key)
    }

    fn done(&mut self, at: usize) {
        let key = self.held.remove(at);
        if let Some(at) = self.again.iter().position(|(known, _)| *known == key) {
            let (key, priority) = self.again.remove(at);
            let rank = self.rank(priority);
            self.waiting.push(Entry { key, priority, rank });
        }
    }
}

fn steps() -> impl Strategy<Value = Vec<QueueCall>> {
    let step = prop_oneof![
        4 => (0..5_u8, -3..3_i32).prop_map(|(key, priority)| QueueCall::Add(key, priority)),
        3 => Just(QueueCall::Get),
        2 => (0..4_usize).prop_map(QueueCall::Done),
        1 => (1..4_u64).prop_map(QueueCall::Wait),
    ];
    prop::collection::vec(step, 1..80)
}

/// Runs one history on a queue and on the model: each key has one worker, and no key is lost.
async fn agrees_with_the_model(has_priorities: bool, steps: Vec<QueueCall>) {
    let ageing = Ageing(Duration::from_secs(1));
    let queue =
        Queue::with(QueueOptions { ageing: has_priorities.then_some(ageing), ..QueueOptions::default() });
    let mut model = Model::default();
    let mut held: Vec<Processing<'_, Alike>> = Vec::new();
    for step in steps {
        match step {
            QueueCall::Add(key, priority) => {
                queue.add_with(Alike(key), priority, Reasons::default());
                model.add(key, if has_priorities { priority } else { 0 });
            }
            QueueCall::Get => {
                let got = queue.try_get();
                assert_eq!(got.as_ref().map(|p| p.key().0), model.get());
                held.extend(got);
            }
            QueueCall::Done(at) if at < held.len() => {
                drop(held.remove(at));
                model.done(at);
            }
            QueueCall::Done(_) => {}
            QueueCall::Wait(times) => {
                tokio::time::advance(Duration::from_millis(700 * times)).await;
                model.now += 700 * i64::try_from(times).expect("the number is small");
            }
        }
        let state = queue.state();
        assert_eq!((queue.len(), state.processing), (model.waiting.len(), model.held.len()));
        assert_eq!(state.depth, model.waiting.len() + model.again.len());
        let is_queued = |listed: &Listed<Alike>| matches!(listed.stage, Stage::Queued { .. });
        // Without ageing, priorities have no effect.
        let priority = |listed: &Listed<Alike>| if has_priorities { listed.priority } else { 0 };
        let listed = queue.list(100);
        let mut listed: Vec<_> =
            listed.iter().map(|one| (one.key.0, priority(one), is_queued(one))).collect();
        listed.sort_unstable();
        assert_eq!(listed, model.listed());
    }
    drains_as_the_model(&queue, model, held);
}

/// Drains a queue beside the model: the drain waits while a key is queued, processing or to be requeued, ignores adds,
/// and hands out each remaining key once, in order.
fn drains_as_the_model<'a>(queue: &'a Queue<Alike>, mut model: Model, mut held: Vec<Processing<'a, Alike>>) {
    let mut drain = Box::pin(queue.shut_down_with_drain());
    loop {
        let is_idle = model.waiting.is_empty() && model.held.is_empty() && model.again.is_empty();
        assert_eq!(drain.as_mut().now_or_never().is_some(), is_idle);
        // Some of these keys are queued, some processing, some unknown.
        (0..8).for_each(|key| queue.add_with(Alike(key), 7, Reasons::default()));
        let got = queue.try_get();
        assert_eq!(got.as_ref().map(|p| p.key().0), model.get());
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
