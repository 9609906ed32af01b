//! Kubernetes quantities such as `500m` or `1Gi`: compared by value, and written as the API server stores them.
//!
//! Mirrors apimachinery `pkg/api/resource/quantity.go`, odd corners included.
//!
//! The server stores a quantity in canonical form: `1000m` becomes `1`, `1024Mi` becomes `1Gi`, while text that is
//! canonical already, or nearly so (`+1`, `1.500`), stays. Limits and requests are rounded up to thousandths, and
//! binary quantities are capped at 63 bits. The arithmetic uses integers. Text of more than 38 digits stays text
//! here; a real server keeps all its digits.
//!
//! # Guarantees
//! - Different spellings of a quantity are equal. (test: `spellings_of_a_quantity_are_equal`)
//! - Different quantities are not equal. (test: `different_quantities_differ`)
//! - Limits and requests equal their stored form. (test: `stored_limits_equal_what_was_sent`)
//! - Text that is no quantity is compared as text. (test: `invalid_quantity_stays_text`)

use std::cmp::Ordering;

const WRONG_FORM: &str = "quantities must match the regular expression \
    '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
const WRONG_SUFFIX: &str = "unable to parse quantity's suffix";

/// The largest binary quantity that the server keeps.
const BINARY_MAX: u128 = i64::MAX as u128;
/// The precision of a quantity: billionths, as a power of ten.
pub const NANO: i32 = -9;
/// The precision of limits and requests: thousandths, as a power of ten.
pub const MILLI: i32 = -3;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Binary,
    Decimal,
    Exponent,
}

/// `digits` times ten to the `exponent`.
#[derive(Clone, Copy)]
struct Amount {
    is_negative: bool,
    digits: u128,
    exponent: i32,
    form: Form,
    /// Whether the server stores the amount as written.
    is_kept: bool,
}

/// Returns the same text for the same quantity in limits and requests. Text that is no quantity is returned as it is.
///
/// ```
/// use windlass::api::quantity::normal;
/// assert_eq!(normal("1024Mi"), normal("1Gi"));
/// assert_ne!(normal("1G"), normal("1Gi"));
/// ```
#[must_use]
pub fn normal(text: &str) -> String {
    let has_digits = text.contains(|c: char| c.is_ascii_digit());
    match parse(text).ok().flatten().filter(|_| has_digits).map(|amount| amount.rounded_up(MILLI).reduced()) {
        Some(Amount { is_negative, digits, exponent, .. }) => {
            let sign = if is_negative && digits > 0 { "-" } else { "" };
            format!("{sign}{digits}e{exponent}")
        }
        None => text.to_owned(),
    }
}

/// Returns the text that the server stores for a quantity of this precision ([`NANO`] or [`MILLI`]).
///
/// # Errors
/// The server's message for text that is no quantity.
pub fn stored(text: &str, precision: i32) -> Result<String, &'static str> {
    let Some(amount) = parse(text)? else { return Ok(text.to_owned()) };
    let is_finer = amount.exponent < precision;
    Ok(if amount.is_kept && !is_finer { text.to_owned() } else { canonical(&amount.rounded_up(precision)) })
}

/// Compares two stored quantities. Text that is no quantity equals anything.
#[must_use]
pub fn compare(first: &str, second: &str) -> Ordering {
    let thousandths = |text: &str| {
        let amount = parse(text).ok().flatten()?.rounded_up(MILLI);
        let scale = 10_i128.checked_pow(amount.exponent.abs_diff(MILLI))?;
        let digits = i128::try_from(amount.digits).ok()?.checked_mul(scale)?;
        Some(if amount.is_negative { -digits } else { digits })
    };
    match (thousandths(first), thousandths(second)) {
        (Some(first), Some(second)) => first.cmp(&second),
        _ => Ordering::Equal,
    }
}

/// Parses a quantity; `None` if its digits do not fit in 128 bits.
fn parse(text: &str) -> Result<Option<Amount>, &'static str> {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let is_negative = text.starts_with('-');
    let end = unsigned.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(unsigned.len());
    let (number, suffix) = unsigned.split_at(end);
    let letters = suffix.trim_start_matches(|c| "eEinumkKMGTP".contains(c));
    let rest = letters.strip_prefix(['-', '+']).unwrap_or(letters);
    if text.is_empty() || !rest.bytes().all(|byte| byte.is_ascii_digit()) || number.matches('.').count() > 1 {
        return Err(WRONG_FORM);
    }
    let (whole, part) = number.split_once('.').unwrap_or((number, ""));
    let (factor, power, form) = interpret(suffix).ok_or(WRONG_SUFFIX)?;
    let whole = whole.trim_start_matches('0');
    let shifted = format!("{}{part}", if whole.is_empty() { "0" } else { whole });
    let (Ok(digits), Ok(places)) = (shifted.parse::<u128>(), i32::try_from(part.len())) else {
        return Ok(None);
    };
    let exponent = power.saturating_sub(places);
    let precision = 18_usize.checked_sub(shifted.len());
    let is_kept = match form {
        Form::Decimal | Form::Exponent => {
            let is_canonical = exponent % 3 == 0 && !shifted.ends_with("000") && !shifted.starts_with('0');
            precision.is_some() && exponent >= NANO && is_canonical
        }
        // Each power of 1024 takes three digits of the precision.
        Form::Binary => {
            let used = shifted.len() + usize::try_from(factor.ilog2()).unwrap_or_default() * 3 / 10;
            part.is_empty() && used <= 14 && digits % 8 != 0
        }
    };
    let Some(digits) = digits.checked_mul(factor) else { return Ok(None) };
    let amount = Amount { is_negative, digits, exponent, form, is_kept };
    Ok(Some(amount.rounded_up(NANO).capped()))
}

fn interpret(suffix: &str) -> Option<(u128, i32, Form)> {
    let binary = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"].iter().position(|found| *found == suffix);
    if let Some(at) = binary {
        return Some((1024_u128.checked_pow(u32::try_from(at + 1).ok()?)?, 0, Form::Binary));
    }
    let decimal = SUFFIXES.iter().find(|(_, found)| *found == suffix);
    if let Some((power, _)) = decimal {
        return Some((1, *power, Form::Decimal));
    }
    Some((1, suffix.strip_prefix(['e', 'E'])?.parse().ok()?, Form::Exponent))
}

const SUFFIXES: [(i32, &str); 10] =
    [(-9, "n"), (-6, "u"), (-3, "m"), (0, ""), (3, "k"), (6, "M"), (9, "G"), (12, "T"), (15, "P"), (18, "E")];

// === impl Amount ===

impl Amount {
    /// Rounds to this precision, away from zero.
    fn rounded_up(mut self, finest: i32) -> Self {
        if self.exponent < finest {
            let finer = 10_u128.checked_pow(self.exponent.abs_diff(finest));
            self.digits = finer.map_or_else(|| self.digits.min(1), |finer| self.digits.div_ceil(finer));
            self.exponent = finest;
        }
        self
    }

    /// Moves trailing zeros from the digits to the exponent.
    fn reduced(mut self) -> Self {
        if self.digits == 0 {
            self.exponent = 0;
        }
        while self.digits > 0 && self.digits.is_multiple_of(10) {
            self.digits /= 10;
            self.exponent = self.exponent.saturating_add(1);
        }
        self
    }

    fn capped(mut self) -> Self {
        let one = 10_u128.checked_pow(self.exponent.unsigned_abs());
        let most = one.and_then(|one| one.checked_mul(BINARY_MAX));
        if self.form == Form::Binary && most.is_some_and(|most| self.digits > most) {
            (self.digits, self.exponent) = (BINARY_MAX, 0);
        }
        self
    }
}

fn canonical(amount: &Amount) -> String {
    let Amount { is_negative, mut digits, mut exponent, mut form, .. } = amount.reduced();
    if digits == 0 {
        return "0".to_owned();
    }
    let sign = if is_negative { "-" } else { "" };
    if form == Form::Binary {
        let whole = u32::try_from(exponent).ok().and_then(|up| digits.checked_mul(10_u128.checked_pow(up)?));
        match whole.filter(|whole| *whole >= 1024) {
            Some(mut whole) => {
                let mut thousands = 0;
                while whole.is_multiple_of(1024) && thousands < 6 {
                    whole /= 1024;
                    thousands += 1;
                }
                let suffix = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"][thousands];
                return format!("{sign}{whole}{suffix}");
            }
            // Amounts below 1024 and fractions are not written in powers of two.
            None => form = Form::Decimal,
        }
    }
    while exponent % 3 != 0 {
        digits = digits.saturating_mul(10);
        exponent -= 1;
    }
    let suffix = match form {
        Form::Exponent if exponent == 0 => String::new(),
        Form::Exponent => format!("e{exponent}"),
        // An amount that is too large for any suffix loses its suffix, as on a real server.
        Form::Binary | Form::Decimal => {
            SUFFIXES.iter().find(|(power, _)| *power == exponent).map_or("", |(_, suffix)| suffix).to_owned()
        }
    };
    format!("{sign}{digits}{suffix}")
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
    fn spellings_of_a_quantity_are_equal() {
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
    fn different_quantities_differ() {
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

    /// Pairs of a sent quantity and its stored form in limits and requests, from a server of version 1.36.
    #[test]
    fn stored_limits_equal_what_was_sent() {
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
    fn invalid_quantity_stays_text() {
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
        fn normal_form_is_idempotent(number in "[0-9]{0,6}\\.?[0-9]{0,6}", suffix in "(n|u|m|k|M|G|Ki|Mi|Gi|Ti|e-?[0-9])?") {
            let form = normal(&format!("{number}{suffix}"));
            prop_assert_eq!(normal(&form), form);
        }

        #[test]
        fn whole_numbers_compare_by_value(a in 0..5000_u64, b in 0..5000_u64, by in 0..3_usize) {
            let units = ["", "k", "M"];
            let (first, second) = (format!("{a}{}", units[by]), format!("{}", b * 1000_u64.pow(u32::try_from(by).unwrap())));
            prop_assert_eq!(normal(&first) == normal(&second), a == b);
        }
    }

    /// Quantities as sent, and as a real server stores them: in general, and in limits and requests.
    const STORED: &str = "0 0 0|1 1 1|1000m 1 1|1500m 1500m 1500m|1.5 1500m 1500m|.5 500m 500m|5. 5. 5.|+1 +1 +1|\
        -1 -1 -1|-1.5 -1500m -1500m|0012 0012 0012|1.500 1.500 1.500|1.0 1 1|1000 1k 1k|1024 1024 1024|1Ki 1Ki 1Ki|\
        1024Mi 1Gi 1Gi|1.5Gi 1536Mi 1536Mi|0.5Gi 512Mi 512Mi|0.5Ki 512 512|512Mi 512Mi 512Mi|100Mi 100Mi 100Mi|\
        1.1Ki 1126400m 1126400m|0.1Ki 102400m 102400m|1e3 1e3 1e3|1E3 1E3 1E3|1e-3 1e-3 1e-3|1e+3 1e+3 1e+3|\
        12e2 1200 1200|1E 1E 1E|1Ei 1Ei 1Ei|8Ei 9223372036854775807 9223372036854775807|\
        16Ei 9223372036854775807 9223372036854775807|9223372036854775808 9223372036854775808 9223372036854775808|\
        1e100 10e99 10e99|100u 100u 1m|1n 1n 1m|1500u 1500u 2m|0.0001 100u 1m|0.00000000001 1n 1m|1.2345 1234500u 1235m|\
        1001u 1001u 2m|128974848 128974848 128974848|129e6 129e6 129e6|123Mi 123Mi 123Mi|00 0 0|0.0 0 0|0m 0 0|0Gi 0 0|\
        1000000k 1G 1G|1.00001Gi 1073752561418240u 1073752561419m|2000m 2 2|1023Ki 1023Ki 1023Ki|-1024Mi -1Gi -1Gi|\
        -0.5Gi -512Mi -512Mi|-100u -100u -1m|10e-4 1e-3 1e-3|1e18 1e18 1e18|1e19 10e18 10e18|1000E 1 1|10E 10E 10E|\
        0.0000001 100n 1m|123456789.123456789 123456789.123456789 123456789124m|1.0000000001 1000000001n 1001m|\
        1234567890123456789 1234567890123456789 1234567890123456789|2000000000000000000000m 2E 2E|\
        99999Gi 99999Gi 99999Gi|100Ti 100Ti 100Ti|1Pi 1Pi 1Pi|8Ki 8Ki 8Ki|1.25Ki 1280 1280|1e-10 1e-9 1e-3|\
        -1n -1n -1m|1.1 1100m 1100m|0.1Gi 107374182400m 107374182400m|0.001Ki 1024m 1024m|-0 0 0|3000k 3M 3M|10e6 10e6 10e6";

    #[test]
    fn stored_form_matches_a_real_server() {
        for line in STORED.split('|') {
            let [sent, as_it_is, in_lists] = line.split(' ').collect::<Vec<_>>()[..] else {
                panic!("{line}")
            };
            assert_eq!(stored(sent, NANO).as_deref(), Ok(as_it_is), "{sent}");
            assert_eq!(stored(sent, MILLI).as_deref(), Ok(in_lists), "{sent} in a list");
        }
        let long = "9".repeat(50);
        assert_eq!(stored(&long, NANO).as_deref(), Ok(&*long));
    }

    #[test]
    fn invalid_quantity_has_one_of_two_errors() {
        for text in ["", "abc", "1KiB", "1 Gi", "1e1.5", "1.2.3"] {
            assert_eq!(stored(text, NANO), Err(WRONG_FORM), "{text}");
        }
        for text in ["1ki", "1m5", "1e", "--1", "1kM"] {
            assert_eq!(stored(text, NANO), Err(WRONG_SUFFIX), "{text}");
        }
    }

    #[test]
    fn stored_quantities_are_compared_by_value() {
        assert_eq!(compare("1", "1000m"), Ordering::Equal);
        assert_eq!(compare("1Gi", "1G"), Ordering::Greater);
        assert_eq!(compare("-1", "0"), Ordering::Less);
        assert_eq!(compare("1e30", "1m"), Ordering::Greater);
    }
}
