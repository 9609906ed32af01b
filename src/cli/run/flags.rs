//! The flags of `windlass run`, and what they mean.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::super::endpoints::{self, Listeners};
use super::super::{Failure, duration, logging};
use crate::client::{ConfigSource, RequestLimits};
use crate::controller::builder::Limits;
use crate::operators;
use crate::operators::webapp::tasks::{self, TaskSpec};
use crate::record::EVENT_QPS;
use crate::workqueue::DELAY_MAX;

#[derive(Debug, clap::Args)]
#[command(
    after_help = "DURATION is a number with a unit: 5ms, 20s, 2m, 1h30m.\n\nSIGINT, SIGTERM or SIGHUP stops it: syncs \
                  in flight end first; a second signal exits at once. Exit codes: 0 stopped in order, 1 failed while \
                  running, 2 wrong usage."
)]
pub(in super::super) struct Args {
    #[command(flatten)]
    cluster: Cluster,
    #[command(flatten)]
    what: What,
    #[command(flatten)]
    queues: Queues,
    #[command(flatten)]
    endpoints: Endpoints,
    #[command(flatten)]
    pub(super) logging: logging::LogArgs,

    /// How long syncs in flight may take after a signal; then the process exits with 1. Too short: work is
    /// cut, and found again by the next process; too long: a hanging server holds the exit; 0 waits for none
    #[arg(long, env = "WINDLASS_SHUTDOWN_TIMEOUT", value_name = "DURATION", default_value = "20s",
          value_parser = duration::parse, help_heading = "Logging")]
    shutdown_timeout: Duration,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Cluster")]
struct Cluster {
    /// Kubeconfig file; when left out: in-cluster if there (not with --context), else KUBECONFIG, else ~/.kube/config
    #[arg(long, env = "WINDLASS_KUBECONFIG", value_name = "FILE")]
    kubeconfig: Option<PathBuf>,

    /// Context of the kubeconfig; its current one when left out
    #[arg(long, env = "WINDLASS_CONTEXT", value_name = "NAME")]
    context: Option<String>,

    /// The one namespace to look at (for several run a process for each); all when left out
    #[arg(long, env = "WINDLASS_NAMESPACE", value_name = "NAMESPACE", value_parser = namespace)]
    namespace: Option<String>,

    /// Requests a second to the API server, lists and watches of the caches not counted, 1 to 100000; 0 for
    /// as many as come, which the server's priority and fairness rules hold in check. Few: passes wait for
    /// each other; many: other clients do
    #[arg(long, env = "WINDLASS_KUBE_API_QPS", value_name = "N", default_value_t = 0,
          value_parser = clap::value_parser!(u32).range(0..=100_000))]
    kube_api_qps: u32,

    /// Requests at once before --kube-api-qps counts, 1 to 100000; without effect when that is 0. Few: short bursts
    /// wait; many: the API server gets them all at once
    #[arg(long, env = "WINDLASS_KUBE_API_BURST", value_name = "N", default_value_t = 30,
          value_parser = clap::value_parser!(u32).range(1..=100_000))]
    kube_api_burst: u32,

    /// Events a second to the API server, and twice as many at once, 1 to 100000; they do not count for --kube-api-qps.
    /// Few: events come late, and the oldest are dropped; many: they cost the API server more
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

    /// File with the tasks that are run for each WebApp, YAML or JSON; `windlass schema webapp-tasks` prints its
    /// schema. Left out: a log line, the Deployment, a log line
    #[arg(long, env = "WINDLASS_WEBAPP_TASKS", value_name = "FILE")]
    webapp_tasks: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Workers and queues")]
struct Queues {
    /// Syncs at once, for each controller, 1 to 1000. Few: objects wait in the queue; many: more requests
    /// at once for the API server
    #[arg(long, env = "WINDLASS_WORKERS", value_name = "N", default_value_t = 2,
          value_parser = clap::value_parser!(u16).range(1..=1000))]
    workers: u16,

    #[command(flatten)]
    of_one: ConcurrentSyncs,

    /// How long an object waits after its first failure, at least 1ms; it doubles with each. Short: failures cost the
    /// API server more; long: recovery takes longer
    #[arg(long, env = "WINDLASS_QUEUE_BASE_DELAY", value_name = "DURATION", default_value = "5ms",
          value_parser = duration::parse)]
    queue_base_delay: Duration,

    /// The longest wait of an object that keeps failing, not below the base delay, at most 24h. Short: what fails for
    /// good costs the API server more; long: it is noticed later that the cause has gone
    #[arg(long, env = "WINDLASS_QUEUE_MAX_DELAY", value_name = "DURATION", default_value = "120s",
          value_parser = duration::parse)]
    queue_max_delay: Duration,

    /// Retries a second, over all objects of a controller, 1 to 100000; where more fail at once than that lets
    /// through within --queue-max-delay, the rest comes after that delay. Few: after an outage recovery takes
    /// longer; many: it comes as one burst
    #[arg(long, env = "WINDLASS_QUEUE_QPS", value_name = "N", default_value_t = 50,
          value_parser = clap::value_parser!(u32).range(1..=100_000))]
    queue_qps: u32,

    /// Retries at once before --queue-qps counts, 1 to 100000. Few: small outages are felt; many: large
    /// ones hit the API server at once
    #[arg(long, env = "WINDLASS_QUEUE_BURST", value_name = "N", default_value_t = 300,
          value_parser = clap::value_parser!(u32).range(1..=100_000))]
    queue_burst: u32,

    /// How often every object is synced again from the cache, though nothing changed; at least 1s, 0 for
    /// never. Short: it costs processor time; long or never: nothing is lost, as changes are watched
    #[arg(long, env = "WINDLASS_RESYNC_PERIOD", value_name = "DURATION", default_value = "0",
          value_parser = duration::parse)]
    resync_period: Duration,

    /// How often the metadata of each kind is compared with its cache, to find events that were lost; at least 1s,
    /// 0 for never. Short: the API server lists every kind that often; long or never: what a cache has missed is found
    /// late or not at all
    #[arg(long, env = "WINDLASS_AUDIT_PERIOD", value_name = "DURATION", default_value = "30m",
          value_parser = duration::parse)]
    audit_period: Duration,
}

/// The number of workers of single controllers.
#[derive(Debug, clap::Args)]
struct ConcurrentSyncs {
    /// As --workers, for the controller of Foos alone, 1 to 1000; --workers when left out
    #[arg(long, env = "WINDLASS_CONCURRENT_FOO_SYNCS", value_name = "N",
          value_parser = clap::value_parser!(u16).range(1..=1000))]
    concurrent_foo_syncs: Option<u16>,

    /// As --workers, for the controller of Myapps alone, 1 to 1000; --workers when left out
    #[arg(long, env = "WINDLASS_CONCURRENT_MYAPP_SYNCS", value_name = "N",
          value_parser = clap::value_parser!(u16).range(1..=1000))]
    concurrent_myapp_syncs: Option<u16>,

    /// As --workers, for the controller of AppServices alone, 1 to 1000; --workers when left out
    #[arg(long, env = "WINDLASS_CONCURRENT_APPSERVICE_SYNCS", value_name = "N",
          value_parser = clap::value_parser!(u16).range(1..=1000))]
    concurrent_appservice_syncs: Option<u16>,

    /// As --workers, for the controller of Redis alone, 1 to 1000; --workers when left out
    #[arg(long, env = "WINDLASS_CONCURRENT_REDIS_SYNCS", value_name = "N",
          value_parser = clap::value_parser!(u16).range(1..=1000))]
    concurrent_redis_syncs: Option<u16>,

    /// As --workers, for the controller of WebApps alone, 1 to 1000; --workers when left out. Hooks do not count: they are run beside, up to 64 of each task
    #[arg(long, env = "WINDLASS_CONCURRENT_WEBAPP_SYNCS", value_name = "N",
          value_parser = clap::value_parser!(u16).range(1..=1000))]
    concurrent_webapp_syncs: Option<u16>,
}

impl ConcurrentSyncs {
    /// Those that are given, by controller.
    fn given(&self) -> BTreeMap<&'static str, usize> {
        [
            (operators::foo::NAME, self.concurrent_foo_syncs),
            (operators::myapp::NAME, self.concurrent_myapp_syncs),
            (operators::appservice::NAME, self.concurrent_appservice_syncs),
            (operators::redis::NAME, self.concurrent_redis_syncs),
            (operators::webapp::NAME, self.concurrent_webapp_syncs),
        ]
        .into_iter()
        .filter_map(|(name, workers)| Some((name, usize::from(workers?))))
        .collect()
    }
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Endpoints")]
struct Endpoints {
    /// Where /metrics is served, ADDRESS:PORT or :PORT for all addresses; 0 for nowhere. It tells no names of
    /// objects, and asks for no password
    #[arg(long, env = "WINDLASS_METRICS_BIND_ADDRESS", value_name = "ADDRESS", default_value = "127.0.0.1:8080",
          value_parser = bind_address)]
    metrics_bind_address: BindAddress,

    /// Where /livez and /readyz are served, likewise; `?verbose` lists the checks
    #[arg(long, env = "WINDLASS_HEALTH_PROBE_BIND_ADDRESS", value_name = "ADDRESS",
          default_value = "127.0.0.1:8081", value_parser = bind_address)]
    health_probe_bind_address: BindAddress,
}

/// Where an endpoint listens; `None` for nowhere.
type BindAddress = Option<SocketAddr>;

/// What the flags mean, checked.
pub(super) struct Settings {
    pub(super) source: ConfigSource,
    pub(super) namespace: Option<String>,
    pub(super) controllers: Vec<&'static str>,
    pub(super) webapp_tasks: Vec<TaskSpec>,
    pub(super) limits: Limits,
    /// Other than those of all.
    pub(super) workers_of: BTreeMap<&'static str, usize>,
    pub(super) requests: RequestLimits,
    pub(super) event_qps: u32,
    pub(super) resync_period: Option<Duration>,
    pub(super) listeners: Listeners,
    pub(super) shutdown_timeout: Duration,
}

impl Settings {
    pub(super) fn of(args: &Args) -> Result<Self, Failure> {
        let Queues { workers, queue_base_delay, queue_max_delay, queue_qps, queue_burst, .. } = args.queues;
        let Queues { resync_period, audit_period, .. } = args.queues;
        if queue_base_delay < Duration::from_millis(1) {
            return Err(Failure::Usage {
                cause: format!("--queue-base-delay ({queue_base_delay:?}) is below 1ms"),
                remedy:
                    "Give at least 1ms: zero doubles to zero, and what fails would be tried without a pause."
                        .to_owned(),
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
                remedy: "Give at most 24h: no key waits longer between two tries.".to_owned(),
            });
        }
        for (flag, period) in [("--resync-period", resync_period), ("--audit-period", audit_period)] {
            if !period.is_zero() && period < Duration::from_secs(1) {
                return Err(Failure::Usage {
                    cause: format!("{flag} ({period:?}) is below 1s"),
                    remedy: "Give at least 1s, or 0 for never.".to_owned(),
                });
            }
        }

        Ok(Self {
            source: ConfigSource {
                kubeconfig: args.cluster.kubeconfig.clone(),
                context: args.cluster.context.clone(),
            },
            namespace: args.cluster.namespace.clone(),
            controllers: chosen(&args.what.controllers)?,
            webapp_tasks: tasks_of(args.what.webapp_tasks.as_deref())?,
            limits: Limits {
                workers: usize::from(workers),
                base_delay: queue_base_delay,
                max_delay: queue_max_delay,
                qps: f64::from(queue_qps),
                burst: queue_burst,
                audit_period: (!audit_period.is_zero()).then_some(audit_period),
            },
            workers_of: args.queues.of_one.given(),
            requests: RequestLimits {
                qps: (args.cluster.kube_api_qps > 0).then(|| f64::from(args.cluster.kube_api_qps)),
                burst: args.cluster.kube_api_burst,
                ..RequestLimits::default()
            },
            event_qps: args.cluster.event_qps,
            // Before anything runs or is logged.
            listeners: endpoints::listen(
                args.endpoints.metrics_bind_address,
                args.endpoints.health_probe_bind_address,
            )?,
            resync_period: (!resync_period.is_zero()).then_some(resync_period),
            shutdown_timeout: args.shutdown_timeout,
        })
    }
}

/// The tasks of this file, or those that are run without one.
fn tasks_of(file: Option<&Path>) -> Result<Vec<TaskSpec>, Failure> {
    let Some(file) = file else { return Ok(tasks::default_tasks()) };
    tasks::file::load(file)
        .map_err(|error| Failure::Usage { cause: format!("--webapp-tasks: {error}"), remedy: error.remedy })
}

/// Reads a list of controllers as kube-controller-manager does: what is left out wins.
fn chosen(list: &[String]) -> Result<Vec<&'static str>, Failure> {
    let known = |name: &str| operators::NAMES.iter().find(|known| **known == name);
    for item in list {
        let name = item.strip_prefix('-').unwrap_or(item);
        if name != "*" && known(name).is_none() {
            return Err(Failure::Usage {
                cause: format!("there is no controller {name:?}, in --controllers={}", list.join(",")),
                remedy: format!(
                    "Controllers: {}. `*` is all of them, `-name` leaves one out.",
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
            cause: format!("--controllers={} leaves nothing to run", list.join(",")),
            remedy: format!("Name at least one of: {}.", operators::NAMES.join(", ")),
        });
    }
    Ok(chosen)
}

/// `ADDRESS:PORT`, `:PORT` as Go writes it for all addresses, `localhost:PORT`, or `0` for none.
fn bind_address(text: &str) -> Result<BindAddress, String> {
    if text == "0" {
        return Ok(None);
    }
    let full = match text.strip_prefix("localhost:") {
        Some(port) => format!("127.0.0.1:{port}"),
        None if text.starts_with(':') => format!("[::]{text}"),
        None => text.to_owned(),
    };
    let wrong =
        "write ADDRESS:PORT with an IP address, such as 127.0.0.1:8080, or :8080 for all, or 0 for none";
    full.parse().map(Some).map_err(|_| wrong.to_owned())
}

fn namespace(text: &str) -> Result<String, String> {
    let is_label = !text.is_empty()
        && text.len() <= 63
        && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
        && !text.starts_with('-')
        && !text.ends_with('-');
    if is_label {
        Ok(text.to_owned())
    } else {
        Err("a namespace is one DNS label: lower-case letters, digits and hyphens".to_owned())
    }
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
    fn each_kind_has_workers_of_its_own() {
        #[derive(clap::Parser)]
        struct Flags {
            #[command(flatten)]
            args: ConcurrentSyncs,
        }
        for name in operators::NAMES {
            let flags = ["run".to_owned(), format!("--concurrent-{name}-syncs=7")];
            let flags = <Flags as clap::Parser>::try_parse_from(flags).unwrap();
            assert_eq!(flags.args.given(), BTreeMap::from([(name, 7)]));
        }
    }

    #[test]
    fn controllers_are_chosen_as_in_kube_controller_manager() {
        let all = operators::NAMES.to_vec();
        let without_foo: Vec<&str> = all.iter().copied().filter(|name| *name != "foo").collect();
        check("*", Ok(all));
        check("foo", Ok(vec!["foo"]));
        check("redis,foo", Ok(vec!["foo", "redis"]));
        check("*,-foo", Ok(without_foo.clone()));
        check("-foo,*", Ok(without_foo));
        check("foo,-foo", Err("leaves nothing to run"));
        check("bar", Err("there is no controller \"bar\""));
        check("*,-bar", Err("there is no controller \"bar\""));
    }

    #[test]
    fn an_address_is_written_as_in_kubernetes() {
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
    fn a_namespace_is_one_dns_label() {
        assert!(namespace("team-a").is_ok());
        for text in ["", "a,b", "A", "-a", "a-", "a.b"] {
            assert!(namespace(text).is_err(), "{text:?}");
        }
    }
}
