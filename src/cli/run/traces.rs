//! The flags of traces, and the exporter beside the operator.
//!
//! # Guarantees
//! - A wrong URL or ratio is refused at the start, with flag and remedy. (test: `wrong_flags_and_values_are_refused`)
//! - The flag wins over the standard variables. (test: `flag_wins_over_the_standard_variables`)

use std::pin::pin;

use tokio_util::sync::CancellationToken;

use super::super::Failure;
use super::election::POD_NAMESPACE;
use crate::controller::RunError;
use crate::metrics::Metrics;
use crate::traces::{self, Endpoint, Exporter, Tracer};

const FLAG: &str = "--otlp-endpoint";

#[derive(Debug, Default, clap::Args)]
#[command(next_help_heading = "Traces")]
pub(super) struct TraceFlags {
    /// URL of an OpenTelemetry collector that takes OTLP over HTTP, such as http://collector:4318; /v1/traces is added.
    /// Each sampled sync becomes a trace: the wait in the queue, the sync, its requests, which name their spans to the
    /// API server. Default: OTEL_EXPORTER_OTLP_TRACES_ENDPOINT, else OTEL_EXPORTER_OTLP_ENDPOINT, else no traces
    #[arg(long, env = "WINDLASS_OTLP_ENDPOINT", value_name = "URL")]
    otlp_endpoint: Option<String>,

    /// Share of syncs to trace, 0 to 1: 0.1 traces one in ten. Too low: the slow sync that you look for is missing; too
    /// high: more work for the collector and for the operator
    #[arg(long, env = "WINDLASS_OTLP_SAMPLE_RATIO", value_name = "RATIO", default_value_t = 0.1, value_parser = ratio)]
    otlp_sample_ratio: f64,

    // Not flags: how the standard variables are read.
    #[arg(long, env = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", hide = true)]
    otel_traces_endpoint: Option<String>,
    #[arg(long, env = "OTEL_EXPORTER_OTLP_ENDPOINT", hide = true)]
    otel_endpoint: Option<String>,
}

/// The validated flags.
#[derive(Debug)]
pub(super) struct TraceSettings {
    endpoint: Endpoint,
    sample_ratio: f64,
}

/// The exporter of an operator; `None` without traces.
pub(super) struct Exporting(Option<Exporter>);

impl TraceSettings {
    /// Validates the flags; `None` without an endpoint.
    pub(super) fn of(flags: &TraceFlags) -> Result<Option<Self>, Failure> {
        let places = [
            (FLAG, &flags.otlp_endpoint),
            ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", &flags.otel_traces_endpoint),
            ("OTEL_EXPORTER_OTLP_ENDPOINT", &flags.otel_endpoint),
        ];
        let given = places.into_iter().find_map(|(place, url)| {
            let url = url.as_deref().filter(|url| !url.is_empty())?;
            Some((place, url))
        });
        let Some((place, url)) = given else { return Ok(None) };
        let endpoint = Endpoint::parse(url).map_err(|error| Failure::Usage {
            // The part before an @ may be a password.
            cause: match url.contains('@') {
                true => format!("{place}: {error}"),
                false => format!("{place}={url}: {error}"),
            },
            remedy: "Give the URL of a collector that takes OTLP over HTTP, such as http://collector:4318."
                .to_owned(),
        })?;
        Ok(Some(Self { endpoint, sample_ratio: flags.otlp_sample_ratio }))
    }

    /// Creates the tracer, and the exporter of its spans.
    pub(super) fn start(this: Option<Self>, metrics: &Metrics) -> Result<(Tracer, Exporting), Failure> {
        let Some(Self { endpoint, sample_ratio }) = this else {
            return Ok((Tracer::default(), Exporting(None)));
        };
        let (tracer, exporter) =
            traces::start(&endpoint, sample_ratio, &resource()).map_err(|cause| Failure::Usage {
                cause: format!("{FLAG}={endpoint}: {cause}"),
                remedy: "Install the certificates, or correct the OTEL_EXPORTER_OTLP_ variables.".to_owned(),
            })?;
        metrics.observe_spans(exporter.read_counts());
        tracing::info!(%endpoint, sample_ratio, "Tracing syncs");
        Ok((tracer, Exporting(Some(exporter))))
    }
}

impl Exporting {
    /// Awaits the operator, and then the last spans, unless the operator was told to end at once.
    pub(super) async fn beside(
        self,
        run: impl Future<Output = Result<(), RunError>>,
    ) -> Result<(), RunError> {
        let Some(exporter) = self.0 else { return run.await };
        let stop = CancellationToken::new();
        let mut exporting = pin!(exporter.run(stop.clone()));
        let outcome = tokio::select! {
            biased;
            outcome = run => outcome,
            () = &mut exporting => unreachable!("it runs until it is stopped"),
        };
        if outcome != Err(RunError::Interrupted) {
            stop.cancel();
            exporting.await;
        }
        outcome
    }
}

/// What the process tells of itself with its spans; `OTEL_RESOURCE_ATTRIBUTES` and `OTEL_SERVICE_NAME` win.
fn resource() -> Vec<(&'static str, String)> {
    let variable = |name| std::env::var(name).ok().filter(|value: &String| !value.is_empty());
    let of_pod = || std::fs::read_to_string(POD_NAMESPACE).ok().map(|text| text.trim().to_owned());
    let optional = [
        ("k8s.pod.name", variable("POD_NAME")),
        ("k8s.namespace.name", variable("POD_NAMESPACE").or_else(of_pod)),
    ];
    let mut resource = vec![
        ("service.name", "windlass".to_owned()),
        ("service.version", env!("CARGO_PKG_VERSION").to_owned()),
    ];
    resource.extend(optional.into_iter().filter_map(|(name, value)| Some((name, value?))));
    resource
}

fn ratio(text: &str) -> Result<f64, String> {
    let wrong = || "give a number from 0 to 1, such as 0.1 for every tenth sync".to_owned();
    text.parse().ok().filter(|ratio| (0.0..=1.0).contains(ratio)).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint(flags: &TraceFlags) -> Option<String> {
        TraceSettings::of(flags).unwrap().map(|settings| settings.endpoint.to_string())
    }

    #[test]
    fn flag_wins_over_the_standard_variables() {
        let url = |host: &str| Some(format!("http://{host}:4318"));
        let mut flags = TraceFlags { otel_endpoint: url("general"), ..TraceFlags::default() };
        assert_eq!(endpoint(&flags).as_deref(), Some("http://general:4318/v1/traces"));
        flags.otel_traces_endpoint = Some("http://traces:4318/v1/traces".to_owned());
        assert_eq!(endpoint(&flags).as_deref(), Some("http://traces:4318/v1/traces"));
        flags.otlp_endpoint = url("flag");
        assert_eq!(endpoint(&flags).as_deref(), Some("http://flag:4318/v1/traces"));
        assert_eq!(
            endpoint(&TraceFlags { otlp_endpoint: Some(String::new()), ..TraceFlags::default() }),
            None
        );
    }

    #[test]
    fn error_names_the_place_and_hides_a_password() {
        let refused = |url: &str| {
            let flags = TraceFlags { otlp_endpoint: Some(url.to_owned()), ..TraceFlags::default() };
            TraceSettings::of(&flags).unwrap_err().to_string()
        };
        for url in ["collector:4318", "grpc://collector:4317", "/v1/traces", "http://", "http://a/?b=c", "ü"]
        {
            let text = refused(url);
            assert!(text.contains(&format!("--otlp-endpoint={url}: ")), "{text}");
        }
        let text = refused("https://user:secret@collector");
        assert!(text.contains("OTEL_EXPORTER_OTLP_HEADERS") && !text.contains("secret"), "{text}");
    }

    #[test]
    fn ratio_is_between_0_and_1() {
        assert_eq!((ratio("0"), ratio("0.25"), ratio("1")), (Ok(0.0), Ok(0.25), Ok(1.0)));
        for text in ["-0.1", "1.1", "NaN", "10%", ""] {
            assert!(ratio(text).is_err(), "{text}");
        }
    }
}
