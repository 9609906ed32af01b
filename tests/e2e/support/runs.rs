//! Macros that turn a case into tests, and functions that run it on a bed.
//!
//! A case is an `async fn` with an attribute:
//! - `#[apply(both_beds)]` generates two tests, `embedded` and `real`.
//! - `#[apply(both_beds_with_kubectl)]` generates `embedded_kubectl` and `real`; the first needs kubectl and runs
//!   in real time.
//! - `#[apply(real_bed)]` with `#[why = "..."]` generates `only_real`, for cases that need the real control plane.
//! - `#[apply(embedded_bed)]` with `#[why = "..."]` generates `embedded`, for cases that need the embedded server.
//!   A case that is a plain `fn` starts its own servers, each with its own clock.
//! - `#[apply(no_bed)]` with `#[why = "..."]` generates `no_bed`, for cases that need no API server.

use std::cell::{Cell, RefCell};
use std::io;
use std::sync::Arc;

use parking_lot::Mutex;
use tracing::Dispatch;
use tracing_subscriber::fmt::MakeWriter;

/// The bed that a case runs on.
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

/// Generates a module with one test.
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

/// Generates a module with a test for each bed.
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

/// Returns the bed of the case on this thread.
pub(crate) fn run_mode() -> Mode {
    MODE.get()
}

/// Runs a case against the real control plane.
pub(crate) fn on_real(case: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("the runtime starts").block_on(case);
}

/// Runs a case against the embedded server, with the clock paused.
pub(crate) fn on_embedded(case: impl Future<Output = ()>) {
    let log = capture(Mode::Embedded);
    let _guard = tracing::dispatcher::set_default(&log);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    runtime.expect("the runtime starts").block_on(case);
}

/// Runs a case against the embedded server and its socket, in real time. A case blocks its thread while kubectl
/// runs, so the runtime has further threads.
pub(crate) fn on_embedded_with_kubectl(case: impl Future<Output = ()>) {
    let log = capture(Mode::EmbeddedWithKubectl);
    let _guard = tracing::dispatcher::set_default(&log);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        // The guard must outlive this closure, so it is leaked; the thread ends with the runtime.
        .on_thread_start(move || std::mem::forget(tracing::dispatcher::set_default(&log)))
        .build();
    runtime.expect("the runtime starts").block_on(case);
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

/// Returns everything logged so far by the case on this thread.
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
