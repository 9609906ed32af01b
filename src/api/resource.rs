//! Names a resource the way the API server's paths do.

use std::borrow::Cow;
use std::fmt;

/// A resource's group, version, kind and plural: enough to build its paths and owner references.
///
/// Mirrors `schema.GroupVersionResource` together with the kind.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ApiResource {
    /// API group; empty for the core group.
    pub group: Cow<'static, str>,
    /// API version, `v1alpha1` and the like.
    pub version: Cow<'static, str>,
    /// Kind, as in manifests.
    pub kind: Cow<'static, str>,
    /// Plural, as in paths and in `kubectl get`.
    pub plural: Cow<'static, str>,
}

/// A type whose objects are all of one kind.
///
/// Implemented for every type that `kube_core` knows; [`object_by_metadata!`](crate::object_by_metadata) implements it
/// for a projection.
pub trait HasResource {
    /// Returns the API resource of this type. Allocates nothing, because event handlers call this for each event.
    fn resource() -> ApiResource;
}

impl<K: kube_core::Resource<DynamicType = ()>> HasResource for K {
    fn resource() -> ApiResource {
        // `&()` is `'static`, and so are the names that borrow from it.
        const STATIC: &() = &();
        ApiResource {
            group: K::group(STATIC),
            version: K::version(STATIC),
            kind: K::kind(STATIC),
            plural: K::plural(STATIC),
        }
    }
}

impl ApiResource {
    /// Creates a resource from constants.
    #[must_use]
    pub const fn new(
        group: &'static str,
        version: &'static str,
        kind: &'static str,
        plural: &'static str,
    ) -> Self {
        Self {
            group: Cow::Borrowed(group),
            version: Cow::Borrowed(version),
            kind: Cow::Borrowed(kind),
            plural: Cow::Borrowed(plural),
        }
    }

    /// Returns the resource of a type: of `k8s_openapi`, of a custom resource, or a projection.
    ///
    /// ```
    /// use k8s_openapi::api::apps::v1::Deployment;
    /// use windlass::api::ApiResource;
    /// use windlass::controller::kinds::deployment::ObservedDeployment;
    /// assert_eq!(ApiResource::of::<Deployment>(), ApiResource::of::<ObservedDeployment>());
    /// ```
    #[must_use]
    pub fn of<K: HasResource>() -> Self {
        K::resource()
    }

    /// Returns `group/version`, or just `version` in the core group.
    ///
    /// ```
    /// use windlass::api::ApiResource;
    /// assert_eq!(ApiResource::new("apps", "v1", "Deployment", "deployments").api_version(), "apps/v1");
    /// assert_eq!(ApiResource::new("", "v1", "Pod", "pods").api_version(), "v1");
    /// ```
    #[must_use]
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_string()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// Returns the path of the collection, in one namespace or across all.
    ///
    /// ```
    /// use windlass::api::ApiResource;
    /// let pods = ApiResource::new("", "v1", "Pod", "pods");
    /// assert_eq!(pods.path(Some("default")), "/api/v1/namespaces/default/pods");
    /// let deployments = ApiResource::new("apps", "v1", "Deployment", "deployments");
    /// assert_eq!(deployments.path(None), "/apis/apps/v1/deployments");
    /// ```
    #[must_use]
    pub fn path(&self, namespace: Option<&str>) -> String {
        let root = if self.group.is_empty() { "api" } else { "apis" };
        let version = self.api_version();
        match namespace {
            Some(namespace) => {
                format!("/{root}/{version}/namespaces/{}/{}", segment(namespace), self.plural)
            }
            None => format!("/{root}/{version}/{}", self.plural),
        }
    }

    /// Returns the URL path of the object of this name. Names of some kinds, such as roles, may hold characters that are
    /// escaped in a URL.
    ///
    /// ```
    /// use windlass::api::ApiResource;
    ///
    /// let roles = ApiResource::new("rbac.authorization.k8s.io", "v1", "ClusterRole", "clusterroles");
    /// assert_eq!(
    ///     roles.object_path(None, "a?b #1"),
    ///     "/apis/rbac.authorization.k8s.io/v1/clusterroles/a%3Fb%20%231"
    /// );
    /// ```
    #[must_use]
    pub fn object_path(&self, namespace: Option<&str>, name: &str) -> String {
        format!("{}/{}", self.path(namespace), segment(name))
    }
}

/// Escapes a segment of a URL path. Most names need no escape.
fn segment(text: &str) -> Cow<'_, str> {
    if text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte)) {
        return text.into();
    }
    // A form escapes all that a path must, and a space in its own way.
    form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>().replace('+', "%20").into()
}

/// `plural.group`, the form that `kubectl` and RBAC messages use.
impl fmt::Display for ApiResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.plural)?;
        if !self.group.is_empty() {
            write!(f, ".{}", self.group)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::samplecontroller::v1alpha1::Foo;
    use k8s_openapi::api::apps::v1::Deployment;

    #[track_caller]
    fn borrows<K: kube_core::Resource<DynamicType = ()>>() {
        let ApiResource { group, version, kind, plural } = ApiResource::of::<K>();
        for name in [group, version, kind, plural] {
            assert!(matches!(name, Cow::Borrowed(_)), "{name:?} is allocated at each call");
        }
    }

    #[test]
    fn resource_of_a_type_allocates_nothing() {
        borrows::<Deployment>();
        borrows::<Foo>();
    }
}
