//! Slurm's lists of hosts: `n[1-3,7],r[0-1]c[08-11],login`.

use ferroflow_core::{Result, ensure, status};

/// The largest number of hosts in a list; no cluster has more, so a longer list is a mistake.
const MOST: usize = 100_000;

/// Returns the hosts of a list, in its order.
pub(super) fn expand(list: &str) -> Result<Vec<String>> {
    let mut hosts = Vec::new();
    for entry in split_outside_brackets(list)? {
        hosts.extend(expand_entry(entry)?);
        ensure!(hosts.len() <= MOST, InvalidArgument, "the host list '{list}' has more than {MOST} hosts");
    }
    Ok(hosts)
}

/// Splits a list at the commas that are not within brackets.
fn split_outside_brackets(list: &str) -> Result<Vec<&str>> {
    let (mut entries, mut start, mut open) = (Vec::new(), 0, false);
    for (at, character) in list.char_indices() {
        match character {
            '[' if !open => open = true,
            ']' if open => open = false,
            '[' | ']' => {
                return Err(status!(InvalidArgument, "the host list '{list}' has an unmatched bracket"));
            }
            ',' if !open => {
                entries.push(list[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
    }
    ensure!(!open, InvalidArgument, "the host list '{list}' has an unmatched bracket");
    entries.push(list[start..].trim());
    ensure!(
        entries.iter().all(|entry| !entry.is_empty()),
        InvalidArgument,
        "the host list '{list}' has an empty entry"
    );
    Ok(entries)
}

/// Returns the hosts of one entry; of several brackets the last varies fastest.
fn expand_entry(entry: &str) -> Result<Vec<String>> {
    let mut hosts = vec![String::new()];
    let mut rest = entry;
    while let Some((text, tail)) = rest.split_once('[') {
        let (ranges, tail) = tail
            .split_once(']')
            .ok_or_else(|| status!(InvalidArgument, "the hosts '{entry}' have an unmatched bracket"))?;
        let numbers = numbers(ranges, entry)?;
        let many = hosts.len().saturating_mul(numbers.len());
        ensure!(many <= MOST, InvalidArgument, "the hosts '{entry}' are more than {MOST}");
        let grown =
            hosts.iter().flat_map(|host| numbers.iter().map(move |number| format!("{host}{text}{number}")));
        hosts = grown.collect();
        rest = tail;
    }
    hosts.iter_mut().for_each(|host| host.push_str(rest));
    Ok(hosts)
}

/// Expands `1,5-7` into its numbers; all numbers of a range are as wide as its first.
fn numbers(ranges: &str, entry: &str) -> Result<Vec<String>> {
    let wrong = |what: &str| status!(InvalidArgument, "the hosts '{entry}' have {what} '{ranges}'");
    let mut all = Vec::new();
    for range in ranges.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        if !digits(first) || !digits(last) {
            return Err(wrong("no number in"));
        }
        let parse = |text: &str| text.parse::<u64>().map_err(|_| wrong("a number too large in"));
        let (from, to) = (parse(first)?, parse(last)?);
        if to < from {
            return Err(wrong("a range that goes down in"));
        }
        if to - from >= MOST as u64 {
            return Err(wrong("too many numbers in"));
        }
        all.extend((from..=to).map(|number| format!("{number:0width$}", width = first.len())));
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::expand;

    #[test]
    fn every_form_of_list_is_expanded_in_its_order() {
        let check = |list: &str, hosts: &str| assert_eq!(expand(list).unwrap().join(" "), hosts, "{list}");
        check("n1", "n1");
        check("n[1-3]", "n1 n2 n3");
        check("n[9-11]", "n9 n10 n11");
        check("n[08-11]", "n08 n09 n10 n11");
        check("a[1,5-7],b2, c", "a1 a5 a6 a7 b2 c");
        check("r[0-1]n[1-2]", "r0n1 r0n2 r1n1 r1n2");
        check("n[2,1],n2", "n2 n1 n2");
        check("gpu-node-[001-003]", "gpu-node-001 gpu-node-002 gpu-node-003");
    }

    #[test]
    fn mistakes_are_named() {
        let message = |list| expand(list).unwrap_err().message().to_owned();
        assert!(message("n[3-1]").contains("goes down"));
        assert!(message("n[1-3").contains("unmatched"));
        assert!(message("n1]").contains("unmatched"));
        assert!(message("n[a]").contains("no number"));
        assert!(message("n[]").contains("no number"));
        assert!(message("a,,b").contains("empty entry"));
        assert!(message("n[1-99999999]").contains("too many"));
        assert!(message("n[1-999]m[1-999]").contains("more than"));
    }
}
