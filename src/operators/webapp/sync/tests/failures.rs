//! Hooks that fail: how they show, when they are tried again, and by whose word.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_failing_hook_shows_everywhere_and_is_tried_again() {
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
    assert_eq!(rig.f.events(), ["TaskFailed"], "told once");
    let ids: std::collections::BTreeSet<String> =
        rig.world.seen.lock().iter().filter(|seen| seen.starts_with("first.create")).cloned().collect();
    assert_eq!(ids.len(), 1, "a retry is the same operation");
    rig.world.answers.lock().clear();
    for _ in 0..30 {
        rig.pass().await;
    }
    assert!(rig.f.ready("web").await.0, "it heals");
}

#[tokio::test(start_paused = true)]
async fn a_hook_that_failed_for_good_waits_for_a_user() {
    let mut rig = rig().await;
    rig.answer("first.create", HookError::permanent("the other side says 404"));
    rig.create().await;
    rig.converge().await;
    assert_eq!(rig.tries("first.create"), 1);
    assert_eq!(rig.f.ready("web").await, (false, "TaskFailed".to_owned()));
    assert_eq!(rig.f.sync("web").await.0, Outcome::WaitForUser { requeue_after: None });
    // Neither time nor a new process tries it again.
    rig.new_process().await;
    rig.f.pass_time(Duration::from_secs(600)).await;
    rig.converge().await;
    assert_eq!(rig.tries("first.create"), 0);
    rig.ask("now").await;
    rig.converge().await;
    assert_eq!(rig.tries("first.create"), 1, "the user asks for it");
    rig.world.answers.lock().clear();
    rig.edit(|webapp| webapp["spec"]["version"] = json!("2")).await;
    rig.converge().await;
    assert!(rig.f.ready("web").await.0, "a new spec is tried at once");
}

/// In the process that has seen it fail, and still rests.
#[tokio::test(start_paused = true)]
async fn a_user_who_asks_is_answered_at_once() {
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
    // Of one that is tried again by itself he shortens the backoff.
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
    assert_eq!(tries(&rig), 0, "two minutes are longer");
    rig.ask("three times").await;
    rig.pass().await;
    rig.pass().await;
    assert_eq!(tries(&rig), 1);
}

#[tokio::test(start_paused = true)]
async fn what_a_server_asks_for_is_kept_to_by_a_new_process_and_a_user_who_asks() {
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
async fn a_failure_is_reported_once_and_again_when_it_is_for_good() {
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

/// What stands in the way of the Deployment does not have the hook tried again.
#[tokio::test(start_paused = true)]
async fn a_failure_for_good_is_remembered_beside_another_obstacle() {
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
async fn a_hook_that_hangs_fails_after_its_timeout_and_heals() {
    let mut rig = rig().await;
    *rig.world.hangs.lock() = Some("last.create".to_owned());
    rig.create().await;
    let status = rig.until(|status| status["steps"][2]["phase"] == "Failed").await;
    let message = status["steps"][2]["message"].as_str().unwrap();
    assert!(message.contains("did not end within 30s"), "{message}");
    assert_eq!(rig.f.ready("web").await, (false, "TaskRetrying".to_owned()));
    *rig.world.hangs.lock() = None;
    rig.converge().await;
    assert!(rig.f.ready("web").await.0);
}

#[tokio::test(start_paused = true)]
async fn an_undo_that_fails_for_good_keeps_the_webapp_and_says_so() {
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
    assert!((1..=3).contains(&tries), "every two minutes, in five: {tries}");
    assert!(rig.f.events().contains(&"TaskFailed"));
    rig.world.answers.lock().clear();
    for _ in 0..40 {
        if rig.f.get::<WebApp>("web").await.is_none() {
            return;
        }
        rig.pass().await;
    }
    panic!("it does not go");
}
