//! Flawed operators: the gate alters the requests of a sound one as a known mistake would. The plans must detect each.

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use serde_json::Value;
use tower::Service;
use windlass::sim::{ConnectionError, InProcessTransport};

use super::gate::ask_for;
use crate::plans::call::{Call, Reply, Sent};

/// A deliberate defect of the operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flaw {
    None,
    /// Deletes carry no preconditions.
    DeletesBlindly,
    /// Updates of built-in kinds carry neither uid nor resource version.
    UpdatesBlindly,
    /// Live reads of the owner are served from the server's watch cache.
    ReadsOldOwner,
    /// The first list may be as old as the server's watch cache.
    ListsFromCache,
    /// A child whose name is taken is written over.
    AppliesCreates,
    /// An update that conflicts is sent again with the newest version.
    OverwritesConflicts,
    /// Children have no owner.
    CreatesOrphans,
    /// The finalizer is never stored.
    HoldsNothing,
    /// Children are deleted with their orphans left behind.
    OrphansDependents,
}

// === impl Flaw ===

impl Flaw {
    /// Alters a request as the flawed operator would have sent it, and returns its body.
    pub(super) fn alter(
        self,
        head: &mut http::request::Parts,
        body: Bytes,
        call: &Call,
        owners: &str,
    ) -> Bytes {
        let is_of_owner = call.resource.starts_with(owners);
        match self {
            Self::ReadsOldOwner if call.verb == "get" && call.resource == owners => {
                ask_for(head, "resourceVersion=0");
            }
            Self::ListsFromCache if matches!(call.verb, "list" | "watch") && !has_version(head) => {
                ask_for(head, "resourceVersion=0");
            }
            Self::DeletesBlindly if call.verb == "delete" => {
                return edited(&body, |options| {
                    drop(options.as_object_mut().map(|all| all.remove("preconditions")))
                });
            }
            Self::OrphansDependents if call.verb == "delete" => {
                return edited(&body, |options| options["propagationPolicy"] = "Orphan".into());
            }
            // The server requires a version for custom resources.
            Self::UpdatesBlindly if matches!(call.verb, "update" | "patch") && !is_of_owner => {
                return edited(&body, |object| {
                    forget(object, "uid");
                    forget(object, "resourceVersion");
                });
            }
            Self::CreatesOrphans if call.verb == "create" && !call.is_for_events() => {
                return edited(&body, |object| forget(object, "ownerReferences"));
            }
            Self::HoldsNothing if matches!(call.verb, "update" | "patch") && call.resource == owners => {
                return edited(&body, |object| forget(object, "finalizers"));
            }
            _ => {}
        }
        body
    }

    /// Sends a request, and what the flawed operator sends with it.
    pub(super) async fn send(
        self,
        transport: &InProcessTransport,
        request: Sent,
        call: &Call,
    ) -> Result<Reply, ConnectionError> {
        let (head, body) = request.into_parts();
        let body =
            body.collect().await.map_or_else(|never| match never {}, http_body_util::Collected::to_bytes);
        let mut to = transport.clone();
        let reply = to.call(http::Request::from_parts(head.clone(), Full::new(body.clone()))).await?;
        let is_create = call.verb == "create" && !call.is_for_events();
        let overwrites = match self {
            Self::AppliesCreates => is_create,
            Self::OverwritesConflicts => matches!(call.verb, "update" | "patch"),
            _ => false,
        };
        if !overwrites || reply.status() != 409 {
            return Ok(reply);
        }
        let path = head.uri.path().trim_end_matches('/');
        let one = if is_create { format!("{path}/{}", call.name) } else { path.to_owned() };
        let get = http::Request::get(&one).body(Full::default()).expect("the request is valid");
        let stored = to.call(get).await?.into_body().collect().await.map_err(|_| ConnectionError::Reset)?;
        let stored: Value = serde_json::from_slice(&stored.to_bytes()).unwrap_or_default();
        let mine = edited(&body, |object| {
            object["metadata"]["resourceVersion"] = stored["metadata"]["resourceVersion"].clone();
            object["metadata"]["uid"] = stored["metadata"]["uid"].clone();
        });
        let again = if is_create {
            http::Request::put(&one).header("content-type", "application/json").body(Full::new(mine))
        } else {
            Ok(http::Request::from_parts(head, Full::new(mine)))
        };
        to.call(again.expect("the request is valid")).await
    }
}

fn has_version(head: &http::request::Parts) -> bool {
    head.uri.query().is_some_and(|query| query.contains("resourceVersion=") || query.contains("continue="))
}

fn forget(object: &mut Value, field: &str) {
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.remove(field);
    }
}

fn edited(body: &Bytes, edit: impl FnOnce(&mut Value)) -> Bytes {
    let Ok(mut object @ Value::Object(_)) = serde_json::from_slice(body) else { return body.clone() };
    edit(&mut object);
    object.to_string().into()
}
