//! The live page of a demo and of `run`, and the book's steppers, in a real browser.

use std::fs;
use std::net::SocketAddr;

use macro_rules_attribute::apply;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::demo::Demo;
use crate::program::unreachable_server;
use crate::support::{Browser, Operator, no_bed};

const IS_LIVE: &str = "document.querySelector('#connection')?.dataset.state === 'live'";
/// All text of the page, for a failure.
const TEXT: &str = "document.body?.innerText";

/// Opens the page of a demo and waits until it is live.
async fn open(url: &str) -> Option<Browser> {
    let mut browser = Browser::open(url).await?;
    browser.wait_for("the page is live", &format!("{IS_LIVE} && drawn?.time !== undefined"), TEXT).await;
    Some(browser)
}

/// Returns an expression for the sum of a number over all queues.
fn all(field: &str) -> String {
    format!("sum(newest.queues, (queue) => queue.{field})")
}

#[apply(no_bed)]
#[why = "the demo brings its own server"]
async fn page_shows_a_scaled_redis_and_no_error() {
    let demo = Demo::start();
    let Some(mut browser) = open(demo.page()).await else { return };
    demo.line("kubectl scale redis/example-redis --replicas=3");
    let lane = "[data-controller=redis] .lanes [data-key=\"default/example-redis\"]";
    browser
        .wait_for("a lane has the Redis", &format!("document.querySelector('{lane}') !== null"), TEXT)
        .await;
    browser.click(lane).await;
    let body = "document.querySelector('#details-body').innerText";
    for part in ["because: ", "/namespaces/default/pods: ok", "example-redis-2"] {
        browser.wait_for(part, &format!("{body}.includes('{part}')"), body).await;
    }
    browser.eval("document.dispatchEvent(new KeyboardEvent('keydown', {key: 'Escape'}))").await;
    browser.click("#picture [data-part=reflector]").await;
    let text = browser.eval(body).await;
    assert!(text.as_str().unwrap().contains("src/cache/reflector.rs"), "{text}");
    assert_eq!(browser.errors().await, <[String; 0]>::default());
}

#[apply(no_bed)]
#[why = "the demo brings its own server"]
async fn fault_switch_makes_keys_back_off() {
    let demo = Demo::start();
    let Some(mut browser) = open(demo.page()).await else { return };
    demo.line("webapp/example-webapp-full ready=True");
    browser.click("[data-switch=\"faults.errors\"]").await;
    browser.click("[data-change='{\"create\":100}']").await;
    browser.wait_for("keys back off", &format!("{} > 50", all("backingOff")), TEXT).await;
    let failed =
        "[...document.querySelectorAll('#requests tr')].some((row) => row.innerText.includes('500'))";
    browser.wait_for("the page shows 500s", failed, TEXT).await;
    browser.click("[data-switch=\"faults.errors\"]").await;
    browser.wait_for("all recover", &format!("{} === 0", all("backingOff")), TEXT).await;
    assert_eq!(browser.errors().await, <[String; 0]>::default());
}

#[apply(no_bed)]
#[why = "the demo brings its own server"]
async fn more_workers_drain_the_queue() {
    let demo = Demo::start();
    let Some(mut browser) = open(demo.page()).await else { return };
    demo.line("webapp/example-webapp-full ready=True");
    browser.set("workers", 1).await;
    browser.set("faults.latencyMs", 200).await;
    browser
        .wait_for(
            "one slow worker",
            "newest.switches.workers === 1 && newest.switches.faults.latencyMs === 200",
            TEXT,
        )
        .await;
    browser.click("[data-change='{\"create\":100}']").await;
    browser.wait_for("the queue is deep", &format!("{} > 60", all("waiting")), TEXT).await;
    browser.set("workers", 16).await;
    let drained = format!("newest.switches.created === 100 && {} === 0", all("waiting"));
    browser.wait_for("the queue is drained", &drained, TEXT).await;
    // On a busy machine, another worker may still stand in for one whose sync takes long.
    let lanes = "document.querySelectorAll('[data-controller=foo] .lanes li').length";
    browser.wait_for("there are 16 lanes", &format!("{lanes} === 16"), lanes).await;
    assert_eq!(browser.errors().await, <[String; 0]>::default());
}

#[apply(no_bed)]
#[why = "the demo brings its own server"]
async fn cut_stream_reconnects() {
    let demo = Demo::start();
    let proxy = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address = proxy.local_addr().unwrap();
    let mut connections = JoinSet::new();
    connections.spawn(forward(proxy, demo.debug().parse().unwrap()));
    let Some(mut browser) = open(&format!("http://{address}/")).await else { return };
    connections.shutdown().await;
    browser.wait_for("the page says so", &format!("!({IS_LIVE})"), TEXT).await;
    let before = browser.eval("newest.uptimeSeconds").await;
    connections.spawn(forward(TcpListener::bind(address).await.unwrap(), demo.debug().parse().unwrap()));
    let is_newer = format!("{IS_LIVE} && newest.uptimeSeconds > {before}");
    browser.wait_for("the page is live again", &is_newer, TEXT).await;
}

#[apply(no_bed)]
#[why = "the demo brings its own server"]
async fn tour_shows_what_it_says() {
    let demo = Demo::start();
    let Some(mut browser) = open(demo.page()).await else { return };
    demo.line("webapp/example-webapp-full ready=True");
    browser.click("#tour-start").await;
    let relisted =
        "newest.caches.every((cache) => cache.relists > 0 && cache.phase === 'watching')".to_owned();
    let merged = "rates.passes > 0 && rates.changes > 3 * rates.passes".to_owned();
    let hot = "newest.switches.created >= 100 && newest.switches.workers === 4".to_owned();
    let drained = format!("newest.switches.created >= 300 && {} === 0", all("waiting"));
    let steps: [(&str, Vec<String>); 6] = [
        ("A first list", vec![relisted]),
        ("Many changes, few passes", vec![merged]),
        ("A hot key keeps one worker, not all", vec![hot]),
        ("Backoff after failures", [">", "==="].map(|is| format!("{} {is} 0", all("backingOff"))).into()),
        ("Too few workers", vec![format!("{} > 60", all("waiting")), drained]),
        (
            "An outage, and recovery",
            vec![
                "newest.caches.some((cache) => cache.phase === 'backingOff')".to_owned(),
                "newest.caches.every((cache) => cache.phase === 'watching')".to_owned(),
            ],
        ),
    ];
    for (title, effects) in steps {
        let is_there = format!("document.querySelector('#tour-title').textContent === '{title}'");
        browser.wait_for(title, &is_there, TEXT).await;
        for (at, effect) in effects.iter().enumerate() {
            browser.click(&format!("#tour-actions button:nth-child({})", at + 1)).await;
            browser.wait_for(&format!("{title}: {effect}"), effect, TEXT).await;
        }
        browser.click("#tour-next").await;
    }
    browser.wait_for("the tour is over", "document.querySelector('#tour').hidden", TEXT).await;
    let usual =
        "newest.switches.workers === 2 && Object.values(newest.switches.faults).every((value) => !value)";
    browser.wait_for("all switches are as before", usual, "newest.switches").await;
    assert_eq!(browser.errors().await, <[String; 0]>::default());
}

/// Forwards connections to a server until dropped, which cuts them.
async fn forward(listener: TcpListener, to: SocketAddr) {
    let mut connections = JoinSet::new();
    while let Ok((mut client, _)) = listener.accept().await {
        connections.spawn(async move {
            let mut server = TcpStream::connect(to).await.ok()?;
            tokio::io::copy_bidirectional(&mut client, &mut server).await.ok()
        });
    }
}

/// With `WINDLASS_SCREENSHOT`, also writes the picture of the README to that file.
#[apply(no_bed)]
#[why = "the demo brings its own server"]
async fn page_fits_phones_and_projectors() {
    let demo = Demo::start();
    let Some(mut browser) = open(demo.page()).await else { return };
    demo.line("webapp/example-webapp-full ready=True");
    browser.set("workers", 1).await;
    browser.set("faults.latencyMs", 300).await;
    browser.click("[data-change='{\"create\":100}']").await;
    browser.wait_for("keys wait", &format!("{} > 60", all("waiting")), TEXT).await;
    for (width, height) in [(400, 800), (1024, 768), (1400, 1120), (3840, 2160)] {
        browser.resize(width, height).await;
        let wide = browser.eval("document.documentElement.scrollWidth").await;
        assert!(wide.as_u64().unwrap() <= width.into(), "{width}: something is {wide} wide");
    }
    // Each control has a name for those who do not see it.
    let nameless = "[...document.querySelectorAll('button, input')].filter((control) => \
        !control.closest('[hidden]') && !(control.labels?.length || control.innerText.trim())).map((control) => control.outerHTML)";
    assert_eq!(browser.eval(nameless).await, serde_json::json!([]));
    for scheme in ["dark", "light"] {
        browser.prefer(scheme).await;
        let pale = browser.eval(PALE).await;
        assert_eq!(pale, serde_json::json!([]), "{scheme}");
    }
    if let Some(file) = std::env::var_os("WINDLASS_SCREENSHOT") {
        browser.resize(1400, 1120).await;
        browser.wait_for("the plots have a history", "history.length > 36", TEXT).await;
        browser.set("workers", 6).await;
        browser.wait_for("six are busy", &format!("{} === 6", all("processing")), TEXT).await;
        browser.screenshot(file.as_ref()).await;
    }
}

/// Returns the pairs of colours whose contrast is below 4.5, which WCAG asks of text.
const PALE: &str = "(() => {
    const light = (name) => {
        const hex = getComputedStyle(document.documentElement).getPropertyValue(name).trim();
        const [r, g, b] = [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16) / 255)
            .map((value) => value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4);
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const pale = [];
    for (const ink of ['--ink', '--soft', '--blue', '--green', '--orange', '--red', '--violet'])
        for (const paper of ['--paper', '--panel']) {
            const [dark, bright] = [light(ink), light(paper)].sort((a, b) => a - b);
            const contrast = (bright + 0.05) / (dark + 0.05);
            if (!(contrast >= 4.5)) pale.push(`${ink} on ${paper}: ${contrast}`);
        }
    return pale;
})()";

/// A change needs the token, and `run` makes none.
#[apply(no_bed)]
#[why = "it tests the program without a server"]
async fn page_of_run_has_no_switches() {
    let dir = tempfile::tempdir().unwrap();
    let flags = ["--debug-bind-address=127.0.0.1:0", "--leader-elect=false"];
    let operator = Operator::start(&unreachable_server(&dir), dir.path().join("log"), &flags);
    let line = operator.logged("/debug").await;
    let address = line.split("127.0.0.1:").nth(1).expect("an address");
    let port: String = address.chars().take_while(char::is_ascii_digit).collect();
    let url = format!("http://127.0.0.1:{port}");
    let client = reqwest::Client::new();
    let answer = client.post(format!("{url}/debug/switch")).body("{\"workers\":1}").send().await.unwrap();
    assert_eq!(answer.status().as_u16(), 405);
    let page = client.get(format!("{url}/")).send().await.unwrap();
    let policy = page.headers()["content-security-policy"].to_str().unwrap().to_owned();
    assert!(policy.starts_with("default-src 'none'"), "{policy}");
    let Some(mut browser) = open(&url).await else { return };
    let backs_off = "document.querySelector('[data-phase=backingOff]') !== null";
    browser.wait_for("reflectors back off", backs_off, TEXT).await;
    assert_eq!(browser.eval("document.querySelector('#switches').hidden").await, true);
    assert_eq!(browser.errors().await, <[String; 0]>::default());
}

/// A recording of the book, as mdBook shows it: a table after an element that the script fills.
#[apply(no_bed)]
#[why = "it is a page of the book"]
async fn stepper_plays_a_recording_by_keys() {
    let book = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/book");
    let page = fs::read_to_string(format!("{book}/src/ch8-the-cache-lies.md")).unwrap();
    let table = page.split("<!-- trace own-write -->").nth(1).unwrap().split("<!--").next().unwrap();
    let row = |line: &str| -> String {
        line.trim_matches('|').split('|').map(|cell| format!("<td>{}</td>", cell.trim())).collect()
    };
    let lines: Vec<&str> = table.lines().filter(|line| line.starts_with("| ")).collect();
    let rows: String = lines.iter().map(|line| format!("<tr>{}</tr>", row(line))).collect();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("page.html");
    let script = format!("<script src=\"file://{book}/stepper.js\"></script>");
    fs::write(&file, format!("<div class=stepper></div><table>{rows}</table>{script}")).unwrap();
    let Some(mut browser) = Browser::open(&format!("file://{}", file.display())).await else { return };
    let step = "document.querySelector('.stepper-step')?.innerText";
    let is_step = |text: &str| format!("{step} === {text:?}");
    let shown = |at: usize| {
        let what = lines[at].trim_matches('|').split('|').next().unwrap().trim();
        format!("{at} of {}: {what}", lines.len() - 1)
    };
    browser.wait_for("the first step", &is_step(&shown(1)), TEXT).await;
    let press = |key: &str| {
        let event = format!("new KeyboardEvent('keydown', {{key: '{key}', bubbles: true}})");
        format!("document.querySelector('.stepper').dispatchEvent({event}) || true")
    };
    for (key, expected) in
        [("ArrowRight", 2), ("ArrowRight", 3), ("ArrowLeft", 2), ("ArrowLeft", 1), ("ArrowLeft", 1)]
    {
        browser.eval(&press(key)).await;
        assert_eq!(browser.eval(step).await, shown(expected), "{key}");
    }
    browser.eval(&press("ArrowRight")).await;
    let changed = "[...document.querySelectorAll('.changed b')].map((one) => one.innerText).join()";
    assert_eq!(
        browser.eval(changed).await,
        "replicas on the server,the operator sends",
        "what has changed is marked"
    );
    assert_eq!(browser.eval("document.querySelector('.stepper').tabIndex").await, 0, "keys reach it");
    assert_eq!(browser.errors().await, <[String; 0]>::default());
}
