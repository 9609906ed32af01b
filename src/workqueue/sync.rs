//! The lock of the queues: parking_lot's, or in the model checker's build shuttle's, which tries every order
//! in which threads may take it.

#[cfg(not(feature = "shuttle"))]
pub(super) use parking_lot::{Mutex, MutexGuard};

#[cfg(feature = "shuttle")]
pub(super) use checked::Mutex;
#[cfg(feature = "shuttle")]
pub(super) use shuttle::sync::MutexGuard;

#[cfg(feature = "shuttle")]
mod checked {
    /// Shuttle's lock with parking_lot's signature.
    #[derive(Debug)]
    pub(in super::super) struct Mutex<T>(shuttle::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub(in super::super) fn new(value: T) -> Self {
            Self(shuttle::sync::Mutex::new(value))
        }

        pub(in super::super) fn lock(&self) -> shuttle::sync::MutexGuard<'_, T> {
            self.0.lock().expect("nothing panics while it holds the lock")
        }
    }
}
