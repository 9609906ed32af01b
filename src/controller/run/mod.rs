//! Turns changes of objects into passes over their keys.
//!
//! Mirrors sample-controller `controller.go` (`Run`, `runWorker`, `processNextWorkItem`).
//!
//! ```text
//! informers -> handlers -> queue -> worker -> sync handler -> outcome -> queue
//! ```
//!
//! | module | does |
//! |---|---|
//! | [`handlers`] | maps changed objects to the keys to enqueue |
//! | [`worker`] | takes keys off the queue and syncs them |
//! | [`outcome`] | defines how a sync ends and when the next one comes |
//! | [`takeover`] | makes a new leader distrust its caches until they have caught up |
//! | [`observer`] | tells an observer what happens to each key |
//! | [`audit`] | finds changes that the caches have missed |

pub(super) mod audit;
pub(super) mod handlers;
pub(super) mod observer;
pub(super) mod outcome;
pub(super) mod takeover;
pub(super) mod worker;
