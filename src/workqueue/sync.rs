//! The lock and the wake-ups of the queues: from `parking_lot` and tokio, or from the model checker.
//!
//! With the feature `shuttle`, the checker may switch threads at both, so it tries many orders in which threads take
//! the lock, wait and wake; `hack/test.sh model` runs the queue that way.

#[cfg(not(feature = "shuttle"))]
pub(super) use parking_lot::Mutex;
#[cfg(not(feature = "shuttle"))]
pub(super) use tokio::sync::Notify;

#[cfg(feature = "shuttle")]
pub(super) use checked::{Mutex, Notify};

#[cfg(feature = "shuttle")]
pub(super) mod checked {
    use std::cell::Cell;
    use std::future::Future;
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use shuttle::thread::yield_now;

    /// Shuttle's lock with the signature of `parking_lot`'s.
    #[derive(Debug, Default)]
    pub(in super::super) struct Mutex<T>(shuttle::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub(in super::super) fn new(value: T) -> Self {
            Self(shuttle::sync::Mutex::new(value))
        }

        pub(in super::super) fn lock(&self) -> shuttle::sync::MutexGuard<'_, T> {
            self.0.lock().expect("no thread panics while holding the lock")
        }
    }

    thread_local! {
        /// Breaks the queue on purpose: a dropped get keeps its wake-up.
        pub(in super::super) static KEEPS_WAKEUPS: Cell<bool> = const { Cell::new(false) };
    }

    /// Tokio's `Notify`, which lets other threads run before each step.
    #[derive(Debug)]
    pub(in super::super) struct Notify(tokio::sync::Notify);

    impl Notify {
        pub(in super::super) fn new() -> Self {
            Self(tokio::sync::Notify::new())
        }

        pub(in super::super) fn notify_one(&self) {
            yield_now();
            self.0.notify_one();
        }

        pub(in super::super) fn notify_waiters(&self) {
            yield_now();
            self.0.notify_waiters();
        }

        pub(in super::super) fn notified(&self) -> Notified<'_> {
            yield_now();
            Notified(Some(Box::pin(self.0.notified())))
        }
    }

    /// A wait; `Some` until dropped.
    pub(in super::super) struct Notified<'a>(Option<Pin<Box<tokio::sync::futures::Notified<'a>>>>);

    impl<'a> Notified<'a> {
        pub(in super::super) fn enable(self: Pin<&mut Self>) -> bool {
            yield_now();
            self.inner().enable()
        }

        fn inner(self: Pin<&mut Self>) -> Pin<&mut tokio::sync::futures::Notified<'a>> {
            self.get_mut().0.as_mut().expect("the wait is present until the drop").as_mut()
        }
    }

    impl Drop for Notified<'_> {
        fn drop(&mut self) {
            if KEEPS_WAKEUPS.get() {
                std::mem::forget(self.0.take());
            }
        }
    }

    impl Future for Notified<'_> {
        type Output = ();

        fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
            yield_now();
            self.inner().poll(context)
        }
    }
}
