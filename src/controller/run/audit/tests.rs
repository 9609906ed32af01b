//! Tests of audits on the embedded server, with informers whose watches lose events. ConfigMaps stand for custom
//! resources, Secrets for children.

use futures_util::FutureExt;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::*;
use crate::api::labels;
use crate::cache::factory::Watched;
use crate::cache::{SharedInformerFactory, Store};
use crate::sim::{Action, Fault, InProcessTransport, LedgerEntry, Settings, Sim, When};
use crate::workqueue::{ItemExponentialFailure, LOW_PRIORITY};

const PERIOD: Duration = Duration::from_secs(1800);
/// Long enough for a bookmark to arrive.
const MINUTE: Duration = Duration::from_secs(61);

/// A server, informers as user `operator`, and audits as user `audit`: ConfigMaps are audited in the middle of a
/// period, Secrets at its end.
struct Rig {
    sim: Sim,
    user: ApiClient,
    maps: SharedInformer<ConfigMap>,
    secrets: SharedInformer<Secret>,
    queue: RateLimitingQueue<ObjectName>,
    metrics: Metrics,
    tasks: JoinSet<()>,
}

impl Rig {
    /// Starts everything, with these ConfigMaps.
    async fn new(names: &[&str]) -> Self {
        let sim = Sim::new(Settings::default());
        let client =
            |user| ApiClient::new(kube_client::Client::new(InProcessTransport::new(&sim, user), "default"));
        let user = client("user");
        let informers = SharedInformerFactory::new(client("operator"), vec!["default".to_owned()], None, 1);
        let maps = informers.informer(Watched::default()).unwrap();
        let label_selector = Some(labels::selector(labels::MANAGER));
        let secrets = informers.informer(Watched { label_selector, ..Watched::default() }).unwrap();
        let queue = RateLimitingQueue::new(ItemExponentialFailure::new(PERIOD, PERIOD));
        let (audits, metrics) = (Audits::default(), Metrics::new());
        audits.add_owner(&maps, queue.clone(), Arc::default());
        audits.add_child(&secrets);
        audits.add_child(&secrets);
        let mut rig = Self { sim, user, maps, secrets, queue, metrics, tasks: JoinSet::new() };
        for name in names {
            rig.put("ConfigMap", name, json!({})).await;
        }
        let (driven, audit_client) = (rig.sim.clone(), client_of(&rig.sim, "audit"));
        rig.tasks.spawn(async move { driven.run().await });
        rig.tasks.spawn(async move { informers.run(CancellationToken::new()).await });
        let metrics = rig.metrics.clone();
        rig.tasks.spawn(async move {
            audits.run(audit_client, PERIOD, metrics, CancellationToken::new()).await;
        });
        rig.maps.synced().synced().await;
        rig.secrets.synced().synced().await;
        rig
    }

    /// Creates or replaces an object.
    async fn put(&self, kind: &'static str, name: &str, fields: Value) -> Value {
        let resource = resource(kind);
        let mut object = json!({"apiVersion": "v1", "kind": kind, "metadata": {}});
        for (field, value) in fields.as_object().unwrap() {
            object[field] = value.clone();
        }
        object["metadata"]["name"] = json!(name);
        let live: Option<Value> = self.user.get(&resource, Some("default"), name).await.unwrap();
        match live {
            None => self.user.create(&resource, Some("default"), &object).await.unwrap(),
            Some(live) => {
                object["metadata"]["resourceVersion"] = live["metadata"]["resourceVersion"].clone();
                object["metadata"]["uid"] = live["metadata"]["uid"].clone();
                self.user.replace(&resource, Some("default"), name, &object).await.unwrap()
            }
        }
    }

    async fn change(&self, name: &str) {
        self.put("ConfigMap", name, json!({"data": {"changed": "yes"}})).await;
    }

    async fn delete(&self, kind: &'static str, name: &str) {
        let resource = resource(kind);
        let live: Option<Value> = self.user.get(&resource, Some("default"), name).await.unwrap();
        let meta = &live.unwrap()["metadata"];
        let (uid, version) = (meta["uid"].as_str().unwrap(), meta["resourceVersion"].as_str().unwrap());
        self.user.delete(&resource, Some("default"), name, uid, version).await.unwrap();
    }

    /// Creates or replaces a Secret whose controller is the ConfigMap `owner`.
    async fn child(&self, name: &str, owner: &Value, has_label: bool) {
        let reference = json!({"apiVersion": "v1", "kind": "ConfigMap", "controller": true,
            "name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"]});
        let label = if has_label { json!({labels::MANAGED_BY: labels::MANAGER}) } else { json!({}) };
        let metadata = json!({"labels": label, "ownerReferences": [reference]});
        self.put("Secret", name, json!({"metadata": metadata})).await;
    }

    /// Drops the watch events of a kind from now on.
    fn lose_events(&self, plural: &str) -> crate::sim::FaultId {
        let of_the_watch = When::verb("watch").resource(plural).user("operator");
        self.sim.fault(Fault::new(of_the_watch, Action::SkipEvent))
    }

    /// Adds a fault to requests of the user `audit`.
    fn fault(&self, verb: &str, times: usize, action: Action) {
        self.sim.fault(Fault::new(When::verb(verb).user("audit").times(times), action));
    }

    /// Returns the queued keys.
    fn queued(&self) -> Vec<String> {
        let got = std::iter::from_fn(|| self.queue.get().now_or_never().flatten());
        let key = |processing: crate::workqueue::Processing<'_, ObjectName>| {
            assert_eq!(processing.reasons().to_string(), "audit");
            assert_eq!(processing.priority(), LOW_PRIORITY);
            processing.key().name().to_owned()
        };
        let mut keys: Vec<String> = got.map(key).collect();
        keys.sort();
        keys
    }

    fn requests(&self, user: &str, verb: &str, plural: &str) -> Vec<LedgerEntry> {
        let ledger = self.sim.ledger().into_iter();
        ledger.filter(|entry| entry.user == user && entry.verb == verb && entry.resource == plural).collect()
    }

    /// Returns how often the cache of ConfigMaps has listed them, but for the first time.
    fn relists(&self) -> usize {
        self.requests("operator", "list", "configmaps").len() - 1
    }

    /// Counts of ConfigMap audits: clean, found, late, error; and of their findings.
    fn counts(&self) -> [u64; 5] {
        let text = self.metrics.encode();
        let of = |series: String| {
            let line = text.lines().find_map(|line| line.strip_prefix(&series)).unwrap();
            line.trim().parse().unwrap()
        };
        let result = |result| of(format!("windlass_audits_total{{kind=\"configmaps\",result=\"{result}\"}}"));
        let findings = of("windlass_audit_findings_total{kind=\"configmaps\"}".to_owned());
        [result("clean"), result("found"), result("late"), result("error"), findings]
    }

    fn matches_server<K: TypedObject>(&self, store: &Store<K>, live: &[Value]) -> bool {
        let of = |object: &Value, field: &str| object["metadata"][field].as_str().unwrap().to_owned();
        let mut live: Vec<_> = live
            .iter()
            .map(|object| (of(object, "name"), of(object, "uid"), of(object, "resourceVersion")))
            .collect();
        let mut cached = Vec::new();
        store.for_each(|name, object| {
            cached.push((
                name.name().to_owned(),
                object.uid().to_owned(),
                object.resource_version().to_owned(),
            ));
        });
        live.sort();
        cached.sort();
        live == cached
    }

    /// Whether the cache of ConfigMaps equals the server's objects.
    async fn maps_match_server(&self) -> bool {
        let live: Vec<Value> = self.user.list(&resource("ConfigMap"), Some("default")).await.unwrap();
        self.matches_server(&self.maps.store(), &live)
    }
}

fn client_of(sim: &Sim, user: &str) -> ApiClient {
    ApiClient::new(kube_client::Client::new(InProcessTransport::new(sim, user), "default"))
}

fn resource(kind: &str) -> ApiResource {
    match kind {
        "ConfigMap" => ApiResource::of::<ConfigMap>(),
        _ => ApiResource::of::<Secret>(),
    }
}

async fn pass(time: Duration) {
    tokio::time::sleep(time).await;
}

/// Each kind of change, and an object that is deleted and created again.
#[tokio::test(start_paused = true)]
async fn lost_events_are_found_within_a_period() {
    let rig = Rig::new(&["changed", "gone", "replaced", "same"]).await;
    let fault = rig.lose_events("configmaps");
    rig.put("ConfigMap", "added", json!({})).await;
    rig.change("changed").await;
    rig.delete("ConfigMap", "gone").await;
    rig.delete("ConfigMap", "replaced").await;
    rig.put("ConfigMap", "replaced", json!({})).await;
    rig.sim.heal(fault);
    pass(PERIOD / 2 - Duration::from_secs(1)).await;
    assert!(!rig.maps_match_server().await, "nothing has repaired the lost events yet");
    pass(MINUTE).await;
    assert!(rig.maps_match_server().await);
    assert_eq!(rig.queued(), ["added", "changed", "gone", "replaced"]);
    assert_eq!(rig.counts(), [0, 1, 0, 0, 4]);
    assert_eq!(rig.requests("audit", "list", "configmaps").len(), 1);
    assert_eq!(rig.requests("audit", "get", "configmaps").len(), 4);
    pass(PERIOD).await;
    assert_eq!((rig.queued().len(), rig.counts()), (0, [1, 1, 0, 0, 4]));
}

#[tokio::test(start_paused = true)]
async fn lost_child_events_enqueue_the_owners() {
    let rig = Rig::new(&[]).await;
    let owner = async |name: &str| rig.put("ConfigMap", name, json!({})).await;
    let owners = [owner("a").await, owner("b").await, owner("c").await, owner("d").await];
    rig.child("of-b", &owners[1], true).await;
    rig.child("of-c", &owners[2], true).await;
    rig.child("of-d", &owners[3], true).await;
    pass(MINUTE).await;
    let fault = rig.lose_events("secrets");
    rig.child("of-a", &owners[0], true).await;
    rig.delete("Secret", "of-b").await;
    // The Secret leaves the selector, which is a delete for the watch.
    rig.child("of-c", &owners[2], false).await;
    rig.put("Secret", "of-nobody", json!({"metadata": {"labels": {labels::MANAGED_BY: labels::MANAGER}}}))
        .await;
    rig.sim.heal(fault);
    pass(PERIOD).await;
    assert_eq!(rig.queued(), ["a", "b", "c"]);
    let mut names: Vec<_> = rig.secrets.store().names().iter().map(|name| name.name().to_owned()).collect();
    names.sort();
    assert_eq!(names, ["of-a", "of-d", "of-nobody"]);
}

/// An object that does not decode still has a resource version.
#[tokio::test(start_paused = true)]
async fn unreadable_objects_are_compared_by_their_metadata() {
    let rig = Rig::new(&["a"]).await;
    let odd = |name: &str| {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"number": 7},
            "metadata": {"name": name, "namespace": "default", "uid": name, "labels": {"odd": 7}}})
    };
    rig.sim.write_behind("", "configmaps", &odd("known"));
    pass(PERIOD).await;
    assert!(rig.maps.store().get(&"default/known".parse().unwrap()).unwrap().readable().is_none());
    assert_eq!(rig.counts(), [1, 0, 0, 0, 0]);
    let fault = rig.lose_events("configmaps");
    rig.sim.write_behind("", "configmaps", &odd("lost"));
    rig.sim.heal(fault);
    pass(PERIOD).await;
    assert_eq!((rig.queued(), rig.counts()), (vec!["lost".to_owned()], [1, 1, 0, 0, 1]));
}

#[tokio::test(start_paused = true)]
async fn late_cache_is_not_a_finding() {
    let rig = Rig::new(&["changed", "gone"]).await;
    rig.sim.set_lag(0, Duration::from_secs(40));
    pass(PERIOD / 2 - Duration::from_secs(5)).await;
    rig.change("changed").await;
    rig.delete("ConfigMap", "gone").await;
    rig.put("ConfigMap", "added", json!({})).await;
    pass(Duration::from_secs(20)).await;
    assert!(!rig.maps_match_server().await);
    pass(3 * MINUTE).await;
    assert!(rig.maps_match_server().await);
    assert_eq!((rig.queued().len(), rig.counts()), (0, [1, 0, 0, 0, 0]));
    assert_eq!(rig.requests("audit", "get", "configmaps"), []);
}

/// R18: the server is at an earlier version than the cache, or at a later one, but does not have what the cache has.
#[tokio::test(start_paused = true)]
async fn a_restored_store_is_noticed() {
    for is_later in [false, true] {
        let rig = Rig::new(&["changed", "same"]).await;
        let backup = rig.sim.version();
        rig.change("changed").await;
        pass(Duration::from_secs(5)).await;
        assert!(rig.maps_match_server().await);
        assert!(rig.sim.roll_back(backup));
        for at in 0..if is_later { 5 } else { 0 } {
            rig.put("Secret", &format!("later-{at}"), json!({})).await;
        }
        assert!(!rig.maps_match_server().await);
        pass(PERIOD + 3 * MINUTE).await;
        assert!(rig.maps_match_server().await, "later: {is_later}");
        assert_eq!(rig.relists(), 1, "later: {is_later}");
    }
}

#[tokio::test(start_paused = true)]
async fn persistently_late_cache_is_relisted() {
    let rig = Rig::new(&["a"]).await;
    rig.sim.freeze_cache(0, "", "configmaps", true);
    rig.put("ConfigMap", "added", json!({})).await;
    pass(PERIOD / 2 + 3 * MINUTE).await;
    assert_eq!(rig.counts(), [0, 0, 1, 0, 0]);
    assert_eq!(rig.maps.store().len(), 1);
    pass(PERIOD).await;
    assert_eq!(rig.counts(), [0, 0, 2, 0, 0]);
    assert!(rig.maps_match_server().await);
    assert_eq!(rig.queued(), Vec::<String>::new(), "the relist notifies the handlers");
}

/// The list shows the state at its start, and its response takes 10 s.
#[tokio::test(start_paused = true)]
async fn changes_during_the_list_are_not_findings() {
    let rig = Rig::new(&["changed", "gone", "same"]).await;
    let bytes = std::num::NonZeroUsize::new(200).unwrap();
    let slow = Action::Trickle { bytes, every: Duration::from_secs(2), is_endless: false };
    rig.fault("list", 1, slow);
    pass(PERIOD / 2 + Duration::from_secs(1)).await;
    assert_eq!(rig.requests("audit", "list", "configmaps").len(), 1);
    assert_eq!(rig.counts(), [0; 5], "the audit is in progress");
    rig.change("changed").await;
    rig.delete("ConfigMap", "gone").await;
    rig.put("ConfigMap", "added", json!({})).await;
    pass(MINUTE).await;
    assert_eq!((rig.queued().len(), rig.counts()), (0, [1, 0, 0, 0, 0]));
    assert_eq!(rig.requests("audit", "get", "configmaps").len(), 1, "the deleted object is read live");
}

/// A failed request that was read as an empty response would confirm the deletion.
#[tokio::test(start_paused = true)]
async fn failed_audit_request_finds_nothing_and_is_retried() {
    let no_items = Action::refuse(404, "NotFound");
    for (verb, action) in [
        ("list", Action::refuse(500, "InternalError")),
        ("list", Action::BreakBody),
        ("list", no_items.clone()),
        ("list", Action::DropAfter),
        ("get", no_items),
        ("get", Action::DropBefore),
    ] {
        let rig = Rig::new(&["gone", "same"]).await;
        let fault = rig.lose_events("configmaps");
        rig.delete("ConfigMap", "gone").await;
        rig.sim.heal(fault);
        rig.fault(verb, 2, action.clone());
        pass(PERIOD / 2 + 2 * MINUTE).await;
        assert_eq!((rig.queued().len(), rig.maps.store().len()), (0, 2), "{verb} {action:?}");
        assert_eq!(rig.counts()[..2], [0, 0], "{verb} {action:?}");
        pass(PERIOD / 4).await;
        assert_eq!(rig.counts(), [0, 1, 0, 2, 1], "{verb} {action:?}");
        assert_eq!((rig.queued(), rig.maps_match_server().await), (vec!["gone".to_owned()], true));
    }
}

#[tokio::test(start_paused = true)]
async fn kind_relists_at_most_once_per_period() {
    let rig = Rig::new(&["a", "b", "c"]).await;
    let fault = rig.lose_events("configmaps");
    rig.change("a").await;
    rig.change("b").await;
    // The live read of `b` fails, so that the audit is retried.
    let second = When::verb("get").user("audit").name("b").times(1);
    rig.sim.fault(Fault::new(second, Action::refuse(500, "InternalError")));
    pass(PERIOD / 2 + MINUTE).await;
    assert_eq!((rig.queued(), rig.relists()), (vec!["a".to_owned()], 1));
    rig.change("c").await;
    rig.sim.heal(fault);
    pass(PERIOD / 4).await;
    assert_eq!((rig.queued(), rig.counts(), rig.relists()), (vec!["c".to_owned()], [0, 1, 0, 1, 2], 1));
    assert!(!rig.maps_match_server().await);
    pass(PERIOD).await;
    assert_eq!((rig.queued(), rig.counts(), rig.relists()), (vec!["c".to_owned()], [0, 2, 0, 1, 3], 2));
    assert!(rig.maps_match_server().await);
}

#[tokio::test(start_paused = true)]
async fn kinds_take_turns_over_the_period() {
    let rig = Rig::new(&["a"]).await;
    pass(3 * PERIOD - Duration::from_secs(1)).await;
    let times = |plural| {
        let lists = rig.requests("audit", "list", plural);
        lists.iter().map(|entry| entry.at.as_secs()).collect::<Vec<_>>()
    };
    assert_eq!(times("configmaps"), [900, 2700, 4500]);
    assert_eq!(times("secrets"), [1800, 3600]);
}

#[tokio::test(start_paused = true)]
async fn an_unlabelled_child_is_found_every_eighth_period() {
    let rig = Rig::new(&["other"]).await;
    let owner = rig.put("ConfigMap", "owner", json!({})).await;
    rig.child("lost", &owner, false).await;
    rig.child("labelled", &owner, true).await;
    let odd = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "odd", "namespace": "default",
        "uid": "odd", "labels": {"odd": 7}, "ownerReferences": [{"name": 7}]}});
    rig.sim.write_behind("", "secrets", &odd);
    // The cached ConfigMap `other` has another uid.
    let mut previous = owner.clone();
    previous["metadata"]["name"] = json!("other");
    rig.child("of-a-previous-incarnation", &previous, false).await;
    let unlabelled = || {
        let lists = rig.requests("audit", "list", "secrets").into_iter();
        lists.filter(|entry| entry.uri.contains("managed-by%21%3Dwindlass")).count()
    };
    pass(8 * PERIOD - Duration::from_secs(1)).await;
    assert_eq!((rig.queued().len(), unlabelled()), (0, 0));
    // One list fails.
    let list = When::verb("list").user("audit").skip(1).times(1);
    rig.sim.fault(Fault::new(list, Action::refuse(500, "InternalError")));
    pass(PERIOD / 4).await;
    assert_eq!((rig.queued(), unlabelled()), (vec!["owner".to_owned()], 2));
    pass(7 * PERIOD).await;
    assert_eq!((rig.queued().len(), unlabelled()), (0, 2));
    pass(PERIOD).await;
    assert_eq!((rig.queued(), unlabelled()), (vec!["owner".to_owned()], 3));
    assert!(rig.requests("audit", "list", "configmaps").iter().all(|entry| !entry.uri.contains("%21")));
}

/// There are 1202 ConfigMaps and 501 Secrets, and other Secrets in another namespace.
#[tokio::test(start_paused = true)]
async fn clean_audit_sends_one_request_per_page() {
    let rig = Rig::new(&[]).await;
    let object = |kind: &str, namespace: &str, at: u32| {
        json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": format!("o-{at}"), "namespace": namespace,
            "uid": format!("{kind}-{namespace}-{at}"), "labels": {labels::MANAGED_BY: labels::MANAGER}}})
    };
    for at in 0..1202 {
        rig.sim.write_behind("", "configmaps", &object("ConfigMap", "default", at));
    }
    for at in 0..501 {
        rig.sim.write_behind("", "secrets", &object("Secret", "default", at));
        rig.sim.write_behind("", "secrets", &object("Secret", "kube-system", at));
    }
    pass(PERIOD + MINUTE).await;
    assert_eq!(rig.maps.store().len(), 1202);
    let lists = |plural| rig.requests("audit", "list", plural).len();
    assert_eq!((lists("configmaps"), lists("secrets")), (3, 2));
    let all = rig.sim.ledger().into_iter().filter(|entry| entry.user == "audit");
    assert_eq!(all.filter(|entry| entry.verb != "list" || entry.uri.contains("resourceVersion")).count(), 0);
    assert_eq!((rig.counts(), rig.queued().len()), ([1, 0, 0, 0, 0], 0));
}

/// One kind in two namespaces, and one with two selectors.
#[tokio::test(start_paused = true)]
async fn each_informer_of_a_kind_is_audited() {
    let (sim, stop) = (Sim::new(Settings::default()), CancellationToken::new());
    let namespaces = ["default", "kube-system"];
    let informers = SharedInformerFactory::new(
        client_of(&sim, "operator"),
        namespaces.map(str::to_owned).to_vec(),
        None,
        1,
    );
    let queue = RateLimitingQueue::new(ItemExponentialFailure::new(PERIOD, PERIOD));
    let (audits, mut tasks) = (Audits::default(), JoinSet::new());
    for (_, maps) in informers.informers(Watched::<ConfigMap>::default).unwrap().informers() {
        audits.add_owner(maps, queue.clone(), Arc::default());
    }
    for colour in ["red", "blue"] {
        let watched = || Watched::<Secret> {
            label_selector: Some(format!("colour={colour}")),
            field_selector: Some("metadata.name!=ignored".to_owned()),
            ..Watched::default()
        };
        for (_, secrets) in informers.informers_in(&["default"], watched).unwrap().informers() {
            audits.add_owner(secrets, queue.clone(), Arc::default());
        }
    }
    let (driven, stopped) = (sim.clone(), stop.clone());
    tasks.spawn(async move { driven.run().await });
    tasks.spawn(async move { informers.run(stopped).await });
    let audit = client_of(&sim, "audit");
    tasks.spawn(async move { audits.run(audit, PERIOD, Metrics::new(), CancellationToken::new()).await });
    pass(MINUTE).await;

    let fault = sim.fault(Fault::new(When::verb("watch").user("operator"), Action::SkipEvent));
    let user = client_of(&sim, "user");
    let create = async |kind: &str, namespace: &str, name: &str, colour: &str| {
        let object = json!({"metadata": {"name": name, "labels": {"colour": colour}}});
        user.create::<Value>(&resource(kind), Some(namespace), &object).await.unwrap();
    };
    for namespace in namespaces {
        create("ConfigMap", namespace, "map", "red").await;
    }
    for (name, colour) in [("red", "red"), ("blue", "blue"), ("green", "green"), ("ignored", "red")] {
        create("Secret", "default", name, colour).await;
    }
    sim.heal(fault);
    pass(PERIOD + MINUTE).await;
    let queued = std::iter::from_fn(|| queue.get().now_or_never().flatten());
    let mut queued: Vec<String> = queued.map(|processing| processing.key().to_string()).collect();
    queued.sort();
    assert_eq!(queued, ["default/blue", "default/map", "default/red", "kube-system/map"]);
}
