//! A number of slots that tenants share, so that none of them can take all.
//!
//! Flow: writes, hooks -> **slots** -> API server, endpoints
//!
//! # How it works
//! A tenant takes another slot only while more slots are free than it holds. So a tenant alone gets half of them, a
//! second one half of what is left, and so on: there is a free slot for a newcomer, however long the others hold
//! theirs.
//!
//! # Guarantees
//! - A tenant that holds its slots for ever leaves slots to others. (test: `one_tenant_leaves_slots_to_others`)
//! - Waiting tenants that may take a slot get it in the order of their arrival. (test: `waiting_tenants_are_served_in_order`)
//! - A wait that is given up takes no slot. (test: `abandoned_wait_takes_no_slot`)

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::oneshot;

/// Slots that tenants share; see the module. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct FairSlots(Arc<Mutex<Slots>>);

/// A slot, free again when dropped.
#[derive(Debug)]
pub(crate) struct Slot {
    slots: FairSlots,
    tenant: String,
}

#[derive(Debug)]
struct Slots {
    free: usize,
    /// The number of slots by tenant; tenants without a slot are not listed.
    held: HashMap<String, usize>,
    waiting: VecDeque<(String, oneshot::Sender<Slot>)>,
}

// === impl FairSlots ===

impl FairSlots {
    /// Creates this many free slots.
    #[must_use]
    pub(crate) fn new(slots: usize) -> Self {
        Self(Arc::new(Mutex::new(Slots { free: slots, held: HashMap::new(), waiting: VecDeque::new() })))
    }

    /// Waits until `tenant` may take a slot.
    ///
    /// # Cancel safety
    /// Cancel-safe; a wait begun again is at the end of the line.
    pub(crate) async fn acquire(&self, tenant: &str) -> Slot {
        let waits = {
            let mut state = self.0.lock();
            if state.take(tenant) {
                return self.slot(tenant.to_owned());
            }
            let (granted, waits) = oneshot::channel();
            state.waiting.push_back((tenant.to_owned(), granted));
            waits
        };
        match waits.await {
            Ok(slot) => slot,
            // Whoever waits holds a handle on the slots, so that its sender is there until it is used.
            Err(_) => std::future::pending().await,
        }
    }

    fn slot(&self, tenant: String) -> Slot {
        Slot { slots: self.clone(), tenant }
    }
}

// === impl Slots ===

impl Slots {
    fn may_take(&self, tenant: &str) -> bool {
        self.held.get(tenant).copied().unwrap_or(0) < self.free
    }

    fn take(&mut self, tenant: &str) -> bool {
        let may_take = self.may_take(tenant);
        if may_take {
            self.free -= 1;
            *self.held.entry(tenant.to_owned()).or_default() += 1;
        }
        may_take
    }

    fn give_back(&mut self, tenant: &str) {
        self.free += 1;
        if let Some(held) = self.held.get_mut(tenant) {
            *held -= 1;
            if *held == 0 {
                self.held.remove(tenant);
            }
        }
    }

    /// Takes a slot for the first tenant in line that may have one.
    fn next(&mut self) -> Option<(String, oneshot::Sender<Slot>)> {
        self.waiting.retain(|(_, granted)| !granted.is_closed());
        let first = self.waiting.iter().position(|(tenant, _)| self.may_take(tenant))?;
        let (tenant, granted) = self.waiting.remove(first)?;
        self.take(&tenant).then_some((tenant, granted))
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.slots.0.lock().give_back(&self.tenant);
        loop {
            let next = self.slots.0.lock().next();
            let Some((tenant, granted)) = next else { return };
            // A slot that nobody waits for any more is dropped, and so is given to the next in line.
            drop(granted.send(self.slots.slot(tenant)));
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    /// Takes slots until the tenant has to wait.
    fn take_all(slots: &FairSlots, tenant: &str) -> Vec<Slot> {
        std::iter::from_fn(|| slots.acquire(tenant).now_or_never()).collect()
    }

    #[test]
    fn one_tenant_leaves_slots_to_others() {
        let slots = FairSlots::new(64);
        let taken: Vec<_> = ["a", "b", "c", "d"].map(|tenant| take_all(&slots, tenant)).into();
        assert_eq!(taken.iter().map(Vec::len).collect::<Vec<_>>(), [32, 16, 8, 4]);
        drop(taken);
        assert_eq!(take_all(&slots, "b").len(), 32, "nothing is lost");
        assert_eq!(take_all(&FairSlots::new(1), "a").len(), 1, "a single slot can be used");
    }

    #[tokio::test]
    async fn waiting_tenants_are_served_in_order() {
        let slots = FairSlots::new(4);
        let (mut a, b) = (take_all(&slots, "a"), take_all(&slots, "b"));
        assert_eq!((a.len(), b.len()), (2, 1));
        let (mut first, mut second, mut other) =
            (Box::pin(slots.acquire("a")), Box::pin(slots.acquire("a")), Box::pin(slots.acquire("b")));
        assert!(first.as_mut().now_or_never().is_none() && second.as_mut().now_or_never().is_none());
        assert!(other.as_mut().now_or_never().is_none());
        drop(a.pop());
        let first = first.as_mut().now_or_never();
        assert!(first.is_some() && second.as_mut().now_or_never().is_none());
        assert!(other.as_mut().now_or_never().is_none(), "one slot is left for a newcomer");
        drop(b);
        assert!(other.as_mut().now_or_never().is_some(), "the other tenant passes those that hold more");
    }

    #[tokio::test]
    async fn abandoned_wait_takes_no_slot() {
        let slots = FairSlots::new(1);
        let only = slots.acquire("a").await;
        let (mut abandoned, mut granted, mut last) =
            (Box::pin(slots.acquire("a")), Box::pin(slots.acquire("b")), Box::pin(slots.acquire("c")));
        for wait in [&mut abandoned, &mut granted, &mut last] {
            assert!(wait.as_mut().now_or_never().is_none());
        }
        drop(abandoned);
        drop(only);
        // Granted, but not looked at.
        drop(granted);
        assert!(last.now_or_never().is_some());
    }
}
