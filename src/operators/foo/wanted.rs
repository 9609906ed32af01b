//! The Deployment that a Foo wants: a pure function of its name and spec.

use crate::api::labels::{self, Labels};
use crate::api::samplecontroller::v1alpha1::FooSpec;
use crate::controller::kinds::container::WantedContainer;
use crate::controller::kinds::deployment::WantedDeployment;

const KIND: &str = "Foo";

/// Returns the Deployment's Pod selector: the two labels of sample-controller, and those for kind and name.
pub(super) fn selector(name: &str) -> Labels {
    let mut selector = labels::identity(KIND, name);
    selector.insert("app".to_owned(), "nginx".to_owned());
    selector.insert("controller".to_owned(), name.to_owned());
    selector
}

pub(super) fn deployment(name: &str, spec: &FooSpec) -> WantedDeployment {
    let common = labels::common(KIND, name);
    let selector = selector(name);
    let mut pod_labels = selector.clone();
    pod_labels.extend(common.clone());
    let nginx = WantedContainer {
        name: "nginx".to_owned(),
        image: "nginx:latest".to_owned(),
        ..WantedContainer::default()
    };
    WantedDeployment {
        name: spec.deployment_name.clone(),
        labels: common,
        selector,
        pod_labels,
        replicas: spec.replicas,
        containers: vec![nginx],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deployment_has_sample_controller_and_common_labels() {
        let wanted = deployment("one", &FooSpec { deployment_name: "web".to_owned(), replicas: 3 });
        assert_eq!((wanted.name.as_str(), wanted.replicas), ("web", 3));
        assert_eq!(
            labels::to_selector(&wanted.selector),
            "app=nginx,app.kubernetes.io/instance=one,app.kubernetes.io/name=foo,controller=one"
        );
        assert_eq!(wanted.labels[labels::MANAGED_BY], "windlass");
        assert_eq!(wanted.pod_labels[labels::MANAGED_BY], "windlass");
        assert!(wanted.selector.iter().all(|(key, value)| wanted.pod_labels.get(key) == Some(value)));
    }

    /// I18: see `docs/faults.md`.
    #[test]
    fn selectors_of_two_foos_never_overlap() {
        let [one, two] = ["one", "two"].map(selector);
        assert_ne!(one[labels::INSTANCE], two[labels::INSTANCE]);
    }
}
