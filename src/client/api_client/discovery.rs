//! Finds kinds that are known only at run time.
//!
//! Mirrors client-go `discovery` and `restmapper`, without their cache: an informer asks once.
//!
//! # Guarantees
//! - A kind is found by group, version and name; one that is not served is `None`. (test: `kind_is_discovered_or_is_not_served`)
//! - An error is never reported as a missing kind. (test: `failed_discovery_is_an_error`)

use serde::Deserialize;

use super::{ApiClient, JSON};
use crate::api::ApiResource;
use crate::client::Error;

/// A kind that the server serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServedKind {
    /// Group, version, kind and plural.
    pub resource: ApiResource,
    /// Whether its objects are in namespaces.
    pub is_namespaced: bool,
}

#[derive(Deserialize)]
struct Resources {
    resources: Vec<Served>,
}

#[derive(Deserialize)]
struct Served {
    name: String,
    kind: String,
    namespaced: bool,
}

impl ApiClient {
    /// Asks the server for a kind; `group` is empty for the core group. A kind that is not served is `None`.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn discover(
        &self,
        group: &str,
        version: &str,
        kind: &str,
    ) -> Result<Option<ServedKind>, Error> {
        let path = match group {
            "" => format!("/api/{version}"),
            group => format!("/apis/{group}/{version}"),
        };
        let body = match self.get_as(&path, JSON).await {
            Ok(body) => body,
            Err(error) if error.is_not_found() => return Ok(None),
            Err(error) => return Err(error),
        };
        let Resources { resources } = super::decode(&body, || format!("GET {path}"))?;
        // `deployments/scale` is a subresource.
        let mut whole = resources.into_iter().filter(|served| !served.name.contains('/'));
        Ok(whole.find(|served| served.kind == kind).map(|served| {
            let [group, version] = [group, version].map(|text| text.to_owned().into());
            let resource =
                ApiResource { group, version, kind: served.kind.into(), plural: served.name.into() };
            ServedKind { resource, is_namespaced: served.namespaced }
        }))
    }
}
