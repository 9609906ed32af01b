//! The kinds that the demo shows, in the order of its rows.
//!
//! # Guarantees
//! - Every kind with a CRD is shown, with its own samples. (test: `every_defined_kind_is_shown_and_has_samples`)

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Pod, Service};
use k8s_openapi::api::networking::v1::Ingress;

use super::seen::{WatchKind, watch};
use crate::api::ApiResource;
use crate::api::appservice::v1alpha1::AppService;
use crate::api::myapp::v1::Myapp;
use crate::api::redis::v1::Redis;
use crate::api::samplecontroller::v1alpha1::Foo;
use crate::api::webapp::v1::WebApp;

/// A command to try on a custom resource, and what it does. `NAME` stands for the resource's name, `DEPLOYMENT`
/// for that of its Deployment.
type Try = (&'static str, &'static str);

/// A kind of custom resource.
#[derive(Debug)]
pub(super) struct Kind {
    /// The API resource of the kind.
    pub(super) resource: fn() -> ApiResource,
    /// Starts watching the kind for its rows.
    pub(super) watch: WatchKind,
    /// The samples, as YAML.
    pub(super) samples: &'static str,
    /// Commands for a person to try.
    pub(super) tries: &'static [Try],
}

// === impl Kind ===

impl Kind {
    const fn of<K>(samples: &'static str, tries: &'static [Try]) -> Self
    where
        K: kube_core::Resource<DynamicType = ()> + 'static,
    {
        Self { resource: ApiResource::of::<K>, watch: watch::<K>, samples, tries }
    }
}

/// The custom resources.
pub(super) const KINDS: &[Kind] = &[
    Kind::of::<Foo>(include_str!("../../crd/samples/foo.yaml"), FOO),
    Kind::of::<Myapp>(include_str!("../../crd/samples/myapp.yaml"), MYAPP),
    Kind::of::<AppService>(include_str!("../../crd/samples/appservice.yaml"), APP_SERVICE),
    Kind::of::<Redis>(include_str!("../../crd/samples/redis.yaml"), REDIS),
    Kind::of::<WebApp>(include_str!("../../crd/samples/webapp.yaml"), WEBAPP),
];

/// The kinds of children that custom resources control.
pub(super) const CHILDREN: &[WatchKind] =
    &[watch::<Deployment>, watch::<Service>, watch::<Ingress>, watch::<Pod>];

const FOO: &[Try] = &[
    ("kubectl scale deployment/DEPLOYMENT --replicas=9", "reverted at once"),
    ("kubectl delete deployment DEPLOYMENT", "created again"),
];
const MYAPP: &[Try] = &[("kubectl delete service NAME", "created again")];
const APP_SERVICE: &[Try] =
    &[("kubectl scale appservice/NAME --replicas=2", "allowed: the Deployment follows")];
const REDIS: &[Try] = &[("kubectl delete pod NAME-0", "created again under the same name")];
const WEBAPP: &[Try] = &[("kubectl delete webapp NAME", "its tasks are undone, last to first")];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::crds;

    #[test]
    fn every_defined_kind_is_shown_and_has_samples() {
        let defined: Vec<(String, String)> =
            crds::definitions().into_iter().map(|crd| (crd.spec.group, crd.spec.names.plural)).collect();
        let shown: Vec<(String, String)> = KINDS
            .iter()
            .map(|kind| (kind.resource)())
            .map(|resource| (resource.group.into_owned(), resource.plural.into_owned()))
            .collect();
        assert_eq!(shown, defined);
        for kind in KINDS {
            let words = format!("kind: {}\n", (kind.resource)().kind);
            assert!(kind.samples.contains(&words), "samples without {words}");
        }
    }
}
