//! `windlass status`: the leader, the number of Ready objects of each kind, and the objects that are not Ready.
//!
//! Costs one read of the Lease and of each named namespace, with shards one list of Leases, and one list request per
//! kind, named namespace and 500 objects.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, MicroTime};
use serde::{Deserialize, Serialize};

use super::run::connect;
use super::{Failure, namespaces, print};
use crate::api::ApiResource;
use crate::api::appservice::v1alpha1::AppService;
use crate::api::conditions::{self, READY, RECONCILING, STALLED};
use crate::api::myapp::v1::Myapp;
use crate::api::redis::v1::Redis;
use crate::api::samplecontroller::v1alpha1::Foo;
use crate::api::webapp::v1::WebApp;
use crate::client::{ApiClient, ConfigSource, Error, explain};
use crate::leader_election::shards::{Renewal, overview, shards_of_holder};

/// Where to look for the Lease: the namespace of the manifests, then that of a process outside a cluster.
const LEASE_NAMESPACES: [&str; 2] = ["windlass-system", "default"];
/// How many objects that are not Ready the table lists.
const LISTED: usize = 20;
/// How much of a message the table shows.
const MESSAGE: usize = 100;

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Exit codes: 0 also when objects are not Ready, 1 if the cluster cannot be read, 2 wrong usage."
)]
pub(super) struct Args {
    /// Kubeconfig file; default: in-cluster if available (not with --context), else KUBECONFIG, else ~/.kube/config
    #[arg(long, env = "WINDLASS_KUBECONFIG", value_name = "FILE")]
    kubeconfig: Option<std::path::PathBuf>,

    /// Context of the kubeconfig; default: its current one
    #[arg(long, env = "WINDLASS_CONTEXT", value_name = "NAME")]
    context: Option<String>,

    /// Accept a server that is not verified: one with http://, or a kubeconfig with insecure-skip-tls-verify
    #[arg(long, env = "WINDLASS_ALLOW_INSECURE_SERVER")]
    allow_insecure_server: bool,

    /// Look at these namespaces only, separated by commas; default: all
    #[arg(short, long, env = "WINDLASS_NAMESPACE", value_name = "NAMESPACE,…", value_delimiter = ',')]
    namespace: Vec<String>,

    /// Namespace of the operator's Lease; default: windlass-system, else default
    #[arg(long, env = "WINDLASS_LEADER_ELECT_RESOURCE_NAMESPACE", value_name = "NAMESPACE")]
    leader_elect_resource_namespace: Option<String>,

    /// Name of the operator's Lease
    #[arg(
        long,
        env = "WINDLASS_LEADER_ELECT_RESOURCE_NAME",
        value_name = "NAME",
        default_value = "windlass"
    )]
    leader_elect_resource_name: String,

    /// Output format
    #[arg(short, long, value_name = "FORMAT", default_value = "table")]
    output: Output,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Output {
    Table,
    Json,
}

/// The report of `windlass status`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Report {
    /// `None` if there is no Lease.
    leader: Option<Leader>,
    /// `None` with a single leader.
    #[serde(skip_serializing_if = "Option::is_none")]
    shards: Option<Shards>,
    /// The namespaces that were asked for and do not exist.
    missing_namespaces: Vec<String>,
    kinds: Vec<KindReport>,
    not_ready: Vec<NotReady>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Leader {
    lease: String,
    /// Empty after a release.
    holder: String,
    renew_time: Option<Timestamp>,
    /// The Lease expires this long after `renew_time`.
    duration_seconds: i32,
    transitions: i32,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Shards {
    count: u16,
    /// Why the shards could not be read.
    error: Option<String>,
    /// The shards without a holder that lives.
    unheld: Vec<u16>,
    members: Vec<Member>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Member {
    identity: String,
    renew_time: Option<Timestamp>,
    has_expired: bool,
    shards: Vec<u16>,
}

#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct KindReport {
    kind: String,
    /// Why the kind could not be listed.
    error: Option<String>,
    objects: usize,
    ready: usize,
    reconciling: usize,
    stalled: usize,
    /// Objects whose current generation no operator has observed.
    unobserved: usize,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct NotReady {
    namespace: String,
    object: String,
    is_stalled: bool,
    reason: String,
    message: String,
    since: Option<Timestamp>,
}

/// The fields of a custom resource that the report needs.
#[derive(Deserialize)]
struct Item {
    metadata: Meta,
    #[serde(default)]
    status: Status,
}

#[derive(Deserialize)]
struct Meta {
    name: String,
    #[serde(default)]
    namespace: String,
    #[serde(default)]
    generation: i64,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Status {
    observed_generation: i64,
    conditions: Vec<Condition>,
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime =
        runtime.map_err(|error| Failure::Running(format!("could not start the runtime: {error}")))?;
    let report = runtime.block_on(report(args))?;
    match args.output {
        Output::Table => print(&table(&report, Timestamp::now())),
        Output::Json => {
            let text = serde_json::to_string_pretty(&report);
            let text =
                text.map_err(|error| Failure::Running(format!("could not encode the report: {error}")))?;
            print(&format!("{text}\n"))
        }
    }
}

async fn report(args: &Args) -> Result<Report, Failure> {
    let namespaces = namespaces::checked(&args.namespace)?;
    let source = ConfigSource {
        kubeconfig: args.kubeconfig.clone(),
        context: args.context.clone(),
        allow_insecure_server: args.allow_insecure_server,
    };
    let client = connect(&source).await?;
    let (name, namespace) =
        (&args.leader_elect_resource_name, args.leader_elect_resource_namespace.as_deref());
    let leader = leader(&client, name, namespace);
    let leader = leader.await.map_err(|error| Failure::Running(explain(&error)))?;
    let shards = shards(&client, leader.as_ref(), Timestamp::now());
    let shards = shards.await.map_err(|error| Failure::Running(explain(&error)))?;
    let missing_namespaces = namespaces::missing(&client, &namespaces).await;
    let (mut kinds, mut not_ready) = (Vec::new(), Vec::new());
    let all = [
        ApiResource::of::<Foo>(),
        ApiResource::of::<Myapp>(),
        ApiResource::of::<AppService>(),
        ApiResource::of::<Redis>(),
        ApiResource::of::<WebApp>(),
    ];
    for resource in all {
        kinds.push(kind(&client, &resource, &namespaces, &mut not_ready).await?);
    }
    not_ready.sort_by_key(|object: &NotReady| (!object.is_stalled, object.since));
    Ok(Report { leader, shards, missing_namespaces, kinds, not_ready })
}

async fn leader(client: &ApiClient, name: &str, namespace: Option<&str>) -> Result<Option<Leader>, Error> {
    for namespace in namespace.map_or(LEASE_NAMESPACES.to_vec(), |namespace| vec![namespace]) {
        if let Some(lease) = client.get_lease(namespace, name).await? {
            return Ok(Some(leader_of(lease, namespace, name)));
        }
    }
    Ok(None)
}

fn leader_of(lease: Lease, namespace: &str, name: &str) -> Leader {
    let spec = lease.spec.unwrap_or_default();
    Leader {
        lease: format!("{namespace}/{name}"),
        holder: spec.holder_identity.unwrap_or_default(),
        renew_time: spec.renew_time.map(|MicroTime(time)| time),
        duration_seconds: spec.lease_duration_seconds.unwrap_or_default(),
        transitions: spec.lease_transitions.unwrap_or_default(),
    }
}

/// Reads who holds which shards; `None` with a single leader. A missing permission is part of the report.
async fn shards(
    client: &ApiClient,
    leader: Option<&Leader>,
    now: Timestamp,
) -> Result<Option<Shards>, Error> {
    let Some((leader, sharding)) =
        leader.and_then(|leader| Some((leader, shards_of_holder(&leader.holder)?)))
    else {
        return Ok(None);
    };
    let count = sharding.of;
    let (namespace, name) = leader.lease.split_once('/').unwrap_or_default();
    let found = match overview(client, namespace, name, sharding).await {
        Ok(found) => found,
        Err(error) if error.is_forbidden() => {
            let error = Some(format!("not allowed to list Leases in {namespace}"));
            return Ok(Some(Shards { count, error, unheld: Vec::new(), members: Vec::new() }));
        }
        Err(error) => return Err(error),
    };
    let member = |(identity, renewal): (&String, &Renewal)| {
        let held = found.holders.iter().filter(|(_, holder)| *holder == identity);
        let age = renewal.renewed.map(|renewed| now.duration_since(renewed).as_secs());
        let has_expired = age.is_none_or(|age| age > i64::try_from(renewal.seconds).unwrap_or(i64::MAX));
        Member {
            identity: identity.clone(),
            renew_time: renewal.renewed,
            has_expired,
            shards: held.map(|(shard, _)| *shard).collect(),
        }
    };
    let members: Vec<Member> = found.members.iter().map(member).collect();
    let lives =
        |shard: &u16| members.iter().any(|member| !member.has_expired && member.shards.contains(shard));
    let unheld = (0..count).filter(|shard| !lives(shard)).collect();
    Ok(Some(Shards { count, error: None, unheld, members }))
}

/// Counts the objects of a kind, and lists those that are not Ready. A missing kind or permission is part of the report.
async fn kind(
    client: &ApiClient,
    resource: &ApiResource,
    namespaces: &[String],
    not_ready: &mut Vec<NotReady>,
) -> Result<KindReport, Failure> {
    let mut found = KindReport { kind: resource.plural.to_string(), ..KindReport::default() };
    let namespaces = match namespaces {
        [] => vec![None],
        named => named.iter().map(|name| Some(name.as_str())).collect(),
    };
    for namespace in namespaces {
        let outcome =
            client.each_object(resource, namespace, "", |item: Item| found.add(item, not_ready)).await;
        match outcome {
            Ok(_) => {}
            Err(error) if error.is_not_found() => found.error = Some("not installed".to_owned()),
            Err(error) if error.is_forbidden() => {
                let place = namespace.map(|namespace| format!(" in {namespace}")).unwrap_or_default();
                found.error = Some(format!("not allowed to list{place}"));
            }
            Err(error) => return Err(Failure::Running(explain(&error))),
        }
    }
    Ok(found)
}

impl Leader {
    fn has_expired(&self, now: Timestamp) -> bool {
        let lasts = i64::from(self.duration_seconds);
        self.renew_time.is_some_and(|renewed| now.duration_since(renewed).as_secs() > lasts)
    }
}

impl KindReport {
    fn add(&mut self, item: Item, not_ready: &mut Vec<NotReady>) {
        let Item { metadata, status } = item;
        self.objects += 1;
        if status.observed_generation < metadata.generation {
            self.unobserved += 1;
        }
        if conditions::is_true(&status.conditions, READY) {
            self.ready += 1;
            return;
        }
        let is_stalled = conditions::is_true(&status.conditions, STALLED);
        self.stalled += usize::from(is_stalled);
        self.reconciling += usize::from(conditions::is_true(&status.conditions, RECONCILING));
        let ready = conditions::find(&status.conditions, READY);
        not_ready.push(NotReady {
            namespace: metadata.namespace,
            object: format!("{}/{}", self.kind, metadata.name),
            is_stalled,
            reason: ready.map_or("NoStatus", |ready| &ready.reason).to_owned(),
            message: ready.map_or("no operator has looked at it yet", |ready| &ready.message).to_owned(),
            since: ready.map(|ready| ready.last_transition_time.0),
        });
    }
}

fn table(report: &Report, now: Timestamp) -> String {
    let mut text = match &report.leader {
        None => "Leader: none; there is no Lease, so no operator with leader election runs\n".to_owned(),
        Some(Leader { lease, holder, .. }) if holder.is_empty() => {
            format!("Leader: none; the Lease {lease} was released\n")
        }
        Some(leader) if leader.has_expired(now) => {
            let Leader { lease, holder, renew_time, .. } = leader;
            let ago = age(*renew_time, now);
            format!("Leader: none; the Lease {lease} has expired: {holder} renewed it {ago} ago\n")
        }
        Some(Leader { lease, renew_time, .. }) if report.shards.is_some() => {
            format!("Leaders: several, with shards (Lease {lease}, renewed {} ago)\n", age(*renew_time, now))
        }
        Some(Leader { lease, holder, renew_time, .. }) => {
            format!("Leader: {holder} (Lease {lease}, renewed {} ago)\n", age(*renew_time, now))
        }
    };
    if let Some(shards) = &report.shards {
        write_shards(&mut text, shards, now);
    }
    for namespace in &report.missing_namespaces {
        writeln!(text, "Namespace {namespace}: does not exist").expect("a string takes all");
    }
    text.push('\n');
    let mut rows =
        vec![["KIND", "OBJECTS", "READY", "RECONCILING", "STALLED", "UNOBSERVED"].map(str::to_owned)];
    for kind in &report.kinds {
        rows.push(match &kind.error {
            Some(error) => [&kind.kind, error, "", "", "", ""].map(ToString::to_string),
            None => {
                let KindReport { objects, ready, reconciling, stalled, unobserved, .. } = kind;
                let counts = [objects, ready, reconciling, stalled, unobserved].map(ToString::to_string);
                let [objects, ready, reconciling, stalled, unobserved] = counts;
                [kind.kind.clone(), objects, ready, reconciling, stalled, unobserved]
            }
        });
    }
    write_rows(&mut text, &rows);
    if report.not_ready.is_empty() {
        return text;
    }
    text.push('\n');
    let mut rows = vec![["NAMESPACE", "OBJECT", "REASON", "SINCE", "MESSAGE"].map(str::to_owned)];
    rows.extend(report.not_ready.iter().take(LISTED).map(|object| {
        let NotReady { namespace, object, reason, message, since, .. } = object;
        let message: String = message.chars().take(MESSAGE).collect();
        [namespace.clone(), object.clone(), reason.clone(), age(*since, now), message]
    }));
    write_rows(&mut text, &rows);
    if let Some(more) = report.not_ready.len().checked_sub(LISTED).filter(|more| *more > 0) {
        writeln!(text, "and {more} more; --output=json lists all").expect("a string takes all");
    }
    text
}

/// Writes who holds how many shards.
fn write_shards(text: &mut String, shards: &Shards, now: Timestamp) {
    let Shards { count, error, unheld, members } = shards;
    match (error, &unheld[..]) {
        (Some(error), _) => writeln!(text, "Shards: {count}; {error}"),
        (None, []) => writeln!(text, "Shards: {count}, all held"),
        (None, unheld) => {
            let unheld: Vec<String> = unheld.iter().map(u16::to_string).collect();
            writeln!(text, "Shards: {count}; nobody holds {}", unheld.join(", "))
        }
    }
    .expect("a string takes all");
    if members.is_empty() {
        return;
    }
    let mut rows = vec![["MEMBER", "SHARDS", "RENEWED"].map(str::to_owned)];
    rows.extend(members.iter().map(|member| {
        let expired = if member.has_expired { " (expired)" } else { "" };
        let renewed = format!("{} ago{expired}", age(member.renew_time, now));
        [member.identity.clone(), member.shards.len().to_string(), renewed]
    }));
    text.push('\n');
    write_rows(text, &rows);
}

/// Writes rows in columns, as wide as their widest cell.
pub(super) fn write_rows<const N: usize>(text: &mut String, rows: &[[String; N]]) {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default();
    let widths: BTreeMap<usize, usize> = (0..N).map(|column| (column, width(column))).collect();
    for row in rows {
        let mut line = String::new();
        for (column, cell) in row.iter().enumerate() {
            write!(line, "{cell:<width$}  ", width = widths[&column]).expect("a string takes all");
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
}

/// Formats the time since then in one unit, as kubectl does.
fn age(time: Option<Timestamp>, now: Timestamp) -> String {
    let Some(time) = time else { return "?".to_owned() };
    let seconds = now.duration_since(time).as_secs().max(0);
    match seconds {
        0..120 => format!("{seconds}s"),
        120..7200 => format!("{}m", seconds / 60),
        7200..172_800 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn item(name: &str, ready: Option<(&str, &str, &str)>, is_stalled: bool) -> Item {
        let condition = |type_: &str, status: &str, reason: &str, message: &str| {
            json!({"type": type_, "status": status, "reason": reason, "message": message,
                "lastTransitionTime": "2026-01-01T00:00:00Z"})
        };
        let conditions: Vec<_> = ready
            .map(|(status, reason, message)| {
                let stalled = if is_stalled { "True" } else { "False" };
                let reconciling = if is_stalled || status == "True" { "False" } else { "True" };
                vec![
                    condition("Ready", status, reason, message),
                    condition("Reconciling", reconciling, reason, message),
                    condition("Stalled", stalled, reason, message),
                ]
            })
            .unwrap_or_default();
        let observed = i64::from(ready.is_some());
        serde_json::from_value(json!({
            "metadata": {"name": name, "namespace": "ns", "generation": 1},
            "status": {"observedGeneration": observed, "conditions": conditions},
        }))
        .unwrap()
    }

    fn report() -> Report {
        let mut not_ready = Vec::new();
        let mut foos = KindReport { kind: "foos".to_owned(), ..KindReport::default() };
        foos.add(item("fine", Some(("True", "Available", "all is well")), false), &mut not_ready);
        foos.add(item("new", None, false), &mut not_ready);
        foos.add(item("taken", Some(("False", "ResourceExists", "somebody else's")), true), &mut not_ready);
        let redis = KindReport {
            kind: "redis".to_owned(),
            error: Some("not installed".to_owned()),
            ..KindReport::default()
        };
        not_ready.sort_by_key(|object: &NotReady| (!object.is_stalled, object.since));
        let leader = Leader {
            lease: "windlass-system/windlass".to_owned(),
            holder: "pod-1".to_owned(),
            renew_time: Some("2026-01-01T00:59:58Z".parse().unwrap()),
            duration_seconds: 15,
            transitions: 2,
        };
        let missing_namespaces = vec!["team-z".to_owned()];
        Report { leader: Some(leader), shards: None, missing_namespaces, kinds: vec![foos, redis], not_ready }
    }

    #[test]
    fn table_shows_leader_counts_and_unready_objects() {
        let text = table(&report(), "2026-01-01T01:00:00Z".parse().unwrap());
        let expected = "\
Leader: pod-1 (Lease windlass-system/windlass, renewed 2s ago)
Namespace team-z: does not exist

KIND   OBJECTS        READY  RECONCILING  STALLED  UNOBSERVED
foos   3              1      0            1        1
redis  not installed

NAMESPACE  OBJECT      REASON          SINCE  MESSAGE
ns         foos/taken  ResourceExists  60m    somebody else's
ns         foos/new    NoStatus        ?      no operator has looked at it yet
";
        assert_eq!(text, expected);
    }

    #[test]
    fn an_expired_lease_is_no_leader() {
        let first = |now: &str| table(&report(), now.parse().unwrap()).lines().next().unwrap().to_owned();
        assert!(first("2026-01-01T01:00:13Z").starts_with("Leader: pod-1 "));
        let expired =
            "Leader: none; the Lease windlass-system/windlass has expired: pod-1 renewed it 16s ago";
        assert_eq!(first("2026-01-01T01:00:14Z"), expired);
    }

    #[test]
    fn json_has_every_field() {
        let json = serde_json::to_value(report()).unwrap();
        assert_eq!(json["leader"]["holder"], "pod-1");
        assert_eq!(json["kinds"][0]["stalled"], 1);
        assert_eq!(json["notReady"][0]["isStalled"], true);
        assert_eq!(json["notReady"][0]["reason"], "ResourceExists");
    }

    #[test]
    fn long_lists_are_cut_with_a_hint() {
        let mut report = report();
        for at in 0..2 * LISTED {
            report.kinds[0].add(item(&at.to_string(), None, false), &mut report.not_ready);
        }
        let text = table(&report, Timestamp::UNIX_EPOCH);
        assert!(text.ends_with("and 22 more; --output=json lists all\n"), "{text}");
    }

    #[test]
    fn shards_are_listed_by_member_with_those_that_nobody_holds() {
        let mut report = report();
        let now: Timestamp = "2026-01-01T01:00:00Z".parse().unwrap();
        let member = |identity: &str, ago: i64, has_expired, shards: &[u16]| Member {
            identity: identity.to_owned(),
            renew_time: Some(now - jiff::SignedDuration::from_secs(ago)),
            has_expired,
            shards: shards.to_vec(),
        };
        let members = vec![member("pod-a", 1, false, &[0, 1]), member("pod-b", 60, true, &[3])];
        report.shards = Some(Shards { count: 4, error: None, unheld: vec![2, 3], members });
        let text = table(&report, now);
        assert!(text.contains("Leaders: several, with shards (Lease "), "{text}");
        assert!(text.contains("Shards: 4; nobody holds 2, 3\n"), "{text}");
        let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert!(rows.contains(&vec!["pod-a", "2", "1s", "ago"]), "{text}");
        assert!(rows.contains(&vec!["pod-b", "1", "60s", "ago", "(expired)"]), "{text}");
    }
}
