mod ending;
mod failures;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use parking_lot::Mutex;
use serde_json::json;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::super::hooks;
use super::*;
use crate::api::shards::{Division, Sharding};
use crate::api::webapp::v1::Hook;
use crate::controller::Outcome;
use crate::controller::{Caches, Fixture};
use crate::operators::webapp::tasks::{HookError, HookFuture, TaskExecutor};
use crate::workqueue::{ItemExponentialFailure, RateLimitingQueue};

/// The outside world: the calls that it has seen, as `task.hook id`, and its answers.
#[derive(Clone, Default)]
struct World {
    seen: Arc<Mutex<Vec<String>>>,
    answers: Arc<Mutex<BTreeMap<String, HookError>>>,
    /// The hook that never ends.
    hangs: Arc<Mutex<Option<String>>>,
}

struct Outside(&'static str, World);

impl Outside {
    fn run<'a>(&'a self, call: &'a HookCall) -> HookFuture<'a> {
        let what = format!("{}.{}", call.task(), call.hook());
        self.1.seen.lock().push(format!("{what} {}", call.operation_id()));
        if self.1.hangs.lock().as_deref() == Some(&what) {
            return Box::pin(std::future::pending());
        }
        let answer = self.1.answers.lock().get(&what).cloned();
        Box::pin(std::future::ready(answer.map_or(Ok(()), Err)))
    }
}

impl TaskExecutor for Outside {
    fn name(&self) -> &str {
        self.0
    }

    fn pre_create<'a>(&'a self, call: &'a HookCall) -> HookFuture<'a> {
        self.run(call)
    }

    fn create<'a>(&'a self, call: &'a HookCall) -> HookFuture<'a> {
        self.run(call)
    }

    fn post_create<'a>(&'a self, call: &'a HookCall) -> HookFuture<'a> {
        self.run(call)
    }

    fn pre_delete<'a>(&'a self, call: &'a HookCall) -> HookFuture<'a> {
        self.run(call)
    }

    fn delete<'a>(&'a self, call: &'a HookCall) -> HookFuture<'a> {
        self.run(call)
    }

    fn post_delete<'a>(&'a self, call: &'a HookCall) -> HookFuture<'a> {
        self.run(call)
    }
}

/// The parts that end with a process: the hooks and their runner.
struct Process {
    hooks: Hooks,
    tasks: JoinSet<()>,
}

fn process() -> Process {
    let queue =
        RateLimitingQueue::<ObjectName>::new(ItemExponentialFailure::new(Duration::ZERO, Duration::ZERO));
    let (hooks, runner) = hooks::pair(queue);
    let mut tasks = JoinSet::new();
    tasks.spawn(runner.run(CancellationToken::new()));
    Process { hooks, tasks }
}

fn sync(caches: &mut Caches, client: ApiClient, hooks: Hooks, world: &World) -> WebAppSync {
    let outside = |name| OneTask::Executor(Task::new(Arc::new(Outside(name, world.clone()))));
    WebAppSync {
        client,
        deployments: caches.lister(),
        tasks: vec![outside("first"), OneTask::Workload("workload".to_owned()), outside("last")],
        hooks,
    }
}

struct Rig {
    f: Fixture<WebAppSync>,
    world: World,
    process: Process,
}

async fn rig() -> Rig {
    let (world, process) = (World::default(), process());
    let (w, hooks) = (world.clone(), process.hooks.clone());
    let f = Fixture::with_client(|caches, client| sync(caches, client, hooks, &w)).await;
    Rig { f, world, process }
}

impl Rig {
    fn tries(&self, what: &str) -> usize {
        self.seen().iter().filter(|seen| *seen == what).count()
    }

    async fn ask(&mut self, when: &str) {
        let annotations = json!({"windlass.dev/reconcile-at": when});
        self.edit(|webapp| webapp["metadata"]["annotations"] = annotations).await;
    }

    /// Ends the process and starts another.
    async fn new_process(&mut self) {
        self.process.tasks.shutdown().await;
        self.process = process();
        let (world, hooks) = (self.world.clone(), self.process.hooks.clone());
        self.f.restart(|caches, client| sync(caches, client, hooks, &world)).await;
    }

    /// Makes one sync, then gives the hooks and the outside world time.
    async fn pass(&mut self) -> Vec<String> {
        let (_, asked) = self.f.sync("web").await;
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
        self.f.pass_time(Duration::from_secs(10)).await;
        asked
    }

    /// Makes syncs until three in a row send nothing.
    async fn converge(&mut self) {
        let mut calm = 0;
        for _ in 0..200 {
            if self.f.get::<WebApp>("web").await.is_none() {
                return;
            }
            calm = if self.pass().await.is_empty() { calm + 1 } else { 0 };
            if calm == 3 {
                return;
            }
        }
        panic!("the WebApp does not converge: {}", self.f.status("web").await);
    }

    /// Makes syncs until the status satisfies `test`, and returns it.
    async fn until(&mut self, test: impl Fn(&Value) -> bool) -> Value {
        for _ in 0..100 {
            self.pass().await;
            let status = self.f.status("web").await;
            if status.is_object() && test(&status) {
                return status;
            }
        }
        panic!("the expected status does not come: {}", self.f.status("web").await);
    }

    /// Returns the hooks that have run since the last call, without their IDs.
    fn seen(&self) -> Vec<String> {
        let seen = std::mem::take(&mut *self.world.seen.lock());
        seen.into_iter().map(|seen| seen.split(' ').next().unwrap().to_owned()).collect()
    }

    fn answer(&self, what: &str, error: HookError) {
        self.world.answers.lock().insert(what.to_owned(), error);
    }

    async fn edit(&mut self, edit: impl FnOnce(&mut Value)) {
        self.f.edit::<WebApp>("web", edit).await;
        self.f.catch_up().await;
    }

    async fn create(&mut self) {
        self.f.create("web", json!({"version": "1.27", "replicas": 2})).await;
    }
}

const CREATION: [&str; 6] = [
    "first.pre_create",
    "first.create",
    "first.post_create",
    "last.pre_create",
    "last.create",
    "last.post_create",
];

#[tokio::test(start_paused = true)]
async fn webapp_runs_each_hook_once() {
    let mut rig = rig().await;
    rig.create().await;
    let asked = rig.pass().await;
    assert_eq!(asked, ["patch webapps/web", "update webapps/web/status"], "the finalizer comes first");
    assert_eq!(rig.seen(), Vec::<String>::new(), "recorded but not run yet");
    let step = &rig.f.status("web").await["steps"][0];
    assert_eq!((&step["phase"], &step["hook"]), (&json!("Running"), &json!("pre_create")));
    rig.converge().await;
    assert_eq!(rig.seen(), CREATION);
    assert_eq!(rig.f.ready("web").await, (true, "Available".to_owned()));
    let status = rig.f.status("web").await;
    let phases: Vec<&str> =
        status["steps"].as_array().unwrap().iter().map(|step| step["phase"].as_str().unwrap()).collect();
    assert_eq!(phases, ["Succeeded"; 3]);
    assert_eq!(status["availableReplicas"], 2);
    let deployment = rig.f.get::<Deployment>("web").await.unwrap();
    assert_eq!(deployment["spec"]["template"]["spec"]["containers"][0]["image"], "nginx:1.27");
    assert_eq!(rig.f.events(), ["TaskSucceeded", "ChildCreated", "TaskSucceeded", "TaskSucceeded"]);
}

#[tokio::test(start_paused = true)]
async fn a_converged_webapp_sends_nothing() {
    let mut rig = rig().await;
    rig.create().await;
    rig.converge().await;
    rig.seen();
    for _ in 0..3 {
        assert_eq!(rig.f.sync("web").await, (Outcome::Done, vec![]));
    }
    rig.edit(|webapp| webapp["metadata"]["labels"] = json!({"a": "b"})).await;
    rig.converge().await;
    assert_eq!(rig.seen(), Vec::<String>::new(), "only the spec counts");
}

#[tokio::test(start_paused = true)]
async fn new_spec_runs_all_tasks_under_new_ids() {
    let mut rig = rig().await;
    rig.create().await;
    rig.converge().await;
    let before: Vec<String> = std::mem::take(&mut *rig.world.seen.lock());
    rig.f.events();
    rig.edit(|webapp| webapp["spec"]["version"] = json!("1.28")).await;
    rig.converge().await;
    assert_eq!(rig.f.events(), ["TaskSucceeded"; 3]);
    let after: Vec<String> = rig.world.seen.lock().clone();
    assert_eq!(rig.seen(), CREATION);
    assert!(before.iter().all(|one| !after.contains(one)));
    let deployment = rig.f.get::<Deployment>("web").await.unwrap();
    assert_eq!(deployment["spec"]["template"]["spec"]["containers"][0]["image"], "nginx:1.28");
}

#[tokio::test(start_paused = true)]
async fn stale_record_runs_no_hook() {
    let mut rig = rig().await;
    rig.create().await;
    rig.pass().await;
    // The cache has not seen this edit yet.
    rig.f.edit::<WebApp>("web", |webapp| webapp["spec"]["version"] = json!("2")).await;
    for _ in 0..3 {
        rig.f.sync_without_catch_up("web").await;
        rig.f.pass_time_without_catch_up(Duration::from_secs(10)).await;
        assert_eq!(rig.seen(), Vec::<String>::new());
    }
}

/// I15: the start of the hook is recorded, and then the process may write no more.
#[tokio::test(start_paused = true)]
async fn hook_does_not_begin_without_leadership() {
    let mut rig = rig().await;
    rig.create().await;
    rig.pass().await;
    let client = rig.f.sync.tools().client.clone();
    client.gate().close();
    rig.f.sync_without_catch_up("web").await;
    rig.f.pass_time_without_catch_up(Duration::from_secs(10)).await;
    assert_eq!(rig.seen(), Vec::<String>::new());
    client.gate().open();
    rig.converge().await;
    assert!(!rig.seen().is_empty());
}

#[tokio::test(start_paused = true)]
async fn hook_does_not_begin_in_a_shard_of_another_process() {
    let mut rig = rig().await;
    rig.create().await;
    rig.pass().await;
    let client = rig.f.sync.tools().client.clone();
    let sharding = Sharding { of: 8, by: Division::Hash };
    let ours = sharding.shard_of("ns");
    let hold = |shards: Vec<u16>| {
        let deadline = client.gate().now() + Duration::from_secs(3600);
        client.gate().open_shards_until(deadline, sharding.set(shards).into());
    };
    hold((0..8).filter(|shard| *shard != ours).collect());
    rig.f.sync_without_catch_up("web").await;
    rig.f.pass_time_without_catch_up(Duration::from_secs(10)).await;
    assert_eq!(rig.seen(), Vec::<String>::new());
    hold(vec![ours]);
    rig.converge().await;
    assert!(!rig.seen().is_empty());
}

#[tokio::test(start_paused = true)]
async fn pause_unseen_by_the_cache_blocks_hooks() {
    let mut rig = rig().await;
    rig.create().await;
    rig.pass().await;
    let pause = json!({"windlass.dev/paused": "true"});
    rig.f.edit::<WebApp>("web", |webapp| webapp["metadata"]["annotations"] = pause).await;
    for _ in 0..3 {
        rig.f.sync_without_catch_up("web").await;
        rig.f.pass_time_without_catch_up(Duration::from_secs(10)).await;
        assert_eq!(rig.seen(), Vec::<String>::new());
    }
    rig.f.delete::<WebApp>("web").await;
    rig.f.catch_up().await;
    rig.converge().await;
    assert_eq!(rig.seen(), Hook::DELETION.map(|hook| format!("first.{hook}")), "a pause delays no undo");
}

/// Wherever the process is restarted, each hook runs once; only an interrupted hook runs twice, under one ID.
#[tokio::test(start_paused = true)]
async fn restarted_process_resumes_at_the_recorded_hook() {
    for cut in 1..24 {
        let mut rig = rig().await;
        rig.create().await;
        for _ in 0..cut {
            rig.pass().await;
        }
        rig.new_process().await;
        rig.converge().await;
        let seen = rig.world.seen.lock().clone();
        let mut once = seen.clone();
        once.dedup();
        let hooks: Vec<&str> = once.iter().map(|seen| seen.split(' ').next().unwrap()).collect();
        assert_eq!(hooks, CREATION, "cut after {cut} passes");
        assert!(seen.len() <= once.len() + 1, "at most one hook runs again: {seen:?}");
        assert!(rig.f.ready("web").await.0);
    }
}

#[tokio::test(start_paused = true)]
async fn new_spec_awaits_running_hook_without_failure() {
    let mut rig = rig().await;
    *rig.world.hangs.lock() = Some("first.create".to_owned());
    rig.create().await;
    rig.until(|status| status["steps"][0]["hook"] == "create").await;
    rig.pass().await;
    rig.edit(|webapp| webapp["spec"]["version"] = json!("2")).await;
    rig.pass().await;
    assert_eq!(rig.seen(), ["first.pre_create", "first.create"], "nothing new starts while the hook runs");
    *rig.world.hangs.lock() = None;
    rig.converge().await;
    assert_eq!(rig.seen(), CREATION);
    assert!(!rig.f.events().contains(&"TaskFailed"), "a superseded hook is not a failure");
    assert!(rig.f.ready("web").await.0);
    let deployment = rig.f.get::<Deployment>("web").await.unwrap();
    assert_eq!(deployment["spec"]["template"]["spec"]["containers"][0]["image"], "nginx:2");
}

/// Here the running hook is the rollout.
#[tokio::test(start_paused = true)]
async fn new_spec_during_rollout_reports_no_failure() {
    let mut rig = rig().await;
    rig.create().await;
    rig.until(|status| status["steps"][1]["hook"] == "create").await;
    rig.edit(|webapp| webapp["spec"]["version"] = json!("2")).await;
    rig.converge().await;
    assert!(!rig.f.events().contains(&"TaskFailed"));
    assert!(rig.f.ready("web").await.0);
}

#[tokio::test(start_paused = true)]
async fn available_replicas_is_zero_without_a_deployment_task() {
    let mut rig = rig().await;
    rig.create().await;
    rig.converge().await;
    assert_eq!(rig.f.status("web").await["availableReplicas"], 2);
    let (world, hooks) = (rig.world.clone(), rig.process.hooks.clone());
    let restarted = |caches: &mut Caches, client| {
        let mut sync = sync(caches, client, hooks, &world);
        sync.tasks.retain(|task| matches!(task, OneTask::Executor(_)));
        sync
    };
    rig.f.restart(restarted).await;
    rig.edit(|webapp| webapp["spec"]["version"] = json!("2")).await;
    rig.converge().await;
    assert_eq!(rig.f.ready("web").await, (true, "Available".to_owned()));
    assert_eq!(rig.f.status("web").await["availableReplicas"], 0);
}

#[tokio::test(start_paused = true)]
async fn deployment_repair_runs_no_hook() {
    let mut rig = rig().await;
    rig.create().await;
    rig.converge().await;
    rig.seen();
    rig.f.events();
    rig.f.edit::<Deployment>("web", |live| live["spec"]["replicas"] = json!(7)).await;
    rig.f.catch_up().await;
    rig.converge().await;
    assert_eq!(rig.f.get::<Deployment>("web").await.unwrap()["spec"]["replicas"], 2);
    rig.f.delete::<Deployment>("web").await;
    rig.f.catch_up().await;
    rig.converge().await;
    assert!(rig.f.get::<Deployment>("web").await.is_some() && rig.f.ready("web").await.0);
    assert_eq!(rig.seen(), Vec::<String>::new());
    assert_eq!(rig.f.events(), ["ChildRepaired", "ChildCreated"]);
}

#[tokio::test(start_paused = true)]
async fn a_paused_webapp_starts_no_hook() {
    let mut rig = rig().await;
    rig.create().await;
    rig.pass().await;
    rig.pass().await;
    rig.edit(|webapp| webapp["metadata"]["annotations"] = json!({"windlass.dev/paused": "true"})).await;
    for _ in 0..5 {
        rig.pass().await;
    }
    assert_eq!(rig.seen().len(), 1, "only the hook that was under way");
    assert_eq!(rig.f.ready("web").await, (false, "Paused".to_owned()));
    rig.edit(|webapp| webapp["metadata"]["annotations"] = json!({})).await;
    rig.converge().await;
    assert!(rig.f.ready("web").await.0);
}

#[tokio::test(start_paused = true)]
async fn new_spec_during_a_pause_keeps_ready_unchanged() {
    let mut rig = rig().await;
    rig.create().await;
    rig.converge().await;
    rig.seen();
    rig.edit(|webapp| {
        webapp["metadata"]["annotations"] = json!({"windlass.dev/paused": "true"});
        webapp["spec"]["replicas"] = json!(3);
    })
    .await;
    for _ in 0..3 {
        rig.pass().await;
    }
    assert_eq!(rig.f.ready("web").await, (true, "Available".to_owned()));
    let status = rig.f.status("web").await;
    assert_eq!(status["observedGeneration"], 1);
    assert!(status.to_string().contains("2 of 2 replicas are available"), "{status}");
    rig.f.delete::<Deployment>("web").await;
    rig.f.catch_up().await;
    rig.pass().await;
    assert_eq!(rig.f.ready("web").await, (false, "Paused".to_owned()));
    assert_eq!(rig.seen(), Vec::<String>::new());
    rig.edit(|webapp| webapp["metadata"]["annotations"] = json!({})).await;
    rig.converge().await;
    assert_eq!(rig.seen(), CREATION);
    assert!(rig.f.ready("web").await.0);
}
