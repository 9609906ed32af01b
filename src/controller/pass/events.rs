//! The events of a sync: what happened to the children, and what the kind has to say.
//!
//! # Guarantees
//! - Applying a new spec records no event. (test: `spec_refused_at_first_is_no_repair`)
//! - Repairs are reported even beside a contended field or a blocked child.
//!   (test: `repaired_field_is_reported_beside_contended_field`, `repair_is_reported_while_another_child_is_blocked`)

use super::Pass;
use super::apply::{Spec, child};
use super::apply_outcome::ApplyOutcome;
use super::custom_resource::{CommonStatus, CustomResource};
use super::owner::Owner;
use crate::api::conditions::{self, READY};
use crate::controller::kinds::Wanted;
use crate::controller::kinds::difference::{Difference, describe};
use crate::controller::kinds::health::reason;
use crate::record::{EventType, Regarding};

impl<K: CustomResource> Pass<'_, K> {
    /// Records an event about the object.
    pub fn event(&self, event_type: EventType, reason: &'static str, action: &'static str, note: String) {
        tracing::debug!(reason, note, "Recorded an event");
        let Owner { resource, name, uid, .. } = &self.owner;
        let regarding = Regarding {
            api_version: resource.api_version(),
            kind: resource.kind.to_string(),
            namespace: name.namespace().map(str::to_owned),
            name: name.name().to_owned(),
            uid: uid.clone(),
            resource_version: self.object.resource_version().to_owned(),
        };
        self.tools.recorder.event(regarding, event_type, reason, action, note);
    }

    /// Defers an event until the status is written.
    pub fn event_when_written(
        &mut self,
        event_type: EventType,
        reason: &'static str,
        action: &'static str,
        note: String,
    ) {
        self.events.push((event_type, reason, action, note));
    }

    /// Records the deferred events.
    pub(super) fn record_deferred(&mut self) {
        for (event_type, reason, action, note) in std::mem::take(&mut self.events) {
            self.event(event_type, reason, action, note);
        }
    }

    /// Records one event for all children created in this sync.
    pub(super) fn record_created(&mut self) {
        let created = std::mem::take(&mut self.created);
        if !created.is_empty() {
            let note = format!("Created {}", created.join(", "));
            self.event(EventType::Normal, "ChildCreated", "Create", note);
        }
    }

    /// Records an event for a repaired child, or notes a created child for a later event.
    pub(super) fn record<W: Wanted>(&mut self, wanted: &W, outcome: &ApplyOutcome<W::Observed>, spec: Spec) {
        let child = child(wanted);
        match outcome {
            ApplyOutcome::Created(_) | ApplyOutcome::StoredOtherwise { is_new: true, .. } => {
                self.created.push(child);
            }
            ApplyOutcome::Updated(_, differences) => self.record_repair(&child, differences, spec),
            ApplyOutcome::StoredOtherwise { is_new: false, repaired, .. }
            | ApplyOutcome::Contended { repaired, .. } => self.record_repair(&child, repaired, spec),
            ApplyOutcome::Unchanged(_)
            | ApplyOutcome::Terminating(_)
            | ApplyOutcome::OwnerChanged
            | ApplyOutcome::ResourceExists { .. }
            | ApplyOutcome::Refused { .. }
            | ApplyOutcome::Paused { .. }
            | ApplyOutcome::Failed { .. } => {}
        }
    }

    /// Records an event that names the repaired fields of a child, if there are any. A new spec is no news to whoever has
    /// written it, so applying it is only logged.
    fn record_repair(&self, child: &str, differences: &[Difference], spec: Spec) {
        if !differences.is_empty() && self.had_reached(child, spec) {
            let note = format!("Repaired {child}: {}", describe(differences));
            self.event(EventType::Normal, "ChildRepaired", "Update", note);
        }
    }

    /// Whether the current spec had already reached this child, so that a difference is somebody else's change. A
    /// problem of another child does not count; after a restart it is unknown which child had the problem.
    fn had_reached(&self, child: &str, spec: Spec) -> bool {
        let conditions = self.stored_status().conditions();
        let is_unreached = conditions::reason(&conditions, READY).is_some_and(|reason| {
            [reason::STORED_OTHERWISE, reason::CHILD_REFUSED, reason::CHILD_FAILING].contains(&reason)
                && self.state().reported.problem_is_about(child) != Some(false)
        });
        spec == Spec::Known && self.observes_this_spec() && !is_unreached
    }
}
