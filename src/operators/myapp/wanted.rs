//! The children that a Myapp wants: a pure function of the Myapp.

use k8s_openapi::api::core::v1::{ContainerPort, ServicePort};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use crate::api::labels::{self, Labels};
use crate::api::myapp::v1::Myapp;
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

pub(super) fn children(myapp: &Myapp) -> WantedChildren {
    let name = myapp.metadata.name.clone().unwrap_or_default();
    let labels = labels::common(KIND, &name);
    let ingress = myapp.spec.host.clone().filter(|host| !host.is_empty()).map(|host| WantedIngress {
        name: name.clone(),
        labels: labels.clone(),
        class: CLASS.to_owned(),
        host,
        service: name.clone(),
        service_port: myapp.spec.service_port,
    });
    WantedChildren {
        deployment: deployment(myapp, &name, &labels),
        service: service(myapp, &name, &labels),
        ingress,
    }
}

fn deployment(myapp: &Myapp, name: &str, labels: &Labels) -> WantedDeployment {
    let spec = &myapp.spec;
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

fn service(myapp: &Myapp, name: &str, labels: &Labels) -> WantedService {
    let port = ServicePort {
        port: myapp.spec.service_port,
        target_port: Some(IntOrString::Int(myapp.spec.container_port)),
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

    fn myapp(name: &str, spec: &serde_json::Value) -> Myapp {
        let mut full = json!({"image": "nginx:1.27", "containerPort": 80, "servicePort": 8080});
        full.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        serde_json::from_value(json!({
            "apiVersion": "myapp.timd.cn/v1", "kind": "Myapp", "metadata": {"name": name, "namespace": "ns"}, "spec": full,
        }))
        .unwrap()
    }

    #[test]
    fn children_share_the_name_and_select_the_pods() {
        let WantedChildren { deployment, service, ingress } =
            children(&myapp("web", &json!({"host": "web.example.com"})));
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
        assert!(children(&myapp("web", &json!({}))).ingress.is_none());
    }

    /// The source document sets the label `app` to the namespace, so two Myapps share their Pods.
    #[test]
    fn selectors_in_one_namespace_never_overlap() {
        let [one, two] = ["one", "two"].map(|name| children(&myapp(name, &json!({}))));
        let is_selected =
            one.service.selector.iter().all(|(key, value)| two.deployment.pod_labels.get(key) == Some(value));
        assert!(!is_selected);
    }
}
