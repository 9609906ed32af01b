//! Reads the metadata of objects, and collections page by page.
//!
//! Mirrors client-go `metadata` (`PartialObjectMetadataList`) and `tools/pager` (`EachListItem`).
//!
//! # Guarantees
//! - Objects are read page by page, and an error is never an empty list. (test: `metadata_is_read_page_by_page`)
//! - An answer without `items` is an error, `items: null` is an empty list. (test: `a_list_without_items_is_an_error`)
//! - An error is never reported as a missing object. (test: `metadata_of_one_object_is_read_live`)

use serde::de::DeserializeOwned;

use super::ApiClient;
use crate::api::ApiResource;
use crate::client::Error;
use crate::client::json_error::without_values;
use crate::client::list_items::for_each_item;

/// Objects per page, as in client-go. Longer pages would cost memory: each is read whole before it is decoded.
const PAGE: usize = 500;
/// `Accept` for a list of metadata; a server that cannot reduce objects sends them whole.
pub(crate) const METADATA_OF_LIST: &str =
    "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";
/// `Accept` for the metadata of one object, and for a watch of metadata.
pub(crate) const METADATA_OF_ONE: &str =
    "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";

impl ApiClient {
    /// Reads the metadata of one object live. `T` decodes an object with a field `metadata`.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub async fn get_metadata<T: DeserializeOwned>(
        &self,
        resource: &ApiResource,
        namespace: Option<&str>,
        name: &str,
    ) -> Result<Option<T>, Error> {
        self.read(resource, namespace, name, METADATA_OF_ONE).await
    }

    /// Calls `each` with every object of a collection (all namespaces, with `None`), read live, and returns the list's
    /// resource version. The server sends metadata only, in uncompressed pages of 500 objects; `T` decodes an item with
    /// a field `metadata`.
    ///
    /// # Errors
    /// [`Error`]; 410 if the list expires between pages, after `each` has seen some of the objects.
    pub async fn each_metadata<T: DeserializeOwned>(
        &self,
        resource: &ApiResource,
        namespace: Option<&str>,
        selector: &str,
        each: impl FnMut(T) + Send,
    ) -> Result<String, Error> {
        self.each_selected_metadata(resource, namespace, [selector, "", ""], each).await
    }

    /// Like [`each_metadata`](Self::each_metadata), with a label, a field and a shard selector; a server that does not know
    /// shards returns all of them.
    ///
    /// # Errors
    /// As [`each_metadata`](Self::each_metadata).
    pub async fn each_selected_metadata<T: DeserializeOwned>(
        &self,
        resource: &ApiResource,
        namespace: Option<&str>,
        selectors: [&str; 3],
        each: impl FnMut(T) + Send,
    ) -> Result<String, Error> {
        self.each_item(resource, namespace, selectors, METADATA_OF_LIST, each).await
    }

    /// Calls `each` with every matching object, whole; otherwise like [`each_metadata`](Self::each_metadata).
    ///
    /// # Errors
    /// As [`each_metadata`](Self::each_metadata).
    pub async fn each_object<T: DeserializeOwned>(
        &self,
        resource: &ApiResource,
        namespace: Option<&str>,
        selector: &str,
        each: impl FnMut(T) + Send,
    ) -> Result<String, Error> {
        self.each_item(resource, namespace, [selector, "", ""], "application/json", each).await
    }

    /// Reads the resource version that a collection (of all namespaces, with `None`) has now.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn latest_version(
        &self,
        resource: &ApiResource,
        namespace: Option<&str>,
    ) -> Result<String, Error> {
        let path = format!("{}?limit=1", resource.path(namespace));
        let body = self.get_as(&path, METADATA_OF_LIST).await?;
        let page = for_each_item(&body, |_| Ok(()));
        let page = page.map_err(|source| Error::Decode { request: format!("GET {path}"), source })?;
        Ok(page.resource_version)
    }

    async fn each_item<T: DeserializeOwned>(
        &self,
        resource: &ApiResource,
        namespace: Option<&str>,
        [labels, fields, shards]: [&str; 3],
        accept: &'static str,
        mut each: impl FnMut(T) + Send,
    ) -> Result<String, Error> {
        let query = |next: &str| {
            let mut query = form_urlencoded::Serializer::new(String::new());
            query.append_pair("limit", &PAGE.to_string());
            let shards = ("shardSelector", shards);
            for (name, value) in
                [("labelSelector", labels), ("fieldSelector", fields), shards, ("continue", next)]
            {
                if !value.is_empty() {
                    query.append_pair(name, value);
                }
            }
            query.finish()
        };
        let mut next = String::new();
        loop {
            let path = format!("{}?{}", resource.path(namespace), query(&next));
            let body = self.get_as(&path, accept).await?;
            let page = for_each_item(&body, |item| {
                each(serde_json::from_slice(item).map_err(|error| without_values(&error))?);
                Ok(())
            });
            let page = page.map_err(|source| Error::Decode { request: format!("GET {path}"), source })?;
            match page.continue_token {
                Some(token) => next = token,
                None => return Ok(page.resource_version),
            }
        }
    }
}
