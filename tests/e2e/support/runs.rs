//! How a case runs: on which bed, in which time, with what log.
//!
//! A case is an `async fn` with one of two attributes:
//! - `#[apply(both_beds)]` makes two tests of it, `embedded` and `real`.
//! - `#[apply(real_bed)]` with `#[why = "..."]` makes one, `only_real`.

use std::cell::{Cell, RefCell};
use std::io;
use std::sync::Arc;

use parking_lot::Mutex;
use tracing_subscriber::fmt::MakeWriter;

thread_local! {
    static IS_EMBEDDED: Cell<bool> = const { Cell::new(false) };
    static LOG: RefCell<Captured> = RefCell::default();
}

/// See the module.
macro_rules! both_beds {
    ($(#[$attribute:meta])* async fn $name:ident() $body:block) => {
        mod $name {
            #[allow(unused_imports, reason = "what a case needs is in the file around it")]
            use super::*;

            $(#[$attribute])*
            async fn case() $body

            #[test]
            fn embedded() {
                $crate::support::on_embedded(case());
            }

            #[test]
            fn real() {
                $crate::support::on_real(case());
            }
        }
    };
}

/// See the module.
macro_rules! real_bed {
    ($(#[doc = $doc:literal])* #[why = $why:literal] async fn $name:ident() $body:block) => {
        mod $name {
            #[allow(unused_imports, reason = "what a case needs is in the file around it")]
            use super::*;

            $(#[doc = $doc])*
            async fn case() $body

            #[test]
            fn only_real() {
                $crate::support::on_real(case());
            }
        }
    };
}

pub(crate) use {both_beds, real_bed};

/// Whether the case of this thread runs on the embedded bed.
pub(crate) fn is_embedded() -> bool {
    IS_EMBEDDED.get()
}

/// Runs a case against the real control plane.
pub(crate) fn on_real(case: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(case);
}

/// Runs a case against the embedded server, with the clock paused.
pub(crate) fn on_embedded(case: impl Future<Output = ()>) {
    IS_EMBEDDED.set(true);
    let captured = Captured::default();
    LOG.set(captured.clone());
    let filter = "kube_client=off,tower=warn,info,windlass=debug";
    let log = tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::new(filter))
        .with_ansi(false)
        .with_writer(captured)
        .finish();
    let _guard = tracing::subscriber::set_default(log);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    runtime.expect("a runtime").block_on(case);
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
