//! The lock of the queues: for steps of some ten nanoseconds, which is what they do while they hold it.
//!
//! A lock that lets threads sleep needs a second locked instruction when it is released, to see whether one does, and
//! a system call to hand it over: longer than a hundred of our steps. This one is released by a plain store. Who finds
//! it taken looks again after a while that doubles, so that one thread takes many steps in a row while the other
//! leaves its memory alone. Some steps are longer, as when a table grows or somebody lists the keys, and a thread may be suspended while it has
//! the lock: so who waits for long lets others have its processor between two looks, and sleeps in the end.
//!
//! Nobody else's code runs under it but comparisons and clones of keys.
//!
//! In the model checker's build it is shuttle's, which tries every order in which threads may take it.
//!
//! # Guarantees
//! - One thread has it at a time. (test: `one_thread_has_it_at_a_time`)
//! - Who waits for long gets it when it is free. (test: `who_waits_for_long_gets_it`)
//! - A panic releases it. (test: `a_panic_releases_it`)

#[cfg(not(feature = "shuttle"))]
pub(super) use quick::{Mutex, MutexGuard};

#[cfg(feature = "shuttle")]
pub(super) use checked::Mutex;
#[cfg(feature = "shuttle")]
pub(super) use shuttle::sync::MutexGuard;

#[cfg(not(feature = "shuttle"))]
mod quick {
    use std::fmt;
    use std::hint::spin_loop;
    use std::thread::{self, yield_now};
    use std::time::Duration;

    use spin::mutex::SpinMutex;
    pub(in super::super) use spin::mutex::SpinMutexGuard as MutexGuard;

    /// The processor's pauses before the second look; each takes some ten to fifty nanoseconds.
    const PAUSES: u32 = 64;
    /// Those after which others have the processor between two looks.
    const PAUSES_MAX: u32 = 1024;
    /// So often they have; then the thread sleeps between two looks.
    const YIELDS: u32 = 64;
    const SLEEP: Duration = Duration::from_micros(100);

    /// See the module.
    #[derive(Default)]
    pub(in super::super) struct Mutex<T>(SpinMutex<T>);

    impl<T> Mutex<T> {
        pub(in super::super) fn new(value: T) -> Self {
            Self(SpinMutex::new(value))
        }

        #[inline]
        pub(in super::super) fn lock(&self) -> MutexGuard<'_, T> {
            match self.0.try_lock() {
                Some(guard) => guard,
                None => self.wait(),
            }
        }

        #[cold]
        #[expect(clippy::disallowed_methods, reason = "it blocks for a lock, as any lock does")]
        fn wait(&self) -> MutexGuard<'_, T> {
            let (mut pauses, mut yields) = (PAUSES, 0);
            loop {
                if pauses <= PAUSES_MAX {
                    (0..pauses).for_each(|_| spin_loop());
                    pauses *= 2;
                } else if yields < YIELDS {
                    yield_now();
                    yields += 1;
                } else {
                    thread::sleep(SLEEP);
                }
                if let Some(guard) = self.0.try_lock() {
                    return guard;
                }
            }
        }
    }

    impl<T> fmt::Debug for Mutex<T> {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.debug_struct("Mutex").finish_non_exhaustive()
        }
    }
}

#[cfg(feature = "shuttle")]
mod checked {
    /// Shuttle's lock with the same signature.
    #[derive(Debug, Default)]
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

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::mpsc;
    use std::thread;

    use super::*;

    #[test]
    fn one_thread_has_it_at_a_time() {
        const ROUNDS: u32 = 50_000;
        let (lock, is_held) = (Mutex::new(0), AtomicBool::new(false));
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..ROUNDS {
                        let mut count = lock.lock();
                        assert!(!is_held.swap(true, Ordering::Relaxed), "two threads have it");
                        *count += 1;
                        is_held.store(false, Ordering::Relaxed);
                    }
                });
            }
        });
        assert_eq!(*lock.lock(), 4 * ROUNDS);
    }

    /// Longer than all its pauses: a few thousand turns of the scheduler.
    #[test]
    fn who_waits_for_long_gets_it() {
        let lock = Mutex::new("held");
        let (waits, is_waiting) = mpsc::channel();
        thread::scope(|scope| {
            let mut guard = lock.lock();
            let waiter = scope.spawn(|| {
                waits.send(()).unwrap();
                *lock.lock()
            });
            is_waiting.recv().unwrap();
            (0..5000).for_each(|_| thread::yield_now());
            *guard = "released";
            drop(guard);
            assert_eq!(waiter.join().unwrap(), "released");
        });
    }

    #[test]
    fn a_panic_releases_it() {
        let lock = Mutex::new(1);
        let panics = AssertUnwindSafe(|| {
            let _guard = lock.lock();
            resume_unwind(Box::new("while it has the lock"));
        });
        assert!(catch_unwind(panics).is_err());
        assert_eq!(*lock.lock(), 1);
    }
}
