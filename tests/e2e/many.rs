//! Restarts and crashes with two hundred Foos.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures_util::StreamExt;
use kube_client::api::ListParams;

use macro_rules_attribute::apply;
use serde_json::json;
use windlass::sim::{Action, Fault, When};

use crate::support::{Bed, Scene, both_beds, embedded_bed, pass, real_bed, wait_until};

const FOOS: usize = 200;

async fn create_all(scene: &Scene) {
    futures_util::stream::iter(0..FOOS)
        .for_each_concurrent(20, |n| async move {
            drop(scene.create_foo(&format!("foo-{n}"), &format!("web-{n}"), 1).await);
        })
        .await;
}

/// Waits until every Foo is Ready.
async fn all_ready(scene: &Scene) {
    wait_until("all Foos are Ready", async || {
        let foos = scene.foos.list(&ListParams::default()).await.map_err(|e| e.to_string())?.items;
        let is_ready = |foo: &&windlass::api::samplecontroller::v1alpha1::Foo| {
            crate::support::condition(foo, "Ready").is_some_and(|ready| ready.status == "True")
        };
        let ready = foos.iter().filter(is_ready).count();
        if ready == FOOS { Ok(()) } else { Err(format!("{ready} of {FOOS}")) }
    })
    .await;
}

/// Asserts that every Foo owns exactly one Deployment, and that there are no others.
async fn assert_exact(scene: &Scene) {
    let foos = scene.foos.list(&ListParams::default()).await.unwrap().items;
    let wanted: BTreeMap<String, String> =
        foos.into_iter().map(|foo| (foo.spec.deployment_name, foo.metadata.uid.unwrap())).collect();
    let deployments = scene.deployments.list(&ListParams::default()).await.unwrap().items;
    let found: BTreeMap<String, String> = deployments
        .into_iter()
        .map(|d| (d.metadata.name.unwrap(), d.metadata.owner_references.unwrap()[0].uid.clone()))
        .collect();
    assert_eq!(found, wanted);
}

#[apply(both_beds)]
async fn restart_with_200_converged_foos_writes_nothing() {
    let mut scene = Scene::new("restart-200").await;
    create_all(&scene).await;
    all_ready(&scene).await;
    let status = scene.take_operator().terminate().await;
    assert_eq!(status.code(), Some(0));
    let before = scene.writes();
    scene.start_operator();
    // The new process writes nothing, so its debug log shows when it has synced every Foo.
    wait_until("every Foo was synced once more", async || {
        let synced = scene.operator().log().matches("Synced outcome=Done").count();
        if synced >= FOOS { Ok(()) } else { Err(format!("{synced} syncs")) }
    })
    .await;
    assert_eq!(scene.writes(), before);
    assert_exact(&scene).await;
}

#[apply(real_bed)]
#[why = "the embedded server compresses nothing"]
async fn compressed_lists_are_followed_by_plain_watches() {
    if let Ok(version) = std::env::var("WINDLASS_KUBERNETES") {
        eprintln!("skipped: Kubernetes {version} was asked for; streamed lists are compressed since 1.37");
        return;
    }
    let mut scene = Scene::on(Bed::shared().await, "compressed").await;
    create_all(&scene).await;
    scene.start_operator_with(&["--controllers=foo", "--kube-api-stream-lists"]);
    all_ready(&scene).await;
    // The audit log has a watch once it has ended, long before its timeout.
    wait_until("the streams with the lists have ended", async || {
        let watches = scene.ledger().into_iter().filter(|entry| entry.verb == "watch");
        let lists = watches.filter(|watch| watch.uri.contains("sendInitialEvents=true"));
        let kinds: BTreeSet<String> = lists.map(|watch| watch.resource).collect();
        if kinds.len() == 2 { Ok(()) } else { Err(kinds) }
    })
    .await;
    scene.create_foo("later", "later", 1).await;
    scene.ready("later").await;
    assert_exact(&scene).await;
}

/// P1: the operator is killed repeatedly while it creates Deployments.
#[apply(both_beds)]
async fn kills_while_creating_200_foos_lose_nothing() {
    let mut scene = Scene::on(Bed::shared().await, "kill-200").await;
    create_all(&scene).await;
    for created in [20, 70, 120] {
        scene.start_operator();
        wait_until("some Deployments are created", async || {
            let count = scene.deployments.list(&ListParams::default()).await.unwrap().items.len();
            if count >= created { Ok(()) } else { Err(count) }
        })
        .await;
        scene.take_operator().kill();
    }
    scene.start_operator();
    all_ready(&scene).await;
    assert_exact(&scene).await;
    let deletes = scene.writes().into_iter().filter(|write| write.verb == "delete").count();
    assert_eq!(deletes, 0);
    // The audit log may lack the code of a create whose sender was killed.
    let created = scene.writes().into_iter().filter(|w| w.resource == "deployments" && w.code == 201).count();
    assert!(created <= FOOS, "{created} Deployments were created for {FOOS} Foos");
}

/// The numbers of workers that the operator's log tells of, in order.
fn worker_counts(scene: &Scene) -> Vec<usize> {
    let log = scene.operator().log();
    let lines = log.lines().filter(|line| line.contains("Changed the number of workers"));
    let number = |line: &str| line.split_once("workers=")?.1.split(' ').next()?.parse().ok();
    lines.filter_map(number).collect()
}

#[apply(embedded_bed)]
#[why = "it takes 45 minutes, which pass at once there"]
async fn number_of_workers_follows_a_burst_of_minutes() {
    let mut scene = Scene::new("auto").await;
    scene.start_operator_with(&["--controllers=foo", "--workers=auto:4"]);
    let Bed::Embedded(bed) = &scene.bed else { unreachable!("the case runs on the embedded bed") };
    let create = When::verb("create").resource("deployments").user(&scene.user());
    bed.sim.fault(Fault::new(create, Action::Delay(Duration::from_secs(1))));
    futures_util::stream::iter(0..600)
        .for_each_concurrent(20, |n| {
            let scene = &scene;
            async move { drop(scene.create_foo(&format!("foo-{n}"), &format!("web-{n}"), 1).await) }
        })
        .await;
    pass(Duration::from_secs(45 * 60)).await;
    scene.ready("foo-599").await;
    assert_eq!(worker_counts(&scene), [3, 4, 3, 2, 1]);
    let log = scene.operator().log();
    for why in
        ["2 were busy for 100 % of the time", "their number is the maximum", "for only 0 % of the time"]
    {
        assert!(log.contains(why), "no {why:?} in\n{log}");
    }
}

#[apply(real_bed)]
#[why = "server, link and minute are real; the case above has the embedded ones"]
async fn number_of_workers_follows_a_real_minute() {
    const LINK: Duration = Duration::from_millis(400);
    let mut scene = Scene::on(Bed::shared().await, "auto-real").await;
    for n in 0..20 {
        scene.create_foo(&format!("foo-{n}"), &format!("web-{n}"), 1).await;
    }
    let _link = scene.start_operator_over_slow_link(LINK, &["--controllers=foo", "--workers=auto:3"]);
    // More changes than two workers can sync, each of whose syncs takes two requests.
    let mut changes = 0;
    wait_until("a third worker has started", async || {
        changes += 1;
        let replicas = json!({"spec": {"replicas": 1 + changes / 20 % 2}});
        scene.patch_foo(&format!("foo-{}", changes % 20), replicas).await;
        worker_counts(&scene).first().copied().ok_or(changes)
    })
    .await;
    assert_eq!(worker_counts(&scene), [3]);
    let log = scene.operator().log();
    assert!(log.contains("2 were busy for "), "{log}");
    let refused = scene.ledger().into_iter().filter(|entry| entry.code == 429);
    assert_eq!(refused.collect::<Vec<_>>(), []);
}
