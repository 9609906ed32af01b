//! Syncs of one step each, which share the record of their key.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::api::ApiResource;
use crate::api::samplecontroller::v1alpha1::{Foo, FooSpec};
use crate::cache::{Cached, Indexers, Lister, TypedObject, store};
use crate::client::{ApiClient, Clock, Error};
use crate::controller::key::KeyState;
use crate::controller::key::own_writes::Readiness;
use crate::controller::key::stores::Stores;
use crate::controller::kinds::Wanted;
use crate::controller::pass::apply::Spec;
use crate::controller::pass::owner::Owner;
use crate::controller::{ApplyOutcome, ChildRef, Deletion, Pass, Relist, SyncRequest, Tools};
use crate::metrics::ControllerMetrics;
use crate::record::EventRecorder;
use crate::workqueue::Reasons;

/// Makes a sync of a Foo for each call.
pub(in crate::controller) struct OneStep {
    pub(in crate::controller) tools: Tools<Foo>,
    pub(in crate::controller) stores: Stores,
    pub(in crate::controller) state: Mutex<KeyState>,
    reasons: Reasons,
}

/// Evaluates a step in a sync of its own.
macro_rules! step {
    ($self:ident, $owner:ident, |$pass:ident| $step:expr) => {{
        let mut state = std::mem::take(&mut *$self.state.lock());
        let result = {
            let $pass = $self.pass($owner, &mut state);
            $step.await
        };
        *$self.state.lock() = state;
        result
    }};
}

impl OneStep {
    pub(in crate::controller) fn new(client: ApiClient) -> Self {
        let clock = Clock::starting_at(jiff::Timestamp::UNIX_EPOCH);
        let (recorder, _) = EventRecorder::to_buffer(clock, 1);
        let (objects, _) = store::pair(Indexers::default());
        let tools = Tools {
            client,
            objects: Lister::new(objects),
            relist: Relist::default(),
            recorder,
            clock,
            metrics: ControllerMetrics::unread("test"),
        };
        Self { tools, stores: Stores::default(), state: Mutex::default(), reasons: Reasons::default() }
    }

    /// Returns a sync whose decisions are about this owner.
    pub(in crate::controller) fn pass<'a>(&'a self, owner: &Owner, state: &'a mut KeyState) -> Pass<'a, Foo> {
        let mut foo = Foo::new(owner.name.name(), FooSpec { deployment_name: "web".to_owned(), replicas: 1 });
        foo.metadata.uid = Some(owner.uid.clone());
        let request = SyncRequest::new(&self.reasons, state);
        let mut pass = Pass::new(&self.tools, Arc::new(foo), request);
        pass.owner = owner.clone();
        pass
    }

    /// Whether the key may be synced: the caches have seen its writes.
    pub(in crate::controller) fn is_ready(&self) -> bool {
        self.state.lock().own_writes.readiness(&self.stores) != Readiness::Waits
    }

    pub(in crate::controller) async fn apply<W: Wanted>(
        &self,
        owner: &Owner,
        wanted: &W,
        cached: Option<&Cached<W::Observed>>,
        is_applied: bool,
    ) -> Result<ApplyOutcome<W::Observed>, Error> {
        let spec = if is_applied { Spec::Known } else { Spec::New };
        step!(self, owner, |pass| pass.apply_one(wanted, cached, spec))
    }

    pub(in crate::controller) async fn delete_replaced<W: Wanted>(
        &self,
        owner: &Owner,
        replacement: (&W, bool),
        child: &ChildRef,
    ) -> Result<Deletion, Error> {
        step!(self, owner, |pass| pass.delete_replaced(replacement, child))
    }

    pub(in crate::controller) async fn delete_surplus(
        &self,
        owner: &Owner,
        resource: &ApiResource,
        child: &ChildRef,
    ) -> Result<Deletion, Error> {
        step!(self, owner, |pass| pass.delete_surplus(resource, child))
    }

    pub(in crate::controller) async fn delete_outdated(
        &self,
        owner: &Owner,
        resource: &ApiResource,
        child: &ChildRef,
    ) -> Result<Deletion, Error> {
        Ok(step!(self, owner, |pass| pass.delete_outdated(resource, child, &[]))?.0)
    }

    pub(in crate::controller) async fn delete_of_deleted(
        &self,
        owner: &Owner,
        resource: &ApiResource,
        child: &ChildRef,
    ) -> Result<Deletion, Error> {
        step!(self, owner, |pass| pass.delete_of_deleted(resource, child))
    }

    pub(in crate::controller) async fn without_label(
        &self,
        owner: &Owner,
        resource: &ApiResource,
    ) -> Result<Vec<ChildRef>, Error> {
        step!(self, owner, |pass| pass.without_label(resource))
    }

    pub(in crate::controller) async fn with_label(
        &self,
        owner: &Owner,
        resource: &ApiResource,
    ) -> Result<Vec<ChildRef>, Error> {
        step!(self, owner, |pass| pass.with_label(resource))
    }

    pub(in crate::controller) async fn unseen_children(
        &self,
        owner: &Owner,
        resource: &ApiResource,
    ) -> Result<Vec<ChildRef>, Error> {
        step!(self, owner, |pass| pass.unseen_children(resource))
    }

    pub(in crate::controller) async fn live_children<O: TypedObject>(
        &self,
        owner: &Owner,
    ) -> Result<Vec<Cached<O>>, Error> {
        step!(self, owner, |pass| pass.live_children::<O>())
    }

    pub(in crate::controller) async fn add_finalizer(
        &self,
        owner: &Owner,
        finalizer: &str,
    ) -> Result<Option<String>, Error> {
        step!(self, owner, |pass| pass.writer().add_finalizer(finalizer))
    }

    pub(in crate::controller) async fn remove_finalizer(
        &self,
        owner: &Owner,
        finalizer: &str,
    ) -> Result<bool, Error> {
        step!(self, owner, |pass| pass.writer().remove_finalizer(finalizer))
    }
}
