//! The flag `--namespace`: one namespace, or several separated by commas.

use k8s_openapi::api::core::v1::Namespace;

use super::Failure;
use crate::api::ApiResource;
use crate::client::ApiClient;

/// Checks the items of `--namespace`; none is for all namespaces.
pub(super) fn checked(items: &[String]) -> Result<Vec<String>, Failure> {
    let wrong = |cause: &str, remedy: &str| Failure::Usage {
        cause: format!("--namespace={}: {cause}", items.join(",")),
        remedy: remedy.to_owned(),
    };
    for (at, item) in items.iter().enumerate() {
        if item.is_empty() {
            let remedy = "Separate names by single commas, such as --namespace=team-a,team-b; leave the flag out \
                          for all namespaces.";
            return Err(wrong("a name is empty", remedy));
        }
        if items[..at].contains(item) {
            return Err(wrong(&format!("{item:?} is there twice"), "Name each namespace once."));
        }
        label(item).map_err(|_| {
            let remedy = "Give names of at most 63 lower-case letters, digits and hyphens, with a letter or digit at \
                          both ends.";
            wrong(&format!("{item:?} is not a DNS label"), remedy)
        })?;
    }
    Ok(items.to_vec())
}

/// Returns those of these namespaces that do not exist, as far as permissions and the server tell: one request each.
pub(super) async fn missing(client: &ApiClient, names: &[String]) -> Vec<String> {
    let mut missing = Vec::new();
    for name in names {
        let found = client.get::<Namespace>(&ApiResource::of::<Namespace>(), None, name).await;
        if matches!(found, Ok(None)) {
            missing.push(name.clone());
        }
    }
    missing
}

/// Parses the name of one namespace, or of a Lease.
pub(super) fn label(text: &str) -> Result<String, String> {
    let is_label = !text.is_empty()
        && text.len() <= 63
        && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
        && !text.starts_with('-')
        && !text.ends_with('-');
    let wrong = "must be a DNS label: at most 63 lower-case letters, digits and hyphens";
    if is_label { Ok(text.to_owned()) } else { Err(wrong.to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(list: &str, expected: Result<&[&str], &str>) {
        let items: Vec<String> = list.split(',').map(str::to_owned).collect();
        match (checked(&items), expected) {
            (Ok(found), Ok(names)) => assert_eq!(found, names),
            (Err(Failure::Usage { cause, .. }), Err(wanted)) => {
                assert_eq!(cause, format!("--namespace={list}: {wanted}"));
            }
            (found, _) => panic!("{list:?}: {found:?}"),
        }
    }

    #[test]
    fn namespaces_are_distinct_dns_labels() {
        check("team-a", Ok(&["team-a"]));
        check("team-b,team-a", Ok(&["team-b", "team-a"]));
        check("a,", Err("a name is empty"));
        check("", Err("a name is empty"));
        check("a,b,a", Err("\"a\" is there twice"));
        for wrong in ["A", "-a", "a-", "a.b", "a b", "*"] {
            check(wrong, Err(&format!("{wrong:?} is not a DNS label")));
        }
        assert!(checked(&["a".repeat(64)]).is_err());
        assert_eq!(checked(&[]).unwrap(), Vec::<String>::new());
    }
}
