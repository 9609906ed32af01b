//! Fault labs: the book's controller in a cluster in which one thing goes wrong, and what it did about it.
//!
//! The clock is virtual: an hour passes in milliseconds.

use std::time::Duration;

use serde_json::json;
use windlass::sim::{Action, Fault, When};

use crate::ch7::Controller;
use crate::ch8::Careful;
use crate::ch9::Elector;
use crate::cluster::{Cluster, DEPLOYMENTS, FOOS};

/// The user whose requests are shown.
const ME: &str = "controller";

struct Lab {
    name: &'static str,
    /// What happens.
    story: &'static str,
    question: &'static str,
    answer: &'static str,
}

const LABS: [Lab; 6] = [
    Lab {
        name: "expired",
        story: "Foo web is created. From 60 s to 65 s the server accepts no watch; meanwhile the Foo is scaled to 3, and the \
                server forgets its history.",
        question: "At 66 s each watch is answered with 200, and a list follows at once. What did the watch say? What would a \
                   controller miss that begins to watch from \"now\" instead?",
        answer: "One event of type ERROR, with a Status of code 410: the server no longer knows what came after the version that \
                 was asked for. So the reflector lists. A controller that begins from \"now\" misses the change to 3 for ever. \
                 No Deployment has changed, but the server cannot know that, either.",
    },
    Lab {
        name: "lost-event",
        story: "Foo web has 2 replicas. At 60 s somebody scales the Deployment to 9, and the server never sends that event.",
        question: "The Deployment stays at 9 for an hour. Why does nothing in the controller notice, and what would?",
        answer: "The cache shows 2, and 2 is wanted. A resync would repeat the cache, not the server. A relist would notice \
                 (at the next 410 or restart), or an audit, which compares the cache with a list of metadata now and then: \
                 docs/requests.md, \"The audit\". The next change of the Deployment heals it, too: its event carries the whole \
                 object.",
    },
    Lab {
        name: "two-writes",
        story: "Foo web is scaled to 2, 5 and 3 within a millisecond.",
        question: "How many times was the Deployment written? Which numbers did the controller see?",
        answer: "Once, with 3. Three events put one key in the queue; the sync sees what the store holds when it begins. What was in between \
                 never existed for it. Level, not edge.",
    },
    Lab {
        name: "slow-webhook",
        story: "Each creation of a Deployment takes 20 s, as with a slow admission webhook. Foos a, b and c are created; there \
                are two workers.",
        question: "When was c created, and who made it wait? What would 50 workers change, and what would they cost?",
        answer: "At 46 s: both workers wait for the server, so c waits 20 s for a worker. More workers hide it, and cost memory, and 50 writes at once when the server is slow already. The production workers \
                 let another stand in for one that waits for a slow answer: src/client/slow_calls.rs. (If there are 409s, they are of syncs that \
                 still saw the Foo as it was before their own status: chapter 8.)",
    },
    Lab {
        name: "stale-cache",
        story: "The server's cache of Deployments stands still from 5 s to 65 s. Foo web is created at 10 s and scaled at 15 s. \
                First chapter 7's controller, then chapter 8's, then chapter 8's again, which is restarted at 20 s.",
        question: "Compare the creates. When does each learn that the Deployment exists? The third has forgotten its writes: \
                   why does it not create again?",
        answer: "Chapter 7 tries to create what it has created, with backoff, and is refused each time. Both learn of it at 66 s. Chapter 8 remembers its \
                 write, waits for the cache to show it, and sends nothing. After the restart, the first list asks for the newest state, which \
                 does not come from the cache that stands still: it shows the Deployment at once.",
    },
    Lab {
        name: "frozen-leader",
        story: "Two processes, a and b; a leads. At 30 s a is cut off from the server, at 90 s it is back.",
        question: "When did a stop to be the leader, when did b begin, and which of the two waits depends on whose clock?",
        answer: "a stops 10 s after the sending of its last renewal, by its own clock. b takes over 15 s after it has seen the \
                 Lease change for the last time, by its own clock. Between them are at least the 5 s that are meant as a margin.",
    },
];

/// Runs the program: `lab`, `lab NAME`, `lab NAME --answer`.
pub async fn main(program: &str) -> Result<(), String> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (name, is_answer) = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] | ["--help" | "-h"] => {
            println!(
                "Fault labs: the controller of the book, and one thing that goes wrong. In virtual time.\n"
            );
            println!(
                "  cargo run --example {program} -- NAME            what happens, what it did, and a question"
            );
            println!("  cargo run --example {program} -- NAME --answer   and the answer\n");
            LABS.iter().for_each(|lab| println!("{:<14} {}", lab.name, lab.story));
            return Ok(());
        }
        [name] => (name, false),
        [name, "--answer"] => (name, true),
        _ => return Err(format!("usage: {program} [NAME [--answer]]")),
    };
    let names = || LABS.map(|lab| lab.name).join(", ");
    let lab = LABS.iter().find(|lab| lab.name == name);
    let lab = lab.ok_or_else(|| format!("there is no lab {name:?}; there are {}", names()))?;
    println!("{} (It starts at 1 s.)\n", lab.story);
    run(lab.name).await;
    println!("\nQuestion: {}", lab.question);
    match is_answer {
        true => println!("\nAnswer: {}", lab.answer),
        false => println!("\n(The answer: {name} --answer)"),
    }
    Ok(())
}

async fn run(name: &str) {
    let cluster = Cluster::start().await;
    match name {
        "expired" => {
            start(&cluster);
            cluster.create_foo("web", 1).await;
            pass(60).await;
            let no_watch =
                Fault::new(When::verb("watch").user(ME), Action::refuse(503, "ServiceUnavailable"));
            let no_watch = cluster.sim.fault(no_watch);
            cluster.sim.cut_watches(ME, "");
            pass(5).await;
            cluster.scale_foo("web", 3).await;
            cluster.sim.compact();
            cluster.sim.heal(no_watch);
            pass(60).await;
        }
        "lost-event" => {
            start(&cluster);
            cluster.create_foo("web", 2).await;
            pass(60).await;
            let lost = Fault::new(When::verb("watch").resource("deployments").user(ME), Action::SkipEvent);
            let lost = cluster.sim.fault(lost);
            let (api, path) = (cluster.api("somebody"), format!("{DEPLOYMENTS}/web-deployment"));
            let mut deployment = api.get(&path).await.expect("it exists");
            deployment["spec"]["replicas"] = json!(9);
            api.put(&path, &deployment).await.expect("it is scaled");
            pass(30).await;
            cluster.sim.heal(lost);
            pass(3600).await;
            println!(
                "after an hour the Deployment asks for {} replicas\n",
                cluster.replicas("web").await.unwrap_or(0)
            );
        }
        "two-writes" => {
            start(&cluster);
            cluster.create_foo("web", 1).await;
            pass(60).await;
            for replicas in [2, 5, 3] {
                cluster.scale_foo("web", replicas).await;
            }
            pass(60).await;
        }
        "slow-webhook" => {
            start(&cluster);
            pass(5).await;
            let slow = When::verb("create").resource("deployments");
            cluster.sim.fault(Fault::new(slow, Action::Delay(Duration::from_secs(20))));
            for name in ["a", "b", "c"] {
                cluster.create_foo(name, 1).await;
            }
            pass(60).await;
        }
        "stale-cache" => return stale_cache(&cluster).await,
        _ => return frozen_leader(&cluster).await,
    }
    show(&cluster);
}

fn start(cluster: &Cluster) {
    let controller = Controller::new(cluster.api(ME));
    drop(tokio::spawn(async move { controller.run(2).await }));
}

fn start_careful(cluster: &Cluster) -> tokio::task::JoinHandle<()> {
    let careful = Careful::new(cluster.api(ME));
    tokio::spawn(async move { careful.run(2).await })
}

async fn pass(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

async fn stale_cache(cluster: &Cluster) {
    start(cluster);
    stand_still(cluster, || {}).await;
    println!("chapter 7:");
    show(cluster);
    let cluster = Cluster::start().await;
    drop(start_careful(&cluster));
    stand_still(&cluster, || {}).await;
    println!("\nchapter 8:");
    show(&cluster);
    let cluster = Cluster::start().await;
    let first = start_careful(&cluster);
    let restart = || {
        first.abort();
        drop(start_careful(&cluster));
    };
    stand_still(&cluster, restart).await;
    println!("\nchapter 8, restarted at 20 s:");
    show(&cluster);
}

async fn stand_still(cluster: &Cluster, at_20_s: impl FnOnce()) {
    pass(5).await;
    cluster.sim.freeze_cache(0, "apps", "deployments", true);
    pass(5).await;
    cluster.create_foo("web", 1).await;
    pass(5).await;
    cluster.scale_foo("web", 3).await;
    pass(5).await;
    at_20_s();
    pass(45).await;
    cluster.sim.freeze_cache(0, "apps", "deployments", false);
    pass(10).await;
}

async fn frozen_leader(cluster: &Cluster) {
    let electors = ["a", "b"].map(|name| std::sync::Arc::new(Elector::new(cluster.api(name), name)));
    for elector in &electors {
        let runs = elector.clone();
        drop(tokio::spawn(async move { runs.run().await }));
        pass(1).await;
    }
    let mut last = [false; 2];
    while cluster.sim.elapsed() < Duration::from_secs(120) {
        let leads = [electors[0].is_leader(), electors[1].is_leader()];
        for (name, (led, leads)) in ["a", "b"].iter().zip(last.iter().zip(leads)) {
            if *led != leads {
                println!(
                    "{:>7.1} s  {name} {}",
                    seconds(cluster),
                    if leads { "leads" } else { "no longer leads" }
                );
            }
        }
        last = leads;
        for (at, is_cut) in [(30, true), (90, false)] {
            if cluster.sim.elapsed().as_millis() / 100 == at * 10 {
                println!("{:>7.1} s  a is {}", seconds(cluster), if is_cut { "cut off" } else { "back" });
                cluster.sim.suspend("a", is_cut);
            }
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

fn seconds(cluster: &Cluster) -> f64 {
    cluster.sim.elapsed().as_secs_f64()
}

/// Prints the requests of the controller and of the users.
fn show(cluster: &Cluster) {
    println!("{:>10}  {:<10}  {:<6}  {:<30}  answer", "time", "who", "verb", "what");
    for request in cluster.sim.ledger() {
        let is_ours = ["foos", "deployments"].contains(&request.resource.as_str());
        if !is_ours
            || request.user == "admin"
            || request.uri == FOOS && request.user == "user" && request.verb == "list"
        {
            continue;
        }
        let part = if request.subresource.is_empty() { "" } else { "/status" };
        let what = format!("{} {}{part}", request.resource, request.name);
        let code = if request.code == 0 { "none".to_owned() } else { request.code.to_string() };
        let at = request.at.as_secs_f64();
        println!("{at:>8.3} s  {:<10}  {:<6}  {what:<30}  {code}", request.user, request.verb);
    }
}
