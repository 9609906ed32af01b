//! Amounts such as `500m` or `1Gi`, in the form in which the server stores them.
//!
//! Mirrors apimachinery `pkg/api/resource/quantity.go`, odd corners included: what is written in canonical form, or
//! nearly so, stays as it is (`+1`, `1.500`); the rest is written anew, with the suffix as large as it can be.
//! Text of more than 38 digits, of which a real server keeps all, stays as it is.

use std::cmp::Ordering;

use serde_json::Value;

const WRONG_FORM: &str = "quantities must match the regular expression \
    '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
const WRONG_SUFFIX: &str = "unable to parse quantity's suffix";

/// The largest binary amount.
const BINARY_MAX: u128 = i64::MAX as u128;
const NANO: i32 = -9;
const MILLI: i32 = -3;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Binary,
    Decimal,
    Exponent,
}

/// `digits` times ten to the `exponent`.
struct Amount {
    is_negative: bool,
    digits: u128,
    exponent: i32,
    form: Form,
    /// Whether it is stored as it is written.
    is_kept: bool,
}

/// Brings all amounts of an object with Pods or templates into the form in which they are stored.
pub(super) fn normalize(object: &mut Value) -> Result<(), String> {
    normalize_in(object, "")
}

fn normalize_in(value: &mut Value, parent: &str) -> Result<(), String> {
    match value {
        Value::Array(items) => items.iter_mut().try_for_each(|item| normalize_in(item, parent)),
        Value::Object(members) => members.iter_mut().try_for_each(|(name, value)| match (parent, &**name) {
            // Labels and annotations may be called anything.
            (_, "metadata") => Ok(()),
            ("resources", "limits" | "requests") => {
                let mut amounts = value.as_object_mut().into_iter().flat_map(serde_json::Map::values_mut);
                // No finer than thousandths.
                amounts.try_for_each(|amount| store(amount, MILLI))
            }
            ("resourceFieldRef", "divisor") | ("emptyDir", "sizeLimit") => store(value, NANO),
            (_, name) => normalize_in(value, name),
        }),
        _ => Ok(()),
    }
}

fn store(value: &mut Value, finest: i32) -> Result<(), String> {
    let text = match value {
        Value::String(text) => text.trim().to_owned(),
        Value::Number(number) => number.to_string(),
        // Decoding has its own words for the rest.
        _ => return Ok(()),
    };
    *value = Value::String(stored(&text, finest)?);
    Ok(())
}

fn stored(text: &str, finest: i32) -> Result<String, String> {
    let Some(amount) = parse(text)? else { return Ok(text.to_owned()) };
    let is_finer = amount.exponent < finest;
    Ok(if amount.is_kept && !is_finer { text.to_owned() } else { canonical(&amount.rounded_up(finest)) })
}

/// Which of two stored amounts is larger.
pub(super) fn compare(first: &str, second: &str) -> Ordering {
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

/// Reads an amount; `None` for one with more digits than can be counted here.
fn parse(text: &str) -> Result<Option<Amount>, String> {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let is_negative = text.starts_with('-');
    let end = unsigned.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(unsigned.len());
    let (number, suffix) = unsigned.split_at(end);
    let letters = suffix.trim_start_matches(|c| "eEinumkKMGTP".contains(c));
    let rest = letters.strip_prefix(['-', '+']).unwrap_or(letters);
    if text.is_empty() || !rest.bytes().all(|byte| byte.is_ascii_digit()) || number.matches('.').count() > 1 {
        return Err(WRONG_FORM.to_owned());
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
    /// No finer than this, away from zero.
    fn rounded_up(mut self, finest: i32) -> Self {
        if self.exponent < finest {
            let finer = 10_u128.checked_pow(self.exponent.abs_diff(finest));
            self.digits = finer.map_or_else(|| self.digits.min(1), |finer| self.digits.div_ceil(finer));
            self.exponent = finest;
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
    let Amount { is_negative, mut digits, mut exponent, mut form, .. } = *amount;
    if digits == 0 {
        return "0".to_owned();
    }
    let sign = if is_negative { "-" } else { "" };
    while digits.is_multiple_of(10) {
        digits /= 10;
        exponent += 1;
    }
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
            // Small ones and parts of one are not shown in powers of two.
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
        // Of what is too large for any suffix the suffix is lost, as on a real server.
        Form::Binary | Form::Decimal => {
            SUFFIXES.iter().find(|(power, _)| *power == exponent).map_or("", |(_, suffix)| suffix).to_owned()
        }
    };
    format!("{sign}{digits}{suffix}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// What is sent, and what a real server makes of it: as it is, and in limits and requests.
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
    fn amounts_are_stored_as_a_real_server_stores_them() {
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
    fn what_is_no_amount_is_reported_in_two_ways() {
        for text in ["", "abc", "1KiB", "1 Gi", "1e1.5", "1.2.3"] {
            assert_eq!(stored(text, NANO), Err(WRONG_FORM.to_owned()), "{text}");
        }
        for text in ["1ki", "1m5", "1e", "--1", "1kM"] {
            assert_eq!(stored(text, NANO), Err(WRONG_SUFFIX.to_owned()), "{text}");
        }
    }

    #[test]
    fn amounts_are_found_where_they_stand() {
        let mut pod = json!({"metadata": {"labels": {"resources": "x"}}, "spec": {
            "nodeSelector": {"limits": "1000m"},
            "containers": [{
                "resources": {"limits": {"cpu": 1, "memory": "1024Mi", "odd": true}, "requests": {"cpu": "100u"}},
                "env": [{"valueFrom": {"resourceFieldRef": {"divisor": "1000m"}}}],
            }],
            "volumes": [{"emptyDir": {"sizeLimit": 0.5}}],
        }});
        normalize(&mut pod).unwrap();
        let container = &pod["spec"]["containers"][0];
        let resources =
            json!({"limits": {"cpu": "1", "memory": "1Gi", "odd": true}, "requests": {"cpu": "1m"}});
        assert_eq!(container["resources"], resources);
        assert_eq!(container["env"][0]["valueFrom"]["resourceFieldRef"]["divisor"], "1");
        assert_eq!(pod["spec"]["volumes"][0]["emptyDir"]["sizeLimit"], "500m");
        assert_eq!(pod["spec"]["nodeSelector"]["limits"], "1000m");
    }

    #[test]
    fn amounts_are_compared_by_value() {
        assert_eq!(compare("1", "1000m"), Ordering::Equal);
        assert_eq!(compare("1Gi", "1G"), Ordering::Greater);
        assert_eq!(compare("-1", "0"), Ordering::Less);
        assert_eq!(compare("1e30", "1m"), Ordering::Greater);
    }
}
