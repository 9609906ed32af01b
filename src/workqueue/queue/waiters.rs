//! Who waits for a key, and who is on the way to one.
//!
//! A worker that is woken takes a while until it is here, and meanwhile more keys may come. To wake another for each
//! of them is a herd that finds the queue empty, because one worker takes many keys. So few are on their way at a
//! time, and each that comes and leaves keys behind has the next one woken: as long as there are keys and workers that
//! wait, one is on its way.

use std::collections::VecDeque;
use std::num::NonZero;
use std::sync::LazyLock;
use std::task::Waker;

/// So many are on their way at a time: one more than there are processors. A runtime may keep the one that a task has
/// woken last behind that task, on the same thread, where no other thread finds it; and a task may compute for long.
/// So as many may be held up as there are threads. The model checker, which has few, is to see what the limit does.
pub(super) fn woken_max() -> u32 {
    static PROCESSORS: LazyLock<u32> = LazyLock::new(|| {
        let found = std::thread::available_parallelism().map_or(1, NonZero::get);
        u32::try_from(found).unwrap_or(u32::MAX - 1)
    });
    if cfg!(feature = "shuttle") { 1 } else { PROCESSORS.max(3) + 1 }
}

/// See the module.
#[derive(Debug)]
pub(super) struct Waiters {
    /// With names, which grow.
    waiting: VecDeque<(u64, Waker)>,
    last: u64,
    /// How many were woken and are not here yet.
    woken: u32,
    woken_max: u32,
    wakeups: u64,
}

impl Default for Waiters {
    fn default() -> Self {
        Self { waiting: VecDeque::new(), last: 0, woken: 0, woken_max: woken_max(), wakeups: 0 }
    }
}

impl Waiters {
    /// Waits; the name under which it does.
    pub(super) fn wait(&mut self, waker: &Waker) -> u64 {
        self.last += 1;
        self.waiting.push_back((self.last, waker.clone()));
        self.last
    }

    /// Who waited under this name is here, or has given up. Returns the waker, if it had not been woken.
    pub(super) fn arrive(&mut self, name: u64) -> Option<Waker> {
        let place = self.waiting.binary_search_by_key(&name, |(name, _)| *name).ok();
        let waker = place.and_then(|at| self.waiting.remove(at)).map(|(_, waker)| waker);
        if waker.is_none() {
            self.woken = self.woken.saturating_sub(1);
        }
        waker
    }

    /// Who is to be woken for a key.
    #[inline]
    pub(super) fn next(&mut self) -> Option<Waker> {
        if self.woken >= self.woken_max {
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
