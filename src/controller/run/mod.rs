//! From a changed object to a pass over its key: sample-controller's `Run`, `runWorker` and `processNextWorkItem`.
//!
//! ```text
//! informers -> handlers -> queue -> worker -> sync handler -> outcome -> queue
//! ```
//!
//! | module | in one sentence |
//! |---|---|
//! | [`handlers`] | from a changed object to the key of its owner |
//! | [`worker`] | takes keys off the queue and syncs them |
//! | [`outcome`] | how a pass ends, and what follows |
//! | [`consistency`] | holds a key until the caches have seen what it wrote |
//! | [`hot_loop`] | notices a key that requeues itself without end |
//! | [`audit`] | finds what the caches have missed |

pub mod audit;
pub mod consistency;
pub mod handlers;
pub mod hot_loop;
pub mod outcome;
pub mod worker;
