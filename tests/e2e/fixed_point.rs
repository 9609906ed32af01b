//! A converged operator writes neither children nor status, for any spec.
//!
//! `WINDLASS_FIXED_POINT_SPECS` (20) sets how many specs of each kind are generated from `WINDLASS_E2E_SEED` (1).

use std::time::Duration;

use kube_client::api::{ListParams, Patch, PatchParams};
use macro_rules_attribute::apply;
use serde_json::{Value, json};

use crate::generated::KINDS;
use crate::support::{LedgerEntry, Scene, both_beds, is_ready, number, pass, seed, wait_until};

/// Returns all objects of a kind.
async fn all(scene: &Scene, kind: &str) -> Vec<Value> {
    let all = scene.of(kind).list(&ListParams::default()).await.expect("the kind can be listed");
    all.items.iter().map(|object| serde_json::to_value(object).expect("an object serializes")).collect()
}

/// Waits until all objects of all kinds are Ready at their current generation and no write follows for 10 s.
/// Returns the number of objects.
async fn until_at_rest(scene: &Scene) -> usize {
    let mut count = 0;
    for (kind, _) in KINDS {
        count += wait_until(&format!("every {kind} is Ready"), async || {
            let objects = all(scene, kind).await;
            let late: Vec<&Value> = objects.iter().filter(|object| !is_ready(object)).collect();
            match late.first() {
                None => Ok(objects.len()),
                Some(first) => Err(format!("{} are not Ready, for example {first:#}", late.len())),
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

/// Counts the operator's completed passes.
fn passes(scene: &Scene) -> usize {
    scene.operator().log().matches("Synced outcome=Done").count()
}

/// Waits until the operator has made `wanted` passes, and then five seconds more.
async fn until_passes(scene: &Scene, wanted: usize) {
    wait_until("every object was synced once more", async || {
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

/// Asserts that the operator writes nothing when it syncs all Ready objects again, on request and after a restart.
async fn assert_fixed_point(scene: &mut Scene) {
    let count = until_at_rest(scene).await;
    assert!(count > 0, "there are objects");
    let (before, made) = (scene.writes().len(), passes(scene));
    let again = Patch::Merge(json!({"metadata": {"annotations": {"windlass.dev/reconcile-at": "now"}}}));
    for (kind, _) in KINDS {
        for object in all(scene, kind).await {
            let name = object["metadata"]["name"].as_str().expect("objects have names");
            drop(scene.of(kind).patch(name, &PatchParams::default(), &again).await.expect("patched"));
        }
    }
    until_passes(scene, made + count).await;
    assert_eq!(written_since(scene, before), [], "after a requested pass");
    let ended = scene.take_operator().terminate().await;
    assert_eq!(ended.code(), Some(0));
    scene.start_operator();
    until_passes(scene, count).await;
    assert_eq!(written_since(scene, before), [], "after a restart");
}

#[apply(both_beds)]
async fn full_pass_over_generated_specs_writes_nothing() {
    let mut scene = Scene::new("fixed-point").await;
    let specs = number("WINDLASS_FIXED_POINT_SPECS", 20);
    for (kind, make) in KINDS {
        let mut random = fastrand::Rng::with_seed(seed());
        for at in 0..usize::try_from(specs).expect("the number is small") {
            let name = format!("{}-{at}", kind.to_lowercase());
            let spec = make(&mut random, at, &name);
            scene.make(kind, &name, spec).await;
        }
    }
    assert_fixed_point(&mut scene).await;
}

#[apply(both_beds)]
async fn full_pass_over_the_samples_writes_nothing() {
    let mut scene = Scene::new("fixed-point-samples").await;
    let dir = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("crd/samples");
    let mut samples = 0;
    for file in std::fs::read_dir(dir).expect("the samples exist") {
        let text = std::fs::read_to_string(file.expect("a sample").path()).expect("samples are text");
        for object in serde_saphyr::from_multiple::<Value>(&text).expect("samples are YAML") {
            let kind = object["kind"].as_str().expect("samples have a kind").to_owned();
            if KINDS.iter().any(|(known, _)| *known == kind) {
                scene.make_whole(&kind, object).await;
                samples += 1;
            }
        }
    }
    assert!(samples >= 2 * KINDS.len(), "each kind has a minimal and a full sample");
    assert_fixed_point(&mut scene).await;
}
