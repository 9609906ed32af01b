//! Which objects there are, and nothing else of them.
//!
//! Mirrors client-go `metadata` (`PartialObjectMetadataList`) and `tools/pager`.
//!
//! # Guarantees
//! - They are read page by page, and an error is never an empty list. (test: `names_are_read_page_by_page`)

use http::Method;
use serde::Deserialize;

use super::{ApiClient, decode};
use crate::api::ApiResource;
use crate::client::Error;

/// How many names are asked for at once.
const PAGE: usize = 500;
/// The metadata of objects, from servers that can leave out the rest.
const METADATA_ONLY: &str =
    "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";

#[derive(Deserialize)]
struct Page {
    #[serde(default)]
    metadata: PageMeta,
    items: Option<Vec<Item>>,
}

#[derive(Default, Deserialize)]
struct PageMeta {
    #[serde(default, rename = "continue")]
    next: String,
}

#[derive(Deserialize)]
struct Item {
    metadata: ItemMeta,
}

#[derive(Deserialize)]
struct ItemMeta {
    namespace: Option<String>,
    name: String,
}

impl ApiClient {
    /// Which objects there are in one namespace (all, with `None`), by namespace and name, from the store itself. Nothing
    /// else of them is read where the server can leave it out, and no more than a page at a time.
    ///
    /// # Errors
    /// [`Error`]; also 410 when it takes too long.
    pub async fn names(
        &self,
        resource: &ApiResource,
        namespace: Option<&str>,
    ) -> Result<Vec<(Option<String>, String)>, Error> {
        let (mut names, mut next) = (Vec::new(), String::new());
        loop {
            let mut path = format!("{}?limit={PAGE}", resource.path(namespace));
            if !next.is_empty() {
                path.push_str("&continue=");
                path.extend(form_urlencoded::byte_serialize(next.as_bytes()));
            }
            let body = self.call_for(Method::GET, &path, None, ("application/json", METADATA_ONLY)).await?;
            let page: Page = decode(&body, || format!("GET {path}"))?;
            let items = page.items.into_iter().flatten();
            names.extend(items.map(|item| (item.metadata.namespace, item.metadata.name)));
            next = page.metadata.next;
            if next.is_empty() {
                return Ok(names);
            }
        }
    }
}
