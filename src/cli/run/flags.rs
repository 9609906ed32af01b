//! The flags of `windlass run`, and the settings they result in.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::super::endpoints::{self, Listeners, Protection};
use super::super::{Failure, duration, logging, namespaces};
use super::dry_run::{DryRunFlags, DryRunSettings};
use super::election::{ElectionFlags, ElectionSettings};
use super::traces::{TraceFlags, TraceSettings};
use super::worker_count::WorkerCount;
use crate::cache::ResyncPeriod;
use crate::client::{ConfigSource, RequestLimits};
use crate::controller::Limits;
use crate::operators;
use crate::operators::webapp::tasks::{self, TaskSpec};
use crate::record::EVENT_QPS;
use crate::server::Listener;
use crate::workqueue::DELAY_MAX;

#[derive(Debug, clap::Args)]
#[command(
    after_help = "DURATION is a number with a unit: 5ms, 20s, 2m, 1h30m.\n\nSIGINT, SIGTERM or SIGHUP stops \
                  the operator: syncs in flight finish first; a second signal exits at once. Exit codes: \
                  0 orderly stop, 1 failure while running, 2 usage error; those of --dry-run are with it."
)]
pub(in super::super) struct Args {
    #[command(flatten)]
    cluster: Cluster,
    #[command(flatten)]
    what: What,
    #[command(flatten)]
    dry_run: DryRunFlags,
    #[command(flatten)]
    queues: Queues,
    #[command(flatten)]
    election: ElectionFlags,
    #[command(flatten)]
    endpoints: Endpoints,
    #[command(flatten)]
    traces: TraceFlags,
    #[command(flatten)]
    pub(super) logging: logging::LogArgs,

    /// Threads that run the operator, 1 to 1000, as GOMAXPROCS for a Go program; the Lease has one more. Too few: syncs and
    /// probes wait for a processor that others use; too many: threads wake each other, which costs processor time
    #[arg(long, env = "WINDLASS_THREADS", value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u16).range(1..=1000), help_heading = "Workers and queues")]
    pub(super) threads: u16,

    /// Time for syncs in flight to finish after a signal, before the process exits with 1; 0 does not wait. Too short:
    /// work is interrupted and left to the next process; too long: a hanging server delays the exit
    #[arg(long, env = "WINDLASS_SHUTDOWN_TIMEOUT", value_name = "DURATION", default_value = "20s",
          value_parser = duration::parse, help_heading = "Logging")]
    shutdown_timeout: Duration,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Cluster")]
struct Cluster {
    /// Kubeconfig file; default: in-cluster if available (not with --context), else KUBECONFIG, else ~/.kube/config
    #[arg(long, env = "WINDLASS_KUBECONFIG", value_name = "FILE")]
    kubeconfig: Option<PathBuf>,

    /// Context of the kubeconfig; default: its current context
    #[arg(long, env = "WINDLASS_CONTEXT", value_name = "NAME")]
    context: Option<String>,

    /// Accept a server that is not verified: one with http://, or a kubeconfig with insecure-skip-tls-verify. Anybody
    /// between here and the server can then read the token and change the answers
    #[arg(long, env = "WINDLASS_ALLOW_INSECURE_SERVER")]
    allow_insecure_server: bool,

    /// Namespaces to watch, separated by commas; the operator needs no rights elsewhere. Each has caches of its own, so
    /// for very many leave the flag out; default: all namespaces
    #[arg(long, env = "WINDLASS_NAMESPACE", value_name = "NAMESPACE,…", value_delimiter = ',')]
    namespace: Vec<String>,

    /// Maximum requests per second to the API server, not counting lists and watches of the caches, 1 to 100000; 0 for
    /// no limit, which leaves throttling to the server's priority and fairness rules. Too low: passes wait for each
    /// other; too high: other clients wait
    #[arg(long, env = "WINDLASS_KUBE_API_QPS", value_name = "N", default_value_t = 0,
          value_parser = clap::value_parser!(u32).range(0..=100_000))]
    kube_api_qps: u32,

    /// Burst of requests before --kube-api-qps applies, 1 to 100000; no effect if --kube-api-qps is 0. Too low: short
    /// bursts wait; too high: the API server gets them all at once
    #[arg(long, env = "WINDLASS_KUBE_API_BURST", value_name = "N", default_value_t = 30,
          value_parser = clap::value_parser!(u32).range(1..=100_000))]
    kube_api_burst: u32,

    /// What caches ask for: protobuf of built-in kinds, which costs the API server half of what JSON does, or JSON alone.
    /// Custom resources are JSON either way
    #[arg(long, env = "WINDLASS_KUBE_API_CONTENT_TYPE", value_name = "TYPE", value_enum,
          default_value_t = ContentType::Protobuf)]
    kube_api_content_type: ContentType,

    /// Ask for compressed lists, in pages or streamed (which Kubernetes 1.37 and newer compress): a tenth of the bytes, and
    /// less processor time on both sides
    #[arg(long, env = "WINDLASS_KUBE_API_COMPRESS_LISTS", value_name = "BOOL", default_value_t = true,
          action = clap::ArgAction::Set, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    kube_api_compress_lists: bool,

    /// Ask for lists as the beginning of a watch instead of in pages of 5,000: for Kubernetes before 1.34, which reads each
    /// page from etcd. Later servers spend more processor time on it
    #[arg(long, env = "WINDLASS_KUBE_API_STREAM_LISTS", value_name = "BOOL", default_value_t = false,
          action = clap::ArgAction::Set, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    kube_api_stream_lists: bool,

    /// Maximum events per second to the API server, with bursts of twice as many, 1 to 100000; not counted by
    /// --kube-api-qps. Too low: events are late and the oldest are dropped; too high: more load on the API server
    #[arg(long, env = "WINDLASS_EVENT_QPS", value_name = "N", default_value_t = EVENT_QPS,
          value_parser = clap::value_parser!(u32).range(1..=100_000))]
    event_qps: u32,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "What runs")]
struct What {
    /// Controllers to run, separated by commas: `*` for all, `foo` for one, `-foo` to leave one out
    #[arg(
        long,
        env = "WINDLASS_CONTROLLERS",
        value_name = "LIST",
        default_value = "*",
        value_delimiter = ',',
        allow_hyphen_values = true
    )]
    controllers: Vec<String>,

    /// File with the tasks to run for each WebApp, in YAML or JSON; `windlass schema webapp-tasks` prints its schema.
    /// Default: a log line, the Deployment, a log line
    #[arg(long, env = "WINDLASS_WEBAPP_TASKS", value_name = "FILE")]
    webapp_tasks: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Workers and queues")]
struct Queues {
    /// Concurrent syncs of each controller, 1 to 1000. Too few: objects wait in the queue; too many: more concurrent
    /// requests to the API server. auto, or auto:MAX, begins with 2 and follows the load between 1 and MAX (16), by one
    /// worker a minute at most
    #[arg(
        long,
        env = "WINDLASS_WORKERS",
        value_name = "N",
        default_value = "2",
        allow_negative_numbers = true
    )]
    workers: WorkerCount,

    #[command(flatten)]
    of_one: ConcurrentSyncs,

    /// Delay after the first failure of an object, at least 1ms; doubles with each further failure. Too short: failures
    /// load the API server; too long: recovery is slow
    #[arg(long, env = "WINDLASS_QUEUE_BASE_DELAY", value_name = "DURATION", default_value = "5ms",
          value_parser = duration::parse)]
    queue_base_delay: Duration,

    /// Maximum delay of an object that keeps failing, from --queue-base-delay to 24h. Too short: permanent failures
    /// load the API server; too long: objects recover late after the cause is gone
    #[arg(long, env = "WINDLASS_QUEUE_MAX_DELAY", value_name = "DURATION", default_value = "120s",
          value_parser = duration::parse)]
    queue_max_delay: Duration,

    /// Maximum retries per second across all objects of a controller, shared equally among namespaces with failing
    /// objects, 1 to 100000; retries that would wait longer than --queue-max-delay run after that delay. Too low: recovery after an outage is slow; too high: it comes in one
    /// burst
    #[arg(long, env = "WINDLASS_QUEUE_QPS", value_name = "N", default_value_t = 50,
          value_parser = clap::value_parser!(u32).range(1..=100_000))]
    queue_qps: u32,

    /// Burst of retries before --queue-qps applies, 1 to 100000. Too low: small outages are felt; too high: large ones
    /// hit the API server at once
    #[arg(long, env = "WINDLASS_QUEUE_BURST", value_name = "N", default_value_t = 300,
          value_parser = clap::value_parser!(u32).range(1..=100_000))]
    queue_burst: u32,

    /// How often to sync every object again from the cache although nothing changed; at least 1s, 0 for never. Too
    /// short: it costs processor time; long or never: nothing is lost, because changes are watched
    #[arg(long, env = "WINDLASS_RESYNC_PERIOD", value_name = "DURATION", default_value = "0",
          value_parser = duration::parse)]
    resync_period: Duration,

    /// How often to compare the metadata of each kind with its cache, to find lost events; at least 1s, 0 for never.
    /// Too short: more lists for the API server; too long or never: missed changes are found late or not at all
    #[arg(long, env = "WINDLASS_AUDIT_PERIOD", value_name = "DURATION", default_value = "30m",
          value_parser = duration::parse)]
    audit_period: Duration,
}

/// The number of workers of single controllers.
#[derive(Debug, clap::Args)]
struct ConcurrentSyncs {
    /// Same as --workers, but only for the Foo controller; default: --workers
    #[arg(long, env = "WINDLASS_CONCURRENT_FOO_SYNCS", value_name = "N", allow_negative_numbers = true)]
    concurrent_foo_syncs: Option<WorkerCount>,

    /// Same as --workers, but only for the Myapp controller; default: --workers
    #[arg(long, env = "WINDLASS_CONCURRENT_MYAPP_SYNCS", value_name = "N", allow_negative_numbers = true)]
    concurrent_myapp_syncs: Option<WorkerCount>,

    /// Same as --workers, but only for the AppService controller; default: --workers
    #[arg(
        long,
        env = "WINDLASS_CONCURRENT_APPSERVICE_SYNCS",
        value_name = "N",
        allow_negative_numbers = true
    )]
    concurrent_appservice_syncs: Option<WorkerCount>,

    /// Same as --workers, but only for the Redis controller; default: --workers
    #[arg(long, env = "WINDLASS_CONCURRENT_REDIS_SYNCS", value_name = "N", allow_negative_numbers = true)]
    concurrent_redis_syncs: Option<WorkerCount>,

    /// Same as --workers, but only for the WebApp controller; default: --workers. Hooks do not count: they
    /// run separately, up to 64 per task
    #[arg(long, env = "WINDLASS_CONCURRENT_WEBAPP_SYNCS", value_name = "N", allow_negative_numbers = true)]
    concurrent_webapp_syncs: Option<WorkerCount>,
}

impl ConcurrentSyncs {
    /// Returns the given numbers, by controller.
    fn given(&self) -> BTreeMap<&'static str, WorkerCount> {
        [
            (operators::foo::NAME, self.concurrent_foo_syncs),
            (operators::myapp::NAME, self.concurrent_myapp_syncs),
            (operators::appservice::NAME, self.concurrent_appservice_syncs),
            (operators::redis::NAME, self.concurrent_redis_syncs),
            (operators::webapp::NAME, self.concurrent_webapp_syncs),
        ]
        .into_iter()
        .filter_map(|(name, workers)| Some((name, workers?)))
        .collect()
    }
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Endpoints")]
struct Endpoints {
    /// Address of /metrics, ADDRESS:PORT or :PORT for all addresses; 0 to disable. Without --metrics-secure anybody may
    /// read them; they show no object names. Default: 127.0.0.1:8080, with --dry-run 0
    #[arg(long, env = "WINDLASS_METRICS_BIND_ADDRESS", value_name = "ADDRESS", value_parser = bind_address)]
    metrics_bind_address: Option<BindAddress>,

    /// Serve /metrics over TLS, and only to clients with a bearer token of the cluster whose user may get the
    /// non-resource URL /metrics. The operator needs to create TokenReviews and SubjectAccessReviews for that
    #[arg(long, env = "WINDLASS_METRICS_SECURE")]
    metrics_secure: bool,

    /// Directory with tls.crt and tls.key for --metrics-secure, read again when they change; default: a self-signed
    /// certificate
    #[arg(long, env = "WINDLASS_METRICS_CERT_DIR", value_name = "DIRECTORY")]
    metrics_cert_dir: Option<PathBuf>,

    /// Address of /livez and /readyz, in the same notation; `?verbose` lists the checks. Default: 127.0.0.1:8081, with
    /// --dry-run 0
    #[arg(long, env = "WINDLASS_HEALTH_PROBE_BIND_ADDRESS", value_name = "ADDRESS",
          value_parser = bind_address)]
    health_probe_bind_address: Option<BindAddress>,

    /// Address of /debug, in the same notation: queues, caches, passes and requests as JSON, for `windlass debug`, and
    /// as a live page. Anybody who reaches it sees the names of objects; off by default
    #[arg(long, env = "WINDLASS_DEBUG_BIND_ADDRESS", value_name = "ADDRESS", default_value = "0",
          value_parser = bind_address)]
    debug_bind_address: BindAddress,
}

impl Endpoints {
    /// Binds the given addresses; a real run has defaults.
    fn listen(&self, is_dry: bool) -> Result<Listeners, Failure> {
        let address = |given: Option<BindAddress>, port: u16| {
            given.unwrap_or_else(|| (!is_dry).then_some(SocketAddr::from(([127, 0, 0, 1], port))))
        };
        endpoints::listen(
            address(self.metrics_bind_address, METRICS_PORT),
            address(self.health_probe_bind_address, HEALTH_PORT),
            Protection { is_on: self.metrics_secure, directory: self.metrics_cert_dir.clone() },
        )
    }
}

/// What caches ask for built-in kinds as; the names are those of Kubernetes' own flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum ContentType {
    #[value(name = "application/vnd.kubernetes.protobuf")]
    Protobuf,
    #[value(name = "application/json")]
    Json,
}

/// The address of an endpoint; `None` if the endpoint is switched off.
pub(in super::super) type BindAddress = Option<SocketAddr>;

/// The ports of metrics and health that a real run listens on by default.
const METRICS_PORT: u16 = 8080;
const HEALTH_PORT: u16 = 8081;

/// The validated settings of a run.
pub(super) struct Settings {
    pub(super) source: ConfigSource,
    /// Empty for all.
    pub(super) namespaces: Vec<String>,
    pub(super) controllers: Vec<&'static str>,
    pub(super) webapp_tasks: Vec<TaskSpec>,
    pub(super) limits: Limits,
    pub(super) workers: WorkerCount,
    /// Controllers with their own number of workers.
    pub(super) workers_of: BTreeMap<&'static str, WorkerCount>,
    pub(super) requests: RequestLimits,
    pub(super) reads_protobuf: bool,
    pub(super) compresses_lists: bool,
    pub(super) streams_lists: bool,
    pub(super) event_qps: u32,
    pub(super) resync_period: Option<ResyncPeriod>,
    /// `None` without leader election.
    pub(super) election: Option<ElectionSettings>,
    pub(super) listeners: Listeners,
    /// The address of `/debug`, if it is served.
    pub(super) debug: Option<Listener>,
    pub(super) shutdown_timeout: Duration,
    /// `None` without traces.
    pub(super) traces: Option<TraceSettings>,
    /// `None` for a real run.
    pub(super) dry_run: Option<DryRunSettings>,
}

impl Settings {
    pub(super) fn of(args: &Args) -> Result<Self, Failure> {
        let Queues { workers, queue_base_delay, queue_max_delay, queue_qps, queue_burst, .. } = args.queues;
        let Queues { resync_period, audit_period, .. } = args.queues;
        if queue_base_delay < Duration::from_millis(1) {
            return Err(Failure::Usage {
                cause: format!("--queue-base-delay ({queue_base_delay:?}) is below 1ms"),
                remedy: "Give at least 1ms: a zero delay would retry failures without a pause.".to_owned(),
            });
        }
        if queue_max_delay < queue_base_delay {
            return Err(Failure::Usage {
                cause: format!(
                    "--queue-max-delay ({queue_max_delay:?}) is below --queue-base-delay ({queue_base_delay:?})"
                ),
                remedy: "Raise --queue-max-delay or lower --queue-base-delay.".to_owned(),
            });
        }
        if queue_max_delay > DELAY_MAX {
            return Err(Failure::Usage {
                cause: format!("--queue-max-delay ({queue_max_delay:?}) is above {DELAY_MAX:?}"),
                remedy: "Give at most 24h, the longest delay between two retries.".to_owned(),
            });
        }
        if !audit_period.is_zero() && audit_period < Duration::from_secs(1) {
            return Err(Failure::Usage {
                cause: format!("--audit-period ({audit_period:?}) is below 1s"),
                remedy: "Give at least 1s, or 0 for never.".to_owned(),
            });
        }

        let dry_run = DryRunSettings::of(&args.dry_run);
        let is_outside = args.cluster.kubeconfig.is_some() || args.cluster.context.is_some();
        Ok(Self {
            election: ElectionSettings::of(&args.election, is_outside)?,
            source: ConfigSource {
                kubeconfig: args.cluster.kubeconfig.clone(),
                context: args.cluster.context.clone(),
                allow_insecure_server: args.cluster.allow_insecure_server,
            },
            namespaces: namespaces::checked(&args.cluster.namespace)?,
            controllers: chosen(&args.what.controllers)?,
            webapp_tasks: tasks_of(args.what.webapp_tasks.as_deref())?,
            limits: Limits {
                workers: workers.initial(),
                base_delay: queue_base_delay,
                max_delay: queue_max_delay,
                qps: f64::from(queue_qps),
                burst: queue_burst,
                audit_period: (!audit_period.is_zero()).then_some(audit_period),
            },
            workers,
            workers_of: args.queues.of_one.given(),
            requests: RequestLimits {
                qps: (args.cluster.kube_api_qps > 0).then(|| f64::from(args.cluster.kube_api_qps)),
                burst: args.cluster.kube_api_burst,
                ..RequestLimits::default()
            },
            reads_protobuf: args.cluster.kube_api_content_type == ContentType::Protobuf,
            compresses_lists: args.cluster.kube_api_compress_lists,
            streams_lists: args.cluster.kube_api_stream_lists,
            event_qps: args.cluster.event_qps,
            resync_period: resync(resync_period)?,
            shutdown_timeout: args.shutdown_timeout,
            traces: TraceSettings::of(&args.traces)?,
            // Bind when the flags are known to be right, and before anything runs or is logged.
            listeners: args.endpoints.listen(dry_run.is_some())?,
            debug: endpoints::take("--debug-bind-address", args.endpoints.debug_bind_address)?,
            dry_run,
        })
    }
}

/// Returns the resync period; none for 0.
fn resync(period: Duration) -> Result<Option<ResyncPeriod>, Failure> {
    if period.is_zero() {
        return Ok(None);
    }
    ResyncPeriod::new(period).map(Some).map_err(|_| Failure::Usage {
        cause: format!("--resync-period ({period:?}) is not between 1s and 1 year"),
        remedy: "Give at least 1s and at most 1 year (8760h), or 0 for never.".to_owned(),
    })
}

/// Reads the tasks of this file, or returns the default tasks.
fn tasks_of(file: Option<&Path>) -> Result<Vec<TaskSpec>, Failure> {
    let Some(file) = file else { return Ok(tasks::default_tasks()) };
    tasks::file::load(file)
        .map_err(|error| Failure::Usage { cause: format!("--webapp-tasks: {error}"), remedy: error.remedy })
}

/// Parses a list of controllers as kube-controller-manager does: `-name` wins over `name` and `*`.
fn chosen(list: &[String]) -> Result<Vec<&'static str>, Failure> {
    let known = |name: &str| operators::NAMES.iter().find(|known| **known == name);
    for item in list {
        let name = item.strip_prefix('-').unwrap_or(item);
        if name != "*" && known(name).is_none() {
            return Err(Failure::Usage {
                cause: format!("unknown controller {name:?} in --controllers={}", list.join(",")),
                remedy: format!(
                    "Controllers: {}. `*` selects all, `-name` excludes one.",
                    operators::NAMES.join(", ")
                ),
            });
        }
    }
    let has = |wanted: &str| list.iter().any(|item| item == wanted);
    let is_chosen = |name: &&&str| !has(&format!("-{name}")) && (has(name) || has("*"));
    let chosen: Vec<&'static str> = operators::NAMES.iter().filter(is_chosen).copied().collect();
    if chosen.is_empty() {
        return Err(Failure::Usage {
            cause: format!("--controllers={} selects no controller", list.join(",")),
            remedy: format!("Name at least one of: {}.", operators::NAMES.join(", ")),
        });
    }
    Ok(chosen)
}

/// Parses `ADDRESS:PORT`, `:PORT` for all addresses (as in Go), `localhost:PORT`, or `0` for none.
pub(in super::super) fn bind_address(text: &str) -> Result<BindAddress, String> {
    if text == "0" {
        return Ok(None);
    }
    let full = match text.strip_prefix("localhost:") {
        Some(port) => format!("127.0.0.1:{port}"),
        None if text.starts_with(':') => format!("[::]{text}"),
        None => text.to_owned(),
    };
    let wrong =
        "use ADDRESS:PORT with an IP address (127.0.0.1:8080), :8080 for all addresses, or 0 to disable";
    full.parse().map(Some).map_err(|_| wrong.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(list: &str, expected: Result<Vec<&str>, &str>) {
        let list: Vec<String> = list.split(',').map(str::to_owned).collect();
        let found = chosen(&list).map_err(|failure| failure.to_string());
        match expected {
            Ok(names) => assert_eq!(found, Ok(names)),
            Err(cause) => assert!(found.unwrap_err().contains(cause)),
        }
    }

    #[test]
    fn each_controller_has_its_own_worker_flag() {
        #[derive(clap::Parser)]
        struct Flags {
            #[command(flatten)]
            args: ConcurrentSyncs,
        }
        for name in operators::NAMES {
            let flags = ["run".to_owned(), format!("--concurrent-{name}-syncs=7")];
            let flags = <Flags as clap::Parser>::try_parse_from(flags).unwrap();
            assert_eq!(flags.args.given(), BTreeMap::from([(name, WorkerCount::Fixed(7))]));
        }
    }

    #[test]
    fn one_thread_runs_the_operator_unless_told() {
        #[derive(clap::Parser)]
        struct Flags {
            #[command(flatten)]
            args: Args,
        }
        let threads = |flags: &[&str]| {
            let flags = ["run"].iter().chain(flags);
            let args = <Flags as clap::Parser>::try_parse_from(flags).unwrap().args;
            super::super::runtime(args.threads).unwrap().metrics().num_workers()
        };
        assert_eq!(threads(&[]), 1);
        assert_eq!(threads(&["--threads=4"]), 4);
    }

    #[test]
    fn controllers_flag_follows_kube_controller_manager() {
        let all = operators::NAMES.to_vec();
        let without_foo: Vec<&str> = all.iter().copied().filter(|name| *name != "foo").collect();
        check("*", Ok(all));
        check("foo", Ok(vec!["foo"]));
        check("redis,foo", Ok(vec!["foo", "redis"]));
        check("*,-foo", Ok(without_foo.clone()));
        check("-foo,*", Ok(without_foo));
        check("foo,-foo", Err("selects no controller"));
        check("bar", Err("unknown controller \"bar\""));
        check("*,-bar", Err("unknown controller \"bar\""));
    }

    #[test]
    fn bind_address_accepts_kubernetes_notation() {
        let at = |text: &str| bind_address(text).map(|address| address.map(|a| a.to_string()));
        assert_eq!(at("0"), Ok(None));
        assert_eq!(at(":8080"), Ok(Some("[::]:8080".to_owned())));
        assert_eq!(at("localhost:1"), Ok(Some("127.0.0.1:1".to_owned())));
        assert_eq!(at("10.0.0.1:9443"), Ok(Some("10.0.0.1:9443".to_owned())));
        for text in ["8080", "example.com:80", "127.0.0.1", ":", ""] {
            assert!(at(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn debug_is_off_unless_asked_for() {
        #[derive(clap::Parser)]
        struct Flags {
            #[command(flatten)]
            args: Endpoints,
        }
        let address = |flags: &[&str]| {
            let flags = ["run"].iter().chain(flags);
            <Flags as clap::Parser>::try_parse_from(flags).unwrap().args.debug_bind_address
        };
        assert_eq!(address(&[]), None);
        let given = address(&["--debug-bind-address=localhost:6060"]);
        assert_eq!(given, Some("127.0.0.1:6060".parse().unwrap()));
    }
}
