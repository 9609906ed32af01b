//! The value of `--workers`: a number, or one that follows the load.

use std::str::FromStr;

use crate::controller::{AutoWorkers, Limits, Runnable};

const MAX: usize = 1000;

/// How many workers a controller has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WorkerCount {
    Fixed(usize),
    /// From 1 to this number.
    Auto {
        max: usize,
    },
}

// === impl WorkerCount ===

impl WorkerCount {
    /// Returns the number at the start.
    pub(super) fn initial(self) -> usize {
        match self {
            Self::Fixed(workers) => workers,
            Self::Auto { max } => Limits::default().workers.min(max),
        }
    }

    pub(super) fn set(self, controller: Runnable) -> Runnable {
        let controller = controller.with_workers(self.initial());
        match self {
            Self::Fixed(_) => controller,
            Self::Auto { max } => controller.with_auto_workers(AutoWorkers::up_to(max)),
        }
    }
}

impl FromStr for WorkerCount {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |text: &str| match text.parse::<i64>().map(usize::try_from) {
            Ok(Ok(number)) if (1..=MAX).contains(&number) => Ok(number),
            Ok(_) => Err(format!("{text} is not in 1..={MAX}")),
            Err(_) => Err(format!("give a number from 1 to {MAX}, auto, or auto:MAX such as auto:8")),
        };
        match text.strip_prefix("auto") {
            Some("") => Ok(Self::Auto { max: AutoWorkers::DEFAULT_MAX }),
            Some(rest) => number(rest.strip_prefix(':').unwrap_or(text)).map(|max| Self::Auto { max }),
            None => number(text).map(Self::Fixed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_is_fixed_or_follows_the_load() {
        let parsed = |text: &str| text.parse::<WorkerCount>();
        assert_eq!(parsed("8"), Ok(WorkerCount::Fixed(8)));
        assert_eq!(parsed("auto"), Ok(WorkerCount::Auto { max: 16 }));
        assert_eq!(parsed("auto:1"), Ok(WorkerCount::Auto { max: 1 }));
        assert_eq!(["3", "auto", "auto:1"].map(|text| parsed(text).unwrap().initial()), [3, 2, 1]);
        for text in ["0", "1001", "-1", "auto:0", "auto:1001"] {
            let cause = format!("{} is not in 1..=1000", text.trim_start_matches("auto:"));
            assert_eq!(parsed(text), Err(cause));
        }
        for text in ["", "many", "auto:", "auto8", "auto:auto", "Auto"] {
            assert!(parsed(text).unwrap_err().contains("auto, or auto:MAX"), "{text}");
        }
    }
}
