//! What goes wrong in the models of elections: processes freeze, and requests for Leases come late, fail, or are carried
//! out without an answer.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

use parking_lot::Mutex;

use crate::sim::{Action, Fault, FaultId, Sim, When};

/// Whether a process is frozen, and who wakes it. Cheap to clone: all clones are one.
#[derive(Clone, Debug, Default)]
pub(super) struct Frost(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    is_frozen: bool,
    waker: Option<Waker>,
}

impl Frost {
    pub(super) fn set(&self, is_frozen: bool) {
        let mut state = self.0.lock();
        state.is_frozen = is_frozen;
        if !is_frozen && let Some(waker) = state.waker.take() {
            waker.wake();
        }
    }

    /// Runs a future, except while it is frozen.
    pub(super) async fn over<F: Future>(self, future: F) -> F::Output {
        let mut future = pin!(future);
        poll_fn(|context| {
            let mut state = self.0.lock();
            if state.is_frozen {
                state.waker = Some(context.waker().clone());
                return Poll::Pending;
            }
            drop(state);
            future.as_mut().poll(context)
        })
        .await
    }
}

/// The faults of a server.
pub(super) struct Faults {
    sim: Sim,
    injected: Vec<FaultId>,
}

impl Faults {
    pub(super) fn new(sim: &Sim) -> Self {
        Self { sim: sim.clone(), injected: Vec::new() }
    }

    /// Ends all faults, and carries out the requests that are held.
    pub(super) fn heal(&mut self) {
        for fault in self.injected.drain(..) {
            self.sim.heal(fault);
        }
        self.sim.release();
    }

    /// Breaks the requests of this user for Leases with one of the verbs; an empty verb stands for all.
    pub(super) fn inject(&mut self, random: &mut fastrand::Rng, user: &str, verbs: &[&str]) {
        let action = match random.u8(..6) {
            0 => Action::refuse(500, "InternalError"),
            1 => Action::DropBefore,
            2 => Action::DropAfter,
            3 => Action::FailAfter(504),
            4 => Action::Hold,
            _ => Action::Delay(Duration::from_millis(random.u64(1..20_000))),
        };
        let when = When::verb(verbs[random.usize(..verbs.len())]).resource("leases").user(user);
        self.injected.push(self.sim.fault(Fault::new(when, action)));
    }
}

/// Returns the number in an environment variable, or the default if it is not set.
pub(super) fn number(variable: &str, default: u64) -> u64 {
    let given = std::env::var(variable).ok();
    given.map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{variable}={text} is no number")))
}
