//! The Deployment of a WebApp, and the hooks of the task that keeps it.
//!
//! These hooks only call the API server, as for any other child, so they run within the sync, and problems of the
//! Deployment show in the conditions as for every kind.
//!
//! | hook | done when |
//! |---|---|
//! | `pre_create`, `pre_delete` | at once |
//! | `create` | the Deployment exists, is ours and matches the spec |
//! | `post_create` | all its replicas are available |
//! | `delete` | the server has accepted the deletion |
//! | `post_delete` | no Deployment of the WebApp is left |

use std::time::Duration;

use super::tasks::HookError;
use crate::api::ApiResource;
use crate::api::labels::{self, Labels};
use crate::api::webapp::v1::{Hook, WebApp, WebAppSpec, image_reference};
use crate::cache::{Lister, Object, ObjectName, Slim};
use crate::client::Error;
use crate::controller::kinds::container::WantedContainer;
use crate::controller::kinds::deployment::{ObservedDeployment, WantedDeployment};
use crate::controller::{ChildHealth, ChildRef, Deletion, HealthPhase, Pass, StopReason};

const KIND: &str = "WebApp";

/// How soon to check again on a Deployment that is being deleted.
const STILL_THERE: Duration = Duration::from_secs(30);

/// Returns the labels by which the Deployment selects its Pods.
pub(super) fn selector(name: &str) -> Labels {
    let mut selector = labels::identity(KIND, name);
    selector.insert("app".to_owned(), name.to_owned());
    selector
}

/// Returns the Deployment that a WebApp asks for.
pub(super) fn wanted(name: &str, spec: &WebAppSpec) -> WantedDeployment {
    let labels = labels::common(KIND, name);
    let mut pod_labels = selector(name);
    pod_labels.extend(labels.clone());
    let container =
        WantedContainer { name: name.to_owned(), image: image_reference(spec), ..WantedContainer::default() };
    WantedDeployment {
        name: name.to_owned(),
        selector: selector(name),
        labels,
        pod_labels,
        replicas: spec.replicas,
        containers: vec![container],
    }
}

/// Runs a hook, and reports the Deployment's health to `pass`.
pub(super) async fn run(
    pass: &mut Pass<'_, Slim<WebApp>>,
    deployments: &Lister<ObservedDeployment>,
    hook: Hook,
) -> Result<Result<(), HookError>, StopReason> {
    let name = pass.name().to_owned();
    let not_yet = |message: String| Err(HookError::not_yet(message, None));
    Ok(match hook {
        Hook::PreCreate | Hook::PreDelete => Ok(()),
        Hook::Create => {
            let wanted = wanted(pass.name(), &pass.object().spec);
            let applied = pass.apply_new(&wanted, deployments).await?;
            if applied.outcome.is_as_wanted() { Ok(()) } else { not_yet(applied.health.message) }
        }
        Hook::PostCreate => {
            let wanted = wanted(pass.name(), &pass.object().spec);
            let ChildHealth { phase, message, .. } = pass.apply(&wanted, deployments).await?.health;
            if phase == HealthPhase::Ready { Ok(()) } else { not_yet(message) }
        }
        Hook::Delete => {
            let ours = deployments.controlled_by(&pass.owner().uid);
            let Some(child) = ours.iter().map(ChildRef::of).find(|child| child.name == name) else {
                return Ok(Ok(()));
            };
            match delete(pass, &child).await? {
                Deletion::Deleted | Deletion::NothingToDo => Ok(()),
                Deletion::NotNow => not_yet("the WebApp is not being deleted".to_owned()),
                Deletion::Refused { status, .. } => {
                    not_yet(ChildHealth::refused(&format!("to delete Deployment {name:?}"), &status).message)
                }
            }
        }
        Hook::PostDelete => {
            let left = left(pass, deployments).await?;
            // Left-overs: created late by a dead process, or under another name by a user.
            for child in &left {
                delete(pass, child).await?;
            }
            let names: Vec<&str> = left.iter().map(|child| child.name.as_str()).collect();
            let message = format!("Waiting for the deletion of Deployment {}", names.join(", "));
            // A Deployment without our label is not watched: its end enqueues no key.
            if left.is_empty() { Ok(()) } else { Err(HookError::not_yet(message, Some(STILL_THERE))) }
        }
    })
}

/// Returns the Deployments of this WebApp that are left. If the cache shows none, the server is asked for more: the
/// finalizer must outlast them all.
async fn left(
    pass: &Pass<'_, Slim<WebApp>>,
    deployments: &Lister<ObservedDeployment>,
) -> Result<Vec<ChildRef>, Error> {
    let cached = deployments.controlled_by(&pass.owner().uid);
    let cached: Vec<ChildRef> = cached.iter().map(ChildRef::of).filter(|child| child.is_controlled).collect();
    if !cached.is_empty() {
        return Ok(cached);
    }
    let resource = ApiResource::of::<ObservedDeployment>();
    pass.unseen_children(&resource).await
}

/// Deletes a Deployment of this WebApp.
async fn delete(pass: &mut Pass<'_, Slim<WebApp>>, child: &ChildRef) -> Result<Deletion, Error> {
    let deletion = pass.delete_of_deleted(&ApiResource::of::<ObservedDeployment>(), child).await?;
    if let Deletion::Refused { status, requeue_after } = &deletion {
        pass.refused_deletion(&format!("Deployment {:?}", child.name), status, *requeue_after);
    }
    Ok(deletion)
}

/// Returns the cached Deployment, if this WebApp owns it.
pub(super) fn observed(
    pass: &Pass<'_, Slim<WebApp>>,
    deployments: &Lister<ObservedDeployment>,
) -> Option<ObservedDeployment> {
    let name = ObjectName::new(pass.owner().name.namespace(), pass.name());
    let cached = deployments.get(&name)?;
    let deployment = cached.readable()?;
    let is_ours = deployment.controller().is_some_and(|owner| owner.uid == pass.owner().uid);
    is_ours.then(|| ObservedDeployment::clone(deployment))
}

/// Returns the health of a WebApp whose tasks are done and keep no Deployment.
pub(super) fn none_wanted() -> ChildHealth {
    ChildHealth::ready("All tasks have succeeded")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_the_tag_of_the_image() {
        let (version, image) = ("stable-alpine3.20-perl".to_owned(), "nginx:latest".to_owned());
        let wanted = wanted("web", &WebAppSpec { version, replicas: 2, image });
        assert_eq!(wanted.containers[0].image, "nginx:stable-alpine3.20-perl");
        assert_eq!((wanted.name.as_str(), wanted.replicas), ("web", 2));
        assert!(wanted.selector.iter().all(|(key, value)| wanted.pod_labels.get(key) == Some(value)));
    }

    /// I18: selectors of two WebApps never overlap.
    #[test]
    fn selectors_of_two_webapps_differ() {
        assert_ne!(selector("a")[labels::INSTANCE], selector("b")[labels::INSTANCE]);
    }
}
