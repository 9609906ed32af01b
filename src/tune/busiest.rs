//! The busiest stretch of a recorded load, which a sweep of a long recording replays.
//!
//! A setting that keeps up with it keeps up with the rest of the recording, so a day can be swept by a few of its minutes.
//!
//! # Guarantees
//! - No stretch of that length has more creations and changes. (test: `busiest_stretch_is_found`)
//! - Its objects are those that it creates or changes; earlier ones exist and have converged.
//!   (test: `objects_of_the_stretch_are_kept`)
//! - It has the syncs of these objects. (test: `objects_of_the_stretch_are_kept`)

use std::collections::BTreeMap;
use std::time::Duration;

use super::load::{Arrivals, Load, Objects};

/// A part of a recorded load.
pub(super) struct Stretch {
    pub(super) load: Load,
    /// When it begins in the recording.
    pub(super) from: Duration,
    /// Its creations and changes, and those of the recording.
    pub(super) arrivals: (usize, usize),
}

/// Returns the stretch of this length with the most creations and changes.
pub(super) fn busiest(load: &Load, length: Duration) -> Result<Stretch, String> {
    let (created, _) = recorded(&load.creations)?;
    let (changed, numbers) = recorded(&load.changes)?;
    let length = u64::try_from(length.as_millis()).unwrap_or(u64::MAX);
    let mut all: Vec<u64> = created.iter().chain(changed).copied().collect();
    all.sort_unstable();
    let mut end = 0;
    let mut most = (0, 0);
    for (at, from) in all.iter().enumerate() {
        while all.get(end).is_some_and(|time| time - from < length) {
            end += 1;
        }
        if end - at > most.0 {
            most = (end - at, *from);
        }
    }
    let (arrivals, from) = most;
    let within = |times: &[u64]| {
        let first = times.partition_point(|time| *time < from);
        first..times.partition_point(|time| *time < from || time - from < length)
    };
    let (creations, changes) = (within(created), within(changed));
    let shifted = |times: &[u64]| times.iter().map(|time| time - from).collect::<Vec<u64>>();

    // The objects that exist by then and are changed now, by their numbers in the recording.
    let existing = load.objects.count + creations.start;
    let number = |number: &u32| usize::try_from(*number).unwrap_or(usize::MAX);
    let numbers = if numbers.is_empty() { &[] } else { &numbers[changes.clone()] };
    let mut kept: BTreeMap<usize, usize> =
        numbers.iter().map(number).filter(|number| *number < existing).map(|number| (number, 0)).collect();
    kept.values_mut().enumerate().for_each(|(nth, new)| *new = nth);
    let count = if numbers.is_empty() { existing } else { kept.len() };
    let new_number = |old: &u32| {
        let old = number(old);
        let same = if old < existing { old } else { count + old - existing };
        let new = kept.get(&old).copied().unwrap_or(same);
        u32::try_from(new).unwrap_or(u32::MAX)
    };
    let end = existing + creations.len();
    let is_kept = |old: &u32| {
        let old = number(old);
        numbers.is_empty() || kept.contains_key(&old) || (existing..end).contains(&old)
    };
    let history = load
        .history
        .as_ref()
        .map(|history| history.within((from, length), |old| is_kept(&old).then(|| new_number(&old))));
    let series = |at: Vec<u64>, objects: Vec<u32>| match at.is_empty() {
        true => Vec::new(),
        false => vec![Arrivals::Recorded { at, objects }],
    };
    let load = Load {
        objects: Objects { count, converged: load.objects.converged || from > 0 },
        creations: series(shifted(&created[creations]), Vec::new()),
        changes: series(shifted(&changed[changes]), numbers.iter().map(new_number).collect()),
        history,
        ..load.clone()
    };
    Ok(Stretch { load, from: Duration::from_millis(from), arrivals: (arrivals, all.len()) })
}

/// Returns times and objects of a recorded series.
fn recorded(series: &[Arrivals]) -> Result<(&[u64], &[u32]), String> {
    match series {
        [] => Ok((&[], &[])),
        [Arrivals::Recorded { at, objects }] => Ok((at, objects)),
        _ => Err("the load is not a recording".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::history::{History, Syncs};
    use super::*;

    fn series(at: &[u64], objects: &[u32]) -> Vec<Arrivals> {
        vec![Arrivals::Recorded { at: at.to_vec(), objects: objects.to_vec() }]
    }

    fn history(at: &[u64], objects: &[u32]) -> Option<History> {
        let (at, objects, took) = (at.to_vec(), objects.to_vec(), vec![9; at.len()]);
        Some(History {
            workers: 2,
            syncs: vec![Syncs { reasons: vec!["spec".to_owned()], at, objects, took }],
        })
    }

    #[test]
    fn busiest_stretch_is_found() {
        let changes = series(&[0, 900, 5_000, 5_400, 5_999, 6_000, 9_000], &[]);
        let load = Load { objects: Objects { count: 3, converged: true }, changes, ..Load::default() };
        let stretch = busiest(&load, Duration::from_secs(1)).unwrap();
        assert_eq!((stretch.from, stretch.arrivals), (Duration::from_secs(5), (3, 7)));
        assert_eq!(stretch.load.changes, series(&[0, 400, 999], &[]));
        assert_eq!(stretch.load.objects.count, 3);
        let whole = busiest(&load, Duration::from_secs(3600)).unwrap();
        assert_eq!((whole.from, whole.load.changes), (Duration::ZERO, load.changes));
        let steady = Load::of(super::super::load::Profile::Steady);
        assert!(busiest(&steady, Duration::from_secs(1)).is_err(), "it has no recorded times");
    }

    /// Objects 0 to 9 exist, 10 and 11 are created before the stretch, and 12 in it.
    #[test]
    fn objects_of_the_stretch_are_kept() {
        let load = Load {
            objects: Objects { count: 10, converged: false },
            creations: series(&[0, 100, 5_000], &[]),
            changes: series(&[50, 5_100, 5_200, 5_300, 5_400, 9_000], &[1, 11, 7, 12, 7, 3]),
            history: history(&[60, 5_000, 5_150, 5_250, 5_350, 5_500], &[1, 12, 11, 7, 12, 3]),
            ..Load::default()
        };
        let stretch = busiest(&load, Duration::from_secs(1)).unwrap();
        assert_eq!(stretch.arrivals, (5, 9));
        assert_eq!(stretch.load.objects, Objects { count: 2, converged: true });
        assert_eq!(stretch.load.creations, series(&[0], &[]));
        assert_eq!(stretch.load.changes, series(&[100, 200, 300, 400], &[1, 0, 2, 0]), "11, 7, 12, 7");
        assert_eq!(stretch.load.history, history(&[0, 150, 250, 350], &[2, 1, 0, 2]), "3 is not in it");
    }
}
