use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::json;

use super::*;
use crate::api::webapp::v1::{Hook, Phase, WebApp};
use crate::cache::Slim;
use crate::operators::webapp::tasks::HookFuture;
use crate::workqueue::ItemExponentialFailure;

/// How many hooks of one namespace run at once if no other has any.
const ALONE: usize = AT_ONCE / 2;

/// An executor whose `create` behaves as the WebApp's name says.
#[derive(Default)]
struct Odd(AtomicUsize);

impl TaskExecutor for Odd {
    fn name(&self) -> &str {
        "odd"
    }

    fn create<'a>(&'a self, call: &'a HookCall) -> HookFuture<'a> {
        self.0.fetch_add(1, Ordering::SeqCst);
        Box::pin(async move {
            match call.name().split('-').next().unwrap_or_default() {
                "hangs" => std::future::pending().await,
                "panics" => panic!("as the test wants it"),
                _ => Ok(()),
            }
        })
    }
}

struct Rig {
    hooks: Hooks,
    queue: RateLimitingQueue<ObjectName>,
    odd: Arc<Odd>,
    task: Task,
    stop: CancellationToken,
    tasks: JoinSet<()>,
}

fn rig() -> Rig {
    let queue = RateLimitingQueue::new(ItemExponentialFailure::new(Duration::ZERO, Duration::ZERO));
    let (hooks, runner) = pair(queue.clone());
    let (stop, mut tasks) = (CancellationToken::new(), JoinSet::new());
    tasks.spawn(runner.run(stop.clone()));
    let odd = Arc::new(Odd::default());
    Rig { hooks, queue, task: Task::new(odd.clone()), odd, stop, tasks }
}

/// The namespace is `ns`, unless `name` begins with another and a slash.
fn call(name: &str) -> (HookCall, WebAppStep) {
    let (namespace, name) = name.split_once('/').unwrap_or(("ns", name));
    let webapp: Slim<WebApp> = serde_json::from_value(json!({
        "apiVersion": "jiajunhuang.com/v1", "kind": "WebApp",
        "metadata": {"name": name, "namespace": namespace, "uid": name, "generation": 1},
        "spec": {"version": "1", "replicas": 1},
    }))
    .unwrap();
    let call = HookCall::new("odd", Hook::Create, Arc::new(webapp));
    let step = WebAppStep {
        phase: Phase::Running,
        hook: Some(Hook::Create),
        operation_id: call.operation_id().to_owned(),
        attempts: 1,
        ..WebAppStep::default()
    };
    (call, step)
}

/// Returns a check that answers `is_wanted`.
fn wanted(is_wanted: bool) -> IsWanted {
    Box::pin(std::future::ready(Ok(is_wanted)))
}

impl Rig {
    /// Takes all slots of the task.
    fn fill(&self) {
        (0..ALONE).for_each(|at| self.run(&format!("hangs-{at}")));
    }

    /// Lets the hooks that hang time out, so that waiting hooks get their turn.
    async fn give_up(&self) {
        for _ in 0..ALONE {
            drop(self.queue.get().await);
        }
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
    }

    fn runs(&self) -> usize {
        self.odd.0.load(Ordering::SeqCst)
    }

    fn known(&self, name: &str) -> Known {
        let (call, step) = call(name);
        self.hooks.known((&call.object(), &step), false, Duration::from_secs(30))
    }

    fn run(&self, name: &str) {
        self.hooks.run(&self.task, call(name).0, 1, wanted(true));
    }
}

#[tokio::test(start_paused = true)]
async fn a_result_is_kept_until_the_next_hook() {
    let rig = rig();
    assert_eq!(rig.known("one"), Known::Nothing);
    rig.run("one");
    assert_eq!(rig.known("one"), Known::Running);
    assert_eq!(rig.queue.get().await.unwrap().key().to_string(), "ns/one");
    for _ in 0..2 {
        assert_eq!(rig.known("one"), Known::Ended(Ok(())));
    }
    let (one, mut retry) = call("one");
    retry.attempts = 2;
    assert_eq!(rig.hooks.known((&one.object(), &retry), false, Duration::ZERO), Known::Nothing);
    assert!(rig.hooks.forget(&one.object()) && !rig.hooks.forget(&one.object()));
    assert_eq!(rig.known("one"), Known::Nothing);
}

#[tokio::test(start_paused = true)]
async fn panic_counts_as_retryable_failure() {
    let rig = rig();
    rig.run("panics");
    drop(rig.queue.get().await);
    assert_eq!(rig.known("panics"), Known::Ended(Err(HookError::retry("create panicked"))));
}

#[tokio::test(start_paused = true)]
async fn hanging_task_does_not_block_others() {
    let rig = rig();
    for at in 0..ALONE + 7 {
        rig.run(&format!("hangs-{at}"));
    }
    let other = Task::new(rig.odd.clone());
    rig.hooks.run(&other, call("fine").0, 1, wanted(true));
    assert_eq!(rig.queue.get().await.unwrap().key().to_string(), "ns/fine", "a hook of another task");
    assert_eq!(rig.odd.0.load(Ordering::SeqCst), ALONE + 1, "the others wait for their turn");
    // After the timeout the next hooks get their turn.
    for _ in 0..ALONE {
        drop(rig.queue.get().await);
    }
    tokio::task::yield_now().await;
    assert!(rig.odd.0.load(Ordering::SeqCst) > ALONE + 1);
}

#[tokio::test(start_paused = true)]
async fn hanging_hooks_of_a_namespace_block_no_other() {
    let rig = rig();
    for namespace in ["a", "b"] {
        (0..AT_ONCE).for_each(|at| rig.run(&format!("{namespace}/hangs-{at}")));
    }
    rig.run("c/fine");
    assert_eq!(rig.queue.get().await.unwrap().key().to_string(), "c/fine");
    assert_eq!(rig.runs(), AT_ONCE / 2 + AT_ONCE / 4 + 1);
}

#[tokio::test(start_paused = true)]
async fn queued_hook_runs_only_if_still_wanted() {
    let rig = rig();
    rig.fill();
    let is_asked = Arc::new(AtomicUsize::new(0));
    let asked = is_asked.clone();
    let is_wanted = Box::pin(async move {
        asked.fetch_add(1, Ordering::SeqCst);
        Ok(false)
    });
    rig.hooks.run(&rig.task, call("one").0, 1, is_wanted);
    tokio::task::yield_now().await;
    assert_eq!((is_asked.load(Ordering::SeqCst), rig.known("one")), (0, Known::Running));
    rig.give_up().await;
    assert_eq!((is_asked.load(Ordering::SeqCst), rig.runs()), (1, ALONE));
    assert_eq!(rig.known("one"), Known::Nothing, "the next pass decides anew");
    assert_eq!(rig.queue.waiting(), 1, "the key is requeued with a delay");
    // A failed check counts as no, and is reported.
    let no_answer = Box::pin(std::future::ready(Err(Error::NotSent { request: "GET".to_owned() })));
    rig.hooks.run(&rig.task, call("two").0, 1, no_answer);
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
    let Known::Waiting(message, ASK_AGAIN) = rig.known("two") else { panic!("{:?}", rig.known("two")) };
    assert!(message.contains("could not be read live: GET"), "{message}");
    assert_eq!((rig.runs(), rig.queue.len()), (ALONE, 1), "a pass stores the message");
}

#[tokio::test(start_paused = true)]
async fn superseded_queued_hook_is_dropped() {
    let rig = rig();
    rig.fill();
    rig.run("one");
    tokio::task::yield_now().await;
    let (one, step) = call("one");
    let known = |superseded| rig.hooks.known((&one.object(), &step), superseded, Duration::from_secs(30));
    assert_eq!(known(false), Known::Running);
    assert_eq!(known(true), Known::Elsewhere(Duration::ZERO), "nothing is left to wait for");
    rig.give_up().await;
    assert_eq!(rig.runs(), ALONE, "the dropped hook does not run later");
}

#[tokio::test(start_paused = true)]
async fn forgotten_webapp_leaves_no_records_and_runs_nothing() {
    let rig = rig();
    rig.fill();
    rig.run("one");
    assert!(rig.hooks.forget(&call("one").0.object()));
    rig.give_up().await;
    assert_eq!(rig.runs(), ALONE);
    for at in 0..ALONE {
        rig.hooks.forget(&call(&format!("hangs-{at}")).0.object());
    }
    assert!(rig.hooks.records.lock().is_empty());
}

#[tokio::test(start_paused = true)]
async fn shutdown_aborts_running_hooks() {
    let mut rig = rig();
    rig.run("hangs");
    tokio::task::yield_now().await;
    rig.stop.cancel();
    rig.tasks.join_next().await.unwrap().unwrap();
    assert_eq!(rig.known("hangs"), Known::Running, "it has not ended");
    assert!(rig.queue.is_empty());
}

/// The status has the start of an old generation's hook, which this process has not run.
#[tokio::test(start_paused = true)]
async fn superseded_hook_of_another_process_is_awaited() {
    let rig = rig();
    let (one, step) = call("one");
    let timeout = Duration::from_secs(30);
    let known = || rig.hooks.known((&one.object(), &step), true, timeout);
    assert_eq!(known(), Known::Elsewhere(timeout));
    tokio::time::advance(Duration::from_secs(20)).await;
    assert_eq!(known(), Known::Elsewhere(Duration::from_secs(10)));
    tokio::time::advance(timeout).await;
    assert_eq!(known(), Known::Elsewhere(Duration::ZERO));
}
