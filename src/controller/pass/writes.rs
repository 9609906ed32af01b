//! The only place that writes children and finalizers. What destroys or repairs needs a [`Checked`].
//!
//! # Guarantees
//! - Every write is awaited in the caches. (test: `every_write_is_awaited_in_the_cache`)
//! - Nothing is written elsewhere. (test: `each_write_is_sent_from_one_file`)

use serde_json::Value;

use super::Pass;
use super::custom_resource::CustomResource;
use super::finalizers::OwnerWriter;
use super::owner::Owner;
use super::trust::{Checked, PartialObject};
use crate::api::ApiResource;
use crate::cache::{ObjectName, TypedObject};
use crate::client::{ApiClient, Error};
use crate::controller::kinds::diff::Patch;

impl<K: CustomResource> Pass<'_, K> {
    /// Creates a child.
    pub(super) async fn send_create<O: TypedObject>(
        &self,
        checked: Option<Checked>,
        body: &Value,
    ) -> Result<O, Error> {
        let resource = ApiResource::of::<O>();
        let client = self.client_for(checked);
        let created = client.create::<O>(&resource, self.owner.name.namespace(), body).await?;
        tracing::info!(kind = %resource.kind, child = %created.object_name(), "Created child");
        self.state().own_writes.wrote(&created);
        Ok(created)
    }

    /// Patches a child; the patch carries the uid and version that it was computed from.
    pub(super) async fn send_patch<O: TypedObject>(
        &self,
        checked: Option<Checked>,
        name: &str,
        Patch { body, is_strategic, .. }: &Patch,
    ) -> Result<O, Error> {
        let (resource, namespace) = (ApiResource::of::<O>(), self.owner.name.namespace());
        let client = self.client_for(checked);
        let patched: O = match is_strategic {
            true => client.patch_strategic(&resource, namespace, name, body).await?,
            false => client.patch_merge(&resource, namespace, name, body).await?,
        };
        tracing::info!(kind = %resource.kind, child = %patched.object_name(), "Updated child");
        self.state().own_writes.wrote(&patched);
        Ok(patched)
    }

    /// Deletes the child of this uid and version.
    pub(super) async fn send_delete(
        &self,
        checked: Checked,
        resource: &ApiResource,
        name: &str,
        (uid, version): (&str, &str),
    ) -> Result<(), Error> {
        let namespace = self.owner.name.namespace();
        self.client_for(Some(checked)).delete(resource, namespace, name, uid, version).await?;
        let child = ObjectName::new(namespace, name);
        tracing::info!(kind = %resource.kind, %child, "Deleted child");
        self.state().own_writes.deleted(resource, child, uid);
        Ok(())
    }

    /// Records a write by this sync that the kind has made by itself; `object` is the server's response. The key is not
    /// synced again before the caches have seen the write.
    pub fn wrote<O: TypedObject>(&self, object: &O) {
        self.state().own_writes.wrote(object);
    }

    /// Records that the kind has by itself deleted the object with this uid.
    pub fn deleted(&self, resource: &ApiResource, name: ObjectName, uid: &str) {
        self.state().own_writes.deleted(resource, name, uid);
    }

    /// Returns a client whose writes the gate refuses once the check of the owner has expired.
    fn client_for(&self, checked: Option<Checked>) -> ApiClient {
        match checked {
            Some(checked) => checked.client.not_after(checked.until),
            None => self.tools.client.clone(),
        }
    }
}

impl OwnerWriter<'_, '_> {
    /// Sets the finalizers of the owner at this version, and returns the new version.
    pub(super) async fn send_finalizers(self, version: &str, finalizers: &[String]) -> Result<String, Error> {
        let Owner { resource, name, uid, .. } = self.owner;
        let object = (name.namespace(), name.name());
        let written: PartialObject =
            self.client.set_finalizers(resource, object, (uid, version), finalizers).await?;
        self.wrote(&written.metadata.resource_version);
        Ok(written.metadata.resource_version.into())
    }
}
