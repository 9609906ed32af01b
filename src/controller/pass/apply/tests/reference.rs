//! The owner reference of a child.

use super::*;
use crate::api::labels;

/// With a reference that does not block, the owner would be deleted before its child.
#[tokio::test(start_paused = true)]
async fn owner_reference_is_restored_and_others_are_kept() {
    let theirs = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "theirs", "uid": "theirs"});
    for (field, value, words) in [
        ("blockOwnerDeletion", json!(false), "blockOwnerDeletion was none, wanted true"),
        ("blockOwnerDeletion", Value::Null, "blockOwnerDeletion was none, wanted true"),
        ("controller", json!(false), "controller was none, wanted true"),
        ("name", json!("two"), "name was \"two\", wanted \"one\""),
        ("kind", json!("Fu"), "kind was \"Fu\", wanted \"Foo\""),
        (
            "apiVersion",
            json!("samplecontroller.k8s.io/v0"),
            "apiVersion was \"samplecontroller.k8s.io/v0\", wanted \"samplecontroller.k8s.io/v1alpha1\"",
        ),
    ] {
        let server = TestServer::start().await;
        let mut object = live(&server, "Foo", "one", "owner-uid");
        object["metadata"]["labels"][labels::MANAGED_BY] = json!(labels::MANAGER);
        let references = &mut object["metadata"]["ownerReferences"];
        references[0][field] = value.clone();
        if value.is_null() {
            references[0].as_object_mut().unwrap().remove(field);
        }
        *references = json!([theirs, references[0]]);
        server.store(DEPLOYMENTS, object.clone());
        let answer = ensure(&server, 1, Some(&object)).await.unwrap();
        let ApplyOutcome::Updated(_, differences) = answer else { panic!("{field}: {answer:?}") };
        assert_eq!(describe(&differences), format!("metadata.ownerReferences[one].{words}"));
        let now = server.get(WEB).unwrap();
        assert_eq!(now["metadata"]["ownerReferences"], json!([theirs, reference("Foo", "one", "owner-uid")]));
        server.requests();
        assert!(
            matches!(ensure(&server, 1, Some(&now)).await.unwrap(), ApplyOutcome::Unchanged(_)),
            "{field}"
        );
        assert_eq!(server.requests(), Vec::<String>::new());
    }
}

/// An object that refers to our owner is foreign if it lacks our label or has another controller.
#[tokio::test(start_paused = true)]
async fn owner_reference_alone_does_not_imply_ownership() {
    let ours = json!({"apiVersion": "samplecontroller.k8s.io/v1alpha1", "kind": "Foo", "name": "one", "uid": "owner-uid"});
    let theirs =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "a", "uid": "a", "controller": true});
    let label = json!({labels::MANAGED_BY: labels::MANAGER});
    for (labels, references) in [(json!({}), json!([ours])), (label, json!([ours, theirs]))] {
        let server = TestServer::start().await;
        let metadata =
            json!({"name": "web", "namespace": "ns", "labels": labels, "ownerReferences": references});
        let object = server.store(DEPLOYMENTS, json!({"metadata": metadata}));
        let answer = ensure(&server, 1, Some(&object)).await.unwrap();
        assert!(matches!(answer, ApplyOutcome::ResourceExists { .. }), "{answer:?}");
    }
}
