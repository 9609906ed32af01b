//! The request budget of `docs/requests.md`: each scenario stays within it, also beside 2,000 other managed objects in
//! the namespace.
//!
//! Requests are counted in the real server's audit log or in the embedded server's ledger. Response sizes come from
//! the ledger or, on the real bed, from the operator's metrics. Watches are not counted, Events only where a budget
//! limits them.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::StreamExt;
use kube_client::api::DeleteParams;
use macro_rules_attribute::apply;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::endpoints::{address_of, get};
use crate::support::{Bed, LedgerEntry, Scene, both_beds, is_virtual, pass, wait_until};

/// The number of objects in a scenario.
const N: usize = 4;
/// The number of Pods of a scenario's Redis.
const PODS: usize = 20;
/// The number of other managed objects in the namespace.
const NEIGHBOURS: usize = 1_000;
/// Longer than the operator delays a status update that only changes numbers.
const QUIET: Duration = Duration::from_secs(3);

/// The maximum number of requests in a scenario, by verb.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Budget {
    get: usize,
    list: usize,
    create: usize,
    update: usize,
    delete: usize,
    /// Writes of Events, which the other fields do not include; 0 means no limit.
    events: usize,
}

/// The measured requests of a scenario.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Cost {
    by_verb: BTreeMap<String, usize>,
    events: usize,
    bytes: usize,
    conflicts: usize,
    /// The whole seconds that the Foos took to become Ready, summed up; 0 in virtual time.
    seconds: usize,
}

/// Runs scenarios one after the other in one scene and records their costs.
struct Bill {
    scene: Scene,
    costs: Vec<(&'static str, Cost, Budget)>,
    seen: usize,
    bytes: usize,
    /// As [`Cost::seconds`], since the last scenario.
    seconds: usize,
}

impl Bill {
    async fn beside(neighbours: usize) -> Self {
        let mut scene = Scene::on(Bed::own(true).await, "requests").await;
        // The server refuses Pods until their namespace has this account.
        let account = async || scene.look("ServiceAccount", "default").await.ok_or("no account");
        wait_until("the default service account exists", account).await;
        let all = futures_util::stream::iter(0..neighbours);
        all.for_each_concurrent(50, |at| neighbour(&scene, at)).await;
        scene.start_operator();
        // The caches' initial lists are not part of any scenario.
        scene.ready_foo("first", 1).await;
        let mut bill = Self { scene, costs: Vec::new(), seen: 0, bytes: 0, seconds: 0 };
        bill.settle().await;
        bill.take().await;
        bill
    }

    /// Waits until the operator sends no more requests.
    async fn settle(&self) {
        let mut before = self.scene.ledger().len();
        wait_until("nothing more is sent", async || {
            pass(QUIET).await;
            let now = self.scene.ledger().len();
            if std::mem::replace(&mut before, now) == now { Ok(()) } else { Err(now) }
        })
        .await;
    }

    /// Returns the cost since the last call.
    async fn take(&mut self) -> Cost {
        let ledger = self.scene.ledger();
        let mut cost = Cost::default();
        for entry in ledger.iter().skip(self.seen).filter(|entry| entry.verb != "watch") {
            if entry.resource == "events" {
                cost.events += 1;
                continue;
            }
            let verb = if entry.verb == "patch" { "update" } else { &entry.verb };
            *cost.by_verb.entry(verb.to_owned()).or_default() += 1;
            // A 409 on create means that the name is taken, not that a write lost a race.
            cost.conflicts += usize::from(entry.code == 409 && entry.verb != "create");
        }
        let bytes = self.answered(&ledger).await;
        cost.bytes = bytes - self.bytes.min(bytes);
        (self.seen, self.bytes) = (ledger.len(), bytes);
        cost
    }

    /// Returns the total size of all responses so far.
    async fn answered(&self, ledger: &[LedgerEntry]) -> usize {
        let of_objects = ledger.iter().filter(|entry| entry.resource != "events");
        let in_ledger: Vec<usize> = of_objects.filter_map(|entry| entry.bytes).collect();
        if !in_ledger.is_empty() {
            return in_ledger.iter().sum();
        }
        let address = address_of(self.scene.operator(), "/metrics").await;
        let (_, text) = get(&address, "/metrics").await;
        let sums = text.lines().filter(|line| line.starts_with("rest_client_response_size_bytes_sum"));
        let bytes: f64 = sums.filter_map(|line| line.split_whitespace().last()?.parse::<f64>().ok()).sum();
        assert!(bytes > 0.0, "the operator's metrics count response bytes");
        format!("{bytes:.0}").parse().expect("the sum of sizes is a whole number")
    }

    /// Ends a scenario: waits until it settles and records its cost.
    async fn ends(&mut self, scenario: &'static str, budget: Budget) {
        self.settle().await;
        let mut cost = self.take().await;
        cost.seconds = std::mem::take(&mut self.seconds);
        self.costs.push((scenario, cost, budget));
    }

    fn check(&self) {
        for (scenario, cost, budget) in &self.costs {
            let Budget { get, list, create, update, delete, events } = *budget;
            // Real controllers write the same objects: each lost race costs a read of the child, a read of its owner,
            // and a retry.
            let lost = cost.conflicts;
            // Progress is written at most once a second: a slow rollout may have one more status for each.
            let seconds = if update == 0 { 0 } else { cost.seconds };
            let (get, update) = (get + 2 * lost, update + lost + seconds);
            let most =
                [("get", get), ("list", list), ("create", create), ("update", update), ("delete", delete)];
            for (verb, most) in most {
                let found = cost.by_verb.get(verb).copied().unwrap_or(0);
                assert!(found <= most, "{scenario}: {found} of {verb}, at most {most}: {cost:?}");
            }
            assert!(events == 0 || cost.events <= events, "{scenario}: {cost:?}");
            // Each object's write may lose a race, and so may two retries.
            assert!(lost <= 3 * N, "{scenario}: {cost:?}");
        }
    }
}

/// Creates a managed object without owner, of a kind that the operator writes, with no work for its controller.
async fn neighbour(scene: &Scene, at: usize) {
    let labels = json!({"app.kubernetes.io/managed-by": "windlass", "app": "neighbour"});
    let container = json!({"name": "c", "image": "nginx"});
    let name = format!("neighbour-{at}");
    let metadata = json!({"name": name, "labels": labels});
    let (kind, spec) = if at.is_multiple_of(4) {
        ("Pod", json!({"containers": [container], "schedulingGates": [{"name": "windlass.dev/never"}]}))
    } else {
        let template = json!({"metadata": {"labels": labels}, "spec": {"containers": [container]}});
        let selector = json!({"matchLabels": labels});
        ("Deployment", json!({"replicas": 0, "paused": true, "selector": selector, "template": template}))
    };
    scene.make_whole(kind, json!({"metadata": metadata, "spec": spec})).await;
}

async fn for_each_foo(bill: &mut Bill, change: impl AsyncFn(&Scene, String)) {
    let mut changed = Vec::new();
    for at in 0..N {
        changed.push(Instant::now());
        change(&bill.scene, format!("foo-{at}")).await;
    }
    for (at, changed) in changed.into_iter().enumerate() {
        bill.scene.ready(&format!("foo-{at}")).await;
        if !is_virtual() {
            bill.seconds += usize::try_from(changed.elapsed().as_secs()).expect("it takes seconds");
        }
    }
}

async fn foos(bill: &mut Bill) {
    for_each_foo(bill, async |scene, foo| drop(scene.create_foo(&foo, &foo, 1).await)).await;
    let budget = Budget { create: N, update: 2 * N, events: 2 * N, ..Budget::default() };
    bill.ends("Foos are created", budget).await;

    let to = |replicas: i32| json!({"spec": {"replicas": replicas}});
    for_each_foo(bill, async |scene, foo| scene.patch_foo(&foo, to(2)).await).await;
    bill.ends("Foos are scaled up", Budget { update: 3 * N, ..Budget::default() }).await;

    for_each_foo(bill, async |scene, foo| scene.patch_foo(&foo, to(1)).await).await;
    bill.ends("Foos are scaled down", Budget { get: N, update: 3 * N, ..Budget::default() }).await;

    for_each_foo(bill, async |scene, foo| {
        scene.patch_deployment(&foo, to(0)).await;
        scene.deployment_until(&foo, "is put back", |live| live.spec.replicas == Some(1)).await;
    })
    .await;
    // The Pod is deleted and recreated, so the status changes once or twice each way.
    bill.ends("Deployments are edited by hand", Budget { get: N, update: 6 * N, ..Budget::default() }).await;

    let none = json!({"metadata": {"labels": {"app.kubernetes.io/managed-by": null}}});
    for_each_foo(bill, async |scene, foo| {
        scene.patch_deployment(&foo, none.clone()).await;
        let is_labelled = |live: &k8s_openapi::api::apps::v1::Deployment| {
            live.metadata.labels.as_ref().is_some_and(|all| all.contains_key("app.kubernetes.io/managed-by"))
        };
        scene.deployment_until(&foo, "is labelled again", is_labelled).await;
    })
    .await;
    let budget = Budget { get: 2 * N, create: N, update: N, ..Budget::default() };
    bill.ends("labels are taken off", budget).await;

    let note = json!({"metadata": {"annotations": {"theirs": "x"}}});
    for_each_foo(bill, async |scene, foo| scene.patch_deployment(&foo, note.clone()).await).await;
    bill.ends("Deployments are annotated by others", Budget::default()).await;

    for_each_foo(bill, async |scene, foo| {
        let name = format!("{foo}-new");
        scene.patch_foo(&foo, json!({"spec": {"deploymentName": name}})).await;
        scene.deployment_gone(&foo).await;
    })
    .await;
    let budget = Budget { get: N, list: N, create: N, update: 2 * N, delete: N, ..Budget::default() };
    bill.ends("Foos are renamed", budget).await;
}

async fn others(bill: &mut Bill) {
    let app = json!({"image": "nginx", "containerPort": 80, "servicePort": 80, "host": "a.example.com"});
    bill.scene.make("Myapp", "app", app).await;
    bill.scene.until_ready("Myapp", "app").await;
    bill.ends("a Myapp is created", Budget { create: 3, update: 2, events: 2, ..Budget::default() }).await;

    let app = json!({"replicas": 1, "image": "nginx", "ports": [{"port": 80}]});
    bill.scene.make("AppService", "service", app).await;
    bill.scene.until_ready("AppService", "service").await;
    bill.ends("an AppService is created", Budget { create: 2, update: 3, events: 2, ..Budget::default() })
        .await;

    let redis = json!({"replicas": PODS, "port": 6379, "image": "redis"});
    bill.scene.make("Redis", "cache", redis).await;
    bill.scene.until_ready("Redis", "cache").await;
    // The finalizer, the first and the last status, and one status per second in between.
    bill.ends("a Redis creates Pods", Budget { create: PODS, update: 3 + 10, ..Budget::default() }).await;

    bill.scene.unmake("Redis", "cache", DeleteParams::background()).await;
    bill.scene.until_gone("Redis", "cache").await;
    let budget = Budget { get: 1 + 5, list: 2, update: 2 + 10, delete: PODS, ..Budget::default() };
    bill.ends("a Redis is deleted", budget).await;

    // Before each of the six hooks of the two log tasks the operator reads the WebApp live.
    bill.scene.make("WebApp", "web", json!({"version": "1", "replicas": 1})).await;
    bill.scene.until_ready("WebApp", "web").await;
    bill.ends("a WebApp is created", Budget { get: 6, create: 1, update: 16, ..Budget::default() }).await;
}

async fn all(neighbours: usize) -> Bill {
    let mut bill = Bill::beside(neighbours).await;
    foos(&mut bill).await;
    others(&mut bill).await;
    bill.ends("rest", Budget::default()).await;
    bill.check();
    bill
}

#[apply(both_beds)]
async fn requests_stay_within_budget_regardless_of_neighbours() {
    let (alone, beside) = tokio::join!(all(0), all(NEIGHBOURS));
    eprintln!(
        "{:38} {:>6} {:>6} {:>6} {:>6} {:>6} {:>7}",
        "", "get", "list", "create", "update", "delete", "bytes"
    );
    for ((scenario, alone, _), (_, beside, _)) in alone.costs.iter().zip(&beside.costs) {
        let of = |cost: &Cost, verb: &str| cost.by_verb.get(verb).copied().unwrap_or(0);
        let verbs = ["get", "list", "create", "update", "delete"];
        let numbers = verbs.map(|verb| format!("{:>6}", of(beside, verb))).join(" ");
        eprintln!("{scenario:38} {numbers} {:>7}", beside.bytes);
        let is_calm = alone.conflicts + beside.conflicts == 0;
        for verb in ["get", "list", "create", "delete"].into_iter().filter(|_| is_calm) {
            assert_eq!(of(alone, verb), of(beside, verb), "{scenario}: {verb}, {alone:?} and {beside:?}");
        }
        // The number of status updates depends on when Pods become Ready.
        let (least, most) = (alone.bytes.min(beside.bytes), alone.bytes.max(beside.bytes));
        let has_same_updates = of(alone, "update") == of(beside, "update");
        assert!(
            !has_same_updates || !is_calm || most * 10 <= least * 11,
            "{scenario}: {alone:?} and {beside:?}"
        );
    }
}

/// With default flags only watches are open at rest, until an audit is due.
#[apply(both_beds)]
async fn nothing_is_requested_at_rest() {
    let scene = Scene::new("requests-rest").await;
    scene.ready_foo("web", 2).await;
    pass(QUIET).await;
    let asked = |scene: &Scene| -> Vec<Value> {
        let others = scene.ledger().into_iter().filter(|entry| entry.verb != "watch");
        others.map(|entry| json!([entry.verb, entry.uri])).collect()
    };
    let before = asked(&scene);
    pass(Duration::from_secs(20)).await;
    assert_eq!(asked(&scene), before);
}
