//! What each plan does to a run.

use std::time::Duration;

use windlass::sim::{Action, Fault, When};

use super::gate::Hold;
use super::plan::{Ending, Plan, Successor};
use super::run::{Substitute, World};

/// How long the view of a lone operator is frozen.
const FROZEN: Duration = Duration::from_secs(300);
/// How long a view is frozen beside an operator with a current view, as each keeps correcting the other's status.
const FROZEN_BESIDE: Duration = Duration::from_secs(10);
/// How long an operator is suspended that has lost its lease.
const SUSPENDED: Duration = Duration::from_secs(600);
/// Longer than a standby waits for a lease.
const TAKEOVER: Duration = Duration::from_secs(60);
/// Longer than the interval of audits.
const AUDIT: Duration = Duration::from_secs(3600);

impl World<'_> {
    /// Prepares the disturbance, before the recorded steps.
    pub(super) fn prepare(&mut self) {
        let planned = match self.plan {
            Plan::Suspended { call, hold, .. } => {
                self.substitute = Substitute::OnceHeld;
                Some((call.clone(), *hold))
            }
            Plan::Deposed { call, .. } => {
                self.substitute = Substitute::OnceHeld;
                // It waits for the lease.
                self.start_next();
                Some((call.clone(), Hold::Operator))
            }
            Plan::Crashed { call, is_applied, successor } => {
                let again = match successor {
                    Successor::Dies(nth) => Some(*nth),
                    Successor::ClockOff(hours) => {
                        self.hours_off = *hours;
                        None
                    }
                };
                self.substitute = Substitute::OnceDead { again };
                Some((call.clone(), Hold::Death { is_applied: *is_applied }))
            }
            Plan::Hidden { plural, skip, count, .. } => {
                let when = When::verb("watch").resource(plural).user("first").skip(*skip).times(*count);
                self.hiding = Some(self.cluster.sim.fault(Fault::new(when, Action::SkipEvent)));
                None
            }
            Plan::Undisturbed | Plan::Frozen { .. } | Plan::RolledBack { .. } => None,
        };
        self.first().open(planned);
    }

    /// Does what the plan wants after the recorded steps.
    pub(super) async fn disturb(&mut self) -> Result<(), String> {
        match self.plan {
            Plan::Undisturbed => Ok(()),
            Plan::Frozen { group, plural, version, is_alone } => {
                self.freeze(group, plural, *version, *is_alone).await
            }
            Plan::Suspended { next, .. } => {
                self.take(next).await?;
                self.thaw().await
            }
            Plan::Deposed { next, .. } => {
                if self.first().was_reached() {
                    self.pass(TAKEOVER).await;
                    self.create_neighbour().await;
                }
                self.take(next).await?;
                self.pass(SUSPENDED).await;
                self.thaw().await
            }
            Plan::Hidden { plural, ending, .. } => self.show(plural, *ending).await,
            Plan::RolledBack { version, is_fresh, .. } => self.roll_back(*version, *is_fresh).await,
            Plan::Crashed { successor, .. } => {
                self.substitute = Substitute::None;
                self.processes.iter().for_each(|process| process.gate.spare());
                let deaths = if matches!(successor, Successor::Dies(_)) { 2 } else { 1 };
                self.run.was_reached = self.processes.len() > deaths;
                Ok(())
            }
        }
    }

    /// Lets the first operator go on.
    async fn thaw(&mut self) -> Result<(), String> {
        self.run.was_reached = self.first().was_reached();
        let first = self.first().clone();
        first.release().await;
        self.settle().await
    }

    async fn freeze(
        &mut self,
        group: &str,
        plural: &'static str,
        version: u64,
        is_alone: bool,
    ) -> Result<(), String> {
        if is_alone {
            self.processes[0].tasks.shutdown().await;
        }
        let is_frozen = self.cluster.sim.freeze_cache_at(1, group, plural, version);
        let second = self.start_next();
        second.list_at(plural, version);
        self.pass(if is_alone { FROZEN } else { FROZEN_BESIDE }).await;
        self.cluster.sim.freeze_cache(1, group, plural, false);
        self.run.was_reached = is_frozen && second.has_listed_the_past();
        self.settle().await
    }

    /// Lets the operator find out what was hidden.
    async fn show(&mut self, plural: &str, ending: Ending) -> Result<(), String> {
        if let Some(fault) = self.hiding.take() {
            self.run.was_reached = self.cluster.sim.heal(fault);
        }
        match ending {
            Ending::Resumed => self.cluster.sim.cut_watches("first", plural),
            Ending::Expired => {
                let when = When::verb("watch").resource(plural).user("first").times(1);
                self.cluster.sim.fault(Fault::new(when, Action::refuse(410, "Expired")));
                self.cluster.sim.cut_watches("first", plural);
            }
            Ending::Silent => {}
        }
        if !matches!(ending, Ending::Expired) {
            self.pass(AUDIT).await;
        }
        self.settle().await
    }

    async fn roll_back(&mut self, version: u64, is_fresh: bool) -> Result<(), String> {
        if !is_fresh {
            self.start_next();
            self.settle().await?;
        }
        self.outside.restored();
        self.run.was_reached = self.cluster.sim.roll_back(version);
        self.events.clear();
        self.watches = self.cluster.watch().await;
        if is_fresh {
            self.start_next();
        }
        // An operator that runs on notices by its audit.
        self.pass(AUDIT).await;
        self.settle().await?;
        self.create_neighbour().await;
        self.settle().await?;
        match self.plan.next() {
            Some(next) => self.take(next).await,
            None => Ok(()),
        }
    }
}
