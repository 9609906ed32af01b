//! Chapter 5, the queue: each key once, and never two workers with one key.

use std::collections::{HashSet, VecDeque};

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::ch3::Key;

/// Keys that need a look.
#[derive(Debug, Default)]
pub struct Queue {
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// The keys that can be handed out, in order.
    ready: VecDeque<Key>,
    /// The keys that need a look.
    dirty: HashSet<Key>,
    /// The keys that a worker has.
    processing: HashSet<Key>,
    is_shut_down: bool,
}

impl Queue {
    /// Says that a key needs a look.
    pub fn add(&self, key: Key) {
        todo!("chapter 5: add")
    }

    /// Takes the next key; waits while there is none. `None` when the queue is shut down and empty.
    pub async fn get(&self) -> Option<Key> {
        todo!("chapter 5: get")
    }

    /// Gives a key back. If it has been added meanwhile, it needs another look.
    pub fn done(&self, key: &Key) {
        todo!("chapter 5: done")
    }

    /// Returns how many keys can be handed out.
    pub fn len(&self) -> usize {
        self.state.lock().ready.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Takes no more keys. What is in the queue is still handed out.
    pub fn shut_down(&self) {
        todo!("chapter 5: shut_down")
    }
}
