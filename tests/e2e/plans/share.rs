//! How much of a long list of disturbances a run tries.

/// A part of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Share {
    All,
    /// This many, chosen at random.
    Some(usize),
}

impl Share {
    /// Returns what an environment variable says, a number or `all`; `usual` if it is not set.
    pub(crate) fn from_env(variable: &str, usual: Self) -> Self {
        let Ok(text) = std::env::var(variable) else { return usual };
        if text == "all" {
            return Self::All;
        }
        match text.parse() {
            Ok(count) => Self::Some(count),
            Err(_) => panic!("{variable}={text} is neither a number nor all"),
        }
    }

    /// Shuffles a list, unless it is tried whole, and returns this much of it.
    pub(crate) fn of<T>(self, mut all: Vec<T>, random: &mut fastrand::Rng) -> Vec<T> {
        if let Self::Some(count) = self {
            random.shuffle(&mut all);
            all.truncate(count);
        }
        all
    }
}
