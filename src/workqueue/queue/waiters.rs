//! Who waits for a key, and who is on the way to one.
//!
//! A worker that is woken takes a while until it is here, and meanwhile more keys may come. To wake another for each
//! of them is a herd that finds the queue empty, because one worker takes many keys. So few are on their way at a
//! time, and each that comes and leaves keys behind has the next one woken: as long as there are keys and workers that
//! wait, one is on its way.

use std::collections::VecDeque;
use std::task::Waker;

/// So many are on their way at a time. More than one: a runtime may keep the last that was woken behind the task that
/// woke it, where no other thread finds it. The model checker, which has few threads, is to see what the limit does.
const WOKEN_MAX: u32 = if cfg!(feature = "shuttle") { 1 } else { 4 };

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Waiters {
    /// With names, which grow.
    waiting: VecDeque<(u64, Waker)>,
    last: u64,
    /// How many were woken and are not here yet.
    woken: u32,
    wakeups: u64,
}

impl Waiters {
    /// Waits; the name under which it does.
    pub(super) fn wait(&mut self, waker: &Waker) -> u64 {
        self.last += 1;
        self.waiting.push_back((self.last, waker.clone()));
        self.last
    }

    /// Who waited under this name is here, or has given up; whether it had been woken.
    pub(super) fn arrive(&mut self, name: u64) -> bool {
        let place = self.waiting.binary_search_by_key(&name, |(name, _)| *name).ok();
        let was_woken = place.and_then(|at| self.waiting.remove(at)).is_none();
        if was_woken {
            self.woken = self.woken.saturating_sub(1);
        }
        was_woken
    }

    /// Who is to be woken for a key.
    #[inline]
    pub(super) fn next(&mut self) -> Option<Waker> {
        if self.woken >= WOKEN_MAX {
            return None;
        }
        let (_, waker) = self.waiting.pop_front()?;
        self.woken += 1;
        self.wakeups += 1;
        Some(waker)
    }

    /// Everybody, because it is over.
    pub(super) fn all(&mut self) -> impl Iterator<Item = Waker> + use<> {
        std::mem::take(&mut self.waiting).into_iter().map(|(_, waker)| waker)
    }

    /// How often one was woken for a key.
    pub(super) fn wakeups(&self) -> u64 {
        self.wakeups
    }
}
