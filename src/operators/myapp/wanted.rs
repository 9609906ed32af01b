//! The children that a Myapp wants: a pure function of its name and spec.

use k8s_openapi::api::core::v1::{ContainerPort, ServicePort};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use crate::api::labels::{self, Labels};
use crate::api::myapp::v1::MyappSpec;
use crate::controller::kinds::container::WantedContainer;
use crate::controller::kinds::deployment::WantedDeployment;
use crate::controller::kinds::ingress::WantedIngress;
use crate::controller::kinds::service::{ServiceType, WantedService};

const KIND: &str = "Myapp";
/// The Ingress class.
const CLASS: &str = "nginx";

/// All children of a Myapp.
#[derive(Debug)]
pub(super) struct WantedChildren {
    pub(super) deployment: WantedDeployment,
    pub(super) service: WantedService,
    /// `None` without a host.
    pub(super) ingress: Option<WantedIngress>,
}

/// Returns the labels by which Deployment and Service select the Pods.
pub(super) fn selector(name: &str) -> Labels {
    let mut selector = labels::identity(KIND, name);
    selector.insert("app".to_owned(), name.to_owned());
    selector.insert("release".to_owned(), "canary".to_owned());
    selector
}

pub(super) fn children(name: &str, spec: &MyappSpec) -> WantedChildren {
    let labels = labels::common(KIND, name);
    let ingress = spec.host.clone().filter(|host| !host.is_empty()).map(|host| WantedIngress {
        name: name.to_owned(),
        labels: labels.clone(),
        class: CLASS.to_owned(),
        host,
        service: name.to_owned(),
        service_port: spec.service_port,
    });
    WantedChildren {
        deployment: deployment(name, spec, &labels),
        service: service(name, spec, &labels),
        ingress,
    }
}

fn deployment(name: &str, spec: &MyappSpec, labels: &Labels) -> WantedDeployment {
    let mut pod_labels = selector(name);
    pod_labels.extend(labels.clone());
    let container = WantedContainer {
        name: name.to_owned(),
        image: spec.image.clone(),
        image_pull_policy: Some("IfNotPresent".to_owned()),
        env: spec.env.clone(),
        ports: vec![ContainerPort { container_port: spec.container_port, ..ContainerPort::default() }],
        // `Some` even if the spec sets none, so that stale resources are removed.
        resources: Some(spec.resources.clone().unwrap_or_default()),
    };
    WantedDeployment {
        name: name.to_owned(),
        labels: labels.clone(),
        selector: selector(name),
        pod_labels,
        replicas: spec.replicas,
        containers: vec![container],
    }
}

fn service(name: &str, spec: &MyappSpec, labels: &Labels) -> WantedService {
    let port = ServicePort {
        port: spec.service_port,
        target_port: Some(IntOrString::Int(spec.container_port)),
        ..ServicePort::default()
    };
    WantedService {
        name: name.to_owned(),
        labels: labels.clone(),
        selector: selector(name),
        service_type: ServiceType::ClusterIp,
        ports: vec![port],
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn spec(of: &serde_json::Value) -> MyappSpec {
        let mut full = json!({"image": "nginx:1.27", "containerPort": 80, "servicePort": 8080});
        full.as_object_mut().unwrap().extend(of.as_object().unwrap().clone());
        serde_json::from_value(full).unwrap()
    }

    #[test]
    fn children_share_the_name_and_select_the_pods() {
        let WantedChildren { deployment, service, ingress } =
            children("web", &spec(&json!({"host": "web.example.com"})));
        let ingress = ingress.unwrap();
        assert_eq!([&deployment.name, &service.name, &ingress.name, &ingress.service], ["web"; 4]);
        assert_eq!(deployment.selector, service.selector);
        assert!(service.selector.iter().all(|(key, value)| deployment.pod_labels.get(key) == Some(value)));
        assert_eq!(
            labels::to_selector(&service.selector),
            "app=web,app.kubernetes.io/instance=web,app.kubernetes.io/name=myapp,release=canary"
        );
        assert_eq!((service.ports[0].port, ingress.service_port), (8080, 8080));
        assert_eq!(service.ports[0].target_port, Some(IntOrString::Int(80)));
    }

    #[test]
    fn without_a_host_there_is_no_ingress() {
        assert!(children("web", &spec(&json!({}))).ingress.is_none());
    }

    /// The source document sets the label `app` to the namespace, so two Myapps share their Pods.
    #[test]
    fn selectors_in_one_namespace_never_overlap() {
        let [one, two] = ["one", "two"].map(|name| children(name, &spec(&json!({}))));
        let is_selected =
            one.service.selector.iter().all(|(key, value)| two.deployment.pod_labels.get(key) == Some(value));
        assert!(!is_selected);
    }
}
