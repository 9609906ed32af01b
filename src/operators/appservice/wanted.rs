//! The children that an AppService wants: a pure function of its name and spec.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{ContainerPort, ServicePort};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use crate::api::appservice::v1alpha1::AppServiceSpec;
use crate::api::labels::{self, Labels};
use crate::controller::kinds::container::WantedContainer;
use crate::controller::kinds::deployment::WantedDeployment;
use crate::controller::kinds::service::{ServiceType, WantedService};

const KIND: &str = "AppService";

/// All children of an AppService.
#[derive(Debug)]
pub(super) struct WantedChildren {
    pub(super) deployment: WantedDeployment,
    /// `None` without ports.
    pub(super) service: Option<WantedService>,
}

/// Returns the labels by which Deployment and Service select the Pods.
pub(super) fn selector(name: &str) -> Labels {
    let mut selector = labels::identity(KIND, name);
    selector.insert("app".to_owned(), name.to_owned());
    selector
}

pub(super) fn children(name: &str, spec: &AppServiceSpec) -> WantedChildren {
    let labels = labels::common(KIND, name);
    let service = (!spec.ports.is_empty()).then(|| WantedService {
        name: name.to_owned(),
        labels: labels.clone(),
        selector: selector(name),
        service_type: ServiceType::NodePort,
        ports: spec.ports.clone(),
    });
    WantedChildren { deployment: deployment(name, spec, &labels), service }
}

fn deployment(name: &str, spec: &AppServiceSpec, labels: &Labels) -> WantedDeployment {
    let mut own = labels.clone();
    own.insert("app".to_owned(), name.to_owned());
    let mut pod_labels = selector(name);
    pod_labels.extend(labels.clone());
    let container = WantedContainer {
        name: name.to_owned(),
        image: spec.image.clone(),
        image_pull_policy: Some("IfNotPresent".to_owned()),
        env: spec.envs.clone(),
        ports: container_ports(&spec.ports),
        // `Some` even if the spec sets none, so that stale resources are removed.
        resources: Some(spec.resources.clone().unwrap_or_default()),
    };
    WantedDeployment {
        name: name.to_owned(),
        labels: own,
        selector: selector(name),
        pod_labels,
        replicas: spec.replicas,
        containers: vec![container],
    }
}

/// Returns the container ports for the ports of the Service: a numeric target port as is, a named target port with the
/// number `port`. Merges duplicates, by name or by number and protocol.
fn container_ports(ports: &[ServicePort]) -> Vec<ContainerPort> {
    let mut found: Vec<ContainerPort> = Vec::new();
    let (mut numbers, mut names) = (BTreeMap::new(), BTreeMap::new());
    for port in ports {
        let protocol = port.protocol.clone().unwrap_or_else(|| "TCP".to_owned());
        let (name, number) = match &port.target_port {
            Some(IntOrString::String(name)) => (Some(name.clone()), port.port),
            Some(IntOrString::Int(number)) if *number != 0 => (None, *number),
            Some(IntOrString::Int(_)) | None => (None, port.port),
        };
        if name.as_ref().is_some_and(|name| names.contains_key(name)) {
            continue;
        }
        let at = *numbers.entry((number, protocol.clone())).or_insert_with(|| {
            found.push(ContainerPort {
                container_port: number,
                protocol: Some(protocol),
                ..ContainerPort::default()
            });
            found.len() - 1
        });
        if let Some(name) = name
            && found[at].name.is_none()
        {
            names.insert(name.clone(), at);
            found[at].name = Some(name);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn ports(ports: &Value) -> Vec<String> {
        let ports: Vec<ServicePort> = serde_json::from_value(ports.clone()).unwrap();
        let text = |port: ContainerPort| {
            let (number, protocol) = (port.container_port, port.protocol.unwrap_or_default());
            format!("{}:{number}/{protocol}", port.name.unwrap_or_default())
        };
        container_ports(&ports).into_iter().map(text).collect()
    }

    #[test]
    fn container_ports_are_the_target_ports() {
        for (given, expected) in [
            (json!([]), &[][..]),
            (json!([{"port": 80}]), &[":80/TCP"]),
            (json!([{"port": 80, "targetPort": 8080}]), &[":8080/TCP"]),
            (json!([{"port": 80, "targetPort": "web"}]), &["web:80/TCP"]),
            (json!([{"port": 53, "protocol": "UDP"}, {"port": 53}]), &[":53/UDP", ":53/TCP"]),
            (json!([{"port": 80, "targetPort": 8080}, {"port": 81, "targetPort": 8080}]), &[":8080/TCP"]),
            (json!([{"port": 80, "targetPort": "web"}, {"port": 81, "targetPort": "web"}]), &["web:80/TCP"]),
            (json!([{"port": 80}, {"port": 81, "targetPort": 80}]), &[":80/TCP"]),
            (json!([{"port": 90, "targetPort": 80}, {"port": 80, "targetPort": "web"}]), &["web:80/TCP"]),
        ] {
            assert_eq!(ports(&given), expected, "{given}");
        }
    }

    fn children_of(spec: &Value) -> WantedChildren {
        children("web", &serde_json::from_value(spec.clone()).unwrap())
    }

    #[test]
    fn deployment_and_service_find_the_same_pods() {
        let WantedChildren { deployment, service } =
            children_of(&json!({"replicas": 2, "image": "nginx", "ports": [{"port": 80}]}));
        let service = service.unwrap();
        assert_eq!((deployment.name.as_str(), service.name.as_str()), ("web", "web"));
        assert_eq!(deployment.selector, service.selector);
        assert!(service.selector.iter().all(|(key, value)| deployment.pod_labels.get(key) == Some(value)));
        assert_eq!(deployment.labels["app"], "web");
    }

    #[test]
    fn without_ports_there_is_no_service() {
        assert!(children_of(&json!({"replicas": 0, "image": "nginx"})).service.is_none());
    }
}
