//! The settings of a sweep: the flags of `windlass run` that are varied, and their values.
//!
//! # Guarantees
//! - Lists and ranges name each value once, in order. (test: `lists_and_ranges_are_expanded`)
//! - All combinations are tried, or one flag at a time around the base. (test: `settings_combine_or_vary_one_at_a_time`)

use std::fmt;

use serde::Serialize;

use super::sweep::Output;
use crate::client::RequestLimits;
use crate::controller::Limits;
use crate::duration;

/// Values of flags of `windlass run`; flags that are not listed have their defaults.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub(super) struct Setting(pub(super) Vec<FlagValue>);

/// A flag, without its dashes, and its value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct FlagValue {
    pub(super) flag: String,
    pub(super) value: String,
}

/// A flag that is varied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Dimension {
    pub(super) flag: &'static str,
    pub(super) values: Vec<String>,
}

/// How the values of several flags are combined.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Combine {
    /// Every combination
    #[default]
    Cross,
    /// One flag at a time, while the others keep the values of --with or their defaults
    OneAtATime,
}

// === impl Setting ===

impl Setting {
    /// Returns a setting of one flag.
    pub(super) fn of(flag: &str, value: &str) -> Self {
        Self(vec![FlagValue { flag: flag.to_owned(), value: value.to_owned() }])
    }

    /// Returns the value of a flag, or `default`.
    fn read<T>(&self, flag: &str, default: T, read: impl FnOnce(&str) -> Option<T>) -> Result<T, String> {
        let Some(value) = self.get(flag) else { return Ok(default) };
        read(value).ok_or_else(|| format!("--{flag}={value} cannot be read"))
    }

    /// Returns the limits of a controller, with `default` for what is not listed.
    pub(super) fn limits(&self, default: Limits) -> Result<Limits, String> {
        let number = |text: &str| text.parse().ok().filter(|number: &u32| *number > 0);
        let time = |text: &str| duration::parse(text).ok();
        let workers = |text: &str| usize::try_from(number(text)?).ok();
        Ok(Limits {
            workers: self.read("workers", default.workers, workers)?,
            base_delay: self.read("queue-base-delay", default.base_delay, time)?,
            max_delay: self.read("queue-max-delay", default.max_delay, time)?,
            qps: self.read("queue-qps", default.qps, |text| number(text).map(f64::from))?,
            burst: self.read("queue-burst", default.burst, number)?,
            audit_period: default.audit_period,
        })
    }

    /// Returns the limits of the client.
    pub(super) fn request_limits(&self) -> Result<RequestLimits, String> {
        let default = RequestLimits::default();
        let rate = |text: &str| text.parse::<u32>().ok().map(|rate| (rate > 0).then_some(f64::from(rate)));
        let burst = |text: &str| text.parse().ok().filter(|burst: &u32| *burst > 0);
        Ok(RequestLimits {
            qps: self.read("kube-api-qps", default.qps, rate)?,
            burst: self.read("kube-api-burst", default.burst, burst)?,
            ..default
        })
    }

    /// Returns the value of a flag, if it is listed.
    pub(super) fn get(&self, flag: &str) -> Option<&str> {
        self.0.iter().find(|entry| entry.flag == flag).map(|entry| entry.value.as_str())
    }

    /// Returns the flags as arguments.
    pub(super) fn arguments(&self) -> Vec<String> {
        self.0.iter().map(|FlagValue { flag, value }| format!("--{flag}={value}")).collect()
    }

    /// Returns the flags as text to apply: as arguments, as values of the Helm chart, or as environment variables.
    pub(super) fn to_apply(&self, form: Output) -> String {
        let lines: Vec<String> = match form {
            Output::Helm => {
                let items = self.arguments().into_iter().map(|argument| format!("  - {argument}"));
                std::iter::once("extraArgs:".to_owned()).chain(items).collect()
            }
            Output::Env => {
                let variable = |flag: &str| flag.to_uppercase().replace('-', "_");
                self.0
                    .iter()
                    .map(|entry| format!("WINDLASS_{}={}", variable(&entry.flag), entry.value))
                    .collect()
            }
            Output::Flags | Output::Table | Output::Json => self.arguments(),
        };
        if self.0.is_empty() { String::new() } else { lines.join("\n") + "\n" }
    }

    fn with(&self, flag: &str, value: &str) -> Self {
        let mut all: Vec<FlagValue> = self.0.iter().filter(|entry| entry.flag != flag).cloned().collect();
        all.push(FlagValue { flag: flag.to_owned(), value: value.to_owned() });
        Self(all)
    }

    /// Returns whether two settings differ at most in this flag.
    pub(super) fn differs_only_in(&self, other: &Self, flag: &str) -> bool {
        let rest = |setting: &Self| -> Vec<FlagValue> {
            let mut rest: Vec<_> = setting.0.iter().filter(|entry| entry.flag != flag).cloned().collect();
            rest.sort_by(|a, b| a.flag.cmp(&b.flag));
            rest
        };
        rest(self) == rest(other)
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("defaults");
        }
        f.write_str(&self.arguments().join(" "))
    }
}

/// Expands `1,2,4`, `1..16` (doubled each time) and `10..50/10` (in steps).
pub(super) fn expand(text: &str) -> Result<Vec<String>, String> {
    let mut values: Vec<String> = Vec::new();
    for part in text.split(',').map(str::trim) {
        let Some((from, to)) = part.split_once("..") else {
            if part.is_empty() {
                return Err(format!("{text:?} has an empty value"));
            }
            values.push(part.to_owned());
            continue;
        };
        let (to, step) = to.split_once('/').map_or((to, None), |(to, step)| (to, Some(step)));
        let number = |text: &str| -> Result<u64, String> {
            text.parse()
                .map_err(|_| format!("{text:?} is not a whole number; write 1,2,4 or 1..16 or 10..50/10"))
        };
        let (mut at, to, step) = (number(from)?, number(to)?, step.map(number).transpose()?);
        if step == Some(0) || (step.is_none() && at == 0) || at > to {
            return Err(format!("{part:?} is no range; write 1..16 to double, or 10..50/10 for steps of 10"));
        }
        while at <= to {
            values.push(at.to_string());
            at = step.map_or(at * 2, |step| at + step);
        }
    }
    let mut seen = std::collections::BTreeSet::new();
    values.retain(|value| seen.insert(value.clone()));
    Ok(values)
}

/// Returns the settings to try.
pub(super) fn settings(base: &Setting, dimensions: &[Dimension], combine: Combine) -> Vec<Setting> {
    let vary = |from: &[Setting], dimension: &Dimension| -> Vec<Setting> {
        from.iter()
            .flat_map(|setting| dimension.values.iter().map(|value| setting.with(dimension.flag, value)))
            .collect()
    };
    match combine {
        Combine::Cross => dimensions.iter().fold(vec![base.clone()], |all, dimension| vary(&all, dimension)),
        Combine::OneAtATime => {
            let base = std::slice::from_ref(base);
            dimensions.iter().flat_map(|dimension| vary(base, dimension)).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn setting_is_read_as_limits() {
        let setting = Setting(
            [("workers", "8"), ("queue-base-delay", "1s"), ("kube-api-qps", "5"), ("queue-qps", "7")]
                .map(|(flag, value)| FlagValue { flag: flag.to_owned(), value: value.to_owned() })
                .to_vec(),
        );
        let limits = setting.limits(Limits::default()).unwrap();
        assert_eq!((limits.workers, limits.burst), (8, Limits::default().burst));
        assert_eq!(limits.base_delay, Duration::from_secs(1));
        assert!((limits.qps - 7.0).abs() < 1e-9);
        assert_eq!(setting.request_limits().unwrap().qps, Some(5.0));
        assert_eq!(Setting::of("kube-api-qps", "0").request_limits().unwrap().qps, None);
        for (flag, value) in [("workers", "0"), ("workers", "auto"), ("queue-max-delay", "5")] {
            let error = Setting::of(flag, value).limits(Limits::default()).unwrap_err();
            assert_eq!(error, format!("--{flag}={value} cannot be read"));
        }
    }

    #[test]
    fn settings_are_printed_ready_to_apply() {
        let of = |flag: &str, value: &str| FlagValue { flag: flag.to_owned(), value: value.to_owned() };
        let setting = Setting(vec![of("workers", "8"), of("queue-base-delay", "5ms")]);
        assert_eq!(setting.to_apply(Output::Flags), "--workers=8\n--queue-base-delay=5ms\n");
        assert_eq!(
            setting.to_apply(Output::Helm),
            "extraArgs:\n  - --workers=8\n  - --queue-base-delay=5ms\n"
        );
        assert_eq!(setting.to_apply(Output::Env), "WINDLASS_WORKERS=8\nWINDLASS_QUEUE_BASE_DELAY=5ms\n");
        assert_eq!(Setting::default().to_apply(Output::Helm), "", "nothing to change");
    }

    #[test]
    fn lists_and_ranges_are_expanded() {
        assert_eq!(expand("4, 2,4").unwrap(), ["4", "2"]);
        assert_eq!(expand("1..16").unwrap(), ["1", "2", "4", "8", "16"]);
        assert_eq!(expand("10..50/20,5ms").unwrap(), ["10", "30", "50", "5ms"]);
        for text in ["", "0..8", "8..1", "1..x", "1..8/0"] {
            assert!(expand(text).is_err(), "{text}");
        }
    }

    #[test]
    fn settings_combine_or_vary_one_at_a_time() {
        let dimension = |flag, values: &[&str]| Dimension {
            flag,
            values: values.iter().map(ToString::to_string).collect(),
        };
        let dimensions = [dimension("workers", &["1", "2"]), dimension("queue-qps", &["5", "50"])];
        let base = Setting(vec![FlagValue { flag: "workers".to_owned(), value: "8".to_owned() }]);
        let shown = |combine| -> Vec<String> {
            settings(&base, &dimensions, combine).iter().map(ToString::to_string).collect()
        };
        assert_eq!(
            shown(Combine::Cross),
            [
                "--workers=1 --queue-qps=5",
                "--workers=1 --queue-qps=50",
                "--workers=2 --queue-qps=5",
                "--workers=2 --queue-qps=50"
            ]
        );
        assert_eq!(
            shown(Combine::OneAtATime),
            ["--workers=1", "--workers=2", "--workers=8 --queue-qps=5", "--workers=8 --queue-qps=50"]
        );
    }
}
