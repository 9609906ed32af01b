//! An operator for several namespaces.

use kube_client::api::{DeleteParams, ListParams};
use macro_rules_attribute::apply;
use serde_json::json;

use crate::support::{Bed, LedgerEntry, Scene, both_beds};

/// It has the role by a binding in each of its two namespaces, and none elsewhere.
#[apply(both_beds)]
async fn two_of_three_namespaces_are_watched_with_rights_there_alone() {
    let bed = Bed::shared().await;
    let scene = async |name: &str| Scene::on(bed.clone(), name).await;
    let (first, second, third) = (scene("team-a").await, scene("team-b").await, scene("team-c").await);
    let user = format!("{}-and-b", first.user());
    for scene in [&first, &second, &third] {
        scene.create_foo("web", "web", 1).await;
    }
    for scene in [&first, &second] {
        bed.grant_all(&user, &scene.namespace).await;
    }
    let namespaces = format!("--namespace={},{}", first.namespace, second.namespace);
    let operator = bed.operator_without_role(&user, &[&namespaces, "--controllers=foo"]);
    for scene in [&first, &second] {
        scene.ready("web").await;
        scene.patch_foo("web", json!({"spec": {"replicas": 2}})).await;
        scene.deployment_until("web", "scaled", |web| web.spec.replicas == Some(2)).await;
        let before = scene.deployments.get("web").await.unwrap().metadata.uid;
        drop(scene.deployments.delete("web", &DeleteParams::background()).await.unwrap());
        scene.deployment_until("web", "created again", |web| web.metadata.uid != before).await;
        scene.ready("web").await;
    }
    let foo = third.foos.get("web").await.unwrap();
    assert!(foo.status.is_none(), "{foo:?}");
    assert_eq!(third.deployments.list(&ListParams::default()).await.unwrap().items.len(), 0);

    let ledger = bed.ledger(&user);
    let own = [&first, &second].map(|scene| format!("/namespaces/{}/", scene.namespace));
    let elsewhere = |entry: &&LedgerEntry| !own.iter().any(|part| entry.uri.contains(part));
    assert_eq!(ledger.iter().filter(elsewhere).collect::<Vec<_>>(), Vec::<&LedgerEntry>::new());
    assert_eq!(ledger.iter().filter(|entry| entry.code == 403).count(), 0, "{ledger:?}");
    assert_eq!(
        operator.log().matches("own writes within 30 s").count(),
        0,
        "each namespace's cache shows its writes"
    );
    assert_eq!(operator.terminate().await.code(), Some(0));
}
