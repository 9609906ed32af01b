//! `/debug` and `windlass debug`, on the operator of a demo.

use macro_rules_attribute::apply;
use serde_json::Value;

use crate::demo::Demo;
use crate::support::{no_bed, run_to_end, wait_until};

/// Runs `windlass debug` with these arguments and returns its output.
fn debug(demo: &Demo, arguments: &[&str]) -> String {
    let address = format!("--address={}", demo.debug());
    let all: Vec<&str> = ["debug"].iter().chain(arguments).copied().chain([&*address]).collect();
    let output = run_to_end(&all, &[]);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[apply(no_bed)]
#[why = "the demo brings its own server"]
async fn debug_prints_queues_caches_and_a_life() {
    let demo = Demo::start();
    demo.line("foo/example ready=True");
    let queues = debug(&demo, &["queue"]);
    assert!(
        queues.starts_with("CONTROLLER  WORKERS  PROCESSING") && queues.contains("\nwebapp "),
        "{queues}"
    );
    let caches = debug(&demo, &["caches"]);
    let foos = caches.lines().find(|line| line.starts_with("foos.")).unwrap();
    assert!(foos.contains(" watching ") && foos.contains(" ago "), "{caches}");
    // The last look at a Ready object may still be under way.
    wait_until("the life of a Foo is complete", async || {
        let life = debug(&demo, &["key", "example"]);
        let parts = [
            "foo: version ",
            ", at rest",
            "because: ",
            "POST /apis/apps/v1/namespaces/default/deployments: ok",
            "Done after ",
        ];
        let missing: Vec<_> = parts.into_iter().filter(|part| !life.contains(part)).collect();
        if missing.is_empty() { Ok(()) } else { Err(format!("{missing:?} not in\n{life}")) }
    })
    .await;
    let json: Value = serde_json::from_str(&debug(&demo, &["key", "default/example", "-o=json"])).unwrap();
    assert_eq!(json["controllers"][0]["controller"], "foo");
    assert!(!json.to_string().contains("nginx"), "no object content");
    let unknown = debug(&demo, &["key", "nobody"]);
    assert_eq!(unknown, "No cache has default/nobody and no queue does.\n");
}

/// A name that resolves to a loopback address does not make another page's requests its own.
#[apply(no_bed)]
#[why = "the demo brings its own server"]
async fn debug_refuses_requests_of_other_pages() {
    let demo = Demo::start();
    let url = format!("http://{}/debug/queues", demo.debug());
    let client = reqwest::Client::new();
    wait_until("the operator serves", async || client.get(&url).send().await.map(drop)).await;
    for (name, value, code) in [
        ("host", "evil.example", 421),
        ("origin", "http://evil.example", 403),
        ("origin", &*format!("http://{}", demo.debug()), 200),
    ] {
        let answer = client.get(&url).header(name, value).send().await.unwrap();
        assert_eq!(answer.status().as_u16(), code, "{name}: {value}");
    }
}

#[apply(no_bed)]
#[why = "nothing runs"]
async fn debug_names_the_missing_flag() {
    let free = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap();
    let output = run_to_end(&["debug", "queue", "--address", &free.to_string()], &[]);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let expected = format!("start the operator with --debug-bind-address={free}");
    assert_eq!(output.status.code(), Some(1));
    assert!(text.contains("nothing listens there") && text.contains(&expected), "{text}");
}

#[apply(no_bed)]
#[why = "the demo brings its own server"]
async fn switches_need_token_and_own_origin() {
    let demo = Demo::start();
    let (page, token) = demo.page().split_once("#token=").expect("a token");
    let url = format!("{page}debug/switch");
    let client = reqwest::Client::new();
    wait_until("the operator serves", async || client.get(page).send().await.map(drop)).await;
    let own = page.trim_end_matches('/');
    for (given, origin, body, code) in [
        (token, own, "{\"workers\":3}", 200),
        (token, own, "{\"workers\":99}", 400),
        ("wrong", own, "{\"workers\":4}", 401),
        (token, "http://evil.example", "{\"workers\":4}", 403),
    ] {
        let request = client.post(&url).header("x-windlass-token", given).header("origin", origin);
        let answer = request.body(body).send().await.unwrap();
        assert_eq!(answer.status().as_u16(), code, "{origin} {body}");
    }
    let shown: Value = client.get(format!("{page}debug")).send().await.unwrap().json().await.unwrap();
    let workers: Vec<_> = shown["queues"].as_array().unwrap().iter().map(|queue| &queue["workers"]).collect();
    assert_eq!(workers, [3, 3, 3, 3, 3]);
}
