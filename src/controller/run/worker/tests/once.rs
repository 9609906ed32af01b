//! Tests of one sync for each object.

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use super::*;

/// The names and errors of the syncs that have ended, and how many were announced.
#[derive(Default)]
struct Ended {
    syncs: Mutex<Vec<(String, Option<String>)>>,
    expected: Mutex<usize>,
}

impl OnceObserver for Ended {
    fn expects(&self, syncs: usize) {
        *self.expected.lock() += syncs;
    }

    fn observe<'a>(
        &'a self,
        _: &'a str,
        key: &'a ObjectName,
        sync: BoxFuture<'a, Result<(), String>>,
    ) -> BoxFuture<'a, ()> {
        async move {
            let error = sync.await.err();
            self.syncs.lock().push((key.name().to_owned(), error));
        }
        .boxed()
    }
}

/// Syncs these queued keys once; returns how each sync ended.
async fn synced(
    keys: &[(&str, Reason)],
    script: impl Fn(&ObjectName, u32) -> Result<Outcome, SyncError> + Send + Sync + 'static,
) -> Vec<(String, Option<String>)> {
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
    let ended = Arc::<Ended>::default();
    let controller = Controller::new("test", queue, handler).with_workers(2);
    controller.run_once(ended.clone(), CancellationToken::new()).await;
    let mut syncs = std::mem::take(&mut *ended.syncs.lock());
    syncs.sort();
    assert_eq!((*ended.expected.lock(), log.lock().started.len()), (syncs.len(), syncs.len()));
    syncs
}

#[tokio::test(start_paused = true)]
async fn each_object_is_synced_once() {
    let child = Reason::Child { kind: "Pod".into(), name: "p".into() };
    let keys = [("a", Reason::Initial), ("a", child.clone()), ("b", Reason::Created), ("c", child)];
    let syncs = synced(&keys, |_, _| Ok(Outcome::RequeueAfter(MS))).await;
    assert_eq!(syncs, ["a", "b", "c"].map(|key| (key.to_owned(), None)), "nothing is requeued");
}

#[tokio::test(start_paused = true)]
async fn failing_sync_is_reported_beside_others() {
    let keys = ["a", "b", "c"].map(|key| (key, Reason::Initial));
    let syncs = synced(&keys, |key, _| match key.name() {
        "a" => error(500, "InternalError", None),
        "b" => std::panic::resume_unwind(Box::new("no such thing")),
        _ => Ok(Outcome::Done),
    })
    .await;
    let errors: Vec<Option<&str>> = syncs.iter().map(|(_, error)| error.as_deref()).collect();
    assert!(errors[0].is_some_and(|error| error.contains("500")), "{errors:?}");
    assert_eq!(errors[1..], [Some("panicked: no such thing"), None]);
}
