//! Tells an observer of each request but the lists and watches of the caches.
//!
//! Flow: client -> **observer** -> `/debug`
//!
//! # Guarantees
//! - An observer is told when a request waits at the gate, when it is sent, and how it ended.
//!   (test: `observer_is_told_of_each_request`)

use std::fmt;
use std::sync::Arc;

use super::error::Error;

/// Is told of requests. The methods are called by the task that makes the request and must be quick.
pub trait RequestObserver: fmt::Debug + Send + Sync + 'static {
    /// A request has come to the gate. Returns an identifier for the other methods.
    fn began(&self, method: &str, path: &str) -> u64;
    /// The request has passed the gate and is sent.
    fn sent(&self, id: u64);
    /// The request ended, or its caller has dropped it.
    fn ended(&self, id: u64, answer: Answer);
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The server did what was asked.
    Success,
    /// The server answered with this code.
    Code(u16),
    /// There was no response, or nobody waits for it any more.
    None,
}

/// Tells the observer of a request that it is sent.
#[derive(Debug)]
pub(super) struct SentSignal {
    observer: Arc<dyn RequestObserver>,
    id: u64,
}

impl SentSignal {
    pub(super) fn sent(self) {
        self.observer.sent(self.id);
    }
}

/// A request under sent_signal, which ends when this is dropped.
pub(super) struct ObservedRequest {
    observer: Arc<dyn RequestObserver>,
    id: u64,
    answer: Answer,
}

impl ObservedRequest {
    pub(super) fn began(observer: Arc<dyn RequestObserver>, method: &str, path: &str) -> Self {
        let id = observer.began(method, path);
        Self { observer, id, answer: Answer::None }
    }

    /// Returns what tells the observer that the request is sent.
    pub(super) fn sent_signal(&self) -> SentSignal {
        SentSignal { observer: self.observer.clone(), id: self.id }
    }

    pub(super) fn answered<T>(mut self, outcome: &Result<T, Error>) {
        self.answer = match outcome {
            Ok(_) => Answer::Success,
            Err(error) => error.status().map_or(Answer::None, |status| Answer::Code(status.code)),
        };
    }
}

impl Drop for ObservedRequest {
    fn drop(&mut self) {
        self.observer.ended(self.id, self.answer);
    }
}
