//! What a pass writes of the object itself, beside its status: a finalizer, an annotation.
//!
//! What the server refuses of them is not asked for at each pass, as for children: see
//! [`obstacles`](crate::controller::obstacles).
//!
//! # Guarantees
//! - A finalizer that the server refuses is a condition. (test: `a_finalizer_that_is_refused_is_told_and_not_asked_for_at_each_pass`)
//! - So is one that may not be taken off. (test: `a_finalizer_that_may_not_be_taken_off_is_told`)
//! - An annotation that cannot be written holds up no status, and is tried seldom. (test: `an_annotation_that_is_never_written_holds_up_nothing`)

use super::{Halt, Turn};
use crate::cache::{Meta, Object};
use crate::client::Error;
use crate::controller::children::Owner;
use crate::controller::obstacles::{Attempt, Obstacle, place, place_of_deletion};
use crate::controller::outcome::Outcome;
use crate::controller::reconciler::CustomResource;
use crate::controller::summary::{Phase, REFUSED_RETRY, Summary, UNDONE_RETRY};

/// The longest value of an annotation that is written: all annotations together may have 256 KiB.
const ANNOTATION_MAX: usize = 128 * 1024;

/// Kinds of what is written, as [`place`] has them.
const FINALIZER: &str = "finalizer";
const ANNOTATION: &str = "annotation";

/// A write of a finalizer.
struct Write {
    /// In words: what the server may refuse.
    what: String,
    place: String,
    attempt: Attempt,
}

impl<K: CustomResource> Turn<'_, K> {
    /// Puts a finalizer on the object, before the first effect that has to be undone. The pass goes on when it is stored:
    /// the answer to the write proves that the object was as the cache shows it.
    ///
    /// # Errors
    /// [`Halt`], when it could not be written, or the object has moved on.
    pub async fn add_finalizer(&mut self, finalizer: &str) -> Result<(), Halt> {
        if self.has_finalizer(finalizer) || self.is_paused {
            return Ok(());
        }
        let write = Write {
            what: format!("the finalizer {finalizer}"),
            place: place(&self.owner, FINALIZER, finalizer),
            attempt: Attempt::set(&self.owner, finalizer),
        };
        self.unless_refused_before(&write)?;
        match self.tools.children.add_finalizer(&self.owner, finalizer).await {
            Ok(Some(version)) => {
                self.tools.children.obstacles.gone(|| write.place);
                self.owner.finalizers.push(finalizer.to_owned());
                self.owner.version.clone_from(&version);
                self.version = version;
                Ok(())
            }
            // The event that shows that the object has moved on is on its way to the cache.
            Ok(None) => Err(Halt::Ends(Outcome::RequeueAfter(UNDONE_RETRY))),
            Err(error) => Err(self.could_not(write, error)),
        }
    }

    /// Sets an annotation of the object, when it is not so already and nothing stands in the way of the spec. Nothing
    /// may depend on it: a refusal is a line in the log and tried again like that of a child, and anything else fails
    /// the pass after its status is written.
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
        let (place, attempt) = (place(&self.owner, ANNOTATION, key), Attempt::set(&self.owner, (key, value)));
        let obstacles = &self.tools.children.obstacles;
        if let Some((_, again_in)) = obstacles.in_the_way(&place, attempt) {
            self.findings.push(unwritten(key).again_in(again_in));
            return;
        }
        let Owner { resource, name, .. } = &self.owner;
        let object = (name.namespace(), name.name());
        let client = &self.tools.client;
        let error = match client.annotate::<Written>(resource, object, &self.version, (key, value)).await {
            Ok(written) => {
                self.version = written.metadata.resource_version;
                self.tools.consistency.wrote_owner(&self.owner, &self.version);
                return;
            }
            Err(error) => error,
        };
        match self.tools.children.refusal(error) {
            Ok(status) => {
                tracing::warn!(annotation = key, %status, "The server refuses an annotation; nothing else depends on it");
                obstacles.met(place, attempt, Obstacle::Refused(status));
                self.findings.push(unwritten(key).again_in(REFUSED_RETRY));
            }
            Err(error) => self.fails_after_its_status(error),
        }
    }

    /// Takes a finalizer off the object, after the last effect was undone.
    ///
    /// # Errors
    /// [`Halt`], when it failed; also when a live read shows that the object is not being deleted.
    pub async fn remove_finalizer(&mut self, finalizer: &str) -> Result<(), Halt> {
        let write = Write {
            what: format!("to take off the finalizer {finalizer}"),
            place: place_of_deletion(&self.owner, FINALIZER, finalizer),
            attempt: Attempt::set(&self.owner, finalizer),
        };
        self.unless_refused_before(&write)?;
        match self.tools.children.remove_finalizer(&self.owner, finalizer).await {
            Ok(true) => Ok(()),
            Ok(false) => Err(Halt::Ends(Outcome::RequeueAfter(UNDONE_RETRY))),
            Err(error) => Err(self.could_not(write, error)),
        }
    }

    /// Ends the pass when the server has refused the same a short while ago.
    fn unless_refused_before(&mut self, write: &Write) -> Result<(), Halt> {
        match self.tools.children.obstacles.in_the_way(&write.place, write.attempt) {
            Some((Obstacle::Refused(status), again_in)) => {
                self.found(Summary::refused(&write.what, &status).again_in(again_in));
                Err(Halt::Found)
            }
            Some((Obstacle::Exists, _)) | None => Ok(()),
        }
    }

    /// How the pass ends after a write that did not succeed.
    fn could_not(&mut self, write: Write, error: Error) -> Halt {
        match self.tools.children.refusal(error) {
            Ok(status) => {
                self.found(Summary::refused(&write.what, &status));
                self.tools.children.obstacles.met(write.place, write.attempt, Obstacle::Refused(status));
                Halt::Found
            }
            Err(error) => match self.fails_at("The finalizer of this object", error) {
                Ok(()) => Halt::Found,
                Err(halt) => halt,
            },
        }
    }
}

/// An annotation that is refused is no obstacle: it is a reason to look again.
fn unwritten(key: &str) -> Summary {
    Summary::ready(format!("The annotation {key} is not written"))
}
