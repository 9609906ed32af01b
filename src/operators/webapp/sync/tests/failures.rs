//! Failing hooks: how they are reported, when they are retried, and who can trigger a retry; and a Deployment that cannot be
//! written.

use super::*;
use crate::sim::{Action, Fault, When};
use crate::workqueue::Reasons;

#[tokio::test(start_paused = true)]
async fn failing_hook_is_reported_and_retried() {
    let mut rig = rig().await;
    rig.answer("first.create", HookError::retry("the other side says 503"));
    rig.create().await;
    let status = rig.until(|status| {
        let step = &status["steps"][0];
        step["phase"] == "Failed" && step["attempts"].as_i64().unwrap() >= 2
    });
    let status = status.await;
    let step = &status["steps"][0];
    assert_eq!(step["hook"], "create");
    assert_eq!(step["message"], "the other side says 503");
    assert_eq!(rig.f.ready("web").await, (false, "TaskRetrying".to_owned()));
    assert_eq!(rig.f.events(), ["TaskFailed"], "reported once");
    let ids: std::collections::BTreeSet<String> =
        rig.world.seen.lock().iter().filter(|seen| seen.starts_with("first.create")).cloned().collect();
    assert_eq!(ids.len(), 1, "a retry is the same operation");
    rig.world.answers.lock().clear();
    for _ in 0..30 {
        rig.pass().await;
    }
    assert!(rig.f.ready("web").await.0, "the WebApp recovers");
}

#[tokio::test(start_paused = true)]
async fn permanently_failed_hook_waits_for_a_user() {
    let mut rig = rig().await;
    rig.answer("first.create", HookError::permanent("the other side says 404"));
    rig.create().await;
    rig.converge().await;
    assert_eq!(rig.tries("first.create"), 1);
    assert_eq!(rig.f.ready("web").await, (false, "TaskFailed".to_owned()));
    assert_eq!(rig.f.sync("web").await.0, Outcome::WaitForUser { requeue_after: None });
    // Neither time nor a new process causes a retry.
    rig.new_process().await;
    rig.f.pass_time(Duration::from_secs(600)).await;
    rig.converge().await;
    assert_eq!(rig.tries("first.create"), 0);
    rig.ask("now").await;
    rig.converge().await;
    assert_eq!(rig.tries("first.create"), 1, "the user asks for a retry");
    rig.world.answers.lock().clear();
    rig.edit(|webapp| webapp["spec"]["version"] = json!("2")).await;
    rig.converge().await;
    assert!(rig.f.ready("web").await.0, "a new spec is tried at once");
}

/// In the process that has seen the failure and still backs off.
#[tokio::test(start_paused = true)]
async fn reconcile_at_triggers_an_immediate_retry() {
    let mut rig = rig().await;
    rig.answer("first.create", HookError::permanent("the other side says 404"));
    rig.create().await;
    rig.converge().await;
    assert_eq!(rig.tries("first.create"), 1);
    rig.ask("once").await;
    rig.pass().await;
    rig.pass().await;
    assert_eq!(rig.tries("first.create"), 1);
    rig.converge().await;
    assert_eq!((rig.tries("first.create"), rig.f.ready("web").await.1), (0, "TaskFailed".to_owned()));
    // The annotation also cuts short the backoff of a retryable failure.
    rig.answer("first.create", HookError::retry("503"));
    rig.ask("twice").await;
    for _ in 0..60 {
        rig.pass().await;
    }
    assert!(rig.tries("first.create") > 5);
    let tries = |rig: &Rig| rig.tries("first.create");
    while tries(&rig) == 0 {
        rig.pass().await;
    }
    rig.pass().await;
    assert_eq!(tries(&rig), 0, "the backoff is two minutes by now");
    rig.ask("three times").await;
    rig.pass().await;
    rig.pass().await;
    assert_eq!(tries(&rig), 1);
}

#[tokio::test(start_paused = true)]
async fn retry_after_survives_restart_and_reconcile_at() {
    let mut rig = rig().await;
    let after = Some(Duration::from_secs(300));
    rig.answer("first.create", HookError::Retry { message: "429".to_owned(), after });
    rig.create().await;
    let status = rig.until(|status| status["steps"][0]["phase"] == "Failed").await;
    assert!(status["steps"][0]["notBefore"].is_string(), "{status}");
    assert_eq!(rig.tries("first.create"), 1);
    rig.new_process().await;
    rig.ask("now").await;
    for _ in 0..25 {
        rig.pass().await;
    }
    assert_eq!(rig.tries("first.create"), 0);
    rig.world.answers.lock().clear();
    let status = rig.until(|status| status["steps"][0]["phase"] == "Succeeded").await;
    assert_eq!((rig.tries("first.create"), &status["steps"][0]["notBefore"]), (1, &Value::Null));
}

#[tokio::test(start_paused = true)]
async fn failure_emits_one_event_until_it_is_permanent() {
    let mut rig = rig().await;
    rig.answer("first.create", HookError::retry("503"));
    rig.create().await;
    for _ in 0..30 {
        rig.pass().await;
    }
    assert_eq!(rig.f.events(), ["TaskFailed"]);
    rig.answer("first.create", HookError::permanent("404"));
    rig.until(|status| status["steps"][0]["permanent"] == true).await;
    assert_eq!(rig.f.events(), ["TaskFailed"]);
}

/// A foreign object with the Deployment's name does not cause a retry of the hook.
#[tokio::test(start_paused = true)]
async fn permanent_failure_survives_an_unrelated_problem() {
    let mut rig = rig().await;
    rig.answer("last.create", HookError::permanent("404"));
    rig.create().await;
    rig.converge().await;
    rig.f.delete::<Deployment>("web").await;
    let foreign = json!({"metadata": {"name": "web"}, "spec": {"selector": {"matchLabels": {"a": "b"}},
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}});
    rig.f.put::<Deployment>(foreign).await;
    rig.f.catch_up().await;
    rig.seen();
    for _ in 0..60 {
        rig.pass().await;
    }
    assert_eq!(rig.f.ready("web").await, (false, "ResourceExists".to_owned()));
    assert_eq!(rig.seen(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn hanging_hook_times_out_and_is_retried() {
    let mut rig = rig().await;
    *rig.world.hangs.lock() = Some("last.create".to_owned());
    rig.create().await;
    let status = rig.until(|status| status["steps"][2]["phase"] == "Failed").await;
    let message = status["steps"][2]["message"].as_str().unwrap();
    assert!(message.contains("timed out after 30s"), "{message}");
    assert_eq!(rig.f.ready("web").await, (false, "TaskRetrying".to_owned()));
    *rig.world.hangs.lock() = None;
    rig.converge().await;
    assert!(rig.f.ready("web").await.0);
}

#[tokio::test(start_paused = true)]
async fn permanently_failed_undo_is_reported_and_keeps_webapp() {
    let mut rig = rig().await;
    rig.create().await;
    rig.converge().await;
    rig.answer("last.delete", HookError::permanent("the other side says 403"));
    rig.f.delete::<WebApp>("web").await;
    rig.f.catch_up().await;
    let status = rig.until(|status| {
        let conditions = status["conditions"].as_array().unwrap();
        conditions
            .iter()
            .any(|c| c["type"] == "Stalled" && c["status"] == "True" && c["reason"] == "UndoFailed")
    });
    status.await;
    rig.seen();
    for _ in 0..30 {
        rig.pass().await;
    }
    let tries = rig.seen().iter().filter(|seen| *seen == "last.delete").count();
    assert!((1..=3).contains(&tries), "one try every two minutes, in five minutes: {tries}");
    assert!(rig.f.events().contains(&"TaskFailed"));
    rig.world.answers.lock().clear();
    for _ in 0..40 {
        if rig.f.get::<WebApp>("web").await.is_none() {
            return;
        }
        rig.pass().await;
    }
    panic!("the WebApp is not deleted");
}

#[tokio::test(start_paused = true)]
async fn deployment_failure_is_reported_but_fails_no_task() {
    for is_new in [true, false] {
        let mut rig = rig().await;
        let creates =
            Fault::new(When::verb("create").resource("deployments"), Action::refuse(500, "InternalError"));
        rig.create().await;
        if !is_new {
            rig.converge().await;
            rig.f.delete::<Deployment>("web").await;
            rig.f.catch_up().await;
        }
        let fault = rig.f.sim.fault(creates);
        let mut failed = 0;
        for _ in 0..50 {
            failed += usize::from(rig.f.pass("web", &Reasons::default()).await.0.is_err());
            for _ in 0..20 {
                tokio::task::yield_now().await;
            }
            rig.f.pass_time(Duration::from_secs(10)).await;
        }
        assert!(failed > 3, "{failed}");
        assert_eq!(rig.f.ready("web").await, (false, "ChildFailing".to_owned()), "new: {is_new}");
        assert!(!rig.f.events().contains(&"TaskFailed"), "new: {is_new}");
        rig.f.sim.heal(fault);
        rig.converge().await;
        assert!(rig.f.ready("web").await.0, "new: {is_new}");
    }
}
