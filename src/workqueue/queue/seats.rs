//! Who works on a key: each worker in a seat of its own, with what was added for its key meanwhile.

use super::state::Why;

/// See the module.
#[derive(Debug)]
pub(super) struct Seats<T> {
    seats: Vec<Seat<T>>,
    free: Vec<u32>,
}

#[derive(Debug)]
struct Seat<T> {
    /// Since when the worker works; [`EMPTY`] when nobody does.
    since: u64,
    again: Vec<Again<T>>,
}

const EMPTY: u64 = u64::MAX;

/// A key that is added while it is processed.
#[derive(Debug)]
pub(super) struct Again<T> {
    pub(super) key: T,
    pub(super) hash: u32,
    pub(super) why: Why,
}

impl<T> Default for Seats<T> {
    fn default() -> Self {
        Self { seats: Vec::new(), free: Vec::new() }
    }
}

impl<T: Eq> Seats<T> {
    /// Takes a seat.
    #[inline]
    pub(super) fn take(&mut self, now: u64) -> u32 {
        if let Some(seat) = self.free.pop() {
            self.seats[seat as usize].since = now;
            return seat;
        }
        self.seats.push(Seat { since: now, again: Vec::new() });
        u32::try_from(self.seats.len() - 1).expect("there are fewer than four billion workers")
    }

    /// Keeps what is to be added when this seat is left; returns the key if it is kept already.
    pub(super) fn keep(&mut self, seat: u32, again: Again<T>) -> Option<T> {
        let all = &mut self.seats[seat as usize].again;
        let Some(known) = all.iter_mut().find(|known| known.key == again.key) else {
            all.push(again);
            return None;
        };
        known.why.merge(again.why);
        Some(again.key)
    }

    /// Leaves a seat: since when it was taken, and what was kept for it.
    #[inline]
    pub(super) fn leave(&mut self, seat: u32) -> (u64, Vec<Again<T>>) {
        self.free.push(seat);
        let seat = &mut self.seats[seat as usize];
        (std::mem::replace(&mut seat.since, EMPTY), std::mem::take(&mut seat.again))
    }

    /// What is to be added when they are left.
    pub(super) fn again(&self) -> impl Iterator<Item = &Again<T>> {
        self.seats.iter().flat_map(|seat| &seat.again)
    }

    /// How many are taken.
    pub(super) fn taken(&self) -> usize {
        self.seats.len() - self.free.len()
    }

    /// Since when each is.
    pub(super) fn since(&self) -> impl Iterator<Item = u64> + Clone {
        self.seats.iter().map(|seat| seat.since).filter(|&since| since != EMPTY)
    }
}
