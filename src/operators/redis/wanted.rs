//! The Pods that a Redis wants: a pure function of its name and spec.

use k8s_openapi::api::core::v1::ContainerPort;

use crate::api::labels::{self, Labels};
use crate::api::redis::v1::RedisSpec;
use crate::controller::kinds::container::WantedContainer;
use crate::controller::kinds::pod::WantedPod;

const KIND: &str = "Redis";

/// Returns the labels that select the Pods, also for the scale subresource.
pub(super) fn selector(name: &str) -> Labels {
    let mut selector = labels::identity(KIND, name);
    selector.insert("app".to_owned(), name.to_owned());
    selector
}

/// Returns the Pod with this ordinal.
pub(super) fn pod(name: &str, spec: &RedisSpec, ordinal: u32) -> WantedPod {
    let mut labels = labels::common(KIND, name);
    labels.extend(selector(name));
    let container = WantedContainer {
        name: name.to_owned(),
        image: spec.image.clone(),
        image_pull_policy: Some("IfNotPresent".to_owned()),
        ports: vec![ContainerPort { container_port: spec.port, ..ContainerPort::default() }],
        ..WantedContainer::default()
    };
    WantedPod { name: format!("{name}-{ordinal}"), labels, container }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_has_its_ordinal_and_common_labels() {
        let spec = RedisSpec { replicas: 2, port: 6379, image: "redis:7.4".to_owned() };
        let pod = pod("cache", &spec, 7);
        assert_eq!((pod.name.as_str(), pod.container.name.as_str()), ("cache-7", "cache"));
        assert_eq!(
            labels::to_selector(&pod.labels),
            "app=cache,app.kubernetes.io/instance=cache,app.kubernetes.io/managed-by=windlass,app.kubernetes.io/name=redis"
        );
        assert!(selector("cache").iter().all(|(key, value)| pod.labels.get(key) == Some(value)));
    }

    /// I18: see `docs/faults.md`.
    #[test]
    fn selectors_of_two_redises_never_overlap() {
        assert_ne!(selector("a")[labels::INSTANCE], selector("a-0")[labels::INSTANCE]);
    }
}
