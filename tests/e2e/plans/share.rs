//! How much of a long list of disturbances a run tries.

use macro_rules_attribute::apply;

use crate::support::no_bed;

/// A part of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Share {
    All,
    /// This many, chosen at random.
    Some(usize),
    /// One piece of so many. With one seed, the pieces have all of the list together, and none of it twice.
    Piece {
        piece: usize,
        of: usize,
    },
}

impl Share {
    /// Returns what an environment variable says, a number, `all` or a piece such as `1/10`; `usual` if it is not set.
    pub(crate) fn from_env(variable: &str, usual: Self) -> Self {
        let Ok(text) = std::env::var(variable) else { return usual };
        Self::parse(&text)
            .unwrap_or_else(|| panic!("{variable}={text} is no number, not all, and no piece such as 1/10"))
    }

    fn parse(text: &str) -> Option<Self> {
        if text == "all" {
            return Some(Self::All);
        }
        let Some((piece, of)) = text.split_once('/') else { return text.parse().ok().map(Self::Some) };
        let (piece, of) = (piece.parse().ok()?, of.parse().ok()?);
        (1..=of).contains(&piece).then_some(Self::Piece { piece, of })
    }

    /// Shuffles a list, unless it is tried whole, and returns this much of it.
    pub(crate) fn of<T>(self, mut all: Vec<T>, random: &mut fastrand::Rng) -> Vec<T> {
        match self {
            Self::All => all,
            Self::Some(count) => {
                random.shuffle(&mut all);
                all.truncate(count);
                all
            }
            Self::Piece { piece, of } => {
                random.shuffle(&mut all);
                all.into_iter().skip(piece - 1).step_by(of).collect()
            }
        }
    }
}

#[apply(no_bed)]
#[why = "it tests the choice of plans"]
async fn pieces_have_all_of_the_list_and_none_of_it_twice() {
    let piece = |piece| {
        let share = Share::parse(&format!("{piece}/3")).unwrap();
        share.of((0..100).collect(), &mut fastrand::Rng::with_seed(7))
    };
    let mut all: Vec<i32> = [1, 2, 3].into_iter().flat_map(piece).collect();
    all.sort_unstable();
    assert_eq!(all, (0..100).collect::<Vec<_>>());
    assert_eq!(["0/3", "4/3", "1/0", "x", "1/"].map(Share::parse), [None; 5]);
    assert_eq!((Share::parse("all"), Share::parse("7")), (Some(Share::All), Some(Share::Some(7))));
}
