//! Paused Foos.

use super::*;

fn pause(f: &mut Fixture, is_paused: bool) {
    let mut foo = f.server.get(FOO).unwrap();
    foo["metadata"]["annotations"] = json!({"windlass.dev/paused": is_paused.to_string()});
    f.server.store(FOOS, foo);
    f.catch_up();
}

#[tokio::test(start_paused = true)]
async fn a_paused_foo_is_watched_and_left_alone() {
    let mut f = Fixture::new().await;
    f.foo("web", 1);
    f.sync().await;
    f.roll_out("web");
    f.sync().await;
    f.events();
    pause(&mut f, true);
    let (outcome, requests) = f.sync().await;
    assert_eq!((outcome, requests), (Outcome::Done, vec!["PATCH foos/one/status".to_owned()]));
    assert_eq!(f.events(), ["Paused"]);
    assert_eq!(f.ready(), ("True".to_owned(), "Available".to_owned()));
    let conditions = conditions_of(&f.server.get(FOO).unwrap());
    assert_eq!(conditions::reason(&conditions, RECONCILING), Some("Paused"));

    // A new spec is held back, and `observedGeneration` stays.
    let mut foo = f.server.get(FOO).unwrap();
    foo["spec"]["replicas"] = json!(3);
    foo["metadata"]["generation"] = json!(2);
    f.server.store(FOOS, foo);
    f.catch_up();
    f.sync().await;
    assert_eq!(f.server.get(&format!("{DEPLOYMENTS}/web")).unwrap()["spec"]["replicas"], 2);
    assert_eq!(f.server.get(FOO).unwrap()["status"]["observedGeneration"], 1);
    let conditions = conditions_of(&f.server.get(FOO).unwrap());
    let ready = conditions.iter().find(|condition| condition.type_ == READY).unwrap();
    assert_eq!((ready.status.as_str(), ready.message.as_str()), ("True", "2 of 2 replicas are available"));

    pause(&mut f, false);
    f.sync().await;
    assert_eq!(f.events(), ["ChildUpdated", "Resumed"]);
    assert_eq!(f.server.get(&format!("{DEPLOYMENTS}/web")).unwrap()["spec"]["replicas"], 3);
    assert_eq!(f.server.get(FOO).unwrap()["status"]["observedGeneration"], 2);
}

#[tokio::test(start_paused = true)]
async fn hand_edit_during_pause_is_reported_not_repaired() {
    let mut f = Fixture::new().await;
    f.foo("web", 1);
    f.sync().await;
    f.roll_out("web");
    pause(&mut f, true);
    let mut edited = f.server.get(&format!("{DEPLOYMENTS}/web")).unwrap();
    edited["spec"]["replicas"] = json!(9);
    f.server.store(DEPLOYMENTS, edited);
    f.catch_up();
    let (_, requests) = f.sync().await;
    assert_eq!(requests, ["PATCH foos/one/status"]);
    assert_eq!(f.ready(), ("False".to_owned(), "Paused".to_owned()));
    f.events();
    pause(&mut f, false);
    f.sync().await;
    assert_eq!(f.events(), ["ChildRepaired", "Resumed"]);
    f.roll_out("web");
    f.sync().await;
    assert_eq!(f.events(), ["Synced"]);
}

/// The Deployment under the former name is the applied one.
#[tokio::test(start_paused = true)]
async fn rename_waits_until_the_pause_ends() {
    let mut f = Fixture::new().await;
    f.foo("old", 1);
    f.sync().await;
    f.roll_out("old");
    f.sync().await;
    pause(&mut f, true);
    f.sync().await;
    renamed(&mut f);
    f.sync().await;
    assert_eq!(f.ready(), ("True".to_owned(), "Available".to_owned()));
    let status = &f.server.get(FOO).unwrap()["status"];
    assert_eq!((&status["observedGeneration"], &status["replicas"]), (&json!(1), &json!(2)));
    f.server.remove(&format!("{DEPLOYMENTS}/old"));
    f.deployments.replace(&[], "1");
    f.sync().await;
    assert_eq!(f.ready(), ("False".to_owned(), "Paused".to_owned()));
}
