use std::collections::BTreeSet;
use std::sync::Arc;

use parking_lot::Mutex;

use super::*;
use crate::api::webapp::v1::{WebApp, WebAppSpec};
use crate::cache::Slim;
use crate::client::Clock;

pub(super) const UID: &str = "0b4f6a0e-6d0d-4b0a-9d0f-3a5f0c1f6f5e";

pub(super) fn webapp() -> Arc<Slim<WebApp>> {
    let webapp = serde_json::json!({
        "metadata": {"name": "shop", "namespace": "default", "uid": UID, "generation": 1},
        "spec": {"version": "1.2", "replicas": 2, "image": "nginx"},
    });
    Arc::new(serde_json::from_value(webapp).unwrap())
}

pub(super) fn call(hook: Hook) -> HookCall {
    HookCall::new("notify", hook, webapp())
}

fn all_hooks() -> impl Iterator<Item = Hook> {
    Hook::CREATION.into_iter().chain(Hook::DELETION)
}

#[test]
fn operation_ids_are_fixed() {
    let other = "6f0f4d5e-0000-4000-8000-000000000001";
    let fixed = [
        (UID, "prepare", Hook::PreCreate, 1, "2f67a581-c050-81dd-ba99-29de86c53825"),
        (UID, "prepare", Hook::PreCreate, 2, "d1ace623-9708-8b40-95fa-cb8872a43ad5"),
        (UID, "prepare", Hook::Create, 1, "eaedb093-8e61-829c-b204-ce93ac3fb8ba"),
        (UID, "announce", Hook::PreCreate, 1, "4d5c9373-4956-87c3-b767-1c5402ad6b6d"),
        (other, "prepare", Hook::PreCreate, 1, "89cd8853-1a21-89fa-a119-c09d5bb7ecd7"),
    ];
    let spec = webapp().spec.clone();
    for (uid, task, hook, generation, expected) in fixed {
        assert_eq!(operation_id(uid, task, hook, generation, &spec), expected);
    }
    let of_first_version = call::without_spec(UID, "prepare", Hook::PreCreate, 1);
    assert_eq!(of_first_version, "2f67a581-c050-81dd-955b-af4440bc3d65");
}

#[test]
fn operation_ids_are_unique_per_hook_and_generation() {
    let mut seen = BTreeSet::new();
    let mut made = 0;
    for (uid, task, hook) in all_hooks().flat_map(|hook| {
        ["u", "u1"]
            .into_iter()
            .flat_map(move |uid| ["a", "ab", "b/create"].map(move |task| (uid, task, hook)))
    }) {
        for generation in [0, 1, 11, i64::MAX] {
            made += 1;
            let id = operation_id(uid, task, hook, generation, &webapp().spec);
            assert!(call::is_of(&id, uid, task, hook, generation));
            assert!(seen.insert(id), "another operation has this ID");
            let other = WebAppSpec { version: "other".to_owned(), ..webapp().spec.clone() };
            assert!(seen.insert(operation_id(uid, task, hook, generation, &other)));
        }
    }
    assert_eq!(seen.len(), 2 * made);
    let same = operation_id(UID, "notify", Hook::Create, 1, &webapp().spec);
    assert_eq!(call(Hook::Create).operation_id(), same, "a retry has the same ID");
}

/// Records the hooks that are called; `post_delete` is not implemented.
#[derive(Default)]
struct Recorder(Mutex<Vec<Hook>>);

impl Recorder {
    fn record(&self, hook: Hook) -> HookFuture<'_> {
        Box::pin(async move {
            self.0.lock().push(hook);
            Ok(())
        })
    }
}

impl TaskExecutor for Recorder {
    fn name(&self) -> &'static str {
        "written"
    }

    fn pre_create<'a>(&'a self, _: &'a HookCall) -> HookFuture<'a> {
        self.record(Hook::PreCreate)
    }

    fn create<'a>(&'a self, _: &'a HookCall) -> HookFuture<'a> {
        self.record(Hook::Create)
    }

    fn post_create<'a>(&'a self, _: &'a HookCall) -> HookFuture<'a> {
        self.record(Hook::PostCreate)
    }

    fn pre_delete<'a>(&'a self, _: &'a HookCall) -> HookFuture<'a> {
        self.record(Hook::PreDelete)
    }

    fn delete<'a>(&'a self, _: &'a HookCall) -> HookFuture<'a> {
        self.record(Hook::Delete)
    }
}

#[tokio::test]
async fn run_dispatches_to_the_named_hook() {
    let executor: Arc<dyn TaskExecutor> = Arc::new(Recorder::default());
    let recorder = Arc::new(Recorder::default());
    for hook in all_hooks() {
        assert_eq!(run(&*executor, &call(hook)).await, Ok(()));
        assert_eq!(run(&*recorder, &call(hook)).await, Ok(()));
    }
    let expected: Vec<Hook> = all_hooks().filter(|hook| *hook != Hook::PostDelete).collect();
    assert_eq!(*recorder.0.lock(), expected);
}

struct Hanging;

impl TaskExecutor for Hanging {
    fn name(&self) -> &'static str {
        "hanging"
    }

    fn create<'a>(&'a self, _: &'a HookCall) -> HookFuture<'a> {
        Box::pin(std::future::pending())
    }
}

#[tokio::test(start_paused = true)]
async fn hanging_hook_times_out() {
    let started = tokio::time::Instant::now();
    let error = run(&Hanging, &call(Hook::Create)).await.unwrap_err();
    assert_eq!(started.elapsed().as_secs(), DEFAULT_TIMEOUT.as_secs());
    assert_eq!(error, HookError::retry("create timed out after 30s"));
}

#[tokio::test]
async fn default_tasks_build() {
    let tasks = build(&default_tasks(), Clock::system()).unwrap();
    let names: Vec<&str> = tasks.iter().map(|task| task.name()).collect();
    assert_eq!(names, ["prepare", "workload", "announce"]);
    assert!(matches!(tasks[1], crate::operators::webapp::TaskEntry::Workload(_)));
}

#[cfg(feature = "cli")]
#[tokio::test]
async fn log_task_writes_one_line_per_hook() {
    let log = crate::testing::capture_log();
    for hook in all_hooks() {
        let call = call(hook);
        assert_eq!(run(&LogTask::new("notify"), &call).await, Ok(()));
        let expected = format!(
            "INFO Ran a hook task=notify hook={hook} object=default/shop operation_id={}",
            call.operation_id()
        );
        assert_eq!(log.lines().last(), Some(&expected));
    }
    assert_eq!(log.lines().len(), 6);
}
