//! What a pass writes of the object itself, beside its status: a finalizer, an annotation.

use super::{Halt, Turn};
use crate::cache::{Meta, Object};
use crate::controller::children::Owner;
use crate::controller::outcome::Outcome;
use crate::controller::reconciler::CustomResource;
use crate::controller::summary::{Phase, UNDONE_RETRY};

/// The longest value of an annotation that is written: all annotations together may have 256 KiB.
const ANNOTATION_MAX: usize = 128 * 1024;

impl<K: CustomResource> Turn<'_, K> {
    /// Holds the object by a finalizer, before the first effect that has to be undone. The pass goes on when the
    /// cache shows it; a pass that has to write it ends here, and the next one goes on.
    ///
    /// # Errors
    /// As [`ensure`](Self::ensure).
    pub async fn hold(&self, finalizer: &str) -> Result<(), Halt> {
        if self.has_finalizer(finalizer) || self.is_paused {
            return Ok(());
        }
        self.tools.children.hold(&self.owner, finalizer).await?;
        // The event that shows it, or that the object has moved on, is on its way to the cache.
        Err(Halt::Ends(Outcome::Done))
    }

    /// Sets an annotation of the object, when it is not so already and nothing stands in the way of the spec. Nothing
    /// may depend on it: a refusal is a line in the log, and anything else fails the pass after its status is written.
    pub async fn annotate(&mut self, key: &str, value: &str) {
        #[derive(serde::Deserialize)]
        struct Written {
            metadata: Meta,
        }
        let stored = Object::annotations(&*self.object).and_then(|all| all.get(key)).map(String::as_str);
        let is_in_the_way = self.findings.iter().any(|finding| finding.phase == Phase::Stalled);
        if stored == Some(value)
            || self.is_paused
            || is_in_the_way
            || self.is_failing
            || value.len() > ANNOTATION_MAX
        {
            return;
        }
        let Owner { resource, name, .. } = &self.owner;
        let object = (name.namespace(), name.name());
        let client = &self.tools.client;
        match client.annotate::<Written>(resource, object, &self.version, (key, value)).await {
            Ok(written) => {
                self.version = written.metadata.resource_version;
                self.tools.consistency.wrote(name, resource, &self.version);
            }
            Err(error) if error.is_refused() && !(error.is_forbidden() && client.is_settling()) => {
                tracing::warn!(annotation = key, %error, "The server refuses an annotation; nothing else depends on it");
            }
            Err(error) => self.fails_after_its_status(error),
        }
    }

    /// Lets the object go, after the last effect was undone.
    ///
    /// # Errors
    /// [`Halt`], when it failed; also when a live read shows that it is not being deleted.
    pub async fn let_go(&self, finalizer: &str) -> Result<(), Halt> {
        match self.tools.children.let_go(&self.owner, finalizer).await? {
            true => Ok(()),
            false => Err(Halt::Ends(Outcome::RequeueAfter(UNDONE_RETRY))),
        }
    }
}
