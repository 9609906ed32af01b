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

// [given state]
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
// [/given state]

impl Queue {
    // [add]
    /// Says that a key needs a look.
    pub fn add(&self, key: Key) {
        let mut state = self.state.lock();
        if state.is_shut_down || !state.dirty.insert(key.clone()) {
            return;
        }
        // A worker has it: `done` will put it back.
        if !state.processing.contains(&key) {
            state.ready.push_back(key);
            self.changed.notify_one();
        }
    }
    // [/add]

    // [get]
    /// Takes the next key; waits while there is none. `None` when the queue is shut down and empty.
    pub async fn get(&self) -> Option<Key> {
        loop {
            {
                let mut state = self.state.lock();
                if let Some(key) = state.ready.pop_front() {
                    state.dirty.remove(&key);
                    state.processing.insert(key.clone());
                    if !state.ready.is_empty() {
                        // Two adds may have woken one worker.
                        self.changed.notify_one();
                    }
                    return Some(key);
                }
                if state.is_shut_down {
                    // The next worker has to hear of it, too.
                    self.changed.notify_one();
                    return None;
                }
            }
            self.changed.notified().await;
        }
    }
    // [/get]

    // [done]
    /// Gives a key back. If it has been added meanwhile, it needs another look.
    pub fn done(&self, key: &Key) {
        let mut state = self.state.lock();
        state.processing.remove(key);
        if state.dirty.contains(key) {
            state.ready.push_back(key.clone());
            self.changed.notify_one();
        }
    }
    // [/done]

    /// Returns how many keys can be handed out.
    pub fn len(&self) -> usize {
        self.state.lock().ready.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    // [shut_down]
    /// Takes no more keys. What is in the queue is still handed out.
    pub fn shut_down(&self) {
        self.state.lock().is_shut_down = true;
        self.changed.notify_one();
    }
    // [/shut_down]
}
