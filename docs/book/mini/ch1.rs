//! Chapter 1, level, not edge: a loop that looks at everything, compares, and acts.

use serde_json::json;

use crate::cluster::{Api, DEPLOYMENTS, FOOS, Object, Refused};

// [given action]
/// What has to be done about a difference.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Create this Deployment.
    Create(Object),
    /// Replace the Deployment by this.
    Replace(Object),
}
// [/given action]

// [given edge]
/// The naive way: follows each change by as much.
pub fn after_a_change(deployment: u64, foo_before: u64, foo_now: u64) -> u64 {
    deployment + foo_now - foo_before
}
// [/given edge]

/// Returns the Deployment that a Foo wants.
pub fn new_deployment(foo: &Object) -> Object {
    let labels = json!({"app": "nginx", "controller": foo["metadata"]["name"]});
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {
            "name": foo["spec"]["deploymentName"],
            "ownerReferences": [{
                "apiVersion": "samplecontroller.k8s.io/v1alpha1",
                "kind": "Foo",
                "name": foo["metadata"]["name"],
                "uid": foo["metadata"]["uid"],
                "controller": true,
            }],
        },
        "spec": {
            "replicas": foo["spec"]["replicas"],
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{"name": "nginx", "image": "nginx:latest"}]},
            },
        },
    })
}

// [compare]
/// Compares what a Foo wants with its Deployment. Nothing to do is `None`.
pub fn compare(foo: &Object, deployment: Option<&Object>) -> Option<Action> {
    let Some(deployment) = deployment else {
        return Some(Action::Create(new_deployment(foo)));
    };
    if deployment["spec"]["replicas"] == foo["spec"]["replicas"] {
        return None;
    }
    // What is not ours stays, and so does the version that we have seen.
    let mut wanted = deployment.clone();
    wanted["spec"]["replicas"] = foo["spec"]["replicas"].clone();
    Some(Action::Replace(wanted))
}
// [/compare]

// [poll]
/// Looks at every Foo once, and returns how many actions that took.
pub async fn poll_once(api: &Api) -> Result<usize, Refused> {
    let foos = api.get(FOOS).await?;
    let deployments = api.get(DEPLOYMENTS).await?;
    let mut actions = 0;
    for foo in items(&foos) {
        let name = &foo["spec"]["deploymentName"];
        let deployment = items(&deployments).iter().find(|one| one["metadata"]["name"] == *name);
        if let Some(action) = compare(foo, deployment) {
            act(api, &action).await?;
            actions += 1;
        }
    }
    Ok(actions)
}
// [/poll]

/// Does it, and returns the Deployment as the server has stored it.
pub async fn act(api: &Api, action: &Action) -> Result<Object, Refused> {
    match action {
        Action::Create(deployment) => api.post(DEPLOYMENTS, deployment).await,
        Action::Replace(deployment) => {
            let name = deployment["metadata"]["name"].as_str().unwrap_or_default();
            api.put(&format!("{DEPLOYMENTS}/{name}"), deployment).await
        }
    }
}

/// Returns the objects of a list.
pub fn items(list: &Object) -> &[Object] {
    list["items"].as_array().map_or(&[], Vec::as_slice)
}
