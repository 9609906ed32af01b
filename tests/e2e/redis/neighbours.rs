//! Redis objects that share an operator.

use kube_client::api::{Api, Patch, PatchParams, PostParams};
use macro_rules_attribute::apply;
use serde_json::json;
use windlass::api::redis::v1::Redis;

use super::spec;
use crate::support::{Bed, embedded_bed, wait_until};

const HUGE: i32 = 600;
/// How many Pods one pass deletes at most, and how many passes each worker may make before it takes a new key: those of the
/// two huge ones, which were queued before.
const DELETES_BEFORE: usize = 2 * 2 * 128;

async fn create(bed: &Bed, namespace: &str, replicas: i32) -> Api<Redis> {
    let all: Api<Redis> = Api::namespaced(bed.client(), namespace);
    let redis =
        serde_json::from_value(json!({"metadata": {"name": "cache"}, "spec": spec(replicas)})).unwrap();
    all.create(&PostParams::default(), &redis).await.unwrap();
    all
}

async fn until_ready(all: &Api<Redis>, pods: i32) {
    wait_until("all Pods are ready", async || {
        let redis = all.get("cache").await.map_err(|error| error.to_string())?;
        let ready = redis.status.unwrap_or_default().ready_replicas;
        if ready == pods { Ok(()) } else { Err(format!("{ready} are ready")) }
    })
    .await;
}

#[apply(embedded_bed)]
#[why = "it counts requests in a cluster without other cases"]
async fn huge_scale_downs_do_not_delay_a_neighbour() {
    let bed = Bed::shared().await;
    let mut huge = Vec::new();
    let _operator = bed.operator("neighbours", &["--controllers=redis"]);
    for name in ["huge-a", "huge-b"] {
        let namespace = bed.namespace(name).await;
        huge.push(create(&bed, &namespace, HUGE).await);
    }
    for all in &huge {
        until_ready(all, HUGE).await;
    }
    let namespace = bed.namespace("small").await;
    for all in &huge {
        let none = Patch::Merge(json!({"spec": {"replicas": 0}}));
        all.patch("cache", &PatchParams::default(), &none).await.unwrap();
    }
    let small = create(&bed, &namespace, 1).await;
    until_ready(&small, 1).await;
    let ledger = bed.ledger("neighbours");
    let is_pod = |verb: &str, at: usize| ledger[at].verb == verb && ledger[at].resource == "pods";
    let created = (0..ledger.len())
        .find(|&at| is_pod("create", at) && ledger[at].uri.contains(&format!("/namespaces/{namespace}/")))
        .expect("the Pod was created");
    let deletes = (0..created).filter(|&at| is_pod("delete", at)).count();
    assert!(deletes <= DELETES_BEFORE, "{deletes} of {} deletes came first", 2 * HUGE);
    for all in &huge {
        until_ready(all, 0).await;
    }
}
