//! Amounts such as `500m` or `1Gi`, compared by value.
//!
//! Mirrors apimachinery `pkg/api/resource/quantity.go`, as far as comparing needs it.
//!
//! The server stores an amount in a form of its own choice: `1000m` becomes `1`, `1024Mi` becomes `1Gi`. Of limits
//! and requests it also rounds what is finer than a thousandth up, and of binary amounts what does not fit
//! 63 bits down. So does [`normal`], by which two amounts are the same when the server stores the same.
//! All of it is done with integers; text that is no amount, or one of more than 38 digits, is compared as text.
//!
//! # Guarantees
//! - Two ways to write an amount are one. (test: `ways_to_write_an_amount_are_one`)
//! - Two amounts are never one. (test: `amounts_that_differ_are_reported_apart`)
//! - What the server makes of an amount is the same amount. (test: `what_the_server_makes_of_an_amount_is_the_same`)
//! - What is no amount is compared as text. (test: `what_is_no_amount_stays_text`)

/// The largest binary amount that the server keeps.
const BINARY_MAX: u128 = i64::MAX as u128;
/// How fine limits and requests are: thousandths.
const FINEST: i32 = -3;

/// `digits` times ten to the `exponent`; `digits` does not end in a zero.
struct Amount {
    is_negative: bool,
    digits: u128,
    exponent: i32,
}

/// The same text for the same amount; what is no amount stays as it is.
///
/// ```
/// use windlass::controller::kinds::quantity::normal;
/// assert_eq!(normal("1024Mi"), normal("1Gi"));
/// assert_ne!(normal("1G"), normal("1Gi"));
/// ```
#[must_use]
pub fn normal(text: &str) -> String {
    match parse(text) {
        Some(Amount { is_negative, digits, exponent }) => {
            format!("{}{digits}e{exponent}", if is_negative { "-" } else { "" })
        }
        None => text.to_owned(),
    }
}

fn parse(text: &str) -> Option<Amount> {
    let (is_negative, text) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let (whole, part) = number.split_once('.').unwrap_or((number, ""));
    let mut digits: u128 = format!("{whole}{part}").parse().ok()?;
    let mut exponent = 0_i32.checked_sub_unsigned(u32::try_from(part.len()).ok()?)?;
    if let Some(factor) = binary(suffix) {
        digits = digits.checked_mul(factor)?;
        // More than fits into the type is more than there are digits.
        let most = 10_u128.checked_pow(exponent.unsigned_abs()).and_then(|one| one.checked_mul(BINARY_MAX));
        if most.is_some_and(|most| digits > most) {
            (digits, exponent) = (BINARY_MAX, 0);
        }
    } else {
        exponent = exponent.checked_add(decimal(suffix)?)?;
    }
    if exponent < FINEST {
        let finer = 10_u128.checked_pow(exponent.abs_diff(FINEST));
        digits = finer.map_or_else(|| digits.min(1), |finer| digits.div_ceil(finer));
        exponent = FINEST;
    }
    if digits == 0 {
        return Some(Amount { is_negative: false, digits, exponent: 0 });
    }
    while digits.is_multiple_of(10) {
        digits /= 10;
        exponent = exponent.checked_add(1)?;
    }
    Some(Amount { is_negative, digits, exponent })
}

fn binary(suffix: &str) -> Option<u128> {
    let thousands = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"].iter().position(|found| *found == suffix)?;
    1024_u128.checked_pow(u32::try_from(thousands + 1).ok()?)
}

/// The power of ten of a suffix, `k` or `e3`.
fn decimal(suffix: &str) -> Option<i32> {
    Some(match suffix {
        "" => 0,
        "n" => -9,
        "u" => -6,
        "m" => -3,
        "k" => 3,
        "M" => 6,
        "G" => 9,
        "T" => 12,
        "P" => 15,
        "E" => 18,
        _ => suffix.strip_prefix(['e', 'E'])?.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn one(ways: &[&str]) {
        for way in ways {
            assert_eq!(normal(way), normal(ways[0]), "{way} and {}", ways[0]);
        }
    }

    #[test]
    fn ways_to_write_an_amount_are_one() {
        one(&["0", "0.0", "00", "0m", "0Gi", "-0", "0e5"]);
        one(&["1", "1000m", "1.0", "1.", "+1", "01", "1e0", "1E0", "1000000u", "0.001k", "10e-1"]);
        one(&["500m", ".5", "0.5", "0.500", "5e-1"]);
        one(&["1500m", "1.5", "1.500", "15e-1", "+1.5"]);
        one(&["1Ki", "1024", "1.024k", "1024e0"]);
        one(&["1Gi", "1024Mi", "1048576Ki", "1073741824"]);
        one(&["512Mi", "0.5Gi", ".5Gi", "536870912"]);
        one(&["1G", "1000M", "1000000k", "1e9", "1E9", "1e+9", "1000000000"]);
        one(&["1E", "1000P", "1e18"]);
        one(&["1e100", "10e99"]);
        one(&["-1Gi", "-1024Mi"]);
    }

    #[test]
    fn amounts_that_differ_are_reported_apart() {
        let all = [
            "0", "1m", "2m", "1", "-1", "1k", "1Ki", "1M", "1Mi", "1G", "1Gi", "1E", "1Ei", "1e100",
            "1.001Gi",
        ];
        for (at, first) in all.iter().enumerate() {
            for second in &all[at + 1..] {
                assert_ne!(normal(first), normal(second), "{first} and {second}");
            }
        }
        assert_ne!(normal("9223372036854775807"), normal("9223372036854775808"));
    }

    /// Pairs of what is sent and what a server of 1.36 answers, in limits and requests.
    #[test]
    fn what_the_server_makes_of_an_amount_is_the_same() {
        for (sent, stored) in [
            ("1000", "1k"),
            ("1.5Gi", "1536Mi"),
            ("0.5Ki", "512"),
            ("1.1Ki", "1126400m"),
            ("0.1Ki", "102400m"),
            ("12e2", "1200"),
            ("1e19", "10e18"),
            ("8Ei", "9223372036854775807"),
            ("16Ei", "9223372036854775807"),
            ("100u", "1m"),
            ("1n", "1m"),
            ("0.00000000001", "1m"),
            ("1500u", "2m"),
            ("1.2345", "1235m"),
            ("1.00001Gi", "1073752561419m"),
            ("-100u", "-1m"),
            ("10e-4", "1e-3"),
        ] {
            assert_eq!(normal(sent), normal(stored), "{sent} is stored as {stored}");
        }
    }

    #[test]
    fn what_is_no_amount_stays_text() {
        let nines = "9".repeat(40);
        for text in [
            "", ".", "+", "-", "Gi", "1ki", "1KiB", "1 Gi", "1.2.3", "--1", "1e", "1e1.5", "1m5", "two",
            &nines,
        ] {
            assert_eq!(normal(text), text);
        }
        assert_ne!(normal("1e99999999999"), normal("1e99999999998"));
    }

    proptest! {
        #[test]
        fn a_normal_form_is_its_own(number in "[0-9]{0,6}\\.?[0-9]{0,6}", suffix in "(n|u|m|k|M|G|Ki|Mi|Gi|Ti|e-?[0-9])?") {
            let form = normal(&format!("{number}{suffix}"));
            prop_assert_eq!(normal(&form), form);
        }

        #[test]
        fn whole_numbers_are_equal_as_numbers(a in 0..5000_u64, b in 0..5000_u64, by in 0..3_usize) {
            let units = ["", "k", "M"];
            let (first, second) = (format!("{a}{}", units[by]), format!("{}", b * 1000_u64.pow(u32::try_from(by).unwrap())));
            prop_assert_eq!(normal(&first) == normal(&second), a == b);
        }
    }
}
