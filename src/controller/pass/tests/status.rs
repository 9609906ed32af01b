//! Writes of the status.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube_core::CustomResourceExt;

use super::*;
use crate::client::Error;
use crate::controller::key::own_writes::Readiness;
use crate::controller::key::stores::{Frozen, Stores};

const WRITE: &str = "update foos/web/status";

#[tokio::test(start_paused = true)]
async fn unchanged_status_is_not_written() {
    let mut f = plain().await;
    f.create("web", spec(2)).await;
    assert_eq!(f.sync("web").await.1, ["create deployments", WRITE]);
    f.pass_time(Duration::from_secs(60)).await;
    assert_eq!(f.sync("web").await.1, [WRITE]);
    assert_eq!(f.ready("web").await, (true, "Available".to_owned()));
    for _ in 0..3 {
        assert_eq!(f.sync("web").await, (Outcome::Done, vec![]));
    }
}

/// W1: somebody else wrote the status meanwhile.
#[tokio::test(start_paused = true)]
async fn conflicting_status_write_is_retried_once() {
    for conflicts in [1, 2] {
        let mut f = plain().await;
        f.create("web", spec(2)).await;
        f.sync("web").await;
        f.pass_time(Duration::from_secs(60)).await;
        f.events();
        let writes = When::verb("update").resource("foos/status").user("operator").times(conflicts);
        f.sim.fault(Fault::new(writes, Action::refuse(409, "Conflict")));
        let (outcome, asked) = f.pass("web", &Reasons::default()).await;
        assert_eq!(asked, [WRITE, "get foos/web", WRITE]);
        match outcome {
            Ok(_) => assert_eq!((conflicts, f.events()), (1, vec!["Synced"])),
            Err(error) => {
                assert!(conflicts == 2 && error.of_client().is_some_and(Error::is_conflict));
                assert_eq!(f.events(), Vec::<&str>::new());
            }
        }
    }
}

/// The spec has changed as well, so neither status nor events are written.
#[tokio::test(start_paused = true)]
async fn status_of_an_outdated_spec_is_not_written() {
    let mut f = plain().await;
    f.create("web", spec(2)).await;
    f.sync("web").await;
    f.pass_time(Duration::from_secs(60)).await;
    f.events();
    let before = f.status("web").await;
    f.edit::<Foo>("web", |foo| foo["spec"]["replicas"] = json!(3)).await;
    let (outcome, asked) = f.sync_without_catch_up("web").await;
    assert_eq!(asked, [WRITE, "get foos/web"]);
    assert!(matches!(outcome, Outcome::RequeueAfter(_)), "{outcome:?}");
    assert_eq!(f.status("web").await, before);
    assert_eq!(f.events(), Vec::<&str>::new());
}

#[tokio::test(start_paused = true)]
async fn status_stored_despite_lost_response_counts_as_written() {
    for (action, is_stored) in
        [(Action::FailAfter(504), true), (Action::DropAfter, true), (Action::DropBefore, false)]
    {
        let mut f = plain().await;
        f.sim.fault(refusal("create", "deployments", (403, "Forbidden")));
        let writes = When::verb("update").resource("foos/status").times(1);
        f.sim.fault(Fault::new(writes, action.clone()));
        f.create("web", spec(2)).await;
        let (outcome, _) = f.pass("web", &Reasons::default()).await;
        f.catch_up().await;
        assert_eq!(outcome.is_ok(), is_stored, "{action:?}: {outcome:?}");
        assert_eq!(f.events().len(), usize::from(is_stored), "{action:?}");
        f.sync("web").await;
        assert_eq!(f.events().len(), usize::from(!is_stored), "{action:?}: reported once");
    }
}

#[tokio::test(start_paused = true)]
async fn key_waits_for_its_own_status_write() {
    let mut f = plain().await;
    let stores = Stores::default();
    stores.add(ApiResource::of::<Foo>(), None, Frozen);
    f.create("web", spec(2)).await;
    f.sync("web").await;
    let writes = &mut f.states.get_mut("web").unwrap().own_writes;
    assert_eq!(writes.readiness(&stores), Readiness::Waits);
}

/// By a version of the operator that runs after or beside this one.
#[tokio::test(start_paused = true)]
async fn unknown_fields_of_a_status_are_kept() {
    let mut f = plain().await;
    let (kinds, name) = (ApiResource::of::<CustomResourceDefinition>(), Foo::crd_name());
    let mut kind: Value = f.user.get(&kinds, None, name).await.unwrap().unwrap();
    let schema = &mut kind["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    schema["properties"]["status"]["x-kubernetes-preserve-unknown-fields"] = json!(true);
    let _: Value = f.user.replace(&kinds, None, name, &kind).await.unwrap();
    f.create("web", spec(2)).await;
    f.converge("web").await;
    f.edit_behind::<Foo>("web", |foo| foo["status"]["future"] = json!({"a": [1]})).await;
    f.catch_up().await;
    assert_eq!(f.sync("web").await.1, Vec::<String>::new(), "it is not ours");
    scale(&mut f, 3).await;
    f.converge("web").await;
    let status = f.status("web").await;
    assert_eq!((&status["future"], &status["observedGeneration"]), (&json!({"a": [1]}), &json!(2)));
}
