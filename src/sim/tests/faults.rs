use super::*;
use crate::sim::{Action, Fault, When};

fn creates() -> When {
    When::verb("create").resource("configmaps")
}

#[tokio::test(start_paused = true)]
async fn fault_hits_only_the_nth_match_and_prints() {
    let bed = Bed::new();
    let refusal = Action::Refuse {
        code: 429,
        reason: "TooManyRequests".to_owned(),
        message: "later".to_owned(),
        retry_after: Some(7),
    };
    bed.sim.fault(Fault::new(creates().user("me").skip(1).times(1), refusal));
    assert_eq!(bed.call("POST", MAPS, map("a")).await.0, 201);
    let response =
        bed.send("POST", MAPS, "application/json", map("b").to_string().into_bytes()).await.unwrap();
    assert_eq!(
        (response.status().as_u16(), &response.headers()["retry-after"]),
        (429, &HeaderValue::from_static("7"))
    );
    assert_eq!(bed.call("POST", MAPS, map("c")).await.0, 201);
    let recipe = bed.sim.recipe();
    assert!(recipe.starts_with("seed 0: at 0ns fault {") && recipe.contains("\"retryAfter\":7"), "{recipe}");
    let printed = recipe.split_once("fault ").unwrap().1;
    assert_eq!(printed.parse::<Fault>().unwrap().to_string(), printed);
}

#[tokio::test(start_paused = true)]
async fn overload_is_answered_in_plain_text() {
    let bed = Bed::new();
    bed.sim.fault(Fault::new(When::any(), Action::Overload { retry_after: 3 }));
    let response = bed.send("GET", MAPS, "application/json", Vec::new()).await.unwrap();
    assert_eq!(response.status(), 429);
    assert_eq!(response.headers()["retry-after"], "3");
    assert_eq!(response.headers()["content-type"], "text/plain; charset=utf-8");
}

#[tokio::test(start_paused = true)]
async fn healed_fault_no_longer_applies() {
    let bed = Bed::new();
    let fault =
        bed.sim.fault(Fault::new(When::any().resource("configmaps"), Action::refuse(403, "Forbidden")));
    assert_eq!(bed.get(MAPS).await.0, 403);
    assert_eq!(bed.get(PODS).await.0, 200);
    bed.sim.heal(fault);
    assert_eq!(bed.get(MAPS).await.0, 200);
}

#[tokio::test(start_paused = true)]
async fn connection_drops_before_or_after_execution() {
    let bed = Bed::new();
    bed.sim.fault(Fault::new(creates().name("").times(1), Action::DropBefore));
    bed.sim.fault(Fault::new(creates().times(1), Action::DropAfter));
    let create = async |name: &str| {
        bed.send("POST", MAPS, "application/json", map(name).to_string().into_bytes()).await.err()
    };
    assert_eq!(create("a").await, Some(ConnectionError::Reset));
    assert_eq!(bed.get(&format!("{MAPS}/a")).await.0, 404);
    assert_eq!(create("a").await, Some(ConnectionError::Reset));
    assert_eq!(bed.get(&format!("{MAPS}/a")).await.0, 200);
}

#[tokio::test(start_paused = true)]
async fn requests_are_delayed_or_held_until_release() {
    let bed = Bed::new();
    bed.sim.fault(Fault::new(creates().times(1), Action::Delay(Duration::from_secs(40))));
    let started = tokio::time::Instant::now();
    bed.ok("POST", MAPS, map("a")).await;
    assert_eq!(started.elapsed().as_secs(), 40);

    bed.sim.fault(Fault::new(creates().times(1), Action::Hold));
    let given_up = tokio::time::timeout(Duration::from_secs(5), bed.call("POST", MAPS, map("b"))).await;
    assert!(given_up.is_err());
    assert_eq!((bed.sim.held(), bed.get(&format!("{MAPS}/b")).await.0), (1, 404));
    // The request is executed although its client has gone.
    bed.sim.release();
    assert_eq!((bed.sim.held(), bed.get(&format!("{MAPS}/b")).await.0), (0, 200));
}

#[tokio::test(start_paused = true)]
async fn watch_is_cut_after_events_or_freezes() {
    let bed = Bed::new();
    let watches = || When::verb("watch").resource("configmaps").times(1);
    bed.sim.fault(Fault::new(watches(), Action::CutAfter(1)));
    bed.sim.fault(Fault::new(watches(), Action::Freeze));
    let mut cut = bed.watch(&format!("{MAPS}?watch=true")).await;
    let mut frozen = bed.watch(&format!("{MAPS}?watch=true&allowWatchBookmarks=true")).await;
    for name in ["a", "b"] {
        bed.ok("POST", MAPS, map(name)).await;
    }
    assert_eq!(cut.event().await, event("ADDED", "a"));
    assert_eq!(cut.next().await, None);
    assert!(frozen.is_silent_for(Duration::from_secs(600)).await, "a frozen watch sends no bookmarks");
    let mut other = bed.watch(&format!("{MAPS}?watch=true")).await;
    bed.sim.cut_watches("me", "configmaps");
    assert_eq!(other.event().await, event("ADDED", "a"));
    assert_eq!(other.event().await, event("ADDED", "b"));
    assert_eq!(other.next().await, None);
}

#[tokio::test(start_paused = true)]
async fn events_are_skipped_repeated_or_truncated() {
    let bed = Bed::new();
    let events = |name: &str| When::any().resource("configmaps").name(name);
    bed.sim.fault(Fault::new(events("skipped"), Action::SkipEvent));
    bed.sim.fault(Fault::new(events("repeated"), Action::RepeatEvent));
    bed.sim.fault(Fault::new(events("broken"), Action::BreakEvent));
    let mut watch = bed.watch(&format!("{MAPS}?watch=true")).await;
    for name in ["skipped", "repeated", "broken", "last"] {
        bed.ok("POST", MAPS, map(name)).await;
    }
    assert_eq!(watch.event().await, event("ADDED", "repeated"));
    assert_eq!(watch.event().await, event("ADDED", "repeated"));
    let half = watch.line().await.unwrap();
    assert!(serde_json::from_slice::<Value>(&half).is_err());
    assert_eq!(watch.line().await.unwrap(), "\n");
    assert_eq!(watch.event().await, event("ADDED", "last"));
}

#[tokio::test(start_paused = true)]
async fn second_servers_cache_lags_or_freezes() {
    let mut bed = Bed::new();
    bed.ok("POST", MAPS, map("a")).await;
    bed.sim.freeze_cache(1, "", "configmaps", true);
    bed.ok("POST", MAPS, map("b")).await;
    bed.server = 1;
    let cached = format!("{MAPS}?resourceVersion=0");
    assert_eq!(names(&bed.get(&cached).await.1), ["a"], "the cache is stale");
    assert_eq!(names(&bed.get(MAPS).await.1), ["a", "b"], "the store is current");
    let version = bed.sim.version();
    let newer = bed.get(&format!("{MAPS}?resourceVersion={version}&resourceVersionMatch=NotOlderThan")).await;
    assert_eq!(reason(&newer), (504, "Timeout"));
    let mut watch = bed.watch(&format!("{MAPS}?watch=true")).await;
    assert_eq!(watch.event().await, event("ADDED", "a"));
    assert!(watch.is_silent_for(Duration::from_secs(30)).await);
    bed.sim.freeze_cache(1, "", "configmaps", false);
    assert_eq!(watch.event().await, event("ADDED", "b"));

    bed.sim.set_lag(1, Duration::from_secs(20));
    bed.ok("POST", MAPS, map("c")).await;
    let started = tokio::time::Instant::now();
    assert_eq!(watch.event().await, event("ADDED", "c"));
    assert_eq!(started.elapsed().as_secs(), 20);
    bed.server = 0;
    assert_eq!(names(&bed.get(&cached).await.1), ["a", "b", "c"]);
}

#[tokio::test(start_paused = true)]
async fn cache_freezes_at_an_earlier_version() {
    let mut bed = Bed::new();
    bed.ok("POST", MAPS, map("a")).await;
    let past = bed.sim.version();
    bed.ok("POST", MAPS, map("b")).await;
    assert!(!bed.sim.freeze_cache_at(1, "", "configmaps", bed.sim.version() + 1), "not yet reached");
    assert!(bed.sim.freeze_cache_at(1, "", "configmaps", past));
    bed.server = 1;
    assert_eq!(names(&bed.get(&format!("{MAPS}?resourceVersion=0")).await.1), ["a"], "the cache is stale");
    assert_eq!(bed.get(&format!("{MAPS}/b?resourceVersion=0")).await.0, 404);
    assert_eq!(names(&bed.get(MAPS).await.1), ["a", "b"], "the store is current");
    assert_eq!(bed.get(&format!("{MAPS}/b")).await.0, 200);
    let mut watch = bed.watch(&format!("{MAPS}?watch=true&resourceVersion={past}")).await;
    assert!(watch.is_silent_for(Duration::from_secs(30)).await);
    bed.sim.freeze_cache(1, "", "configmaps", false);
    assert_eq!(watch.event().await, event("ADDED", "b"));
    bed.sim.compact();
    assert!(!bed.sim.freeze_cache_at(1, "", "configmaps", past), "compacted");
}

#[tokio::test(start_paused = true)]
async fn server_stops_restarts_freezes_and_thaws() {
    let bed = Bed::new();
    let version = bed.sim.version();
    let mut watch = bed.watch(&format!("{MAPS}?watch=true")).await;
    bed.sim.stop(0);
    assert!(watch.is_broken().await, "the watch must be reset, not end as after a timeout");
    let refused = bed.send("GET", MAPS, "application/json", Vec::new()).await.err();
    assert_eq!(refused, Some(ConnectionError::Refused));
    bed.sim.start(0);
    bed.ok("POST", MAPS, map("a")).await;
    let mut late = bed.watch(&format!("{MAPS}?watch=true&resourceVersion={}", version - 1)).await;
    assert_eq!(late.next().await.unwrap().0, "ERROR", "the watch cache starts empty");

    let mut watch = bed.watch(&format!("{MAPS}?watch=true&resourceVersion={}", bed.sim.version())).await;
    bed.sim.freeze(0);
    assert!(tokio::time::timeout(Duration::from_secs(60), bed.call("POST", MAPS, map("b"))).await.is_err());
    bed.sim.thaw(0);
    assert_eq!(watch.event().await, event("ADDED", "b"), "accepted requests are executed after the thaw");
}

#[tokio::test(start_paused = true)]
async fn suspended_client_neither_sends_nor_receives() {
    let bed = Bed::new();
    let mut watch = bed.watch(&format!("{MAPS}?watch=true")).await;
    bed.sim.suspend("me", true);
    let mut other = Bed::new();
    other.sim = bed.sim.clone();
    other.user = "other";
    other.ok("POST", MAPS, map("a")).await;
    assert!(watch.is_silent_for(Duration::from_secs(60)).await);
    let given_up = tokio::time::timeout(Duration::from_secs(5), bed.call("POST", MAPS, map("b"))).await;
    assert!(given_up.is_err());
    let started = tokio::time::Instant::now();
    let resume = async {
        tokio::time::sleep(Duration::from_secs(60)).await;
        bed.sim.suspend("me", false);
    };
    tokio::join!(bed.ok("POST", MAPS, map("c")), resume);
    assert_eq!(started.elapsed().as_secs(), 60);
    assert_eq!(watch.event().await, event("ADDED", "a"));
    assert_eq!(watch.event().await, event("ADDED", "c"), "the abandoned request must not be sent");
}

#[tokio::test(start_paused = true)]
async fn frozen_server_keeps_streams_stopped_server_breaks_them() {
    let bed = Bed::new();
    let mut watch = bed.watch(&format!("{MAPS}?watch=true&timeoutSeconds=90")).await;
    bed.sim.freeze(0);
    assert!(watch.is_silent_for(Duration::from_secs(600)).await);
    bed.sim.thaw(0);
    assert_eq!(watch.next().await, None, "the timeout has passed");

    let action =
        Action::Trickle { bytes: 1.try_into().unwrap(), every: Duration::from_secs(1), is_endless: true };
    bed.sim.fault(Fault::new(When::verb("list").resource("configmaps"), action));
    let mut body = bed.watch(MAPS).await;
    assert!(body.line().await.is_some());
    bed.sim.freeze(0);
    assert!(body.is_silent_for(Duration::from_secs(60)).await);
    bed.sim.thaw(0);
    assert!(body.line().await.is_some());
    bed.sim.stop(0);
    assert!(body.is_broken().await);
}

#[tokio::test(start_paused = true)]
async fn requests_are_edited_and_answers_replaced_or_truncated() {
    let bed = Bed::new();
    bed.sim.fault(Fault::new(creates().times(1), Action::FailAfter(504)));
    assert_eq!(bed.call("POST", MAPS, map("a")).await.0, 504);
    assert_eq!(bed.get(&format!("{MAPS}/a")).await.0, 200);
    bed.sim.fault(Fault::new(creates(), Action::Edit(json!({"data": {"a": "edited"}}))));
    assert_eq!(bed.ok("POST", MAPS, map("b")).await["data"]["a"], "edited");
    bed.sim.fault(Fault::new(When::verb("list").resource("configmaps"), Action::BreakBody));
    let response = bed.send("GET", MAPS, "application/json", Vec::new()).await.unwrap();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    assert!(serde_json::from_slice::<Value>(&body).is_err());
}

/// Neither a thaw nor a suspended client changes the delay of a request that reached the server.
#[tokio::test(start_paused = true)]
async fn delay_is_unaffected_by_freezes() {
    let bed = Bed::new();
    bed.sim.fault(Fault::new(creates().times(1), Action::Delay(Duration::from_secs(40))));
    let started = tokio::time::Instant::now();
    let create = async {
        bed.ok("POST", MAPS, map("a")).await;
        started.elapsed().as_secs()
    };
    let freeze = async {
        tokio::time::sleep(Duration::from_secs(5)).await;
        bed.sim.freeze(0);
        bed.sim.thaw(0);
        bed.sim.suspend("me", true);
    };
    let (took, ()) = tokio::join!(create, freeze);
    assert_eq!(took, 40);
}

#[tokio::test(start_paused = true)]
async fn lagging_cache_reaches_versions_of_other_resources() {
    let mut bed = Bed::new();
    bed.sim.set_lag(1, Duration::from_secs(10));
    bed.ok("POST", MAPS, map("a")).await;
    bed.ok("POST", DEPLOYMENTS, deployment("web", 0)).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    bed.server = 1;
    let version = bed.sim.version();
    let list = bed.get(&format!("{MAPS}?resourceVersion={version}")).await;
    assert_eq!((list.0, names(&list.1)), (200, vec!["a"]));
}

#[tokio::test(start_paused = true)]
async fn restart_of_one_server_spares_the_other() {
    let mut bed = Bed::new();
    let version = bed.sim.version();
    bed.ok("POST", MAPS, map("a")).await;
    bed.sim.stop(0);
    bed.sim.start(0);
    let from = format!("{MAPS}?watch=true&resourceVersion={version}");
    assert_eq!(bed.watch(&from).await.next().await.unwrap().0, "ERROR");
    bed.server = 1;
    assert_eq!(bed.watch(&from).await.event().await, event("ADDED", "a"));
}

#[tokio::test(start_paused = true)]
async fn a_store_rolls_back_as_from_a_backup() {
    let mut bed = Bed::new();
    settle().await;
    let made = bed.ok("POST", MAPS, map("a")).await;
    let backup = bed.sim.version();
    bed.sim.freeze_cache(0, "", "configmaps", true);
    bed.sim.set_lag(1, Duration::from_secs(10));
    bed.ok("POST", MAPS, map("b")).await;
    bed.ok("DELETE", &format!("{MAPS}/a"), Value::Null).await;
    bed.sim.stop(0);
    bed.sim.start(0);
    assert!(bed.sim.roll_back(backup));
    assert_eq!((names(&bed.get(MAPS).await.1), bed.sim.version()), (vec!["a"], backup));
    assert_eq!(bed.get(&format!("{MAPS}/a")).await.1, made, "with its old version");
    assert!(!bed.sim.roll_back(backup + 1), "not yet reached");
    // No cache keeps anything newer than the backup.
    tokio::time::sleep(Duration::from_secs(60)).await;
    for server in [1, 0] {
        bed.server = server;
        let list = bed.get(&format!("{MAPS}?resourceVersion=0")).await.1;
        assert_eq!(list["metadata"]["resourceVersion"], backup.to_string());
        let mut watch = bed.watch(&format!("{MAPS}?watch=true&resourceVersion={backup}")).await;
        assert!(watch.is_silent_for(Duration::from_secs(1)).await);
    }
    bed.ok("POST", MAPS, map("c")).await;
    assert_eq!(names(&bed.get(&format!("{MAPS}?resourceVersion=0")).await.1), ["a", "c"]);
}

#[tokio::test(start_paused = true)]
async fn watch_gets_no_bookmarks_or_only_bookmarks() {
    let bed = Bed::new();
    let bookmarks = format!("{MAPS}?watch=true&allowWatchBookmarks=true&timeoutSeconds=600");
    bed.sim.fault(Fault::new(When::verb("watch").resource("configmaps").times(1), Action::NoBookmarks));
    let mut without = bed.watch(&bookmarks).await;
    assert!(without.is_silent_for(Duration::from_secs(599)).await);
    assert_eq!(without.next().await, None, "the timeout has passed");

    bed.sim.fault(Fault::new(When::any().resource("configmaps").name("a"), Action::SkipEvent));
    let mut only = bed.watch(&bookmarks).await;
    bed.ok("POST", MAPS, map("a")).await;
    assert_eq!(only.next().await.unwrap().0, "BOOKMARK");
}

#[tokio::test(start_paused = true)]
async fn a_list_trickles_and_may_never_end() {
    let bed = Bed::new();
    bed.ok("POST", MAPS, map("a")).await;
    let whole = bed.get(MAPS).await.1;
    let trickle = |is_endless| {
        let action =
            Action::Trickle { bytes: 100.try_into().unwrap(), every: Duration::from_secs(1), is_endless };
        bed.sim.fault(Fault::new(When::verb("list").resource("configmaps").times(1), action));
    };
    trickle(false);
    let started = tokio::time::Instant::now();
    assert_eq!(bed.get(MAPS).await.1, whole);
    let pieces = whole.to_string().len().div_ceil(100);
    assert_eq!(usize::try_from(started.elapsed().as_secs()).unwrap(), pieces - 1);

    trickle(true);
    let mut body = bed.watch(MAPS).await;
    let started = tokio::time::Instant::now();
    let mut received = Vec::new();
    while started.elapsed() < Duration::from_secs(3600) {
        received.extend(body.line().await.expect("the body never ends"));
    }
    assert!(serde_json::from_slice::<Value>(&received).is_err(), "the body is never complete");
    assert!(received.len() > 3000, "an hour of blanks");
    let action = Action::Trickle { bytes: 100.try_into().unwrap(), every: Duration::ZERO, is_endless: true };
    bed.sim.fault(Fault::new(When::verb("list").resource("secrets"), action));
    let mut at_once = bed.watch("/api/v1/namespaces/default/secrets").await;
    for _ in 0..100 {
        at_once.line().await.expect("the body never ends");
    }
    received.push(b'}');
    assert_eq!(serde_json::from_slice::<Value>(&received).unwrap()["items"], whole["items"]);
}
