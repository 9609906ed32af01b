//! At its goal an operator writes nothing: neither a child nor a status, whatever the spec.
//!
//! `WINDLASS_FIXED_POINT_SPECS` (20) says how many specs of each kind are generated, from `WINDLASS_E2E_SEED` (1).

use std::time::Duration;

use kube_client::api::{ListParams, Patch, PatchParams};
use macro_rules_attribute::apply;
use serde_json::{Value, json};

use crate::generated::KINDS;
use crate::support::{LedgerEntry, Scene, both_beds, is_ready, number, pass, seed, wait_until};

/// All objects of a kind.
async fn all(scene: &Scene, kind: &str) -> Vec<Value> {
    let all = scene.of(kind).list(&ListParams::default()).await.expect("they are listed");
    all.items.iter().map(|object| serde_json::to_value(object).expect("it is JSON")).collect()
}

/// Waits until all objects of all kinds are Ready for their present specs, and nothing more is written for 10 s.
/// Returns how many there are.
async fn until_at_rest(scene: &Scene) -> usize {
    let mut count = 0;
    for (kind, _) in KINDS {
        count += wait_until(&format!("every {kind} is Ready"), async || {
            let objects = all(scene, kind).await;
            let late: Vec<&Value> = objects.iter().filter(|object| !is_ready(object)).collect();
            match late.first() {
                None => Ok(objects.len()),
                Some(first) => Err(format!("{} are not, as {first:#}", late.len())),
            }
        })
        .await;
    }
    wait_until("nothing more is written", async || {
        let before = scene.writes().len();
        pass(Duration::from_secs(10)).await;
        let since = scene.writes().split_off(before);
        if since.is_empty() { Ok(()) } else { Err(since) }
    })
    .await;
    count
}

/// How many passes the operator has made.
fn passes(scene: &Scene) -> usize {
    scene.operator().log().matches("Synced outcome=Done").count()
}

/// Waits until the operator has made so many passes, and a while more.
async fn until_passes(scene: &Scene, wanted: usize) {
    wait_until("every object was looked at once more", async || {
        pass(Duration::from_millis(500)).await;
        let made = passes(scene);
        if made >= wanted { Ok(()) } else { Err(format!("{made} of {wanted} passes")) }
    })
    .await;
    pass(Duration::from_secs(5)).await;
}

fn written_since(scene: &Scene, before: usize) -> Vec<LedgerEntry> {
    scene.writes().split_off(before)
}

/// What is Ready is looked at once more for each reason there is, and nothing is written.
async fn assert_fixed_point(scene: &mut Scene) {
    let count = until_at_rest(scene).await;
    assert!(count > 0, "there are objects");
    let (before, made) = (scene.writes().len(), passes(scene));
    let again = Patch::Merge(json!({"metadata": {"annotations": {"windlass.dev/reconcile-at": "now"}}}));
    for (kind, _) in KINDS {
        for object in all(scene, kind).await {
            let name = object["metadata"]["name"].as_str().expect("it has a name");
            drop(scene.of(kind).patch(name, &PatchParams::default(), &again).await.expect("it is patched"));
        }
    }
    until_passes(scene, made + count).await;
    assert_eq!(written_since(scene, before), [], "asked for a pass");
    let ended = scene.take_operator().terminate().await;
    assert_eq!(ended.code(), Some(0));
    scene.start_operator();
    until_passes(scene, count).await;
    assert_eq!(written_since(scene, before), [], "started anew");
}

#[apply(both_beds)]
async fn after_convergence_a_full_pass_over_generated_specs_writes_nothing() {
    let mut scene = Scene::new("fixed-point").await;
    let specs = number("WINDLASS_FIXED_POINT_SPECS", 20);
    for (kind, make) in KINDS {
        let mut random = fastrand::Rng::with_seed(seed());
        for at in 0..usize::try_from(specs).expect("it is small") {
            let name = format!("{}-{at}", kind.to_lowercase());
            let spec = make(&mut random, at, &name);
            scene.make(kind, &name, spec).await;
        }
    }
    assert_fixed_point(&mut scene).await;
}

#[apply(both_beds)]
async fn after_convergence_a_full_pass_over_the_samples_writes_nothing() {
    let mut scene = Scene::new("fixed-point-samples").await;
    let dir = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("crd/samples");
    let mut samples = 0;
    for file in std::fs::read_dir(dir).expect("there are samples") {
        let text = std::fs::read_to_string(file.expect("a file").path()).expect("it is text");
        for object in serde_saphyr::from_multiple::<Value>(&text).expect("it is YAML") {
            let kind = object["kind"].as_str().expect("it has a kind").to_owned();
            if KINDS.iter().any(|(known, _)| *known == kind) {
                scene.make_whole(&kind, object).await;
                samples += 1;
            }
        }
    }
    assert!(samples >= 2 * KINDS.len(), "each kind has a small one and a full one");
    assert_fixed_point(&mut scene).await;
}
