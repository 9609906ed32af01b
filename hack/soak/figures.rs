//! Arithmetic of figures: percentiles, and the slope of a series.

/// A time and a value.
pub(crate) type Point = (f64, f64);

/// Returns the value below which this share of the values lies; 0 if there is none.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "a rank is a small positive number"
)]
pub(crate) fn percentile(values: &[f64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let rank = (sorted.len() as f64 * share).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or_default()
}

/// Returns the slope of the line through the points by least squares; 0 if there are fewer than two.
pub(crate) fn slope(points: &[Point]) -> f64 {
    let sum = |value: &dyn Fn(&Point) -> f64| points.iter().map(value).sum::<f64>();
    let count = sum(&|_| 1.0);
    if count < 2.0 {
        return 0.0;
    }
    let (x, y) = (sum(&|point| point.0) / count, sum(&|point| point.1) / count);
    let squares = sum(&|point| (point.0 - x).powi(2));
    if squares == 0.0 { 0.0 } else { sum(&|point| (point.0 - x) * (point.1 - y)) / squares }
}

#[cfg(test)]
mod tests {
    use super::{percentile, slope};

    #[test]
    fn percentiles_are_values_that_occurred() {
        let values: Vec<f64> = (1..=100).rev().map(f64::from).collect();
        assert_eq!([0.0, 0.5, 0.99, 1.0].map(|share| percentile(&values, share)), [1.0, 50.0, 99.0, 100.0]);
        assert_eq!(percentile(&[7.0], 0.99), 7.0);
        assert_eq!(percentile(&[], 0.5), 0.0);
    }

    #[test]
    fn slopes_are_those_of_the_nearest_line() {
        let line: Vec<(f64, f64)> = (0..10).map(|at| (f64::from(at), 3.0 - 2.0 * f64::from(at))).collect();
        assert!((slope(&line) + 2.0).abs() < 1e-9);
        assert!((slope(&[(0.0, 0.0), (1.0, 1.0), (2.0, 0.0)])).abs() < 1e-9);
        assert_eq!((slope(&[]), slope(&[(1.0, 5.0)]), slope(&[(1.0, 5.0), (1.0, 6.0)])), (0.0, 0.0, 0.0));
    }
}
