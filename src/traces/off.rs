//! The same names without spans, for a build without the feature `otlp`: everything is empty, and compiled away.

use std::fmt;
use std::time::Duration;

use http::{Request, StatusCode};

use super::{Failed, PutOff, Woken};

/// Starts the spans of syncs; in a build without the feature `otlp` it starts none.
#[derive(Clone, Debug, Default)]
pub struct Tracer(());

/// What the next sync of a key tells of this one: nothing.
#[derive(Debug, Default)]
pub(crate) struct Carried(());

/// The spans of a sync: none.
#[derive(Debug)]
pub(crate) struct SyncTrace(());

/// The span of a request or a hook: none.
#[derive(Debug, Default)]
pub(crate) struct Scope(());

impl Tracer {
    pub(crate) fn sync<'a>(&self, _: &mut Carried, _: Duration, _: impl FnOnce() -> Woken<'a>) -> SyncTrace {
        SyncTrace(())
    }
}

impl Carried {
    pub(crate) fn put_off(&mut self, _: &Tracer, _: PutOff) {}

    pub(crate) fn is_empty(&self) -> bool {
        true
    }
}

impl SyncTrace {
    pub(crate) fn id(&self) -> Option<String> {
        None
    }

    pub(crate) fn run<F: Future>(&self, sync: F) -> F {
        sync
    }

    pub(crate) fn ended(self, _: &mut Carried, _: usize, _: Result<&dyn fmt::Debug, Failed>) {}
}

impl Scope {
    pub(crate) fn run<F: Future>(&self, inner: F) -> F {
        inner
    }

    pub(crate) fn ended(self, _: impl FnOnce() -> Option<Failed>) {}
}

pub(crate) fn request<B>(_: &mut Request<B>) -> Scope {
    Scope(())
}

#[cfg(feature = "http-tasks")]
pub(crate) fn call(_: &mut http::HeaderMap) -> Scope {
    Scope(())
}

pub(crate) fn hook(_: &str, _: &'static str, _: i32) -> Scope {
    Scope(())
}

pub(crate) fn answered(_: StatusCode) {}

pub(crate) fn event(_: &'static str) {}
