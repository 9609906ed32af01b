//! The operator's metrics and health endpoints.

use macro_rules_attribute::apply;

use crate::support::canary::clean;
use crate::support::{Bed, Operator, Scene, no_bed, real_bed, run_to_end, wait_until};

/// Returns the address on which an operator serves these paths, from its log.
pub(crate) async fn address_of(operator: &Operator, paths: &str) -> String {
    let line = operator.logged(&format!("paths=\"{paths}\"")).await;
    let address = line.split("address=").nth(1).and_then(|rest| rest.split_whitespace().next());
    address.unwrap_or_else(|| panic!("no address in {line:?}")).to_owned()
}

pub(crate) async fn get(address: &str, path: &str) -> (u16, String) {
    let response = reqwest::get(format!("http://{address}{path}")).await.expect("the endpoint answers");
    let status = response.status().as_u16();
    (status, clean("an endpoint", response.text().await.expect("the answer is text")))
}

#[apply(real_bed)]
#[why = "sockets do not work with the embedded bed's paused clock"]
async fn readyz_lists_unsynced_caches_and_survives_server_loss() {
    let scene = Scene::on(Bed::own(true).await, "readyz").await;
    let namespace = format!("--namespace={}", scene.namespace);
    let operator = scene.bed.operator_without_role("reader", &[&namespace]);
    let address = address_of(&operator, "/livez /readyz").await;
    assert_eq!(get(&address, "/livez").await, (200, "ok".to_owned()));
    let kind = "cache-foos.samplecontroller.k8s.io";
    let refused = format!("[-]{kind} failed: not listed yet: 403 Forbidden\n");
    let (code, text) = wait_until("a 403", async || {
        let answer = get(&address, "/readyz").await;
        if answer.1.contains(&refused) { Ok(answer) } else { Err(answer) }
    })
    .await;
    assert_eq!(code, 500);
    assert!(text.contains("[-]workers-foo failed: waiting for the caches\n"), "{text}");

    scene.bed.grant_all("reader", &scene.namespace).await;
    let ready = async || {
        let answer = get(&address, "/readyz").await;
        if answer.0 == 200 { Ok(()) } else { Err(answer) }
    };
    wait_until("the operator is ready", ready).await;

    scene.bed.kill_server();
    let expected = format!("[+]{kind} ok, but currently cannot be listed or watched: no response\n");
    wait_until("readyz reports the loss", async || {
        let (code, text) = get(&address, "/readyz?verbose").await;
        if code == 200 && text.contains(&expected) { Ok(()) } else { Err((code, text)) }
    })
    .await;
    scene.bed.start_server().await;
}

#[apply(real_bed)]
#[why = "sockets do not work with the embedded bed's paused clock"]
async fn standby_is_ready_and_names_the_leader() {
    let scene = Scene::on(Bed::shared().await, "standby").await;
    let [namespace, lease] = ["--namespace", "--leader-elect-resource-namespace"]
        .map(|flag| format!("{flag}={}", scene.namespace));
    let flags = ["--controllers=foo", &namespace, &lease];
    let leader = scene.bed.operator(&format!("{}-leader", scene.user()), &flags);
    leader.logged("Became the leader").await;
    let standby = scene.bed.operator(&format!("{}-standby", scene.user()), &flags);
    let address = address_of(&standby, "/livez /readyz").await;
    wait_until("the standby is ready", async || {
        let (code, text) = get(&address, "/readyz?verbose").await;
        let is_named = text.contains(" leads, and this process stands by\n");
        if code == 200 && is_named { Ok(()) } else { Err((code, text)) }
    })
    .await;
    assert_eq!(get(&address, "/livez").await, (200, "ok".to_owned()));
}

#[apply(real_bed)]
#[why = "sockets do not work with the embedded bed's paused clock"]
async fn metrics_count_requests_and_syncs() {
    let mut scene = Scene::new("metrics").await;
    // Each kind but AppService sets its own number; AppService uses --workers.
    let own = [("foo", 8), ("myapp", 4), ("redis", 6), ("webapp", 7)];
    let flags: Vec<String> =
        own.iter().map(|(kind, syncs)| format!("--concurrent-{kind}-syncs={syncs}")).collect();
    let mut flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    flags.push("--workers=3");
    scene.start_operator_with(&flags);
    scene.ready_foo("web", 1).await;
    let address = address_of(scene.operator(), "/metrics").await;
    let (code, text) = get(&address, "/metrics").await;
    assert_eq!(code, 200);
    let value = |series: &str| -> f64 {
        let line = text.lines().find(|line| line.starts_with(series));
        let line = line.unwrap_or_else(|| panic!("no {series} in\n{text}"));
        line.rsplit_once(' ').unwrap().1.parse().unwrap()
    };
    assert!(value("workqueue_adds_total{name=\"foo\"") >= 1.0);
    assert!(value("workqueue_work_duration_seconds_count{name=\"foo\"") >= 1.0);
    assert!(value("controller_runtime_reconcile_total{controller=\"foo\",result=\"success\"}") >= 1.0);
    for (kind, syncs) in own.into_iter().chain([("appservice", 3)]) {
        let series = format!("controller_runtime_max_concurrent_reconciles{{controller=\"{kind}\"}}");
        assert_eq!(value(&series), f64::from(syncs), "{kind}");
    }
    assert!(value("rest_client_requests_total{code=\"201\",method=\"POST\"") >= 1.0);
    assert_eq!(value("windlass_cache_synced{kind=\"foos.samplecontroller.k8s.io\"}"), 1.0);
    assert!(!text.contains(&scene.namespace), "metrics name no namespace");
    assert!(text.ends_with("# EOF\n"));
}

#[apply(no_bed)]
#[why = "it tests the program without a server"]
async fn a_taken_port_is_refused() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    for flag in ["--metrics-bind-address", "--health-probe-bind-address"] {
        let output = run_to_end(&["run", &format!("{flag}={address}")], &[]);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{text}");
        let first = text.lines().next().unwrap_or_default();
        assert!(first.starts_with(&format!("error: {flag}: cannot listen on {address}: ")), "{text}");
        assert!(text.contains("give") && text.lines().count() <= 8, "{text}");
    }
}

/// Starts an operator with this flag and returns the kind of each of its caches.
async fn cached_with(scene: &mut Scene, flag: &str) -> Vec<String> {
    scene.start_operator_with(&[flag]);
    let address = address_of(scene.operator(), "/livez /readyz").await;
    let text = wait_until("the operator is ready", async || {
        let (code, text) = get(&address, "/readyz?verbose").await;
        if code == 200 { Ok(text) } else { Err(text) }
    })
    .await;
    let names = text.lines().filter_map(|line| line.strip_prefix("[+]cache-"));
    let mut names: Vec<String> = names.map(|name| name.split(' ').next().unwrap().to_owned()).collect();
    names.sort();
    names
}

#[apply(real_bed)]
#[why = "sockets do not work with the embedded bed's paused clock"]
async fn enabled_controllers_share_only_the_needed_caches() {
    let mut scene = Scene::new("caches").await;
    for (flag, expected) in [
        ("--controllers=redis", &["pods", "redis.myapp.tangx.in"][..]),
        (
            "--controllers=foo,webapp",
            &["deployments.apps", "foos.samplecontroller.k8s.io", "webapps.jiajunhuang.com"],
        ),
        (
            "--controllers=*",
            &[
                "appservices.batch.schwarzeni.github.com",
                "deployments.apps",
                "foos.samplecontroller.k8s.io",
                "ingresses.networking.k8s.io",
                "myapps.myapp.timd.cn",
                "pods",
                "redis.myapp.tangx.in",
                "services",
                "webapps.jiajunhuang.com",
            ],
        ),
    ] {
        assert_eq!(cached_with(&mut scene, flag).await, expected, "{flag}");
    }
}
