//! The same names in a build without the feature `otlp`: no flags, no exporter.

use super::super::Failure;
use crate::controller::RunError;
use crate::metrics::Metrics;
use crate::traces::Tracer;

#[derive(Debug, Default, clap::Args)]
pub(super) struct TraceFlags {}

pub(super) enum TraceSettings {}

pub(super) struct Exporting;

impl TraceSettings {
    pub(super) fn of(_: &TraceFlags) -> Result<Option<Self>, Failure> {
        Ok(None)
    }

    pub(super) fn start(_: Option<Self>, _: &Metrics) -> Result<(Tracer, Exporting), Failure> {
        Ok((Tracer::default(), Exporting))
    }
}

impl Exporting {
    pub(super) async fn beside(
        self,
        run: impl Future<Output = Result<(), RunError>>,
    ) -> Result<(), RunError> {
        run.await
    }
}
