//! What an operator did while a load was recorded, to compare a trial of that load with.
//!
//! ```text
//! record ─▶ syncs: why, when, of which object, how long ─▶ the load's file ─▶ the report of a sweep
//! ```
//! None of it is replayed: a trial makes its own syncs.
//!
//! # Guarantees
//! - The report says how long syncs took when it was recorded, and in the trial with as many workers.
//!   (test: `trial_is_compared_with_the_recording`)

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::trial::Trial;
use super::verdict::seconds;

/// The syncs that an operator ran while a load was recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct History {
    /// The workers that were seen of one controller.
    pub(super) workers: usize,
    /// The syncs, by their reasons.
    pub(super) syncs: Vec<Syncs>,
}

/// Syncs with the same reasons, in order of their times; an entry in each list is one sync.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Syncs {
    /// Why, as in the metric `windlass_reasons_total`.
    pub(super) reasons: Vec<String>,
    /// When the key was added: milliseconds from the start.
    pub(super) at: Vec<u64>,
    /// The number of the object, as for changes.
    pub(super) objects: Vec<u32>,
    /// How long the sync took, in microseconds.
    pub(super) took: Vec<u64>,
}

// === impl History ===

impl History {
    /// Returns what is wrong.
    pub(super) fn check(&self) -> Result<(), String> {
        let is_whole =
            |syncs: &Syncs| syncs.at.len() == syncs.objects.len() && syncs.at.len() == syncs.took.len();
        if self.syncs.iter().all(is_whole) {
            return Ok(());
        }
        Err("history.syncs must have as many objects and took as at".to_owned())
    }

    /// Returns the syncs within a stretch. `number` maps an object to its number in the stretch; the syncs of an object
    /// without one are left out.
    pub(super) fn within(&self, (from, length): (u64, u64), number: impl Fn(u32) -> Option<u32>) -> Self {
        let cut = |syncs: &Syncs| {
            let mut some = Syncs { reasons: syncs.reasons.clone(), ..Syncs::default() };
            for ((at, object), took) in syncs.at.iter().zip(&syncs.objects).zip(&syncs.took) {
                let within = at.checked_sub(from).filter(|at| *at < length);
                if let (Some(at), Some(object)) = (within, number(*object)) {
                    some.at.push(at);
                    some.objects.push(object);
                    some.took.push(*took);
                }
            }
            some
        };
        let syncs = self.syncs.iter().map(cut).filter(|syncs| !syncs.at.is_empty());
        Self { workers: self.workers, syncs: syncs.collect() }
    }

    /// Compares the trials with the recording, in words.
    pub(super) fn compared(&self, trials: &[Trial]) -> String {
        let count = |syncs: &Syncs| syncs.at.len();
        let mut groups: Vec<&Syncs> = self.syncs.iter().collect();
        groups.sort_by_key(|syncs| std::cmp::Reverse(count(syncs)));
        let of_each: Vec<String> =
            groups.iter().map(|syncs| format!("{}: {}", syncs.reasons.join(" and "), count(syncs))).collect();
        let all: usize = self.syncs.iter().map(count).sum();
        let took: u64 = self.syncs.iter().flat_map(|syncs| &syncs.took).sum();
        #[expect(clippy::cast_precision_loss, reason = "microseconds of a recording, far below 2^52")]
        let took = took as f64 / 1e6;
        let recorded = format!(
            "When this was recorded, {all} syncs ({}) took {} on {} workers",
            of_each.join(", "),
            seconds(took),
            self.workers
        );
        let workers = self.workers.to_string();
        match trials.iter().find(|trial| trial.setting.get("workers") == Some(workers.as_str())) {
            Some(trial) => {
                format!("{recorded}; in the trial with as many, syncs took {}.", seconds(busy_seconds(trial)))
            }
            None => format!("{recorded}."),
        }
    }
}

/// Returns how long all syncs of a trial took.
fn busy_seconds(trial: &Trial) -> f64 {
    let controllers = trial.figures.controllers.iter();
    let rates = controllers.map(|of| of.passes_per_second * of.mean_pass_seconds.unwrap_or_default());
    rates.sum::<f64>() * trial.figures.seconds
}

#[cfg(test)]
mod tests {
    use super::super::figures::Figures;
    use super::super::scrape::Scrape;
    use super::super::verdict::tests::trial;
    use super::*;

    fn history() -> History {
        let syncs = |reasons: &[&str], at: &[u64], took: &[u64]| Syncs {
            reasons: reasons.iter().map(|reason| (*reason).to_owned()).collect(),
            at: at.to_vec(),
            objects: (0..).take(at.len()).collect(),
            took: took.to_vec(),
        };
        let few = syncs(&["created"], &[2000], &[40_000]);
        History { workers: 4, syncs: vec![few, syncs(&["spec", "child"], &[900, 2500], &[60_000, 50_000])] }
    }

    #[test]
    fn trial_is_compared_with_the_recording() {
        let words =
            "When this was recorded, 3 syncs (spec and child: 2, created: 1) took 150 ms on 4 workers";
        assert_eq!(history().compared(&[trial(1, 1.0)]), format!("{words}."));
        let scrape = Scrape::parse(
            "workqueue_adds_total{name=\"foo\"} 30\nworkqueue_work_duration_seconds_count{name=\"foo\"} 30\n\
             workqueue_work_duration_seconds_sum{name=\"foo\"} 0.6\n",
        );
        let figures = Figures::between(&Scrape::default(), &scrape, 10.0);
        let like = [trial(1, 1.0), Trial { figures, ..trial(4, 1.0) }];
        assert_eq!(
            history().compared(&like),
            format!("{words}; in the trial with as many, syncs took 600 ms.")
        );
    }

    #[test]
    fn stretch_has_the_syncs_of_its_objects() {
        let some = history().within((1000, 1600), |number| (number == 1).then_some(7));
        let wanted =
            Syncs { objects: vec![7], at: vec![1500], took: vec![50_000], ..history().syncs[1].clone() };
        assert_eq!((some.workers, some.syncs), (4, vec![wanted]));
    }

    #[test]
    fn lists_of_different_lengths_are_refused() {
        let mut broken = history();
        assert_eq!(broken.check(), Ok(()));
        broken.syncs[1].took.pop();
        assert_eq!(broken.check(), Err("history.syncs must have as many objects and took as at".to_owned()));
    }
}
