//! Signals and exit codes of a running operator.

use std::time::Duration;

use macro_rules_attribute::apply;
use rustix::process::Signal;

use crate::support::{Bed, Scene, both_beds, pass};

#[apply(both_beds)]
async fn sigterm_and_sigint_exit_with_0() {
    let mut scene = Scene::new("signals").await;
    scene.ready_foo("web", 1).await;
    let operator = scene.take_operator();
    operator.signal(Signal::INT);
    let mut operator = operator;
    assert_eq!(operator.ended().await.code(), Some(0));
    let log = operator.log();
    assert!(log.contains("Stopped") && !log.contains("Panicked"), "{log}");
    scene.start_operator();
    scene.operator().logged("starting workers").await;
    assert_eq!(scene.take_operator().terminate().await.code(), Some(0));
}

/// After the first signal the operator waits for a sync that hangs on a frozen server; a second signal or the
/// shutdown timeout ends the wait.
#[apply(both_beds)]
async fn second_signal_or_timeout_aborts_a_hanging_sync() {
    let mut scene = Scene::on(Bed::own(true).await, "hanging").await;
    scene.start_operator();
    scene.foreign_deployment("web", serde_json::json!({})).await;
    scene.create_foo("web", "web", 1).await;
    scene.reason("web", "ResourceExists").await;
    let namespace = format!("--namespace={}", scene.namespace);
    let mut impatient = scene.bed.operator("impatient", &[&namespace, "--shutdown-timeout=1s"]);
    impatient.logged("Synced outcome=WaitForUser { requeue_after: Some(30s) }").await;
    scene.bed.freeze_server();
    // The operator retries a taken name after 30 s, and that sync hangs.
    pass(Duration::from_secs(32)).await;

    impatient.signal(Signal::TERM);
    assert_eq!(impatient.ended().await.code(), Some(1));
    let line = impatient.logged("error:").await;
    let key = format!("--shutdown-timeout (1s): {}/web", scene.namespace);
    assert!(line.contains(&key), "the line names the key in flight: {line}");

    let mut operator = scene.take_operator();
    operator.signal(Signal::TERM);
    operator.logged("Stopping").await;
    assert!(operator.is_running(), "the operator waits for the sync in flight");
    operator.signal(Signal::TERM);
    assert_eq!(operator.ended().await.code(), Some(1));
    operator.logged("Exiting at once").await;
    scene.bed.thaw_server();
}
