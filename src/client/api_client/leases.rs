//! Reads and writes the Leases of elections, through a closed gate.

use http::Method;
use k8s_openapi::List;
use k8s_openapi::api::coordination::v1::Lease;
use serde_json::{Value, json};

use super::{ApiClient, Call, Error, Passage, decode, names_an_object};
use crate::api::ApiResource;

impl ApiClient {
    /// Reads a Lease live.
    ///
    /// # Errors
    /// [`Error`]; a missing Lease is `Ok(None)`.
    pub async fn get_lease(&self, namespace: &str, name: &str) -> Result<Option<Lease>, Error> {
        let path = ApiResource::of::<Lease>().object_path(Some(namespace), name);
        match self.lease_call(Method::GET, &path, None).await {
            Err(error) if error.is_not_found() && names_an_object(&error, name) => Ok(None),
            answer => answer.map(Some),
        }
    }

    /// Creates a Lease.
    ///
    /// # Errors
    /// [`Error`]; see [`Error::is_already_exists`].
    pub async fn create_lease(&self, namespace: &str, lease: &Lease) -> Result<Lease, Error> {
        let path = ApiResource::of::<Lease>().path(Some(namespace));
        let path = format!("{path}?fieldManager={}", self.manager);
        self.lease_call(Method::POST, &path, Some(&json!(lease))).await
    }

    /// Replaces a Lease, which carries the resource version that it was read at.
    ///
    /// # Errors
    /// [`Error`]; see [`Error::is_conflict`].
    pub async fn replace_lease(&self, namespace: &str, name: &str, lease: &Lease) -> Result<Lease, Error> {
        let path = ApiResource::of::<Lease>().object_path(Some(namespace), name);
        let path = format!("{path}?fieldManager={}", self.manager);
        self.lease_call(Method::PUT, &path, Some(&json!(lease))).await
    }

    /// Lists the Leases of a namespace that match this label selector, as they are now.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn list_leases(&self, namespace: &str, selector: &str) -> Result<Vec<Lease>, Error> {
        let query =
            form_urlencoded::Serializer::new(String::new()).append_pair("labelSelector", selector).finish();
        let path = format!("{}?{query}", ApiResource::of::<Lease>().path(Some(namespace)));
        let answer = self.call(Call::new(Passage::Election, Method::GET, &path, None)).await?;
        let list: List<Lease> = decode(&answer, || format!("GET {path}"))?;
        Ok(list.items)
    }

    /// Deletes the Lease with this uid and resource version.
    ///
    /// # Errors
    /// [`Error`]; a conflict if it has changed, not found if it is gone.
    pub async fn delete_lease(
        &self,
        namespace: &str,
        name: &str,
        uid: &str,
        resource_version: &str,
    ) -> Result<(), Error> {
        let path = ApiResource::of::<Lease>().object_path(Some(namespace), name);
        let options = json!({"kind": "DeleteOptions", "apiVersion": "v1",
            "preconditions": {"uid": uid, "resourceVersion": resource_version}});
        self.call(Call::new(Passage::Election, Method::DELETE, &path, Some(&options))).await.map(drop)
    }

    async fn lease_call(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Lease, Error> {
        let name = format!("{method} {path}");
        let answer = self.call(Call::new(Passage::Election, method, path, body)).await?;
        decode(&answer, || name)
    }
}
