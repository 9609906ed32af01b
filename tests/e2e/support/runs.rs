//! How a case runs: on which bed, in which time, with what log.
//!
//! A case is an `async fn` with an attribute:
//! - `#[apply(both_beds)]` makes two tests of it, `embedded` and `real`.
//! - `#[apply(both_beds_with_kubectl)]` makes `embedded_kubectl` and `real`: the first needs kubectl too, and
//!   runs in real time.
//!
//! - `#[apply(real_bed)]` with `#[why = "..."]` makes `only_real`, for what is about the real one alone.
//! - `#[apply(embedded_bed)]` with `#[why = "..."]` makes `embedded`, for what is about the embedded one alone. One
//!   that is no `async fn` makes as many servers as it needs, each in a time of its own.
//! - `#[apply(no_bed)]` with `#[why = "..."]` makes `no_bed`, for what is about the program alone.

use std::cell::{Cell, RefCell};
use std::io;
use std::sync::Arc;

use parking_lot::Mutex;
use tracing::Dispatch;
use tracing_subscriber::fmt::MakeWriter;

/// On what a case runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Real,
    Embedded,
    EmbeddedWithKubectl,
}

thread_local! {
    static MODE: Cell<Mode> = const { Cell::new(Mode::Real) };
    static LOG: RefCell<Captured> = RefCell::default();
}

/// See the module.
macro_rules! both_beds {
    ($(#[$attribute:meta])* async fn $name:ident() $body:block) => {
        $crate::support::runs::tests_of_case! { [$(#[$attribute])*] $name $body embedded on_embedded }
    };
}

/// See the module.
macro_rules! both_beds_with_kubectl {
    ($(#[$attribute:meta])* async fn $name:ident() $body:block) => {
        $crate::support::runs::tests_of_case! {
            [$(#[$attribute])*] $name $body embedded_kubectl on_embedded_with_kubectl
        }
    };
}

/// See the module.
macro_rules! real_bed {
    ($(#[doc = $doc:literal])* #[why = $why:literal] async fn $name:ident() $body:block) => {
        $crate::support::runs::test_of_case! { [$(#[doc = $doc])*] $why $name $body only_real on_real }
    };
}

/// See the module.
macro_rules! embedded_bed {
    ($(#[doc = $doc:literal])* #[why = $why:literal] async fn $name:ident() $body:block) => {
        $crate::support::runs::test_of_case! { [$(#[doc = $doc])*] $why $name $body embedded on_embedded }
    };
    ($(#[doc = $doc:literal])* #[why = $why:literal] fn $name:ident() $body:block) => {
        mod $name {
            #[allow(unused_imports, reason = "what a case needs is in the file around it")]
            use super::*;

            $(#[doc = $doc])*
            #[doc = $why]
            #[test]
            fn embedded() $body
        }
    };
}

/// See the module.
macro_rules! no_bed {
    ($(#[doc = $doc:literal])* #[why = $why:literal] async fn $name:ident() $body:block) => {
        $crate::support::runs::test_of_case! { [$(#[doc = $doc])*] $why $name $body no_bed on_real }
    };
}

/// A module for a case that has one test.
macro_rules! test_of_case {
    ([$(#[$attribute:meta])*] $why:literal $name:ident $body:block $test:ident $run:ident) => {
        mod $name {
            #[allow(unused_imports, reason = "what a case needs is in the file around it")]
            use super::*;

            $(#[$attribute])*
            #[doc = $why]
            async fn case() $body

            #[test]
            fn $test() {
                $crate::support::$run(case());
            }
        }
    };
}

/// A module for a case, with a test for each bed.
macro_rules! tests_of_case {
    ([$(#[$attribute:meta])*] $name:ident $body:block $embedded:ident $run:ident) => {
        mod $name {
            #[allow(unused_imports, reason = "what a case needs is in the file around it")]
            use super::*;

            $(#[$attribute])*
            async fn case() $body

            #[test]
            fn $embedded() {
                $crate::support::$run(case());
            }

            #[test]
            fn real() {
                $crate::support::on_real(case());
            }
        }
    };
}

pub(crate) use {
    both_beds, both_beds_with_kubectl, embedded_bed, no_bed, real_bed, test_of_case, tests_of_case,
};

/// On what the case of this thread runs.
pub(crate) fn run_mode() -> Mode {
    MODE.get()
}

/// Runs a case against the real control plane.
pub(crate) fn on_real(case: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(case);
}

/// Runs a case against the embedded server, with the clock paused.
pub(crate) fn on_embedded(case: impl Future<Output = ()>) {
    let log = capture(Mode::Embedded);
    let _guard = tracing::dispatcher::set_default(&log);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    runtime.expect("a runtime").block_on(case);
}

/// Runs a case against the embedded server and its socket. kubectl blocks the thread that waits for it, so
/// there are others.
pub(crate) fn on_embedded_with_kubectl(case: impl Future<Output = ()>) {
    let log = capture(Mode::EmbeddedWithKubectl);
    let _guard = tracing::dispatcher::set_default(&log);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        // The guard would end with the closure; the thread ends with the runtime.
        .on_thread_start(move || std::mem::forget(tracing::dispatcher::set_default(&log)))
        .build();
    runtime.expect("a runtime").block_on(case);
}

fn capture(mode: Mode) -> Dispatch {
    MODE.set(mode);
    let captured = Captured::default();
    LOG.set(captured.clone());
    let filter = "kube_client=off,tower=warn,hyper=warn,rustls=warn,info,windlass=debug";
    tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::new(filter))
        .with_ansi(false)
        .with_writer(captured)
        .finish()
        .into()
}

/// What the case of this thread has logged so far.
pub(crate) fn captured_log() -> String {
    LOG.with_borrow(|log| String::from_utf8_lossy(&log.0.lock()).into_owned())
}

#[derive(Clone, Debug, Default)]
struct Captured(Arc<Mutex<Vec<u8>>>);

impl io::Write for Captured {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Captured {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}
