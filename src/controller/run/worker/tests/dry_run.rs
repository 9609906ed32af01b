//! Tests of dry runs.

use super::*;
use crate::client::DryRun;
use crate::client::dry_run::{Pass, Step};

/// Runs a controller over these queued keys until it ends by itself; returns the passes and how often each key began.
async fn passes(
    keys: &[(&str, Reason)],
    script: impl Fn(&ObjectName, u32) -> Result<Outcome, SyncError> + Send + Sync + 'static,
) -> (Vec<Pass>, Vec<String>) {
    let queue = RateLimitingQueue::new(ItemExponentialFailure::new(MS, MS));
    for (key, reason) in keys {
        let options = AddOptions::because(reason.clone());
        queue.add_with(ObjectName::new(Some("ns"), key), options);
    }
    let log = Arc::<Mutex<Log>>::default();
    let handler = Scripted {
        script: Box::new(move |_, key, attempt| script(key, attempt)),
        takes: MS,
        log: log.clone(),
    };
    let dry_run = DryRun::default();
    Controller::new("test", queue, handler)
        .with_workers(2)
        .with_dry_run("Foo".to_owned(), dry_run.clone())
        .run(CancellationToken::new())
        .await;
    let mut passes = dry_run.take();
    passes.sort_by(|a, b| a.name.cmp(&b.name));
    assert_eq!(dry_run.progress().1, passes.len());
    let mut started: Vec<String> = log.lock().started.iter().map(|(name, _)| name.clone()).collect();
    started.sort();
    (passes, started)
}

fn pass(name: &str) -> Pass {
    let (kind, namespace) = ("Foo".to_owned(), Some("ns".to_owned()));
    Pass { kind, namespace, name: name.to_owned(), steps: Vec::new(), error: None }
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_passes_once_over_each_object() {
    let child = Reason::Child { kind: "Pod".into(), name: "p".into() };
    let keys = [("a", Reason::Initial), ("a", child.clone()), ("b", Reason::Initial), ("c", Reason::Created)];
    let (passes, started) = passes(&keys, |_, _| Ok(Outcome::RequeueAfter(MS))).await;
    assert_eq!(passes, [pass("a"), pass("b")]);
    assert_eq!(started, ["ns/a", "ns/b"], "nothing is requeued");
}

#[tokio::test(start_paused = true)]
async fn failing_dry_pass_is_reported_beside_others() {
    let keys = ["a", "b", "c"].map(|key| (key, Reason::Initial));
    let (passes, started) = passes(&keys, |key, _| {
        client::dry_run::would_call(key.name(), "create");
        match key.name() {
            "a" => error(500, "InternalError", None),
            "b" => std::panic::resume_unwind(Box::new("no such thing")),
            _ => Ok(Outcome::Done),
        }
    })
    .await;
    assert_eq!(started, ["ns/a", "ns/b", "ns/c"]);
    let errors: Vec<Option<&str>> = passes.iter().map(|pass| pass.error.as_deref()).collect();
    assert!(errors[0].is_some_and(|error| error.contains("500")), "{errors:?}");
    assert_eq!(errors[1..], [Some("panicked: no such thing"), None]);
    let call = |task: &str| vec![Step::Call { task: task.to_owned(), hook: "create" }];
    let steps: Vec<_> = passes.into_iter().map(|pass| pass.steps).collect();
    assert_eq!(steps, ["a", "b", "c"].map(call));
}
